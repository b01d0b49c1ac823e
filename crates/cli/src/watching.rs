//! What the subcommands share that serve to browsers and scrapers: passwords from files, and where they listen.

use std::net::TcpListener;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::print;

/// The first line of a file.
///
/// # Errors
/// When it can't be read, or has nothing in its first line.
pub fn password(file: &Path) -> Result<String> {
    let text = std::fs::read_to_string(file).with_context(|| format!("{}: cannot be read", file.display()))?;
    let password = text.lines().next().unwrap_or("").trim_end();
    ensure!(!password.is_empty(), "{}: the first line is to be the password, and is empty", file.display());
    Ok(password.to_owned())
}

/// Prints the address to open: `http://ADDRESS/` and what comes behind it.
///
/// # Errors
/// When standard output can't be written.
pub fn say_where(listener: &TcpListener, path: &str, query: &str) -> Result<()> {
    let address = listener.local_addr().context("the listener has no address")?;
    print(&format!("http://{address}/{path}{query}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_the_first_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        std::fs::write(&file, "open sesame\r\nmore").unwrap();
        assert_eq!(password(&file).unwrap(), "open sesame");
        std::fs::write(&file, "\n").unwrap();
        assert!(password(&file).unwrap_err().to_string().contains("empty"));
        assert!(password(&folder.path().join("none")).unwrap_err().to_string().contains("cannot be read"));
    }
}
