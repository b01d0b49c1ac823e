//! The pages of docs/results: what stands between `<!-- NAME -->` and `<!-- /NAME -->` is written from
//! docs/results/NAME.json.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::record::{FOLDER, Record};
use crate::set::SET;
use crate::tables::{self, OLD};

/// Writes all tables anew.
///
/// # Errors
/// A page or record that can't be read or written, or marks that don't pair.
pub fn write_all() -> anyhow::Result<()> {
    for (path, old, new) in rendered()? {
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
    let pages = rendered()?.into_iter().filter(|(_, old, new)| without_marks(old) != without_marks(new));
    Ok(pages
        .map(|(path, _, _)| {
            format!("{}: its tables are not those of the JSON: scripts/reproduce --render", path.display())
        })
        .collect())
}

/// A page without what goes by the commits since, which changes with each of them.
fn without_marks(page: &str) -> Vec<&str> {
    page.lines().filter(|line| !line.starts_with(OLD) && !line.is_empty()).collect()
}

/// Each page: path, text as it is, text as it should be.
fn rendered() -> anyhow::Result<Vec<(PathBuf, String, String)>> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(FOLDER).context("run this in the root of the working copy: there is no docs/results")? {
        let path = entry?.path();
        if path.extension().is_some_and(|kind| kind == "md") {
            let old = fs::read_to_string(&path)?;
            let new = render(&path, &old)?;
            pages.push((path, old, new));
        }
    }
    pages.sort();
    Ok(pages)
}

/// A page with all its tables anew.
fn render(path: &Path, page: &str) -> anyhow::Result<String> {
    let mut text = page.to_owned();
    for one in SET {
        let (begin, end) = (format!("<!-- {} -->\n", one.name), format!("<!-- /{} -->", one.name));
        let Some(from) = text.find(&begin).map(|at| at + begin.len()) else { continue };
        let Some(to) = text[from..].find(&end).map(|length| from + length) else {
            bail!("{}: there is no {end} behind {}", path.display(), begin.trim());
        };
        let tables = match Record::read(one.name).with_context(|| format!("{FOLDER}/{}.json", one.name))? {
            Some(record) => tables::markdown(one, &record).with_context(|| format!("{FOLDER}/{}.json", one.name))?,
            None => format!("Not measured yet: `scripts/reproduce {}`.\n", one.name),
        };
        text.replace_range(from..to, &format!("\n{tables}\n"));
    }
    Ok(text)
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
