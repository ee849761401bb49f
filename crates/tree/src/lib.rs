//! L3: one LSM tree. Memtables, immutable versions of table runs, reads over both, and rewrites, by
//! which entries move into new tables.
//!
//! Independent of paths, clocks, threads, the log and the manifest: jobs supply the inputs and
//! apply the resulting [`VersionEdit`]. The modules are declared in dependency order.
//!
//! Interface: the names re-exported below, the functions that read a view ([`read`]), the pickers
//! and the execution of compactions ([`compact`]), bulk loads ([`bulk`]), and what all writers of
//! tables have in common ([`rewrite`]).
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

#[macro_use(check, check_slow, seeded)]
extern crate perigee_base;
mod limits;
mod touch;
mod striped_arc;
mod mvcc;
mod memtable;
mod version;
mod txn_overlay;
mod view;
mod fetch_value;
mod merge_operands;
mod get;
mod multi_get;
mod explain;
mod scan;
mod conflict_check;
mod estimate;
pub mod read;
pub mod rewrite;
mod flush;
pub mod compact;
pub mod bulk;
mod tree;

// The tree of a column family, and what its readers pin.
pub use striped_arc::StripedGuard;
pub use tree::LsmTree;
pub use view::View;

// Memtables, batches that several of them share, and the writes of an open transaction.
pub use memtable::{BatchShare, Memtable, SharedBatch, seed_key_hashes};
pub use txn_overlay::{OverlayRuns, TXN_SEQ_BASE, TxnOverlay, VisibleSeqs};

// Versions: tables, value logs and runs, the edits that change them, and snapshots to preserve.
pub use mvcc::SnapshotStripes;
pub use version::{
    AddedTable, FileOpener, Run, SalvageGap, Table, TableMeta, Version, VersionEdit, Vlog, VlogMeta,
};

// Flush; the other rewrites are in the public modules.
pub use flush::flush;

#[cfg(test)]
mod invariant_tests;
