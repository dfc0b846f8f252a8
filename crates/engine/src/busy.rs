//! For how long there was something to do: what a service is judged by, since bytes by the clock say more about those who
//! ask than about who serves.

use presagio_core::Nanos;

/// Time during which something was queued or in service. Times come in order.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    since: Option<Nanos>,
    total: Nanos,
}

impl Busy {
    /// There is something to do.
    #[inline]
    pub(crate) fn begins(&mut self, now: Nanos) {
        self.since.get_or_insert(now);
    }

    /// There is nothing more to do.
    #[inline]
    pub(crate) fn ends(&mut self, now: Nanos) {
        if let Some(since) = self.since.take() {
            self.total += now.since(since);
        }
    }

    /// All of it, up to `now`.
    pub(crate) fn total(&self, now: Nanos) -> Nanos {
        let open = self.since.map_or(Nanos::ZERO, |since| now.since(since));
        self.total + open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_while_there_is_something_to_do() {
        let mut busy = Busy::default();
        busy.ends(Nanos(5));
        assert_eq!(busy.total(Nanos(10)), Nanos::ZERO);
        busy.begins(Nanos(10));
        busy.begins(Nanos(12));
        assert_eq!(busy.total(Nanos(15)), Nanos(5));
        busy.ends(Nanos(20));
        assert_eq!(busy.total(Nanos(90)), Nanos(10));
        busy.begins(Nanos(100));
        assert_eq!(busy.total(Nanos(101)), Nanos(11));
    }
}
