//! A file system in memory: what the test server serves, and what a history is compared with.

use presagio_ninep::Errno;
use std::collections::BTreeMap;

pub const ROOT: u64 = 1;

/// What a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    File(Vec<u8>),
    Dir(BTreeMap<Vec<u8>, u64>),
    Link(Vec<u8>),
}

#[derive(Clone, Debug)]
pub struct Tree {
    nodes: BTreeMap<u64, (Node, u64)>,
    next: u64,
}

type Result<T> = std::result::Result<T, Errno>;

impl Default for Tree {
    fn default() -> Tree {
        let root = (Node::Dir(BTreeMap::new()), 1);
        Tree {
            nodes: BTreeMap::from([(ROOT, root)]),
            next: ROOT + 1,
        }
    }
}

impl Tree {
    pub fn node(&self, number: u64) -> Result<&Node> {
        self.nodes
            .get(&number)
            .map(|(node, _)| node)
            .ok_or(Errno::STALE)
    }

    pub fn links(&self, number: u64) -> u64 {
        self.nodes.get(&number).map_or(0, |(_, links)| *links)
    }

    pub fn entries(&self, dir: u64) -> Result<&BTreeMap<Vec<u8>, u64>> {
        match self.node(dir)? {
            Node::Dir(entries) => Ok(entries),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn entries_mut(&mut self, dir: u64) -> Result<&mut BTreeMap<Vec<u8>, u64>> {
        match self.nodes.get_mut(&dir) {
            Some((Node::Dir(entries), _)) => Ok(entries),
            Some(_) => Err(Errno::NOTDIR),
            None => Err(Errno::STALE),
        }
    }

    pub fn lookup(&self, dir: u64, name: &[u8]) -> Result<u64> {
        self.entries(dir)?.get(name).copied().ok_or(Errno::NOENT)
    }

    pub fn make(&mut self, dir: u64, name: &[u8], node: Node) -> Result<u64> {
        if self.entries(dir)?.contains_key(name) {
            return Err(Errno::EXIST);
        }
        let number = self.next;
        self.next += 1;
        self.nodes.insert(number, (node, 1));
        self.entries_mut(dir)?.insert(name.to_vec(), number);
        Ok(number)
    }

    /// As `open` with O_CREAT does.
    pub fn create(&mut self, dir: u64, name: &[u8], exclusive: bool) -> Result<u64> {
        match self.lookup(dir, name) {
            Ok(_) if exclusive => Err(Errno::EXIST),
            Ok(number) => match self.node(number)? {
                Node::Dir(_) => Err(Errno::ISDIR),
                _ => Ok(number),
            },
            Err(Errno::NOENT) => self.make(dir, name, Node::File(Vec::new())),
            Err(errno) => Err(errno),
        }
    }

    pub fn link(&mut self, dir: u64, name: &[u8], number: u64) -> Result<()> {
        if matches!(self.node(number)?, Node::Dir(_)) {
            return Err(Errno::PERM);
        }
        if self.entries(dir)?.contains_key(name) {
            return Err(Errno::EXIST);
        }
        self.entries_mut(dir)?.insert(name.to_vec(), number);
        self.nodes.get_mut(&number).ok_or(Errno::STALE)?.1 += 1;
        Ok(())
    }

    pub fn unlink(&mut self, dir: u64, name: &[u8], is_dir: bool) -> Result<()> {
        let number = self.lookup(dir, name)?;
        match (self.node(number)?, is_dir) {
            (Node::Dir(entries), true) if !entries.is_empty() => return Err(Errno::NOTEMPTY),
            (Node::Dir(_), false) => return Err(Errno::ISDIR),
            (Node::File(_) | Node::Link(_), true) => return Err(Errno::NOTDIR),
            _ => {}
        }
        self.entries_mut(dir)?.remove(name);
        self.drop_link(number);
        Ok(())
    }

    /// Files are kept when their last name goes: somebody may have them open.
    fn drop_link(&mut self, number: u64) {
        if let Some((_, links)) = self.nodes.get_mut(&number) {
            *links -= 1;
        }
    }

    pub fn rename(&mut self, from: u64, old: &[u8], to: u64, new: &[u8]) -> Result<()> {
        let number = self.lookup(from, old)?;
        if let Ok(there) = self.lookup(to, new) {
            if there == number {
                return Ok(());
            }
            let moves_dir = matches!(self.node(number)?, Node::Dir(_));
            match (moves_dir, self.node(there)?) {
                (true, Node::Dir(entries)) if !entries.is_empty() => return Err(Errno::NOTEMPTY),
                (false, Node::Dir(_)) => return Err(Errno::ISDIR),
                (true, Node::File(_) | Node::Link(_)) => return Err(Errno::NOTDIR),
                _ => self.drop_link(there),
            }
        }
        self.entries_mut(from)?.remove(old);
        self.entries_mut(to)?.insert(new.to_vec(), number);
        Ok(())
    }

    pub fn bytes(&mut self, number: u64) -> Result<&mut Vec<u8>> {
        match self.nodes.get_mut(&number) {
            Some((Node::File(bytes), _)) => Ok(bytes),
            Some(_) => Err(Errno::ISDIR),
            None => Err(Errno::STALE),
        }
    }

    pub fn write(&mut self, number: u64, offset: u64, data: &[u8]) -> Result<()> {
        let bytes = self.bytes(number)?;
        let end = offset as usize + data.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset as usize..end].copy_from_slice(data);
        Ok(())
    }

    /// Every path and what is there; links by what they are links of.
    pub fn dump(&self) -> Vec<(String, Node)> {
        let mut all = Vec::new();
        self.dump_dir(ROOT, "", &mut all);
        all
    }

    fn dump_dir(&self, dir: u64, path: &str, all: &mut Vec<(String, Node)>) {
        for (name, number) in self.entries(dir).expect("a directory") {
            let path = format!("{path}/{}", name.escape_ascii());
            let links = self.links(*number);
            match self.node(*number).expect("an entry") {
                Node::Dir(_) => {
                    all.push((path.clone(), Node::Dir(BTreeMap::new())));
                    self.dump_dir(*number, &path, all);
                }
                node => all.push((format!("{path} ({links})"), node.clone())),
            }
        }
    }
}
