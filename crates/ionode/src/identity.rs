//! As whom a thread acts.
//!
//! A node that runs as root does each client's operations as that client's user, so that the kernel checks permissions
//! and counts quotas as if the client had come itself. A thread's *effective* ids are switched, by system calls of the
//! thread alone (the C library's functions would switch all threads): an effective uid that is not root's has no
//! capabilities, so neither permissions nor quotas nor the stripping of setuid bits are bypassed. The saved uid stays
//! root's, which is the way back.
//!
//! A node that is not root acts as itself, for everybody.

use crate::error::Result;
use presagio_ninep::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::cell::RefCell;
use std::sync::Arc;

// Data that was opened already is moved as nobody.
pub use presagio_door::NOBODY;

/// A user, on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
}

impl Identity {
    /// The node itself.
    pub fn node() -> Identity {
        Identity {
            uid: 0,
            gid: 0,
            groups: Vec::new(),
        }
    }

    /// Nobody.
    pub fn nobody() -> Identity {
        Identity {
            uid: NOBODY,
            gid: NOBODY,
            groups: Vec::new(),
        }
    }

    /// The same user, making things that belong to `gid`, if that is one of the user's groups.
    pub fn with_group(&self, gid: u32) -> Identity {
        let may = self.uid == 0 || self.groups.contains(&gid);
        let gid = if may { gid } else { self.gid };
        Identity {
            gid,
            ..self.clone()
        }
    }
}

thread_local! {
    /// As whom this thread acts: `None` as it started, or not known.
    static ACTING: RefCell<Option<Arc<Identity>>> = const { RefCell::new(None) };
}

/// Whether this process can act as others.
#[derive(Clone, Copy, Debug)]
pub struct Power(bool);

impl Power {
    /// Looks at the process.
    pub fn of_this_process() -> Power {
        Power(rustix::process::geteuid().is_root())
    }

    /// Whether others can be acted as.
    pub fn is_root(self) -> bool {
        self.0
    }

    /// From now on this thread acts as `who`.
    pub fn act_as(self, who: &Arc<Identity>) -> Result<()> {
        if !self.0 || ACTING.with_borrow(|now| now.as_ref().is_some_and(|now| same(now, who))) {
            return Ok(());
        }
        ACTING.set(None);
        switch(who).map_err(|_| Errno::PERM)?;
        ACTING.set(Some(who.clone()));
        Ok(())
    }

    /// Data is moved as `mover`; if that is nobody, any user but root will do as well, since descriptors were opened as
    /// whom they concern.
    pub fn act_on_data(self, mover: &Arc<Identity>) -> Result<()> {
        let is_user = ACTING.with_borrow(|now| now.as_ref().is_some_and(|now| now.uid != 0));
        match is_user && mover.uid != 0 {
            true => Ok(()),
            false => self.act_as(mover),
        }
    }
}

fn same(a: &Arc<Identity>, b: &Arc<Identity>) -> bool {
    Arc::ptr_eq(a, b) || a == b
}

/// Back to root, which may change the rest, and then to the user.
fn switch(who: &Identity) -> rustix::io::Result<()> {
    let groups: Vec<Gid> = who.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    set_thread_res_uid(None, Uid::ROOT, None)?;
    set_thread_groups(&groups)?;
    set_thread_res_gid(None, Gid::from_raw(who.gid), None)?;
    set_thread_res_uid(None, Uid::from_raw(who.uid), None)
}
