//! `tenure top` in a real terminal: tmux of 80 by 24.

use std::path::Path;
use std::process::{Command, Output};

use tenure_servers::{Server, wait_for};

use crate::load::{DEADLINE, Load, server};
use crate::programs::installed;

/// A terminal of its own server, which ends with the value.
struct Terminal {
    tmux: std::path::PathBuf,
    socket: std::path::PathBuf,
}

impl Terminal {
    fn start(tmux: &Path, folder: &Path, server: &Server) -> Terminal {
        let terminal = Terminal { tmux: tmux.to_owned(), socket: folder.join("tmux") };
        let command = format!("{} top 127.0.0.1:{}", env!("CARGO_BIN_EXE_tenure"), server.port());
        let output =
            terminal.tmux(&["new-session", "-d", "-x", "80", "-y", "24", "env", "NO_COLOR=1", "sh", "-c", &command]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(&self.tmux);
        // A locale that knows more than ASCII, and nobody's own settings.
        command.arg("-u").arg("-S").arg(&self.socket).args(["-f", "/dev/null"]).env("LC_ALL", "C.UTF-8");
        command.args(arguments).output().unwrap()
    }

    fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    /// What stands there; with `-e` the codes for colours and the like.
    fn screen(&self, more: &[&str]) -> String {
        String::from_utf8_lossy(&self.tmux(&[&["capture-pane", "-p"], more].concat()).stdout).into_owned()
    }

    #[track_caller]
    fn wait(&self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        let waited = wait_for(DEADLINE, what, || is_there(&self.screen(&[])));
        waited.unwrap_or_else(|why| panic!("{why}; the screen says:\n{}", self.screen(&[])));
        self.screen(&[])
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

#[test]
fn top_is_read_and_operated_in_a_terminal() {
    let test = "top_is_read_and_operated_in_a_terminal";
    let Some(tmux) = installed(test, "tmux") else { return };
    let Some(server) = server(test) else { return };
    let folder = tempfile::tempdir().unwrap();
    let load = Load::on(&server);
    let terminal = Terminal::start(&tmux, folder.path(), &server);
    let is_row = |line: &str, name: &str| line.starts_with(name);
    let screen = terminal.wait("a curve and rates", |screen| {
        screen.contains("twice") && screen.contains("ms") && screen.contains("EVICT/s")
    });
    for name in ["shop", "session", "report", "other"] {
        assert!(screen.lines().any(|line| is_row(line, name)), "{name}:\n{screen}");
    }
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    assert!(screen.contains("eviction ready") && screen.contains("of 16.0M") && screen.contains("? help"), "{screen}");
    // Reversed and underlined there may be, colours not.
    let codes = terminal.screen(&["-e"]);
    let is_coloured = |n: u8| codes.contains(&format!("\u{1b}[3{n}")) || codes.contains(&format!("\u{1b}[4{n}"));
    assert!(!(0..=8).any(is_coloured), "colours: {codes:?}");

    terminal.press("Right");
    terminal.wait("another order", |screen| screen.contains("(EVICT/s"));
    for _ in 0..8 {
        terminal.press("Left");
    }
    terminal.wait("the order of names", |screen| screen.contains("(TENANT") && first_row(screen) == "other");
    terminal.press("r");
    terminal.wait("the order turned around", |screen| first_row(screen) == "shop");
    terminal.press("End");
    terminal.wait("the last to be selected", |screen| screen.contains("other: miss ratio by memory"));
    terminal.press("Up");
    terminal.wait("the one before", |screen| screen.contains("report: miss ratio by memory"));
    terminal.press("p");
    terminal.wait("a pause", |screen| screen.contains("PAUSED"));
    terminal.press("?");
    terminal.wait("the help", |screen| screen.contains("Keys and words"));
    terminal.press("x");
    terminal.press("p");
    drop(load);
    terminal.wait("a server that is idle", |screen| !screen.contains("PAUSED") && screen.contains("reads 0/s"));
    terminal.press("q");
    let has_ended = || !terminal.tmux(&["has-session"]).status.success();
    wait_for(DEADLINE, "the end", has_ended).unwrap();
}

/// The first word below the head of the table.
fn first_row(screen: &str) -> &str {
    let rows = screen.lines().skip_while(|line| !line.starts_with("TENANT")).nth(1);
    rows.and_then(|line| line.split_whitespace().next()).unwrap_or("")
}

#[test]
fn top_needs_a_terminal() {
    let output = Command::new(env!("CARGO_BIN_EXE_tenure")).args(["top", "127.0.0.1:1"]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && error.contains("tenure status"), "{error}");
}
