//! What is known about a file beside its data.

use super::{File, WANTED_ATTR, reply};
use crate::held::{Held, walk};
use crate::link::Connection;
use presagio_ninep::client::Error;
use presagio_ninep::{Attr, Errno, Reply, Request, SetAttr, SetMask, StatFs, Text, XattrFlags};

/// The longest value that Linux lets an extended attribute have.
const XATTR_MAX: u64 = 64 << 10;

impl File {
    /// What `stat` says of it.
    pub fn getattr(&self) -> Result<Attr, Errno> {
        let (fid, mask) = (self.held.fid, WANTED_ATTR);
        let answer = self.ask(Request::GetAttr { fid, mask })?;
        Ok(reply!(answer, Reply::GetAttr { attr } => attr))
    }

    /// Changes attributes. A change of size is made once: somebody may have written behind it since.
    pub fn setattr(&self, attr: SetAttr) -> Result<(), Errno> {
        let held = &self.held;
        let request = Request::SetAttr {
            fid: held.fid,
            attr,
        };
        let epoch = match attr.valid.intersects(SetMask::SIZE) {
            true => held.link.once(&[held], &request)?.1.epoch,
            false => held.link.repeat(&[held], |connection| {
                connection.call(request)?;
                Ok(connection.epoch)
            })?,
        };
        held.changed(epoch);
        Ok(())
    }

    /// What the file system is like.
    pub fn statfs(&self) -> Result<StatFs, Errno> {
        let fid = self.held.fid;
        let answer = self.ask(Request::StatFs { fid })?;
        Ok(reply!(answer, Reply::StatFs { statfs } => statfs))
    }

    /// The value of an extended attribute.
    pub fn xattr(&self, name: &[u8]) -> Result<Vec<u8>, Errno> {
        match name.is_empty() {
            true => Err(Errno::INVAL),
            false => self.read_xattr(name),
        }
    }

    /// The names of all extended attributes, each with a NUL behind it.
    pub fn xattrs(&self) -> Result<Vec<u8>, Errno> {
        self.read_xattr(b"")
    }

    fn read_xattr(&self, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let link = &self.held.link;
        link.repeat(&[&self.held], |connection| {
            let value = Held::new(link, Some(self.held.root())).map_err(Error::Server)?;
            value.begin(connection);
            let (fid, new_fid, name) = (self.held.fid, value.fid, Text::new(name)?);
            let answer = connection.call(Request::XattrWalk { fid, new_fid, name });
            let answer = value.unless_refused(answer)?;
            value.stands_for(connection, Default::default());
            let size = reply!(answer, Reply::XattrWalk { size } => size);
            let mut bytes = vec![0; size.min(XATTR_MAX) as usize];
            let mut done = 0;
            while done < bytes.len() {
                match connection
                    .client
                    .read(value.fid, done as u64, &mut bytes[done..])?
                {
                    0 => break,
                    got => done += got,
                }
            }
            bytes.truncate(done);
            Ok(bytes)
        })
    }

    /// Sets an extended attribute. The protocol has no word for an empty value: to give one is to remove it.
    pub fn set_xattr(&self, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<(), Errno> {
        let mut tried = false;
        let link = &self.held.link;
        let epoch = link.repeat(&[&self.held], |connection| {
            let again = std::mem::replace(&mut tried, true);
            let new = Held::new(link, Some(self.held.root())).map_err(Error::Server)?;
            new.begin(connection);
            new.unless_refused(walk(connection, self.held.fid, new.fid, b""))?;
            new.stands_for(connection, Default::default());
            match write_xattr(connection, &new, name, value, flags) {
                // It may be our own, from the first attempt.
                Err(Error::Server(Errno::EXIST | Errno::NODATA)) if again => {
                    Err(Error::Server(Errno::IO))
                }
                set => set.map(|()| connection.epoch),
            }
        })?;
        self.held.changed(epoch);
        Ok(())
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&self, name: &[u8]) -> Result<(), Errno> {
        self.set_xattr(name, b"", XattrFlags::REPLACE)
    }
}

/// Announces a value, writes it, and clunks the fid: only then is it set, or refused.
fn write_xattr(
    connection: &Connection,
    held: &Held,
    name: &[u8],
    value: &[u8],
    flags: XattrFlags,
) -> Result<(), Error> {
    let (fid, size) = (held.fid, value.len() as u64);
    connection.call(Request::XattrCreate {
        fid,
        name: Text::new(name)?,
        size,
        flags,
    })?;
    let most = connection.client.io_max() as usize;
    for (index, piece) in value.chunks(most).enumerate() {
        connection.client.write(fid, (index * most) as u64, piece)?;
    }
    let clunked = connection.call(Request::Clunk { fid });
    held.clunked(&clunked);
    clunked.map(drop)
}
