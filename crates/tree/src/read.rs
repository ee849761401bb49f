//! The reads of a `View`: point lookups, scans, conflict checks, estimates and explanations, under
//! one name for the read path of the engine.

pub use crate::conflict_check::{
    find_conflict_in_range, find_conflict_with_run, newest_version_since,
};
pub use crate::estimate::{
    Cardinality, RangeCost, RangeEstimate, estimate_cardinality, estimate_range,
    estimate_range_cost,
};
pub use crate::explain::{LookupOutcome, LookupSource, LookupStep, explain};
pub use crate::get::{
    contains, get, is_live, lookup, lookup_live, lookup_overlay_memtable, lookup_spilled_runs,
    read_value,
};
pub use crate::multi_get::multi_get;
pub use crate::scan::{MergeCursor, RunCursor, ScanBounds, SourceCursor, VisibleCursor};
