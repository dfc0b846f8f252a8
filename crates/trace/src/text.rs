//! Names and call stacks as text, for formats of columns. Both lead back to what they were made from.

use crate::Frame;
use std::fmt::Write;
use std::sync::Arc;

/// A file's name as UTF-8: a byte that is not, becomes `\xNN`; a backslash becomes two.
pub(crate) fn name_to_text(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for part in chunk.valid().split_inclusive('\\') {
            text.push_str(part);
            if part.ends_with('\\') {
                text.push('\\');
            }
        }
        for byte in chunk.invalid() {
            // Writing into a string cannot fail.
            let _ = write!(text, "\\x{byte:02X}");
        }
    }
    text
}

/// The name that a text stands for. A backslash that begins no escape stands for itself.
pub(crate) fn name_from_text(text: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        name.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        match rest {
            [b'\\', ..] => {
                name.push(b'\\');
                rest = &rest[1..];
            }
            [b'x', high, low, ..] if hex(&[*high, *low]).is_some() => {
                name.extend(hex(&rest[1..3]).map(|byte| byte as u8));
                rest = &rest[3..];
            }
            _ => name.push(b'\\'),
        }
    }
    name.extend_from_slice(rest);
    name
}

/// A call stack: `module+0xoffset(symbol)` for each frame, innermost first, separated by `;`. A backslash stands
/// before whatever of `\+(;)` is part of a module's or symbol's name.
pub(crate) fn stack_to_text(frames: &[Frame]) -> String {
    let mut text = String::new();
    for (at, frame) in frames.iter().enumerate() {
        if at > 0 {
            text.push(';');
        }
        push_guarded(&mut text, &frame.module);
        let _ = write!(text, "+0x{:x}", frame.offset);
        if let Some(symbol) = &frame.symbol {
            text.push('(');
            push_guarded(&mut text, symbol);
            text.push(')');
        }
    }
    text
}

fn push_guarded(text: &mut String, name: &str) {
    for c in name.chars() {
        if matches!(c, '\\' | '+' | '(' | ';' | ')') {
            text.push('\\');
        }
        text.push(c);
    }
}

/// The call stack that a text stands for, unless it stands for none.
pub(crate) fn stack_from_text(text: &str) -> Option<Vec<Frame>> {
    let mut frames = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let frame = take_frame(&mut rest)?;
        frames.push(frame);
        match rest.strip_prefix(';') {
            // A separator has something behind it.
            Some("") => return None,
            Some(behind) => rest = behind,
            None if rest.is_empty() => {}
            None => return None,
        }
    }
    Some(frames)
}

fn take_frame(rest: &mut &str) -> Option<Frame> {
    let module = take_guarded(rest, '+')?;
    *rest = rest.strip_prefix("+0x")?;
    let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
    let offset = hex(&rest.as_bytes()[..digits])?;
    *rest = &rest[digits..];
    let mut symbol = None;
    if let Some(inside) = rest.strip_prefix('(') {
        *rest = inside;
        symbol = Some(Arc::from(take_guarded(rest, ')')?));
        *rest = &rest[1..];
    }
    let module = module.into();
    Some(Frame {
        module,
        offset,
        symbol,
    })
}

/// The text up to `end`, which stays.
fn take_guarded(rest: &mut &str, end: char) -> Option<String> {
    let mut name = String::new();
    let mut chars = rest.char_indices();
    while let Some((at, c)) = chars.next() {
        if c == end {
            *rest = &rest[at..];
            return Some(name);
        }
        match c {
            '\\' => name.push(chars.next()?.1),
            c => name.push(c),
        }
    }
    None
}

fn hex(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0, |number, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(number << 4 | u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategies::{frames, name};
    use proptest::prelude::*;

    #[test]
    fn names_and_stacks_read_like_themselves() {
        assert_eq!(name_to_text(b"/a b/c"), "/a b/c");
        assert_eq!(name_to_text(b"a\\\xFFb"), "a\\\\\\xFFb");
        let frame = |module: &str, offset, symbol: Option<&str>| Frame {
            module: module.into(),
            offset,
            symbol: symbol.map(Arc::from),
        };
        let frames = [frame("libc.so", 0x1A, Some("write")), frame("a+b", 0, None)];
        assert_eq!(stack_to_text(&frames), "libc.so+0x1a(write);a\\+b+0x0");
    }

    #[test]
    fn what_is_no_stack_is_refused() {
        for bad in [
            "a",
            "a+1",
            "a+0x",
            "a+0x1(b",
            "a+0x1;",
            ";",
            "a+0x1b(c)d",
            "a+0x11111111111111111",
            "\\",
        ] {
            assert_eq!(stack_from_text(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn names_come_back(name in name()) {
            prop_assert_eq!(&name_from_text(name_to_text(&name).as_bytes())[..], &name[..]);
        }

        #[test]
        fn stacks_come_back(frames in frames()) {
            prop_assert_eq!(stack_from_text(&stack_to_text(&frames)), Some(frames));
        }

        #[test]
        fn any_text_is_a_name_and_perhaps_a_stack(bytes: Vec<u8>, text: String) {
            name_from_text(&bytes);
            stack_from_text(&text);
        }
    }
}
