//! How wide the output may be, and prose that keeps to it.

use rustix::termios::tcgetwinsize;
use std::io;

/// Where nobody knows better.
const USUAL_WIDTH: usize = 80;

/// Longer lines of prose are hard to read, however wide the window.
const PROSE_WIDTH_MAX: usize = 100;

/// Columns of the terminal: what `COLUMNS` says, or else stdout's terminal, or else 80.
pub fn width() -> usize {
    let said = std::env::var("COLUMNS").ok();
    let said = said
        .and_then(|columns| columns.parse().ok())
        .filter(|w| *w > 0);
    said.or_else(window_width).unwrap_or(USUAL_WIDTH)
}

/// The width of stdout's window; a terminal that does not know it says 0.
fn window_width() -> Option<usize> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|width| *width > 0)
}

/// `text`, broken between words so that it can be read in this terminal.
pub fn prose(text: &str) -> String {
    wrapped(text, width().min(PROSE_WIDTH_MAX))
}

/// A line break in `text` stays one. A word that is wider than `width` gets a line of its own.
fn wrapped(text: &str, width: usize) -> String {
    let lines: Vec<String> = text.lines().flat_map(|line| broken(line, width)).collect();
    lines.join("\n")
}

fn broken(line: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in line.split(' ').filter(|word| !word.is_empty()) {
        let last = lines.len() - 1;
        let needed = lines[last].chars().count() + 1 + word.chars().count();
        if lines[last].is_empty() {
            lines[last].push_str(word);
        } else if needed <= width {
            lines[last].push(' ');
            lines[last].push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// `1 client`, `64 clients`.
pub fn counted(count: u64, thing: &str) -> String {
    match count {
        1 => format!("1 {thing}"),
        _ => format!("{count} {thing}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_breaks_between_words_and_keeps_its_own_breaks() {
        assert_eq!(wrapped("one two three\nfour", 8), "one two\nthree\nfour");
        assert_eq!(wrapped("a longerthanall b", 6), "a\nlongerthanall\nb");
        assert_eq!(wrapped("5 × x", 5), "5 × x", "characters count, not bytes");
        assert_eq!(wrapped("", 8), "");
    }

    #[test]
    fn one_is_singular() {
        assert_eq!(counted(1, "client"), "1 client");
        assert_eq!(counted(64, "client"), "64 clients");
    }
}
