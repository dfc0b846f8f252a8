//! Attributes of files and of the file system.

use super::{Answer, Held, Open, Session};
use crate::error::{OrErrno, Result};
use crate::export::attr_of;
use presagio_ninep::{Errno, Fid, Reply, SetAttr, SetMask, Text};
use presagio_storage::Access;
use rustix::fs::{FileType, OFlags};

impl Session {
    pub(super) fn get_attr(&self, fid: Fid, answer: &mut Answer<'_>) -> Result<()> {
        let held = self.acting(fid)?;
        let stat = held.place.stat()?;
        let mut attr = attr_of(&stat, self.node.export.root().key());
        if held.place.kind() == FileType::RegularFile {
            self.node.act_for_storage()?;
            let size = match &held.open {
                Open::File(file) => file.bytes.size(),
                _ => self.node.export.storage().size(held.place.fd()),
            };
            if let Some(size) = size.or_errno()? {
                (attr.size, attr.blocks) = (size.bytes, size.blocks);
            }
            if self.node.is_nameless(held.place.key()) {
                attr.nlink = 0;
            }
        }
        answer.reply(Reply::GetAttr { attr })
    }

    pub(super) fn set_attr(&self, fid: Fid, attr: &SetAttr, answer: &mut Answer<'_>) -> Result<()> {
        let held = self.acting(fid)?;
        self.node.export.writable()?;
        if attr.valid.contains(SetMask::SIZE) {
            self.set_size(&held, attr.size)?;
        }
        self.node.power.act_as(&held.user)?;
        self.node.export.set_attr(&held.place, attr)?;
        answer.reply(Reply::SetAttr)
    }

    fn set_size(&self, held: &Held, bytes: u64) -> Result<()> {
        if i64::try_from(bytes).is_err() {
            return Err(Errno(libc::EFBIG as u32));
        }
        if let Open::File(file) = &held.open
            && file.write
        {
            self.node.act_for_storage()?;
            return file.bytes.set_len(bytes).or_errno();
        }
        match held.place.kind() {
            FileType::RegularFile => {}
            FileType::Directory => return Err(Errno::ISDIR),
            _ => return Err(Errno::INVAL),
        }
        let opened = self
            .node
            .export
            .open(&held.place, OFlags::RDWR)
            .or_else(|_| self.node.export.open(&held.place, OFlags::WRONLY))?;
        self.node.act_for_storage()?;
        self.strip_setuid(&held.place)?;
        let access = Access {
            read: false,
            write: true,
        };
        let file = self.node.export.storage().open(opened, access).or_errno()?;
        file.set_len(bytes).or_errno()
    }

    pub(super) fn stat_fs(&self, fid: Fid, answer: &mut Answer<'_>) -> Result<()> {
        let held = self.acting(fid)?;
        let stat = self.node.export.stat_fs(&held.place)?;
        answer.reply(Reply::StatFs { statfs: stat })
    }

    pub(super) fn read_link(&self, fid: Fid, answer: &mut Answer<'_>) -> Result<()> {
        let held = self.acting(fid)?;
        let target = self.node.export.read_link(&held.place)?;
        let target = Text::new(&target).map_err(|_| Errno::IO)?;
        answer.reply(Reply::ReadLink { target })
    }
}
