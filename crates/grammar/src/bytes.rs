//! The bytes that saved grammars, series and models are made of.
//!
//! Everything is a varint of seven bits a byte, lowest first, but for fractions, which are eight bytes, little
//! endian. For `presagio-grammar` and `presagio-predict`; others see what those make of it.

/// Why bytes are not what was saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// How many bytes had been read.
    pub at: usize,
    /// What is wrong there.
    pub what: &'static str,
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let LoadError { at, what } = self;
        write!(
            f,
            "cannot load a model: {what}, at byte {at}; learn it anew"
        )
    }
}

impl std::error::Error for LoadError {}

/// What was read, or why it was not.
pub type Loaded<T> = Result<T, LoadError>;

/// Puts bytes one behind the other.
#[derive(Debug, Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// Writes a number.
    pub fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// Writes some numbers, but not how many.
    pub fn numbers<N: Into<u64>>(&mut self, numbers: impl IntoIterator<Item = N>) {
        numbers.into_iter().for_each(|n| self.number(n.into()));
    }

    /// Writes a number that may be between others.
    pub fn fraction(&mut self, fraction: f64) {
        self.0.extend(fraction.to_le_bytes());
    }

    /// Writes bytes, and how many, see [`Reader::nested`].
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend(bytes);
    }
}

/// Reads what a [`Writer`] wrote. Any bytes are read, or give an error: nothing is believed.
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Begins to read, behind so many bytes.
    pub fn new(bytes: &'a [u8], at: usize) -> Reader<'a> {
        let at = at.min(bytes.len());
        Reader { bytes, at }
    }

    /// An error at this place.
    pub fn wrong<T>(&self, what: &'static str) -> Loaded<T> {
        Err(LoadError { at: self.at, what })
    }

    /// An error at this place if something does not hold.
    pub fn require(&self, condition: bool, what: &'static str) -> Loaded<()> {
        if condition { Ok(()) } else { self.wrong(what) }
    }

    /// An error if not everything has been read.
    pub fn end(&self) -> Loaded<()> {
        self.require(self.rest().is_empty(), "there is more than a model")
    }

    /// What has not been read.
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// Reads a number.
    pub fn number(&mut self) -> Loaded<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let Some(&byte) = self.bytes.get(self.at) else {
                return self.wrong("the bytes end too early");
            };
            self.at += 1;
            let bits = u64::from(byte & 0x7f);
            self.require(bits << shift >> shift == bits, "a number is too large")?;
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        self.wrong("a number is too long")
    }

    /// Reads a number of 32 bits.
    pub fn small(&mut self) -> Loaded<u32> {
        match u32::try_from(self.number()?) {
            Ok(number) => Ok(number),
            Err(_) => self.wrong("a number is too large"),
        }
    }

    /// Reads how large something is, here or elsewhere.
    pub fn size(&mut self) -> Loaded<usize> {
        match usize::try_from(self.number()?) {
            Ok(number) => Ok(number),
            Err(_) => self.wrong("a number is too large"),
        }
    }

    /// Reads how many there are of something that takes a byte here at least.
    pub fn count(&mut self) -> Loaded<usize> {
        let count = self.size()?;
        let fits = count <= self.rest().len();
        self.require(fits, "a list is longer than the rest")?;
        Ok(count)
    }

    /// Reads 0 or 1.
    pub fn flag(&mut self) -> Loaded<bool> {
        let number = self.number()?;
        self.require(number <= 1, "neither yes nor no")?;
        Ok(number == 1)
    }

    /// Reads a fraction, of which there are no negative ones.
    pub fn fraction(&mut self) -> Loaded<f64> {
        let Some((bytes, _)) = self.rest().split_first_chunk() else {
            return self.wrong("the bytes end too early");
        };
        self.at += bytes.len();
        let fraction = f64::from_le_bytes(*bytes);
        let sound = fraction.is_finite() && fraction >= 0.0;
        self.require(sound, "not a positive number")?;
        Ok(fraction)
    }

    /// Reads something that was saved for itself; an error says where that is here.
    pub fn nested<T>(&mut self, load: impl FnOnce(&'a [u8]) -> Loaded<T>) -> Loaded<T> {
        let count = self.count()?;
        let start = self.at;
        self.at += count;
        let place = |error: LoadError| LoadError {
            at: start + error.at,
            ..error
        };
        load(&self.bytes[start..self.at]).map_err(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let mut out = Writer::default();
        out.numbers([0u64, 127, 128, u64::MAX]);
        out.fraction(0.25);
        out.bytes(&[1, 2]);
        let mut reader = Reader::new(&out.0, 0);
        let numbers = [(); 4].map(|()| reader.number().unwrap());
        assert_eq!(numbers, [0, 127, 128, u64::MAX]);
        assert_eq!(reader.fraction(), Ok(0.25));
        assert_eq!(reader.nested(|bytes| Ok(bytes.to_vec())), Ok(vec![1, 2]));
        assert_eq!(reader.end(), Ok(()));
    }

    #[test]
    fn an_error_says_where() {
        let too_long = [0xff; 10];
        let at = |result: Loaded<u64>| result.unwrap_err().at;
        assert_eq!(at(Reader::new(&too_long, 0).number()), 10);
        assert_eq!(at(Reader::new(&too_long, 5).number()), 10);
        assert_eq!(at(Reader::new(&[3, 1, 2], 0).nested(|_| Ok(0))), 1);
        let inner = |bytes| Reader::new(bytes, 0).number();
        assert_eq!(at(Reader::new(&[7, 1, 0x80], 1).nested(inner)), 3);
    }
}
