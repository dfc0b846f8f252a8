//! How messages come into a server that does not take in more of a file while it serves that file.
//!
//! One thread takes messages in, one after the other. While a batch of a file is in service, the first message for that file
//! has to wait until it is done, and all behind it, whatever they ask for, wait with it. AGIOS was so when thesis 4.1
//! was measured: aIOLi held the lock of a file's queue until its batch was served, and whoever added a request needed it.

use std::collections::VecDeque;

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// Messages in the order of their arrival. The thread has the first of them.
    waiting: VecDeque<u32>,
    /// What is in service, and its file.
    serving: Option<(u32, u32)>,
    /// Whether the first was handled, and waits for the end of that.
    held: bool,
}

impl Gate {
    /// A message arrives. Whether the thread had nothing to do.
    pub(crate) fn arrive(&mut self, message: u32) -> bool {
        self.waiting.push_back(message);
        self.waiting.len() == 1
    }

    /// What the thread has.
    pub(crate) fn first(&self) -> Option<u32> {
        self.waiting.front().copied()
    }

    /// The first has been handled. It, unless its file is in service: then it waits for the end of that.
    pub(crate) fn let_in(&mut self, file_of: impl Fn(u32) -> u32) -> Option<u32> {
        let file = file_of(self.first()?);
        self.held = self.serving.is_some_and(|(_, serving)| serving == file);
        if self.held {
            return None;
        }
        self.waiting.pop_front()
    }

    /// A job for this file is in service.
    pub(crate) fn close(&mut self, job: u32, file: u32) {
        self.serving = Some((job, file));
    }

    /// A job has been served. Whether a message was held back by it.
    pub(crate) fn open(&mut self, job: u32) -> bool {
        if self.serving.is_none_or(|(serving, _)| serving != job) {
            return false;
        }
        self.serving = None;
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file of a message: its number by tens.
    fn file(message: u32) -> u32 {
        message / 10
    }

    #[test]
    fn a_message_for_the_file_in_service_holds_back_all_behind_it_until_that_is_done() {
        let mut gate = Gate::default();
        gate.close(7, 1);
        assert!(gate.arrive(20));
        assert!(!gate.arrive(11), "the thread is busy");
        assert!(!gate.arrive(21));
        assert_eq!(gate.let_in(file), Some(20));
        assert_eq!(gate.let_in(file), None, "its file is in service");
        assert!(!gate.open(8), "another job");
        assert!(gate.open(7));
        assert_eq!(gate.let_in(file), Some(11));
        assert_eq!(gate.let_in(file), Some(21));
        assert_eq!(gate.first(), None);
    }

    #[test]
    fn nothing_is_held_back_by_other_files() {
        let mut gate = Gate::default();
        gate.close(7, 1);
        gate.arrive(30);
        assert_eq!(gate.let_in(file), Some(30));
        assert!(!gate.open(7));
    }
}
