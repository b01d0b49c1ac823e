//! The headlines of the five papers, and from which record ours come.

use crate::digest::{Ask, PaperRow, costs, gains, paper};
use crate::figures;

/// What is between these marks in README and docs/*.md.
///
/// # Errors
/// A field that a record lacks, by its name.
pub fn all() -> anyhow::Result<Vec<(&'static str, String)>> {
    const OURS: [&str; 2] = ["its policy here", "default here"];
    Ok(vec![
        ("readme-picture", figures::readme()?),
        ("readme-gains", gains()?),
        ("readme-costs", costs()?),
        ("papers-predis", paper(OURS, PREDIS)?),
        ("papers-dlru", paper(OURS, DLRU)?),
        ("papers-kredis", paper(OURS, KREDIS)?),
        ("papers-sdtmm", paper(["sdTMM here, the default", "by worth"], SDTMM)?),
        ("papers-replies", paper(["`sent`", "`acked`"], REPLIES)?),
        ("papers-slots", paper(["a default node", "remembered"], SLOTS)?),
    ])
}

const fn row(what: &'static str, theirs: &'static str, own: Ask, default: Ask, record: &'static str) -> PaperRow {
    PaperRow { what, theirs, own, default, record }
}

/// Half of the data in memory, as the papers have it.
const fn at_half(labels: &'static [&'static str], system: &'static str) -> Ask {
    Ask::Latency(labels, "50%", system)
}

const YCSB: &[&str] = &["A", "B", "C", "F"];

const PREDIS: &[PaperRow] = &[
    row("F 11: error of curves", "1.2 %", Ask::Error("eaet", 0.01, "blk_"), Ask::Nothing, "curve-accuracy"),
    row("F 12: a slower backend", "−36 %", at_half(&["A"], "predis-hint"), at_half(&["A"], "tenure"), "slow-down"),
    row(
        "F 13 to 15: YCSB A, B, C, F",
        "−25 to −50 %",
        at_half(YCSB, "predis"),
        at_half(YCSB, "tenure"),
        "ycsb-mariadb",
    ),
    row("the same, D", "among them", at_half(&["D"], "predis"), at_half(&["D"], "tenure"), "ycsb-mariadb"),
    row(
        "F 17: peaks and valleys",
        "−24 %",
        at_half(&["diurnal"], "tenure-sleep"),
        at_half(&["diurnal"], "tenure"),
        "periodic",
    ),
    row("T 5: all fits, 16-deep", "0.978 to 0.995", Ask::Nothing, Ask::Pairs("16-deep"), "no-harm"),
    row(
        "F 7: penalties as they are",
        "–",
        Ask::Simulated("by 0%", "predis", [0, 1]),
        Ask::Simulated("by 0%", "tenure", [0, 1]),
        "penalty-noise",
    ),
    row(
        "measured within 10 %",
        "–",
        Ask::Simulated("by 10%", "predis", [0, 1]),
        Ask::Simulated("by 10%", "tenure", [0, 1]),
        "penalty-noise",
    ),
    row(
        "within 25 %",
        "–",
        Ask::Simulated("by 25%", "predis", [0, 1]),
        Ask::Simulated("by 25%", "tenure", [0, 1]),
        "penalty-noise",
    ),
    row(
        "within 50 %",
        "–",
        Ask::Simulated("by 50%", "predis", [0, 1]),
        Ask::Simulated("by 50%", "tenure", [0, 1]),
        "penalty-noise",
    ),
];

const ALL_SIZES: [usize; 2] = [0, 2];

const DLRU: &[PaperRow] = &[
    row(
        "F 7: values of 200 bytes",
        "0 to −14 %",
        Ask::Simulated("200 bytes", "dlru", ALL_SIZES),
        Ask::Simulated("200 bytes", "tenure", ALL_SIZES),
        "k-block-traces",
    ),
    row(
        "F 8: of their own sizes",
        "+1 to −25 %",
        Ask::Simulated("own sizes", "dlru", ALL_SIZES),
        Ask::Simulated("own sizes", "tenure", ALL_SIZES),
        "k-block-traces",
    ),
    row(
        "F 9: two phases, 30 %",
        "−6 %",
        Ask::Simulated("loop", "dlru", [0, 0]),
        Ask::Simulated("loop", "tenure", [0, 0]),
        "k-phases",
    ),
    row(
        "the same at 50 %",
        "–",
        Ask::Simulated("loop", "dlru", [1, 1]),
        Ask::Simulated("loop", "tenure", [1, 1]),
        "k-phases",
    ),
];

const TENANTS_4: &[&str] = &["4 tenants"];
const TENANTS_15: &[&str] = &["15 tenants"];

const KREDIS: &[PaperRow] = &[
    row(
        "F 4.3 to 4.5: four tenants",
        "−17.3 %",
        at_half(TENANTS_4, "kredis"),
        at_half(TENANTS_4, "tenure"),
        "tenants-4",
    ),
    row(
        "F 4.6: like Twitter's",
        "−27.0 %",
        Ask::Simulated("four", "kredis", [1, 1]),
        Ask::Simulated("four", "tenure", [1, 1]),
        "twitter-tenants",
    ),
    row(
        "sec. 4.2.4: at 25 %",
        "−49.5 %",
        Ask::Simulated("four", "kredis", [0, 0]),
        Ask::Simulated("four", "tenure", [0, 0]),
        "twitter-tenants",
    ),
    row(
        "at 75 %",
        "−21.2 %",
        Ask::Simulated("four", "kredis", [2, 2]),
        Ask::Simulated("four", "tenure", [2, 2]),
        "twitter-tenants",
    ),
    row(
        "F 4.7: fifteen tenants",
        "to −50.2 %",
        at_half(TENANTS_15, "kredis"),
        at_half(TENANTS_15, "tenure"),
        "tenants-15",
    ),
    row(
        "T 4.1: the most hits, misses",
        "hits/s × 3.6",
        Ask::SimulatedMisses("four", "kredis", ALL_SIZES),
        Ask::SimulatedMisses("four", "tenure", ALL_SIZES),
        "hits-objective",
    ),
    row(
        "F 4.8: one tenant, kRedis",
        "as DLRU",
        Ask::Simulated("", "kredis", [0, 0]),
        Ask::Simulated("", "tenure", [0, 0]),
        "k-one-tenant",
    ),
    row("the same, DLRU", "as kRedis", Ask::Simulated("", "dlru", [0, 0]), Ask::Nothing, "k-one-tenant"),
];

/// Hits of fast memory by both rules.
const fn hits(
    what: &'static str,
    theirs: &'static str,
    label: &'static str,
    division: &'static str,
    which: usize,
) -> PaperRow {
    let own = Ask::FastHits(label, "sdtmm", division, which);
    row(what, theirs, own, Ask::FastHits(label, "worth", division, which), "tiers-simulated")
}

const SDTMM: &[PaperRow] = &[
    row("F 5.2: throughput, 20 % fast", "0.87", Ask::Tiers("sdtmm"), Ask::Nothing, "tiers"),
    row(
        "F 5.8: promotions of naive's",
        "1 %",
        Ask::Promotions("two-phases", ["sdtmm", "naive"], 1),
        Ask::Promotions("two-phases", ["worth", "naive"], 1),
        "tiers-simulated",
    ),
    hits("hits, two phases, 50 % fast", "0.898", "two-phases", "free", 1),
    hits("the same with 4 KB values", "–", "two-phases-4k", "free", 1),
    hits("F 5.5: two tenants, guided", "0.802", "two-tenants", "guided", 0),
    hits("free", "0.784", "two-tenants", "free", 0),
    hits("equal", "0.686", "two-tenants", "equal", 0),
    hits("F 5.6: one of four scans, guided", "0.615", "four-tenants", "guided", 0),
    hits("free", "0.558", "four-tenants", "free", 0),
    hits("equal", "0.571", "four-tenants", "equal", 0),
    hits("F 5.9: tenants that change, guided", "0.776", "changing-tenants", "guided", 0),
    hits("free", "0.738", "changing-tenants", "free", 0),
    hits("equal", "0.694", "changing-tenants", "equal", 0),
    hits("like cluster 52, 20 % fast", "0.757", "like cluster 52", "free", 0),
];

const SLOTS: &[PaperRow] =
    &[row("F 6, 7: three nodes over one", "× 1, × 2", Ask::Slots("default-node"), Ask::Slots("remember"), "slots")];

const REPLIES: &[PaperRow] = &[
    row("sec. IV.C: writes lost", "none", Ask::Lost("sent"), Ask::Lost("acked"), "replies-loss"),
    row("F 8, 9: throughput", "0.95, 0.5", Ask::PriceOf("sent"), Ask::PriceOf("acked"), "replies-price"),
];
