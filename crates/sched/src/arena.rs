//! Storage that grows by chunks: elements never move and growing never copies, so no insertion pauses.

use std::ops::{Index, IndexMut};

/// The name of nothing, where a 32-bit name is expected.
pub(crate) const NONE: u32 = u32::MAX;

/// A chunked arena: elements are named by 32-bit indices and freed ones are reused.
///
/// `N`, the elements per chunk, is a power of two picked so that a chunk stays below the size at which
/// allocators go to the kernel for each piece.
#[derive(Clone, Debug)]
pub(crate) struct Arena<T, const N: usize> {
    chunks: Vec<Box<[T; N]>>,
    used: u32,
    free: Vec<u32>,
}

impl<T, const N: usize> Default for Arena<T, N> {
    fn default() -> Self {
        assert!(N.is_power_of_two());
        Arena {
            chunks: Vec::new(),
            used: 0,
            free: Vec::new(),
        }
    }
}

impl<T: Clone, const N: usize> Arena<T, N> {
    /// Stores `value` and returns its name.
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if let Some(index) = self.free.pop() {
            self[index] = value;
            return index;
        }
        let index = self.used;
        assert!(index < NONE, "arena is full: 2^32 elements");
        if index as usize / N == self.chunks.len() {
            let chunk = vec![value; N].into_boxed_slice();
            // The slice has N elements, so the conversion cannot fail.
            self.chunks.push(chunk.try_into().ok().expect("N elements"));
        } else {
            self[index] = value;
        }
        self.used += 1;
        index
    }

    /// A freed name with what it last held, if there is one.
    pub(crate) fn reuse(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// Gives `index` back. Its content stays readable until it is reused.
    pub(crate) fn free(&mut self, index: u32) {
        debug_assert!(index < self.used);
        self.free.push(index);
    }

    /// How many names are in use.
    pub(crate) fn live(&self) -> usize {
        self.used as usize - self.free.len()
    }

    /// How many names were ever handed out at the same time.
    pub(crate) fn capacity_used(&self) -> u32 {
        self.used
    }
}

impl<T, const N: usize> Index<u32> for Arena<T, N> {
    type Output = T;
    #[inline]
    fn index(&self, index: u32) -> &T {
        &self.chunks[index as usize / N][index as usize % N]
    }
}

impl<T, const N: usize> IndexMut<u32> for Arena<T, N> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.chunks[index as usize / N][index as usize % N]
    }
}

/// A chunked table: each index up to the highest that was used has a value, the default until it is set.
#[derive(Clone, Debug)]
pub(crate) struct Table<T> {
    chunks: Vec<Box<[T; CHUNK]>>,
}

/// Elements per chunk of a [`Table`].
const CHUNK: usize = 256;

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table { chunks: Vec::new() }
    }
}

impl<T: Default> Table<T> {
    /// The element, if the table reaches so far.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        let chunk = self.chunks.get(index as usize / CHUNK)?;
        Some(&chunk[index as usize % CHUNK])
    }

    /// The element, for change; the table grows to reach it.
    #[inline]
    pub(crate) fn at_mut(&mut self, index: u32) -> &mut T {
        if index as usize / CHUNK < self.chunks.len() {
            return &mut self[index];
        }
        self.reach(index)
    }

    #[cold]
    fn reach(&mut self, index: u32) -> &mut T {
        // Made on the heap, one by one: a whole chunk is too large for a small stack.
        let chunk = || (0..CHUNK).map(|_| T::default()).collect::<Box<[T]>>();
        self.chunks.resize_with(index as usize / CHUNK + 1, || {
            chunk()
                .try_into()
                .ok()
                .expect("as many elements as asked for")
        });
        &mut self[index]
    }

    /// All elements, with their numbers.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        (0..).zip(self.chunks.iter_mut().flat_map(|c| c.iter_mut()))
    }

    /// How many elements there are: all indices below have one.
    pub(crate) fn len(&self) -> u32 {
        (self.chunks.len() * CHUNK) as u32
    }
}

impl<T> Index<u32> for Table<T> {
    type Output = T;
    #[inline]
    fn index(&self, index: u32) -> &T {
        &self.chunks[index as usize / CHUNK][index as usize % CHUNK]
    }
}

impl<T> IndexMut<u32> for Table<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.chunks[index as usize / CHUNK][index as usize % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_reaches_where_it_is_used_and_no_further() {
        let mut table = Table::<u8>::default();
        assert_eq!(table.get(0), None);
        *table.at_mut(300) = 7;
        assert_eq!((table.get(300), table.get(299)), (Some(&7), Some(&0)));
        assert_eq!(table.get(table.len()), None);
        assert_eq!(
            table.iter_mut().find(|(_, v)| **v == 7).map(|f| f.0),
            Some(300)
        );
    }

    #[test]
    fn freed_names_are_reused_and_others_keep_their_value() {
        let mut arena = Arena::<u64, 4>::default();
        let names: Vec<u32> = (0..10).map(|v| arena.insert(v)).collect();
        arena.free(names[3]);
        assert_eq!(arena.insert(33), names[3]);
        assert_eq!(arena.capacity_used(), 10);
        for (v, &name) in names.iter().enumerate().filter(|(v, _)| *v != 3) {
            assert_eq!(arena[name], v as u64);
        }
    }
}
