//! Merge operands of a memtable that a reader has combined into one: without this, every read of a
//! counter merges all increments since the last flush.
//!
//! A reader that had to merge many operands of a key remembers the result, with the sequence number
//! of the newest of them and the version that follows the oldest. The next reader of the key merges
//! only newer operands, then this one, and goes on with that version. A reader that must not see
//! the newest of the combined operands does not use them, nor one that sees a range tombstone over
//! the key.

use crate::limits::{COMBINED_BYTES_MAX, COMBINED_OPERAND_BYTES_MAX};
use perigee_base::SeqNo;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Size of a combined operand in memory, in addition to its key and the operand itself.
const COMBINED_OVERHEAD_BYTES: usize = 160;

/// Adjacent operands of a key as one.
#[derive(Debug)]
pub struct CombinedOperand {
    /// Sequence number of the newest operand.
    pub newest: SeqNo,
    /// The version after the oldest one, as a position of the memtable's index.
    pub next: Option<u32>,
    /// The combined operand.
    pub operand: Vec<u8>,
}

/// Combined operands by key, of each key the newest. The mutex guards the map; no I/O and no call
/// of a merge operator while it is held.
#[derive(Debug, Default)]
pub struct CombinedOperands {
    by_key: Mutex<BTreeMap<Vec<u8>, Arc<CombinedOperand>>>,
    bytes: AtomicU64,
}

impl CombinedOperands {
    /// Returns the combined operand of a key. Does not lock if there are none.
    pub fn get(&self, key: &[u8]) -> Option<Arc<CombinedOperand>> {
        if self.memory_bytes() == 0 {
            return None;
        }
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Remembers a combined operand, unless it is too long, there is a newer one, or there are too
    /// many.
    pub fn remember(&self, key: &[u8], combined: &Arc<CombinedOperand>) {
        if combined.operand.len() > COMBINED_OPERAND_BYTES_MAX {
            return;
        }
        let size =
            |c: &CombinedOperand| (key.len() + c.operand.len() + COMBINED_OVERHEAD_BYTES) as u64;
        let mut by_key = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        let before = by_key.get(key);
        if before.is_some_and(|b| b.newest >= combined.newest) {
            return;
        }
        let replaced = before.map_or(0, |b| size(b));
        check!(
            replaced <= self.memory_bytes(),
            "the memory of a combined operand is accounted for",
            replaced,
            self.memory_bytes()
        );
        let without = self.memory_bytes() - replaced;
        if without + size(combined) <= COMBINED_BYTES_MAX {
            self.bytes.store(without + size(combined), Relaxed);
            by_key.insert(key.to_vec(), Arc::clone(combined));
        }
    }

    /// Returns the memory, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
}
