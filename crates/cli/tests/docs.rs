//! README and docs against the tool and the tree: each command of the tool that a page names, with its options; each
//! default of a setting; each source file; and that the first pages stay short.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A page names a command of the tool by a line `tenure COMMAND --option …`, or in backticks.
#[test]
fn commands_and_options_of_the_tool_are_there() {
    let mut helps: BTreeMap<String, Option<String>> = BTreeMap::new();
    let (mut wrong, mut n_seen) = (Vec::new(), 0);
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for line in commands(&text) {
            let mut words = line.split_whitespace().skip(1);
            let Some(name) = words.next().filter(|word| word.chars().all(|c| c.is_ascii_lowercase())) else { continue };
            let second = words.clone().next().filter(|_| name == "replies").unwrap_or_default();
            let command = format!("{name} {second}").trim_end().to_owned();
            let help = helps.entry(command.clone()).or_insert_with(|| help_of(&command));
            n_seen += 1;
            let Some(help) = help else {
                wrong.push(format!("{}: there is no tenure {command}", page.display()));
                continue;
            };
            for word in words.filter(|word| word.starts_with("--")) {
                let option = word.split('=').next().unwrap_or(word).trim_end_matches([',', '.', ';', ':', ']', ')']);
                let is_there = help.split([' ', ',', '=', '[', '\n']).any(|known| known == option);
                if option.len() > 2 && !is_there {
                    wrong.push(format!("{}: tenure {command} has no {option}", page.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(n_seen > 40, "only {n_seen} commands were found: are they looked for where they are?");
}

/// `tenure.NAME` (VALUE and (`tenure.NAME` VALUE) are how a page names a default.
#[test]
fn defaults_are_those_of_the_settings() {
    let settings = fs::read_to_string(root().join("docs/settings.md")).unwrap();
    let default = |name: &str| {
        let section = settings.split(&format!("## `{name}`\n")).nth(1)?;
        Some(section.split("Default: ").nth(1)?.split(['.', ' ']).next()?.to_owned())
    };
    let (mut wrong, mut n_seen) = (Vec::new(), 0);
    for page in pages().into_iter().filter(|page| !page.ends_with("settings.md")) {
        let text = fs::read_to_string(&page).unwrap().replace('\n', " ");
        for (at, _) in text.match_indices("`tenure.") {
            let Some((name, rest)) = text[at + 1..].split_once('`') else { continue };
            let opened = text[..at].ends_with('(');
            let value: String =
                rest.trim_start_matches([' ', '(']).chars().take_while(|c| c.is_ascii_digit()).collect();
            let is_default = if opened { rest.starts_with(' ') } else { rest.starts_with(" (") };
            if !is_default || value.is_empty() {
                continue;
            }
            n_seen += 1;
            if default(name).as_deref() != Some(value.as_str()) {
                wrong.push(format!("{}: {name} is {:?}, not {value}", page.display(), default(name)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(n_seen >= 2, "only {n_seen} defaults were found");
}

/// Whatever in backticks ends with `.rs`, or is a folder of sources.
#[test]
fn source_files_that_pages_name_are_there() {
    let mut paths = Vec::new();
    ["crates", "scripts", "fuzz"].iter().for_each(|folder| walk(&root().join(folder), &mut paths));
    let paths: Vec<String> = paths.iter().map(|path| format!("/{}", path.display())).collect();
    let (mut wrong, mut n_seen) = (Vec::new(), 0);
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for named in text.split('`').skip(1).step_by(2).filter(|name| name.ends_with(".rs") && !name.contains(' ')) {
            n_seen += 1;
            if !paths.iter().any(|path| path.ends_with(&format!("/{named}"))) {
                wrong.push(format!("{}: there is no {named}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(n_seen > 60, "only {n_seen} files were found");
}

#[test]
fn first_pages_are_short() {
    for (page, lines) in [("README.md", 80), ("ARCHITECTURE.md", 150)] {
        let text = fs::read_to_string(root().join(page)).unwrap();
        assert!(text.lines().count() <= lines, "{page} has {} lines; {lines} are allowed", text.lines().count());
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root().join(name)).to_vec();
    for folder in ["docs", "docs/decisions", "docs/results"] {
        pages.extend(fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path()));
    }
    pages.retain(|path| path.extension().is_some_and(|kind| kind == "md"));
    pages.sort();
    pages
}

/// Commands of the tool in a text: of code lines, and of code within a line.
fn commands(text: &str) -> Vec<&str> {
    let lines = text.lines().filter(|line| line.starts_with("    "));
    let lines = lines.map(|line| line.trim().trim_start_matches("$ ").trim_start_matches("target/release/"));
    let within = text.split('`').skip(1).step_by(2);
    lines.chain(within).filter(|code| code.starts_with("tenure ")).collect()
}

/// What `tenure COMMAND --help` says; `None` where there is none.
fn help_of(command: &str) -> Option<String> {
    let tool = Command::new(env!("CARGO_BIN_EXE_tenure")).args(command.split(' ')).arg("--help").output().unwrap();
    tool.status.success().then(|| String::from_utf8(tool.stdout).unwrap())
}

fn walk(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && entry.file_name() != "target" => walk(&entry.path(), paths),
            _ => paths.push(entry.path()),
        }
    }
}
