//! Programs of the distribution, and the tool itself, as children that end with the test.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A child that is killed with its value.
pub struct Program(pub Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where a program is; `None`, and a word why the test is skipped, where it is not installed.
pub fn installed(test: &str, name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file());
    if found.is_none() {
        println!("SKIPPED: {test}: {name} is not installed");
    }
    found
}

/// Starts `tenure` and waits for the address that it prints first, `http://ADDRESS/PATH`.
pub fn serving(arguments: &[&str]) -> (Program, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    let mut child = command.args(arguments).stdout(Stdio::piped()).spawn().expect("the tool starts");
    let mut line = String::new();
    let output = child.stdout.take().expect("it is piped");
    let program = Program(child);
    BufReader::new(output).read_line(&mut line).expect("the tool says where it listens");
    (program, line.trim_end().to_owned())
}

/// `ADDRESS` of `http://ADDRESS/PATH`.
pub fn address_of(url: &str) -> String {
    let rest = url.strip_prefix("http://").unwrap_or_else(|| panic!("'{url}' is no address"));
    rest.split('/').next().unwrap_or(rest).to_owned()
}
