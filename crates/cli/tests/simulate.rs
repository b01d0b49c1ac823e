//! `tenure simulate` from outside: the rows that scripts rely on, every way to give a trace, exit codes, plots.

mod support;

use serde_json::Value;
use support::{a_loop, check_failure, file, json, json_of_input};

fn number(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or_else(|| panic!("{name} is a number in {row}"))
}

/// Half the loop fits: LRU never hits, random eviction does, and nobody pays less than the bound.
#[test]
fn rows_are_of_the_promised_shape() {
    let folder = tempfile::tempdir().unwrap();
    let trace = file(folder.path(), "loop.csv", &a_loop());
    let policies = "lru,random,klru:3,redis,lfu,hyperbolic,gdsf,s3fifo,dlru,predis,kredis,belady,bound";
    let arguments = [trace.to_str().unwrap(), "--policies", policies, "--memory", "50%,1000", "--costs", "fixed:80"];
    let rows = json("simulate", &arguments);
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 2 * policies.split(',').count());
    for row in rows {
        let latency_us = 20.0 + 80.0 * number(row, "miss_ratio");
        assert!((number(row, "mean_latency_us") - latency_us).abs() < 1e-9, "{row}");
        assert!((number(row, "penalty_us_total") - 80_000.0 * number(row, "miss_ratio")).abs() < 1e-3, "{row}");
        assert!((number(row, "byte_miss_ratio") - number(row, "miss_ratio")).abs() < 1e-9, "{row}");
        assert!(row["evictions"].is_u64(), "{row}");
        assert_eq!(row["ns_per_request"].is_null(), row["policy"] == "bound", "{row}");
    }
    let miss_ratio = |policy: &str, bytes: u64| {
        let row = rows.iter().find(|row| row["policy"] == policy && row["memory_bytes"] == bytes);
        number(row.unwrap_or_else(|| panic!("{policy} at {bytes}")), "miss_ratio")
    };
    assert_eq!(miss_ratio("lru", 500), 1.0);
    assert!(miss_ratio("random", 500) < 0.9);
    for policy in policies.split(',') {
        assert!(miss_ratio(policy, 500) >= miss_ratio("bound", 500), "{policy}");
        assert!((miss_ratio(policy, 1000) - 0.01).abs() < 1e-9, "{policy} with room for all");
    }
}

/// A stream that can be read once gives what the file gives, on any number of threads, with any policy.
#[test]
fn standard_input_gives_what_the_file_gives() {
    let folder = tempfile::tempdir().unwrap();
    let trace = file(folder.path(), "loop.csv", &a_loop());
    let untimed = |rows: &Value| {
        let mut rows = rows.clone();
        rows.as_array_mut().unwrap().iter_mut().for_each(|row| row["ns_per_request"] = Value::Null);
        rows
    };
    let arguments = ["--policies", "lru,random,gdsf,belady", "--memory", "30%", "--seed", "7"];
    let of_file =
        json("simulate", &[&[trace.to_str().unwrap()], arguments.as_slice(), &["--num-thread", "1"]].concat());
    let of_input = json_of_input("simulate", &[arguments.as_slice(), &["--num-thread", "3"]].concat(), &a_loop());
    assert_eq!(untimed(&of_input), untimed(&of_file));
}

/// Ten keys in turn, two or five of them fast: every read is fast, slow or missed. A workload made here needs no trace.
#[test]
fn tiers_are_simulated() {
    let folder = tempfile::tempdir().unwrap();
    let trace = file(folder.path(), "loop.csv", &a_loop());
    let rows = json("simulate", &[trace.to_str().unwrap(), "--tiers", "20%,50%", "--division", "free,equal"]);
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 2 * (6 + 2), "sdtmm and worth with each division");
    for row in rows {
        let sum = number(row, "fast_hit_ratio") + number(row, "slow_hit_ratio") + number(row, "read_miss_ratio");
        assert!((sum - 1.0).abs() < 1e-9, "{row}");
        assert!((number(row, "miss_ratio") - 0.01).abs() < 1e-9 && row["memory_bytes"].is_null(), "{row}");
        assert_eq!(
            number(row, "moves_per_request") > 0.0,
            !row["system"].as_str().unwrap().starts_with("all"),
            "{row}"
        );
        assert_eq!(row["throughput_modelled"] == 1.0, row["system"] == "all-fast", "{row}");
    }
    assert_eq!(rows[0]["fast_bytes"], 200);
    let limited =
        json("simulate", &[trace.to_str().unwrap(), "--tiers", "20%", "--memory", "50%", "--systems", "sdtmm"]);
    assert_eq!((&limited[0]["memory_bytes"], &limited[0]["fast_bytes"]), (&Value::from(500), &Value::from(100)));
    assert!(number(&limited[0], "miss_ratio") > 0.3);
    let plot = folder.path().join("tiers.svg");
    let workload =
        ["--workload", "zipf:0.99", "--tiers", "20%", "--systems", "sdtmm,all-slow", "--plot", plot.to_str().unwrap()];
    let rows = json("simulate", &workload);
    assert!(number(&rows[0], "fast_hit_ratio") > 0.6 && number(&rows[1], "fast_hit_ratio") == 0.0);
    assert!(std::fs::read(plot).unwrap().starts_with(b"<svg"));
    for wrong in [["--tiers", "x"], ["--systems", "sdtmm"], ["--workload", "zipf:0.9"]] {
        check_failure("simulate", &[&[trace.to_str().unwrap()], wrong.as_slice()].concat(), 2, "");
    }
}

/// Fetches of 100 µs: the read 30 µs after the first waits for 70 of them, and is no miss.
#[test]
fn fetches_take_their_time_where_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let header = "time_s,key,op,size,tenant\n";
    let timed = format!("{header}1.0,a,get,100,\n1.00003,a,get,100,\n1.2,a,get,100,\n");
    let trace = file(folder.path(), "timed.csv", &timed);
    let arguments = [trace.to_str().unwrap(), "--delayed-hits", "--memory", "1000", "--costs", "fixed:100"];
    let rows = json("simulate", &arguments);
    let policies: Vec<&str> = rows.as_array().unwrap().iter().filter_map(|row| row["policy"].as_str()).collect();
    assert_eq!(policies, ["redis", "gdsf", "va-cdh", "tenure"]);
    for row in rows.as_array().unwrap() {
        assert!((number(row, "delayed_hit_ratio") - 1.0 / 3.0).abs() < 1e-9, "{row}");
        assert!((number(row, "penalty_us_total") - 170.0).abs() < 1e-3, "{row}");
    }
    check_failure("simulate", &[arguments.as_slice(), &["--policies", "redis,bound"]].concat(), 1, "leave it out");
    let untimed = file(folder.path(), "untimed.csv", &format!("{header}0,a,get,100,\n0,a,get,100,\n"));
    check_failure("simulate", &[untimed.to_str().unwrap(), "--delayed-hits"], 1, "no times");
}

#[test]
fn plots_are_written_as_svg_and_png() {
    let folder = tempfile::tempdir().unwrap();
    let trace = file(folder.path(), "loop.csv", &a_loop());
    for (name, begins) in [("plot.svg", b"<svg".as_slice()), ("plot.png", b"\x89PNG")] {
        let plot = folder.path().join(name);
        let windows = ["--policies", "dlru,predis", "--windows", "200", "--window-requests", "100"];
        let common = [trace.to_str().unwrap(), "--memory", "500", "--plot", plot.to_str().unwrap()];
        json("simulate", &[common.as_slice(), &windows].concat());
        let beside = |what: &str| folder.path().join(name.replace('.', &format!("-{what}.")));
        for path in [plot.clone(), beside("dlru-500-K"), beside("predis-500-allocation")] {
            let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            assert!(bytes.starts_with(begins), "{}", path.display());
        }
    }
}

#[test]
fn bad_usage_is_2_and_a_bad_trace_is_1_and_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let bad = file(folder.path(), "bad.csv", "time_s,key,op,size,tenant\n0,a,get,10,\n1,b,fly,3,\n2,a,get,10,\n");
    let bad = bad.to_str().unwrap();
    let check = |arguments: &[&str], code, said| check_failure("simulate", arguments, code, said);
    check(&[bad], 1, "bad.csv:3: operation 'fly'");
    check(&[bad, "--skip-bad"], 0, "1 malformed line was passed over");
    check(&["nowhere.csv"], 1, "nowhere.csv");
    check(&[], 2, "TRACE");
    check(&[bad, "--policies", "best"], 2, "klru");
    check(&[bad, "--memory", "0"], 2, "above 0");
    check(&[bad, "--costs", "free"], 2, "free");
    check(&[bad, "--hit-us", "nan"], 2, "0 or more");
    check(&[bad, "--hit-us=-1"], 2, "0 or more");
    check(&[bad, "--hit-us", "-1"], 2, "0 or more");
    check(&[bad, "--window-requests", "0"], 2, "--window-requests");
    check(&[bad, "--fixed-size", "0"], 2, "--fixed-size");
    let good = file(folder.path(), "loop.csv", &a_loop());
    let good = good.to_str().unwrap();
    check(&[good, "--costs", "column"], 1, "loop.csv: no row says what a miss costs");
    check(&[good], 0, "nothing says what a miss costs; each is taken to cost 1000 µs");
    check(&[good, "--warmup", "5000"], 1, "behind the warm-up");
    let large = file(folder.path(), "large.csv", "time_s,key,op,size,tenant\n0,a,get,5000000000,\n");
    check(&[large.to_str().unwrap()], 1, "large.csv:2: size 5000000000 is above");
    let empty = file(folder.path(), "empty.csv", "time_s,key,op,size,tenant\n");
    check(&[empty.to_str().unwrap()], 1, "it holds no access");
    check(&["--ladder", folder.path().join("none").to_str().unwrap()], 1, "none");
}

#[test]
fn the_ladder_sums_up_a_folder_of_traces() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = "time_s,key,op,size,tenant\n".to_owned();
    for i in 0..100_000_u64 {
        let number = i.wrapping_mul(i) % 1_009 % (1 + i % 499);
        text += &format!("{i},k{number},get,,\n");
    }
    file(folder.path(), "long.csv", &text);
    file(folder.path(), "short.csv", &a_loop());
    let ladder = json("simulate", &["--ladder", folder.path().to_str().unwrap(), "--ladder-windows", "2"]);
    let all = ladder["all"].as_array().unwrap();
    assert!(all.iter().all(|standing| standing["rungs"] == 24), "one trace, three costs, two sizes, four memories");
    let of = |policy: &str| all.iter().find(|standing| standing["policy"] == policy).unwrap();
    assert_eq!(number(of("redis"), "relative_mean"), 1.0);
    for standing in all {
        assert!(number(standing, "relative_mean") >= number(of("bound"), "relative_mean"), "{standing}");
    }
}
