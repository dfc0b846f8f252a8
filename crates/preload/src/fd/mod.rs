//! Opening, closing and duplicating descriptors, and what is done to a file without moving its bytes.

mod hooks;
pub mod ops;
