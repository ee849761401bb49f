//! Values and schemas of tables as text and JSON, shared by `tables`, `import` and `export`.
//!
//! Invariant: a value that is formatted and parsed again as its type is the same value, bit for
//! bit.

pub mod rfc3339;
pub mod value_text;
pub mod schema_text;
pub mod schema_json;
