//! Reports: from records alone.

pub mod summary;
pub mod table;
pub mod svg;
pub mod html;
