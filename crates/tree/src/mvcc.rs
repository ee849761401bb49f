//! Snapshot stripes: which versions of a key a rewrite must preserve for its readers. Pure.

use perigee_base::SeqNo;

/// The readers that a rewrite must respect: ascending, without duplicates, the present as the last.
///
/// Every version belongs to the snapshot stripe of the first reader that can see it; of each key,
/// only the newest version in a stripe is ever visible.
#[derive(Clone, Debug)]
pub struct SnapshotStripes {
    readers: Vec<SeqNo>,
    /// The newest snapshot.
    newest_snapshot: Option<SeqNo>,
    /// Each version above it is the only one in its stripe.
    horizon: SeqNo,
}

impl SnapshotStripes {
    /// Creates the stripes of the live snapshots and the present, which must not be older than any
    /// input of the rewrite.
    pub fn new(mut snapshots: Vec<SeqNo>, present: SeqNo) -> SnapshotStripes {
        let newest = snapshots.iter().max().copied();
        snapshots.push(present);
        snapshots.sort_unstable();
        snapshots.dedup();
        SnapshotStripes { readers: snapshots, newest_snapshot: newest, horizon: SeqNo::MAX }
    }
    /// Adds readers that may still come, at any sequence number from `horizon` on: every version
    /// above it may become visible.
    #[must_use]
    pub fn with_history_from(mut self, horizon: Option<SeqNo>) -> SnapshotStripes {
        if let Some(horizon) = horizon {
            self.horizon = horizon;
            let at = self.readers.partition_point(|reader| *reader < horizon);
            if self.readers.get(at) != Some(&horizon) {
                self.readers.insert(at, horizon);
            }
            check!(
                self.readers.is_sorted_by(|a, b| a < b),
                "readers are in order, each once",
                self.readers
            );
        }
        self
    }
    /// Returns the stripe of a version.
    pub fn stripe_of(&self, seq: SeqNo) -> usize {
        if seq > self.horizon {
            let above = usize::try_from(seq.0 - self.horizon.0).unwrap_or(usize::MAX);
            return self.readers.len().saturating_add(above);
        }
        let stripe = self.readers.partition_point(|&reader| reader < seq);
        check_slow!(
            self.readers.get(stripe).is_none_or(|reader| *reader >= seq),
            "the first reader of a stripe sees its entries",
            seq,
            stripe
        );
        stripe
    }
    /// Returns the newest sequence number that is in an older stripe than `seq`, if there is one.
    pub fn newest_of_next_older(&self, seq: SeqNo) -> Option<SeqNo> {
        if seq > self.horizon {
            return Some(seq.prev());
        }
        let newest = self.stripe_of(seq).checked_sub(1).map(|older| self.readers[older]);
        check_slow!(
            newest.is_none_or(|newest| self.stripe_of(newest) < self.stripe_of(seq)),
            "it is in another stripe",
            newest,
            seq
        );
        newest
    }
    /// Returns true if the version is visible neither to a snapshot nor to one that may still be
    /// taken of the past.
    pub fn is_above_snapshots(&self, seq: SeqNo) -> bool {
        // The stripe does not decide: a snapshot taken since the last write equals the present.
        seq <= self.horizon && self.newest_snapshot.is_none_or(|snapshot| snapshot < seq)
    }
    /// Returns true if every reader sees the version, or something newer: it is in the oldest
    /// stripe.
    pub fn is_in_oldest_stripe(&self, seq: SeqNo) -> bool {
        self.stripe_of(seq) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_separates_older_from_newer_versions() {
        let s = SnapshotStripes::new(vec![SeqNo(10), SeqNo(5), SeqNo(10)], SeqNo(20));
        assert_eq!(s.stripe_of(SeqNo(5)), 0);
        assert_eq!(s.stripe_of(SeqNo(6)), 1);
        assert_eq!(s.stripe_of(SeqNo(10)), 1);
        assert_eq!(s.stripe_of(SeqNo(11)), 2);
        assert!(s.is_in_oldest_stripe(SeqNo(1)) && !s.is_in_oldest_stripe(SeqNo(6)));
        assert!(s.is_above_snapshots(SeqNo(11)) && !s.is_above_snapshots(SeqNo(10)));
        let kept =
            SnapshotStripes::new(vec![SeqNo(5)], SeqNo(20)).with_history_from(Some(SeqNo(10)));
        let all: Vec<usize> =
            [4, 5, 6, 10, 11, 12].into_iter().map(|seq| kept.stripe_of(SeqNo(seq))).collect();
        assert_eq!(all[..4], [0, 0, 1, 1], "unchanged below the horizon");
        assert!(all[3] < all[4] && all[4] < all[5], "one stripe per version above the horizon");
        assert!(
            kept.is_above_snapshots(SeqNo(10)) && !kept.is_above_snapshots(SeqNo(11)),
            "a reader may still come"
        );
        for seq in (4..=12).map(SeqNo) {
            let older = kept.newest_of_next_older(seq);
            assert!(older.is_none_or(|o| o < seq && kept.stripe_of(o) < kept.stripe_of(seq)));
            let first = older.map_or(SeqNo::ZERO, |o| SeqNo(o.0 + 1));
            assert_eq!(kept.stripe_of(first), kept.stripe_of(seq), "{seq}");
        }
        let of_now = SnapshotStripes::new(vec![SeqNo(20)], SeqNo(20));
        assert!(!of_now.is_above_snapshots(SeqNo(20)), "a snapshot of the present");
    }
}
