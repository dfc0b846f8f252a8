//! Ranges of bytes that locks are of, and what is left of one when another takes its place.

/// Bytes from `start` up to and without `end`; `u64::MAX` is the end of all files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first byte.
    pub start: u64,
    /// The first byte that is not in it.
    pub end: u64,
}

impl Span {
    /// The whole file, however long it becomes.
    pub const ALL: Span = Span {
        start: 0,
        end: u64::MAX,
    };

    /// How the protocol says its length: 0 for "to the end".
    pub fn length(self) -> u64 {
        match self.end {
            u64::MAX => 0,
            end => end - self.start,
        }
    }

    /// Whether there are bytes in both.
    pub fn overlaps(self, other: Span) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// What lies before and behind one that overlaps it: a lock of an owner replaces what it had there, as POSIX has it.
    pub fn without(self, other: Span) -> impl Iterator<Item = Span> {
        let before = Span {
            start: self.start,
            end: other.start,
        };
        let behind = Span {
            start: other.end,
            end: self.end,
        };
        [before, behind]
            .into_iter()
            .filter(|left| left.start < left.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(span: Span) -> Vec<u64> {
        (0..40)
            .filter(|at| span.start <= *at && *at < span.end)
            .collect()
    }

    proptest! {
        #[test]
        fn what_is_left_are_the_bytes_that_the_other_does_not_have(
            (start, len) in (0u64..20, 1u64..20),
            (from, count) in (0u64..20, 1u64..20),
            endless in any::<(bool, bool)>(),
        ) {
            let end = |end, endless| if endless { u64::MAX } else { end };
            let one = Span { start, end: end(start + len, endless.0) };
            let other = Span { start: from, end: end(from + count, endless.1) };
            let both = bytes(one).into_iter().any(|at| bytes(other).contains(&at));
            prop_assert_eq!(one.overlaps(other), both);
            prop_assume!(both);
            let left: Vec<u64> = one.without(other).flat_map(bytes).collect();
            let expected: Vec<u64> = bytes(one)
                .into_iter()
                .filter(|at| !bytes(other).contains(at))
                .collect();
            prop_assert_eq!(left, expected);
            prop_assert_eq!(one.length() == 0, endless.0);
        }
    }
}
