//! What README and docs name is there: commands, settings and fields, as the newest server of this machine tells them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use redis::Value;
use tenure_servers::Server;

use crate::harness::{oldest_and_newest, send, start, with_module};

#[test]
fn commands_and_settings_that_docs_name_are_there() {
    let server = newest();
    let mut connection = server.connection().unwrap();
    let told: Vec<String> = send(&mut connection, "CONFIG GET tenure.*");
    let settings: BTreeSet<&str> = told.iter().step_by(2).map(String::as_str).collect();
    let mut wrong = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for name in words(&text, "tenure.", |c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-') {
            if !settings.contains(name.as_str()) {
                wrong.push(format!("{}: there is no setting {name}", page.display()));
            }
        }
        for name in words(&text, "TENURE.", |c| c.is_ascii_uppercase()) {
            let described: Vec<Value> = send(&mut connection, &format!("COMMAND INFO {name}"));
            if described == [Value::Nil] {
                wrong.push(format!("{}: there is no command {name}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The page of metrics has each field that `INFO tenure` has, and no other.
#[test]
fn docs_have_each_field() {
    let server = newest();
    let own = |name: &&String| !name.starts_with("tenure_tenant_") && !name.starts_with("tenure_partition_");
    let told = server.info("tenure").unwrap();
    let told: BTreeSet<String> = told.keys().filter(own).cloned().collect();
    let page = fs::read_to_string(root().join("docs/metrics.md")).unwrap();
    let listed: BTreeSet<String> =
        words(&page, "tenure_", |c| c.is_ascii_lowercase() || c == '_').into_iter().collect();
    let missing: Vec<&String> = told.difference(&listed).collect();
    assert!(missing.is_empty(), "docs/metrics.md lacks {missing:?}");
    // Those of each tenant and of each partition are told by a pattern.
    let gone: Vec<&String> = listed.difference(&told).filter(|name| !name.ends_with('_')).collect();
    assert!(gone.is_empty(), "INFO tenure lacks {gone:?}, which docs/metrics.md has");
}

/// No line of a page is wider than 120 columns, but for pictures; and each page that one leads to is there.
#[test]
fn pages_are_narrow_and_lead_somewhere() {
    let mut wrong = Vec::new();
    for page in pages().into_iter().chain(["ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root().join(name))) {
        let text = fs::read_to_string(&page).unwrap();
        for (i, line) in text.lines().enumerate() {
            if line.chars().count() > 120 && !line.starts_with(['!', '<']) {
                wrong.push(format!("{}:{}: {} columns", page.display(), i + 1, line.chars().count()));
            }
        }
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = target.split('#').next().unwrap_or_default();
            if !path.is_empty() && !path.contains("://") && !page.parent().unwrap().join(path).exists() {
                wrong.push(format!("{}: leads to {path}, which isn't there", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn newest() -> Server {
    start(oldest_and_newest().last().expect("a server"), &with_module())
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// README and the pages of docs that say what there is.
fn pages() -> Vec<PathBuf> {
    let files = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|kind| kind == "md")).collect();
    pages.push(root().join("README.md"));
    pages.sort();
    pages
}

/// The words of a text that begin so and go on with such letters; not the ends of longer words, and not beginnings
/// alone.
fn words(text: &str, beginning: &str, goes_on: impl Fn(char) -> bool + Copy) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices(beginning) {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || "/-_.+".contains(c)) {
            continue;
        }
        let rest: String = text[at + beginning.len()..].chars().take_while(|&c| goes_on(c)).collect();
        if !rest.is_empty() {
            found.insert(format!("{beginning}{}", rest.trim_end_matches('-')));
        }
    }
    found
}
