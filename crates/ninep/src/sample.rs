//! Values for the tests: any field can be made out of random bytes.

/// Random bytes, used up from the front; zeros behind their end.
pub struct Source<'a> {
    rest: &'a [u8],
}

impl<'a> Source<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Source<'a> {
        Source { rest: bytes }
    }

    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(count.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    pub(crate) fn number(&mut self) -> u64 {
        let mut bytes = [0; 8];
        let taken = self.take(8);
        bytes[..taken.len()].copy_from_slice(taken);
        u64::from_le_bytes(bytes)
    }

    /// Up to 255 bytes.
    pub(crate) fn bytes(&mut self) -> &'a [u8] {
        let count = self.number() as u8;
        self.take(count.into())
    }

    pub(crate) fn handle(&mut self) -> &'a [u8] {
        match self.bytes() {
            [] => b"h",
            bytes => bytes,
        }
    }

    pub(crate) fn text(&mut self) -> &'a [u8] {
        let bytes = self.bytes();
        let end = bytes.iter().position(|&byte| byte == 0);
        &bytes[..end.unwrap_or(bytes.len())]
    }

    pub(crate) fn name(&mut self) -> &'a [u8] {
        let bytes = self.text();
        let end = bytes.iter().position(|&byte| byte == b'/');
        match &bytes[..end.unwrap_or(bytes.len())] {
            b"" | b"." | b".." => b"name",
            name => name,
        }
    }
}
