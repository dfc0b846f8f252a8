//! Which data server has which bytes of a file that a parallel file system keeps: what its extended attributes say, or a
//! person who knows.
//!
//! * [`configured`]: `stripe=1MiB servers=4`, for file systems that do not tell.
//! * [`gluster`]: the bricks that GlusterFS names.
//! * [`lustre`]: the object storage targets of Lustre's layout.
//! * [`ceph`]: the objects of CephFS, whose servers only the cluster's map knows.
//!
//! Each parser takes bytes and gives a [`Layout`]: parts of the file, one behind the other up to its end however far,
//! each with a way to find the server of a byte. None does I/O; [`crate::Located`] reads the attributes.

pub(crate) mod ceph;
pub(crate) mod configured;
mod error;
pub(crate) mod gluster;
pub(crate) mod lustre;

pub use configured::{Configured, First};
pub use error::LayoutError;

use crate::{Piece, Pieces};
use presagio_core::{QueueId, Range};

/// Below that, stripes are no stripes but somebody's mistake, and would shred requests.
pub(crate) const STRIPE_MIN: u64 = 4096;

/// Where the bytes of a file lie, on servers that are known as `S`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout<S> {
    /// Each goes up to its end; the last has none.
    parts: Vec<Part<S>>,
}

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<S> {
    /// The byte of the file behind it.
    pub end: u64,
    /// Who has it.
    pub servers: Servers<S>,
}

/// Who has a part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Servers<S> {
    /// These take turns; stripes are counted from the beginning of the file.
    Turns {
        /// Bytes until it is the next one's turn.
        stripe: u64,
        /// At least one.
        servers: Vec<S>,
    },
    /// Objects whose servers are not said.
    Objects {
        /// Bytes until the next object.
        stripe: u64,
        /// How many objects take turns.
        count: u64,
        /// How many stripes an object has before a new set of objects begins.
        stripes: u64,
    },
    /// Nobody yet, or nobody says.
    Unknown,
}

impl<S> Layout<S> {
    /// A file that is the same all over.
    pub fn whole(servers: Servers<S>) -> Layout<S> {
        let end = u64::MAX;
        let parts = vec![Part { end, servers }];
        Layout { parts }
    }

    /// Parts in the order of the file; what they do not reach is unknown.
    pub fn parts(mut parts: Vec<Part<S>>) -> Layout<S> {
        if parts.last().is_none_or(|part| part.end < u64::MAX) {
            let (end, servers) = (u64::MAX, Servers::Unknown);
            parts.push(Part { end, servers });
        }
        Layout { parts }
    }

    /// The same with other names for the servers.
    pub fn rename<T>(self, mut name: impl FnMut(S) -> T) -> Layout<T> {
        let parts = self.parts.into_iter().map(|part| Part {
            end: part.end,
            servers: part.servers.rename(&mut name),
        });
        let parts = parts.collect();
        Layout { parts }
    }
}

impl<S> Servers<S> {
    fn rename<T>(self, name: impl FnMut(S) -> T) -> Servers<T> {
        match self {
            Servers::Turns { stripe, servers } => {
                let servers = servers.into_iter().map(name).collect();
                Servers::Turns { stripe, servers }
            }
            Servers::Objects {
                stripe,
                count,
                stripes,
            } => Servers::Objects {
                stripe,
                count,
                stripes,
            },
            Servers::Unknown => Servers::Unknown,
        }
    }
}

/// The layout of one file, with queues for its servers.
#[derive(Clone, Debug)]
pub struct Placement {
    layout: Layout<u32>,
    /// Deals out what no layout names: the same for the same file.
    seed: u64,
    /// How many queues there are, not 0.
    servers: u32,
}

/// As many bytes in a row as one server has.
struct Stripe {
    queue: QueueId,
    /// The byte of the file behind them.
    end: u64,
    /// Where the first lies among all that its server has of the file.
    at: u64,
}

impl Placement {
    pub fn new(layout: Layout<u32>, seed: u64, servers: u32) -> Placement {
        Placement {
            layout,
            seed,
            servers: servers.max(1),
        }
    }

    /// Splits a range of the file where another server begins.
    pub fn pieces(&self, range: Range) -> Pieces {
        self.split(range, |start, _| start)
    }

    /// The same, but where the pieces lie on their servers.
    pub fn places(&self, range: Range) -> Pieces {
        self.split(range, |_, stripe| stripe.at)
    }

    fn split(&self, range: Range, place: impl Fn(u64, &Stripe) -> u64) -> Pieces {
        let mut pieces = Pieces::new();
        let mut start = range.start();
        loop {
            let stripe = self.stripe(start);
            let len = stripe.end.min(range.end()) - start;
            add(
                &mut pieces,
                stripe.queue,
                Range::at(place(start, &stripe), len),
            );
            start += len;
            if start >= range.end() {
                return pieces;
            }
        }
    }

    /// The stripe that this byte is in, from there on. It has an end behind it.
    fn stripe(&self, offset: u64) -> Stripe {
        let parts = &self.layout.parts;
        let part = parts.iter().find(|part| offset < part.end);
        // The very last byte that 64 bits can name is in no part.
        let Some(part) = part else {
            return self.anywhere(0, u64::MAX, offset);
        };
        let found = match &part.servers {
            Servers::Turns { stripe, servers } => turn(*stripe, servers, offset),
            Servers::Objects {
                stripe,
                count,
                stripes,
            } => self.object(*stripe, *count, *stripes, offset),
            Servers::Unknown => self.anywhere(0, part.end, offset),
        };
        let end = found.end.min(part.end);
        let queue = QueueId(found.queue.0 % self.servers);
        Stripe {
            queue,
            end,
            ..found
        }
    }

    fn object(&self, stripe: u64, count: u64, stripes: u64, offset: u64) -> Stripe {
        let number = offset / stripe;
        let set = number / count / stripes;
        let object = set.saturating_mul(count).saturating_add(number % count);
        // Alone, an object has all its stripes in a row.
        let last = if count == 1 {
            (set + 1).saturating_mul(stripes)
        } else {
            number + 1
        };
        self.anywhere(object + 1, last.saturating_mul(stripe), offset)
    }

    /// On a server that is as good as any other, but always the same.
    fn anywhere(&self, object: u64, end: u64, offset: u64) -> Stripe {
        let bytes = [self.seed.to_le_bytes(), object.to_le_bytes()].concat();
        let queue = QueueId(number_of(&bytes, self.servers));
        Stripe {
            queue,
            end,
            at: offset,
        }
    }
}

fn turn(stripe: u64, servers: &[u32], offset: u64) -> Stripe {
    if let [only] = servers {
        return Stripe {
            queue: QueueId(*only),
            end: u64::MAX,
            at: offset,
        };
    }
    let (number, rest, turns) = (offset / stripe, offset % stripe, servers.len() as u64);
    Stripe {
        queue: QueueId(servers[(number % turns) as usize]),
        end: (number + 1).saturating_mul(stripe),
        at: number / turns * stripe + rest,
    }
}

/// Pieces that touch on the same server are one.
fn add(pieces: &mut Pieces, queue: QueueId, range: Range) {
    match pieces.last_mut() {
        Some(last) if last.queue == queue && last.range.end() == range.start() => {
            last.range = Range::at(last.range.start(), last.range.len() + range.len());
        }
        _ => pieces.push(Piece {
            object: 0,
            queue,
            range,
        }),
    }
}

/// A number below `servers` that follows from a name.
pub(crate) fn number_of(name: &[u8], servers: u32) -> u32 {
    // The low bits of that hash are weak.
    let hash = crate::text::hash(name);
    ((hash ^ hash >> 32) % u64::from(servers.max(1))) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn turns(stripe: u64, servers: &[u32]) -> Servers<u32> {
        let servers = servers.to_vec();
        Servers::Turns { stripe, servers }
    }

    fn shown(pieces: &Pieces) -> Vec<(u32, u64, u64)> {
        let piece = |piece: &Piece| (piece.queue.0, piece.range.start(), piece.range.len());
        pieces.iter().map(piece).collect()
    }

    #[test]
    fn stripes_take_turns_and_lie_close_together_on_their_server() {
        let placement = Placement::new(Layout::whole(turns(4096, &[2, 0])), 0, 3);
        let range = Range::at(4000, 9000);
        let pieces = shown(&placement.pieces(range));
        assert_eq!(
            pieces,
            [
                (2, 4000, 96),
                (0, 4096, 4096),
                (2, 8192, 4096),
                (0, 12288, 712)
            ]
        );
        let places = shown(&placement.places(range));
        assert_eq!(
            places,
            [(2, 4000, 96), (0, 0, 4096), (2, 4096, 4096), (0, 4096, 712)]
        );
    }

    #[test]
    fn a_server_that_is_alone_has_it_in_one_piece() {
        let placement = Placement::new(Layout::whole(turns(4096, &[1])), 0, 3);
        let pieces = shown(&placement.pieces(Range::at(5, 1 << 40)));
        assert_eq!(pieces, [(1, 5, 1 << 40)]);
    }

    #[test]
    fn parts_follow_each_other() {
        let part = |end, servers| Part { end, servers };
        let parts = vec![
            part(1 << 20, turns(4096, &[0])),
            part(2 << 20, turns(4096, &[1])),
        ];
        let placement = Placement::new(Layout::parts(parts), 7, 2);
        let pieces = shown(&placement.pieces(Range::at(0, 3 << 20)));
        assert_eq!(pieces[..2], [(0, 0, 1 << 20), (1, 1 << 20, pieces[1].2)]);
        let total: u64 = pieces.iter().map(|piece| piece.2).sum();
        assert_eq!(total, 3 << 20);
    }

    #[test]
    fn an_object_is_always_on_the_same_server_and_objects_spread() {
        let objects = Servers::Objects {
            stripe: 4 << 20,
            count: 1,
            stripes: 1,
        };
        let placement = Placement::new(Layout::whole(objects), 7, 4);
        let mut seen = [0; 4];
        for object in 0..100 {
            let inside = Range::at(object * (4 << 20) + 5, 100);
            let pieces = placement.pieces(inside);
            assert_eq!(pieces.len(), 1);
            assert_eq!(pieces, placement.pieces(inside));
            seen[pieces[0].queue.0 as usize] += 1;
        }
        assert!(seen.iter().all(|count| *count > 10), "{seen:?}");
    }

    proptest! {
        #[test]
        fn no_byte_is_lost_and_no_queue_is_made_up(
            ends in prop::collection::btree_set(1_u64..1 << 20, 0..4),
            kinds in prop::collection::vec((0_u8..3, 1_u64..20, 1_u64..5), 5),
            start in prop_oneof![0_u64..1 << 21, u64::MAX - 5000..=u64::MAX],
            len in 0_u64..1 << 18,
            servers in 1_u32..6,
        ) {
            let part = |(end, (kind, stripe, count)): (u64, (u8, u64, u64))| Part {
                end,
                servers: match kind {
                    0 => turns(stripe * 512, &(0..count as u32 + 3).collect::<Vec<_>>()),
                    1 => Servers::Objects { stripe: stripe * 512, count, stripes: 3 },
                    _ => Servers::Unknown,
                },
            };
            let layout = Layout::parts(ends.into_iter().zip(kinds).map(part).collect());
            let placement = Placement::new(layout, 9, servers);
            let range = Range::at(start, len);
            let pieces = placement.pieces(range);
            let mut at = range.start();
            for piece in &pieces {
                prop_assert_eq!(piece.range.start(), at);
                prop_assert!(piece.queue.0 < servers);
                at = piece.range.end();
            }
            prop_assert_eq!(at, range.end());
            let placed: u64 = placement.places(range).iter().map(|piece| piece.range.len()).sum();
            prop_assert_eq!(placed, range.len());
        }
    }
}
