//! `tenure status`: what Tenure does on a server, or on all primaries of a cluster, node by node and all together.

use std::fmt::Write as _;

use anyhow::Result;
use serde_json::{Value, json};
use tenure_bench::report::columns;
use tenure_core::units::format_bytes;
use tenure_view::nodes::{Fields, connect, number, text};

use crate::connection::ConnectionArguments;
use crate::print;

/// The options of `tenure status`.
#[derive(clap::Args)]
pub struct Arguments {
    /// HOST:PORT of a server with Tenure, or of any node of a cluster; redis://USER:PASSWORD@HOST:PORT where it asks
    /// for one.
    #[arg(value_name = "SERVER")]
    server: String,

    #[command(flatten)]
    connection: ConnectionArguments,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// One tenant, on all nodes together.
#[derive(Debug, Default, PartialEq)]
struct Tenant {
    name: String,
    keys: f64,
    used_bytes: f64,
    target_bytes: f64,
    bytes_min: f64,
    bytes_guaranteed: f64,
    /// `None`: no maximum.
    bytes_max: Option<f64>,
    reads: f64,
    misses: f64,
    /// Misses × mean penalty.
    penalty_us: f64,
    evictions: f64,
}

/// Runs the subcommand.
///
/// # Errors
/// When a node doesn't answer, or has no Tenure.
pub fn run(arguments: &Arguments) -> Result<()> {
    let mut nodes = connect(arguments.connection.to(&arguments.server)?)?;
    let mut statuses = Vec::new();
    let mut rows = Vec::new();
    for node in &mut nodes {
        statuses.push((node.address.clone(), node.status()?));
        rows.push(node.tenants()?);
    }
    let tenants = add_up(&rows);
    if arguments.json {
        return print(&format!("{:#}\n", to_json(&statuses, &rows, &tenants)));
    }
    print(&table(&statuses, &rows, &tenants))
}

/// Counts and bytes add up, ratios are of the sums, and a penalty is weighed by misses.
fn add_up(rows: &[Vec<Fields>]) -> Vec<Tenant> {
    let mut tenants: Vec<Tenant> = Vec::new();
    for row in rows.iter().flatten() {
        let name = text(row, "name");
        let i = tenants.iter().position(|tenant| tenant.name == name).unwrap_or_else(|| {
            tenants.push(Tenant { name: name.to_owned(), bytes_max: Some(0.0), ..Tenant::default() });
            tenants.len() - 1
        });
        let sum = &mut tenants[i];
        let bytes_max = Some(number(row, "bytes_max")).filter(|&bytes| bytes >= 0.0);
        sum.keys += number(row, "keys");
        sum.used_bytes += number(row, "used_bytes");
        sum.target_bytes += number(row, "target_bytes").max(0.0);
        sum.bytes_min += number(row, "bytes_min");
        sum.bytes_guaranteed += number(row, "bytes_guaranteed");
        sum.bytes_max = sum.bytes_max.zip(bytes_max).map(|(a, b)| a + b);
        sum.reads += number(row, "reads");
        sum.misses += number(row, "misses");
        sum.penalty_us += number(row, "misses") * number(row, "penalty_us_mean");
        sum.evictions += number(row, "evictions");
    }
    tenants
}

impl Tenant {
    fn miss_ratio(&self) -> f64 {
        self.misses / self.reads.max(1.0)
    }

    fn penalty_us_mean(&self) -> f64 {
        self.penalty_us / self.misses.max(1.0)
    }
}

/// A field as JSON: a number where it is one.
fn value(text: &str) -> Value {
    text.parse::<i64>()
        .map(Value::from)
        .or_else(|_| text.parse::<f64>().map(Value::from))
        .unwrap_or_else(|_| json!(text))
}

fn fields(fields: &Fields) -> Value {
    Value::Object(fields.iter().map(|(name, text)| (name.clone(), value(text))).collect())
}

fn to_json(statuses: &[(String, Fields)], rows: &[Vec<Fields>], tenants: &[Tenant]) -> Value {
    let node = |((address, status), rows): (&(String, Fields), &Vec<Fields>)| {
        let tenants = rows.iter().map(fields).collect::<Vec<_>>();
        json!({ "address": address, "status": fields(status), "tenants": tenants })
    };
    let tenant = |tenant: &Tenant| {
        json!({
            "name": tenant.name,
            "keys": tenant.keys,
            "used_bytes": tenant.used_bytes,
            "target_bytes": tenant.target_bytes,
            "bytes_min": tenant.bytes_min,
            "bytes_guaranteed": tenant.bytes_guaranteed,
            "bytes_max": tenant.bytes_max.unwrap_or(-1.0),
            "reads": tenant.reads,
            "misses": tenant.misses,
            "miss_ratio": tenant.miss_ratio(),
            "penalty_us_mean": tenant.penalty_us_mean(),
            "evictions": tenant.evictions,
        })
    };
    json!({
        "nodes": statuses.iter().zip(rows).map(node).collect::<Vec<_>>(),
        "tenants": tenants.iter().map(tenant).collect::<Vec<_>>(),
    })
}

fn table(statuses: &[(String, Fields)], rows: &[Vec<Fields>], tenants: &[Tenant]) -> String {
    let bytes = |n: f64| format_bytes(n as u64);
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<String>>();
    let mut nodes =
        vec![words(&["node", "policy", "maxmemory", "used", "planned", "windows", "evictions", "eviction"])];
    for ((address, status), rows) in statuses.iter().zip(rows) {
        nodes.push(vec![
            address.clone(),
            text(status, "policy").to_owned(),
            bytes(number(status, "maxmemory_bytes")),
            bytes(rows.iter().map(|row| number(row, "used_bytes")).sum()),
            bytes(number(status, "planned_bytes")),
            text(status, "windows").to_owned(),
            text(status, "evictions").to_owned(),
            text(status, "eviction").to_owned(),
        ]);
    }
    let mut all = vec![words(&[
        "tenant",
        "keys",
        "used",
        "target",
        "min",
        "guaranteed",
        "max",
        "reads",
        "miss ratio",
        "penalty us",
        "evictions",
    ])];
    for tenant in tenants {
        all.push(vec![
            tenant.name.clone(),
            format!("{:.0}", tenant.keys),
            bytes(tenant.used_bytes),
            bytes(tenant.target_bytes),
            bytes(tenant.bytes_min),
            bytes(tenant.bytes_guaranteed),
            tenant.bytes_max.map_or("-1".to_owned(), bytes),
            format!("{:.0}", tenant.reads),
            format!("{:.4}", tenant.miss_ratio()),
            format!("{:.0}", tenant.penalty_us_mean()),
            format!("{:.0}", tenant.evictions),
        ]);
    }
    let mut out = columns(&nodes);
    let _ = write!(out, "\n{}", columns(&all));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, rest: &[(&str, &str)]) -> Fields {
        let rest = rest.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        rest.chain([("name".to_owned(), name.to_owned())]).collect()
    }

    #[test]
    fn nodes_add_up_by_tenant() {
        let nodes = [
            vec![
                row(
                    "a",
                    &[
                        ("keys", "10"),
                        ("bytes_max", "100"),
                        ("reads", "80"),
                        ("misses", "20"),
                        ("penalty_us_mean", "100"),
                    ],
                ),
                row("b", &[("bytes_max", "100"), ("target_bytes", "-1")]),
            ],
            vec![
                row("b", &[("bytes_max", "-1"), ("target_bytes", "7")]),
                row(
                    "a",
                    &[("keys", "5"), ("bytes_max", "50"), ("reads", "20"), ("misses", "5"), ("penalty_us_mean", "600")],
                ),
            ],
        ];
        let tenants = add_up(&nodes);
        let [a, b] = &tenants[..] else { panic!("{tenants:?}") };
        assert_eq!((a.keys, a.bytes_max, a.miss_ratio(), a.penalty_us_mean()), (15.0, Some(150.0), 0.25, 200.0));
        assert_eq!((b.target_bytes, b.bytes_max, b.miss_ratio(), b.penalty_us_mean()), (7.0, None, 0.0, 0.0));
    }
}
