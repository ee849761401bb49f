//! What a family has done since the database was opened: how many tables were made of it, and what
//! that moved. Counted where a job has installed its outputs; what writers bring is counted by the
//! memtables ([`perigee_tree::Memtable::written`]).

use perigee_base::stats::Counter;

/// Counters of one family. Relaxed: no order between two of them is promised.
#[derive(Debug, Default)]
pub struct FamilyCounters {
    /// Tables made by flushes.
    pub flush_tables: Counter,
    /// Bytes that flushes wrote, tables and value logs.
    pub flush_bytes: Counter,
    /// Tables made by compactions.
    pub compaction_tables: Counter,
    /// Bytes of the tables that they read.
    pub compaction_bytes_read: Counter,
    /// Bytes that they wrote, tables and value logs.
    pub compaction_bytes_written: Counter,
    /// Bytes of keys and values that came as tables: of transactions larger than memory.
    pub loaded_bytes: Counter,
}
