//! Reads libconfig's configuration syntax: the first step from `agios.conf` to a running scheduler.
//!
//! ```text
//! library_options:             # a group; "=" works like ":"
//! {
//!     default_algorithm = "SJF" ;   // ";" and "," behind a setting are optional
//!     waiting_time = 900000         /* integers: 12, 0x1F, 0b101, 0o17, 12L */
//!     shares = [ 0.5, 0.25 ]        # arrays of one scalar type, lists ( 1, "a", { b = 2 } ) of any
//! };
//! ```
//!
//! Every value keeps the line and column where it stands, so that whoever gives it a meaning can point
//! at it. The parser knows no key. Any input gives a result in time linear in its length (times the
//! logarithm that looking for duplicate names costs), with bounded recursion.

use std::collections::BTreeSet;
use std::fmt;

/// How deep groups, lists and arrays may be nested: far beyond any configuration, far below the stack.
const DEPTH_MAX: u32 = 64;

/// Where something stands in the text. Both count from 1; columns count bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A value, without its place.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `true` or `false`.
    Bool(bool),
    /// An integer of any notation.
    Int(i64),
    /// A number with a point or an exponent.
    Float(f64),
    /// The bytes of one or several adjacent string literals, escapes resolved.
    Text(Vec<u8>),
    /// `{ name = value ... }`
    Group(Group),
    /// `[ scalar, ... ]`, all of one type.
    Array(Vec<Placed>),
    /// `( value, ... )`
    List(Vec<Placed>),
}

impl Value {
    /// What a person calls this kind of value.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Bool(_) => "a boolean",
            Value::Int(_) => "an integer",
            Value::Float(_) => "a floating-point number",
            Value::Text(_) => "a string",
            Value::Group(_) => "a group",
            Value::Array(_) => "an array",
            Value::List(_) => "a list",
        }
    }
}

/// A value and where it starts.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// Where it starts.
    pub at: Position,
    /// The value.
    pub value: Value,
}

/// One `name = value`.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The name.
    pub name: String,
    /// Where the name starts.
    pub at: Position,
    /// What it is set to.
    pub value: Placed,
}

/// Settings in the order of the text; no name occurs twice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group(Vec<Setting>);

impl Group {
    /// The setting of that name.
    pub fn get(&self, name: &str) -> Option<&Setting> {
        self.0.iter().find(|s| s.name == name)
    }

    /// All settings.
    pub fn iter(&self) -> impl Iterator<Item = &Setting> {
        self.0.iter()
    }
}

/// Why a text is not a configuration, and where.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{at}: {problem}")]
pub struct SyntaxError {
    /// The place.
    pub at: Position,
    /// What is wrong there.
    pub problem: Problem,
}

/// What can be wrong with a text.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// Neither a name nor the end of the group.
    #[error("expected the name of a setting, found {0}")]
    NoName(Found),
    /// A name that nothing is assigned to.
    #[error("expected \"=\" or \":\" after \"{name}\", found {found}")]
    NoAssignment {
        /// The name.
        name: String,
        /// What stands there instead.
        found: Found,
    },
    /// Something that starts no value.
    #[error(
        "expected a value (true, false, a number, a \"string\", a group, array or list), found {0}"
    )]
    NoValue(Found),
    /// Neither a separator nor the closing bracket.
    #[error("expected \",\" or \"{close}\", found {found}")]
    NoSeparator {
        /// The bracket that would close here.
        close: char,
        /// What stands there instead.
        found: Found,
    },
    /// A word that is neither a boolean nor a number.
    #[error("\"{0}\" is neither true nor false nor a number; strings stand in double quotes")]
    BadWord(String),
    /// An integer beyond 64 bits, or a number beyond a double.
    #[error("the number {0} is too large")]
    TooLarge(String),
    /// A name that the group has already.
    #[error("\"{name}\" was already set in line {first_line}")]
    Duplicate {
        /// The name.
        name: String,
        /// Where it was set first.
        first_line: usize,
    },
    /// An array whose values differ in type, or are not scalars.
    #[error("an array holds scalars of one type, this is {0}; use a list ( ... ) instead")]
    MixedArray(&'static str),
    /// A string whose closing quote is missing.
    #[error("this string is never closed: its final '\"' is missing")]
    OpenString,
    /// A comment that is never closed.
    #[error("this comment is never closed: its final \"*/\" is missing")]
    OpenComment,
    /// An escape that libconfig does not have.
    #[error("unknown escape in a string: use \\\\ \\\" \\a \\b \\f \\n \\r \\t \\v or \\xHH")]
    BadEscape,
    /// More levels of nesting than we follow.
    #[error("nested more than {DEPTH_MAX} deep")]
    TooDeep,
    /// `@include`, which would make a configuration span files.
    #[error("@include is not supported: put the settings into this file")]
    Include,
}

/// What stands where something else was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found(Option<u8>);

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("the end of the file"),
            Some(byte @ b' '..=b'~') => write!(f, "\"{}\"", char::from(byte)),
            Some(byte) => write!(f, "byte 0x{byte:02x}"),
        }
    }
}

/// Parses a whole text.
pub fn parse(text: &[u8]) -> Result<Group, SyntaxError> {
    let mut parser = Parser {
        text,
        next: 0,
        line: 1,
        line_start: 0,
        depth: 0,
    };
    parser.settings_until(None)
}

/// A place in the text that only moves forward.
struct Parser<'a> {
    text: &'a [u8],
    next: usize,
    line: usize,
    line_start: usize,
    depth: u32,
}

type Parsed<T> = Result<T, SyntaxError>;

impl<'a> Parser<'a> {
    /// Settings up to `close` (which is consumed), or up to the end of the text.
    fn settings_until(&mut self, close: Option<u8>) -> Parsed<Group> {
        let mut settings: Vec<Setting> = Vec::new();
        let mut names = BTreeSet::new();
        loop {
            self.skip_blank()?;
            if self.peek() == close {
                self.advance();
                return Ok(Group(settings));
            }
            let setting = self.setting()?;
            if !names.insert(setting.name.clone()) {
                return Err(duplicate(&settings, setting));
            }
            settings.push(setting);
        }
    }

    /// `name = value`, with its terminator if it has one.
    fn setting(&mut self) -> Parsed<Setting> {
        let at = self.position();
        let name = self.name()?;
        self.skip_blank()?;
        match self.peek() {
            Some(b'=' | b':') => self.advance(),
            other => {
                let found = Found(other);
                return self.fail(Problem::NoAssignment { name, found });
            }
        }
        self.skip_blank()?;
        let value = self.value()?;
        self.skip_blank()?;
        if matches!(self.peek(), Some(b';' | b',')) {
            self.advance();
        }
        Ok(Setting { name, at, value })
    }

    fn name(&mut self) -> Parsed<String> {
        let from = self.next;
        match self.peek() {
            Some(b'@') => return self.fail(Problem::Include),
            Some(c) if c.is_ascii_alphabetic() || c == b'*' => {}
            other => return self.fail(Problem::NoName(Found(other))),
        }
        while matches!(self.peek(), Some(c) if c.is_ascii_alphanumeric() || b"-_*".contains(&c)) {
            self.advance();
        }
        Ok(ascii(&self.text[from..self.next]))
    }

    fn value(&mut self) -> Parsed<Placed> {
        let at = self.position();
        let value = match self.peek() {
            Some(b'{') => self.nested(|p| Ok(Value::Group(p.settings_until(Some(b'}'))?)))?,
            Some(b'[') => self.nested(Parser::array)?,
            Some(b'(') => self.nested(|p| Ok(Value::List(p.values_until(b')')?)))?,
            Some(b'"') => Value::Text(self.strings()?),
            Some(c) if is_word(c) => self.word(at)?,
            other => return self.fail(Problem::NoValue(Found(other))),
        };
        Ok(Placed { at, value })
    }

    /// Consumes an opening bracket and what `inside` reads, one level deeper.
    fn nested(&mut self, inside: impl FnOnce(&mut Self) -> Parsed<Value>) -> Parsed<Value> {
        if self.depth == DEPTH_MAX {
            return self.fail(Problem::TooDeep);
        }
        self.advance();
        self.depth += 1;
        let value = inside(self);
        self.depth -= 1;
        value
    }

    fn array(&mut self) -> Parsed<Value> {
        let values = self.values_until(b']')?;
        for placed in &values {
            let kind = placed.value.kind();
            let nested = matches!(
                placed.value,
                Value::Group(_) | Value::Array(_) | Value::List(_)
            );
            if nested || kind != values[0].value.kind() {
                let problem = Problem::MixedArray(kind);
                return Err(SyntaxError {
                    at: placed.at,
                    problem,
                });
            }
        }
        Ok(Value::Array(values))
    }

    /// Comma-separated values up to `close`, which is consumed. A comma may stand behind the last one.
    fn values_until(&mut self, close: u8) -> Parsed<Vec<Placed>> {
        let mut values = Vec::new();
        loop {
            self.skip_blank()?;
            if self.peek() == Some(close) {
                self.advance();
                return Ok(values);
            }
            values.push(self.value()?);
            self.skip_blank()?;
            match self.peek() {
                Some(b',') => self.advance(),
                Some(c) if c == close => {}
                other => {
                    let (close, found) = (char::from(close), Found(other));
                    return self.fail(Problem::NoSeparator { close, found });
                }
            }
        }
    }

    /// One string, or several with only blanks and comments between them, as one.
    fn strings(&mut self) -> Parsed<Vec<u8>> {
        let mut bytes = Vec::new();
        while self.peek() == Some(b'"') {
            self.string_into(&mut bytes)?;
            self.skip_blank()?;
        }
        Ok(bytes)
    }

    fn string_into(&mut self, bytes: &mut Vec<u8>) -> Parsed<()> {
        let opened = self.position();
        self.advance();
        loop {
            match self.peek() {
                None => {
                    let problem = Problem::OpenString;
                    return Err(SyntaxError {
                        at: opened,
                        problem,
                    });
                }
                Some(b'"') => {
                    self.advance();
                    return Ok(());
                }
                Some(b'\\') => bytes.push(self.escape()?),
                Some(byte) => {
                    bytes.push(byte);
                    self.advance();
                }
            }
        }
    }

    fn escape(&mut self) -> Parsed<u8> {
        let rest = &self.text[self.next..];
        let (byte, length) = match rest.get(1) {
            Some(c @ (b'\\' | b'"')) => (*c, 2),
            Some(b'a') => (0x07, 2),
            Some(b'b') => (0x08, 2),
            Some(b'f') => (0x0C, 2),
            Some(b'n') => (b'\n', 2),
            Some(b'r') => (b'\r', 2),
            Some(b't') => (b'\t', 2),
            Some(b'v') => (0x0B, 2),
            Some(b'x') => match (hex_digit(rest.get(2)), hex_digit(rest.get(3))) {
                (Some(high), Some(low)) => (high * 16 + low, 4),
                _ => return self.fail(Problem::BadEscape),
            },
            _ => return self.fail(Problem::BadEscape),
        };
        self.next += length;
        Ok(byte)
    }

    /// A boolean or a number.
    fn word(&mut self, at: Position) -> Parsed<Value> {
        let from = self.next;
        while self.peek().is_some_and(is_word) {
            self.advance();
        }
        let word = ascii(&self.text[from..self.next]);
        scalar(word).map_err(|problem| SyntaxError { at, problem })
    }

    /// Skips white space and comments.
    fn skip_blank(&mut self) -> Parsed<()> {
        loop {
            match (self.peek(), self.text.get(self.next + 1)) {
                (Some(b' ' | b'\t' | b'\n' | b'\r' | 0x0B | 0x0C), _) => self.advance(),
                (Some(b'#'), _) | (Some(b'/'), Some(b'/')) => self.skip_line(),
                (Some(b'/'), Some(b'*')) => self.skip_comment()?,
                _ => return Ok(()),
            }
        }
    }

    fn skip_line(&mut self) {
        while self.peek().is_some_and(|c| c != b'\n') {
            self.advance();
        }
    }

    fn skip_comment(&mut self) -> Parsed<()> {
        let at = self.position();
        self.next += 2;
        while !self.text[self.next..].starts_with(b"*/") {
            if self.peek().is_none() {
                let problem = Problem::OpenComment;
                return Err(SyntaxError { at, problem });
            }
            self.advance();
        }
        self.next += 2;
        Ok(())
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.next).copied()
    }

    /// Moves behind the current byte, if there is one. The only place that counts lines: the other
    /// steps above never cross a line end.
    fn advance(&mut self) {
        if let Some(byte) = self.peek() {
            self.next += 1;
            if byte == b'\n' {
                self.line += 1;
                self.line_start = self.next;
            }
        }
    }

    fn position(&self) -> Position {
        Position {
            line: self.line,
            column: self.next - self.line_start + 1,
        }
    }

    fn fail<T>(&self, problem: Problem) -> Parsed<T> {
        let at = self.position();
        Err(SyntaxError { at, problem })
    }
}

fn duplicate(settings: &[Setting], again: Setting) -> SyntaxError {
    let first = settings.iter().find(|s| s.name == again.name);
    SyntaxError {
        at: again.at,
        problem: Problem::Duplicate {
            first_line: first.map_or(0, |s| s.at.line),
            name: again.name,
        },
    }
}

/// Whether the byte belongs to a boolean or number. Wider than both, so that a typing error is shown whole.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+-._".contains(&byte)
}

fn scalar(word: String) -> Result<Value, Problem> {
    if word.eq_ignore_ascii_case("true") || word.eq_ignore_ascii_case("false") {
        return Ok(Value::Bool(word.eq_ignore_ascii_case("true")));
    }
    match integer(&word) {
        Some(Ok(value)) => Ok(Value::Int(value)),
        Some(Err(())) => Err(Problem::TooLarge(word)),
        None => float(word),
    }
}

/// The integer that `word` writes: `None` if it writes none, `Err` if it is beyond 64 bits.
fn integer(word: &str) -> Option<Result<i64, ()>> {
    let short = word.trim_end_matches('L');
    let digits = if word.len() - short.len() <= 2 {
        short
    } else {
        word
    };
    let radix = match digits.get(..2).map(str::to_ascii_lowercase).as_deref() {
        Some("0x") => 16,
        Some("0b") => 2,
        Some("0o" | "0q") => 8,
        _ => 10,
    };
    let (sign, digits) = match radix {
        10 => split_sign(digits),
        _ => ("", &digits[2..]),
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    Some(i64::from_str_radix(&format!("{sign}{digits}"), radix).map_err(drop))
}

fn split_sign(word: &str) -> (&str, &str) {
    let unsigned = word.trim_start_matches(['+', '-']);
    match word.len() - unsigned.len() {
        1 => word.split_at(1),
        _ => ("", word),
    }
}

fn float(word: String) -> Result<Value, Problem> {
    let numeric = |c: u8| c.is_ascii_digit() || b"+-.eE".contains(&c);
    match word.parse::<f64>() {
        // The standard library also takes "inf" and "nan", which libconfig does not.
        Ok(value) if word.bytes().all(numeric) && value.is_finite() => Ok(Value::Float(value)),
        Ok(_) if word.bytes().all(numeric) => Err(Problem::TooLarge(word)),
        _ => Err(Problem::BadWord(word)),
    }
}

fn hex_digit(byte: Option<&u8>) -> Option<u8> {
    let digit = char::from(*byte?).to_digit(16)?;
    u8::try_from(digit).ok()
}

/// Text of bytes that are known to be ASCII.
fn ascii(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VALID: &str = include_str!("../tests/conf/everything.conf");

    fn value(text: &str) -> Value {
        let group = parse(format!("v = {text}").as_bytes()).unwrap();
        group.get("v").unwrap().value.value.clone()
    }

    fn error(text: &str) -> String {
        parse(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn scalars_are_read_in_every_notation() {
        for (text, expected) in [
            ("12", 12),
            ("-7", -7),
            ("+7", 7),
            ("0x1F", 31),
            ("0Xff", 255),
            ("0b101", 5),
            ("0o17", 15),
            ("9000000000L", 9_000_000_000),
            ("5LL", 5),
            ("-9223372036854775808", i64::MIN),
        ] {
            assert_eq!(value(text), Value::Int(expected), "{text}");
        }
        for (text, expected) in [("1.5", 1.5), ("-.5e2", -50.0), ("2.", 2.0), ("1e3", 1000.0)] {
            assert_eq!(value(text), Value::Float(expected), "{text}");
        }
        assert_eq!(value("TRUE"), Value::Bool(true));
        assert_eq!(value("False"), Value::Bool(false));
    }

    #[test]
    fn strings_keep_escapes_and_join_with_their_neighbours() {
        assert_eq!(
            value(
                r#""a\t\"\x41\\" # and
            /* then */ "b""#
            ),
            Value::Text(b"a\t\"A\\b".to_vec())
        );
        assert_eq!(value("\"two\nlines\""), Value::Text(b"two\nlines".to_vec()));
    }

    #[test]
    fn groups_arrays_and_lists_nest() {
        let group = parse(VALID.as_bytes()).unwrap();
        let Value::Group(extras) = &group.get("extras").unwrap().value.value else {
            panic!("extras is a group");
        };
        let Value::List(list) = &extras.get("mixed").unwrap().value.value else {
            panic!("mixed is a list");
        };
        let kinds: Vec<_> = list.iter().map(|p| p.value.kind()).collect();
        assert_eq!(
            kinds,
            ["an integer", "a string", "a group", "a list", "an array"]
        );
    }

    #[test]
    fn values_know_where_they_stand() {
        let group = parse(b"a = 1;\n  b:\n\t\"x\\ty\\n\" c=2").unwrap();
        let place = |name| {
            let setting = group.get(name).unwrap();
            (setting.at.to_string(), setting.value.at.to_string())
        };
        assert_eq!(place("a"), ("1:1".into(), "1:5".into()));
        assert_eq!(place("b"), ("2:3".into(), "3:2".into()));
        assert_eq!(place("c"), ("3:11".into(), "3:13".into()));
    }

    #[test]
    fn errors_say_where_and_what() {
        for (text, expected) in [
            (
                "a = 1\nb 2",
                "2:3: expected \"=\" or \":\" after \"b\", found \"2\"",
            ),
            ("a = ;", "1:5: expected a value"),
            (
                "a = 1\n= 2",
                "2:1: expected the name of a setting, found \"=\"",
            ),
            (
                "g = { a = 1",
                "1:12: expected the name of a setting, found the end of the file",
            ),
            ("a = \"abc", "1:5: this string is never closed"),
            ("a = 1 /* x", "1:7: this comment is never closed"),
            ("a = \"\\q\"", "1:6: unknown escape"),
            ("a = \"\\x4\"", "1:6: unknown escape"),
            ("a = yes", "1:5: \"yes\" is neither"),
            ("a = 1.2.3", "1:5: \"1.2.3\" is neither"),
            ("a = inf", "1:5: \"inf\" is neither"),
            ("a = 0x", "1:5: \"0x\" is neither"),
            ("a = 5LLL", "1:5: \"5LLL\" is neither"),
            (
                "a = 9223372036854775808",
                "1:5: the number 9223372036854775808 is too large",
            ),
            ("a = 1e999", "1:5: the number 1e999 is too large"),
            ("a = 1\na = 2", "2:1: \"a\" was already set in line 1"),
            ("a = [1, 2.0]", "1:9: an array holds scalars of one type"),
            ("a = [[1]]", "1:6: an array holds scalars of one type"),
            ("a = (1 2)", "1:8: expected \",\" or \")\", found \"2\""),
            (
                "a = (1",
                "1:7: expected \",\" or \")\", found the end of the file",
            ),
            ("@include \"b.conf\"", "1:1: @include is not supported"),
            (
                "a = 1 }",
                "1:7: expected the name of a setting, found \"}\"",
            ),
        ] {
            let got = error(text);
            assert!(got.starts_with(expected), "{text:?} gave {got:?}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        assert!(parse(format!("a = {}{}", "(".repeat(64), ")".repeat(64)).as_bytes()).is_ok());
        assert!(error(&format!("a = {}", "(".repeat(65))).contains("nested more than 64"));
        assert!(error(&"a = {".repeat(1_000_000)).contains("nested more than 64"));
    }

    #[test]
    fn trailing_commas_and_empty_brackets_are_fine() {
        assert_eq!(value("[]"), Value::Array(vec![]));
        assert_eq!(value("{}"), Value::Group(Group::default()));
        let Value::List(list) = value("(1, 2,)") else {
            panic!("a list")
        };
        assert_eq!(list.len(), 2);
    }

    /// An error points into the text, at most one past its end.
    fn points_into(text: &[u8], result: Parsed<Group>) -> bool {
        let Err(error) = result else { return true };
        let mut lines = text.split(|b| *b == b'\n');
        let line = lines.nth(error.at.line - 1);
        line.is_some_and(|line| (1..=line.len() + 1).contains(&error.at.column))
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_result(text: Vec<u8>) {
            prop_assert!(points_into(&text, parse(&text)));
        }

        #[test]
        fn any_mixture_of_tokens_gives_a_result(
            tokens in proptest::collection::vec(proptest::sample::select(vec![
                "a", "b", "=", ":", ";", ",", "{", "}", "[", "]", "(", ")", "\"", "\"x\"", "\\", "1",
                "0x", "L", "1.5", "true", "#", "//", "/*", "*/", "\n", " ", "@include", "-", "*",
            ]), 0..60)
        ) {
            let text = tokens.concat();
            prop_assert!(points_into(text.as_bytes(), parse(text.as_bytes())));
        }

        #[test]
        fn damaged_configurations_give_a_result(
            damage in proptest::collection::vec((0..VALID.len(), any::<u8>(), 0..3u8), 1..8)
        ) {
            let mut text = VALID.as_bytes().to_vec();
            for (place, byte, how) in damage {
                let place = place % text.len();
                match how {
                    0 => text[place] = byte,
                    1 => text.insert(place, byte),
                    _ => drop(text.drain(place..text.len().min(place + 1 + usize::from(byte) / 16))),
                }
                if text.is_empty() { break }
            }
            prop_assert!(points_into(&text, parse(&text)));
        }
    }
}
