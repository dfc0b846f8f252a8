//! Things in flight, named by small numbers. Places are used again, so that a run at a steady pace allocates nothing.

use std::ops::{Index, IndexMut};

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab {
            places: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    /// Keeps a thing; its number.
    #[inline]
    pub(crate) fn insert(&mut self, thing: T) -> u32 {
        if let Some(number) = self.free.pop() {
            self.places[number as usize] = thing;
            return number;
        }
        self.places.push(thing);
        (self.places.len() - 1) as u32
    }

    /// Gives the place of a thing to another.
    #[inline]
    pub(crate) fn free(&mut self, number: u32) {
        self.free.push(number);
    }

    /// How many there are.
    pub(crate) fn live(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;
    #[inline]
    fn index(&self, number: u32) -> &T {
        &self.places[number as usize]
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut T {
        &mut self.places[number as usize]
    }
}
