//! Bulk loads, and tables built outside a database.

pub use crate::maintenance::load::{
    LoadBuilder, LoadStatus, StandaloneTableBuilder, StandaloneTableContents,
};
