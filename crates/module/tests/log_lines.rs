//! docs/log.md has every line that Tenure writes into the server's log, and no other.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Lines of source in which a line of the log is put together before it is written, and after the call's name.
const BEFORE: usize = 9;
const AFTER: usize = 2;

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, found),
            false if path.extension().is_some_and(|end| end == "rs") => found.push(path),
            false => {}
        }
    }
}

/// Texts in quotes on a line, `…` for what is put into them.
fn literals(line: &str) -> Vec<String> {
    let is_comment = line.trim_start().starts_with("//");
    let quoted = line.split('"').skip(1).step_by(2).filter(|_| !is_comment);
    quoted.map(without_arguments).collect()
}

fn without_arguments(text: &str) -> String {
    let mut plain = String::new();
    let mut depth = 0;
    for letter in text.chars() {
        match letter {
            '{' => {
                depth += 1;
                plain.push('…');
            }
            '}' => depth -= 1,
            _ if depth == 0 => plain.push(letter),
            _ => {}
        }
    }
    plain
}

/// What the page's lists begin with; a long line is broken there.
fn documented() -> BTreeSet<String> {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/log.md")).unwrap();
    let entries = page.split("\n- `").skip(1).filter_map(|entry| entry.split('`').next());
    entries.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn the_page_has_every_line_of_the_log_and_no_other() {
    let documented = documented();
    let mut written = BTreeSet::new();
    let mut files = Vec::new();
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    [own.join("src"), own.join("../host/src")].iter().for_each(|folder| sources(folder, &mut files));
    for file in &files {
        // A text over several lines is one.
        let text = fs::read_to_string(file).unwrap();
        let mut parts = text.split("\\\n");
        let first = parts.next().unwrap_or_default().to_owned();
        let text = parts.fold(first, |text, part| text + part.trim_start());
        let lines: Vec<&str> = text.lines().collect();
        for (i, _) in lines.iter().enumerate().filter(|(_, line)| line.contains("server.log(")) {
            let around = &lines[i.saturating_sub(BEFORE)..(i + AFTER).min(lines.len())];
            let candidates: Vec<String> = around.iter().flat_map(|line| literals(line)).collect();
            let is_known = candidates.iter().any(|candidate| documented.contains(candidate));
            assert!(is_known, "{}:{}: docs/log.md has none of {candidates:?}", file.display(), i + 1);
            written.extend(candidates);
        }
    }
    assert!(written.len() > 20, "{written:?}");
    for line in &documented {
        assert!(written.contains(line), "docs/log.md: nothing writes '{line}'");
    }
}
