//! What Perigee has beyond TidesDB's API, for C: `perigee.h`. Rooms by subject; they share the
//! handles of the rest.

pub mod open;
pub mod txn;
pub mod snapshot;
pub mod value;
pub mod feed;
pub mod info;
