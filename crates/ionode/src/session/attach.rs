//! Who a client may be, and where it begins.

use super::{Answer, Held, Open, Session};
use crate::auth::credential::Credential;
use crate::auth::munge::Refusal;
use crate::identity::Identity;
use crate::peer::{Proof, may_be};
use presagio_ninep::{Data, Errno, Fid, Qid, QidKind, Reply, Text};
use std::sync::{Arc, PoisonError};

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
    ) -> crate::error::Result<()> {
        let who = self.let_in(auth_fid, uid).map_err(|refusal| {
            let Refusal { errno, why } = refusal;
            let what = format_args!("attach as {user:?}, uid {uid}: {why}");
            self.node.audit(&self.peer, &what);
            errno
        })?;
        let place = self.node.export.root().clone();
        let qid = self.node.export.qid(&place.stat()?);
        self.account.get_or_init(|| self.node.accounts.of(who.uid));
        let _ = self.user.set(who.clone());
        self.node.act_as_node()?;
        self.came();
        let held = Held {
            place,
            user: who,
            open: Open::No,
        };
        self.fids().insert(fid, held)?;
        answer.reply(Reply::Attach { qid })
    }

    /// As whom it may attach who says that it is `uid`.
    fn let_in(&self, auth_fid: Fid, uid: u32) -> Result<Arc<Identity>, Refusal> {
        let proof = self.proof(auth_fid)?;
        let claimed = (uid != NO_UID).then_some(uid);
        let who = may_be(proof, claimed, &self.node);
        let who = who.map_err(|why| match proof.uid() {
            Some(proved) if auth_fid != Fid::NONE => {
                Refusal::not_permitted(format!("{why}: its credential is of uid {proved}"))
            }
            _ => Refusal::not_permitted(why),
        })?;
        if auth_fid != Fid::NONE {
            self.count_in(proof)?;
            if let Some(uid) = proof.uid() {
                let _ = self.proved.set(uid);
            }
        }
        Ok(who)
    }

    /// What is known of who attaches: what the credential says that it names, or else what the connection says.
    fn proof(&self, auth_fid: Fid) -> Result<Proof, Refusal> {
        if auth_fid == Fid::NONE {
            return Ok(self.peer.proof);
        }
        let credential = self.fids().credential(auth_fid);
        let (Some(credential), Some(munge)) = (credential, &self.node.munge) else {
            return Err(Refusal {
                errno: Errno::BADF,
                why: format!("{auth_fid} was not made by Tauth"),
            });
        };
        credential.proof(|bytes| munge.check(bytes))
    }

    /// The connection is the user's from now on, and counted as one of its connections.
    fn count_in(&self, proof: Proof) -> Result<(), Refusal> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = shares.iter().any(|share| Some(share.uid()) == proof.uid());
        if !counted {
            let share = self.node.count_in(proof);
            shares.extend(share.map_err(|why| Refusal {
                errno: Errno(libc::EUSERS as u32),
                why,
            })?);
        }
        Ok(())
    }

    /// Whether somebody has proved here who it is.
    pub fn has_proved(&self) -> bool {
        let shares = self.shares.lock();
        !shares.unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// A fid for a credential. Where the connection says who it is, there is no need: diod's clients understand this
    /// number so.
    pub(super) fn auth(&self, auth_fid: Fid, answer: &mut Answer<'_>) -> crate::error::Result<()> {
        if self.peer.proof != Proof::Awaited {
            return Err(Errno(0));
        }
        self.fids().begin_credential(auth_fid)?;
        let qid = Qid {
            kind: QidKind::AUTH,
            version: 0,
            path: 0,
        };
        answer.reply(Reply::Auth { qid })
    }

    /// Whether a fid was made by Tauth: it takes a credential, gives nothing, and is no file.
    pub(super) fn credential(&self, fid: Fid) -> Option<Arc<Credential>> {
        self.fids().credential(fid)
    }

    pub(super) fn write_credential(
        &self,
        credential: &Credential,
        offset: u64,
        data: Data<'_>,
        answer: &mut Answer<'_>,
    ) -> crate::error::Result<()> {
        credential.write(offset, data.bytes())?;
        let count = data.bytes().len() as u32;
        answer.reply(Reply::Write { count })
    }
}
