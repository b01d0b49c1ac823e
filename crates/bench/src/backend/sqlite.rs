//! SQLite as the backend: one file with a table of 1 KB rows, read by primary key through a prepared statement.
//!
//! The database runs inside the client, so a fetch costs a few µs from the page cache; an additional delay stands for a
//! network. Needs no installed package.

use std::time::{Duration, Instant};

use anyhow::Context;
use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;

use super::{Backend, fit, row_of};
use crate::placement::wait_until;

/// Bytes per row's payload.
const ROW_BYTES: u64 = 1000;

/// A database file in a temporary folder; dropping it deletes the folder.
#[derive(Debug)]
pub struct SqliteFile {
    folder: TempDir,
    n_rows: u64,
}

impl SqliteFile {
    /// Makes a file with `n_rows` rows, about 2 s per million.
    ///
    /// # Errors
    /// When the folder for temporary files cannot hold it: 1.1 KB per row.
    pub fn create(n_rows: u64) -> anyhow::Result<SqliteFile> {
        let folder = tempfile::Builder::new().prefix("tenure-sqlite-").tempdir()?;
        let file = SqliteFile { folder, n_rows };
        let fill = || -> rusqlite::Result<()> {
            let database = Connection::open(file.path())?;
            // Nobody needs this file after a crash.
            database.pragma_update(None, "journal_mode", "OFF")?;
            database.pragma_update(None, "synchronous", "OFF")?;
            database.execute_batch("CREATE TABLE record (id INTEGER PRIMARY KEY, payload BLOB NOT NULL)")?;
            let insert = "WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < ?1) \
                          INSERT INTO record SELECT id, randomblob(?2) FROM n";
            database.execute(insert, [n_rows as i64, ROW_BYTES as i64])?;
            database.close().map_err(|(_, error)| error)
        };
        fill().with_context(|| format!("SQLite cannot write {}", file.path().display()))?;
        Ok(file)
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("records.sqlite")
    }

    /// A connection whose fetches take `delay_us` µs longer than the query.
    ///
    /// # Errors
    /// When SQLite does not open the file.
    pub fn connect(&self, delay_us: f64) -> anyhow::Result<Box<dyn Backend>> {
        // One connection is used by one thread at a time, so SQLite's own locks aren't needed.
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let database = Connection::open_with_flags(self.path(), flags).context("SQLite does not open its file")?;
        let delay = Duration::from_nanos((delay_us * 1000.0) as u64);
        Ok(Box::new(Sqlite { database, n_rows: self.n_rows, delay }))
    }
}

struct Sqlite {
    database: Connection,
    n_rows: u64,
    delay: Duration,
}

impl Backend for Sqlite {
    fn fetch(&mut self, key: &[u8], value_bytes: usize, value: &mut Vec<u8>) -> anyhow::Result<()> {
        let id = row_of(key, self.n_rows) as i64;
        let mut select = self.database.prepare_cached("SELECT payload FROM record WHERE id = ?1")?;
        select
            .query_row([id], |row| {
                fit(row.get_ref(0)?.as_blob()?, value_bytes, value);
                Ok(())
            })
            .with_context(|| format!("SQLite has no row {id}"))?;
        if !self.delay.is_zero() {
            wait_until(Instant::now() + self.delay);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_row_and_always_the_same() {
        let file = SqliteFile::create(50).unwrap();
        let (mut one, mut other) = (file.connect(0.0).unwrap(), file.connect(200.0).unwrap());
        let (mut first, mut again) = (Vec::new(), Vec::new());
        for i in 0..200 {
            let key = format!("user{i}");
            one.fetch(key.as_bytes(), 1500, &mut first).unwrap();
            other.fetch(key.as_bytes(), 1500, &mut again).unwrap();
            assert_eq!(first, again);
            assert_eq!(first.len(), 1500);
            assert_eq!(first[..500], first[1000..], "the row is repeated to the size");
        }
        let start = Instant::now();
        other.fetch(b"x", 1, &mut first).unwrap();
        assert!(start.elapsed() >= Duration::from_micros(200));
    }

    #[test]
    fn the_file_goes_with_the_value() {
        let file = SqliteFile::create(1).unwrap();
        let folder = file.folder.path().to_path_buf();
        assert!(folder.is_dir());
        drop(file);
        assert!(!folder.exists());
    }
}
