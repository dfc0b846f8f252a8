//! How those who come prove who they are, and how many connections each user has: as `presagio-door` has it, and what a
//! credential is in 9P.

pub mod credential;

pub use presagio_door::{Door, DoorError, munge, shares};
