//! The result of a log replay, including the records that must survive. Plain data; independent of
//! how the log is read.

use crate::catalog::retained_logs::LogSpan;
use crate::resources::shared_batches::SharedBatches;
use perigee_base::{Error, FamilyId, SeqNo};
use perigee_file::log::RecordKind;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

/// A record that must survive: some of its operations are not in tables, or it belongs to a
/// prepared transaction that is not decided; or it follows such a record.
#[derive(Debug)]
pub struct KeptRecord {
    /// Record kind.
    pub kind: RecordKind,
    /// Payload bytes.
    pub buffer: Arc<Vec<u8>>,
    /// Its first LSN.
    pub lsn: SeqNo,
    /// Number of LSNs that it takes.
    pub count: u32,
    /// True if it holds operations that are not in tables, or the manifest does not record it as
    /// durable.
    pub needed: bool,
    /// Where it is.
    pub position: RecordPosition,
}

/// The position of a record in the log.
#[derive(Clone, Copy, Debug)]
pub struct RecordPosition {
    /// Index of its segment in the catalog.
    pub segment: usize,
    /// Its offset in the segment, in bytes.
    pub offset: u64,
}

impl KeptRecord {
    /// Returns its sequence numbers.
    pub fn seqs(&self) -> Range<SeqNo> {
        self.lsn..self.lsn.plus(u64::from(self.count))
    }
    /// Returns the payload.
    pub fn payload(&self) -> &[u8] {
        &self.buffer
    }
}

/// The result of a replay.
#[derive(Debug, Default)]
pub struct ReplayResult {
    /// Records to copy, contiguous up to `next_lsn`.
    pub records: Vec<KeptRecord>,
    /// LSN of the first of them.
    pub first_lsn: SeqNo,
    /// The next LSN.
    pub next_lsn: SeqNo,
    /// First and last sequence number of the last record, if it only reserves sequence numbers (for
    /// a bulk load or a column-family change).
    pub reserved_seqs: Option<RangeInclusive<SeqNo>>,
    /// Operations put into memtables.
    pub operations: u64,
    /// Bytes truncated from the log.
    pub cut_bytes: u64,
    /// The reasons for the truncation.
    pub cut_reason: String,
    /// Prepared transactions that are not decided: LSN and payload of the prepare record, by global
    /// identifier.
    pub prepared_txns: BTreeMap<Vec<u8>, (SeqNo, Arc<Vec<u8>>)>,
    /// Batches whose buffers several column families share.
    pub shared_batches: SharedBatches,
    /// Damage found (salvage only): an unknown set of operations is missing.
    pub read_errors: Vec<Error>,
    /// Upper bound of the LSNs of missing operations: the LSN of the first record after the last
    /// damage, if there is one.
    pub errors_before_lsn: SeqNo,
    /// All segments, up to where they were read.
    pub segments: Vec<LogSpan>,
    /// The segments, up to where everything in them is in tables and nothing is copied.
    pub complete: Vec<LogSpan>,
    /// The log exceeds the memory limit: it was only verified, and nothing of it is in memtables.
    pub is_deferred: bool,
    /// Approximate memory needed for the operations of each column family, in bytes.
    pub family_bytes: BTreeMap<FamilyId, u64>,
    /// The log is on stable storage up to this LSN, in the segments from which it was read.
    pub synced_lsn: SeqNo,
    /// Peak memory of memtables and records, in bytes.
    pub peak_bytes: u64,
}

impl ReplayResult {
    /// Drops the records before the first that must survive.
    pub fn drop_obsolete_records(&mut self) {
        let prepared: BTreeSet<SeqNo> = self.prepared_txns.values().map(|(lsn, _)| *lsn).collect();
        let obsolete =
            self.records.iter().take_while(|k| !k.needed && !prepared.contains(&k.lsn)).count();
        self.records.drain(..obsolete);
        self.first_lsn = self.records.first().map_or(self.first_lsn, |k| k.lsn);
        check_slow!(
            self.records.last().is_none_or(|k| self.first_lsn <= k.lsn),
            "the records of a replay ascend",
            self.first_lsn,
            self.next_lsn
        );
    }

    /// Returns the LSN of the first record that must survive, for a deferred replay: `needed`, or
    /// that of the oldest prepared transaction.
    pub fn deferred_first_lsn(&self, needed: Option<SeqNo>) -> SeqNo {
        let prepared = self.prepared_txns.values().map(|(lsn, _)| *lsn);
        prepared.chain(needed).min().unwrap_or(self.next_lsn)
    }

    /// Truncates the list of complete segments at the first record that is copied.
    pub fn truncate_complete(&mut self) {
        let Some(KeptRecord { lsn, position: RecordPosition { segment, offset }, .. }) =
            self.records.first()
        else {
            return;
        };
        self.complete.truncate(segment + 1);
        if let Some(span) = self.complete.get_mut(*segment) {
            (span.end_lsn, span.bytes) = (*lsn, *offset);
        }
        check_slow!(
            self.complete.iter().all(|span| span.end_lsn <= *lsn),
            "complete segments end before the first record that is copied",
            self.complete,
            lsn
        );
    }
}
