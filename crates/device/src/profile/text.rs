//! The profile file: JSON that a person can read, and that says which version it is of.
//!
//! ```json
//! {
//!   "format": "presagio profile",
//!   "version": 1,
//!   "device": "/scratch", "file_bytes": 1258291200, "depth": 1,
//!   "confidence_percent": 90, "seconds": 41.5, "notes": [],
//!   "intervals": [{ "least": 8192, "most": 65536, "step": 8192 }],
//!   "tests": {
//!     "sequential read": {
//!       "points": [{ "size": 8192, "ns": 45000, "plus_minus_ns": 900, "runs": 6, "requests": 1200 }],
//!       "lines": [{ "at_zero_ns": 40000, "ns_per_byte": 0.6 }]
//!     }
//!   }
//! }
//! ```
//!
//! Sizes are bytes, times nanoseconds. `lines` (one per interval) follow from the points; they are there for readers
//! that have no wish to fit, and ours does not read them. What it does not know it leaves alone, so that a later version
//! may say more under the same number.

use super::{About, Gap, Interval, Line, Point, Profile, Test};
use serde_json::{Map, Value, json};
use std::fmt;

const FORMAT: &str = "presagio profile";
const VERSION: u64 = 1;

/// More points of a test than that are no profile.
const POINTS_MAX: usize = 200_000;
const INTERVALS_MAX: usize = 1_000;
const NOTES_MAX: usize = 1_000;

/// Why a text is no profile.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProfileError {
    /// It is no JSON; says where and why.
    Json(serde_json::Error),
    /// It is something else, or of a version that we do not know.
    Kind(String),
    /// A field is missing or has a value that it cannot have.
    Field {
        /// Which, as in `tests.random read.points[3].ns`.
        place: String,
        /// What it has to be.
        must: &'static str,
    },
    /// The fields are right, but do not make a profile.
    Gap(Gap),
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProfileError::Json(error) => write!(f, "it is not JSON: {error}"),
            ProfileError::Kind(what) => f.write_str(what),
            ProfileError::Field { place, must } => write!(f, "{place} must be {must}"),
            ProfileError::Gap(gap) => gap.fmt(f),
        }
    }
}

impl std::error::Error for ProfileError {}

impl Profile {
    /// The profile as the text of a file.
    pub fn to_text(&self) -> String {
        format!("{:#}\n", self.to_json())
    }

    /// The same as a JSON value.
    pub fn to_json(&self) -> Value {
        let tests: Map<String, Value> = Test::ALL
            .into_iter()
            .map(|test| (test.name().to_owned(), self.test_json(test)))
            .collect();
        json!({
            "format": FORMAT,
            "version": VERSION,
            "device": self.about.device,
            "file_bytes": self.about.file_bytes,
            "depth": self.about.depth,
            "confidence_percent": self.about.confidence_percent,
            "seconds": self.about.seconds,
            "notes": self.about.notes,
            "intervals": self.intervals.iter().map(interval_json).collect::<Vec<_>>(),
            "tests": tests,
        })
    }

    fn test_json(&self, test: Test) -> Value {
        let lines = self
            .lines
            .iter()
            .map(|lines| line_json(lines[test.index()]));
        json!({
            "points": self.points(test).iter().map(point_json).collect::<Vec<_>>(),
            "lines": lines.collect::<Vec<_>>(),
        })
    }

    /// Reads what [`Profile::to_text`] wrote.
    pub fn from_text(text: &str) -> Result<Profile, ProfileError> {
        let value: Value = serde_json::from_str(text).map_err(ProfileError::Json)?;
        let root = Place {
            value: &value,
            path: String::new(),
        };
        kind(&root)?;
        let intervals = root.field("intervals")?.list(INTERVALS_MAX)?;
        let intervals = intervals.iter().map(interval).collect::<Result<_, _>>()?;
        let tests = root.field("tests")?;
        let mut points = [const { Vec::new() }; 4];
        for test in Test::ALL {
            let listed = tests
                .field(test.name())?
                .field("points")?
                .list(POINTS_MAX)?;
            points[test.index()] = listed.iter().map(point).collect::<Result<_, _>>()?;
        }
        Profile::new(about(&root)?, intervals, points).map_err(ProfileError::Gap)
    }
}

fn interval_json(interval: &Interval) -> Value {
    json!({ "least": interval.least, "most": interval.most, "step": interval.step })
}

fn line_json(line: Line) -> Value {
    json!({ "at_zero_ns": line.at_zero_ns, "ns_per_byte": line.ns_per_byte })
}

fn point_json(point: &Point) -> Value {
    json!({
        "size": point.size,
        "ns": point.ns,
        "plus_minus_ns": point.plus_minus_ns,
        "runs": point.runs,
        "requests": point.requests,
    })
}

fn kind(root: &Place) -> Result<(), ProfileError> {
    let format = root.value.get("format").and_then(Value::as_str);
    if format != Some(FORMAT) {
        let what = "it is not a profile: presagio profile -o FILE writes one";
        return Err(ProfileError::Kind(what.to_owned()));
    }
    match root.field("version")?.whole()? {
        VERSION => Ok(()),
        other => Err(ProfileError::Kind(format!(
            "it is of version {other}, and this program knows version {VERSION}: measure again, or use a newer one"
        ))),
    }
}

fn about(root: &Place) -> Result<About, ProfileError> {
    let notes = root.field("notes")?.list(NOTES_MAX)?;
    let notes = notes.iter().map(|note| note.text().map(str::to_owned));
    Ok(About {
        device: root.field("device")?.text()?.to_owned(),
        file_bytes: root.field("file_bytes")?.whole()?,
        depth: root.field("depth")?.count()?,
        confidence_percent: root.field("confidence_percent")?.number()?,
        seconds: root.field("seconds")?.number()?,
        notes: notes.collect::<Result<_, _>>()?,
    })
}

fn interval(place: &Place) -> Result<Interval, ProfileError> {
    let field = |name| place.field(name)?.whole();
    let (least, most, step) = (field("least")?, field("most")?, field("step")?);
    Interval::new(least, most, step).ok_or_else(|| {
        place.wrong("sizes from least to most by whole steps, all above 0 and not more than 100000")
    })
}

fn point(place: &Place) -> Result<Point, ProfileError> {
    Ok(Point {
        size: place.field("size")?.whole()?,
        ns: place.field("ns")?.number()?,
        plus_minus_ns: place.field("plus_minus_ns")?.number()?,
        runs: place.field("runs")?.count()?,
        requests: place.field("requests")?.whole()?,
    })
}

/// A value, and where in the text it is.
struct Place<'a> {
    value: &'a Value,
    path: String,
}

impl<'a> Place<'a> {
    fn wrong(&self, must: &'static str) -> ProfileError {
        let place = match self.path.as_str() {
            "" => "the whole".to_owned(),
            path => path.to_owned(),
        };
        ProfileError::Field { place, must }
    }

    fn field(&self, name: &str) -> Result<Place<'a>, ProfileError> {
        let path = match self.path.as_str() {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        };
        let found = self.value.get(name);
        let value = found.unwrap_or(&Value::Null);
        let place = Place { value, path };
        match found {
            Some(_) => Ok(place),
            None => Err(place.wrong("there")),
        }
    }

    fn list(&self, most: usize) -> Result<Vec<Place<'a>>, ProfileError> {
        let list = self.value.as_array().ok_or_else(|| self.wrong("a list"))?;
        if list.len() > most {
            return Err(self.wrong("a shorter list"));
        }
        let place = |(index, value)| Place {
            value,
            path: format!("{}[{index}]", self.path),
        };
        Ok(list.iter().enumerate().map(place).collect())
    }

    fn whole(&self) -> Result<u64, ProfileError> {
        let whole = self.value.as_u64();
        whole.ok_or_else(|| self.wrong("a whole number, not below 0"))
    }

    fn count(&self) -> Result<u32, ProfileError> {
        let count = u32::try_from(self.whole()?);
        count.map_err(|_| self.wrong("below 4294967296"))
    }

    fn number(&self) -> Result<f64, ProfileError> {
        self.value.as_f64().ok_or_else(|| self.wrong("a number"))
    }

    fn text(&self) -> Result<&'a str, ProfileError> {
        self.value.as_str().ok_or_else(|| self.wrong("a text"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::straight;
    use proptest::prelude::*;

    fn example() -> Profile {
        straight([1e4, 5e6, 2e4, 3e6], [6.5, 6.5, 7.0, 7.25])
    }

    fn error(value: &Value) -> String {
        let read = Profile::from_text(&value.to_string());
        read.expect_err("it is wrong").to_string()
    }

    #[test]
    fn what_was_written_is_read_back() {
        let profile = example();
        let read = Profile::from_text(&profile.to_text()).expect("our own");
        assert_eq!(read, profile);
    }

    #[test]
    fn what_is_no_profile_is_said_to_be_none() {
        let no_json = Profile::from_text("{\n  \"format\": oops").expect_err("no JSON");
        assert!(no_json.to_string().contains("line 2"), "{no_json}");
        assert!(error(&json!([1, 2])).contains("presagio profile -o"));
        let mut later = example().to_json();
        later["version"] = json!(2);
        assert!(error(&later).contains("version 2"));
    }

    #[test]
    fn a_wrong_field_is_named_with_its_place() {
        let wrong: [(&str, Value, &str); 7] = [
            ("/depth", json!(-1), "depth must be a whole number"),
            ("/depth", json!(1_u64 << 32), "depth must be below"),
            ("/intervals/1/step", json!(7), "intervals[1] must be"),
            ("/intervals", json!({}), "intervals must be a list"),
            ("/notes/0", json!(5), "notes[0] must be a text"),
            (
                "/tests/random read/points/2/ns",
                json!("x"),
                "tests.random read.points[2].ns must be",
            ),
            (
                "/tests/random read/points/2/ns",
                json!(-5.0),
                "random read at 4194304 bytes",
            ),
        ];
        for (place, value, says) in wrong {
            let mut json = example().to_json();
            *json.pointer_mut(place).expect(place) = value;
            let error = error(&json);
            assert!(error.contains(says), "{place}: {error}");
        }
    }

    #[test]
    fn a_missing_field_is_named() {
        for name in ["intervals", "tests", "device", "seconds", "notes"] {
            let mut json = example().to_json();
            json.as_object_mut().expect("an object").remove(name);
            assert!(error(&json).contains(name));
        }
        let mut json = example().to_json();
        let tests = json["tests"].as_object_mut().expect("an object");
        tests.remove("sequential write");
        assert!(error(&json).contains("tests.sequential write must be there"));
    }

    /// Whoever reads a profile may use it: every answer is a positive number.
    fn usable(profile: &Profile) -> bool {
        let sizes = profile.sizes().take(300).chain([0, 1, 1 << 60]);
        let mut times = sizes.flat_map(|size| Test::ALL.map(|test| profile.ns(test, size)));
        times.all(|ns| ns >= 1.0)
    }

    proptest! {
        /// Bytes changed, dropped and doubled at random: an error or a profile, never a panic.
        #[test]
        fn no_text_makes_the_reader_panic(
            cuts in prop::collection::vec((any::<prop::sample::Index>(), 0..4, any::<u8>()), 1..6),
        ) {
            let mut text = example().to_text().into_bytes();
            for (place, what, byte) in cuts {
                let place = place.index(text.len());
                match what {
                    0 => text[place] = byte,
                    1 => drop(text.remove(place)),
                    2 => text.insert(place, b"0123456789-.e,[]{}\""[usize::from(byte) % 19]),
                    _ => text.truncate(place.max(1)),
                }
            }
            if let Ok(profile) = Profile::from_text(&String::from_utf8_lossy(&text)) {
                prop_assert!(usable(&profile));
            }
        }

        /// Fields of our own with values from anywhere.
        #[test]
        fn no_value_makes_a_profile_unusable(
            numbers in prop::collection::vec(prop::num::f64::ANY, 12),
            sizes in prop::collection::vec(any::<u64>(), 3),
        ) {
            let mut json = example().to_json();
            for (index, test) in Test::ALL.into_iter().enumerate() {
                for point in 0..3 {
                    json["tests"][test.name()]["points"][point]["ns"] = json!(numbers[index * 3 + point]);
                }
            }
            for (name, size) in ["least", "most", "step"].iter().zip(&sizes) {
                json["intervals"][0][*name] = json!(size);
            }
            if let Ok(profile) = Profile::from_text(&json.to_string()) {
                prop_assert!(usable(&profile));
            }
        }
    }
}
