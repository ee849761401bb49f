//! Rows as record batches of Apache Arrow (feature `arrow`): schemas of both kinds, scans that
//! return batches, and rows from batches.
//!
//! | column type | Arrow type |
//! |---|---|
//! | `bool` | `Boolean` |
//! | `i8` to `i64`, `u8` to `u64` | `Int8` to `Int64`, `UInt8` to `UInt64` |
//! | `i128`, `u128` | `Decimal256(39, 0)` |
//! | `f32`, `f64` | `Float32`, `Float64` |
//! | `timestamp` | `Timestamp(Microsecond, "UTC")` |
//! | `uuid` | `FixedSizeBinary(16)` with the extension type `arrow.uuid`, or `Utf8` |
//! | `text`, `bytes` | `Utf8`, `Binary` |

pub mod types;
mod columns;
pub mod rows;
pub mod scan;
#[cfg(feature = "parquet")]
pub mod parquet;
