//! Sizes as people write them: `32KiB`, `4M`, `1GB`, `4096`.

use std::fmt;
use std::str::FromStr;

/// A number of bytes, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

/// Units by their lower-case name. One letter means the binary unit, as everywhere in storage tools.
const UNITS: [(&str, u64); 14] = [
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("kib", 1 << 10),
    ("kb", 1_000),
    ("m", 1 << 20),
    ("mib", 1 << 20),
    ("mb", 1_000_000),
    ("g", 1 << 30),
    ("gib", 1 << 30),
    ("gb", 1_000_000_000),
    ("t", 1 << 40),
    ("tib", 1 << 40),
    ("tb", 1_000_000_000_000),
];

/// Why a size was not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SizeError {
    /// It does not begin with a whole number.
    NoNumber,
    /// What follows the number is no unit.
    Unit(String),
    /// Nothing can be done with zero bytes.
    Zero,
    /// It does not fit in 64 bits.
    TooLarge,
}

impl std::error::Error for SizeError {}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SizeError::NoNumber => f.write_str("it must begin with a whole number, such as 32KiB"),
            SizeError::Unit(unit) => {
                write!(
                    f,
                    "\"{unit}\" is no unit: use KiB, MiB, GiB, TiB or KB, MB, GB, TB"
                )
            }
            SizeError::Zero => f.write_str("it must be at least one byte"),
            SizeError::TooLarge => f.write_str("it is larger than any file"),
        }
    }
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Size, SizeError> {
        let digits = text.chars().take_while(char::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        if number.is_empty() {
            return Err(SizeError::NoNumber);
        }
        let factor = factor(unit.trim())?;
        // Only digits are left, so the one thing that can go wrong is the number's size.
        let count: u64 = number.parse().map_err(|_| SizeError::TooLarge)?;
        match count.checked_mul(factor) {
            None => Err(SizeError::TooLarge),
            Some(0) => Err(SizeError::Zero),
            Some(bytes) => Ok(Size(bytes)),
        }
    }
}

fn factor(unit: &str) -> Result<u64, SizeError> {
    let lower = unit.to_ascii_lowercase();
    UNITS
        .iter()
        .find(|(name, _)| *name == lower)
        .map(|(_, factor)| *factor)
        .ok_or_else(|| SizeError::Unit(unit.to_owned()))
}

impl fmt::Display for Size {
    /// In the largest binary unit that it fills, to a tenth: `32 KiB`, `1.5 GiB`, `1000 B`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB"), (0, "B")];
        let fills = |(shift, _): &(u32, &str)| self.0 >> *shift > 0;
        let (shift, name) = units.into_iter().find(fills).unwrap_or((0, "B"));
        if self.0.trailing_zeros() >= shift {
            write!(f, "{} {name}", self.0 >> shift)
        } else {
            write!(f, "{:.1} {name}", self.0 as f64 / (1u64 << shift) as f64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let cases = [
            ("4096", 4096),
            ("32KiB", 32 << 10),
            ("4M", 4 << 20),
            ("2 mib", 2 << 20),
            ("1GB", 1_000_000_000),
            ("1t", 1 << 40),
        ];
        for (text, bytes) in cases {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_explained() {
        assert_eq!("".parse::<Size>(), Err(SizeError::NoNumber));
        assert_eq!("-4K".parse::<Size>(), Err(SizeError::NoNumber));
        assert_eq!("0".parse::<Size>(), Err(SizeError::Zero));
        assert_eq!("4X".parse::<Size>(), Err(SizeError::Unit("X".into())));
        assert_eq!("1.5G".parse::<Size>(), Err(SizeError::Unit(".5G".into())));
        assert_eq!("99999999T".parse::<Size>(), Err(SizeError::TooLarge));
        assert_eq!(
            "99999999999999999999".parse::<Size>(),
            Err(SizeError::TooLarge)
        );
    }

    #[test]
    fn a_size_prints_in_the_unit_a_person_would_pick() {
        let sizes = [32 << 10, 1 << 30, 3 << 29, 49_049, 1000, 1];
        let shown = sizes.map(|bytes| Size(bytes).to_string());
        let expected = ["32 KiB", "1 GiB", "1.5 GiB", "47.9 KiB", "1000 B", "1 B"];
        assert_eq!(shown, expected);
    }
}
