//! L3: one LSM tree. Memtables, immutable versions of table runs, reads over both, and the single
//! rewrite pipeline by which entries move into new tables.
//!
//! Independent of paths, clocks, threads, the log and the manifest: jobs supply the inputs and
//! apply the resulting [`version::VersionEdit`]. The order of the modules is the order of their
//! dependencies.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod striped_arc;
pub mod mvcc;
pub mod memtable;
pub mod version;
pub mod txn_overlay;
pub mod view;
mod fetch_value;
pub mod merge_operands;
pub mod get;
pub mod multi_get;
pub mod explain;
pub mod scan;
pub mod conflict_check;
pub mod estimate;
pub mod rewrite;
pub mod flush;
pub mod compact;
pub mod bulk;
pub mod tree;

pub use memtable::Memtable;
pub use striped_arc::StripedGuard;
pub use tree::LsmTree;
pub use version::{Run, Table, TableMeta, Version, VersionEdit, Vlog, VlogMeta};
pub use view::View;
