//! The bytes of a trace: from a file or standard input, unpacked on a thread of their own, cut into lines or records.
//!
//! What packs a trace (gzip, Zstandard or nothing) is told by its first bytes, never by its name. Constant memory:
//! four chunks on their way from the unpacking thread, and one buffer that holds the longest line.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use flate2::read::MultiGzDecoder;

/// Bytes per chunk.
const CHUNK_BYTES: usize = 1 << 18;
/// Chunks that may wait between the two threads.
const CHUNKS_WAITING: usize = 4;
/// A line longer than this is no trace.
const LINE_BYTES_MAX: usize = 1 << 24;

/// How packed traces begin that can't be unpacked here.
const NOT_UNPACKED: [(&[u8], &str); 4] =
    [(b"\xfd7zX", "xz"), (b"BZh", "bzip2"), (b"\x04\x22\x4d\x18", "lz4"), (b"PK\x03\x04", "zip")];

/// The unpacked bytes of one trace, line by line or record by record.
pub(super) struct Input {
    chunks: Receiver<io::Result<Vec<u8>>>,
    buffer: Vec<u8>,
    /// First byte of the buffer that has not been handed out.
    at: usize,
    ended: bool,
}

impl Input {
    /// Opens `path`; `-` is standard input.
    pub fn open(path: &Path) -> io::Result<Input> {
        if path == Path::new("-") {
            return Input::from_reader(io::stdin());
        }
        Input::from_reader(File::open(path)?)
    }

    /// Unpacks what `packed` gives.
    pub fn from_reader(packed: impl Read + Send + 'static) -> io::Result<Input> {
        let unpacked = unpack(packed)?;
        let (sender, chunks) = sync_channel(CHUNKS_WAITING);
        thread::Builder::new().name("trace-unpack".to_owned()).spawn(move || {
            let mut unpacked = unpacked;
            loop {
                let chunk = next_chunk(&mut unpacked);
                let last = !matches!(&chunk, Ok(bytes) if !bytes.is_empty());
                if sender.send(chunk).is_err() || last {
                    return;
                }
            }
        })?;
        Ok(Input { chunks, buffer: Vec::new(), at: 0, ended: false })
    }

    /// Appends one more chunk to the buffer; false at the end of the trace.
    fn fill(&mut self) -> io::Result<bool> {
        if self.ended {
            return Ok(false);
        }
        let chunk = self.chunks.recv().unwrap_or_else(|_| Ok(Vec::new()))?;
        self.ended = chunk.is_empty();
        self.buffer.drain(..self.at);
        self.at = 0;
        self.buffer.extend_from_slice(&chunk);
        Ok(!self.ended)
    }

    /// At least the first `n` bytes of what is left, or all of it where that is less; hands nothing out.
    pub fn peek(&mut self, n: usize) -> io::Result<&[u8]> {
        while self.buffer.len() - self.at < n && self.fill()? {}
        Ok(&self.buffer[self.at..])
    }

    /// The next line without its end (`\n` or `\r\n`); `None` at the end.
    pub fn next_line(&mut self) -> io::Result<Option<&[u8]>> {
        let mut looked_at = 0;
        let (end, next) = loop {
            match memchr::memchr(b'\n', &self.buffer[self.at + looked_at..]) {
                Some(i) => break (self.at + looked_at + i, self.at + looked_at + i + 1),
                None => looked_at = self.buffer.len() - self.at,
            }
            if looked_at > LINE_BYTES_MAX {
                return Err(io::Error::other(format!("line is longer than {LINE_BYTES_MAX} bytes")));
            }
            if !self.fill()? {
                break (self.buffer.len(), self.buffer.len());
            }
        };
        if self.at == next {
            return Ok(None);
        }
        let line = &self.buffer[self.at..end];
        self.at = next;
        Ok(Some(line.strip_suffix(b"\r").unwrap_or(line)))
    }

    /// The next `n` bytes, fewer at the end of a trace that breaks off; `None` at the end.
    pub fn next_record(&mut self, n: usize) -> io::Result<Option<&[u8]>> {
        while self.buffer.len() - self.at < n && self.fill()? {}
        if self.at == self.buffer.len() {
            return Ok(None);
        }
        let end = (self.at + n).min(self.buffer.len());
        let record = &self.buffer[self.at..end];
        self.at = end;
        Ok(Some(record))
    }
}

/// Reads until a chunk is full or the end is reached.
fn next_chunk(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut chunk = Vec::with_capacity(CHUNK_BYTES);
    from.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut chunk)?;
    Ok(chunk)
}

fn unpack(mut packed: impl Read + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
    let mut magic = Vec::new();
    packed.by_ref().take(4).read_to_end(&mut magic)?;
    if let Some((_, name)) = NOT_UNPACKED.iter().find(|(begins, _)| magic.starts_with(begins)) {
        return Err(io::Error::other(format!("it is packed with {name}; read are gzip, zstd and plain traces")));
    }
    let whole = io::Cursor::new(magic.clone()).chain(packed);
    Ok(match magic.as_slice() {
        [0x1f, 0x8b, ..] => Box::new(MultiGzDecoder::new(io::BufReader::with_capacity(CHUNK_BYTES, whole))),
        [0x28, 0xb5, 0x2f, 0xfd] => Box::new(zstd::Decoder::new(whole)?),
        _ => Box::new(whole),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn lines(packed: Vec<u8>) -> Vec<String> {
        let mut input = Input::from_reader(io::Cursor::new(packed)).unwrap();
        let mut lines = Vec::new();
        while let Some(line) = input.next_line().unwrap() {
            lines.push(String::from_utf8(line.to_vec()).unwrap());
        }
        lines
    }

    #[test]
    fn lines_end_in_any_of_three_ways() {
        assert_eq!(lines(b"a\r\n\nbc".to_vec()), ["a", "", "bc"]);
        assert_eq!(lines(b"a\n".to_vec()), ["a"]);
        assert_eq!(lines(Vec::new()), Vec::<String>::new());
    }

    #[test]
    fn packed_traces_are_told_by_their_content_and_chunks_do_not_cut_lines() {
        let text: String = (0..200_000).map(|i| format!("line {i}\n")).collect();
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(text.as_bytes()).unwrap();
        let zst = zstd::encode_all(text.as_bytes(), 1).unwrap();
        for packed in [gz.finish().unwrap(), zst, text.clone().into_bytes()] {
            let got = lines(packed);
            assert_eq!(got.len(), 200_000);
            assert!(got.iter().enumerate().all(|(i, line)| *line == format!("line {i}")));
        }
    }

    #[test]
    fn what_cannot_be_unpacked_is_named() {
        let error = Input::from_reader(io::Cursor::new(b"\xfd7zXZ\x00\x00\x04".to_vec())).err().unwrap();
        assert!(error.to_string().contains("packed with xz"), "{error}");
    }

    #[test]
    fn a_broken_gzip_is_an_error() {
        let mut input = Input::from_reader(io::Cursor::new(vec![0x1f, 0x8b, 8, 0, 1, 2, 3, 4, 5, 6, 7])).unwrap();
        assert!(input.next_line().is_err());
    }
}
