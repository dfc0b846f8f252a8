//! Who a client may be, and where it begins.

use super::{Answer, Held, Open, Session};
use crate::error::Result;
use presagio_ninep::{Errno, Fid, Reply, Text};

/// What the protocol sends for no uid.
const NO_UID: u32 = u32::MAX;

impl Session {
    pub(super) fn attach(
        &self,
        fid: Fid,
        auth_fid: Fid,
        user: Text<'_>,
        _export: Text<'_>,
        uid: u32,
        answer: &mut Answer<'_>,
    ) -> Result<()> {
        if auth_fid != Fid::NONE {
            return Err(Errno::BADF);
        }
        let claimed = (uid != NO_UID).then_some(uid);
        let who = match self.peer.may_be(claimed, &self.node) {
            Ok(who) => who,
            Err(refusal) => {
                self.node.audit(
                    &self.peer,
                    &format_args!("attach as {user:?}, uid {uid}: {refusal}"),
                );
                return Err(Errno::PERM);
            }
        };
        let place = self.node.export.root().clone();
        let qid = self.node.export.qid(&place.stat()?);
        let _ = self.user.set(who.clone());
        let held = Held {
            place,
            user: who,
            open: Open::No,
        };
        self.fids().insert(fid, held)?;
        answer.reply(Reply::Attach { qid })
    }
}
