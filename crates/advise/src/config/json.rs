//! JSON with places: every value knows its line and column, and an error in the middle of a text knows its field.
//!
//! A parser of our own, because what we promise about a malformed configuration is more than the crates give.
//! `serde_json` has positions for its own complaints only, not for what we find wrong later (a negative length, a
//! region that contradicts another), and not the field. Crates that keep positions accept a wider language, or
//! nest as deep as the text does and overflow the stack. And MERCURY read its files with jsoncpp, which allows
//! comments: so must we, if unchanged files are to work. The tests compare it with `serde_json`.

use super::ConfigError;

/// Deeper texts are refused: a configuration needs five levels, and we descend by recursion.
const DEPTH_MAX: usize = 32;

/// A place in the text, both counted from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub line: usize,
    pub column: usize,
}

impl Place {
    /// What is wrong here, in the field that these parts lead to: `File`, `[0]`, `Path`.
    pub fn error(self, field: &[String], reason: String) -> ConfigError {
        ConfigError {
            line: self.line,
            column: self.column,
            field: join(field),
            reason,
        }
    }
}

/// A value and where it begins.
#[derive(Debug, PartialEq)]
pub(super) struct Node {
    pub at: Place,
    pub value: Value,
}

#[derive(Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Bool,
    /// As it was written, valid by JSON's grammar.
    Number(String),
    String(String),
    Array(Vec<Node>),
    /// In the order of the text; a key may come twice.
    Object(Vec<Member>),
}

impl Value {
    /// What it is, for an error message.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool => "true or false",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "an array",
            Value::Object(_) => "an object",
        }
    }
}

#[derive(Debug, PartialEq)]
pub(super) struct Member {
    pub at: Place,
    pub key: String,
    pub value: Node,
}

/// Reads one value, and nothing behind it.
pub(super) fn parse(text: &str) -> Result<Node, ConfigError> {
    let mut parser = Parser {
        rest: text,
        at: Place { line: 1, column: 1 },
        field: Vec::new(),
    };
    parser.skip_blanks()?;
    let node = parser.value()?;
    parser.skip_blanks()?;
    match parser.peek() {
        None => Ok(node),
        Some(c) => Err(parser.error(format!("{c:?} after the end of the configuration"))),
    }
}

struct Parser<'a> {
    rest: &'a str,
    at: Place,
    /// Where we are, one part per level: `File`, `[0]`, `Path`.
    field: Vec<String>,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.rest = &self.rest[c.len_utf8()..];
        if c == '\n' {
            self.at.line += 1;
            self.at.column = 1;
        } else {
            self.at.column += 1;
        }
        Some(c)
    }

    fn error_at(&self, at: Place, reason: String) -> ConfigError {
        at.error(&self.field, reason)
    }

    fn error(&self, reason: String) -> ConfigError {
        self.error_at(self.at, reason)
    }

    /// What stands here is not what should.
    fn expected(&self, what: &str) -> ConfigError {
        match self.peek() {
            Some(c) => self.error(format!("expected {what}, found {c:?}")),
            None => self.error(format!("expected {what}, but the text ends here")),
        }
    }

    /// White space and comments of both kinds.
    fn skip_blanks(&mut self) -> Result<(), ConfigError> {
        loop {
            if self.rest.starts_with("//") {
                while !matches!(self.peek(), None | Some('\n')) {
                    self.next();
                }
            } else if self.rest.starts_with("/*") {
                self.skip_comment()?;
            } else if matches!(self.peek(), Some(' ' | '\t' | '\n' | '\r')) {
                self.next();
            } else {
                return Ok(());
            }
        }
    }

    fn skip_comment(&mut self) -> Result<(), ConfigError> {
        let Some(end) = self.rest[2..].find("*/") else {
            return Err(self.error("this comment does not end".into()));
        };
        let behind = self.rest.len() - (end + 4);
        while self.rest.len() > behind {
            self.next();
        }
        Ok(())
    }

    fn value(&mut self) -> Result<Node, ConfigError> {
        let at = self.at;
        let value = match self.peek() {
            Some('{') => self.object()?,
            Some('[') => self.array()?,
            Some('"') => Value::String(self.string()?),
            Some('-' | '0'..='9') => self.number()?,
            Some('a'..='z') => self.word()?,
            _ => return Err(self.expected("a value")),
        };
        Ok(Node { at, value })
    }

    /// Goes one level down. The way back is only taken after success: an error keeps the field it was met in.
    fn down(&mut self, part: String) -> Result<(), ConfigError> {
        self.field.push(part);
        if self.field.len() > DEPTH_MAX {
            let deep = format!("nested more than {DEPTH_MAX} levels deep");
            self.field.truncate(3);
            return Err(self.error(deep));
        }
        Ok(())
    }

    fn array(&mut self) -> Result<Value, ConfigError> {
        let mut items = Vec::new();
        self.next();
        self.skip_blanks()?;
        if self.took(']') {
            return Ok(Value::Array(items));
        }
        loop {
            self.down(format!("[{}]", items.len()))?;
            items.push(self.value()?);
            self.field.pop();
            if !self.comma_or(']')? {
                return Ok(Value::Array(items));
            }
        }
    }

    fn object(&mut self) -> Result<Value, ConfigError> {
        let mut members = Vec::new();
        self.next();
        self.skip_blanks()?;
        if self.took('}') {
            return Ok(Value::Object(members));
        }
        loop {
            members.push(self.member()?);
            if !self.comma_or('}')? {
                return Ok(Value::Object(members));
            }
        }
    }

    fn member(&mut self) -> Result<Member, ConfigError> {
        let at = self.at;
        if self.peek() != Some('"') {
            return Err(self.expected("the name of a field in quotes"));
        }
        let key = self.string()?;
        self.down(key.clone())?;
        self.skip_blanks()?;
        if !self.took(':') {
            return Err(self.expected("':'"));
        }
        self.skip_blanks()?;
        let value = self.value()?;
        self.field.pop();
        Ok(Member { at, key, value })
    }

    fn took(&mut self, c: char) -> bool {
        let here = self.peek() == Some(c);
        if here {
            self.next();
        }
        here
    }

    /// Behind an item: whether another one follows.
    fn comma_or(&mut self, close: char) -> Result<bool, ConfigError> {
        self.skip_blanks()?;
        if self.took(close) {
            return Ok(false);
        }
        if !self.took(',') {
            return Err(self.expected(&format!("',' or '{close}'")));
        }
        self.skip_blanks()?;
        Ok(true)
    }

    fn word(&mut self) -> Result<Value, ConfigError> {
        let at = self.at;
        let len = self.rest.bytes().take_while(u8::is_ascii_lowercase).count();
        let word = &self.rest[..len];
        let value = match word {
            "null" => Value::Null,
            "true" | "false" => Value::Bool,
            _ => {
                return Err(self.error_at(
                    at,
                    format!("{word:?} is no value; is it a string without quotes?"),
                ));
            }
        };
        (0..len).for_each(|_| _ = self.next());
        Ok(value)
    }

    fn number(&mut self) -> Result<Value, ConfigError> {
        let (at, before) = (self.at, self.rest);
        self.took('-');
        let leading_zero = self.peek() == Some('0');
        let whole = self.digits();
        let mut valid = whole == 1 || whole > 1 && !leading_zero;
        if self.took('.') {
            valid &= self.digits() > 0;
        }
        if self.took('e') || self.took('E') {
            _ = self.took('+') || self.took('-');
            valid &= self.digits() > 0;
        }
        let written = &before[..before.len() - self.rest.len()];
        if !valid {
            return Err(self.error_at(at, format!("{written:?} is no number")));
        }
        Ok(Value::Number(written.to_owned()))
    }

    fn digits(&mut self) -> usize {
        let count = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        (0..count).for_each(|_| _ = self.next());
        count
    }

    fn string(&mut self) -> Result<String, ConfigError> {
        let start = self.at;
        let mut text = String::new();
        self.next();
        loop {
            let at = self.at;
            match self.next() {
                Some('"') => return Ok(text),
                Some('\\') => text.push(self.escape(at)?),
                Some(c) if c >= ' ' => text.push(c),
                Some('\n') | None => {
                    return Err(self.error_at(start, "this string does not end".into()));
                }
                Some(c) => {
                    return Err(self.error_at(
                        at,
                        format!("{c:?} in a string must be written as an escape"),
                    ));
                }
            }
        }
    }

    fn escape(&mut self, at: Place) -> Result<char, ConfigError> {
        match self.next() {
            Some(c @ ('"' | '\\' | '/')) => Ok(c),
            Some('b') => Ok('\u{8}'),
            Some('f') => Ok('\u{c}'),
            Some('n') => Ok('\n'),
            Some('r') => Ok('\r'),
            Some('t') => Ok('\t'),
            Some('u') => self.unicode(at),
            _ => Err(self.error_at(
                at,
                "unknown escape; a backslash itself is written \\\\".into(),
            )),
        }
    }

    /// Four hexadecimal digits, or two times four for a character beyond 16 bits.
    fn unicode(&mut self, at: Place) -> Result<char, ConfigError> {
        let first = self.four_digits(at)?;
        let mut units = vec![first];
        if (0xd800..0xdc00).contains(&first) && self.rest.starts_with("\\u") {
            self.next();
            self.next();
            units.push(self.four_digits(at)?);
        }
        let character = char::decode_utf16(units).next();
        match character {
            Some(Ok(c)) => Ok(c),
            _ => Err(self.error_at(at, "half of a surrogate pair".into())),
        }
    }

    fn four_digits(&mut self, at: Place) -> Result<u16, ConfigError> {
        let digits = self
            .rest
            .get(..4)
            .filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        let Some(digits) = digits else {
            return Err(self.error_at(at, "\\u needs four hexadecimal digits".into()));
        };
        let unit = u16::from_str_radix(digits, 16).unwrap_or(0); // four hexadecimal digits fit
        (0..4).for_each(|_| _ = self.next());
        Ok(unit)
    }
}

/// `File`, `[0]`, `Path` as `File[0].Path`.
pub(super) fn join(parts: &[String]) -> String {
    parts.iter().fold(String::new(), |mut whole, part| {
        if !part.starts_with('[') && !whole.is_empty() {
            whole.push('.');
        }
        whole + part
    })
}

/// A string as JSON writes it.
pub(super) fn quote(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            c if c < ' ' => quoted.push_str(&format!("\\u{:04x}", c as u32)),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn same(ours: &Value, theirs: &serde_json::Value) -> bool {
        use serde_json::Value as V;
        match (ours, theirs) {
            (Value::Null, V::Null) | (Value::Bool, V::Bool(_)) => true,
            (Value::Number(n), V::Number(m)) => n.parse::<f64>().ok() == m.as_f64(),
            (Value::String(s), V::String(t)) => s == t,
            (Value::Array(a), V::Array(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(&a.value, b))
            }
            (Value::Object(a), V::Object(b)) => b.iter().all(|(key, value)| {
                // serde_json keeps the last of two fields of one name
                let ours = a.iter().rfind(|m| m.key == *key);
                ours.is_some_and(|m| same(&m.value.value, value))
            }),
            _ => false,
        }
    }

    fn agree(text: &str) {
        let ours = parse(text);
        let theirs = serde_json::from_str::<serde_json::Value>(text);
        match (&ours, &theirs) {
            (Ok(a), Ok(b)) => assert!(same(&a.value, b), "{text}\n{a:?}\n{b:?}"),
            (Err(_), Err(_)) => {}
            // our numbers are text: one that no f64 can hold is refused later
            (Ok(_), Err(e)) if e.to_string().contains("out of range") => {}
            _ => panic!("{text}\n{ours:?}\n{theirs:?}"),
        }
    }

    /// Pieces of which most texts are nearly JSON.
    fn nearly_json() -> impl Strategy<Value = String> {
        let pieces = [
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"",
            "\"a\"",
            "\"\\u00e9\"",
            "\"\\ud83d\\ude00\"",
            "\"\\ud83d\"",
            "0",
            "-1",
            "01",
            "1.5",
            "1.",
            "2e3",
            "2e",
            "null",
            "true",
            "nul",
            " ",
            "\n",
            "\\",
            "é",
            "\t",
            "\"Path\":",
            "\u{1}",
            "-",
            "[[",
            "{}",
            "[]",
        ];
        prop::collection::vec(prop::sample::select(pieces.to_vec()), 0..12).prop_map(|p| p.concat())
    }

    proptest! {
        #[test]
        fn says_the_same_as_serde_json(text in nearly_json()) {
            agree(&text);
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in "\\PC*") {
            if !text.contains('/') {
                agree(&text);
            }
        }

        #[test]
        fn a_quoted_string_reads_back(text in any::<String>()) {
            let node = parse(&quote(&text)).unwrap();
            prop_assert_eq!(node.value, Value::String(text));
        }
    }

    #[test]
    fn comments_are_blanks() {
        let node = parse("// one\n[1, /* two\n */ 2] // three").unwrap();
        let Value::Array(items) = node.value else {
            panic!()
        };
        assert_eq!(items[1].at, Place { line: 3, column: 5 });
        assert!(parse("[1 /* open").unwrap_err().reason.contains("comment"));
    }

    #[test]
    fn a_deep_text_is_refused_and_does_not_overflow_the_stack() {
        let error = parse(&"[".repeat(1_000_000)).unwrap_err();
        assert!(error.reason.contains("levels"), "{error}");
    }
}
