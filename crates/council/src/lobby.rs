//! Who is at the door: connections that have not said yet whose they are, and how many nodes each user has.
//!
//! Connections that say nothing must not keep nodes out. When there is no room for another, the oldest silent one of those who
//! have most of them goes. So whoever fills the lobby is in the way of nobody else: a node says who it is at once, and comes
//! from where few do.

use presagio_door::{Origin, Peer};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// From whom a connection comes, as far as that is known when it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whence {
    /// A user, of whom the kernel or a credential tells.
    User(u32),
    /// A machine; for IPv6 its network, since a machine has any number of addresses in it.
    Machine(IpAddr),
    /// A process of this machine of which nothing else is known.
    Here,
}

impl Whence {
    pub fn of(peer: &Peer) -> Whence {
        match (peer.proof.uid(), &peer.from) {
            (Some(uid), _) => Whence::User(uid),
            (None, Origin::Tcp(address)) => Whence::Machine(network(address.ip())),
            (None, Origin::Unix { .. }) => Whence::Here,
        }
    }
}

impl fmt::Display for Whence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Whence::User(uid) => write!(f, "uid {uid}"),
            Whence::Machine(address) => write!(f, "{address}"),
            Whence::Here => f.write_str("this machine"),
        }
    }
}

fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

/// A connection: its place, and which of those that had the place.
pub type Who = (usize, u64);

/// See the module's header.
#[derive(Debug, Default)]
pub struct Lobby {
    silent: BTreeMap<Whence, VecDeque<Who>>,
    nodes: BTreeMap<Whence, usize>,
}

impl Lobby {
    /// Somebody has come, and said nothing yet.
    pub fn enter(&mut self, whence: Whence, who: Who) {
        self.silent.entry(whence).or_default().push_back(who);
    }

    /// It is silent no more, or gone.
    pub fn leave(&mut self, whence: Whence, who: Who) {
        let Some(of) = self.silent.get_mut(&whence) else {
            return;
        };
        of.retain(|other| *other != who);
        if of.is_empty() {
            self.silent.remove(&whence);
        }
    }

    /// Who has to go when there is no room; none if nobody is silent.
    pub fn oldest_of_most(&self) -> Option<Who> {
        let most = self.silent.values().max_by_key(|of| of.len());
        most.and_then(|of| of.front().copied())
    }

    /// One more node from there, unless there are so many.
    pub fn admit(&mut self, whence: Whence, max: usize) -> Result<(), String> {
        let count = self.nodes.entry(whence).or_default();
        if *count >= max {
            return Err(format!("{whence} has {count} nodes here already"));
        }
        *count += 1;
        Ok(())
    }

    /// One less.
    pub fn dismiss(&mut self, whence: Whence) {
        if let Some(count) = self.nodes.get_mut(&whence) {
            *count -= 1;
            if *count == 0 {
                self.nodes.remove(&whence);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_fills_the_lobby_makes_room_itself() {
        let mut lobby = Lobby::default();
        let (flood, good) = (Whence::User(7), Whence::User(8));
        lobby.enter(good, (0, 0));
        (1..100).for_each(|at| lobby.enter(flood, (at, at as u64)));
        for at in 1..99 {
            let out = lobby.oldest_of_most().expect("somebody");
            assert_eq!(out.0, at, "the oldest of the flood");
            lobby.leave(flood, out);
        }
        lobby.leave(flood, (99, 99));
        assert_eq!(lobby.oldest_of_most(), Some((0, 0)));
        lobby.leave(good, (0, 0));
        assert_eq!(lobby.oldest_of_most(), None);
        assert!(lobby.silent.is_empty());
    }

    #[test]
    fn each_has_as_many_nodes_as_allowed() {
        let mut lobby = Lobby::default();
        let (one, other) = (Whence::User(7), Whence::Here);
        assert!(lobby.admit(one, 2).is_ok() && lobby.admit(one, 2).is_ok());
        let why = lobby.admit(one, 2).expect_err("two");
        assert_eq!(why, "uid 7 has 2 nodes here already");
        assert!(lobby.admit(other, 2).is_ok());
        lobby.dismiss(one);
        assert!(lobby.admit(one, 2).is_ok());
        (0..2).for_each(|_| lobby.dismiss(one));
        lobby.dismiss(other);
        assert!(lobby.nodes.is_empty());
    }

    #[test]
    fn addresses_of_one_network_are_one_machine() {
        let of = |text: &str| network(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
