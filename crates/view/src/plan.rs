//! The memory that a tenant takes for a miss ratio, and what more or less would do; of a running server, or all
//! primaries of a cluster.
//!
//! A server's curves are those it plans by (`TENURE.MRC`): one for each node and each class of the tenant. Together
//! they are a curve of the tenant's memory, in which each part keeps the share that it has now (its target, or what it
//! uses where there is no plan), each by its reads of late. Slots are a hash, so nodes differ by chance alone; a plan
//! may give classes other shares and so do better, in cost at the least.

use anyhow::{Result, bail};
use serde_json::{Value, json};
use tenure_core::curve::{CurvePoint, MissRatioCurve, Part};

use crate::nodes::{Fields, Node, number, text};

/// What the memory is multiplied by in the table.
const FACTORS: [f64; 9] = [0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0];

/// What is known of the tenant.
pub struct Known {
    /// Its name.
    pub tenant: String,
    /// Miss ratio by memory.
    pub curve: MissRatioCurve,
    /// What it has now, in bytes; of a trace, its footprint.
    pub present_bytes: u64,
    /// Mean miss penalty, in µs, where one was measured.
    pub penalty_us: Option<f64>,
    /// Its part on each node: address, bytes.
    pub nodes: Vec<(String, u64)>,
}

/// One node's or one class's part of a tenant.
struct Piece {
    address: String,
    curve: MissRatioCurve,
    reads: f64,
    present_bytes: f64,
}

/// What is known of `tenant` (may be left out where there is only one) on these servers, all together.
///
/// # Errors
/// When one doesn't answer, nothing is known yet, or it isn't clear who is meant.
pub fn of_servers(nodes: &mut [Node], tenant: Option<&str>) -> Result<Known> {
    let mut rows: Vec<Vec<Fields>> = Vec::new();
    for node in nodes.iter_mut() {
        rows.push(node.partitions()?);
    }
    let mut names: Vec<&str> = rows.iter().flatten().map(|row| text(row, "tenant")).collect();
    names.sort_unstable();
    names.dedup();
    let tenant = choose(&names, tenant)?.to_owned();
    let of_tenant = |rows: &[Fields]| rows.iter().filter(|row| text(row, "tenant") == tenant).cloned().collect();
    let rows: Vec<Vec<Fields>> = rows.iter().map(|rows| of_tenant(rows)).collect();
    let mut pieces = Vec::new();
    for (node, rows) in nodes.iter_mut().zip(&rows) {
        for row in rows {
            pieces.extend(piece(node, row)?);
        }
    }
    let curve = together(&pieces);
    if curve.is_empty() {
        bail!("nothing is known of tenant '{tenant}' yet; a curve is made at the end of each window");
    }
    let (misses, weighed) = rows.iter().flatten().fold((0.0, 0.0), |(misses, weighed), row| {
        let n = number(row, "misses");
        (misses + n, weighed + n * number(row, "penalty_us_mean"))
    });
    let mut by_node: Vec<(String, u64)> = Vec::new();
    for piece in &pieces {
        match by_node.iter_mut().find(|(address, _)| *address == piece.address) {
            Some((_, bytes)) => *bytes += piece.present_bytes as u64,
            None => by_node.push((piece.address.clone(), piece.present_bytes as u64)),
        }
    }
    Ok(Known {
        tenant,
        curve,
        present_bytes: pieces.iter().map(|piece| piece.present_bytes).sum::<f64>() as u64,
        penalty_us: (weighed > 0.0).then(|| weighed / misses),
        nodes: by_node,
    })
}

fn piece(node: &mut Node, row: &Fields) -> Result<Option<Piece>> {
    let Some(curve) = node.curve(text(row, "name"))? else { return Ok(None) };
    let (target, used) = (number(row, "target_bytes"), number(row, "used_bytes"));
    // A node that has just taken over, or an older Tenure, may have no reads of late.
    let reads = Some(number(row, "reads_weighed")).filter(|&reads| reads > 0.0).unwrap_or(number(row, "reads"));
    let present_bytes = if target >= 0.0 { target } else { used };
    Ok(Some(Piece { address: node.address.clone(), curve, reads, present_bytes }))
}

/// The pieces' curve, each at its share of what all have; where all have nothing, of what all could use.
fn together(pieces: &[Piece]) -> MissRatioCurve {
    let sum: f64 = pieces.iter().map(|piece| piece.present_bytes).sum();
    let last = |curve: &MissRatioCurve| curve.points().last().map_or(0.0, |point| point.bytes as f64);
    let could: f64 = pieces.iter().map(|piece| last(&piece.curve)).sum();
    let share = |piece: &Piece| if sum > 0.0 { piece.present_bytes / sum } else { last(&piece.curve) / could.max(1.0) };
    // A part that has nothing misses always.
    let nothing = MissRatioCurve::default();
    let parts = pieces.iter().map(|piece| match share(piece) {
        share if share > 0.0 => Part { curve: &piece.curve, weight: piece.reads, share },
        _ => Part { curve: &nothing, weight: piece.reads, share: 1.0 },
    });
    let (some, none): (Vec<Part>, Vec<Part>) = parts.partition(|part| !part.curve.is_empty());
    let curve = MissRatioCurve::of_parts(&some);
    let weight = |parts: &[Part]| parts.iter().map(|part| part.weight).sum::<f64>();
    let always = weight(&none) / (weight(&none) + weight(&some)).max(f64::MIN_POSITIVE);
    raised(&curve, always)
}

/// The curve where the share `always` of the requests misses whatever the memory.
fn raised(curve: &MissRatioCurve, always: f64) -> MissRatioCurve {
    let raise = |point: &CurvePoint| CurvePoint { miss_ratio: always + (1.0 - always) * point.miss_ratio, ..*point };
    MissRatioCurve::new(curve.points().iter().map(raise).collect())
}

/// Whose memory is meant: `asked`, or the only tenant there is.
///
/// # Errors
/// Which tenants there are, where it isn't clear which is meant.
pub fn choose<'a>(names: &[&'a str], asked: Option<&str>) -> Result<&'a str> {
    let shown = || names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
    match (asked, names) {
        (None, [only]) => Ok(only),
        (None, _) => bail!("--tenant is needed; there are: {}", shown()),
        (Some(asked), _) => match names.iter().find(|&&name| name == asked) {
            Some(name) => Ok(name),
            None => bail!("no tenant '{asked}'; there are: {}", shown()),
        },
    }
}

/// What is answered.
pub struct Answer {
    /// The miss ratio that was asked for.
    pub asked: Option<f64>,
    /// The least memory that reaches it; `None` where none does.
    pub needed_bytes: Option<u64>,
    /// Factor, bytes, miss ratio.
    pub rows: Vec<(f64, u64, f64)>,
}

impl Answer {
    /// What more or less memory would do, and what the miss ratio `asked` takes.
    pub fn of(known: &Known, asked: Option<f64>) -> Answer {
        let row = |&factor: &f64| {
            let bytes = (known.present_bytes as f64 * factor) as u64;
            (factor, bytes, known.curve.miss_ratio_at(bytes))
        };
        let needed_bytes = asked.and_then(|asked| known.curve.bytes_for(asked));
        Answer { asked, needed_bytes, rows: FACTORS.iter().map(row).collect() }
    }

    /// As the tool prints it with `--json`.
    pub fn to_json(&self, known: &Known) -> Value {
        let row = |&(factor, bytes, miss_ratio): &(f64, u64, f64)| {
            json!({
                "factor": factor, "bytes": bytes, "miss_ratio": miss_ratio
            })
        };
        let node = |(address, bytes): &(String, u64)| {
            let needed = self.needed_bytes.map(|needed| share_of(*bytes, known, needed));
            json!({ "address": address, "bytes": bytes, "needed_bytes": needed })
        };
        let last = known.curve.points().last();
        json!({
            "tenant": known.tenant,
            "miss_ratio": self.asked,
            "needed_bytes": self.needed_bytes,
            "present_bytes": known.present_bytes,
            "present_miss_ratio": known.curve.miss_ratio_at(known.present_bytes),
            "miss_ratio_min": last.map(|point| point.miss_ratio),
            "penalty_us": known.penalty_us,
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
            "nodes": known.nodes.iter().map(node).collect::<Vec<_>>(),
        })
    }
}

/// What a node that has `bytes` of all has of `needed`.
pub fn share_of(bytes: u64, known: &Known, needed: u64) -> u64 {
    if known.present_bytes == 0 {
        return needed / known.nodes.len().max(1) as u64;
    }
    (needed as f64 * bytes as f64 / known.present_bytes as f64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(present_bytes: f64, reads: f64, points: &[(u64, f64)]) -> Piece {
        let points = points.iter().map(|&(bytes, miss_ratio)| CurvePoint { bytes, miss_ratio }).collect();
        Piece { address: String::new(), curve: MissRatioCurve::new(points), reads, present_bytes }
    }

    /// Three nodes alike are one three times as large.
    #[test]
    fn nodes_alike_add_up_to_one() {
        let nodes: Vec<Piece> = (0..3).map(|_| piece(10.0, 5.0, &[(10, 0.5), (20, 0.1)])).collect();
        let curve = together(&nodes);
        for (bytes, expected) in [(30, 0.5), (45, 0.3), (60, 0.1), (600, 0.1)] {
            assert!((curve.miss_ratio_at(bytes) - expected).abs() < 1e-9, "{bytes}: {curve:?}");
        }
        assert_eq!(curve.bytes_for(0.3), Some(45));
    }

    #[test]
    fn what_has_no_memory_misses_always_and_a_tenant_without_any_is_divided_by_what_it_could_use() {
        let curve = together(&[piece(10.0, 3.0, &[(10, 0.2)]), piece(0.0, 1.0, &[(10, 0.2)])]);
        assert!((curve.miss_ratio_at(10) - (0.25 + 0.75 * 0.2)).abs() < 1e-9, "{curve:?}");
        let curve = together(&[piece(0.0, 1.0, &[(10, 0.2)]), piece(0.0, 1.0, &[(30, 0.4)])]);
        assert!((curve.miss_ratio_at(40) - 0.3).abs() < 1e-9, "{curve:?}");
        assert!(together(&[]).is_empty());
    }

    #[test]
    fn who_is_meant_is_asked_for_where_it_is_not_clear() {
        assert_eq!(choose(&["a"], None).unwrap(), "a");
        assert_eq!(choose(&["a", "b"], Some("b")).unwrap(), "b");
        for (names, asked) in [(&["a", "b"][..], None), (&["a", "b"], Some("c")), (&[], None)] {
            let error = choose(names, asked).unwrap_err().to_string();
            assert!(error.contains("there are"), "{error}");
        }
    }
}
