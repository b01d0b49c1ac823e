//! What the tests of the tool share: traces written into a temporary folder, and the tool's JSON.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Runs `tenure` and waits for its end.
pub fn tenure(subcommand: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tenure")).arg(subcommand).args(arguments).output().expect("the tool starts")
}

/// What `tenure … --json` says.
pub fn json(subcommand: &str, arguments: &[&str]) -> Value {
    let output = tenure(subcommand, &[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("standard output is JSON")
}

/// What `tenure … - --json` says of a trace on its standard input.
pub fn json_of_input(subcommand: &str, arguments: &[&str], trace: &str) -> Value {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tenure"))
        .args([subcommand, "-", "--json"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the tool starts");
    child.stdin.take().expect("it is piped").write_all(trace.as_bytes()).expect("the tool reads all of it");
    let output = child.wait_with_output().expect("the tool ends");
    serde_json::from_slice(&output.stdout).expect("standard output is JSON")
}

/// Exit code and what standard error must contain.
pub fn check_failure(subcommand: &str, arguments: &[&str], code: i32, said: &str) {
    let output = tenure(subcommand, arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
    assert!(error.contains(said), "{arguments:?} says: {error}");
}

/// Writes a file.
pub fn file(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("the temporary folder can be written");
    path
}

/// Keys 0 to 9 round and round, 100 bytes each: below 1000 bytes LRU always misses, from there only the first round
/// does.
pub fn a_loop() -> String {
    let mut text = "time_s,key,op,size,tenant\n".to_owned();
    for i in 0..1000 {
        let _ = writeln!(text, "{i},k{},get,100,", i % 10);
    }
    text
}
