//! The `TENURE.*` commands: what Tenure sees and decides, for people and scripts.

pub mod table;

use std::ffi::CStr;
use std::sync::atomic::Ordering;

use tenure_core::curve::{MissRatioCurve, even_sizes};
use tenure_core::decide::allocation::shared_curve;
use tenure_core::decide::sample_size::SAMPLE_SIZES;
use tenure_core::model::merged::MERGED_SAMPLE_SIZES;
use tenure_core::policy::density::Expected;
use tenure_core::units::KeyHash;

use self::table::COMMANDS;
use crate::config::{TABLE, allowed};
use crate::feature::Column;
use crate::features;
use crate::ffi::commands::Kind;
use crate::ffi::events::{self, Needed};
use crate::ffi::reply::{Answer, ErrorCode};
use crate::ffi::server::{ScanCursor, Server};
use crate::ffi::{alloc, filter, guard};
use crate::info;
use crate::observe::classes::{Class, ClassRules, Source};
use crate::observe::partitions::in_database;
use crate::rivals;
use crate::runtime::Runtime;
use crate::tenure::{Tenure, Why};
use crate::worker::PartitionView;

const POINTS_DEFAULT: usize = 40;
const POINTS_MAX: usize = 1000;
/// A tenant of several partitions is looked at as closely as this.
const SHARED_POINTS: usize = 200;
/// The curves of single K, by their names in a reply.
const BY_K: [(u32, &str); MERGED_SAMPLE_SIZES.len()] = [(1, "1"), (5, "5"), (8, "8"), (16, "16")];

/// Runs one command.
pub fn run(runtime: &mut Runtime, server: &mut Server, words: &[&[u8]]) -> Answer {
    let (name, arguments) = split(words);
    if is_container(&name) && asks_for_help(arguments) {
        return help_of(&name);
    }
    if name == "tenure.debug" && !runtime.tenure.settings().debug_commands {
        return Answer::error("TENURE.DEBUG needs tenure.debug-commands yes, which can be set at start only");
    }
    if let Some(answer) = runtime.run(server, &name, arguments) {
        return answer;
    }
    let Runtime { tenure, .. } = runtime;
    match (name.as_str(), arguments) {
        ("tenure.help", arguments) => help(arguments),
        ("tenure.status", []) => status(runtime),
        ("tenure.partitions", []) => partitions(runtime),
        ("tenure.tenants", []) => tenants(runtime),
        ("tenure.mrc", []) => sizes(tenure),
        ("tenure.mrc", [of, rest @ ..]) => curves(tenure, of, rest),
        ("tenure.why", [key]) => match tenure.why(server, server.selected_db(), key) {
            Ok(known) => why(&known),
            Err(why) => Answer::error(why),
        },
        ("tenure.class", arguments) => class(tenure, server, arguments),
        ("tenure.debug", arguments) => debug(tenure, server, arguments),
        _ => wrong_count(&name),
    }
}

/// True for a command that changes what Tenure does for everybody.
pub fn changes(words: &[&[u8]]) -> bool {
    let [name, rest @ ..] = words else { return false };
    let is = |row: &CStr, word: &[u8]| row.to_bytes().eq_ignore_ascii_case(word);
    let mut of_name = COMMANDS.iter().filter(|row| is(row.name, name));
    let row = of_name.find(|row| row.subcommand.is_none_or(|sub| rest.first().is_some_and(|word| is(sub, word))));
    row.is_some_and(|row| row.kind == Kind::Changes)
}

/// What it answers to a client that may not.
pub fn no_permission() -> Answer {
    let why = "this changes Tenure for everybody: it needs the right to CONFIG SET";
    Answer::Error(ErrorCode::NoPermission, why.to_owned())
}

/// What commands answer when there is no state to look at.
pub fn run_stopped(words: &[&[u8]]) -> Answer {
    let (name, arguments) = split(words);
    match name.as_str() {
        "tenure.help" => help(arguments),
        container if is_container(container) && asks_for_help(arguments) => help_of(container),
        "tenure.status" => {
            let state = info::state_without_tenure();
            let last_panic = Answer::Text(guard::last_panic());
            let word = |text: &str| Answer::Text(text.to_owned());
            Answer::Map(vec![
                ("state", word(state)),
                ("version", word(info::VERSION)),
                ("eviction", word(&format!("left to the server: {}", info::why_without_tenure().0))),
                ("worker", word("none")),
                ("watching", word("nothing")),
                ("memory_bytes", Answer::Integer(alloc::allocated_bytes() as i64)),
                ("panics", Answer::Integer(guard::panics() as i64)),
                ("last_panic", last_panic),
            ])
        }
        _ => {
            let (why, what_starts_it) = info::why_without_tenure();
            Answer::error(format!("{why}; {what_starts_it}"))
        }
    }
}

fn split<'a, 'b>(words: &'a [&'b [u8]]) -> (String, &'a [&'b [u8]]) {
    match words {
        [name, arguments @ ..] => (text(name).to_ascii_lowercase(), arguments),
        [] => (String::new(), &[]),
    }
}

fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

fn wrong_count(name: &str) -> Answer {
    Answer::error(format!("wrong number of arguments for '{name}' command; TENURE.HELP shows what each takes"))
}

fn help(arguments: &[&[u8]]) -> Answer {
    let line = |text: &str| Answer::Text(text.to_owned());
    match arguments {
        [] => {
            let info = ["INFO tenure", "    The same as counters, for monitoring."].map(str::to_owned);
            Answer::Array(table::help(None).into_iter().chain(info).map(Answer::Text).collect())
        }
        [topic] if topic.eq_ignore_ascii_case(b"settings") => {
            let lines = TABLE.iter().flat_map(|setting| {
                let head = format!("tenure.{}: {}", setting.name.to_string_lossy(), allowed(setting));
                [line(&head), line(&format!("    {}", setting.about))]
            });
            Answer::Array(lines.collect())
        }
        [topic] => {
            Answer::error(format!("no help on '{}'; TENURE.HELP and TENURE.HELP settings are there", text(topic)))
        }
        _ => wrong_count("tenure.help"),
    }
}

/// True for a command that consists of subcommands.
fn is_container(name: &str) -> bool {
    COMMANDS.iter().any(|row| row.subcommand.is_some() && row.name.to_bytes() == name.as_bytes())
}

fn asks_for_help(arguments: &[&[u8]]) -> bool {
    matches!(arguments, [only] if only.eq_ignore_ascii_case(b"help"))
}

/// The lines on one container's subcommands.
fn help_of(container: &str) -> Answer {
    let lines =
        COMMANDS.iter().find(|row| row.name.to_bytes() == container.as_bytes()).map(|row| table::help(Some(row.name)));
    Answer::Array(lines.unwrap_or_default().into_iter().map(Answer::Text).collect())
}

fn status(runtime: &Runtime) -> Answer {
    let tenure = &runtime.tenure;
    let published = &tenure.published;
    let count = |n: u64| Answer::Integer(n as i64);
    let targets: u64 = published.plan.as_ref().map_or(0, |plan| plan.target_bytes.iter().sum());
    let mut fields = vec![
        ("state", Answer::Text("running".to_owned())),
        ("version", Answer::Text(info::VERSION.to_owned())),
        ("features", Answer::Text(features::names())),
        ("policy", Answer::Text(tenure.settings().policy.name())),
        ("eviction", Answer::Text(tenure.status_shown().as_str().to_owned())),
        ("worker", Answer::Text(if tenure.worker.is_alive() { "running" } else { "dead" }.to_owned())),
        ("maxmemory_bytes", count(tenure.memory.limit_bytes)),
        ("headroom_bytes", count(tenure.headroom_bytes())),
        ("room", Answer::Text(tenure.pressure.room.text())),
        ("prediction_error", Answer::Number(info::prediction_error(tenure).unwrap_or(-1.0))),
        ("minimums", Answer::Text(tenure.minimums_status())),
        ("planned_bytes", count(targets)),
        ("k", Answer::Text(sample_sizes(tenure))),
        ("ranking", Answer::Text(info::ranking(tenure).to_owned())),
        ("miss_ratio_by_k", Answer::Text(miss_ratios(tenure))),
        ("miss_ratio_error_mean", Answer::Number(published.choice.error.mean().unwrap_or(0.0))),
        ("predicted_cost_us", Answer::Number(published.plan.as_ref().map_or(0.0, |plan| plan.cost_us))),
        ("partitions", count(tenure.observer.partitions.len() as u64)),
        ("windows", count(info::total(tenure, "windows"))),
        ("plans_adopted", count(info::total(tenure, "plans_adopted"))),
        ("learned", Answer::Text(if published.is_taught { "by its primary" } else { "here" }.to_owned())),
        ("watching", Answer::Text(watching(tenure))),
        ("sample_rate", Answer::Number(tenure.worker.shared.rate().rate())),
        ("evictions", count(info::total(tenure, "evictions"))),
        ("memory_bytes", count(alloc::allocated_bytes() as u64)),
        ("panics", count(guard::panics())),
    ];
    fields.extend(runtime.report().status.into_iter().map(|(name, value)| (name, value.into())));
    Answer::Map(fields)
}

/// What of the commands is watched, and why not all.
fn watching(tenure: &Tenure) -> String {
    if !tenure.watching.slices.are_on() {
        return info::watching(tenure);
    }
    let (watched, busy) = (100.0 * tenure.watching.slices.watched_share(), 100.0 * tenure.pressure.load.share());
    let percent = tenure.settings().watch_percent;
    format!(
        "slices: {watched:.0} % of the time, since the main thread is busy for {busy:.0} % of it and watching may take \
         {percent} %"
    )
}

/// What miniature caches missed in the last window, as `1=0.4100 2=0.4200 …`; empty where there are none.
fn miss_ratios(tenure: &Tenure) -> String {
    let choice = &tenure.published.choice;
    let pairs = SAMPLE_SIZES.iter().zip(choice.miss_ratios).map(|(k, ratio)| format!("{k}={ratio:.4}"));
    if choice.sampled_keys == 0 { String::new() } else { pairs.collect::<Vec<_>>().join(" ") }
}

/// The sampling sizes in force, ascending, separated by spaces.
fn sample_sizes(tenure: &Tenure) -> String {
    let partitions = 0..tenure.observer.partitions.len();
    let mut sizes: Vec<u32> = partitions.map(|partition| tenure.sample_size_of(partition)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
}

/// `TENURE.TENANTS`.
fn tenants(runtime: &Runtime) -> Answer {
    let columns = runtime.report().partitions;
    let of_features = |row: &info::TenantRow| {
        columns.iter().filter_map(|column| Some((column.name, Answer::Integer(row.count_of(column)? as i64)))).collect()
    };
    Answer::Array(info::tenants(&runtime.tenure).iter().map(|row| tenant(row, of_features(row))).collect())
}

/// `TENURE.PARTITIONS`.
fn partitions(runtime: &Runtime) -> Answer {
    let mut rows: Vec<_> = info::partitions(&runtime.tenure).iter().map(partition).collect();
    for Column { name, of_partition } in runtime.report().partitions {
        rows.iter_mut().zip(of_partition).for_each(|(row, value)| row.push((name, value.into())));
    }
    Answer::Array(rows.into_iter().map(Answer::Map).collect())
}

fn tenant(row: &info::TenantRow, of_features: Vec<(&'static str, Answer)>) -> Answer {
    let count = |n: u64| Answer::Integer(n as i64);
    let or_none = |n: Option<u64>| n.map_or(Answer::Integer(-1), count);
    let sum = |part: fn(&info::PartitionRow) -> u64| count(row.sum(part));
    let first = row.partitions.first();
    let mut fields = vec![
        ("name", Answer::Text(row.name.clone())),
        ("partitions", count(row.partitions.len() as u64)),
        ("keys", sum(|row| row.keys)),
        ("used_bytes", sum(|row| row.used_bytes)),
        ("target_bytes", or_none(row.target_bytes())),
        ("bytes_min", count(first.map_or(0, |row| row.bounds.bytes_min))),
        ("bytes_guaranteed", count(first.map_or(0, |row| row.bounds.bytes_guaranteed))),
        ("bytes_max", or_none(first.and_then(|row| row.bounds.bytes_max))),
        ("reads", count(row.counted.reads)),
        ("hits", count(row.counted.reads.saturating_sub(row.counted.misses))),
        ("misses", count(row.counted.misses)),
        ("miss_ratio", Answer::Number(row.miss_ratio())),
        ("miss_ratio_window", Answer::Number(row.miss_ratio_window())),
        ("penalty_us_mean", Answer::Number(row.penalty_us_mean())),
        ("evictions", count(row.counted.evictions)),
        ("k", count(row.k())),
    ];
    fields.extend(row.counted.of_misses().map(|(name, value)| (name, value.into())));
    fields.extend(of_features);
    Answer::Map(fields)
}

fn partition(row: &info::PartitionRow) -> Vec<(&'static str, Answer)> {
    let count = |n: u64| Answer::Integer(n as i64);
    let or_none = |n: Option<u64>| n.map_or(Answer::Integer(-1), count);
    let mut fields = vec![
        ("name", Answer::Text(row.name.clone())),
        ("tenant", Answer::Text(row.tenant.clone())),
        ("class", Answer::Text(row.class.clone())),
        ("keys", count(row.keys)),
        ("used_bytes", count(row.used_bytes)),
        ("target_bytes", or_none(row.target_bytes)),
        ("bytes_min", count(row.bounds.bytes_min)),
        ("bytes_max", or_none(row.bounds.bytes_max)),
        ("reads", count(row.counted.reads)),
        ("writes", count(row.counted.writes)),
        ("deletes", count(row.counted.deletes)),
        ("misses", count(row.counted.misses)),
        ("miss_ratio", Answer::Number(row.miss_ratio())),
        ("miss_ratio_window", Answer::Number(row.of_late.miss_ratio)),
        ("miss_ratio_predicted", Answer::Number(row.of_late.miss_ratio_predicted)),
        ("penalty_us_mean", Answer::Number(row.of_late.penalty_us_mean)),
        ("penalty_us_spread", Answer::Number(row.of_late.penalty_us_spread)),
        ("evictions", count(row.counted.evictions)),
        ("k", count(row.k)),
        ("reads_weighed", Answer::Number(row.of_late.reads_weighed)),
    ];
    fields.extend(row.counted.of_misses().map(|(name, value)| (name, value.into())));
    fields
}

/// `TENURE.MRC` without arguments: what each of several limits would do, in all and by tenant.
fn sizes(tenure: &Tenure) -> Answer {
    let Some(sizes) = tenure.current().map(|published| &published.sizes).filter(|sizes| !sizes.is_empty()) else {
        return Answer::error(
            "nothing is known of other sizes yet; under tenure.policy density it is, once memory has been full for a \
             window",
        );
    };
    let of_what = tenure.observer.partitions.of_what();
    let partitions_of = |tenant: usize| -> Vec<usize> {
        (0..of_what.len()).filter(|&i| usize::from(of_what[i].0.0) == tenant).collect()
    };
    let tenants: Vec<(&String, f64, Vec<Expected>)> = tenure
        .observer
        .partitions
        .tenants()
        .names()
        .iter()
        .enumerate()
        .map(|(tenant, name)| (name, partitions_of(tenant)))
        .map(|(name, its)| (name, sizes.reads_per_second(&its), sizes.of(&its)))
        .collect();
    let all: Vec<usize> = (0..of_what.len()).collect();
    let expected = |expected: &Expected, reads_per_second: f64| {
        [
            ("used_bytes", Answer::Integer(expected.used_bytes as i64)),
            ("reads_per_second", Answer::Number(reads_per_second)),
            ("miss_ratio", Answer::Number(expected.miss_ratio)),
            ("lost_us_per_second", Answer::Number(expected.lost_us_per_second)),
        ]
    };
    let row = |(size, of_all): (usize, &Expected)| {
        let of_tenant = |(name, reads, its): &(&String, f64, Vec<Expected>)| {
            let name = ("name", Answer::Text((*name).clone()));
            Answer::Map(std::iter::once(name).chain(expected(&its[size], *reads)).collect())
        };
        let mut fields = vec![("maxmemory_bytes", Answer::Integer(sizes.memory_bytes[size] as i64))];
        fields.extend(expected(of_all, sizes.reads_per_second(&all)));
        fields.push(("tenants", Answer::Array(tenants.iter().map(of_tenant).collect())));
        Answer::Map(fields)
    };
    Answer::Array(sizes.of(&all).iter().enumerate().map(row).collect())
}

/// `TENURE.MRC` of a tenant or partition.
fn curves(tenure: &Tenure, of: &[u8], rest: &[&[u8]]) -> Answer {
    let (points, by_k, is_lru) = match rest {
        [points @ .., last] if last.eq_ignore_ascii_case(b"by-k") => (points, true, false),
        [points @ .., last] if last.eq_ignore_ascii_case(b"lru") => (points, false, true),
        points => (points, false, false),
    };
    let points = match points {
        [] => POINTS_DEFAULT,
        [points] => match text(points).parse() {
            Ok(n) if (1..=POINTS_MAX).contains(&n) => n,
            _ => return Answer::error(format!("points is '{}'; allowed is 1 to {POINTS_MAX}", text(points))),
        },
        _ => return wrong_count("tenure.mrc"),
    };
    let ids = match partitions_named(tenure, of) {
        Ok(ids) => ids,
        Err(why) => return Answer::error(why),
    };
    if !by_k && !is_lru {
        let its = tenure.current().map(|published| published.sizes.curve_of(&ids)).unwrap_or_default();
        if let Some(last) = its.points().last() {
            return curve(&its, &even_sizes(last.bytes, points));
        }
    }
    let views: Vec<&PartitionView> = ids.into_iter().filter_map(|id| tenure.view(id)).collect();
    let together = shared(&views, |view| Some(&view.curve));
    if together.is_empty() {
        return Answer::error(format!(
            "nothing is known of partition '{}' yet; a curve is made at the end of each window",
            text(of)
        ));
    }
    let sizes = even_sizes(together.points().last().map_or(1, |point| point.bytes), points);
    if !by_k {
        return curve(&together, &sizes);
    }
    if views.iter().all(|view| view.merged.is_none()) {
        return Answer::error(rivals::NO_CURVES_BY_K);
    }
    let of_k = |&(k, name): &(u32, &'static str)| {
        (name, curve(&shared(&views, |view| view.merged.as_ref().and_then(|merged| merged.of(k))), &sizes))
    };
    Answer::Map(std::iter::once(("merged", curve(&together, &sizes))).chain(BY_K.iter().map(of_k)).collect())
}

/// Pairs of bytes and miss ratio at these sizes.
fn curve(curve: &MissRatioCurve, sizes: &[u64]) -> Answer {
    let pair =
        |&bytes: &u64| Answer::Array(vec![Answer::Integer(bytes as i64), Answer::Number(curve.miss_ratio_at(bytes))]);
    Answer::Array(sizes.iter().map(pair).collect())
}

/// `TENURE.WHY`.
fn why(known: &Why) -> Answer {
    let count = |n: u64| Answer::Integer(n as i64);
    let from = if known.is_measured { "measured" } else { "partition" };
    Answer::Map(vec![
        ("state", Answer::Text(if known.is_there { "resident" } else { "evicted" }.to_owned())),
        ("partition", Answer::Text(known.partition.clone())),
        ("requests", count(u64::from(known.n_requests))),
        ("age_requests", count(known.age_requests)),
        ("gap_requests", Answer::Number(known.gap_requests.unwrap_or(-1.0))),
        ("feature", Answer::Text(known.feature.clone())),
        ("penalty_us", Answer::Number(known.penalty_us)),
        ("penalty_from", Answer::Text(from.to_owned())),
        ("size_bytes", count(u64::from(known.size_bytes))),
        ("expires_in_ms", known.expires_in_ms.map_or(Answer::Integer(-1), count)),
        ("ranking", Answer::Text(known.ranking.to_owned())),
        ("reads_per_million_requests", Answer::Number(known.reads_per_million)),
        ("score", Answer::Number(known.score)),
        ("compared", count(known.compared as u64)),
        ("lower", count(known.lower as u64)),
    ])
}

/// The curve of one partition, or of several that share their memory so that least is missed.
fn shared<'a>(
    views: &[&'a PartitionView],
    curve_of: impl Fn(&'a PartitionView) -> Option<&'a MissRatioCurve>,
) -> MissRatioCurve {
    if let [only] = views {
        return curve_of(only).cloned().unwrap_or_default();
    }
    let parts: Vec<_> = views.iter().filter_map(|view| Some((view.weights.reads, curve_of(view)?))).collect();
    shared_curve(&parts, SHARED_POINTS)
}

/// A tenant's partitions, or one partition, by their numbers: keys of no class, whose partition is named as the
/// tenant, go by `tenant/none`.
///
/// # Errors
/// Which partitions there are, where there is none of that name.
fn partitions_named(tenure: &Tenure, name: &[u8]) -> Result<Vec<usize>, String> {
    let partitions = &tenure.observer.partitions;
    let name = text(name);
    let tenant = partitions.tenants().names().iter().position(|held| *held == name);
    let of_tenant = |tenant: usize| {
        let its = partitions.of_what().iter().enumerate().filter(move |(_, (of, _))| usize::from(of.0) == tenant);
        its.map(|(i, _)| i).collect()
    };
    Ok(match tenant {
        Some(tenant) => of_tenant(tenant),
        None => vec![partitions.called(name.strip_suffix("/none").unwrap_or(&name).as_bytes())?.index()],
    })
}

/// `TENURE.CLASS`.
fn class(tenure: &mut Tenure, server: &mut Server, arguments: &[&[u8]]) -> Answer {
    let [first, rest @ ..] = arguments else { return wrong_count("tenure.class") };
    let verb = text(first).to_ascii_uppercase();
    if tenure.settings().classes.source == Source::Off && verb != "LIST" {
        return Answer::error("tenure.classes is off; CONFIG SET tenure.classes hinted, or auto, lets classes count");
    }
    match (verb.as_str(), rest) {
        ("KEY", [key, name]) => with_class(tenure, name, |tenure, class| {
            tenure.hint_key(server, server.selected_db(), key, class);
            Ok(())
        }),
        ("CONNECTION", [name]) => with_class(tenure, name, |tenure, class| {
            if !filter::knows_clients() {
                return Err("this server doesn't tell modules who writes; Valkey 7.2 and Redis 7.2 do".to_owned());
            }
            events::need(server, Needed::Connections);
            tenure.observer.partitions.classes.hint_connection(server.client_id(), class)
        }),
        ("PREFIX", [prefix, name]) => set_rule(tenure, server, prefix, &text(name)),
        ("GET", [key]) => {
            let hash = in_database(KeyHash::of(key), server.selected_db());
            let partitions = &tenure.observer.partitions;
            let penalty_us = partitions.keys.entry(hash).and_then(|entry| entry.penalty_us());
            Answer::Map(vec![
                ("class", Answer::Text(partitions.classes.name(partitions.class_of(key, hash)))),
                ("penalty_us", Answer::Number(penalty_us.map_or(-1.0, f64::from))),
            ])
        }
        ("LIST", []) => list_classes(tenure),
        ("KEY" | "CONNECTION" | "PREFIX" | "GET" | "LIST", _) => wrong_count("tenure.class"),
        _ => Answer::error(format!("TENURE.CLASS takes KEY, CONNECTION, PREFIX, GET or LIST, not '{}'", text(first))),
    }
}

fn with_class(tenure: &mut Tenure, name: &[u8], hint: impl FnOnce(&mut Tenure, Class) -> Result<(), String>) -> Answer {
    let class = tenure.observer.partitions.classes.named(&text(name));
    match class.and_then(|class| hint(tenure, class)) {
        Ok(()) => Answer::Ok,
        Err(why) => Answer::error(why),
    }
}

/// Puts a rule in the place of the prefix's former one, in `tenure.class-rules`, where it outlives a `CONFIG REWRITE`.
fn set_rule(tenure: &Tenure, server: &mut Server, prefix: &[u8], name: &str) -> Answer {
    match ClassRules::with(&tenure.settings().class_rules_text, prefix, name) {
        Ok(rules) => match server.call(c"CONFIG", &[b"SET", b"tenure.class-rules", &rules]) {
            Some(_) => Answer::Ok,
            None => Answer::error("the server refused to set tenure.class-rules"),
        },
        Err(why) => Answer::error(why),
    }
}

/// Each class in use, over all tenants.
fn list_classes(tenure: &Tenure) -> Answer {
    let mut rows: Vec<(String, Vec<info::PartitionRow>)> = Vec::new();
    for row in info::partitions(tenure) {
        match rows.iter_mut().find(|(class, _)| *class == row.class) {
            Some((_, of_class)) => of_class.push(row),
            None => rows.push((row.class.clone(), vec![row])),
        }
    }
    let entry = |(class, of_class): (String, Vec<info::PartitionRow>)| {
        let sum = |part: fn(&info::PartitionRow) -> u64| Answer::Integer(of_class.iter().map(part).sum::<u64>() as i64);
        let penalties: u64 = of_class.iter().map(|row| row.counters.penalties).sum();
        let weighed: f64 = of_class.iter().map(|row| row.of_late.penalty_us_mean * row.counters.penalties as f64).sum();
        Answer::Map(vec![
            ("class", Answer::Text(class)),
            ("partitions", Answer::Integer(of_class.len() as i64)),
            ("keys", sum(|row| row.keys)),
            ("used_bytes", sum(|row| row.used_bytes)),
            ("target_bytes", sum(|row| row.target_bytes.unwrap_or(0))),
            ("misses", sum(|row| row.counted.misses)),
            ("penalty_us_mean", Answer::Number(if penalties > 0 { weighed / penalties as f64 } else { 0.0 })),
        ])
    };
    Answer::Array(rows.into_iter().map(entry).collect())
}

/// Faults on purpose, for tests.
fn debug(tenure: &mut Tenure, server: &mut Server, arguments: &[&[u8]]) -> Answer {
    let words: Vec<String> = arguments.iter().map(|word| text(word).to_ascii_lowercase()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["panic", "worker"] => tenure.worker.shared.panic_please.store(true, Ordering::Relaxed),
        ["panic", "filter"] => tenure.observer.commands.panic_at_next(),
        ["panic", "turn"] => tenure.faults.panic_please = true,
        ["panic", "command"] => panic!("asked to by TENURE.DEBUG"),
        ["panic", "visit"] => {
            let cursor = ScanCursor::new(server);
            while !server.scan_step(&cursor, |_, _| panic!("asked to by TENURE.DEBUG")) {}
        }
        _ => {
            let allowed = "PANIC WORKER|FILTER|TURN|COMMAND|VISIT|READS, and TIER key [fast|slow]";
            return Answer::error(format!("TENURE.DEBUG takes {allowed}"));
        }
    }
    Answer::Ok
}
