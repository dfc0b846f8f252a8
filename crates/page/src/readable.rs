//! Names, sizes and times as a person reads them; `tools.js` writes sizes, times, counts and shares in the same way (`tests/figures.json`).
//!
//! Names come from whoever recorded a trace or started a node, and are any bytes. What a person sees of them is one line of text without
//! anything that could change how the text around it looks: what is no UTF-8, control characters, and characters that turn
//! the direction of writing or cannot be seen are shown as escapes.

/// Longer names are shortened in the middle.
const NAME_CHARS_MAX: usize = 400;

/// A name as one line of harmless text.
pub fn name(bytes: &[u8]) -> String {
    shortened(whole(bytes))
}

/// A sentence with names in it, as one line of harmless text, however long it is.
pub fn sentence(text: &str) -> String {
    whole(text.as_bytes())
}

fn whole(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        chunk.valid().chars().for_each(|c| push(&mut out, c));
        chunk
            .invalid()
            .iter()
            .for_each(|byte| out.push_str(&format!("\\x{byte:02x}")));
    }
    out
}

fn push(out: &mut String, c: char) {
    match c {
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\t' => out.push_str("\\t"),
        c if c.is_control() || is_unseen(c) => out.push_str(&format!("\\u{{{:x}}}", c as u32)),
        c => out.push(c),
    }
}

/// Text in which nothing can change how a terminal shows what is around it; for text that should be harmless already.
pub fn without_controls(text: &str) -> String {
    let harmless = |c: char| match c.is_control() || is_unseen(c) {
        true => char::REPLACEMENT_CHARACTER,
        false => c,
    };
    text.chars().map(harmless).collect()
}

/// Characters without a shape of their own that change what is beside them.
fn is_unseen(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

fn shortened(text: String) -> String {
    let chars = text.chars().count();
    if chars <= NAME_CHARS_MAX {
        return text;
    }
    let half = NAME_CHARS_MAX / 2;
    let begin: String = text.chars().take(half).collect();
    let end: String = text.chars().skip(chars - half).collect();
    format!("{begin} … {end}")
}

/// What stands behind the last slash.
pub fn last_part(name: &str) -> &str {
    let trimmed = name.trim_end_matches('/');
    match trimmed.rsplit('/').next() {
        Some(part) if !part.is_empty() => part,
        _ => name,
    }
}

/// Bytes with the unit that a person would pick.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes as f64;
    let mut unit = None;
    for name in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = Some(name);
    }
    match unit {
        None if bytes == 1 => "1 byte".to_owned(),
        None => format!("{bytes} bytes"),
        Some(unit) => format!("{} {unit}", digits(value)),
    }
}

/// A span of time.
pub fn span(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        0..1_000 => format!("{} ns", digits(value)),
        1_000..1_000_000 => format!("{} µs", digits(value / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", digits(value / 1e6)),
        1_000_000_000..120_000_000_000 => format!("{} s", digits(value / 1e9)),
        120_000_000_000..7_200_000_000_000 => format!("{} min", digits(value / 6e10)),
        _ => format!("{} h", digits(value / 3.6e12)),
    }
}

/// How many times, which may be two and a half.
pub fn times(value: f64) -> String {
    digits(value)
}

/// Three digits of a number, and no zeros behind the point that say nothing.
fn digits(value: f64) -> String {
    let places = match value {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    let text = rounded(value, places);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// So many places behind the point. Halves go up, as in `tools.js`: both pages and terminals show one figure in one way.
fn rounded(value: f64, places: usize) -> String {
    let scale = [1.0, 10.0, 100.0][places];
    format!("{:.places$}", (value * scale).round() / scale)
}

/// A name with each number in it as `#`: files that are numbered through have this in common.
pub fn family(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        match c.is_ascii_digit() {
            true if out.ends_with('#') => {}
            true => out.push('#'),
            false => out.push(c),
        }
    }
    out
}

/// A share from 0 to 1, in percent.
pub fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    match percent {
        p if p == 0.0 || p >= 99.95 || (9.95..99.0).contains(&p) => format!("{} %", rounded(p, 0)),
        p => format!("{} %", rounded(p, 1)),
    }
}

/// `1 file`, `2 files`.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        n => format!("{} {many}", grouped(n)),
    }
}

/// A number with its digits in groups of three.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_could_deceive_is_shown_as_an_escape() {
        assert_eq!(name(b"a\nb\xff\"<script>"), "a\\nb\\xff\"<script>");
        assert_eq!(name("\u{202e}gpj.exe".as_bytes()), "\\u{202e}gpj.exe");
        assert_eq!(name(b"C:\\x"), "C:\\\\x");
        assert_eq!(name("grüße/日本".as_bytes()), "grüße/日本");
        assert_eq!(name(&[b'x'; 5000]).chars().count(), NAME_CHARS_MAX + 3);
    }

    #[test]
    fn a_sentence_keeps_all_its_words() {
        let long = format!("/d/\u{1b}[2J: {}", "x".repeat(5000));
        let shown = sentence(&long);
        assert!(shown.starts_with("/d/\\u{1b}[2J: x"), "{shown}");
        assert!(shown.ends_with(&"x".repeat(5000)));
    }

    #[test]
    fn a_terminal_is_told_nothing() {
        assert_eq!(
            without_controls("a\u{1b}[2J\u{9b}31m\u{202e}b"),
            "a\u{fffd}[2J\u{fffd}31m\u{fffd}b"
        );
    }

    #[test]
    fn names_are_cut_and_counted() {
        assert_eq!(counted(1, "file", "files"), "1 file");
        assert_eq!(family("/d2/ckpt.0012.h5"), "/d#/ckpt.#.h#");
        assert_eq!((last_part("/a/b"), last_part("/")), ("b", "/"));
    }

    proptest! {
        #[test]
        fn no_name_has_more_than_one_line(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let name = name(&bytes);
            prop_assert!(!name.chars().any(|c| c.is_control() || is_unseen(c)));
        }
    }
}
