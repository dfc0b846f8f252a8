//! The syntax of one line: who, when, which call, its arguments, and what came of it.
//!
//! ```text
//! 4711  1700000000.123456 openat(AT_FDCWD</home/me>, "x", O_RDONLY) = 3</home/me/x> <0.000012>
//! [pid  4711] 1700000000.123456 read(3</home/me/x>,  <unfinished ...>
//! 1700000000.123999 <... read resumed>"abc", 100) = 3 <0.000543>
//! ```

use super::errno;
use crate::input::{number, shown};
use presagio_core::Nanos;

/// Advice for what looks like the program's own output.
const RECORD: &str = "record with: strace -f -ttt -T -y -o FILE PROGRAM";

/// Who wrote a line: nobody says, the process that strace was started with, or one of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Unsaid,
    Task(u32),
}

/// A line that matters.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub(super) who: Who,
    /// Since 1970.
    pub(super) time: Nanos,
    pub(super) body: Body<'a>,
}

/// What a line tells.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Body<'a> {
    /// A call; `text` is all after its parenthesis.
    Call { name: &'a [u8], text: &'a [u8] },
    /// A call that has not returned yet.
    Unfinished { name: &'a [u8], text: &'a [u8] },
    /// The same, but strace's own remark ended the line; the next goes on without saying for whom.
    Torn { name: &'a [u8], text: &'a [u8] },
    /// The rest of such a call.
    Resumed { name: &'a [u8], text: &'a [u8] },
    /// The task is gone.
    Exited,
    /// A signal, or something else without a file.
    Nothing,
}

/// Parses a line; `None` if it is one of strace's own remarks.
pub(super) fn parse(line: &[u8]) -> Result<Option<Line<'_>>, String> {
    let line = line.trim_ascii();
    let remark = line.starts_with(b"strace: ") || line.starts_with(b"[ Process PID=");
    if line.is_empty() || remark || line == b"<unfinished ...>" {
        return Ok(None);
    }
    let (who, rest) = who(line);
    let (time, rest) = time(rest).ok_or_else(|| foreign(line))?;
    let body = body(rest.trim_ascii_start()).ok_or_else(|| foreign(line))?;
    Ok(Some(Line { who, time, body }))
}

fn foreign(line: &[u8]) -> String {
    format!(
        "{} is no line of strace with a time. Without -ttt there is no time, and without -o the program's own \
         output gets in between; {RECORD}",
        shown(line)
    )
}

/// The complaint about a call whose line stops too early.
pub(super) fn broken(name: &[u8]) -> String {
    format!(
        "the line of {} is not complete: the file is cut short, or the program's own output got in between; \
         {RECORD}",
        shown(name)
    )
}

fn who(line: &[u8]) -> (Who, &[u8]) {
    let bracketed = line.strip_prefix(b"[pid ").map(<[u8]>::trim_ascii_start);
    let text = bracketed.unwrap_or(line);
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let Some(task) = number(&text[..digits]).and_then(|n| u32::try_from(n).ok()) else {
        return (Who::Unsaid, line);
    };
    let mut rest = &text[digits..];
    // With --decode-pids=comm the name of the task follows.
    if rest.first() == Some(&b'<')
        && let Some(end) = annotation_end(rest)
    {
        rest = &rest[end..];
    }
    let rest = match bracketed {
        Some(_) => rest.strip_prefix(b"]"),
        None => rest.first().is_some_and(|&b| b == b' ').then_some(rest),
    };
    match rest {
        Some(rest) => (Who::Task(task), rest.trim_ascii_start()),
        None => (Who::Unsaid, line),
    }
}

/// Seconds and their fraction.
fn time(text: &[u8]) -> Option<(Nanos, &[u8])> {
    let end = text.iter().position(|&b| b == b' ')?;
    Some((seconds(&text[..end])?, &text[end..]))
}

fn seconds(text: &[u8]) -> Option<Nanos> {
    let dot = text.iter().position(|&b| b == b'.')?;
    let fraction = &text[dot + 1..];
    if fraction.len() > 9 {
        return None;
    }
    let scale = 10u64.pow(9 - fraction.len() as u32);
    let nanos = number(fraction)? * scale;
    let whole = number(&text[..dot])?.checked_mul(1_000_000_000)?;
    whole.checked_add(nanos).map(Nanos)
}

fn body(text: &[u8]) -> Option<Body<'_>> {
    if let Some(rest) = text.strip_prefix(b"+++ ") {
        // A leader that was superseded goes on under its number.
        let gone = rest.starts_with(b"exited") || rest.starts_with(b"killed");
        return Some(if gone { Body::Exited } else { Body::Nothing });
    }
    if text.starts_with(b"--- ") {
        return Some(Body::Nothing);
    }
    if let Some(rest) = text.strip_prefix(b"<... ") {
        let end = memchr::memmem::find(rest, b" resumed>")?;
        let name = &rest[..end];
        let text = &rest[end + b" resumed>".len()..];
        return Some(Body::Resumed { name, text });
    }
    let named = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_' || *b == b'?';
    let end = text.iter().position(|b| !named(b))?;
    if end == 0 || text[end] != b'(' {
        return None;
    }
    let (name, text) = (&text[..end], &text[end + 1..]);
    for mark in [&b"<unfinished ...>"[..], b"<detached ...>"] {
        if let Some(text) = text.strip_suffix(mark) {
            return Some(Body::Unfinished { name, text });
        }
    }
    match torn(text) {
        Some(text) => Some(Body::Torn { name, text }),
        None => Some(Body::Call { name, text }),
    }
}

/// On a terminal strace puts in between that it has attached a task; what stands before that.
fn torn(text: &[u8]) -> Option<&[u8]> {
    let rest = text.strip_suffix(b" attached")?;
    let at = memchr::memmem::rfind(rest, b"strace: Process ")?;
    let task = &rest[at + b"strace: Process ".len()..];
    number(task).map(|_| &text[..at])
}

/// The arguments of a call and what came of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Call<'a> {
    pub(super) arguments: Vec<&'a [u8]>,
    pub(super) outcome: Outcome<'a>,
}

/// What came of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outcome<'a> {
    /// The value, or the error number; `None` if it never returned, or is going to be restarted.
    pub(super) value: Option<Result<i64, i64>>,
    /// The value as it is written, with the path that follows a descriptor.
    pub(super) text: &'a [u8],
    pub(super) duration: Nanos,
}

impl<'a> Call<'a> {
    /// Takes apart what follows the parenthesis of a call; `None` if it is not complete.
    pub(super) fn parse(text: &'a [u8]) -> Option<Call<'a>> {
        let (arguments, rest) = arguments(text)?;
        let outcome = outcome(rest)?;
        Some(Call { arguments, outcome })
    }

    pub(super) fn argument(&self, i: usize) -> &'a [u8] {
        self.arguments.get(i).copied().unwrap_or_default()
    }
}

/// Splits at the commas outside of everything, up to the closing parenthesis.
fn arguments(text: &[u8]) -> Option<(Vec<&[u8]>, &[u8])> {
    let mut arguments = Vec::with_capacity(6);
    let (mut at, mut begin, mut depth) = (0, 0, 0u32);
    loop {
        match *text.get(at)? {
            b'"' => at += string_end(&text[at..])?,
            b'<' if at > 0 && text[at - 1].is_ascii_alphanumeric() => {
                at += annotation_end(&text[at..])?;
            }
            b'/' if text[at..].starts_with(b"/*") => {
                at += memchr::memmem::find(&text[at..], b"*/")? + 2;
            }
            b')' | b',' if depth == 0 => {
                arguments.push(text[begin..at].trim_ascii());
                at += 1;
                begin = at;
                if text[at - 1] == b')' {
                    return Some((arguments, &text[at..]));
                }
            }
            byte => {
                match byte {
                    b'(' | b'[' | b'{' => depth += 1,
                    b')' | b']' | b'}' => depth = depth.checked_sub(1)?,
                    _ => {}
                }
                at += 1;
            }
        }
    }
}

/// Behind the closing quote of the string that begins here.
fn string_end(text: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match text.get(at)? {
            b'\\' => at += 2,
            b'"' => return Some(at + 1),
            _ => at += 1,
        }
    }
}

/// Behind the `>` that closes the annotation which begins here.
///
/// Newer versions escape `<` and `>` in names; in older ones, and in what -yy adds, they are nested or loose.
fn annotation_end(text: &[u8]) -> Option<usize> {
    let mut depth = 0u32;
    let mut loose = None;
    for (at, &byte) in text.iter().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' if may_end(text, at) => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
                loose = loose.or(Some(at + 1));
            }
            _ => {}
        }
    }
    loose
}

/// What can follow an annotation.
fn may_end(text: &[u8], at: usize) -> bool {
    let next = text.get(at + 1);
    next.is_none_or(|b| b",) ]}>|".contains(b)) || text[at + 1..].starts_with(b"(deleted)")
}

fn outcome(rest: &[u8]) -> Option<Outcome<'_>> {
    let text = rest.trim_ascii().strip_prefix(b"= ")?;
    let (text, duration) = duration(text);
    let word = text.split(|&b| b == b' ').next().unwrap_or_default();
    let value = match word {
        b"?" => None,
        b"-1" => Some(match errno::number(second_word(text)) {
            Some(errno) => Err(errno),
            None => Ok(-1),
        }),
        _ => Some(Ok(integer(word)?)),
    };
    Some(Outcome {
        value,
        text,
        duration,
    })
}

/// Cuts off the time that the call took.
fn duration(text: &[u8]) -> (&[u8], Nanos) {
    let cut = || {
        let inner = text.strip_suffix(b">")?;
        let at = memchr::memrchr(b'<', inner)?;
        let duration = seconds(&inner[at + 1..])?;
        Some((text[..at].trim_ascii_end(), duration))
    };
    cut().unwrap_or((text, Nanos::ZERO))
}

fn second_word(text: &[u8]) -> &[u8] {
    text.split(|&b| b == b' ').nth(1).unwrap_or_default()
}

/// The number that `text` begins with: decimal or hexadecimal, and nothing but an annotation behind it.
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    if let Some(digits) = text.strip_prefix(b"0x") {
        let digits = std::str::from_utf8(digits).ok()?;
        return u64::from_str_radix(digits, 16).ok().map(|n| n as i64);
    }
    let (negative, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let end = digits.iter().take_while(|b| b.is_ascii_digit()).count();
    if !matches!(digits.get(end), None | Some(b'<')) {
        return None;
    }
    let value = i64::try_from(number(&digits[..end])?).ok()?;
    Some(if negative { -value } else { value })
}

/// What a descriptor refers to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// strace was not asked (-y).
    Unsaid,
    /// A file with a path.
    Path(Vec<u8>),
    /// A pipe, a socket, a device: nothing that has a position.
    Other,
}

/// The path that -y writes behind a descriptor, in `4</a/b>`.
pub(super) fn target(text: &[u8]) -> Target {
    let Some(begin) = text.iter().position(|&b| b == b'<') else {
        return Target::Unsaid;
    };
    let Some(end) = annotation_end(&text[begin..]) else {
        return Target::Other;
    };
    let mut name = &text[begin + 1..begin + end - 1];
    // -yy says more about devices: </dev/null<char 1:3>>.
    if let Some(device) = memchr::memmem::rfind(name, b"<char ") {
        if name[device..].ends_with(b">") {
            return Target::Other;
        }
    } else if let Some(device) = memchr::memmem::rfind(name, b"<block ") {
        name = &name[..device];
    }
    let mut path = unescape(name);
    if path.ends_with(b" (deleted)") {
        path.truncate(path.len() - b" (deleted)".len());
    }
    match path.starts_with(b"/") && is_file(&path) {
        true => Target::Path(path),
        false => Target::Other,
    }
}

/// Paths that no storage stands behind.
pub(super) fn is_file(path: &[u8]) -> bool {
    const TREES: [&[u8]; 6] = [
        b"/proc/",
        b"/sys/",
        b"/dev/pts/",
        b"/dev/fd/",
        b"/dev/input/",
        b"/memfd:",
    ];
    const DEVICES: [&[u8]; 10] = [
        b"null", b"zero", b"full", b"random", b"urandom", b"tty", b"ptmx", b"console", b"stdin",
        b"kmsg",
    ];
    let device = path
        .strip_prefix(b"/dev/")
        .is_some_and(|name| DEVICES.contains(&name));
    !device && !TREES.iter().any(|tree| path.starts_with(tree))
}

/// The text of the string that `argument` is; `None` if it is none (an address, or NULL).
pub(super) fn string(argument: &[u8]) -> Option<Vec<u8>> {
    if argument.first() != Some(&b'"') {
        return None;
    }
    let end = string_end(argument)?;
    Some(unescape(&argument[1..end - 1]))
}

/// What follows the string that begins here.
pub(super) fn after_string(text: &[u8]) -> Option<&[u8]> {
    string_end(text).map(|end| &text[end..])
}

/// Undoes the escapes of C.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        if byte != b'\\' {
            out.push(byte);
            at += 1;
            continue;
        }
        let (byte, used) = escape(&text[at + 1..]);
        out.push(byte);
        at += 1 + used;
    }
    out
}

/// The byte that the escape stands for, and how many bytes it took.
fn escape(text: &[u8]) -> (u8, usize) {
    let Some(&first) = text.first() else {
        return (b'\\', 0);
    };
    let digits = |from: usize, most: usize, radix: u32| {
        let is_digit = |b: &&u8| char::from(**b).is_digit(radix);
        let n = text[from..].iter().take(most).take_while(is_digit).count();
        let value = |sum: u32, &b: &u8| sum * radix + char::from(b).to_digit(radix).unwrap_or(0);
        (text[from..from + n].iter().fold(0, value) as u8, from + n)
    };
    match first {
        b'0'..=b'7' => digits(0, 3, 8),
        b'x' => digits(1, 2, 16),
        b'n' => (b'\n', 1),
        b't' => (b'\t', 1),
        b'r' => (b'\r', 1),
        b'v' => (0x0b, 1),
        b'f' => (0x0c, 1),
        b'a' => (0x07, 1),
        b'b' => (0x08, 1),
        other => (other, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(line: &str) -> Call<'_> {
        let Body::Call { text, .. } = parse(line.as_bytes()).unwrap().unwrap().body else {
            panic!("{line}");
        };
        Call::parse(text).unwrap()
    }

    #[test]
    fn who_and_when_are_found_in_every_form() {
        let parsed = |line: &'static str| {
            let line = parse(line.as_bytes()).unwrap().unwrap();
            (line.who, line.time)
        };
        let when = Nanos(1_700_000_000_123_456_000);
        let expected = (Who::Task(42), when);
        assert_eq!(parsed("42    1700000000.123456 sync() = 0"), expected);
        assert_eq!(parsed("[pid    42] 1700000000.123456 sync() = 0"), expected);
        assert_eq!(
            parsed("[pid 42<a <b>] 1700000000.123456 sync() = 0"),
            expected
        );
        assert_eq!(parsed("42<sh> 1700000000.123456 sync() = 0"), expected);
        assert_eq!(parsed("1700000000.123456 sync() = 0"), (Who::Unsaid, when));
    }

    #[test]
    fn commas_and_parentheses_in_names_and_data_do_not_split_arguments() {
        let call = call(
            r#"1.0 writev(3</a, (b) \74c\76>(deleted), [{iov_base="x), \"y", iov_len=3}], 1 /* ), */) = 3 <0.000007>"#,
        );
        assert_eq!(call.arguments.len(), 3);
        assert_eq!(
            target(call.argument(0)),
            Target::Path(b"/a, (b) <c>".to_vec())
        );
        assert_eq!(call.outcome.value, Some(Ok(3)));
        assert_eq!(call.outcome.duration, Nanos(7000));
    }

    #[test]
    fn annotations_end_where_they_should_in_old_and_new_versions() {
        let path = |text: &str| target(text.as_bytes());
        let is = |p: &[u8]| Target::Path(p.to_vec());
        assert_eq!(path("3</a<b>c>"), is(b"/a<b>c"));
        assert_eq!(path("3</a>b>"), is(b"/a>b"));
        assert_eq!(path("3</a<b>"), is(b"/a<b"));
        assert_eq!(path("3</a (deleted)>"), is(b"/a"));
        assert_eq!(path("3</dev/sda<block 8:0>>"), is(b"/dev/sda"));
        assert_eq!(path("3</dev/null<char 1:3>>"), Target::Other);
        assert_eq!(path("3<TCP:[1.2.3.4:5->6.7.8.9:1]>"), Target::Other);
        assert_eq!(path("3<pipe:[77]>"), Target::Other);
        assert_eq!(path("3<anon_inode:[eventfd]>"), Target::Other);
        assert_eq!(path("3</dev/null>"), Target::Other);
        assert_eq!(path("3"), Target::Unsaid);
        let call = call("1.0 dup2(3</a>b>, 4</c<d>) = 4</c<d> <0.1>");
        assert_eq!(call.arguments, [b"3</a>b>", b"4</c<d>"]);
    }

    #[test]
    fn escapes_are_undone() {
        let text = br#""\0\12\1233\xff\x4\t\\\"\e"..."#;
        assert_eq!(string(text).unwrap(), b"\0\x0aS3\xff\x04\t\\\"e");
        assert_eq!(string(b"NULL"), None);
        assert_eq!(string(b"\"open"), None);
    }

    #[test]
    fn outcomes_are_values_errors_or_nothing() {
        let value = |line: &str| call(line).outcome.value;
        assert_eq!(
            value("1.0 mmap(NULL) = 0x7f0000001000 <0.1>"),
            Some(Ok(0x7f00_0000_1000))
        );
        assert_eq!(
            value("1.0 read(3) = -1 EINTR (Interrupted system call) <0.1>"),
            Some(Err(4))
        );
        assert_eq!(
            value("1.0 read(3) = ? ERESTARTSYS (To be restarted if SA_RESTART is set)"),
            None
        );
        assert_eq!(value("1.0 exit_group(0)      = ?"), None);
        assert_eq!(value("1.0 open(\"x\") = 3</x> <0.1>"), Some(Ok(3)));
    }

    #[test]
    fn incomplete_calls_are_not_taken_for_complete_ones() {
        for text in [
            "3, \"abc",
            "3, ",
            "3)",
            "3) = ",
            "3) = x",
            "3</a",
            "3, [1)",
            "3 /* x) = 3",
        ] {
            assert_eq!(Call::parse(text.as_bytes()), None, "{text}");
        }
    }
}
