//! What a replay found in the log, and what of it must survive. Plain data; must not know how the
//! log was read.

use crate::shared_batches::SharedBatches;
use crate::wal::LogSpan;
use perigee_base::{Error, FamilyId, SeqNo};
use perigee_file::log::RecordKind;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A record that must survive: some of its operations are not in tables, or it belongs to an
/// undecided prepared transaction; or it comes after such a one.
#[derive(Debug)]
pub struct KeptRecord {
    /// What it is.
    pub kind: RecordKind,
    /// Its bytes.
    pub buffer: Arc<Vec<u8>>,
    /// Its first number.
    pub lsn: u64,
    /// Numbers that it takes.
    pub count: u32,
    /// It holds operations that are not in tables, or the manifest does not vouch for it.
    pub needed: bool,
    /// In which segment it lies, and where.
    pub position: (usize, u64),
}

impl KeptRecord {
    /// Its payload.
    pub fn payload(&self) -> &[u8] {
        &self.buffer
    }
}

/// What the log held.
#[derive(Debug, Default)]
pub struct ReplayResult {
    /// Records to copy, contiguous up to `next`.
    pub records: Vec<KeptRecord>,
    /// LSN of the first of them.
    pub first_lsn: u64,
    /// The next LSN.
    pub next_lsn: u64,
    /// First and last number of the last record, if it only takes numbers (for a load, or a change
    /// of the column families).
    pub reserved_seqs: Option<(u64, SeqNo)>,
    /// Operations put into memtables.
    pub operations: u64,
    /// Bytes cut.
    pub cut_bytes: u64,
    /// Why.
    pub cut_reason: String,
    /// Undecided prepared transactions: number and payload of the record, by identifier.
    pub prepared_txns: BTreeMap<Vec<u8>, (u64, Arc<Vec<u8>>)>,
    /// Batches that several families share.
    pub shared_batches: SharedBatches,
    /// What could not be read (salvage only): unknown operations are missing.
    pub read_errors: Vec<Error>,
    /// All of these have a smaller LSN: that of the first record behind the last hole, if there is
    /// one.
    pub errors_before_lsn: u64,
    /// All segments, as far as they were read.
    pub segments: Vec<LogSpan>,
    /// The segments as far as everything in them is in tables, and nothing is copied.
    pub complete: Vec<LogSpan>,
    /// The log is larger than the limit: it was only verified, and nothing of it is in memtables.
    pub is_deferred: bool,
    /// Bytes that the operations of each family take in memory, about.
    pub family_bytes: BTreeMap<FamilyId, u64>,
    /// The log is on stable storage up to here, in the segments that it was read from.
    pub synced_lsn: u64,
    /// Most bytes that memtables and records held at a time.
    pub peak_bytes: u64,
}

impl ReplayResult {
    /// Forgets the records before the first that must survive.
    pub fn drop_obsolete_records(&mut self) {
        let undecided: BTreeSet<u64> = self.prepared_txns.values().map(|(lsn, _)| *lsn).collect();
        let spent =
            self.records.iter().take_while(|k| !k.needed && !undecided.contains(&k.lsn)).count();
        self.records.drain(..spent);
        self.first_lsn = self.records.first().map_or(self.first_lsn, |k| k.lsn);
    }

    /// LSN of the first record that must survive, if none were kept: the first that is `needed`, or
    /// of an undecided transaction.
    pub fn deferred_first_lsn(&self, needed: Option<u64>) -> u64 {
        let undecided = self.prepared_txns.values().map(|(lsn, _)| *lsn);
        undecided.chain(needed).min().unwrap_or(self.next_lsn)
    }

    /// Segments count as complete up to the first record that is copied.
    pub fn truncate_complete(&mut self) {
        let Some(KeptRecord { lsn, position: (segment, offset), .. }) = self.records.first() else {
            return;
        };
        self.complete.truncate(segment + 1);
        if let Some(span) = self.complete.get_mut(*segment) {
            (span.end_lsn, span.bytes) = (*lsn, *offset);
        }
    }
}
