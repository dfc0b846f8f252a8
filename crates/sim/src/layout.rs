//! Where the bytes of a file are: stripes dealt to the data servers in turn.
//!
//! Each server keeps its stripes of a file one behind the other, as a file of its own (thesis 3.2): stripes that are far
//! apart in the file are neighbours there. So whatever is contiguous in the file is contiguous on every server that it
//! touches, and nothing else decides what a server can aggregate.

/// How files lie on servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub stripe: u64,
    pub servers: u32,
    /// Whether the first stripe of a file is on another server than that of the file before.
    pub spread: bool,
}

/// Bytes on a server, in the server's own file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Local {
    pub server: u32,
    pub start: u64,
    pub len: u64,
}

impl Layout {
    /// The server of a stripe.
    fn server_of(&self, file: u32, stripe: u64) -> u32 {
        let shift = if self.spread { u64::from(file) } else { 0 };
        ((stripe + shift) % u64::from(self.servers)) as u32
    }

    /// Where a byte of a file is: its server, and its place there.
    pub(crate) fn place(&self, file: u32, offset: u64) -> (u32, u64) {
        let stripe = offset / self.stripe;
        let row = stripe / u64::from(self.servers);
        let within = offset % self.stripe;
        (self.server_of(file, stripe), row * self.stripe + within)
    }

    /// The bytes of a range on each server that has any of them.
    pub(crate) fn locals(
        self,
        file: u32,
        start: u64,
        len: u64,
    ) -> impl Iterator<Item = Local> + use<> {
        let servers = u64::from(self.servers);
        let (first, last) = (start / self.stripe, (start + len - 1) / self.stripe);
        (first..=last.min(first + servers - 1)).map(move |stripe| {
            let from = start.max(stripe * self.stripe);
            let end_stripe = stripe + (last - stripe) / servers * servers;
            let end = (start + len).min((end_stripe + 1) * self.stripe);
            let (server, local) = self.place(file, from);
            let local_end = self.place(file, end - 1).1 + 1;
            Local {
                server,
                start: local,
                len: local_end - local,
            }
        })
    }

    /// How many bytes a file of this size has on its fullest server.
    pub(crate) fn share(&self, size: u64) -> u64 {
        let rows = size.div_ceil(self.stripe).div_ceil(u64::from(self.servers));
        rows * self.stripe
    }

    /// A range cut where a stripe ends, and then into pieces of at most `most`.
    pub(crate) fn pieces(
        self,
        start: u64,
        len: u64,
        most: u64,
    ) -> impl Iterator<Item = (u64, u64)> {
        let (mut at, end) = (start, start + len);
        std::iter::from_fn(move || {
            let stripe_end = (at / self.stripe + 1) * self.stripe;
            let piece = (end.min(stripe_end) - at).min(most);
            let from = at;
            at += piece;
            (piece > 0).then_some((from, piece))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn distant_stripes_of_one_server_are_neighbours_there() {
        let layout = Layout {
            stripe: 64,
            servers: 4,
            spread: false,
        };
        assert_eq!(layout.place(0, 0), (0, 0));
        assert_eq!(layout.place(0, 64), (1, 0));
        assert_eq!(layout.place(0, 4 * 64 + 5), (0, 69));
        let all: Vec<Local> = layout.locals(0, 0, 8 * 64).collect();
        assert_eq!(all.len(), 4);
        assert!(all.iter().all(|l| (l.start, l.len) == (0, 128)));
    }

    proptest! {
        /// The servers' ranges have exactly the bytes of the file's range, each once.
        #[test]
        fn every_byte_is_in_one_place(
            stripe in 1_u64..40, servers in 1_u32..6, spread in any::<bool>(),
            file in 0_u32..5, start in 0_u64..300, len in 1_u64..300, most in 1_u64..100,
        ) {
            let layout = Layout { stripe, servers, spread };
            let mut expected: Vec<(u32, u64)> = (start..start + len).map(|o| layout.place(file, o)).collect();
            expected.sort_unstable();
            let bytes = |l: Local| (l.start..l.start + l.len).map(move |o| (l.server, o));
            let mut found: Vec<(u32, u64)> = layout.locals(file, start, len).flat_map(bytes).collect();
            found.sort_unstable();
            prop_assert_eq!(&found, &expected);
            let mut next = start;
            for (from, piece) in layout.pieces(start, len, most) {
                prop_assert!(from == next && piece <= most);
                prop_assert_eq!(from / stripe, (from + piece - 1) / stripe);
                next = from + piece;
            }
            prop_assert_eq!(next, start + len);
            prop_assert!(layout.share(start + len) > expected.iter().map(|e| e.1).max().unwrap_or(0));
        }
    }
}
