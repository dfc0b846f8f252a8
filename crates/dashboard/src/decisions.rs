//! What was decided lately, for people: a decision that says the same as the one before it, for the same node, is counted and not
//! listed again. (The log of a council has every one.)
//!
//! A service hands in what it has ([`Decided`]); texts are made of it only when somebody looks.

use crate::Decision;
use std::collections::VecDeque;
use std::sync::Arc;

/// Decisions that are listed.
const LISTED: usize = 240;

/// Something that was decided.
pub trait Decided {
    /// For which node.
    fn node(&self) -> &str;

    /// When: milliseconds since 1970.
    fn at_ms(&self) -> u64;

    /// Whether it says what `earlier` says.
    fn repeats(&self, earlier: &Self) -> bool;

    /// For people; what is counted here need not be filled in.
    fn shown(&self) -> Decision;
}

impl<T: Decided> Decided for Arc<T> {
    fn node(&self) -> &str {
        T::node(self)
    }

    fn at_ms(&self) -> u64 {
        T::at_ms(self)
    }

    fn repeats(&self, earlier: &Self) -> bool {
        T::repeats(self, earlier)
    }

    fn shown(&self) -> Decision {
        T::shown(self)
    }
}

impl Decided for Decision {
    fn node(&self) -> &str {
        &self.node
    }

    fn at_ms(&self) -> u64 {
        self.at_ms
    }

    fn repeats(&self, earlier: &Decision) -> bool {
        fn said(it: &Decision) -> (&str, &Option<String>, &Option<String>, &str, &str) {
            (&it.chosen, &it.own, &it.context, &it.by, &it.why)
        }
        said(self) == said(earlier)
    }

    fn shown(&self) -> Decision {
        self.clone()
    }
}

#[derive(Clone, Debug)]
struct Entry<D> {
    id: u64,
    revision: u64,
    times: u64,
    first: D,
    /// The last of those that said the same.
    last: Option<D>,
}

impl<D: Decided> Entry<D> {
    fn last(&self) -> &D {
        self.last.as_ref().unwrap_or(&self.first)
    }

    fn shown(&self) -> Decision {
        let first = self.first.shown();
        let last = self.last.as_ref().map(D::shown);
        let mut shown = last.unwrap_or_else(|| first.clone());
        (shown.id, shown.revision, shown.times) = (self.id, self.revision, self.times);
        shown.last_ms = shown.at_ms.max(first.at_ms);
        shown.at_ms = first.at_ms;
        shown.before = first.before;
        shown.harmless()
    }
}

/// See the module's header.
#[derive(Clone, Debug)]
pub struct Decisions<D> {
    list: VecDeque<Entry<D>>,
    ids: u64,
    revision: u64,
}

impl<D: Decided> Default for Decisions<D> {
    fn default() -> Self {
        Decisions {
            list: VecDeque::new(),
            ids: 0,
            revision: 0,
        }
    }
}

impl<D: Decided> Decisions<D> {
    /// One more. Says whether it is news.
    pub fn add(&mut self, decision: D) -> bool {
        self.revision += 1;
        let mut newest = self.list.iter_mut().rev();
        let before = newest.find(|it| it.first.node() == decision.node());
        if let Some(before) = before.filter(|it| decision.repeats(it.last())) {
            before.revision = self.revision;
            before.times += 1;
            before.last = Some(decision);
            return false;
        }
        self.ids += 1;
        if self.list.len() == LISTED {
            self.list.pop_front();
        }
        self.list.push_back(Entry {
            id: self.ids,
            revision: self.revision,
            times: 1,
            first: decision,
            last: None,
        });
        true
    }

    /// All of them, the newest first.
    pub fn list(&self) -> Vec<Decision> {
        self.list.iter().rev().map(Entry::shown).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(at_ms: u64, node: &str, chosen: &str) -> Decision {
        Decision {
            at_ms,
            node: node.to_owned(),
            before: Some(format!("before {at_ms}")),
            chosen: chosen.to_owned(),
            evidence: [("at".to_owned(), at_ms.into())].into_iter().collect(),
            ..Decision::default()
        }
    }

    #[test]
    fn what_is_said_again_is_counted_whoever_speaks_between() {
        let mut all = Decisions::default();
        let said = [
            (1, "a", "SJF"),
            (2, "b", "TO"),
            (3, "a", "SJF"),
            (4, "a", "TO"),
            (5, "b", "TO"),
        ];
        let add = |(at, node, chosen)| all.add(decision(at, node, chosen));
        let news: Vec<bool> = said.into_iter().map(add).collect();
        assert_eq!(news, [true, true, false, true, false]);
        let list = all.list();
        let times: Vec<(u64, u64, u64)> = list
            .iter()
            .map(|it| (it.at_ms, it.last_ms, it.times))
            .collect();
        assert_eq!(times, [(4, 4, 1), (2, 5, 2), (1, 3, 2)]);
        assert_eq!(list.iter().map(|it| it.revision).max(), Some(5));
        assert_eq!(list[1].before.as_deref(), Some("before 2"), "of the first");
        assert_eq!(list[1].evidence["at"], 5, "of the last");
    }

    #[test]
    fn names_are_harmless_and_the_list_is_bounded() {
        let mut all = Decisions::default();
        for at in 0..2000 {
            all.add(decision(at, "\u{1b}[31m\n<b>", &format!("arm {at}")));
        }
        let list = all.list();
        assert_eq!(list.len(), LISTED);
        assert_eq!(list[0].node, "\\u{1b}[31m\\n<b>");
        assert_eq!(list[0].chosen, "arm 1999");
    }
}
