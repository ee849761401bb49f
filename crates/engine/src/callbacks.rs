//! User code that the engine calls: comparators, merge operators, compaction filters, commit hooks
//! and the log listener.

pub use crate::catalog::hook_event::HookEvent;
pub use crate::settings::compaction_filters::CompactionFilters;
pub use crate::settings::log_listener::{LogLevel, LogListener};
pub use perigee_base::{
    KeyComparator, MergeOperator, MergeOperators, MergeRule, REGISTERED_COMPARATOR,
};
pub use perigee_tree::rewrite::{CompactionFilter, FilterDecision, FilterEntry};
