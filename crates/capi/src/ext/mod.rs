//! Features of Perigee beyond TidesDB's API, for C: `perigee.h`. One module per subject; they share
//! the handles of the other modules.

pub mod open;
pub mod txn;
pub mod snapshot;
pub mod value;
pub mod feed;
pub mod info;
