//! The measurements of docs/results, each with its commands: the one place where their settings stand.
//!
//! Everything runs with the settings that a user has, unless a command says otherwise. `TRACES` stands for the folder
//! of traces. Quick versions take an hour in all on two cores, full ones a day.

/// How long a measurement may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Minutes, one repetition.
    Quick,
    /// As long as it takes, with repetitions.
    Full,
}

impl Length {
    /// As in the records.
    pub fn name(self) -> &'static str {
        match self {
            Length::Quick => "quick",
            Length::Full => "full",
        }
    }
}

/// What a measurement's JSON looks like, and so how its tables are made.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// `tenure bench`: systems side by side.
    Systems,
    /// `tenure bench --workload no-miss`: pairs.
    Pairs,
    /// `tenure simulate --ladder`.
    Ladder,
    /// `tenure simulate TRACE`.
    Simulated,
    /// `tenure simulate --tiers`.
    SimulatedTiers,
    /// `tenure mrc --accuracy`.
    Accuracy,
    /// `tenure bench --resize`.
    Resized,
    /// `tenure bench --workload tiers`.
    Tiers,
    /// `tenure bench --workload full`.
    Full,
    /// `tenure bench --workload slots`.
    Slots,
    /// `tenure replies loss`.
    Loss,
    /// `tenure replies price`.
    Price,
}

/// One entry of the set.
pub struct Measurement {
    /// What `scripts/reproduce` takes, and the name of its JSON.
    pub name: &'static str,
    /// In a few words.
    pub shows: &'static str,
    /// How its JSON reads.
    pub shape: Shape,
    /// A trace is replayed.
    pub needs_traces: bool,
    /// Latency and misses over the run are kept and drawn, as docs/figures/NAME-latency.svg and NAME-miss-ratio.svg:
    /// what the axis is.
    pub over_run: Option<&'static str>,
    /// The code that it measures: a later commit there makes it old.
    pub measures: &'static [&'static str],
    /// Label and arguments of each command, but for what the length adds.
    runs: &'static [(&'static str, &'static str)],
    /// What is added to each command for the quick version.
    quick: &'static str,
    /// What is added for the full one.
    full: &'static str,
}

impl Measurement {
    /// Label and arguments of each command.
    pub fn commands(&self, length: Length) -> Vec<(String, String)> {
        let added = if length == Length::Full { self.full } else { self.quick };
        self.runs
            .iter()
            .map(|(label, arguments)| ((*label).to_owned(), format!("{arguments} {added}").trim().to_owned()))
            .collect()
    }
}

const SERVER: &[&str] = &["crates/core/src", "crates/host/src", "crates/module/src"];
const POLICIES: &[&str] = &[
    "crates/core/src/policy",
    "crates/core/src/key_table.rs",
    "crates/core/src/compact_entries.rs",
    "crates/lab/src",
    "crates/sim/src",
];
const TIERS: &[&str] = &["crates/core/src/tiers", "crates/sim/src/tiers"];
const CURVES: &[&str] = &["crates/core/src/model"];

/// Label and arguments of YCSB's workloads, all before one backend and with the same systems.
macro_rules! ycsb {
    ($backend:literal, $systems:literal: $($label:literal $workload:literal),+) => {
        &[$(($label, concat!("bench --workload ", $workload, " --backend ", $backend, " --systems ", $systems))),+]
    };
}

/// All of them, in the order of the pages.
pub const SET: &[Measurement] = &[
    Measurement {
        name: "ycsb-delay",
        shows: "YCSB A to D and F before a backend 0.12 ms and one 1 ms away",
        shape: Shape::Systems,
        needs_traces: false,
        over_run: None,
        measures: SERVER,
        runs: ycsb!(
            "delay:120,1000", "stock,hyperbolic-5,hyperbolic,predis,kredis,tenure":
            "A" "ycsb-a", "B" "ycsb-b", "C" "ycsb-c", "D" "ycsb-d", "F" "ycsb-f"
        ),
        quick: "--memory 50% --warmup 300000 --requests 150000 --repetitions 1",
        full: "--memory 25%,50%,75% --warmup 300000 --requests 300000 --repetitions 5",
    },
    Measurement {
        name: "one-penalty",
        shows: "YCSB A, C and D where all misses take the same, half a millisecond",
        shape: Shape::Systems,
        needs_traces: false,
        over_run: None,
        measures: SERVER,
        runs: ycsb!("delay:500", "stock,tenure": "A" "ycsb-a", "C" "ycsb-c", "D" "ycsb-d"),
        quick: "--memory 50% --warmup 300000 --requests 800000 --turns 100 --repetitions 1",
        full: "--memory 25%,50%,75% --warmup 300000 --requests 800000 --turns 100 --repetitions 5",
    },
    Measurement {
        name: "ycsb-mariadb",
        shows: "YCSB A to F in front of two MariaDB servers, one 0.45 ms away each way",
        shape: Shape::Systems,
        needs_traces: false,
        over_run: None,
        measures: SERVER,
        runs: ycsb!(
            "mariadb", "stock,hyperbolic-5,predis,kredis,tenure":
            "A" "ycsb-a", "B" "ycsb-b", "C" "ycsb-c", "D" "ycsb-d", "F" "ycsb-f"
        ),
        // Fewer requests before, and nobody has learned anything by then: windows are of 50,000.
        quick: "--rows 200000 --memory 50% --warmup 300000 --requests 100000 --repetitions 1",
        full: "--memory 50% --warmup 300000 --requests 300000 --repetitions 5",
    },
    Measurement {
        name: "tenants-15",
        shows: "fifteen tenants whose misses take 1 to 16,384 µs",
        shape: Shape::Systems,
        needs_traces: false,
        over_run: None,
        measures: SERVER,
        runs: &[(
            "15 tenants",
            "bench --workload tenants --systems stock,hyperbolic-5,hyperbolic,predis,kredis,tenure",
        )],
        quick: "--memory 25%,50% --warmup 150000 --requests 80000 --repetitions 1",
        full: "--memory 25%,50%,75% --warmup 300000 --requests 300000 --repetitions 5",
    },
    Measurement {
        name: "tenants-4",
        shows: "four tenants of a trace, misses of 200 and 2000 µs",
        shape: Shape::Systems,
        needs_traces: true,
        over_run: None,
        measures: SERVER,
        runs: &[(
            "4 tenants",
            "bench --workload TRACES/mix_dev_4tenants.csv.gz --backend delay:200,2000 --backend-by tenant \
             --connections 16 --systems stock,hyperbolic-5,predis,kredis,tenure",
        )],
        quick: "--memory 25%,50% --warmup 100000 --requests 80000 --repetitions 1",
        full: "--memory 25%,50%,75% --repetitions 3",
    },
    Measurement {
        name: "real-traces",
        shows: "two real traces, misses of 200 and 2000 µs by key",
        shape: Shape::Systems,
        needs_traces: true,
        over_run: None,
        measures: SERVER,
        runs: &[
            (
                "kv_scarab_recs",
                "bench --workload TRACES/kv_scarab_recs.csv.gz --backend delay:200,2000 --connections 16 --systems \
                 stock,hyperbolic-5,predis,kredis,tenure",
            ),
            (
                "cdn_adaptsize",
                "bench --workload TRACES/cdn_adaptsize.csv.gz --backend delay:200,2000 --connections 16 --systems \
                 stock,hyperbolic-5,predis,kredis,tenure",
            ),
        ],
        quick: "--memory 25%,50% --warmup 50000 --requests 80000 --repetitions 1",
        full: "--memory 25%,50%,75% --repetitions 3",
    },
    Measurement {
        name: "slow-down",
        shows: "a backend that slows down in mid-run",
        shape: Shape::Systems,
        needs_traces: false,
        over_run: Some("measured requests; the far backend slows down after 40 %"),
        measures: SERVER,
        runs: &[(
            "A",
            "bench --workload ycsb-a --backend delay:120,1000 --slow-down 1:1000@40% --bins 50 --systems \
             stock,hyperbolic-5,predis-auto,predis-hint,tenure",
        )],
        quick: "--warmup 0 --requests 300000 --repetitions 1",
        full: "--warmup 0 --requests 600000 --repetitions 5",
    },
    Measurement {
        name: "periodic",
        shows: "a tenant that is accessed in peaks beside one that always is, with and without sleep",
        shape: Shape::Systems,
        needs_traces: false,
        over_run: Some("seconds"),
        measures: SERVER,
        runs: &[(
            "diurnal",
            "bench --workload diurnal --bins 50 --backend delay:120,1000 --systems \
             stock,hyperbolic-5,tenure,tenure-sleep",
        )],
        quick: "--period 16 --warmup 48000 --requests 96000 --repetitions 1",
        full: "--period 30 --repetitions 3",
    },
    Measurement {
        name: "restart",
        shows: "an orderly restart in mid-run, cold and warm",
        shape: Shape::Systems,
        needs_traces: false,
        over_run: Some("measured requests; the restart is after half"),
        measures: SERVER,
        runs: &[(
            "A",
            "bench --restart --bins 50 --workload ycsb-a --backend delay:120,1000 --systems stock,tenure,tenure-warm",
        )],
        quick: "--warmup 150000 --requests 200000 --repetitions 1",
        full: "--warmup 300000 --requests 600000 --repetitions 5",
    },
    Measurement {
        name: "three-primaries",
        shows: "the fifteen tenants on a cluster of three primaries",
        shape: Shape::Systems,
        needs_traces: false,
        over_run: None,
        measures: SERVER,
        runs: &[
            ("one server", "bench --workload tenants --memory 50% --systems stock,tenure"),
            ("three primaries", "bench --workload tenants --memory 50% --systems stock,tenure --cluster 3"),
        ],
        quick: "--warmup 100000 --requests 80000 --repetitions 1",
        full: "--warmup 300000 --requests 300000 --repetitions 5",
    },
    Measurement {
        name: "no-harm",
        shows: "throughput where everything fits, 16-deep and 1-deep",
        shape: Shape::Pairs,
        needs_traces: false,
        over_run: None,
        measures: SERVER,
        runs: &[
            ("16-deep", "bench --workload no-miss --pipeline 16 --requests 6000000"),
            ("1-deep", "bench --workload no-miss --pipeline 1 --requests 700000"),
        ],
        quick: "--repetitions 50",
        full: "--repetitions 200",
    },
    Measurement {
        name: "full",
        shows: "throughput of a full cache: hits, and writes of which each evicts",
        shape: Shape::Full,
        needs_traces: false,
        over_run: None,
        measures: SERVER,
        runs: &[("full", "bench --workload full")],
        quick: "",
        full: "--pairs 300",
    },
    Measurement {
        name: "ladder",
        shows: "all policies on the development traces, in the simulator",
        shape: Shape::Ladder,
        needs_traces: true,
        over_run: None,
        measures: POLICIES,
        runs: &[("ladder", "simulate --ladder TRACES")],
        quick: "--ladder-accesses 150000",
        full: "",
    },
    Measurement {
        name: "dlru",
        shows: "fixed K and DLRU's on a trace of a key-value store",
        shape: Shape::Simulated,
        needs_traces: true,
        over_run: None,
        measures: POLICIES,
        runs: &[(
            "kv_scarab_recs",
            "simulate TRACES/kv_scarab_recs.csv.gz --policies redis:1,redis,redis:10,redis:16,dlru,tenure --memory \
             10%,25%,50%,75% --costs fixed:200",
        )],
        quick: "",
        full: "",
    },
    Measurement {
        name: "penalty-noise",
        shows: "what noisy penalties cost the policies that go by them, in the simulator",
        shape: Shape::Simulated,
        needs_traces: true,
        over_run: None,
        measures: POLICIES,
        runs: &[
            (
                "c04, penalties off by 0%",
                "simulate TRACES/syn_twstat_c04.csv.gz --policies redis,predis,hyperbolic:5,gdsf,tenure --memory \
                 25%,50% --costs by-key:120,1000 --tenants none --warmup 20% --window-requests 10000 \
                 --penalty-noise 0%",
            ),
            (
                "c04, penalties off by 10%",
                "simulate TRACES/syn_twstat_c04.csv.gz --policies redis,predis,hyperbolic:5,gdsf,tenure --memory \
                 25%,50% --costs by-key:120,1000 --tenants none --warmup 20% --window-requests 10000 \
                 --penalty-noise 10%",
            ),
            (
                "c04, penalties off by 25%",
                "simulate TRACES/syn_twstat_c04.csv.gz --policies redis,predis,hyperbolic:5,gdsf,tenure --memory \
                 25%,50% --costs by-key:120,1000 --tenants none --warmup 20% --window-requests 10000 \
                 --penalty-noise 25%",
            ),
            (
                "c04, penalties off by 50%",
                "simulate TRACES/syn_twstat_c04.csv.gz --policies redis,predis,hyperbolic:5,gdsf,tenure --memory \
                 25%,50% --costs by-key:120,1000 --tenants none --warmup 20% --window-requests 10000 \
                 --penalty-noise 50%",
            ),
        ],
        quick: "",
        full: "",
    },
    Measurement {
        name: "k-phases",
        shows: "fixed K and DLRU's on a loop that popularity follows which moves on",
        shape: Shape::Simulated,
        needs_traces: false,
        over_run: None,
        measures: POLICIES,
        runs: &[(
            "loop-then-drift",
            "simulate --workload loop-then-drift --policies \
                 redis:1,redis:2,redis,redis:10,redis:16,dlru,tenure --memory 30%,50% --costs fixed:200 \
                 --window-requests 10000",
        )],
        quick: "",
        full: "",
    },
    Measurement {
        name: "k-block-traces",
        shows: "fixed K and DLRU's on three block traces, with values of 200 bytes and of their own sizes",
        shape: Shape::Simulated,
        needs_traces: true,
        over_run: None,
        measures: POLICIES,
        runs: &[
            (
                "vscsi, 200 bytes",
                "simulate TRACES/blk_cloudphysics_vscsi.csv.gz --policies \
                 redis:1,redis:2,redis,redis:10,redis:16,dlru,tenure --memory 25%,50%,75% --costs fixed:200 \
                 --window-requests 10000 --fixed-size 200",
            ),
            (
                "vscsi, own sizes",
                "simulate TRACES/blk_cloudphysics_vscsi.csv.gz --policies \
                 redis:1,redis:2,redis,redis:10,redis:16,dlru,tenure --memory 25%,50%,75% --costs fixed:200 \
                 --window-requests 10000",
            ),
            (
                "P3, 200 bytes",
                "simulate TRACES/blk_arc_p3.csv.gz --policies \
                 redis:1,redis:2,redis,redis:10,redis:16,dlru,tenure --memory 25%,50%,75% --costs fixed:200 \
                 --window-requests 10000 --fixed-size 200",
            ),
            (
                "P3, own sizes",
                "simulate TRACES/blk_arc_p3.csv.gz --policies \
                 redis:1,redis:2,redis,redis:10,redis:16,dlru,tenure --memory 25%,50%,75% --costs fixed:200 \
                 --window-requests 10000",
            ),
            (
                "P12, 200 bytes",
                "simulate TRACES/blk_arc_p12.csv.gz --policies \
                 redis:1,redis:2,redis,redis:10,redis:16,dlru,tenure --memory 25%,50%,75% --costs fixed:200 \
                 --window-requests 10000 --fixed-size 200",
            ),
            (
                "P12, own sizes",
                "simulate TRACES/blk_arc_p12.csv.gz --policies \
                 redis:1,redis:2,redis,redis:10,redis:16,dlru,tenure --memory 25%,50%,75% --costs fixed:200 \
                 --window-requests 10000",
            ),
        ],
        quick: "",
        full: "",
    },
    Measurement {
        name: "k-one-tenant",
        shows: "K of DLRU and of kRedis for one tenant, at 30 % of its data",
        shape: Shape::Simulated,
        needs_traces: true,
        over_run: None,
        measures: POLICIES,
        runs: &[
            (
                "vscsi",
                "simulate TRACES/blk_cloudphysics_vscsi.csv.gz --policies redis,dlru,kredis,tenure \
                 --partitions tenant --tenants none --memory 30% --costs fixed:2000 --window-requests 10000",
            ),
            (
                "P3",
                "simulate TRACES/blk_arc_p3.csv.gz --policies redis,dlru,kredis,tenure --partitions tenant \
                 --tenants none --memory 30% --costs fixed:2000 --window-requests 10000",
            ),
            (
                "2_pools",
                "simulate TRACES/lirs_2_pools.csv.gz --policies redis,dlru,kredis,tenure --partitions tenant \
                 --tenants none --memory 30% --costs fixed:2000 --window-requests 10000",
            ),
        ],
        quick: "",
        full: "",
    },
    Measurement {
        name: "twitter-tenants",
        shows: "four tenants like Twitter's clusters 4, 29, 34 and 54, misses of 200 to 2000 µs",
        shape: Shape::Simulated,
        needs_traces: false,
        over_run: None,
        measures: POLICIES,
        runs: &[(
            "four tenants",
            "simulate --workload twitter-tenants --policies \
                 redis,predis,predis-paper,kredis,hyperbolic:5,gdsf,tenure,bound --partitions tenant --memory \
                 25%,50%,75% --costs by-tenant:200,400,1000,2000 --warmup 20%",
        )],
        quick: "",
        full: "",
    },
    Measurement {
        name: "hits-objective",
        shows: "four tenants whose misses all take 2000 µs: the most hits",
        shape: Shape::Simulated,
        needs_traces: true,
        over_run: None,
        measures: POLICIES,
        runs: &[(
            "four tenants",
            "simulate TRACES/mix_dev_4tenants.csv.gz --policies redis,predis,kredis,gdsf,tenure \
                 --partitions tenant --objective hits --memory 25%,50%,75% --costs fixed:2000 --warmup 20%",
        )],
        quick: "",
        full: "",
    },
    Measurement {
        name: "curve-accuracy",
        shows: "the error of sampled miss ratio curves against exact ones",
        shape: Shape::Accuracy,
        needs_traces: true,
        over_run: None,
        measures: CURVES,
        runs: &[("development traces", "mrc --accuracy TRACES --model eaet,krr --k 5 --rate 0.1,0.01")],
        quick: "--accuracy-samples 1",
        full: "--accuracy-samples 5",
    },
    Measurement {
        name: "predictions",
        shows: "what TENURE.MRC says of half and twice the memory, and what comes",
        shape: Shape::Resized,
        needs_traces: true,
        over_run: None,
        measures: SERVER,
        runs: &[
            ("YCSB B", "bench --workload ycsb-b --resize --pipeline 50"),
            ("YCSB C", "bench --workload ycsb-c --resize --pipeline 50"),
            ("15 tenants", "bench --workload tenants --resize --pipeline 50 --backend delay:200"),
            ("4 tenants", "bench --workload TRACES/mix_dev_4tenants.csv.gz --resize --pipeline 50"),
            ("kv_scarab_recs", "bench --workload TRACES/kv_scarab_recs.csv.gz --resize --pipeline 50"),
            ("cdn_adaptsize", "bench --workload TRACES/cdn_adaptsize.csv.gz --resize --pipeline 50"),
        ],
        quick: "",
        full: "",
    },
    Measurement {
        name: "tiers",
        shows: "what two tiers of memory cost a server where both are equally fast",
        shape: Shape::Tiers,
        needs_traces: false,
        over_run: None,
        measures: SERVER,
        runs: &[(
            "1-deep",
            "bench --workload tiers --pipeline 1 --fast 20% --accesses \
             zipf:0.8,zipf:0.99,zipf:1.2,scan:0.99,two-phases --updates 5%",
        )],
        quick: "--warmup 200000 --requests 300000 --repetitions 1",
        full: "--warmup 1000000 --requests 1500000 --repetitions 5",
    },
    Measurement {
        name: "tiers-simulated",
        shows: "hits of fast memory, moves and modelled throughput of two tiers, in the simulator",
        shape: Shape::SimulatedTiers,
        needs_traces: true,
        over_run: None,
        measures: TIERS,
        runs: &[
            (
                "two-phases",
                "simulate --workload two-phases --tiers 20%,50% --systems \
                 sdtmm,worth,naive,demotion-only,all-fast,all-slow",
            ),
            (
                "two-phases-4k",
                "simulate --workload two-phases-4k --tiers 20%,50% --systems \
                 sdtmm,worth,naive,demotion-only,all-fast,all-slow",
            ),
            (
                "zipf:0.8",
                "simulate --workload zipf:0.8 --tiers 20% --systems \
                 sdtmm,worth,naive,demotion-only,all-fast,all-slow",
            ),
            (
                "zipf:1.2",
                "simulate --workload zipf:1.2 --tiers 20% --systems \
                 sdtmm,worth,naive,demotion-only,all-fast,all-slow",
            ),
            (
                "two-tenants",
                "simulate --workload two-tenants --tiers 50% --systems sdtmm,worth --division \
                 guided,free,equal",
            ),
            (
                "four-tenants",
                "simulate --workload four-tenants --tiers 10% --systems sdtmm,worth --division \
                 guided,free,equal",
            ),
            (
                "changing-tenants",
                "simulate --workload changing-tenants --tiers 25% --systems sdtmm,worth --division \
                 guided,free,equal",
            ),
            (
                "like cluster 4",
                "simulate TRACES/syn_twstat_c04.csv.gz --tiers 20% --systems \
                 sdtmm,worth,naive,demotion-only,all-fast,all-slow",
            ),
            (
                "like cluster 44",
                "simulate TRACES/syn_twstat_c44.csv.gz --tiers 20% --systems \
                 sdtmm,worth,naive,demotion-only,all-fast,all-slow",
            ),
            (
                "like cluster 52",
                "simulate TRACES/syn_twstat_c52.csv.gz --tiers 20% --systems \
                 sdtmm,worth,naive,demotion-only,all-fast,all-slow",
            ),
            (
                "P3",
                "simulate TRACES/blk_arc_p3.csv.gz --tiers 20% --systems \
                 sdtmm,worth,naive,demotion-only,all-fast,all-slow",
            ),
        ],
        quick: "",
        full: "",
    },
    Measurement {
        name: "tiers-ablation",
        shows: "what insertion points, free memory and promotions are worth in two tiers, in the simulator",
        shape: Shape::SimulatedTiers,
        needs_traces: false,
        over_run: None,
        measures: TIERS,
        runs: &[
            (
                "two-phases, whole and no promotions",
                "simulate --workload two-phases --tiers 20% --systems sdtmm,worth,demotion-only",
            ),
            (
                "two-phases, no insertion points",
                "simulate --workload two-phases --tiers 20% --systems sdtmm,worth --without points",
            ),
            (
                "two-phases, nothing kept free",
                "simulate --workload two-phases --tiers 20% --systems sdtmm,worth --without marks",
            ),
            (
                "two-phases, newcomers found by the walk",
                "simulate --workload two-phases --tiers 20% --systems sdtmm,worth --without newcomers",
            ),
            (
                "two-phases-4k, whole and no promotions",
                "simulate --workload two-phases-4k --tiers 20% --systems sdtmm,worth,demotion-only",
            ),
            (
                "two-phases-4k, no insertion points",
                "simulate --workload two-phases-4k --tiers 20% --systems sdtmm,worth --without points",
            ),
            (
                "two-phases-4k, nothing kept free",
                "simulate --workload two-phases-4k --tiers 20% --systems sdtmm,worth --without marks",
            ),
            (
                "two-phases-4k, newcomers found by the walk",
                "simulate --workload two-phases-4k --tiers 20% --systems sdtmm,worth --without newcomers",
            ),
            (
                "scan:0.99, whole and no promotions",
                "simulate --workload scan:0.99 --tiers 20% --systems sdtmm,worth,demotion-only",
            ),
            (
                "scan:0.99, no insertion points",
                "simulate --workload scan:0.99 --tiers 20% --systems sdtmm,worth --without points",
            ),
            (
                "scan:0.99, nothing kept free",
                "simulate --workload scan:0.99 --tiers 20% --systems sdtmm,worth --without marks",
            ),
            (
                "scan:0.99, newcomers found by the walk",
                "simulate --workload scan:0.99 --tiers 20% --systems sdtmm,worth --without newcomers",
            ),
        ],
        quick: "",
        full: "",
    },
    Measurement {
        name: "slots",
        shows: "what clients that remember slots bring a cluster of one to three primaries",
        shape: Shape::Slots,
        needs_traces: false,
        over_run: None,
        measures: &["crates/bench/src/client", "crates/bench/src/slot_map.rs"],
        runs: &[("slots", "bench --workload slots --records 10000 --warmup 10000 --cluster 1,2,3 --connections 16")],
        quick: "--requests 20000",
        full: "--requests 200000",
    },
    Measurement {
        name: "replies-loss",
        shows: "acknowledged writes that are lost as a primary is killed",
        shape: Shape::Loss,
        needs_traces: false,
        over_run: None,
        measures: SERVER,
        runs: &[("loss", "replies loss --cpus none --scenarios slowed,pipelined")],
        quick: "--runs 6",
        full: "--runs 100",
    },
    Measurement {
        name: "replies-price",
        shows: "writes per second while replies wait for replicas",
        shape: Shape::Price,
        needs_traces: false,
        over_run: None,
        measures: SERVER,
        runs: &[("price", "replies price --pipeline 1,16")],
        quick: "--connections 1,64 --duration 3000 --repetitions 2",
        full: "--connections 1,8,64,512 --duration 600 --repetitions 15",
    },
];
