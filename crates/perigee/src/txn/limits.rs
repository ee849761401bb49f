//! Limits of the retries of a closure in a transaction, and of values that are written in parts.

/// Most attempts of a closure in a transaction.
pub const TXN_ATTEMPTS_MAX: u32 = 100;
/// First pause before another attempt, in microseconds; each further one is twice as long.
pub const TXN_RETRY_US_MIN: u64 = 20;
/// Longest such pause, in microseconds.
pub const TXN_RETRY_US_MAX: u64 = 20_000;

/// Bytes of the source of a value that are read at a time.
pub const COPIED_PART_BYTES: u64 = 1 << 20;

const _: () = assert!(TXN_ATTEMPTS_MAX >= 2, "there is a retry");
// The random part of a pause is a remainder by its length.
const _: () = assert!(0 < TXN_RETRY_US_MIN && TXN_RETRY_US_MIN < TXN_RETRY_US_MAX);
const _: () = assert!(TXN_ATTEMPTS_MAX as u64 * 2 * TXN_RETRY_US_MAX < 5_000_000, "five seconds");
