//! `tenure cluster` as a shell sees it.

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use tenure_servers::{cluster::SLOTS, module_path};

struct Tool(Child);

impl Drop for Tool {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two ports next to each other, above those that servers of other tests take.
fn free_ports() -> u16 {
    let is_free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    (30_000..32_000).find(|&port| is_free(port) && is_free(port + 1)).unwrap()
}

#[test]
fn a_cluster_serves_until_it_is_told_to_end() {
    if module_path().is_err() {
        println!("SKIPPED: a_cluster_serves_until_it_is_told_to_end: libtenure.so is not built");
        return;
    }
    let port = free_ports();
    let words = format!("cluster --port {port} --primaries 2 --replicas 0 --memory 8mb -- --tenure.window-seconds 7");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.args(words.split(' ')).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut tool = Tool(command.spawn().unwrap());
    let mut lines = BufReader::new(tool.0.stdout.take().unwrap()).lines();
    let said: Vec<String> =
        lines.by_ref().map(|line| line.unwrap()).take_while(|line| !line.contains("reshard")).collect();
    let said = said.join("\n");
    assert!(said.contains(&format!("127.0.0.1:{port}  primary\n  127.0.0.1:{}  primary", port + 1)), "{said}");

    let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).unwrap();
    let mut connection = client.get_connection().unwrap();
    let info: String = redis::cmd("CLUSTER").arg("INFO").query(&mut connection).unwrap();
    assert!(info.contains("cluster_state:ok") && info.contains(&format!("cluster_slots_ok:{SLOTS}")), "{info}");
    for (setting, expected) in [("tenure.window-seconds", "7"), ("maxmemory", "8388608")] {
        let found: Vec<String> = redis::cmd("CONFIG").arg("GET").arg(setting).query(&mut connection).unwrap();
        assert_eq!(found[1], expected, "{setting}");
    }

    let pid = tool.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let status = tool.0.wait().unwrap();
    let mut errors = String::new();
    tool.0.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert!(status.success() && errors.is_empty(), "{status}: {errors}");
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
}

#[test]
fn what_is_no_setting_is_named() {
    for (arguments, code, expected) in [
        ("-- window-seconds 5", 1, "'window-seconds' is no setting"),
        ("--primaries 0", 2, "--primaries"),
        ("--memory much", 2, "much"),
    ] {
        let words = arguments.split(' ');
        let output = Command::new(env!("CARGO_BIN_EXE_tenure")).arg("cluster").args(words).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(code) && errors.contains(expected), "{arguments}: {errors}");
    }
}
