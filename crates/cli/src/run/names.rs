//! What the files are called that a manager writes: `%h` in a name is its node, and `%j` the job.
//!
//! The ranks of one node share a manager, and other nodes have theirs, all of which were told the same name. In a directory that
//! the nodes share each would replace what the others wrote: so where the launcher says that there are more of them, the node
//! is put into a name that does not have it.

use super::job;
use presagio_advise::manager::has_ranks_elsewhere;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What names are made with.
pub struct Names {
    node: Vec<u8>,
    job: Vec<u8>,
    /// Whether managers on other nodes were told the same names.
    is_elsewhere_too: bool,
    /// The first name that the node was put into.
    pub changed: Option<PathBuf>,
}

impl Names {
    /// Those of this node and job.
    pub fn here() -> Names {
        let system = rustix::system::uname();
        Names {
            node: in_a_name(system.nodename().to_bytes()),
            job: in_a_name(job::name().unwrap_or_else(|| "nojob".to_owned()).as_bytes()),
            is_elsewhere_too: has_ranks_elsewhere(),
            changed: None,
        }
    }

    /// The name of a file for this node.
    pub fn expand(&mut self, name: &Path) -> PathBuf {
        let (path, has_node) = self.fill(name.as_os_str().as_bytes());
        // What is no file, as a terminal, is nobody's alone.
        let is_for_all = has_node || path.exists() && !path.is_file();
        if !self.is_elsewhere_too || is_for_all {
            return path;
        }
        let path = self.with_node(&path);
        self.changed.get_or_insert_with(|| path.clone());
        path
    }

    /// Puts in what the marks in a name stand for, and says whether the node is among that.
    fn fill(&self, name: &[u8]) -> (PathBuf, bool) {
        let (mut filled, mut has_node) = (Vec::new(), false);
        let mut rest = name;
        while let Some((byte, after)) = rest.split_first() {
            let mark = (*byte == b'%').then(|| after.first()).flatten();
            let (put, len) = match mark {
                Some(b'h') => (&self.node[..], 2),
                Some(b'j') => (&self.job[..], 2),
                Some(b'%') => (&b"%"[..], 2),
                _ => (&rest[..1], 1),
            };
            has_node |= mark == Some(&b'h');
            filled.extend_from_slice(put);
            rest = &rest[len..];
        }
        (OsString::from_vec(filled).into(), has_node)
    }

    /// `run.html` becomes `run.node7.html`.
    fn with_node(&self, path: &Path) -> PathBuf {
        let node = OsStr::from_bytes(&self.node);
        let mut name = path.file_stem().unwrap_or_default().to_owned();
        let parts = [Some(node), path.extension()];
        for part in parts.into_iter().flatten() {
            name.push(".");
            name.push(part);
        }
        path.with_file_name(name)
    }
}

/// Nothing that is put into a name leads to another directory.
fn in_a_name(text: &[u8]) -> Vec<u8> {
    let harmless = |byte: &u8| if *byte == b'/' { b'_' } else { *byte };
    text.iter().map(harmless).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(is_elsewhere_too: bool) -> Names {
        Names {
            node: in_a_name(b"node7"),
            job: in_a_name(b"4/2"),
            is_elsewhere_too,
            changed: None,
        }
    }

    #[test]
    fn marks_in_a_name_are_node_and_job() {
        let mut alone = names(false);
        for (name, full) in [
            ("t.ptrace", "t.ptrace"),
            ("%j/t-%h.ptrace", "4_2/t-node7.ptrace"),
            ("100%%h%x%", "100%h%x%"),
        ] {
            assert_eq!(alone.expand(Path::new(name)), Path::new(full));
        }
        assert_eq!(alone.changed, None);
    }

    #[test]
    fn where_other_nodes_write_too_each_has_a_name_of_its_own() {
        let mut among_others = names(true);
        for (name, full) in [
            ("d.x/t-%h.ptrace", "d.x/t-node7.ptrace"),
            ("/dev/null", "/dev/null"),
            ("d.x/t.ptrace", "d.x/t.node7.ptrace"),
            ("d.x/summary", "d.x/summary.node7"),
            (".t", ".t.node7"),
        ] {
            assert_eq!(among_others.expand(Path::new(name)), Path::new(full));
        }
        assert_eq!(among_others.changed, Some("d.x/t.node7.ptrace".into()));
    }
}
