//! Where in a file bytes were moved, and when: a map of offset and time.

use crate::axis::Axis;
use presagio_core::{Action, Event};

/// Columns, the time, and rows, the place.
pub(crate) const COLUMNS: usize = 120;
pub(crate) const ROWS: usize = 48;

/// The map of one file.
#[derive(Debug)]
pub(crate) struct Heat {
    /// Bytes of each row.
    pub row_bytes: u64,
    pub rows: usize,
    columns: usize,
    /// Bytes read and written, row by row within a column.
    cells: Vec<(u64, u64)>,
}

impl Heat {
    /// The map of a file whose last byte ends at `reach`.
    pub fn new(axis: &Axis, reach: u64) -> Heat {
        let row_bytes = reach.div_ceil(ROWS as u64).max(1);
        let rows = reach.div_ceil(row_bytes).max(1) as usize;
        Heat {
            row_bytes,
            rows,
            columns: axis.bins,
            cells: vec![(0, 0); rows * axis.bins],
        }
    }

    /// Counts the bytes of a transfer in each row that it touches.
    pub fn add(&mut self, axis: &Axis, event: &Event) {
        let (begin, end) = (event.offset, event.offset.saturating_add(event.moved()));
        if begin == end {
            return;
        }
        let column = axis.bin(event.time.0) * self.rows;
        let row_of = |at: u64| ((at / self.row_bytes) as usize).min(self.rows - 1);
        for row in row_of(begin)..=row_of(end - 1) {
            let row_begin = row as u64 * self.row_bytes;
            let row_end = match row == self.rows - 1 {
                true => u64::MAX,
                false => row_begin + self.row_bytes,
            };
            let bytes = end.min(row_end) - begin.max(row_begin);
            let cell = &mut self.cells[column + row];
            match event.action {
                Action::Write => cell.1 = cell.1.saturating_add(bytes),
                _ => cell.0 = cell.0.saturating_add(bytes),
            }
        }
    }

    /// The cells that are not empty: column, row, bytes read, bytes written.
    pub fn cells(&self) -> Vec<(usize, usize, u64, u64)> {
        let all = self.cells.iter().enumerate();
        let used = all.filter(|(_, cell)| **cell != (0, 0));
        used.map(|(at, cell)| (at / self.rows, at % self.rows, cell.0, cell.1))
            .collect()
    }

    /// How many columns there are.
    pub fn columns(&self) -> usize {
        self.columns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use presagio_core::{ContextId, FileId, Layer, Nanos};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_byte_is_somewhere_on_the_map(
            ops in prop::collection::vec((0u64..1000, 0u64..5000, 0i64..900, any::<bool>()), 1..40),
        ) {
            let axis = Axis::new(0, 1000, 20);
            let reach = ops.iter().map(|o| o.1 + o.2 as u64).max().unwrap_or(0);
            let mut heat = Heat::new(&axis, reach);
            let mut sums = (0, 0);
            for (time, offset, moved, writes) in ops {
                let action = if writes { Action::Write } else { Action::Read };
                heat.add(&axis, &Event {
                    time: Nanos(time), duration: Nanos(1), process: 0, thread: 0, file: FileId(0), action,
                    layer: Layer::Posix, context: ContextId::UNKNOWN, offset, len: moved as u64, result: moved,
                });
                if writes { sums.1 += moved as u64 } else { sums.0 += moved as u64 }
            }
            let cells = heat.cells();
            prop_assert_eq!(cells.iter().map(|c| c.2).sum::<u64>(), sums.0);
            prop_assert_eq!(cells.iter().map(|c| c.3).sum::<u64>(), sums.1);
            prop_assert!(cells.iter().all(|c| c.0 < heat.columns() && c.1 < heat.rows));
        }
    }
}
