//! `tenure replies` as a shell sees it.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tenure_servers::{ServerBinary, module_path};

fn tenure(words: &str, server: Option<&Path>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.arg("replies").args(words.split_whitespace());
    if let Some(server) = server {
        command.env("TENURE_SERVER", server);
    }
    command.output().expect("the tool starts")
}

/// What the tool reports, on a server of this machine on which replies can be held; `None` where there is none.
fn report(words: &str) -> Option<(tempfile::TempDir, Value)> {
    let servers = ServerBinary::all().unwrap_or_default();
    let able = servers.iter().find(|binary| !binary.label.starts_with("redis-7.0"));
    let Some(server) = able.filter(|_| module_path().is_ok()) else {
        println!("SKIPPED: tenure replies {words}: libtenure.so is not built, or replies can't be held here");
        return None;
    };
    let folder = tempfile::tempdir().unwrap();
    let output = tenure(&format!("{words} --json --out {}", folder.path().display()), Some(&server.program));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some((folder, serde_json::from_slice(&output.stdout).expect("standard output is JSON")))
}

/// `sent` holds while the connection does, and Linux may reset it (docs/replies-and-clusters.md): a run without loss
/// comes within three. `acked` loses nothing in any.
#[test]
fn nothing_acknowledged_is_lost_unless_all_die() {
    let words = "loss --runs 1 --connections 5 --scenarios slowed,both-die";
    let row = |report: &Value, scenario: &str, way: &str| {
        let rows = report["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["scenario"] == scenario && row["way"] == way).unwrap();
        ["n_acknowledged", "n_lost"].map(|field| row[field].as_u64().unwrap())
    };
    let mut sent_lost = Vec::new();
    while sent_lost.len() < 3 && !sent_lost.contains(&0) {
        let Some((folder, report)) = report(words) else { return };
        let (sent, acked) = (row(&report, "slowed", "sent"), row(&report, "slowed", "acked"));
        assert!(sent[0] > 0 && acked[0] > 0 && acked[1] == 0, "{report}");
        sent_lost.push(sent[1]);
        // What is written when there is nobody to write it to, but for those whose word is waited for.
        assert!(row(&report, "both-die", "async")[1] > 0 && row(&report, "both-die", "acked")[1] == 0, "{report}");
        assert!(folder.path().join("report.txt").is_file());
    }
    assert!(sent_lost.contains(&0), "lost in each run: {sent_lost:?}");
}

#[test]
fn ways_are_priced_side_by_side() {
    let words = "price --connections 4 --pipeline 1,4 --duration 50 --repetitions 2 --ways async,sent,wait";
    let Some((_folder, report)) = report(words) else { return };
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6, "{report}");
    for row in rows {
        assert!(row["writes_per_s"]["median"].as_f64().unwrap() > 0.0, "{row}");
        assert_eq!(row["way"] == "async", row["ratio"]["min"] == 1.0 && row["ratio"]["max"] == 1.0, "{row}");
    }
}

#[test]
fn what_is_no_way_is_named() {
    for (words, said) in [
        ("price --ways later", "'later' is none of stock, async, sent, acked, wait"),
        ("loss --scenarios flood", "'flood' is none of plain"),
    ] {
        let output = tenure(words, None);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{words}: {error}");
        assert!(error.contains(said), "{words} says: {error}");
    }
}
