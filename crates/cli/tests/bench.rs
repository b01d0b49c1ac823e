//! `tenure bench` as a shell sees it: exit codes, what goes to which stream, and a small run from another folder.

use std::path::Path;
use std::process::{Command, Output};

fn tenure(folder: &Path, arguments: &str) -> Output {
    let program = env!("CARGO_BIN_EXE_tenure");
    Command::new(program).args(arguments.split_whitespace()).current_dir(folder).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Exit code, what standard error has to contain, and nothing on standard output.
#[track_caller]
fn check_failure(arguments: &str, code: i32, said: &str) {
    let folder = tempfile::tempdir().unwrap();
    let output = tenure(folder.path(), arguments);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments}: {error}");
    assert!(error.contains(said), "{arguments} says: {error}");
    assert!(output.stdout.is_empty(), "{arguments}");
}

#[test]
fn bad_usage_exits_with_2_and_says_what_is_allowed() {
    for (arguments, expected) in [
        ("bench --workload ycsb-g", "a to f"),
        ("bench --workload /nonexistent.csv", "ycsb-a"),
        ("bench --systems memcached", "stock, tenure"),
        ("bench --backend mysql", "delay:US"),
        ("bench --memory 0%", "share"),
        ("bench --slow-down 1:1000", "1:1000@40%"),
        ("bench --slow-down 1:1000@100%", "below 100%"),
        ("bench --slow-down 1:1000@40% --predict", "cannot be used with"),
        ("bench --bins 0", "--bins"),
        ("bench --workload diurnal --period 0", "--period"),
        ("bench --restart=100%", "below 100%"),
        ("bench --restart --predict", "cannot be used with"),
        ("bench --cpus 0", "SERVER,CLIENTS"),
        ("bench --set maxmemory=1", "tenure."),
        ("bench --repetitions 0", "repetitions"),
        ("bench --turns 0", "--turns"),
        ("bench --cluster 0", "--cluster"),
        ("bench --cluster 3 --predict", "cannot be used with"),
        ("bench --routes map", "default-node"),
        ("bench --nonsense", "--nonsense"),
        ("", "bench"),
    ] {
        check_failure(arguments, 2, expected);
    }
}

#[test]
fn help_is_no_error() {
    let output = tenure(Path::new("."), "bench --help");
    assert_eq!(output.status.code(), Some(0));
    for expected in ["--workload", "tenure-sleep", "predis-hint"] {
        assert!(text(&output.stdout).contains(expected), "{expected}");
    }
}

#[test]
fn failures_exit_with_1_and_say_where() {
    let folder = tempfile::tempdir().unwrap();
    // A path may begin as the names of workloads do.
    for name in ["trace.csv", "ycsb-c.csv"] {
        std::fs::write(folder.path().join(name), "time_s,key,op,size,tenant\n0,a,get,1,x\n0,a,get,-3,x\n").unwrap();
        let output = tenure(folder.path(), &format!("bench --workload {name} --backend delay:1 --systems stock"));
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(said.contains(&format!("{name}:3: size '-3' is negative")), "{said}");
    }
}

#[test]
fn a_small_run_prints_json_and_writes_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let small = "--systems stock --records 2000 --warmup 2000 --requests 2000 --repetitions 2 --rows 100";
    let output =
        tenure(folder.path(), &format!("bench --workload ycsb-c --backend sqlite --memory 40% {small} --json"));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "no progress where nobody watches: {}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["summary"][0]["system"], "stock");
    assert_eq!(json["runs"].as_array().unwrap().len(), 2);
    let runs: Vec<_> = std::fs::read_dir(folder.path().join("bench/runs")).unwrap().collect();
    let run = runs[0].as_ref().unwrap().path();
    assert!(run.to_string_lossy().ends_with("-ycsb-c"), "{}", run.display());
    for name in ["report.json", "report.txt", "report.html", "mean-latency.svg", "mean-latency.png"] {
        assert!(run.join(name).is_file(), "{name}");
    }
}

#[test]
fn what_cant_take_turns_says_why() {
    let small = "--records 100 --warmup 10 --requests 10 --backend delay:0 --turns";
    for (arguments, expected) in [
        (format!("ycsb-c {small} 2 --cluster 2"), "don't take turns"),
        (format!("ycsb-c {small} 2 --restart"), "takes no turns"),
        (format!("ycsb-c {small} 11"), "11 turns for 10 measured requests"),
        (format!("diurnal {small} 2"), "has a pace"),
        ("full --turns 2".to_owned(), "--turns is of comparisons"),
        ("ycsb-c --resize --turns 2".to_owned(), "--turns is of comparisons"),
    ] {
        check_failure(&format!("bench --workload {arguments}"), 1, expected);
    }
}

#[test]
fn what_only_slots_takes_is_refused_elsewhere() {
    for (arguments, expected) in [
        ("bench --workload ycsb-c --connections 1,2", "--connections takes one value"),
        ("bench --workload ycsb-c --cluster 1,2", "--cluster takes one value"),
        ("bench --workload ycsb-c --routes library", "--cluster says"),
        ("bench --workload ycsb-e --cluster 2 --records 100 --requests 10 --backend delay:0", "several keys at once"),
        ("bench --workload no-miss --cluster 2", "slots runs on clusters"),
    ] {
        check_failure(arguments, 1, expected);
    }
}

#[test]
fn tiers_and_other_workloads_refuse_each_others_options() {
    for (arguments, expected) in [
        ("--cluster 2", "tiers runs on one server"),
        ("--routes library", "tiers runs on one server"),
        ("--memory 50%", "everything fits"),
        ("--backend delay:1", "no misses"),
        ("--restart", "no misses"),
        ("--slow-down 0:1000@40%", "no misses"),
        ("--predict", "tenure simulate --tiers"),
        ("--period 9", "diurnal"),
        ("--connections 1,2", "--connections takes one value"),
        ("--systems stock", "'stock' does not say how values are placed: tiers has sdtmm, worth"),
        ("--systems all-fast", "stands beside"),
        ("--fast 100%", "below 100%"),
        ("--set tenure.tier-slow=anon", "--tier says where"),
        ("--set tenure.tier-rule=worth", "--systems says by which rule"),
        ("--accesses two-phases --warmup 10 --requests 10", "hide it"),
    ] {
        check_failure(&format!("bench --workload tiers {arguments}"), 1, expected);
    }
    for option in ["--accesses zipf:0.5", "--updates 5%", "--fast 20%", "--tier anon", "--value-bytes 1000"] {
        check_failure(&format!("bench --workload no-miss {option}"), 1, "is of the workload tiers");
    }
    check_failure("bench --workload no-miss --systems sdtmm", 1, "'sdtmm' is of the workload tiers");
    for (arguments, expected) in [
        ("--accesses zipf", "zipf:SKEW"),
        ("--accesses none.csv", "or the path of a trace"),
        ("--updates 0.5", "0% to 100%"),
        ("--systems lru", "of tiers: sdtmm, worth, naive, demotion-only"),
    ] {
        check_failure(&format!("bench --workload tiers {arguments}"), 2, expected);
    }
}

#[test]
fn full_scale_and_other_workloads_refuse_each_others_options() {
    for (arguments, expected) in [
        ("--cluster 2", "there is one server"),
        ("--memory 50%", "of full --records, of scale --sizes"),
        ("--backend delay:1", "GETs hit"),
        ("--pipeline 16", "full has --loads"),
        ("--repetitions 3", "--pairs says"),
        ("--systems stock", "compares stock with one system"),
    ] {
        for workload in ["full", "scale"] {
            check_failure(&format!("bench --workload {workload} {arguments}"), 1, expected);
        }
    }
    for option in ["--loads get-1", "--pairs 2", "--io-threads 2"] {
        check_failure(&format!("bench --workload no-miss {option}"), 1, "is of the workload full");
    }
    check_failure("bench --workload full --loads get", 2, "get-DEPTH");
    check_failure("bench --workload full --sizes 10000", 1, "is of the workload scale");
    check_failure("bench --workload scale --loads get-1", 1, "is of the workload full");
    check_failure("bench --workload scale --records 1000", 1, "--sizes says");
    check_failure("bench --workload scale --warmup 1000", 1, "it has its own");
    check_failure("bench --workload scale --sizes 9999", 2, "10000..=200000000");
}

#[test]
fn scale_measures_each_part() {
    let folder = tempfile::tempdir().unwrap();
    let small = "--sizes 10000 --requests 20000 --connections 3 --out out";
    let output = tenure(folder.path(), &format!("bench --workload scale {small}"));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    for figure in ["load, s", "a round of the census", "SET: evicted by", "of the module, MB", "fork, ms", "start, s"] {
        assert!(table.contains(figure), "{figure}: {table}");
    }
}

/// Two nodes: half of the requests of a client without a slot map come to the wrong one first.
#[test]
fn slots_counts_redirects_by_route() {
    let folder = tempfile::tempdir().unwrap();
    let small = "--records 2000 --warmup 2000 --requests 4000 --connections 3 --cluster 2 --out out --json";
    let output = tenure(folder.path(), &format!("bench --workload slots {small}"));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = json["rows"].as_array().unwrap();
    let of = |route: &str, figure: &str| {
        let row = rows.iter().find(|row| row["route"] == route).unwrap();
        row[figure].as_f64().unwrap()
    };
    assert!((0.45..0.55).contains(&of("default-node", "redirects")), "{rows:?}");
    assert!((1.45..1.6).contains(&of("default-node", "commands")), "{rows:?}");
    // The load has met nearly every slot; the library has asked for all.
    assert!(of("remember", "redirects") < 0.05 && of("library", "redirects") < 0.01, "{rows:?}");
    for name in ["report.txt", "report.html", "throughput.svg", "busiest-node.png"] {
        assert!(folder.path().join("out").join(name).is_file(), "{name}");
    }
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let small = "--systems stock --records 500 --warmup 0 --requests 100 --repetitions 1 --out out";
    let script = format!(
        "{} bench --workload ycsb-c --backend delay:1 {small} --json | true; echo ${{PIPESTATUS[0]}}",
        env!("CARGO_BIN_EXE_tenure")
    );
    let output = Command::new("bash").args(["-c", &script]).current_dir(folder.path()).output().unwrap();
    assert_eq!(text(&output.stdout).trim(), "0", "{}", text(&output.stderr));
}
