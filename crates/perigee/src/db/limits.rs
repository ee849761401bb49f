//! Limits of the database handle and of metrics.

/// Most attempts of [`Db::family_or_create`](crate::Db::family_or_create).
pub const FAMILY_ATTEMPTS_MAX: u32 = 100;
/// Number of latency buckets in metrics. Their bounds double, from 1 us to about 67 s.
pub const LATENCY_BUCKETS_MAX: u32 = 27;

const _: () = assert!(FAMILY_ATTEMPTS_MAX >= 2, "there is a retry");
const _: () =
    assert!(1000 << (LATENCY_BUCKETS_MAX - 1) < u64::MAX / 1000, "bounds do not overflow");
