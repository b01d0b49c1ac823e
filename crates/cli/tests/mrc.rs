//! `tenure mrc` from outside: the shapes that scripts rely on, exit codes, errors that say where, and accuracy on
//! real traces.

mod support;

use std::path::{Path, PathBuf};

use serde_json::Value;
use support::{a_loop, check_failure, file, json_of_input, tenure};

fn json(arguments: &[&str]) -> Value {
    support::json("mrc", arguments)
}

fn miss_ratios(curve: &Value) -> Vec<f64> {
    let points = curve["curve"].as_array().expect("a curve is a list of points");
    points.iter().map(|point| point["miss_ratio"].as_f64().expect("a miss ratio is a number")).collect()
}

#[test]
fn one_curve_is_an_object_of_the_promised_shape() {
    let folder = tempfile::tempdir().unwrap();
    let trace = file(folder.path(), "loop.csv", &a_loop());
    let curve = json(&[trace.to_str().unwrap(), "--model", "exact", "--sizes", "4"]);
    assert_eq!(curve["trace"], "loop");
    assert_eq!(curve["model"], "exact");
    assert_eq!(curve["k"], Value::Null);
    assert_eq!(curve["rate"], 1.0);
    assert_eq!(curve["requests"], 1000);
    assert!(curve["ns_per_request"].as_f64().is_some_and(|ns| ns > 0.0));
    let bytes: Vec<u64> = curve["curve"].as_array().unwrap().iter().map(|p| p["bytes"].as_u64().unwrap()).collect();
    assert_eq!(bytes, [250, 500, 750, 1000]);
    let got = miss_ratios(&curve);
    assert!(got[..3] == [1.0; 3] && (got[3] - 0.01).abs() < 1e-9, "{got:?}");
}

#[test]
fn several_models_are_a_list_and_one_plot() {
    let folder = tempfile::tempdir().unwrap();
    let trace = file(folder.path(), "loop.csv", &a_loop());
    let plot = folder.path().join("curves.svg");
    let models = "exact,shards,eaet,krr,merged,miniature";
    let curves = json(&[
        trace.to_str().unwrap(),
        "--model",
        models,
        "--k",
        "1,5",
        "--rate",
        "1",
        "--sizes",
        "2",
        "--plot",
        plot.to_str().unwrap(),
    ]);
    let curves = curves.as_array().unwrap();
    let names: Vec<(&str, Option<u64>)> =
        curves.iter().map(|curve| (curve["model"].as_str().unwrap(), curve["k"].as_u64())).collect();
    let expected = [
        ("exact", None),
        ("shards", None),
        ("eaet", None),
        ("krr", Some(1)),
        ("krr", Some(5)),
        ("merged", None),
        ("miniature", Some(1)),
        ("miniature", Some(5)),
    ];
    assert_eq!(names, expected);
    for curve in curves {
        let last = miss_ratios(curve)[1];
        assert!((last - 0.01).abs() < 1e-9, "all memory leaves the first round: {curve}");
    }
    assert_eq!(curves[5]["curve"][0]["k"], 1, "random eviction is best on a loop: {}", curves[5]);
    assert!(std::fs::read_to_string(plot).unwrap().contains("krr K=5"));
}

#[test]
fn standard_input_windows_and_warm_up() {
    let arguments = ["--model", "exact", "--window", "300", "--warmup", "100", "--memory-max", "1000", "--sizes", "1"];
    let curves = json_of_input("mrc", &arguments, &a_loop());
    let windows: Vec<(u64, u64, f64)> = curves
        .as_array()
        .unwrap()
        .iter()
        .map(|c| (c["window"].as_u64().unwrap(), c["requests"].as_u64().unwrap(), miss_ratios(c)[0]))
        .collect();
    assert_eq!(windows, [(1, 300, 0.0), (2, 300, 0.0), (3, 300, 0.0)], "the first round fell into the warm-up");
}

#[test]
fn bad_usage_is_2_and_a_bad_trace_is_1_and_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let bad = file(folder.path(), "bad.csv", "time_s,key,op,size,tenant\n0,a,get,10,\n1,b,get,-3,\n2,a,get,10,\n");
    let bad = bad.to_str().unwrap();
    let check = |arguments: &[&str], code, said| check_failure("mrc", arguments, code, said);
    check(&[bad], 1, "bad.csv:3: size '-3' is negative");
    check(&["nowhere.csv"], 1, "nowhere.csv");
    check(&[], 2, "TRACE");
    check(&[bad, "--model", "oracle"], 2, "exact, shards, eaet, krr, merged, miniature");
    check(&[bad, "--rate", "0"], 2, "above 0 and up to 1");
    check(&[bad, "--k", "65"], 2, "65");
    check(&["-", "--model", "miniature"], 2, "--memory-max");
    check(&[bad, "--model", "miniature", "--sample-keys", "10", "--skip-bad"], 2, "--rate");
    let output = tenure("mrc", &[bad, "--skip-bad", "--model", "exact"]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("1 malformed line"));
}

/// The folder of traces beside the repository, or the one that `TENURE_TRACES` names; `None`, said aloud, without one.
fn traces() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let folder = std::env::var_os("TENURE_TRACES").map_or(beside, PathBuf::from);
    if !folder.is_dir() {
        println!("SKIPPED: no traces at {}; set TENURE_TRACES", folder.display());
        return None;
    }
    Some(folder)
}

/// The mean absolute difference of two models on a real trace, at the same sizes.
fn error_between(trace: &Path, model: &[&str], truth: &[&str]) -> f64 {
    let common = [trace.to_str().unwrap(), "--missing-size", "lognormal", "--memory-max", "100mb", "--sizes", "40"];
    let curve = |arguments: &[&str]| miss_ratios(&json(&[&common, arguments].concat()));
    let (model, truth) = (curve(model), curve(truth));
    model.iter().zip(&truth).map(|(a, b)| (a - b).abs()).sum::<f64>() / truth.len() as f64
}

/// 1 % of ten keys is none, and would say that everything hits.
#[test]
fn few_keys_are_all_sampled_and_a_small_sample_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let trace = file(folder.path(), "loop.csv", &a_loop());
    let trace = trace.to_str().unwrap();
    let curve = json(&[trace, "--model", "shards", "--sizes", "2"]);
    assert_eq!(
        (&curve["rate"], &curve["rate_taken"], &curve["sampled_keys"]),
        (&serde_json::json!(0.01), &serde_json::json!(1.0), &serde_json::json!(10))
    );
    let got = miss_ratios(&curve);
    assert!(got[0] == 1.0 && (got[1] - 0.01).abs() < 1e-9, "{got:?}");
    for model in ["krr", "eaet", "merged", "miniature"] {
        let got = miss_ratios(&json(&[trace, "--model", model, "--sizes", "2"]));
        assert!(got[0] > 0.3 && (got[1] - 0.01).abs() < 1e-9, "{model}: {got:?}");
    }
    check_failure("mrc", &[trace, "--sample-keys-min", "0", "--rate", "0.5"], 0, "of 10 keys, so the curve is rough");
    let silent = tenure("mrc", &[trace]);
    assert!(silent.stderr.is_empty(), "{}", String::from_utf8_lossy(&silent.stderr));
}

/// 2,000 keys of which few come often: which of them a small sample takes, the seed says.
#[test]
fn a_seed_chooses_the_sample() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = "time_s,key,op,size,tenant\n".to_owned();
    for i in 0..20_000_u64 {
        text += &format!(",k{},get,100,\n", i.wrapping_mul(i) % 1_999 % (1 + i % 1_999));
    }
    let trace = file(folder.path(), "some.csv", &text);
    let curve = |seed: &str| {
        json(&[trace.to_str().unwrap(), "--model", "shards", "--sample-keys", "100", "--seed", seed])["curve"].clone()
    };
    assert_eq!(curve("1"), curve("1"));
    assert_ne!(curve("1"), curve("2"));
}

/// Two thousand keys in turn, every other one expensive: where half of them fit, a policy that goes by cost keeps more
/// of those. Of two hundred keys of 100 bytes not all would be known: the table of keys of so small a cache has sixteen
/// places.
#[test]
fn a_miniature_of_a_policy_tells_what_misses_cost() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = "time_s,key,op,size,tenant,penalty_us\n".to_owned();
    for i in 0..200_000 {
        let penalty_us = if i % 2 == 0 { 5_000 } else { 10 };
        text += &format!("{i},k{},get,1000,,{penalty_us}\n", i % 2_000);
    }
    let trace = file(folder.path(), "turns.csv", &text);
    let lost = |policy: &str| {
        let curve = json(&[trace.to_str().unwrap(), "--model", "miniature", "--policy", policy, "--sizes", "2"]);
        let points = curve["curve"].as_array().unwrap().clone();
        points.iter().map(|point| point["penalty_us_mean"].as_f64().unwrap()).collect::<Vec<f64>>()
    };
    let (lru, tenure) = (lost("lru"), lost("tenure"));
    // Where all fit each key misses once in its hundred reads.
    let are = |lost_us: f64, expected_us: f64| (lost_us - expected_us).abs() < 1e-6;
    assert!(are(lru[0], 2_505.0) && are(lru[1], 25.05), "{lru:?}");
    assert!(tenure[0] < 100.0 && are(tenure[1], 25.05), "{tenure:?}");
}

#[test]
fn what_means_nothing_is_bad_usage_and_an_empty_trace_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let trace = file(folder.path(), "loop.csv", &a_loop());
    let check = |arguments: &[&str], said| {
        check_failure("mrc", &[&[trace.to_str().unwrap()], arguments].concat(), 2, said);
    };
    check(&["--fixed-size", "0"], "--fixed-size");
    check(&["--memory-max", "0"], "0 bytes");
    check(&["--policy", "tenure"], "--model miniature");
    check(&["--model", "krr", "--policy", "tenure"], "--model miniature");
    check(&["--plot", folder.path().join("none/curve.svg").to_str().unwrap()], "no folder");
    check(&["--plot", folder.path().join("curve.gif").to_str().unwrap()], ".svg");
    assert!(!folder.path().join("none").exists());
    let empty = file(folder.path(), "empty.csv", "time_s,key,op,size,tenant\n");
    check_failure("mrc", &[empty.to_str().unwrap()], 1, "empty.csv: it holds no access");
    let xz = folder.path().join("trace.csv.xz");
    std::fs::write(&xz, b"\xfd7zXZ\x00\x00\x04").unwrap();
    check_failure("mrc", &[xz.to_str().unwrap()], 1, "packed with xz");
}

#[test]
fn real_traces_are_modelled_within_the_stated_errors() {
    let Some(folder) = traces() else { return };
    let trace = folder.join("lirs_sprite.csv.gz");
    let exact = ["--model", "exact"];
    let simulated = ["--model", "miniature", "--k", "5", "--rate", "1"];
    for (model, truth, error_max) in [
        (["--model", "shards", "--rate", "1"].as_slice(), exact.as_slice(), 0.0005),
        (["--model", "eaet", "--rate", "1"].as_slice(), exact.as_slice(), 0.006),
        (["--model", "eaet", "--rate", "0.1"].as_slice(), exact.as_slice(), 0.02),
        (["--model", "krr", "--k", "5", "--rate", "1"].as_slice(), simulated.as_slice(), 0.004),
        (["--model", "krr", "--k", "5", "--rate", "0.1"].as_slice(), simulated.as_slice(), 0.02),
    ] {
        let error = error_between(&trace, model, truth);
        assert!(error < error_max, "{model:?}: {error}");
    }
}

#[test]
fn a_page_has_the_table_and_the_plot() {
    let folder = tempfile::tempdir().unwrap();
    let trace = file(folder.path(), "loop.csv", &a_loop());
    for (subcommand, more) in [("mrc", ["--rate", "1"]), ("simulate", ["--policies", "redis"])] {
        let page = folder.path().join(format!("{subcommand}.html"));
        let arguments = [trace.to_str().unwrap(), more[0], more[1], "--html", page.to_str().unwrap()];
        let output = tenure(subcommand, &arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let html = std::fs::read_to_string(page).unwrap();
        assert_eq!((html.matches("<svg").count(), html.matches("<pre>").count()), (1, 1), "{html}");
    }
}
