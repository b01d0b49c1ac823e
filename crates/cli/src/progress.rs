//! How far a trace has been read, and how long the rest will take: on standard error, where that is a terminal.
//!
//! Progress is told by the bytes of the file as it lies on disk, packed or not, so no trace has to be counted first.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use tenure_sim::trace::{TraceOptions, TraceReader};

/// A bar that follows a trace's reader. Hidden where standard error is no terminal.
pub struct Progress {
    bar: ProgressBar,
    bytes_read: Arc<AtomicU64>,
}

impl Progress {
    /// Opens the trace at `path` (`-` is standard input) and a bar that says what is being done with it.
    ///
    /// # Errors
    /// What the reader says.
    pub fn open(path: &Path, options: TraceOptions, what: &'static str) -> Result<(TraceReader, Progress)> {
        let bytes_read = Arc::new(AtomicU64::new(0));
        if path == Path::new("-") {
            let bar = ProgressBar::new_spinner().with_style(style("{spinner} {msg} ({elapsed})")).with_message(what);
            return Ok((TraceReader::open(path, options)?, Progress { bar, bytes_read }));
        }
        let file = File::open(path).with_context(|| path.display().to_string())?;
        let length_bytes = file.metadata().map_or(0, |metadata| metadata.len());
        let bar = ProgressBar::new(length_bytes)
            .with_style(style("{msg} {wide_bar} {percent} % ({eta} left)"))
            .with_message(what);
        let counting = Counting { file, bytes_read: Arc::clone(&bytes_read) };
        let reader = TraceReader::from_reader(path.display().to_string(), counting, options)?;
        Ok((reader, Progress { bar, bytes_read }))
    }

    /// Brings the bar up to what has been read.
    pub fn update(&self) {
        self.bar.set_position(self.bytes_read.load(Ordering::Relaxed));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

struct Counting {
    file: File,
    bytes_read: Arc<AtomicU64>,
}

impl Read for Counting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(buffer)?;
        self.bytes_read.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}
