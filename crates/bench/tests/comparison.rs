//! Small comparisons against the installed server, end to end: footprint, runs, report, files.

use std::sync::atomic::AtomicBool;

use tenure_bench::backend::BackendSpec;
use tenure_bench::client::Route;
use tenure_bench::comparison::{Compared, Comparison, MemoryLimit};
use tenure_bench::full_cache::{FullCache, FullPair, Load};
use tenure_bench::no_harm::NoHarm;
use tenure_bench::placement::Placement;
use tenure_bench::report::{Report, Simulated};
use tenure_bench::restart::restart;
use tenure_bench::system::{Clustering, Setup, System};
use tenure_bench::tiers::{Placing, TierPrice};
use tenure_bench::workload::tiers::{Share, TierLoad};
use tenure_bench::workload::{Stream, WorkloadOptions};
use tenure_servers::{ServerBinary, module_path};

fn setup() -> Setup {
    let placement = Placement { server: None, clients: None };
    let (settings, environment) = (Vec::new(), Vec::new());
    Setup {
        binary: ServerBinary::installed().unwrap(),
        placement,
        settings,
        environment,
        cluster: None,
        clock_speed: 1,
        server_settings: Vec::new(),
    }
}

fn stream(workload: &str, n_backends: usize) -> Stream {
    stream_of(workload, n_backends, 3000)
}

fn stream_of(workload: &str, n_backends: usize, n_keys: usize) -> Stream {
    let options = WorkloadOptions::new(workload.parse().unwrap(), n_backends);
    let size = WorkloadOptions { n_keys: Some(n_keys), n_warmup: Some(n_keys), n_requests: Some(4000), ..options };
    size.generate().unwrap()
}

fn compare(stream: &Stream, backend: &str, systems: &[System], memory: &[&str]) -> (Report, Compared) {
    compare_with(Particular::default(), stream, backend, systems, memory)
}

/// What a comparison has of its own.
#[derive(Default)]
struct Particular<'a> {
    slow_down: Option<&'a str>,
    restart: Option<&'a str>,
    n_turns: Option<usize>,
    /// No client overtakes another.
    is_one_client: bool,
}

fn compare_with(
    particular: Particular,
    stream: &Stream,
    backend: &str,
    systems: &[System],
    memory: &[&str],
) -> (Report, Compared) {
    let backend: BackendSpec = backend.parse().unwrap();
    let memory: Vec<MemoryLimit> = memory.iter().map(|text| text.parse().unwrap()).collect();
    let comparison = Comparison {
        stream,
        backend: &backend,
        slow_down: particular.slow_down.map(|text| text.parse().unwrap()),
        n_rows: 500,
        systems,
        memory: &memory,
        n_repetitions: 2,
        n_turns: particular.n_turns.unwrap_or(1),
        n_connections: if particular.is_one_client { 1 } else { 4 },
        n_bins: 20,
        restart: particular.restart.map(|text| text.parse().unwrap()),
        setup: &setup(),
    };
    let compared = comparison.run(&AtomicBool::new(false)).unwrap();
    let mut report = Report::new(&comparison, 1, &compared);
    if stream.scans.is_empty() {
        report.add_predictions(&comparison, &compared).unwrap();
    }
    (report, compared)
}

/// True (and says so) where the module isn't built, as with `cargo test -p tenure-bench` alone.
fn skipped_without_module(test: &str) -> bool {
    let missing = module_path().is_err();
    if missing {
        println!("SKIPPED: {test}: libtenure.so is not built");
    }
    missing
}

#[test]
fn stock_misses_as_its_memory_says_and_misses_take_the_delay() {
    let stream = stream("ycsb-b", 2);
    let (report, compared) = compare(&stream, "delay:200,1500", &[System::STOCK], &["20%", "400%"]);
    let footprint = compared.footprint;
    // 3000 records of 1000 bytes, and what the server adds to each.
    assert!((3_000_000..6_000_000).contains(&footprint.keys_bytes), "{footprint:?}");
    assert_eq!(report.runs.len(), 4);
    for summary in &report.summary {
        let Simulated { prediction, bound, gap_closed } = summary.simulated.unwrap();
        let (measured, predicted) = (summary.figures["miss_ratio"].median, prediction.miss_ratio);
        // In a run of a few seconds the server's clock, which ticks once a second, tells few keys apart.
        assert!((measured - predicted).abs() < 0.12, "{}: measured {measured}, predicted {predicted}", summary.memory);
        // With room for all the two are the same, but for rounding.
        let bound_us = bound.latency_us_mean / (1.0 + 1e-9);
        assert!(bound_us < prediction.latency_us_mean, "{}: {bound}, {prediction}", summary.memory);
        let is_there = gap_closed.predicted == 0.0;
        assert_eq!(is_there, summary.memory == "20%", "it is the first system itself: {gap_closed:?}");
    }
    for run in &report.runs {
        let (figures, is_small) = (&run.figures, run.memory == "20%");
        let n_done: u64 = run.tenants.iter().map(|tenant| tenant.n_read).sum();
        assert!((3700..=3900).contains(&n_done), "{n_done} reads of 4000 requests, 95 % of which are reads");
        assert_eq!(figures.miss_ratio > 0.3, is_small, "{}: {}", run.memory, figures.miss_ratio);
        assert_eq!(figures.evictions > 0.0, is_small);
        assert_eq!(run.n_refused, 0);
        assert!(figures.load.server_cpu_s > 0.0 && figures.throughput_per_s > 100.0);
        assert!(figures.load.ping_us_max > 0.0 && figures.load.ping_us_p999 <= figures.load.ping_us_max);
        assert!(
            figures.latency.latency_us_p50 <= figures.latency.latency_us_p99
                && figures.latency.latency_us_p99 <= figures.latency.latency_us_p9999
        );
        assert!(run.server_memory.used_bytes < run.maxmemory_bytes + 1_000_000);
        if is_small {
            for (tenant, delay_us) in run.tenants.iter().zip([200.0, 1500.0]) {
                let (hit_us, miss_us) = (tenant.hit_us_mean.unwrap(), tenant.miss_us_mean.unwrap());
                assert!(miss_us > hit_us && miss_us >= delay_us, "{}: hit {hit_us}, miss {miss_us}", tenant.tenant);
            }
        }
    }
    let ratios: Vec<f64> =
        report.runs.iter().filter(|run| run.memory == "20%").map(|run| run.figures.miss_ratio).collect();
    assert!((ratios[0] - ratios[1]).abs() < 0.03, "the same requests miss alike: {ratios:?}");
}

#[test]
fn the_timeline_shows_when_a_backend_slowed_down() {
    let stream = stream("ycsb-c", 2);
    let slow_down = Particular { slow_down: Some("1:20000@40%"), ..Particular::default() };
    let (report, ..) = compare_with(slow_down, &stream, "delay:0,0", &[System::STOCK], &["20%"]);
    assert_eq!(report.conditions.slow_down.as_deref(), Some("1:20000@40%"));
    for run in &report.runs {
        let (timeline, figures) = (&run.timeline, &run.figures);
        assert_eq!((timeline.len(), timeline[19].until), (20, 4000.0));
        assert!(timeline.iter().all(|point| point.n_requests == 200));
        let mean = timeline.iter().map(|point| point.latency_us_mean.unwrap()).sum::<f64>() / 20.0;
        assert!(
            (mean / figures.latency.latency_us_mean - 1.0).abs() < 0.001,
            "{mean} and {}",
            figures.latency.latency_us_mean
        );
        let miss_ratio = timeline.iter().map(|point| point.miss_ratio.unwrap()).sum::<f64>() / 20.0;
        assert!((miss_ratio - figures.miss_ratio).abs() < 0.001, "{miss_ratio} and {}", figures.miss_ratio);
        // Every stretch has tens of misses of either backend; before, only a machine that stalls could take 20 ms for
        // some.
        let is_slow: Vec<bool> = timeline.iter().map(|point| point.latency_us_p99.unwrap() >= 20_000.0).collect();
        assert!(is_slow[..8].iter().filter(|&&is_slow| is_slow).count() <= 4, "{is_slow:?}");
        assert!(is_slow[8..].iter().all(|&is_slow| is_slow), "{is_slow:?}");
    }
}

/// Who has a turn isn't met by what the other's turn has come to.
#[test]
fn by_turns_a_backend_slows_down_for_each_system_at_its_own_moment() {
    let stream = stream("ycsb-c", 1);
    let by_turns = Particular { slow_down: Some("0:20000@50%"), n_turns: Some(5), ..Particular::default() };
    let one_key_sampled = "stock-1".parse().unwrap();
    let (report, ..) = compare_with(by_turns, &stream, "delay:0", &[System::STOCK, one_key_sampled], &["20%"]);
    assert_eq!((report.conditions.n_turns, report.runs.len()), (5, 4));
    for run in &report.runs {
        assert_eq!(run.turns_us.len(), 5);
        let means: Vec<f64> = run.timeline.iter().map(|point| point.latency_us_mean.unwrap()).collect();
        for (turn, of_turn) in means.chunks(4).enumerate() {
            let mean = of_turn.iter().sum::<f64>() / 4.0;
            assert!((mean / run.turns_us[turn] - 1.0).abs() < 0.001, "{means:?} and {:?}", run.turns_us);
        }
        // In the third turn.
        assert!(means[8] + means[9] < (means[10] + means[11]) / 2.0, "{means:?}");
        let n_read: u64 = run.tenants.iter().map(|tenant| tenant.n_read).sum();
        assert_eq!(n_read, 4000, "each request once");
    }
    let table = report.table();
    assert!(table.contains("took 5 turns"), "{table}");
}

#[test]
fn a_restarted_server_is_empty_and_fills_again() {
    let options = WorkloadOptions::new("ycsb-c".parse().unwrap(), 1);
    let size = WorkloadOptions { n_keys: Some(500), n_warmup: Some(20_000), n_requests: Some(20_000), ..options };
    let stream = size.generate().unwrap();
    let restart = Particular { restart: Some("30%"), ..Particular::default() };
    let (report, ..) = compare_with(restart, &stream, "delay:20", &[System::STOCK], &["400%"]);
    for run in &report.runs {
        let restart = run.restart.unwrap();
        assert_eq!((restart.n_requests_before, restart.n_requests_after), (6000, 14_000));
        assert!(restart.miss_ratio_before < 0.01 && restart.miss_ratio_after > 0.3, "{restart:?}");
        // It missed each key once more and then never again, unless two clients asked for one at the same time.
        let n_extra = restart.n_misses_extra;
        assert!((300.0..600.0).contains(&n_extra), "{n_extra} misses where there are 500 keys");
        let n_missed: f64 = run.timeline.iter().map(|point| point.miss_ratio.unwrap() * point.n_requests as f64).sum();
        assert!((run.figures.miss_ratio * 20_000.0 - n_missed).abs() < 1e-6, "the timeline has both parts");
        assert!(run.timeline[..6].iter().all(|point| point.miss_ratio.unwrap() < 0.01), "{:?}", run.timeline);
        assert!(run.timeline[6].miss_ratio.unwrap() > 0.1, "{:?}", run.timeline[6]);
        assert!(run.figures.back_requests.unwrap() > 200.0);
        assert!(restart.down_s > 0.0 && run.figures.load.server_cpu_s > 0.0 && run.figures.throughput_per_s > 100.0);
    }
    let table = report.table();
    assert!(table.contains("Restart at 30%") && table.contains("not back"), "{table}");
}

#[test]
fn a_restart_keeps_all_settings() {
    if skipped_without_module("a_restart_keeps_all_settings") {
        return;
    }
    let settings = vec![("tenure.window-requests".to_string(), "4321".to_string())];
    let (setup, stream) = (Setup { settings, ..setup() }, stream("ycsb-a", 2));
    let mut server = System::TENURE.start(&setup, Some(50_000_000), stream.keys.tenants()).unwrap();
    server.call::<()>(&["SET", "k", "v"]).unwrap();
    let read = |server: &tenure_servers::Server| {
        ["maxmemory", "maxmemory-policy", "maxmemory-samples", "tenure.tenants", "tenure.window-requests"]
            .map(|name| server.call::<Vec<String>>(&["CONFIG", "GET", name]).unwrap()[1].clone())
    };
    let before = read(&server);
    assert_eq!(before[3..], ["b0=b0:* b1=b1:*", "4321"]);
    restart(&mut server).unwrap();
    assert_eq!(read(&server), before);
    assert_eq!(server.call::<u64>(&["DBSIZE"]).unwrap(), 0, "what was there is gone");
}

#[test]
fn a_periodic_tenant_is_pushed_out_in_the_valley_and_comes_back() {
    let options = WorkloadOptions::new("diurnal".parse().unwrap(), 2);
    // A period of 2 s to warm up and another that is measured; a pass over the periodic tenant's 1000 keys takes half
    // a second.
    let size = WorkloadOptions { n_keys: Some(4000), n_requests: Some(6000), period_s: Some(2.0), ..options };
    let stream = size.generate().unwrap();
    let (report, ..) = compare(&stream, "delay:0,20", &[System::STOCK], &["50%", "400%"]);
    for run in &report.runs {
        let (paced, is_small) = (run.paced.as_ref().unwrap(), run.memory == "50%");
        let [steady, periodic] = &paced.tenants[..] else { panic!("{paced:?}") };
        let counts = [steady.peak, steady.valley, periodic.peak, periodic.valley].map(|phase| phase.n_requests);
        assert_eq!(counts, [2000, 2000, 2000, 0]);
        assert_eq!(periodic.peak.miss_ratio.unwrap() > 0.05, is_small, "{:?}", periodic.peak);
        // The server's clock of last use ticks once a second, so that it may not find all of the tenant's keys within
        // the peak.
        let back_s = run.figures.back_s.unwrap();
        assert_eq!(back_s, paced.peaks[0].back_s.unwrap_or(1.0));
        assert!(paced.peaks.len() == 1 && (back_s > 0.3) == is_small, "{}: {:?}", run.memory, paced.peaks);
        // Once the last request of the peak was sent, however late, the tenant is silent.
        let (length_s, end_s) = (periodic.timeline[0].until, 1.0 + paced.late_us_max / 1e6);
        let after = |until: f64| until - length_s > end_s;
        let n_after: u64 = periodic.timeline.iter().filter(|p| after(p.until)).map(|p| p.n_requests).sum();
        assert_eq!(n_after, 0, "{end_s}: {:?}", periodic.timeline);
        // It may take longer than the pace says, never shorter.
        assert!(run.figures.throughput_per_s < 3000.0 * 1.001, "{}", run.figures.throughput_per_s);
    }
    let folder = tempfile::tempdir().unwrap();
    report.write(folder.path()).unwrap();
    for name in ["latency-50pct", "latency-p0-50pct", "miss-ratio-s0-400pct"] {
        assert!(folder.path().join(format!("{name}.svg")).is_file(), "{name}");
    }
    let table = report.table();
    assert!(table.contains("a period of 2 s") && table.contains("not back"), "{table}");
}

#[test]
fn a_report_has_a_table_json_and_plots() {
    let stream = stream("ycsb-a", 1);
    let (report, ..) = compare(&stream, "sqlite:0", &[System::STOCK], &["30%"]);
    let folder = tempfile::tempdir().unwrap();
    report.write(folder.path()).unwrap();
    let json: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(folder.path().join("report.json")).unwrap()).unwrap();
    assert_eq!(json["conditions"]["workload"], "ycsb-a");
    assert_eq!(json["summary"][0]["latency_against_first"]["median"], 1.0);
    assert!(json["summary"][0]["figures"]["latency_us_mean"]["median"].as_f64().unwrap() > 0.0);
    assert_eq!(json["runs"].as_array().unwrap().len(), 2);
    for name in ["mean-latency", "distribution-30pct", "latency-30pct", "miss-ratio-30pct"] {
        for extension in ["svg", "png"] {
            assert!(folder.path().join(format!("{name}.{extension}")).metadata().unwrap().len() > 1000, "{name}");
        }
    }
    let table = std::fs::read_to_string(folder.path().join("report.txt")).unwrap();
    for part in ["stock", "miss ratio", "30%", "bound", "gap closed"] {
        assert!(table.contains(part), "no {part}: {table}");
    }
}

#[test]
fn scans_inserts_and_read_modify_writes_are_performed() {
    for workload in ["ycsb-d", "ycsb-e", "ycsb-f", "tenants"] {
        let mut stream = stream(workload, 2);
        stream.requests.truncate(stream.n_warmup + 1000);
        let (report, ..) = compare(&stream, "delay:0,20", &[System::STOCK], &["50%"]);
        for run in &report.runs {
            let n_read: u64 = run.tenants.iter().map(|tenant| tenant.n_read).sum();
            let expected = if workload == "ycsb-e" { 30_000..60_000 } else { 900..1001 };
            assert!(expected.contains(&n_read), "{workload}: {n_read}");
            assert!(run.figures.miss_ratio > 0.0 && run.figures.miss_ratio < 1.0, "{workload}");
        }
    }
}

#[test]
fn a_trace_is_replayed_with_its_deletes() {
    let file = tempfile::Builder::new().suffix(".csv").tempfile().unwrap();
    let rows = (0..2000).map(|i| match i % 4 {
        0 => format!("0,k{},set,500,x\n", i % 40),
        1 => format!("0,k{},get,500,y\n", (i - 1) % 40),
        2 => format!("0,k{},del,500,x\n", (i - 2) % 40),
        _ => format!("0,k{},get,500,x\n", (i - 3) % 40),
    });
    std::fs::write(file.path(), format!("time_s,key,op,size,tenant\n{}", rows.collect::<String>())).unwrap();
    let workload = file.path().to_str().unwrap().parse().unwrap();
    let stream = WorkloadOptions { n_warmup: Some(1000), ..WorkloadOptions::new(workload, 1) }.generate().unwrap();
    let one_client = Particular { is_one_client: true, ..Particular::default() };
    let (report, ..) = compare_with(one_client, &stream, "delay:50", &[System::STOCK], &["20mb"]);
    // What was set is there, and what was deleted is not.
    assert_eq!(report.runs[0].figures.miss_ratio, 0.5);
}

#[test]
fn both_systems_are_asked_the_same() {
    if skipped_without_module("both_systems_are_asked_the_same") {
        return;
    }
    // Enough that the module's own memory, which counts, is a small part of the limit.
    let stream = stream_of("ycsb-a", 2, 40_000);
    let (report, ..) = compare(&stream, "delay:0,50", &[System::STOCK, System::TENURE], &["30%"]);
    let reads = |run: &tenure_bench::report::RunFigures| run.tenants.iter().map(|t| t.n_read).collect::<Vec<_>>();
    assert!(report.runs.iter().all(|run| reads(run) == reads(&report.runs[0])));
    let order: Vec<&str> = report.runs.iter().map(|run| run.system.as_str()).collect();
    assert_eq!(order, ["stock", "tenure", "tenure", "stock"]);
    assert!(report.runs[1].figures.evictions > 0.0, "the module's evictions are counted");
}

/// The same requests with the same memory: a cluster misses as one server does, whatever way clients find its nodes.
#[test]
fn a_cluster_shares_the_memory_and_misses_alike() {
    let stream = stream_of("ycsb-b", 1, 20_000);
    let (report, ..) = compare(&stream, "delay:20", &[System::STOCK], &["30%"]);
    let alone = report.summary[0].figures["miss_ratio"].median;
    for route in [Route::Library, Route::Remember] {
        let setup = Setup { cluster: Some(Clustering { n_primaries: 3, route }), ..setup() };
        let comparison = Comparison {
            stream: &stream,
            backend: &"delay:20".parse().unwrap(),
            slow_down: None,
            n_rows: 1,
            systems: &[System::STOCK],
            memory: &["30%".parse().unwrap()],
            n_repetitions: 1,
            n_turns: 1,
            n_connections: 4,
            n_bins: 4,
            restart: None,
            setup: &setup,
        };
        let compared = comparison.run(&AtomicBool::new(false)).unwrap();
        let report = Report::new(&comparison, 1, &compared);
        let run = &report.runs[0];
        assert!((run.figures.miss_ratio - alone).abs() < 0.05, "{} on one, {} on three", alone, run.figures.miss_ratio);
        assert!(run.figures.evictions > 0.0 && run.n_refused == 0);
        assert!(report.table().contains("a cluster of 3 primaries"), "{}", report.table());
    }
}

#[test]
fn no_harm_compares_pairs_without_misses() {
    if skipped_without_module("no_harm_compares_pairs_without_misses") {
        return;
    }
    let options = WorkloadOptions::new("no-miss".parse().unwrap(), 1);
    let size = WorkloadOptions { n_keys: Some(1000), n_warmup: Some(5000), n_requests: Some(50_000), ..options };
    let (stream, setup) = (size.generate().unwrap(), setup());
    for depth in [1, 16] {
        let no_harm =
            NoHarm { stream: &stream, depth, n_connections: 10, n_pairs: 2, system: &System::TENURE, setup: &setup };
        let report = no_harm.run(&AtomicBool::new(false)).unwrap();
        assert_eq!(report.pairs.len(), 2);
        for pair in &report.pairs {
            assert!(pair.stock.throughput_per_s > 1000.0 && pair.module.cpu_ns_per_command > 0.0);
            assert!(
                (pair.ratios.throughput_ratio - pair.module.throughput_per_s / pair.stock.throughput_per_s).abs()
                    < 1e-9
            );
        }
        assert!(report.table().contains("throughput with the module over stock"));
    }
}

/// GETs that hit evict nothing, and each SET of a new key evicts one, of whichever server. Of a mix some miss.
#[test]
fn a_full_cache_is_measured_row_by_row() {
    if skipped_without_module("a_full_cache_is_measured_row_by_row") {
        return;
    }
    let (setup, loads) = (setup(), ["get-16", "set-16", "mix-16"].map(|name| name.parse::<Load>().unwrap()));
    let full = FullCache {
        loads: &loads,
        // A tenth of the memory is free, which what the module takes for a moment has to fit into.
        n_keys: Some(20_000),
        // A mix writes few new keys: they have to fill what the module gives back once there is a limit.
        n_warmup: Some(400_000),
        // Many times what fits, so that it doesn't matter what the module itself takes and gives back meanwhile.
        n_requests: Some(100_000),
        n_connections: 10,
        n_pairs: 2,
        seed: 1,
        system: &System::TENURE,
        setup: &setup,
    };
    let report = full.run(&AtomicBool::new(false)).unwrap();
    let [get, set, mix] = &report.rows[..] else { panic!("{} rows", report.rows.len()) };
    assert_eq!((get.load.as_str(), get.evicted_by_module, set.load.as_str()), ("get-16", None, "set-16"));
    assert_eq!((get.misses_ratio, set.misses_ratio), (None, None));
    assert!(mix.misses_ratio.is_some_and(|ratio| (0.5..2.0).contains(&ratio)), "{:?}", mix.misses_ratio);
    for row in [get, set, mix] {
        assert_eq!(row.pairs.len(), 2);
        let sides = row.pairs.iter().flat_map(|pair| [&pair.stock, &pair.module]);
        sides.for_each(|side| assert!(side.side.cpu_main_ns_per_command > 0.0 && !side.pings_ns.is_empty()));
    }
    for FullPair { stock, module, .. } in &set.pairs {
        assert!(stock.n_evicted_by_module == 0 && stock.n_evicted_by_server > 40_000, "{stock:?}");
        assert!(module.n_evicted_by_module + module.n_evicted_by_server > 40_000, "{module:?}");
    }
    assert!(report.table().contains("evicted by module"), "{}", report.table());
}

/// 5000 values of 1000 bytes, a fifth of which may be fast; skewed, so that the hottest fifth has four in five of the
/// reads.
#[test]
fn two_tiers_are_compared_with_all_fast() {
    if skipped_without_module("two_tiers_are_compared_with_all_fast") {
        return;
    }
    let options = WorkloadOptions::new("tiers".parse().unwrap(), 1);
    let options = WorkloadOptions { n_keys: Some(5000), n_warmup: Some(20_000), n_requests: Some(40_000), ..options };
    let (load, setup) = (TierLoad { updates: Share(0.1), ..TierLoad::default() }, setup());
    let price = TierPrice {
        options: &options,
        loads: &[load],
        fast: &[Share(0.2)],
        systems: &[Placing::SDTMM],
        tier: "anon",
        depth: 4,
        n_connections: 10,
        n_pairs: 1,
        setup: &setup,
    };
    let report = price.run(&AtomicBool::new(false)).unwrap();
    let [row] = &report.rows[..] else { panic!("{report:?}") };
    assert_eq!((row.accesses.as_str(), row.updates, row.system, row.fast), ("zipf:0.99", 0.1, "sdtmm", 0.2));
    let [pair] = &row.pairs[..] else { panic!("{row:?}") };
    let counted = pair.counted;
    assert_eq!(pair.fast_hit_ratio, Some(counted.fast_hits as f64 / (counted.fast_hits + counted.slow_hits) as f64));
    assert!((0.5..1.0).contains(&pair.fast_hit_ratio.unwrap()), "{counted:?}");
    // Nine in ten of the measured commands read, and each of them finds its value.
    assert!((35_000..37_000).contains(&(counted.fast_hits + counted.slow_hits)), "{counted:?}");
    // Of the fast bytes a twentieth is kept free at the most.
    assert!((3500..=5000).contains(&counted.slow_values) && counted.slow_bytes == counted.slow_values * 1024);
    assert!(counted.fast_bytes as f64 <= 1.01 * counted.fast_limit_bytes as f64 && counted.elsewhere_bytes == 0);
    assert!((0.0..1.0).contains(&pair.moving_share) && counted.slice_us_max > 0, "{pair:?}");
    assert!(
        (pair.ratios.throughput_ratio - pair.tiers.side.throughput_per_s / pair.all_fast.side.throughput_per_s).abs()
            < 1e-9
    );
    assert!(pair.throughput_ratio_modelled < pair.ratios.throughput_ratio, "slow hits cost something");
    for side in [pair.all_fast, pair.tiers] {
        assert!([side.get_us, side.set_us].iter().flatten().filter(|us| us.p50 > 0.0 && us.p50 <= us.p99).count() == 2);
    }
    let json: serde_json::Value = serde_json::from_str(&report.json().unwrap()).unwrap();
    assert_eq!(json["rows"][0]["pairs"][0]["counted"]["slow_values"], counted.slow_values);
    assert!(json["rows"][0]["throughput_ratio"]["median"].as_f64().unwrap() > 0.0);
    let table = report.table();
    for part in ["slow tier anon", "zipf:0.99", "modelled", "GET p50", "throughput over all fast, measured"] {
        assert!(table.contains(part), "{part}: {table}");
    }
}

/// A trace in which a key is stored, read and deleted between reads of 2000 others, which come as they are asked for;
/// each of them all the more often, the lower its number is. Every system at two sizes; what is slow throughout once.
#[test]
fn systems_place_the_values_of_a_trace() {
    if skipped_without_module("systems_place_the_values_of_a_trace") {
        return;
    }
    let trace = tempfile::Builder::new().prefix("steps").suffix(".csv").tempfile().unwrap();
    let number = |i: u64| i * 7919 % 2000 * (i * 104_729 % 997) / 997;
    let others = (0..40_000u64).map(|i| format!(",k{},get,{},\n", number(i), 2000 + number(i) % 1000));
    let one =
        |i: usize| [",one,set,300,\n", ",one,get,300,\n", ",one,del,,\n"].get(i % 1000).copied().unwrap_or_default();
    let rows: String = others.enumerate().map(|(i, row)| row + one(i)).collect();
    std::fs::write(trace.path(), format!("time_s,key,op,size,tenant\n{rows}")).unwrap();

    let options = WorkloadOptions::new("tiers".parse().unwrap(), 1);
    let load = TierLoad { accesses: trace.path().to_str().unwrap().parse().unwrap(), ..TierLoad::default() };
    let systems = tenure_sim::tiers::System::ALL.into_iter().filter_map(|system| Placing::try_from(system).ok());
    let (systems, setup) = (systems.collect::<Vec<_>>(), setup());
    let price = TierPrice {
        options: &options,
        loads: &[load],
        fast: &[Share(0.2), Share(0.6)],
        systems: &systems,
        tier: "anon",
        depth: 2,
        n_connections: 4,
        n_pairs: 1,
        setup: &setup,
    };
    let report = price.run(&AtomicBool::new(false)).unwrap();
    let names: Vec<_> = report.rows.iter().map(|row| (row.system, row.fast)).collect();
    let tiered = |fast| ["sdtmm", "worth", "naive", "demotion-only"].map(|system| (system, fast));
    assert_eq!(names, [&tiered(0.2)[..], &tiered(0.6)[..], &[("all-slow", 0.0)]].concat());
    for row in &report.rows {
        let [pair] = &row.pairs[..] else { panic!("{row:?}") };
        let (counted, hit_ratio) = (pair.counted, pair.fast_hit_ratio.unwrap());
        assert!(row.accesses.starts_with("steps") && (0.0..0.1).contains(&row.updates), "{row:?}");
        assert!((2000..3000).contains(&row.value_bytes), "{row:?}");
        assert_eq!((row.n_warmup, row.n_commands), (12_036, 28_084), "three tenths of it warm up");
        // Of thousands, next to none comes before its SET.
        assert!(pair.tiers.n_misses + pair.all_fast.n_misses < 100, "{row:?}");
        let found = counted.fast_hits + counted.slow_hits + pair.tiers.n_misses;
        let n_reads = (row.n_commands as f64 * (1.0 - row.updates)) as u64;
        assert!(found.abs_diff(n_reads) < n_reads / 50, "{found} of {n_reads}: {row:?}");
        let is_all_slow = row.system == "all-slow";
        assert_eq!(hit_ratio < 0.02, is_all_slow, "{row:?}");
        // Whether the others promote in a fraction of a second goes by the machine: moves have a share of the time.
        assert!(counted.promotions == 0 || !matches!(row.system, "demotion-only" | "all-slow"), "{row:?}");
        assert!(is_all_slow || counted.fast_bytes as f64 <= 1.02 * counted.fast_limit_bytes as f64, "{row:?}");
    }
    let hits = |i: usize| report.rows[i].fast_hit_ratio.unwrap().median;
    assert!((0..4).all(|i| hits(i) < hits(4 + i)), "more fast memory, more hits: {names:?}");
    let charts = report.charts();
    let chart_names: Vec<&str> = charts.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(chart_names, ["throughput-20pct", "fast-hits-20pct", "throughput-60pct", "fast-hits-60pct"]);
    assert!(charts.iter().all(|(_, chart)| (chart.groups.len(), chart.series.len()) == (1, 5)));
    assert_eq!(charts[1].1.series[2].values, [hits(2)]);
}

#[test]
fn tiers_that_make_no_sense_are_refused() {
    let options = WorkloadOptions::new("tiers".parse().unwrap(), 1);
    let refusal = |fast: f64, value_bytes: u32, setting: &str, systems: &[Placing]| {
        let setup = Setup { settings: vec![(setting.to_string(), "1".to_string())], ..setup() };
        let load = TierLoad { value_bytes: Some(value_bytes), ..TierLoad::default() };
        let (options, loads, fast) = (&options, &[load][..], &[Share(fast)][..]);
        let (tier, depth, n_connections, n_pairs, setup) = ("anon", 1, 1, 1, &setup);
        let price = TierPrice { options, loads, fast, systems, tier, depth, n_connections, n_pairs, setup };
        price.run(&AtomicBool::new(false)).unwrap_err().to_string()
    };
    let harmless = "tenure.window-requests";
    assert!(refusal(1.0, 1000, harmless, &[Placing::SDTMM]).contains("above 0% and below 100%"));
    assert!(refusal(0.2, 256, harmless, &[Placing::SDTMM]).contains("257 to 1048576"));
    assert!(refusal(0.2, 1000, "tenure.tier-fast-bytes", &[Placing::SDTMM]).contains("--fast"));
    assert!(refusal(0.2, 1000, "tenure.tier-rule", &[Placing::SDTMM]).contains("--systems"));
    assert!(refusal(0.2, 1000, harmless, &[]).contains("0 pairs"));
}
