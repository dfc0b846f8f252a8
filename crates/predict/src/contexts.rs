//! Which symbol an operation is.
//!
//! Where the call stack is known, it is the symbol, together with what was done: the program does the same thing
//! there each time (§3.1). Where it is not, we tell operations apart by what can be seen: what was done, how
//! much, and where in relation to the last access.

use presagio_core::{Action, ContextId, Event, IdHashMap};

/// What makes operations the same symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// The call stack, by a number that is the same in every run, or a description of what was seen.
    pub origin: u64,
    pub action: Action,
    pub failed: bool,
}

/// Where an access lies in relation to the last one, for operations without a call stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    /// Where the last one of this file ended.
    Consecutive,
    Forward,
    Backward,
    /// In another file than the last one.
    OtherFile,
    /// In a file that was not seen before.
    NewFile,
}

/// No symbol has this number.
pub(crate) const NO_SYMBOL: u32 = u32::MAX;

/// The first class of sizes that are told apart; those below it are powers of two.
const CLASSES: usize = 128;

/// Sizes that are told apart; beyond, by their power of two.
const SIZES_MAX: usize = 32;

/// Numbers for what operations are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Symbols {
    numbers: IdHashMap<Key, u32>,
    keys: Vec<Key>,
    /// Call stacks by the number that their recording gave them.
    stacks: IdHashMap<u32, u64>,
    /// Sizes that are told apart, by action; each is a class.
    sizes: [Vec<u64>; Action::ALL.len()],
}

impl Symbols {
    /// Says what a recording means by a context: a number that is the same in every run of the program.
    pub(crate) fn name_context(&mut self, context: ContextId, stack: u64) {
        self.stacks.insert(context.0, stack);
    }

    /// The symbol of an operation, a new one if it is new. It is found sooner if it is the one that is expected.
    pub(crate) fn symbol(
        &mut self,
        event: &Event,
        expected: u32,
        relation: impl FnOnce() -> Relation,
    ) -> u32 {
        let origin = match event.context {
            ContextId::UNKNOWN => self.seen(event, expected, relation()),
            context => self.stack(context),
        };
        let key = Key {
            origin,
            action: event.action,
            failed: event.result < 0,
        };
        match self.keys.get(expected as usize) {
            Some(known) if *known == key => expected,
            _ => self.number(key),
        }
    }

    /// The number of a key, a new one if it is new.
    pub(crate) fn number(&mut self, key: Key) -> u32 {
        let fresh = self.keys.len() as u32;
        let number = *self.numbers.entry(key).or_insert(fresh);
        if number == fresh {
            self.keys.push(key);
        }
        number
    }

    /// All keys, by number.
    pub(crate) fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// The sizes that are told apart, in the order in which they came.
    pub(crate) fn sizes(&self) -> Vec<(Action, u64)> {
        let by_action = Action::ALL.into_iter().zip(&self.sizes);
        by_action
            .flat_map(|(action, sizes)| sizes.iter().map(move |len| (action, *len)))
            .collect()
    }

    /// What a symbol does.
    pub(crate) fn action(&self, symbol: u32) -> Action {
        self.keys[symbol as usize].action
    }

    /// Bytes of memory beyond itself.
    pub(crate) fn memory(&self) -> usize {
        self.numbers.capacity() * (size_of::<(Key, u32)>() + 1)
            + self.keys.capacity() * size_of::<Key>()
            + self.stacks.capacity() * (size_of::<(u32, u64)>() + 1)
            + self
                .sizes
                .iter()
                .map(|s| s.capacity() * size_of::<u64>())
                .sum::<usize>()
    }

    /// How many symbols there are.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    fn stack(&self, context: ContextId) -> u64 {
        let named = self.stacks.get(&context.0).copied();
        // Without a name its own number will do, and the top bit keeps it apart from descriptions.
        named.unwrap_or(u64::from(context.0)) | 1 << 63
    }

    /// A description of what can be seen, in 63 bits.
    fn seen(&mut self, event: &Event, expected: u32, relation: Relation) -> u64 {
        let size = match event.action.is_transfer() {
            true => self
                .expected_class(event, expected)
                .unwrap_or_else(|| self.size_class(event.action, event.len)),
            false => 0,
        };
        u64::from(size) << 8 | relation as u64
    }

    /// The class of the expected symbol's size, if it is the size of this operation.
    fn expected_class(&self, event: &Event, expected: u32) -> Option<u32> {
        let class = (self.keys.get(expected as usize)?.origin >> 8) as usize;
        let size = self.sizes[event.action as usize].get(class.checked_sub(CLASSES)?)?;
        (*size == event.len).then_some(class as u32)
    }

    /// The class of a size, a new one as long as there is room.
    pub(crate) fn size_class(&mut self, action: Action, len: u64) -> u32 {
        let known = &mut self.sizes[action as usize];
        let class = match known.iter().position(|size| *size == len) {
            Some(at) => CLASSES + at,
            None if known.len() < SIZES_MAX => {
                known.push(len);
                CLASSES + known.len() - 1
            }
            None => 64 - len.leading_zeros() as usize,
        };
        class as u32
    }
}
