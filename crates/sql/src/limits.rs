//! Limits of SQL sessions and the server.

use std::time::Duration;

/// Most key ranges that the conditions of a statement are turned into, such as those of a list of
/// values.
pub const KEY_RANGES_MAX: usize = 256;
/// Key ranges that EXPLAIN shows.
pub const EXPLAINED_RANGES_MAX: usize = 4;
/// Attempts of a statement outside of a transaction that conflicts with other writers.
pub const CONFLICT_ATTEMPTS_MAX: u32 = 20;
/// Cost of reading a row through an index, in rows of a scan.
pub const INDEX_LOOKUP_COST: u64 = 8;
/// Default memory of the operators of all statements together, in bytes: sorts, joins, aggregates.
pub const STATEMENT_MEMORY_DEFAULT: usize = 1 << 30;
/// Longest statement text, in bytes.
pub const STATEMENT_BYTES_MAX: usize = 16 << 20;
/// Most connections that the server accepts at a time, unless set.
pub const CONNECTIONS_DEFAULT: usize = 100;
/// Pause after a connection that could not be accepted.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Shortest password of the server, in characters.
pub const PASSWORD_CHARS_MIN: usize = 8;
