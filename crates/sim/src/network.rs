//! The network: every machine has a link of the same speed each way, and between any two there is a latency.
//!
//! A message leaves when the sender's link is free, takes its time on it, travels, and occupies the receiver's link for as
//! long; then one of the receiver's handlers takes it in. Links and handlers are promised to messages in the order of
//! sending, so that a message is one event however many it waits behind. Jitter comes on top and may let messages overtake.

use crate::random::Random;

/// One end of a link.
#[derive(Clone, Debug, Default)]
pub(crate) struct End {
    out_free: u64,
    in_free: u64,
    /// When each handler is free again.
    handlers: Vec<u64>,
    /// How long one takes for a message.
    handling: u64,
}

impl End {
    pub(crate) fn new(handlers: u32, handling: u64) -> End {
        let handlers = if handling == 0 { 0 } else { handlers };
        End {
            handlers: vec![0; handlers as usize],
            handling,
            ..End::default()
        }
    }

    /// When a message that arrives at `moment` has been taken in.
    #[inline]
    fn handle(&mut self, moment: u64) -> u64 {
        let Some(free) = self.handlers.iter_mut().min() else {
            return moment;
        };
        *free = moment.max(*free) + self.handling;
        *free
    }
}

/// What the network is like.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub latency: u64,
    pub jitter: u64,
    pub header: u64,
    /// What a byte takes, in millionths of a nanosecond.
    fs_per_byte: u64,
    random: Random,
}

impl Network {
    pub(crate) fn new(
        latency: u64,
        jitter: u64,
        header: u64,
        bandwidth: u64,
        seed: u64,
    ) -> Network {
        Network {
            latency,
            jitter,
            header,
            fs_per_byte: 1_000_000_000_000_000 / bandwidth.max(1),
            random: Random::new(seed, 1),
        }
    }

    /// Sends a message with so many bytes of data at `now`: when the receiver has it.
    #[inline]
    pub(crate) fn send(&mut self, bytes: u64, from: &mut End, to: &mut End, now: u64) -> u64 {
        let takes = (bytes + self.header).saturating_mul(self.fs_per_byte) / 1_000_000;
        let sent = now.max(from.out_free) + takes;
        from.out_free = sent;
        let received = (sent + self.latency).max(to.in_free + takes);
        to.in_free = received;
        let delay = if self.jitter == 0 {
            0
        } else {
            self.random.below(self.jitter + 1)
        };
        to.handle(received + delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(jitter: u64) -> Network {
        Network::new(50_000, jitter, 0, 1_000_000_000, 7)
    }

    #[test]
    fn a_message_alone_takes_latency_and_transfer() {
        let (mut a, mut b) = (End::default(), End::default());
        let arrived = network(0).send(1_000_000, &mut a, &mut b, 100);
        assert_eq!(arrived, 100 + 1_000_000 + 50_000);
    }

    #[test]
    fn two_senders_share_the_link_of_the_receiver() {
        let (mut a, mut b, mut c) = (End::default(), End::default(), End::default());
        let mut network = network(0);
        let first = network.send(1_000_000, &mut a, &mut c, 0);
        let second = network.send(1_000_000, &mut b, &mut c, 0);
        assert_eq!(second - first, 1_000_000);
    }

    #[test]
    fn jitter_only_delays_and_never_more_than_it_may() {
        let mut network = network(1000);
        for _ in 0..1000 {
            let (mut a, mut b) = (End::default(), End::default());
            let arrived = network.send(0, &mut a, &mut b, 0);
            assert!((50_000..=51_000).contains(&arrived));
        }
    }

    #[test]
    fn messages_wait_for_a_handler() {
        let (mut a, mut b) = (End::default(), End::new(2, 10_000));
        let mut network = network(0);
        let taken = [0; 3].map(|_| network.send(0, &mut a, &mut b, 0));
        assert_eq!(taken, [60_000, 60_000, 70_000]);
    }
}
