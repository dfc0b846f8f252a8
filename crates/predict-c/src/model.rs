//! A model as C holds it: shared with its cursors, which know when it has changed.

use crate::fault::{Answer, Fault};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// `presagio_model`. Cursors hold on to the model weakly: to free it frees its memory, at once.
#[derive(Debug)]
pub struct Model {
    pub(crate) model: Arc<Mutex<presagio_predict::Model>>,
    /// How often it has changed. Apart from the model, so that a cursor that is read needs no lock.
    pub(crate) changes: Arc<AtomicU64>,
}

impl Model {
    pub(crate) fn new(model: presagio_predict::Model) -> Model {
        Model {
            model: Arc::new(Mutex::new(model)),
            changes: Arc::default(),
        }
    }

    /// Changes the model: cursors that are there become stale.
    pub(crate) fn change(&self, change: impl FnOnce(&mut presagio_predict::Model)) -> Answer<()> {
        let mut model = lock(&self.model)?;
        self.changes.fetch_add(1, Ordering::Relaxed);
        change(&mut model);
        Ok(())
    }

    /// Looks at the model.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&presagio_predict::Model) -> T) -> Answer<T> {
        Ok(read(&*lock(&self.model)?))
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }
}

/// Programs keep a model to one thread, so nobody waits here. A model that panicked while it was changed is
/// not used again.
pub(crate) fn lock(
    model: &Mutex<presagio_predict::Model>,
) -> Answer<MutexGuard<'_, presagio_predict::Model>> {
    model.lock().map_err(|_| Fault::Broken)
}
