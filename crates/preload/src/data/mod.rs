//! Reading, writing and copying through descriptors.

mod hooks;
mod ops;
