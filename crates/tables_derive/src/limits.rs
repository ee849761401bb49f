//! Limits that the macro checks; the same as in `perigee_tables`.

/// Maximum number of columns of a primary key.
pub const KEY_COLUMNS_MAX: usize = 8;
