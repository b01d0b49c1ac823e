//! The lines of the server's configuration files, those that it includes too: what the server refuses without a word
//! of where it stands is named by them.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::{fs, ptr};

/// Files that include each other end here; the server itself runs out of stack.
const DEPTH_MAX: usize = 16;

/// The first word of a line, in lower case, and where it stands.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub file: PathBuf,
    /// From 1.
    pub number: usize,
    pub name: String,
}

/// All lines of `file` and of what it includes, in the order in which the server reads them. What can't be read has
/// none: the server has read it before, or has ended.
pub(super) fn lines(file: &Path) -> Vec<Line> {
    let mut lines = Vec::new();
    add_lines(file, 0, &mut lines);
    lines
}

fn add_lines(file: &Path, depth: usize, lines: &mut Vec<Line>) {
    let Ok(text) = fs::read(file) else { return };
    for (i, line) in String::from_utf8_lossy(&text).lines().enumerate() {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default().to_ascii_lowercase();
        if name == "include" && depth < DEPTH_MAX {
            let pattern = words.next().unwrap_or_default().trim_matches(['"', '\'']);
            matches(pattern).iter().for_each(|included| add_lines(included, depth + 1, lines));
        }
        lines.push(Line { file: file.to_owned(), number: i + 1, name });
    }
}

/// The files that a pattern stands for, as the server expands it.
fn matches(pattern: &str) -> Vec<PathBuf> {
    let Ok(pattern) = CString::new(pattern) else { return Vec::new() };
    // SAFETY: all zero is an empty list, which `glob` fills.
    let mut found: libc::glob_t = unsafe { std::mem::zeroed() };
    // SAFETY: the pattern is a C string and the list is ours.
    let status = unsafe { libc::glob(pattern.as_ptr(), 0, None, ptr::from_mut(&mut found)) };
    let n = if status == 0 { found.gl_pathc } else { 0 };
    let path = |i| {
        // SAFETY: the list has `n` C strings, until it is freed.
        let path = unsafe { std::ffi::CStr::from_ptr(*found.gl_pathv.add(i)) };
        PathBuf::from(path.to_string_lossy().into_owned())
    };
    let paths = (0..n).map(path).collect();
    // SAFETY: it was filled by `glob`, whatever that found, and is freed once.
    unsafe { libc::globfree(ptr::from_mut(&mut found)) };
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_includes_is_read_where_the_line_stands() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("main"), format!("Port 1\ninclude \"{}\"\nlast 1", at("part-*").display())).unwrap();
        fs::write(at("part-a"), "# none\n\na.b 1\n").unwrap();
        fs::write(at("part-b"), format!("b.c 1\ninclude {}\n", at("main").display())).unwrap();
        let read = lines(&at("main"));
        let named: Vec<(&str, usize)> = read.iter().map(|line| (line.name.as_str(), line.number)).take(5).collect();
        assert_eq!(named, [("port", 1), ("#", 1), ("", 2), ("a.b", 3), ("b.c", 1)]);
        assert_eq!(read.last().map(|line| (line.name.as_str(), &line.file)), Some(("last", &at("main"))));
        assert!(lines(&at("none")).is_empty());
    }
}
