//! Which active memtables are sealed before they are full: when memory is short,
//! [`pick_memtables_to_seal`], and because of scans, [`ScannedMemtable::is_flush_due`].

use super::memory_shares::MemtableUsage;
use super::write_pressure::LEVEL0_TRIGGER;
use perigee_base::SeqNo;

/// A memtable that is flushed because of scans has at least this share of its full size, which
/// bounds the number of flushes.
const SCANNED_SIZE_SHARE: u64 = 16;

/// The size of an active memtable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActiveMemtable {
    /// Sequence number of its first operation.
    pub first_seq: SeqNo,
    /// Its bytes; 0 if it is empty.
    pub bytes: u64,
    /// Bytes of it in batches shared with other column families.
    pub shared_bytes: u64,
}

/// Returns the indexes of the active memtables to seal in order to free `excess` bytes. If most
/// bytes are in batches shared by column families, flushing one of them frees nothing: then all
/// that hold the oldest batches are sealed, those up to sequence number `oldest(excess)`. Otherwise
/// by size. `all`: the bytes of all memtables.
pub fn pick_memtables_to_seal(
    active: &[ActiveMemtable],
    all: MemtableUsage,
    excess: u64,
    oldest: impl FnOnce(u64) -> SeqNo,
) -> Vec<usize> {
    let sum = |of: fn(&ActiveMemtable) -> u64| active.iter().map(of).sum::<u64>();
    if (sum(|a| a.shared_bytes) + all.shared) * 2 <= sum(|a| a.bytes) + all.shared {
        return pick_largest_memtables(active, excess);
    }
    let oldest = oldest(excess);
    let seal: Vec<usize> = (0..active.len())
        .filter(|i| active[*i].shared_bytes > 0 && active[*i].first_seq <= oldest)
        .collect();
    // If no flush is pending, a reader holds the oldest batches: then by size again, once that
    // frees enough.
    if seal.is_empty() && all.sealed == 0 && sum(|a| a.bytes) >= excess.saturating_mul(2) {
        return pick_largest_memtables(active, excess);
    }
    check_slow!(
        seal.iter().all(|i| active[*i].bytes > 0),
        "only memtables with entries are sealed",
        seal,
        active
    );
    seal
}

/// Returns the indexes of the active memtables to seal in order to free `excess` bytes: the largest
/// first, because a flush costs a file regardless of its size; among equals the oldest, because it
/// keeps log segments alive.
fn pick_largest_memtables(active: &[ActiveMemtable], excess: u64) -> Vec<usize> {
    let mut by_size: Vec<usize> = (0..active.len()).filter(|i| active[*i].bytes > 0).collect();
    by_size.sort_by_key(|i| (std::cmp::Reverse(active[*i].bytes), active[*i].first_seq));
    let mut picked_bytes = 0;
    let mut is_needed = |i: &usize| {
        let needed = picked_bytes < excess;
        picked_bytes += active[*i].bytes;
        needed
    };
    let picked: Vec<usize> = by_size.iter().copied().take_while(|i| is_needed(i)).collect();
    check!(
        picked.len() == by_size.len()
            || picked.iter().map(|i| active[*i].bytes).sum::<u64>() >= excess,
        "enough memtables are sealed, or all",
        picked,
        excess
    );
    picked
}

/// What decides whether a memtable is flushed because of the scans in it.
#[derive(Clone, Copy, Debug)]
pub struct ScannedMemtable {
    /// Steps that scans have taken in it.
    pub steps: u64,
    /// Its entries.
    pub entries: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes at which it is full.
    pub full_bytes: u64,
    /// Entries in the tables of the column family.
    pub table_entries: u64,
    /// Level 0 runs of the column family.
    pub level0_runs: usize,
}

impl ScannedMemtable {
    /// Returns true if scans have lost more time in the memtable than its flush costs. A step among
    /// entries in the order of writes, most of them overwritten, takes up to a microsecond more than
    /// a step in a block. To flush an entry, or to merge it, takes less; a flush is followed by its
    /// share of the merge of level 0 with the tables below. Small memtables stay: each flush costs a
    /// file, however small. So does the memtable while compactions are behind.
    pub fn is_flush_due(&self) -> bool {
        let merged = self.entries.saturating_add(self.table_entries / LEVEL0_TRIGGER as u64);
        self.entries > 0
            && self.steps >= merged
            && self.bytes >= self.full_bytes / SCANNED_SIZE_SHARE
            && self.level0_runs < LEVEL0_TRIGGER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scanned_memtable_is_flushed_once_scans_have_cost_as_much() {
        let due = ScannedMemtable {
            steps: 150,
            entries: 100,
            bytes: 40,
            full_bytes: 640,
            table_entries: 200,
            level0_runs: 3,
        };
        assert!(due.is_flush_due());
        let others = [
            ScannedMemtable { steps: 149, ..due },
            ScannedMemtable { bytes: 39, ..due },
            ScannedMemtable { level0_runs: 4, ..due },
            ScannedMemtable { table_entries: 204, ..due },
            ScannedMemtable { entries: 0, table_entries: 0, ..due },
        ];
        assert!(!others.iter().any(ScannedMemtable::is_flush_due));
    }

    #[test]
    fn largest_memtable_is_sealed_first_then_oldest() {
        let alone =
            |(first, bytes)| ActiveMemtable { first_seq: SeqNo(first), bytes, shared_bytes: 0 };
        let active = [(50, 10), (7, 30), (0, 0), (9, 40), (3, 30)].map(alone);
        assert_eq!(pick_largest_memtables(&active, 1), [3]);
        assert_eq!(pick_largest_memtables(&active, 41), [3, 4]);
        assert_eq!(pick_largest_memtables(&active, 71), [3, 4, 1]);
        assert_eq!(pick_largest_memtables(&active, 10_000), [3, 4, 1, 0], "never an empty one");
        assert_eq!(pick_largest_memtables(&[], 5), [] as [usize; 0]);
    }

    #[test]
    fn memtables_sharing_batches_are_sealed_together() {
        let of = |first, bytes, parts| ActiveMemtable {
            first_seq: SeqNo(first),
            bytes,
            shared_bytes: parts,
        };
        let active = [of(50, 10, 8), of(7, 30, 30), of(0, 0, 0), of(9, 4, 3), of(3, 9, 0)];
        let held = |sealed, shared| MemtableUsage { sealed, shared, ..MemtableUsage::default() };
        let oldest = |excess| move |requested| (requested == excess).then_some(SeqNo(10)).unwrap();
        assert_eq!(pick_memtables_to_seal(&active, MemtableUsage::default(), 5, oldest(5)), [1, 3]);
        assert_eq!(
            pick_memtables_to_seal(
                &[of(9, 400, 3), of(3, 9, 1)],
                MemtableUsage::default(),
                5,
                |_| panic!()
            ),
            [0]
        );
        assert_eq!(
            pick_memtables_to_seal(&[of(9, 400, 3), of(3, 9, 1)], held(1, 500), 5, |_| SeqNo(8)),
            [1],
            "a small one that holds large shared batches"
        );
        assert_eq!(
            pick_memtables_to_seal(&[of(9, 400, 3)], held(1, 500), 5, |_| SeqNo(8)),
            [0; 0],
            "immutable memtables hold the batches"
        );
        assert_eq!(
            pick_memtables_to_seal(&[of(9, 400, 3)], held(0, 500), 5, |_| SeqNo(8)),
            [0],
            "a reader holds the batches"
        );
        assert_eq!(
            pick_memtables_to_seal(&[of(9, 4, 3)], held(0, 500), 5, |_| SeqNo(8)),
            [0; 0],
            "too small to be worth a flush"
        );
    }
}
