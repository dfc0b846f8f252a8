//! Small text records of `name value` lines, closed by a hash of themselves.

/// The lines of a record, taken one by one.
pub struct Lines<'a> {
    rest: &'a str,
}

/// Adds the last line, which vouches for all before it.
pub fn seal(mut text: String) -> String {
    let check = hash(text.as_bytes());
    text.push_str(&format!("check {check:016x}\n"));
    text
}

impl<'a> Lines<'a> {
    /// The lines of a sealed record without its seal; `None` if that does not hold.
    pub fn sealed(text: &'a str) -> Option<Lines<'a>> {
        let end = text.rfind("check ")?;
        let (rest, _) = text.split_at(end);
        (seal(rest.to_owned()) == text).then_some(Lines { rest })
    }

    /// The value of the next line, if it has that name.
    pub fn field(&mut self, name: &str) -> Option<&'a str> {
        let (line, rest) = self.rest.split_once('\n')?;
        let value = line.strip_prefix(name)?.strip_prefix(' ')?;
        self.rest = rest;
        Some(value)
    }

    /// The next line, which has to be this one.
    pub fn exactly(&mut self, line: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(line)?.strip_prefix('\n')?;
        Some(())
    }

    /// A decimal value.
    pub fn number(&mut self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }

    /// A value of 128 bits in hexadecimal digits.
    pub fn hex(&mut self, name: &str) -> Option<u128> {
        u128::from_str_radix(self.field(name)?, 16).ok()
    }

    /// Whether no line is left.
    pub fn end(&self) -> bool {
        self.rest.is_empty()
    }
}

/// FNV-1a: against accidents, not against attackers.
pub fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
