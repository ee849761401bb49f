//! Reports: from records alone.

pub mod summary;
pub mod table;
