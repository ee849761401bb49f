//! Limits of tables. Every count that a caller or a stored schema can influence is bounded by one
//! of these constants.

/// Longest name of a table, in bytes of UTF-8.
pub const TABLE_NAME_BYTES_MAX: usize = 200;
/// Longest name of a column or index, in bytes of UTF-8.
pub const COLUMN_NAME_BYTES_MAX: usize = 255;
/// Maximum number of columns of a table, dropped ones included.
pub const COLUMNS_MAX: usize = 4096;
/// Maximum number of columns of a primary key.
pub const KEY_COLUMNS_MAX: usize = 8;
/// Maximum number of columns of an index.
pub const INDEX_COLUMNS_MAX: usize = 16;
/// Maximum number of secondary indexes of a table: their numbers are 2 to 249.
pub const INDEXES_MAX: usize = 248;
/// Maximum number of layouts in the history of a table.
pub const LAYOUTS_MAX: usize = 1 << 16;
/// Largest encoded schema that is read, in bytes.
pub const SCHEMA_BYTES_MAX: usize = 64 << 20;
/// Rows that a transaction of an index build reads at first.
pub const BACKFILL_ROWS_MAX: usize = 1024;
/// Longest wait of a schema change or bulk load for running transactions, in seconds.
pub const SCHEMA_LOCK_SECONDS_MAX: u64 = 10;
/// Longest wait of a write for a bulk load of its table, in seconds.
pub const LOAD_WAIT_SECONDS_MAX: u64 = 10;
/// Largest buffer for keys or rows that a thread keeps between calls, in bytes.
pub const THREAD_BUFFER_BYTES_MAX: usize = 1 << 20;
/// Longest preview of a key in a message, in characters.
pub const KEY_PREVIEW_CHARS_MAX: usize = 120;
/// Rows of a record batch, unless a scan sets another number.
#[cfg(feature = "arrow")]
pub const BATCH_ROWS_DEFAULT: usize = 8192;
/// Stored bytes of the rows after which a record batch ends; less than 2^31 with the largest row.
#[cfg(feature = "arrow")]
pub const BATCH_BYTES_MAX: usize = 16 << 20;
/// Memory of a row group after which it is written to a Parquet file.
#[cfg(feature = "parquet")]
pub const PARQUET_GROUP_BYTES_MAX: usize = 64 << 20;

const _: () = assert!(INDEXES_MAX + 2 <= 250, "index numbers are single bytes below 250");
const _: () = assert!(KEY_COLUMNS_MAX <= INDEX_COLUMNS_MAX, "an index can cover the key");
// `prefix` in state.rs adds at most 32 bytes; names of column families have at most 255.
const _: () = assert!(TABLE_NAME_BYTES_MAX + 32 <= perigee::limits::FAMILY_NAME_BYTES_MAX);
