//! Reading and writing: large ones in pieces, several under way at once.

use super::{File, reply};
use crate::link::Connection;
use presagio_ninep::client::{Ask, Error, ReadInto};
use presagio_ninep::{Data, DataSync, Errno, Fid, Reply, Request};

/// Pieces of one read or write that are under way at once.
const PIECES: usize = 16;

/// What `Tonce` puts before a write, beyond what the write itself has.
const ONCE_HEADER: usize = 32;

impl File {
    /// Reads until `to` is full or the file ends. Returns how much.
    pub fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize, Errno> {
        let (link, fid) = (&self.held.link, self.held.fid);
        let mut done = 0;
        while done < to.len() {
            let from = offset + done as u64;
            let got = link.repeat(&[&self.held], |connection| {
                read_some(connection, fid, from, &mut to[done..])
            });
            match got {
                Ok((got, full)) => {
                    done += got;
                    if !full {
                        break;
                    }
                }
                // What was read before is worth more than the error, which the next read gets.
                Err(_) if done > 0 => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(done)
    }

    /// Writes all of `data` at `offset`, and returns how much was written before something went wrong.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        let (link, fid) = (&self.held.link, self.held.fid);
        let mut done = 0;
        while done < data.len() {
            let to = offset + done as u64;
            let written = link.repeat(&[&self.held], |connection| {
                let written = write_some(connection, fid, to, &data[done..])?;
                self.held.wrote(connection.epoch);
                Ok(written)
            });
            match written {
                Ok((written, full)) => {
                    done += written;
                    if !full {
                        break;
                    }
                }
                Err(_) if done > 0 => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(done)
    }

    /// Writes behind the end of the file, wherever that is then. Of a file that was opened to append. What fits into one
    /// message is written in one piece, whoever else appends.
    pub fn append(&self, data: &[u8]) -> Result<usize, Errno> {
        let (link, fid) = (&self.held.link, self.held.fid);
        let mut done = 0;
        while done < data.len() {
            let piece = &data[done..data.len().min(done + self.append_max()?)];
            let request = Request::Write {
                fid,
                offset: 0,
                data: Data::new(piece).map_err(|_| Errno::INVAL)?,
            };
            let written = match link.once(&[&self.held], &request) {
                Ok((answer, done)) => {
                    self.held.wrote(done.epoch);
                    reply!(answer, Reply::Write { count } => count as usize)
                }
                Err(_) if done > 0 => break,
                Err(errno) => return Err(errno),
            };
            done += written.min(piece.len());
            if written < piece.len() {
                break;
            }
        }
        Ok(done)
    }

    /// The most that one append can carry.
    fn append_max(&self) -> Result<usize, Errno> {
        let link = &self.held.link;
        let io_max = link.repeat(&[], |connection| Ok(connection.client.io_max()))?;
        Ok(io_max as usize - ONCE_HEADER)
    }

    /// Makes what was written durable, and of a directory the names in it. EIO, once, if something was changed through a node whose
    /// machine was booted anew since, or through one on another machine: then nobody can tell.
    pub fn fsync(&self, datasync: bool) -> Result<(), Errno> {
        self.sync_elsewhere(datasync)?;
        self.sync_here(datasync)
    }

    /// Where files are spread, the same at every other node through which something of this one was changed: by its path, or when it
    /// was made.
    fn sync_elsewhere(&self, datasync: bool) -> Result<(), Errno> {
        let (qid, open) = (self.qid(), self.held.place().open);
        for link in self.remote.others(&self.held.link) {
            if open.is_some() && link.has_changed(qid.path) {
                let there = self.on(link).map_err(|_| Errno::IO)?;
                there.held.place().open = open;
                there.sync_here(datasync).map_err(|_| Errno::IO)?;
            }
        }
        Ok(())
    }

    fn sync_here(&self, datasync: bool) -> Result<(), Errno> {
        let (held, datasync) = (&self.held, DataSync(datasync));
        let fid = held.fid;
        held.synced(|| {
            held.link.repeat(&[held], |connection| {
                connection.call(Request::Fsync { fid, datasync })?;
                Ok(connection.epoch)
            })
        })
    }
}

/// Reads as many pieces as may be under way; how much that was, and whether all of it came.
fn read_some(
    connection: &Connection,
    fid: Fid,
    offset: u64,
    to: &mut [u8],
) -> Result<(usize, bool), Error> {
    let client = &connection.client;
    let most = client.io_max() as usize;
    if to.len() <= most {
        let got = client.read(fid, offset, to)?;
        return Ok((got, got == to.len()));
    }
    let pieces = to.chunks_mut(most).take(PIECES).enumerate();
    let mut reads: Vec<ReadInto> = pieces
        .map(|(index, to)| ReadInto {
            fid,
            offset: offset + (index * most) as u64,
            to,
        })
        .collect();
    let asked: Vec<usize> = reads.iter().map(|read| read.to.len()).collect();
    match client.read_many(&mut reads) {
        Ok(got) => join(&asked, got),
        // Others have all there is: one piece has to wait for its turn.
        Err(Error::Full(_)) => {
            let got = client.read(fid, offset, reads[0].to)?;
            Ok((got, got == asked[0]))
        }
        Err(error) => Err(error),
    }
}

/// The same for writes.
fn write_some(
    connection: &Connection,
    fid: Fid,
    offset: u64,
    data: &[u8],
) -> Result<(usize, bool), Error> {
    let client = &connection.client;
    let most = client.io_max() as usize;
    let first = &data[..data.len().min(most)];
    if data.len() <= most {
        let written = client.write(fid, offset, data)?;
        return Ok((written, written == data.len()));
    }
    let pieces = data.chunks(most).take(PIECES);
    let asked: Vec<usize> = pieces.clone().map(<[u8]>::len).collect();
    let offsets = (offset..).step_by(most);
    let asks: Result<Vec<Ask>, Error> = pieces
        .zip(offsets)
        .map(|(piece, offset)| {
            let data = Data::new(piece)?;
            Ok(Ask::new(Request::Write { fid, offset, data }))
        })
        .collect();
    match client.submit_all(asks?) {
        Ok(tickets) => {
            let written = tickets.into_iter().map(|ticket| {
                let answer = ticket.wait()?;
                Ok(reply!(answer, Reply::Write { count } => count as usize))
            });
            join(&asked, written.collect())
        }
        Err(Error::Full(_)) => {
            let written = client.write(fid, offset, first)?;
            Ok((written, written == first.len()))
        }
        Err(error) => Err(error),
    }
}

/// Adds up pieces until the first of which not all was done. An error counts if nothing was done before it; so does a
/// lost connection, after which everything is done again.
fn join(asked: &[usize], got: Vec<Result<usize, Error>>) -> Result<(usize, bool), Error> {
    let mut done = 0;
    for (asked, got) in asked.iter().zip(got) {
        let got = match got {
            Ok(got) => got.min(*asked),
            Err(error @ Error::Lost { .. }) => return Err(error),
            Err(error) if done == 0 => return Err(error),
            Err(_) => 0,
        };
        done += got;
        if got < *asked {
            return Ok((done, false));
        }
    }
    Ok((done, true))
}
