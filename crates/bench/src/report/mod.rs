//! Reports, derived from records alone.

pub mod summary;
pub mod svg;
mod curves;
pub mod views;
pub mod table;
pub mod html;
