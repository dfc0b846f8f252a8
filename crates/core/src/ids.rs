//! Identifiers. Each is opaque to us: the service that embeds Presagio decides what its numbers mean.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// A file: an inode, a handle, the hash of a path.
    FileId(u64)
}
id! {
    /// The submitter's own name for a request. Presagio hands it back and never interprets it.
    RequestId(u64)
}
id! {
    /// The queue a request belongs to, for policies that keep one queue per data server (TWINS) or
    /// per weight class (WFQ).
    QueueId(u32)
}
id! {
    /// The application that issued a request, for policies that group by application (SW).
    AppId(u32)
}
id! {
    /// What a request came through: a file that a client has open. Two processes that opened a file have two of them.
    HandleId(u32)
}
