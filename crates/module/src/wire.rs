//! How what servers tell each other is written: numbers in little-endian order, texts behind their length. What is cut
//! or odd reads as `None`, and the whole message is dropped.

/// Writes a message's body.
#[derive(Debug, Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// Adds a number.
    pub fn u64(&mut self, n: u64) -> &mut Self {
        self.0.extend_from_slice(&n.to_le_bytes());
        self
    }

    /// Adds a number.
    pub fn f64(&mut self, x: f64) -> &mut Self {
        self.u64(x.to_bits())
    }

    /// Adds a number.
    pub fn u32(&mut self, n: u32) -> &mut Self {
        self.0.extend_from_slice(&n.to_le_bytes());
        self
    }

    /// Adds a text of at most 65535 bytes; what is longer is cut.
    pub fn text(&mut self, text: &str) -> &mut Self {
        let bytes = &text.as_bytes()[..text.len().min(usize::from(u16::MAX))];
        self.0.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
        self.0.extend_from_slice(bytes);
        self
    }
}

/// Reads one.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// The next `n` bytes.
    pub fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }

    /// The next number.
    pub fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(8)?.try_into().ok()?))
    }

    /// The next number.
    pub fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(4)?.try_into().ok()?))
    }

    /// The next number that is a count of things that follow, each of at least `bytes`: more than there is room for
    /// is none.
    pub fn count(&mut self, bytes: usize) -> Option<usize> {
        let n = self.u64()?;
        (n <= (self.0.len() / bytes.max(1)) as u64).then_some(n as usize)
    }

    /// The next number; one that is not finite reads as none.
    pub fn f64(&mut self) -> Option<f64> {
        Some(f64::from_bits(self.u64()?)).filter(|x| x.is_finite())
    }

    /// The next text.
    pub fn text(&mut self) -> Option<&'a str> {
        let length = u16::from_le_bytes(self.bytes(2)?.try_into().ok()?);
        std::str::from_utf8(self.bytes(usize::from(length))?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_cut_is_none() {
        let mut writer = Writer::default();
        writer.u64(7).f64(-1.5).text("täglich").u64(2).u64(0);
        let mut reader = Reader(&writer.0);
        assert_eq!((reader.u64(), reader.f64(), reader.text()), (Some(7), Some(-1.5), Some("täglich")));
        assert_eq!(reader.count(4), Some(2));
        for length in 0..writer.0.len() {
            let mut reader = Reader(&writer.0[..length]);
            let whole = reader.u64().and(reader.f64()).and(reader.text()).and(reader.u64()).and(reader.u64());
            assert_eq!(whole, None, "{length}");
        }
    }

    #[test]
    fn counts_and_numbers_that_cannot_be_are_none() {
        let mut writer = Writer::default();
        writer.u64(1 << 40).f64(f64::NAN);
        let mut reader = Reader(&writer.0);
        assert_eq!((reader.count(1), reader.f64()), (None, None));
    }
}
