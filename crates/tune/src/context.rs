//! In which situation was something tried? Each has a bandit of its own.
//!
//! By default a context is what paper 001 lists (IV-A): data servers, I/O nodes, clients, processes, operation, the class of
//! access and the size of requests; and, because the reward is a bandwidth, how busy the node was. Counts and sizes are
//! taken by their powers of two: what was learned with 100 processes serves with 120. The alternative is a pattern of the
//! knowledge base (`presagio-pattern`).
//!
//! ```text
//! key of a context in a store      byte 0  1 2 3 4 5 6 7 8
//!   a situation                         1  servers, I/O nodes, clients, processes, operation, access, size, load
//!   a pattern                           2  its number, 4 bytes, little endian
//! ```

use presagio_core::Op;
use std::fmt;

/// How processes share files, and what one of them does in its file (paper 001, V).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// Each process has a file, and goes through it.
    OwnFiles,
    /// A file for all, each process with a part of it.
    SharedContiguous,
    /// A file for all, whose processes take turns in it (1-D strided).
    SharedStrided,
}

impl Access {
    /// All of them.
    pub const ALL: [Access; 3] = [
        Access::OwnFiles,
        Access::SharedContiguous,
        Access::SharedStrided,
    ];

    /// As texts have it.
    pub const fn name(self) -> &'static str {
        match self {
            Access::OwnFiles => "own-files",
            Access::SharedContiguous => "shared-contiguous",
            Access::SharedStrided => "shared-strided",
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How much of the period something was to be done. A node with little to do has a low bandwidth whatever its arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Load {
    /// Below a third of the time.
    Light,
    /// Below nine tenths.
    Half,
    /// Nearly always.
    Full,
}

impl Load {
    /// The load of a share of time, from 0 to 1.
    pub fn of(busy: f64) -> Load {
        match busy {
            share if share < 1.0 / 3.0 => Load::Light,
            share if share < 0.9 => Load::Half,
            _ => Load::Full,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Load::Light => "light",
            Load::Half => "half",
            Load::Full => "full",
        }
    }
}

/// A count or a size, by the power of two that is nearest on a logarithmic scale; nothing is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Magnitude(u8);

impl Magnitude {
    /// Of a number.
    pub fn of(number: u64) -> Magnitude {
        let Some(power) = number.checked_ilog2() else {
            return Magnitude(0);
        };
        // The border between two powers is at √2 of the lower one: compare squares, in whole numbers.
        let square = u128::from(number) * u128::from(number);
        let is_above = square > 1 << (2 * power + 1);
        Magnitude(1 + power as u8 + u8::from(is_above))
    }

    /// The power of two that it stands for; 0 for nothing.
    pub fn number(self) -> u64 {
        match self.0 {
            0 => 0,
            bits => 1_u64.checked_shl(u32::from(bits) - 1).unwrap_or(u64::MAX),
        }
    }

    /// How many powers of two lie between.
    pub fn steps_to(self, other: Magnitude) -> u32 {
        self.0.abs_diff(other.0).into()
    }
}

impl fmt::Display for Magnitude {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number().fmt(f)
    }
}

/// What paper 001 lists, and the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Situation {
    /// Data servers that are accessed.
    pub servers: Magnitude,
    /// I/O nodes in use.
    pub ionodes: Magnitude,
    /// Clients: machines.
    pub clients: Magnitude,
    /// Processes.
    pub processes: Magnitude,
    /// What is mostly done.
    pub op: Op,
    /// How files are accessed.
    pub access: Access,
    /// Bytes of a request, on average.
    pub size: Magnitude,
    /// How busy the node was.
    pub load: Load,
}

/// See the module's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Context {
    /// What can be counted.
    Situation(Situation),
    /// A pattern of the knowledge base, by its number.
    Pattern(u32),
}

impl Context {
    /// The same with another number of I/O nodes. A pattern has none.
    pub fn through(self, ionodes: u32) -> Context {
        match self {
            Context::Situation(situation) => Context::Situation(Situation {
                ionodes: Magnitude::of(ionodes.into()),
                ..situation
            }),
            pattern @ Context::Pattern(_) => pattern,
        }
    }

    /// Whether it is what can be counted.
    pub fn is_situation(&self) -> bool {
        matches!(self, Context::Situation(_))
    }

    /// Its key in a store.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Context::Situation(it) => {
                let counts = [it.servers.0, it.ionodes.0, it.clients.0, it.processes.0];
                let rest = [it.op as u8, it.access as u8, it.size.0, it.load as u8];
                [&[1], &counts[..], &rest[..]].concat()
            }
            Context::Pattern(number) => [&[2], &number.to_le_bytes()[..]].concat(),
        }
    }

    /// The context of a key; none if it is no key of one.
    pub fn decode(key: &[u8]) -> Option<Context> {
        match key {
            [2, number @ ..] => {
                let number = u32::from_le_bytes(number.try_into().ok()?);
                Some(Context::Pattern(number))
            }
            [1, s, i, c, p, op, access, size, load] => {
                let magnitude = |bits: &u8| (*bits <= 65).then_some(Magnitude(*bits));
                Some(Context::Situation(Situation {
                    servers: magnitude(s)?,
                    ionodes: magnitude(i)?,
                    clients: magnitude(c)?,
                    processes: magnitude(p)?,
                    op: *Op::ALL.get(usize::from(*op))?,
                    access: *Access::ALL.get(usize::from(*access))?,
                    size: magnitude(size)?,
                    load: *[Load::Light, Load::Half, Load::Full].get(usize::from(*load))?,
                }))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Context::Pattern(number) => write!(f, "pattern {number}"),
            Context::Situation(it) => write!(
                f,
                "{} {} of {} B by {} processes on {} clients through {} I/O nodes to {} servers, {} load",
                it.access,
                it.op,
                it.size,
                it.processes,
                it.clients,
                it.ionodes,
                it.servers,
                it.load.name(),
            ),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn contexts() -> impl Strategy<Value = Context> {
        let magnitude = || any::<u64>().prop_map(Magnitude::of);
        let counts = (
            magnitude(),
            magnitude(),
            magnitude(),
            magnitude(),
            magnitude(),
        );
        let kinds = (0_usize..2, 0_usize..3, 0.0..1.0);
        let situation = (counts, kinds).prop_map(|(counts, (op, access, busy))| {
            let (servers, ionodes, clients, processes, size) = counts;
            Context::Situation(Situation {
                servers,
                ionodes,
                clients,
                processes,
                op: Op::ALL[op],
                access: Access::ALL[access],
                size,
                load: Load::of(busy),
            })
        });
        prop_oneof![situation, any::<u32>().prop_map(Context::Pattern)]
    }

    #[test]
    fn a_number_goes_to_the_nearest_power_of_two() {
        let powers = [
            (0, 0),
            (1, 1),
            (2, 2),
            (3, 4),
            (100, 128),
            (90, 64),
            (91, 128),
            (32 << 10, 32 << 10),
            (33 << 10, 32 << 10),
        ];
        for (number, power) in powers {
            assert_eq!(Magnitude::of(number).number(), power, "{number}");
        }
        assert_eq!(Magnitude::of(u64::MAX).number(), u64::MAX);
    }

    proptest! {
        #[test]
        fn every_context_has_one_key(a in contexts(), b in contexts()) {
            prop_assert_eq!(Context::decode(&a.encode()), Some(a));
            prop_assert_eq!(a.encode() == b.encode(), a == b);
        }

        #[test]
        fn no_key_is_taken_for_what_it_is_not(key in prop::collection::vec(any::<u8>(), 0..12)) {
            if let Some(context) = Context::decode(&key) {
                prop_assert_eq!(context.encode(), key);
            }
        }
    }
}
