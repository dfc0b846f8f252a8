//! Which paths are followed: those of the include globs, or all where there are none; never those of the exclude
//! globs, and never the system's own, so that a program that touches no others need not ask the manager at all.
//!
//! In a glob `*` stands for any bytes, slashes too, `?` for one byte, and `[a-z]` or `[!a-z]` for one of a set. The arena
//! carries the globs as text: a line each, `+` or `-` in front.

use crate::layout::header;
use std::fmt;

/// Directories whose files are the system's, not the program's data.
const SYSTEM: [&[u8]; 11] = [
    b"/proc/", b"/sys/", b"/dev/", b"/run/", b"/usr/", b"/lib/", b"/lib64/", b"/etc/", b"/bin/",
    b"/sbin/",
    // Not a directory: how the kernel names memory that has a descriptor.
    b"/memfd:",
];

/// Whether this absolute path lies in one of the system's directories.
#[unsafe(link_section = ".presagio.start")]
pub(crate) fn is_system(path: &[u8]) -> bool {
    SYSTEM.iter().any(|prefix| path.starts_with(prefix))
}

/// The globs of a run, as the text that the arena carries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathFilter {
    text: Vec<u8>,
}

/// All globs together are longer than the arena has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterTooLong {
    /// Their bytes, two more for each of them.
    pub len: usize,
}

impl fmt::Display for FilterTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the patterns of --include and --exclude have {} bytes together, and {} is the most: use fewer or shorter ones",
            self.len,
            header::TEXT_MAX
        )
    }
}

impl std::error::Error for FilterTooLong {}

impl PathFilter {
    /// The filter of these globs.
    pub fn new<'a>(
        include: impl IntoIterator<Item = &'a [u8]>,
        exclude: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<PathFilter, FilterTooLong> {
        let mut text = Vec::new();
        let signed = include
            .into_iter()
            .map(|glob| (b'+', glob))
            .chain(exclude.into_iter().map(|glob| (b'-', glob)));
        for (sign, glob) in signed {
            text.push(sign);
            text.extend_from_slice(glob);
            text.push(b'\n');
        }
        if text.len() > header::TEXT_MAX {
            return Err(FilterTooLong { len: text.len() });
        }
        Ok(PathFilter { text })
    }

    /// Whether a file of this path is followed.
    pub fn follows(&self, path: &[u8]) -> bool {
        follows(self.text.len(), |i| self.text[i], path)
    }

    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }
}

/// Whether a file of this path is followed, by a text that is read byte by byte: a program reads it where it is,
/// since it has nowhere to copy it to.
pub(crate) fn follows(len: usize, text: impl Fn(usize) -> u8, path: &[u8]) -> bool {
    if is_system(path) {
        return false;
    }
    let mut include = None;
    let mut at = 0;
    while at < len {
        let end = (at..len).find(|&i| text(i) == b'\n').unwrap_or(len);
        let hit = at < end && matches(&text, at + 1, end, path);
        match text(at) {
            b'-' if hit => return false,
            b'+' => include = Some(hit || include == Some(true)),
            _ => {}
        }
        at = end + 1;
    }
    include.unwrap_or(true)
}

/// Whether the glob in `text[at..end]` matches all of `path`. After a mismatch only the last `*` takes one byte more,
/// which is enough and takes no stack.
fn matches(text: &impl Fn(usize) -> u8, mut at: usize, end: usize, path: &[u8]) -> bool {
    let mut here = 0;
    let mut star: Option<(usize, usize)> = None;
    while here < path.len() {
        if at < end && text(at) == b'*' {
            star = Some((at + 1, here));
            at += 1;
            continue;
        }
        if at < end
            && let Some(next) = one(text, at, end, path[here])
        {
            at = next;
            here += 1;
            continue;
        }
        let Some((after, from)) = star else {
            return false;
        };
        star = Some((after, from + 1));
        at = after;
        here = from + 1;
    }
    (at..end).all(|i| text(i) == b'*')
}

/// Where the glob goes on if what stands at `at` matches this byte.
fn one(text: &impl Fn(usize) -> u8, at: usize, end: usize, byte: u8) -> Option<usize> {
    match text(at) {
        b'?' => Some(at + 1),
        b'[' => match set(text, at, end, byte) {
            Some((inside, next)) => inside.then_some(next),
            None => (byte == b'[').then_some(at + 1),
        },
        literal => (literal == byte).then_some(at + 1),
    }
}

/// Whether the set that begins at `at` has this byte, and where it ends; `None` if it never ends.
fn set(text: &impl Fn(usize) -> u8, at: usize, end: usize, byte: u8) -> Option<(bool, usize)> {
    let negated = at + 1 < end && matches!(text(at + 1), b'!' | b'^');
    let first = at + 1 + usize::from(negated);
    // A bracket that comes first stands for itself.
    let close = (first + 1..end).find(|&i| text(i) == b']')?;
    let mut inside = false;
    let mut i = first;
    while i < close {
        let low = text(i);
        let is_range = i + 2 < close && text(i + 1) == b'-';
        let high = if is_range { text(i + 2) } else { low };
        inside |= (low..=high).contains(&byte);
        i += if is_range { 3 } else { 1 };
    }
    Some((inside != negated, close + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filter(include: &[&str], exclude: &[&str]) -> PathFilter {
        PathFilter::new(
            include.iter().map(|g| g.as_bytes()),
            exclude.iter().map(|g| g.as_bytes()),
        )
        .unwrap()
    }

    #[test]
    fn without_globs_only_the_systems_files_are_left_out() {
        let filter = PathFilter::default();
        assert!(filter.follows(b"/home/me/data"));
        assert!(filter.follows(b"/opt/set/data"));
        assert!(filter.follows(b"/users/data"));
        for path in [
            "/usr/lib/libc.so.6",
            "/etc/passwd",
            "/proc/self/maps",
            "/dev/shm/x",
            "/memfd:x",
        ] {
            assert!(!filter.follows(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn includes_are_all_that_is_followed_and_excludes_win() {
        let filter = filter(&["*.h5", "/data/*"], &["*/old/*"]);
        assert!(filter.follows(b"/home/me/a.h5"));
        assert!(filter.follows(b"/data/x"));
        assert!(!filter.follows(b"/usr/share/a.h5"));
        assert!(!filter.follows(b"/home/me/a.txt"));
        assert!(!filter.follows(b"/home/old/a.h5"));
    }

    #[test]
    fn globs_mean_what_a_shell_means() {
        let cases: [(&str, &str, bool); 16] = [
            ("*", "/a/b", true),
            ("/a/?", "/a/b", true),
            ("/a/?", "/a/", false),
            ("*.[ch]", "/x/y.c", true),
            ("*.[ch]", "/x/y.o", false),
            ("*.[!ch]", "/x/y.o", true),
            ("/r/[0-9]*", "/r/7x", true),
            ("/r/[0-9]*", "/r/x7", false),
            ("/r/[]]", "/r/]", true),
            ("/r/[a-]", "/r/-", true),
            ("/r/[x", "/r/[x", true),
            ("*a*b*c", "/xaybzc", true),
            ("*a*b*c", "/xaybzcd", false),
            ("", "/a", false),
            ("/a**", "/a", true),
            ("/aa*aab", "/aaaaab", true),
        ];
        for (glob, path, expected) in cases {
            let got = filter(&[glob], &[]).follows(path.as_bytes());
            assert_eq!(got, expected, "{glob} {path}");
        }
    }

    #[test]
    fn too_many_globs_are_refused_with_their_length() {
        let long = vec![b'x'; header::TEXT_MAX];
        let error = PathFilter::new([long.as_slice()], []).unwrap_err();
        assert_eq!(error.len, header::TEXT_MAX + 2);
    }

    proptest! {
        #[test]
        fn any_text_is_read_to_its_end_without_harm(text in proptest::collection::vec(proptest::sample::select(b"+-*?[]!a-z\n/".to_vec()), 0..60), path in "[/a-z\\]\\[]{0,12}") {
            let _ = follows(text.len(), |i| text[i], path.as_bytes());
        }
    }
}
