//! The pages of docs/results: what stands between `<!-- NAME -->` and `<!-- /NAME -->` is written from
//! docs/results/NAME.json. README and the pages of docs have tables of single figures from several of these, and
//! docs/figures pictures.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::record::{FOLDER, Record};
use crate::set::SET;
use crate::tables::{self, OLD};
use crate::{figures, papers};

/// Writes all tables anew.
///
/// # Errors
/// A page or record that can't be read or written, or marks that don't pair.
pub fn write_all() -> anyhow::Result<()> {
    for (path, old, new) in rendered()?.into_iter().chain(drawn()?) {
        if old != new {
            fs::write(&path, new).with_context(|| format!("{} can't be written", path.display()))?;
            eprintln!("wrote {}", path.display());
        }
    }
    Ok(())
}

/// The pages whose tables aren't what their JSON gives.
///
/// # Errors
/// As [`write_all`].
pub fn outdated() -> anyhow::Result<Vec<String>> {
    let pages = rendered()?.into_iter().chain(drawn()?);
    Ok(pages
        .filter(|(_, old, new)| without_marks(old) != without_marks(new))
        .map(|(path, _, _)| format!("{}: is not what the JSON gives: scripts/reproduce --render", path.display()))
        .collect())
}

/// A page without what goes by the commits since, which changes with each of them.
fn without_marks(page: &str) -> Vec<&str> {
    page.lines().filter(|line| !line.starts_with(OLD) && !line.is_empty()).collect()
}

/// Each page: path, text as it is, text as it should be.
fn rendered() -> anyhow::Result<Vec<(PathBuf, String, String)>> {
    let mut pages = Vec::new();
    let digests = papers::all()?;
    let mut paths = vec![PathBuf::from("README.md")];
    for folder in [FOLDER, "docs"] {
        let entries = fs::read_dir(folder).context("run this in the root of the working copy: there is no docs")?;
        for entry in entries {
            paths.push(entry?.path());
        }
    }
    for path in paths.into_iter().filter(|path| path.extension().is_some_and(|kind| kind == "md")) {
        let old = fs::read_to_string(&path)?;
        let mut new = render(&path, &old)?;
        for (name, table) in &digests {
            fill(&path, &mut new, name, || Ok(table.clone()))?;
        }
        pages.push((path, old, new));
    }
    pages.sort();
    Ok(pages)
}

/// Each picture: path, SVG as it is, SVG as it should be.
fn drawn() -> anyhow::Result<Vec<(PathBuf, String, String)>> {
    let pictures = figures::all()?.into_iter();
    Ok(pictures.map(|(path, new)| (path.clone(), fs::read_to_string(&path).unwrap_or_default(), new)).collect())
}

/// A page with all its tables anew.
fn render(path: &Path, page: &str) -> anyhow::Result<String> {
    let mut text = page.to_owned();
    for one in SET {
        fill(path, &mut text, one.name, || {
            let record = Record::read(one.name).with_context(|| format!("{FOLDER}/{}.json", one.name))?;
            match record {
                Some(record) => tables::markdown(one, &record).with_context(|| format!("{FOLDER}/{}.json", one.name)),
                None => Ok(format!("Not measured yet: `scripts/reproduce {}`.\n", one.name)),
            }
        })?;
    }
    Ok(text)
}

/// Puts a table between the marks of this name, where the page has them.
fn fill(path: &Path, text: &mut String, name: &str, table: impl Fn() -> anyhow::Result<String>) -> anyhow::Result<()> {
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->"));
    let Some(from) = text.find(&begin).map(|at| at + begin.len()) else { return Ok(()) };
    let Some(to) = text[from..].find(&end).map(|length| from + length) else {
        bail!("{}: there is no {end} behind {}", path.display(), begin.trim());
    };
    // README has few lines.
    let around = if path.ends_with("README.md") && path.parent() == Some(Path::new("")) { "" } else { "\n" };
    text.replace_range(from..to, &format!("{around}{}{around}", table()?));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_those_of_the_json() {
        std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).unwrap();
        assert_eq!(outdated().unwrap(), Vec::<String>::new());
    }
}
