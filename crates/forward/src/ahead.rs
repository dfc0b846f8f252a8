//! What a model expects of one program, held against what then happens: which of it has to be told to a node, and
//! whether that is worth while.
//!
//! The coming requests are told in their order, some at a time: more when half of them have come, others when the model
//! has changed its mind. Where too little comes true, nothing is told until that is better; what is expected is held
//! against what happens all the same.

use std::collections::VecDeque;

/// Requests that may be left out where one comes that was expected later.
const SKIP_MAX: usize = 8;
/// How much of what was expected has to come: before anything is known, to begin telling, and to go on.
const FIRST: f64 = 0.75;
const BEGIN: f64 = 0.6;
const GO_ON: f64 = 0.5;
/// What one request counts for in that.
const WEIGHT: f64 = 1.0 / 16.0;

/// See the module's header.
#[derive(Clone, Debug)]
pub struct Ahead<T> {
    /// The coming requests, and whether they were told.
    coming: VecDeque<(T, bool)>,
    /// How much of it has come true lately.
    right: f64,
    tells: bool,
}

impl<T> Default for Ahead<T> {
    fn default() -> Ahead<T> {
        Ahead {
            coming: VecDeque::new(),
            right: FIRST,
            tells: true,
        }
    }
}

impl<T: Copy + PartialEq> Ahead<T> {
    /// Requests that are told ahead, at most.
    pub const MAX: usize = 32;

    /// Whether what is expected is told, because enough of it has come lately.
    pub fn tells(&self) -> bool {
        self.tells
    }

    /// Whether half of what was expected has come: it is time to ask the model again.
    pub fn is_low(&self) -> bool {
        self.coming.len() < Self::MAX / 2
    }

    fn judge(&mut self, came: bool) {
        let target = if came { 1.0 } else { 0.0 };
        self.right += (target - self.right) * WEIGHT;
        self.tells = self.right >= if self.tells { GO_ON } else { BEGIN };
    }

    /// Something happened: whether it was expected, and told.
    pub fn happened(&mut self, request: &T) -> Option<bool> {
        if self.coming.is_empty() {
            return None;
        }
        let near = self.coming.iter().take(SKIP_MAX);
        let place = near.map(|(it, _)| it).position(|it| it == request);
        for _ in 0..place.unwrap_or(1) {
            self.judge(false);
        }
        let place = place?;
        self.judge(true);
        let gone = self.coming.drain(..=place).next_back();
        gone.map(|(_, told)| told)
    }

    /// A model expects this from now on. What of it has to be told, if anything: from which request on. That may have been
    /// told before, and then says where the others go on.
    pub fn renew(&mut self, expected: &[T]) -> Option<usize> {
        let both = self.coming.iter().zip(expected);
        let same = both.take_while(|(known, new)| known.0 == **new).count();
        if same >= expected.len().min(Self::MAX / 2) {
            return None;
        }
        self.coming.truncate(same);
        let anchor = same.checked_sub(1).filter(|last| self.coming[*last].1);
        let tells = self.tells;
        if tells {
            self.coming.iter_mut().for_each(|(_, told)| *told = true);
        }
        let new = expected[same..].iter().take(Self::MAX - same);
        self.coming.extend(new.map(|request| (*request, tells)));
        tells.then_some(anchor.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = Ahead::<u64>::MAX;

    fn blocks(range: std::ops::Range<u64>) -> Vec<u64> {
        range.collect()
    }

    #[test]
    fn what_was_told_is_told_once_and_more_when_half_of_it_has_come() {
        let mut ahead = Ahead::default();
        assert_eq!(ahead.renew(&blocks(0..100)), Some(0));
        assert_eq!(ahead.coming.len(), MAX);
        for block in 0..MAX as u64 / 2 {
            assert_eq!(ahead.renew(&blocks(block..block + 100)), None);
            assert_eq!(ahead.happened(&block), Some(true));
        }
        assert!(!ahead.is_low());
        let from = MAX as u64 / 2;
        assert_eq!(ahead.happened(&from), Some(true));
        assert!(ahead.is_low());
        let rest = MAX / 2 - 1;
        assert_eq!(ahead.renew(&blocks(from + 1..200)), Some(rest - 1));
    }

    #[test]
    fn a_model_that_changes_its_mind_is_followed_from_where_it_did() {
        let mut ahead = Ahead::default();
        ahead.renew(&blocks(0..100));
        let mut other = blocks(0..4);
        other.extend(500..600);
        assert_eq!(ahead.renew(&other), Some(3));
        assert_eq!(ahead.coming[4].0, 500);
        assert_eq!(ahead.renew(&blocks(700..800)), Some(0));
    }

    #[test]
    fn who_is_wrong_tells_no_more_until_it_is_right_again() {
        let (mut ahead, mut block) = (Ahead::default(), 0);
        while ahead.tells() {
            ahead.renew(&blocks(block + 1000..block + 1100));
            assert_eq!(ahead.happened(&block), None);
            block += 1;
        }
        assert!(block < 10, "{block}");
        for _ in 0..16 {
            ahead.renew(&blocks(block..block + 100));
            ahead.happened(&block);
            block += 1;
        }
        assert!(ahead.tells());
        ahead.coming.truncate(1);
        let expected = blocks(block..block + 100);
        assert_eq!(ahead.renew(&expected), Some(0), "nothing was told yet");
    }
}
