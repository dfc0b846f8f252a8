//! Proving who we are to a node that asks.

use super::Freed;
use crate::link::{Connection, Link};
use crate::options::Credential;
use presagio_ninep::client::Error;
use presagio_ninep::{Errno, Fid, Request, Text};

/// A fid that proves who we are, for one attach.
pub(super) struct Proof<'a> {
    link: &'a Link,
    connection: &'a Connection,
    pub(super) fid: Fid,
}

impl<'a> Proof<'a> {
    /// Gives the node a credential, if it wants one.
    pub(super) fn give(
        link: &'a Link,
        connection: &'a Connection,
        uid: u32,
        credential: &Credential,
    ) -> Result<Option<Proof<'a>>, Error> {
        let fid = link.draw().map_err(Error::Server)?;
        let asked = connection.call(Request::Auth {
            auth_fid: fid,
            user: Text::new("")?,
            export: Text::new(&link.options.export)?,
            uid,
        });
        match asked {
            Ok(_) => {}
            // It needs none, or does not know what that is.
            Err(Error::Server(_)) => {
                link.leave(fid, Freed::Now);
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
        let proof = Proof {
            link,
            connection,
            fid,
        };
        let credential = (credential.0)().map_err(|error| {
            tracing::warn!(%error, "no credential");
            link.note_error(format!("no credential: {error}"));
            Error::Server(Errno::ACCES)
        })?;
        connection.client.write(fid, 0, &credential)?;
        Ok(Some(proof))
    }
}

impl Drop for Proof<'_> {
    fn drop(&mut self) {
        let fid = self.fid;
        let freed = match self.connection.client.submit(Request::Clunk { fid }) {
            Ok(ticket) => Freed::With(ticket),
            Err(_) => Freed::Never,
        };
        self.link.leave(fid, freed);
    }
}
