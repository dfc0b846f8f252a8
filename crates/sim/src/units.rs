//! Sizes and spans as people write them in a scenario: `"32KiB"`, `"125us"`, `"1.25GB/s"`.

use serde::de::{self, Deserialize, Deserializer, Visitor};
use std::fmt;
use std::str::FromStr;

/// Bytes, or bytes a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

/// A span of time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub u64);

/// One letter means the binary unit, as everywhere in storage tools.
const SIZES: [(&str, u64); 14] = [
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

const SPANS: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

impl FromStr for Bytes {
    type Err = String;
    fn from_str(text: &str) -> Result<Bytes, String> {
        let size = text.strip_suffix("/s").unwrap_or(text);
        quantity(size, &SIZES)
            .map(Bytes)
            .ok_or_else(|| format!("\"{text}\" is no size: write 4096, \"32KiB\" or \"1.25GB/s\""))
    }
}

impl FromStr for Span {
    type Err = String;
    fn from_str(text: &str) -> Result<Span, String> {
        if text == "0" {
            return Ok(Span(0));
        }
        quantity(text, &SPANS)
            .map(Span)
            .ok_or_else(|| format!("\"{text}\" is no span: write \"125us\", \"2ms\" or \"1.5s\""))
    }
}

/// A number, whole or with a fraction, times its unit. Computed in integers, so that it is the same everywhere.
fn quantity(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = (&text[..end], text[end..].trim().to_lowercase());
    let factor = u128::from(units.iter().find(|(name, _)| *name == unit)?.1);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if fraction.is_empty() || fraction.len() > 9 {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let parts: u64 = fraction.parse().ok()?;
    let parts = u128::from(parts) * factor / 10_u128.pow(fraction.len() as u32);
    u64::try_from(u128::from(whole) * factor + parts).ok()
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB"), (0, "B")];
        let fits =
            |(shift, _): &(u32, &str)| self.0 >> *shift > 0 && self.0.is_multiple_of(1 << *shift);
        let (shift, name) = units.into_iter().find(fits).unwrap_or((0, "B"));
        write!(f, "{}{name}", self.0 >> shift)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
        let fits = |(size, _): &(u64, &str)| self.0 >= *size && self.0.is_multiple_of(*size);
        let (size, name) = units.into_iter().find(fits).unwrap_or((1, "ns"));
        write!(f, "{}{name}", self.0 / size)
    }
}

/// Reads either from a string, or (sizes only) from a whole number.
struct Written<T>(std::marker::PhantomData<T>);

impl<T: FromStr<Err = String> + From<u64> + Known> Visitor<'_> for Written<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        match u64::try_from(number) {
            Ok(number) if T::BARE || number == 0 => Ok(T::from(number)),
            _ => Err(E::custom(format!("{number} is not {}", T::EXPECTED))),
        }
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        self.visit_i64(i64::try_from(number).unwrap_or(-1))
    }
}

trait Known {
    const EXPECTED: &'static str;
    /// Whether a number without a unit means something.
    const BARE: bool;
}

impl Known for Bytes {
    const EXPECTED: &'static str = "a size such as 4096, \"32KiB\" or \"1.25GB/s\"";
    const BARE: bool = true;
}

impl Known for Span {
    const EXPECTED: &'static str = "a span with its unit, such as \"125us\" or \"2ms\"";
    const BARE: bool = false;
}

impl From<u64> for Bytes {
    fn from(bytes: u64) -> Bytes {
        Bytes(bytes)
    }
}

impl From<u64> for Span {
    fn from(ns: u64) -> Span {
        Span(ns)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        from.deserialize_any(Written::<Bytes>(std::marker::PhantomData))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Span, D::Error> {
        from.deserialize_any(Written::<Span>(std::marker::PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_spans_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("4096", 4096),
            ("32KiB", 32 << 10),
            ("4M", 4 << 20),
            ("1.25GB/s", 1_250_000_000),
            ("0.5 MiB", 1 << 19),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for (text, ns) in [
            ("125us", 125_000),
            ("0.125ms", 125_000),
            ("2 s", 2_000_000_000),
            ("0", 0),
            ("90min", 5_400_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Span(ns)), "{text}");
        }
    }

    #[test]
    fn what_is_neither_is_refused_with_an_example() {
        for text in [
            "",
            "fast",
            "-1ms",
            "1.",
            "5",
            "1.0000000001s",
            "99999999999h",
        ] {
            let error = text.parse::<Span>().expect_err(text);
            assert!(error.contains("125us"), "{error}");
        }
        for text in ["", "x", "-4K", "4X", "99999999T"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_printed_can_be_read() {
        for bytes in [0, 1, 1000, 4096, 3 << 19, 1 << 40] {
            assert_eq!(Bytes(bytes).to_string().parse(), Ok(Bytes(bytes)));
        }
        for ns in [0, 1, 125_000, 2_000_000, 3_000_000_000, 1_500_000_000] {
            assert_eq!(Span(ns).to_string().parse(), Ok(Span(ns)));
        }
    }
}
