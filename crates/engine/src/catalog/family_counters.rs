//! Work done for a column family since the database was opened: tables written and bytes moved by
//! jobs. Counted when a job has installed its outputs; bytes committed by writers are counted by
//! the memtables ([`perigee_tree::Memtable::user_bytes_written`]).

use perigee_base::Counter;

/// Counters of one column family. Relaxed: they are not updated atomically with each other.
#[derive(Debug, Default)]
pub struct FamilyCounters {
    /// Tables written by flushes.
    pub flush_tables: Counter,
    /// Bytes written by flushes, tables and value logs.
    pub flush_bytes: Counter,
    /// Tables written by compactions.
    pub compaction_tables: Counter,
    /// Bytes of the tables that compactions read.
    pub compaction_bytes_read: Counter,
    /// Bytes written by compactions, tables and value logs.
    pub compaction_bytes_written: Counter,
    /// Bytes of keys and values that were added as tables, by transactions larger than memory.
    pub loaded_bytes: Counter,
}
