//! `tenure plan`: the memory that a tenant takes for a miss ratio, and what more or less would do; of a running
//! server, of all primaries of a cluster, or of a trace. Of servers also what another `maxmemory` would do to all
//! tenants, and what that is in money.
//!
//! A server's curves are of the policy in force, put together in `tenure_view::plan` and `tenure_view::sizing`. A
//! trace's curve is that of K-LRU, as a server with that many `maxmemory-samples` would have.

use std::path::Path;

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};
use tenure_bench::report::columns;
use tenure_core::curve::even_sizes;
use tenure_core::model::census::Census;
use tenure_core::model::krr::Krr;
use tenure_core::model::{Counted, CurveModel};
use tenure_core::sampling::SampleRate;
use tenure_core::units::{TenantId, format_bytes};
use tenure_view::nodes::connect;
use tenure_view::plan::{Answer, Known, choose, of_servers, share_of};
use tenure_view::sizing::{Expected, Prices, Size, Sizing};

use crate::connection::ConnectionArguments;
use crate::print;
use crate::progress::Progress;
use crate::trace_args::{SAMPLE_KEYS_MIN, TraceArgs, parse_rate, report_bad_lines, sampling_at_least};

/// Sizes that a trace's curve is made at.
const CURVE_POINTS: usize = 400;
/// How much more memory is looked at.
const NEXT_BYTES: f64 = (64_u64 << 20) as f64;
const ONE_PERCENT: f64 = 0.01;
/// Keys in the census that finds a tenant's footprint: 1 % standard error beyond them.
const CENSUS_KEYS: usize = 8192;

/// The options of `tenure plan`.
#[derive(clap::Args)]
pub struct Arguments {
    /// HOST:PORT of a server with Tenure, or of any node of a cluster; or a trace, `-` for standard input.
    #[arg(value_name = "SERVER|TRACE")]
    source: String,

    #[command(flatten)]
    connection: ConnectionArguments,

    /// Whose memory; may be left out where there is only one tenant.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,

    /// The miss ratio that is wanted, 0 to 1.
    #[arg(long, value_name = "X", value_parser = parse_ratio)]
    miss_ratio: Option<f64>,

    /// Of a server: the share of the time lost to misses now that may be lost, such as 0.5; 1 and more give memory
    /// back.
    #[arg(long, value_name = "SHARE", value_parser = parse_positive)]
    lost_share: Option<f64>,

    /// Of a server: what a gigabyte (2^30 bytes) of memory costs a month; with a price of time or misses, the size
    /// that costs least.
    #[arg(long, value_name = "PER_GB_MONTH", value_parser = parse_positive)]
    memory_price: Option<f64>,

    /// What an hour of time lost to misses costs.
    #[arg(long, value_name = "PER_HOUR", value_parser = parse_positive, requires = "memory_price")]
    time_price: Option<f64>,

    /// What a miss costs.
    #[arg(long, value_name = "PER_MISS", value_parser = parse_positive, requires = "memory_price")]
    miss_price: Option<f64>,

    /// Of a trace: the sampling size K of the server, 1 to 64.
    #[arg(long, value_name = "K", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=64))]
    k: u32,

    /// Of a trace: the share of keys to sample, above 0 and up to 1; more where that is fewer than 8192 keys.
    #[arg(long, value_name = "SHARE", default_value = "0.1", value_parser = parse_rate)]
    rate: SampleRate,

    #[command(flatten)]
    reading: TraceArgs,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn parse_ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse().ok().filter(|ratio: &f64| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| format!("'{text}' is no miss ratio; allowed is 0 to 1"))
}

fn parse_positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| format!("'{text}' is no number from 0 on"))
}

/// Runs the subcommand.
///
/// # Errors
/// When the source can't be read, or knows nothing of the tenant.
pub fn run(arguments: &Arguments) -> Result<()> {
    let path = Path::new(&arguments.source);
    let is_trace = arguments.source == "-" || path.exists();
    if !is_trace {
        return of_server(arguments);
    }
    ensure!(
        arguments.memory_price.is_none() && arguments.lost_share.is_none(),
        "a trace tells neither time nor money; --lost-share and prices are for a server"
    );
    let known = of_trace(path, arguments)?;
    let answer = Answer::of(&known, arguments.miss_ratio);
    print(&if arguments.json { format!("{:#}\n", answer.to_json(&known)) } else { table(&answer, &known, "footprint") })
}

fn of_server(arguments: &Arguments) -> Result<()> {
    let mut nodes = connect(arguments.connection.to(&arguments.source)?)?;
    let sizing = Sizing::of_servers(&mut nodes)?;
    let prices = arguments.memory_price.map(|memory_per_gb_month| Prices {
        memory_per_gb_month,
        time_per_hour: arguments.time_price,
        per_miss: arguments.miss_price,
    });
    let wants_sizes = prices.is_some() || arguments.lost_share.is_some();
    ensure!(
        sizing.is_some() || !wants_sizes,
        "nothing is known of other sizes yet; under tenure.policy density it is, once memory has been full for a window"
    );
    let known = match (of_servers(&mut nodes, arguments.tenant.as_deref()), &sizing) {
        (Ok(known), _) => Some(known),
        // Of several tenants together.
        (Err(_), Some(_)) if arguments.tenant.is_none() => None,
        (Err(error), _) => return Err(error),
    };
    if prices.is_some_and(|prices| prices.time_per_hour.is_none() && prices.per_miss.is_none()) {
        bail!(
            "--memory-price needs --time-price or --miss-price beside it, or the least memory is always the cheapest"
        );
    }
    let sized = sizing.as_ref().map(|sizing| Sized { sizing, arguments, prices: prices.as_ref() });
    let known = known.as_ref().map(|known| (known, Answer::of(known, arguments.miss_ratio)));
    if arguments.json {
        let mut out = known.map_or_else(|| json!({}), |(known, answer)| answer.to_json(known));
        if let Some(sized) = sized {
            sized.add_to(&mut out);
        }
        return print(&format!("{out:#}\n"));
    }
    let known = known.map(|(known, answer)| table(&answer, known, "now"));
    let texts: Vec<String> = known.into_iter().chain(sized.map(|sized| sized.text())).collect();
    print(&texts.join("\n"))
}

/// What other limits would do, as it is asked for.
struct Sized<'a> {
    sizing: &'a Sizing,
    arguments: &'a Arguments,
    prices: Option<&'a Prices>,
}

impl Sized<'_> {
    fn tenant(&self) -> Option<&str> {
        self.arguments.tenant.as_deref()
    }

    /// The least limit for the miss ratio that is asked for, and for the share of the time lost.
    fn needed(&self) -> (Option<Option<f64>>, Option<Option<f64>>) {
        let (sizing, tenant) = (self.sizing, self.tenant());
        let now = sizing.at(sizing.present().memory_bytes, tenant).lost_us_per_second;
        let ratio = self.arguments.miss_ratio;
        let ratio = ratio.map(|ratio| sizing.least(tenant, |expected| expected.miss_ratio <= ratio));
        let lost = self.arguments.lost_share;
        let lost = lost.map(|share| sizing.least(tenant, |expected| expected.lost_us_per_second <= share * now));
        (ratio, lost)
    }

    /// What more memory by [`NEXT_BYTES`] would save: in all, and by tenant.
    fn next(&self) -> (Expected, Vec<(&str, Expected)>) {
        let (sizing, now) = (self.sizing, self.sizing.present());
        let saved = |tenant: Option<&str>| {
            let (before, after) =
                (sizing.at(now.memory_bytes, tenant), sizing.at(now.memory_bytes + NEXT_BYTES, tenant));
            Expected {
                used_bytes: after.used_bytes - before.used_bytes,
                reads_per_second: before.reads_per_second,
                miss_ratio: before.miss_ratio - after.miss_ratio,
                lost_us_per_second: before.lost_us_per_second - after.lost_us_per_second,
            }
        };
        (saved(None), now.tenants.iter().map(|(name, _)| (name.as_str(), saved(Some(name)))).collect())
    }

    fn add_to(&self, out: &mut Value) {
        let saved = |expected: &Expected| {
            let Expected { miss_ratio, lost_us_per_second, .. } = expected;
            json!({ "miss_ratio": miss_ratio, "lost_us_per_second": lost_us_per_second })
        };
        let (next, of_tenants) = self.next();
        let of_tenants: Vec<Value> = of_tenants
            .iter()
            .map(|(name, expected)| {
                let mut fields = saved(expected);
                fields["tenant"] = json!(name);
                fields
            })
            .collect();
        let (ratio, lost) = self.needed();
        out["maxmemory"] = self.sizing.to_json(self.prices);
        let fields = &mut out["maxmemory"];
        fields["present_bytes"] = json!(self.sizing.present().memory_bytes);
        fields["needed_bytes"] = json!(ratio.flatten().map(f64::round));
        fields["needed_for_lost_share_bytes"] = json!(lost.flatten().map(f64::round));
        fields["next"] = json!({ "bytes": NEXT_BYTES, "saves": saved(&next), "tenants": of_tenants });
        fields["spare_for_one_percent_bytes"] = json!(self.sizing.spare_bytes(ONE_PERCENT).round());
    }

    fn text(&self) -> String {
        let now = self.sizing.present();
        let mut out = format!("maxmemory, now {}, and what another would do\n", bytes(now.memory_bytes));
        let (ratio, lost) = self.needed();
        let whose = self.tenant().map_or(String::new(), |tenant| format!(" of tenant '{tenant}'"));
        let found = |limit: Option<f64>| limit.map_or("more than four times as much".to_owned(), bytes);
        if let (Some(limit), Some(asked)) = (ratio, self.arguments.miss_ratio) {
            out += &format!("a miss ratio{whose} of {asked} takes {}\n", found(limit));
        }
        if let (Some(limit), Some(asked)) = (lost, self.arguments.lost_share) {
            out += &format!("{:.0} % of the time lost{whose} takes {}\n", 100.0 * asked, found(limit));
        }
        let (next, of_tenants) = self.next();
        out += &format!("the next {} would save {}", bytes(NEXT_BYTES), saving(&next));
        let those = of_tenants.iter().filter(|(_, expected)| expected.lost_us_per_second > 0.0 && of_tenants.len() > 1);
        let those: Vec<String> = those.map(|(name, expected)| format!("'{name}' {}", saving(expected))).collect();
        out += &if those.is_empty() { "\n".to_owned() } else { format!(": {}\n", those.join(", ")) };
        let spare = self.sizing.spare_bytes(ONE_PERCENT);
        out += &format!("{} could be given back for 1 % more time lost\n", bytes(spare));
        if let Some(prices) = self.prices {
            let (cheapest, present) = (self.sizing.cheapest(prices), self.sizing.cost(now.memory_bytes, prices));
            out += &format!(
                "the cheapest is {}: {:.2} a month, {:.2} of it for memory; as it is now {:.2}, {:.2} of it for \
                 memory\n",
                bytes(cheapest.memory_bytes),
                cheapest.total(),
                cheapest.memory,
                present.total(),
                present.memory
            );
        }
        format!("{out}\n{}", columns(&self.rows()))
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let now = self.sizing.present();
        let mut head: Vec<String> = ["maxmemory", "", "miss ratio", "ms lost per second"].map(str::to_owned).to_vec();
        head.extend(self.prices.map(|_| "cost per month".to_owned()));
        let many = now.tenants.iter().filter(|(_, expected)| expected.reads_per_second > 0.0).count() > 1;
        let tenants: Vec<&str> = now
            .tenants
            .iter()
            .filter(|(_, e)| many && e.reads_per_second > 0.0)
            .map(|(name, _)| name.as_str())
            .collect();
        head.extend(tenants.iter().map(|name| format!("'{name}'")));
        let row = |size: &Size| {
            let mut row = vec![
                bytes(size.memory_bytes),
                format!("{:.0} %", 100.0 * size.memory_bytes / now.memory_bytes),
                format!("{:.4}", size.all.miss_ratio),
                format!("{:.1}", size.all.lost_us_per_second / 1e3),
            ];
            row.extend(self.prices.map(|prices| format!("{:.2}", self.sizing.cost(size.memory_bytes, prices).total())));
            let of = |name: &&str| format!("{:.4}", self.sizing.at(size.memory_bytes, Some(name)).miss_ratio);
            row.extend(tenants.iter().map(of));
            row
        };
        std::iter::once(head).chain(self.sizing.sizes.iter().map(row)).collect()
    }
}

fn bytes(n: f64) -> String {
    format_bytes(n as u64)
}

fn saving(saved: &Expected) -> String {
    format!("{:.1} ms per second ({:.2} points)", saved.lost_us_per_second / 1e3, 100.0 * saved.miss_ratio)
}

fn of_trace(path: &Path, arguments: &Arguments) -> Result<Known> {
    let (mut reader, progress) = Progress::open(path, arguments.reading.options(), "reading the trace")?;
    let sampling = sampling_at_least(arguments.rate, SAMPLE_KEYS_MIN);
    let mut model = Krr::new(arguments.k, sampling, Counted::ReadsAndWrites, 1)?;
    let mut census = Census::new(CENSUS_KEYS);
    let mut wanted: Option<TenantId> = None;
    let mut n = 0_u64;
    while let Some(access) = reader.next() {
        let access = access?;
        n += 1;
        if n.is_multiple_of(8192) {
            progress.update();
        }
        let is_wanted = match wanted {
            Some(tenant) => access.tenant == tenant,
            None => {
                let name = &reader.tenant_names()[usize::from(access.tenant.0)];
                let fits = arguments.tenant.as_ref().is_none_or(|asked| asked == name);
                if fits {
                    wanted = Some(access.tenant);
                }
                fits
            }
        };
        if is_wanted {
            model.record(&access);
            census.record(&access);
        }
    }
    drop(progress);
    report_bad_lines(reader.name(), reader.n_bad());
    let names: Vec<&str> = reader.tenant_names().iter().map(String::as_str).collect();
    let tenant = choose(&names, arguments.tenant.as_deref())?.to_owned();
    let footprint_bytes = census.footprint_bytes() as u64;
    let curve = model.curve(&even_sizes(footprint_bytes, CURVE_POINTS));
    Ok(Known { tenant, curve, present_bytes: footprint_bytes, penalty_us: None, nodes: Vec::new() })
}

fn table(answer: &Answer, known: &Known, what: &str) -> String {
    let mut out = format!("tenant '{}', {what} {}\n", known.tenant, format_bytes(known.present_bytes));
    if let Some(asked) = answer.asked {
        out += &match answer.needed_bytes {
            Some(bytes) => format!("a miss ratio of {asked} takes {}\n", format_bytes(bytes)),
            None => {
                let least = known.curve.points().last().map_or(1.0, |point| point.miss_ratio);
                format!(
                    "no memory brings a miss ratio of {asked}: {least:.4} is the least, the rest are first accesses\n"
                )
            }
        };
    }
    if known.nodes.len() > 1 {
        for (address, bytes) in &known.nodes {
            let needed = answer.needed_bytes.map(|needed| share_of(*bytes, known, needed));
            let needed = needed.map_or(String::new(), |bytes| format!(", then {}", format_bytes(bytes)));
            out += &format!("  {address}: {}{needed}\n", format_bytes(*bytes));
        }
    }
    let mut rows =
        vec![vec!["memory".to_owned(), String::new(), "miss ratio".to_owned(), "us lost per request".to_owned()]];
    for &(factor, bytes, miss_ratio) in &answer.rows {
        let lost = known.penalty_us.map_or("-".to_owned(), |penalty_us| format!("{:.1}", miss_ratio * penalty_us));
        rows.push(vec![format_bytes(bytes), format!("{:.0} %", 100.0 * factor), format!("{miss_ratio:.4}"), lost]);
    }
    format!("{out}\n{}", columns(&rows))
}
