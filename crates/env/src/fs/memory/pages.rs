//! Contents of one simulated file: the bytes that the kernel shows (`cached`) and the bytes on the
//! disk (`media`).
//!
//! Invariants:
//! 1. Bytes that differ between the two lie in `dirty`, unless a failed sync dropped them.
//! 2. `dirty` is sorted, its ranges do not touch, and none extends past `cached`.

use crate::rand::SeededRng;
use std::ops::Range;
use std::sync::Arc;

/// Unit that the disk writes atomically, in bytes.
pub(super) const SECTOR: usize = 512;

/// Contents of a file. The buffers are shared between clones of a disk until one of them writes.
#[derive(Clone, Debug, Default)]
pub(super) struct Pages {
    cached: Arc<Vec<u8>>,
    media: Arc<Vec<u8>>,
    dirty: Vec<Range<usize>>,
    /// The length changed since the last sync.
    len_dirty: bool,
    /// Number of truncations; a running sync uses it to detect that its saved length is outdated.
    truncations: u64,
    /// Number of syncs started.
    syncs: u64,
    /// Number of the latest started sync among those that succeeded.
    synced: u64,
}

/// State that a sync started now must make durable.
#[derive(Clone, Copy, Debug)]
pub(super) struct SyncPoint {
    number: u64,
    len: usize,
    truncations: u64,
}

impl Pages {
    /// Creates a file with durable contents.
    pub fn durable(bytes: Vec<u8>) -> Pages {
        Self::on_media(Arc::new(bytes))
    }

    fn on_media(media: Arc<Vec<u8>>) -> Pages {
        Pages { cached: media.clone(), media, ..Pages::default() }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.cached
    }

    pub fn len(&self) -> usize {
        self.cached.len()
    }

    /// Writes at `offset`; a gap before it reads as zeros.
    pub fn write_at(&mut self, offset: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let cached = Arc::make_mut(&mut self.cached);
        let end = offset + bytes.len();
        let from = offset.min(cached.len());
        if end > cached.len() {
            cached.resize(end, 0);
            self.len_dirty = true;
        }
        cached[offset..end].copy_from_slice(bytes);
        self.mark_dirty(from..end);
        self.check_dirty();
    }
    /// Checks the invariants of the list of dirty ranges.
    fn check_dirty(&self) {
        check_slow!(
            self.dirty.iter().all(|r| r.start < r.end && r.end <= self.cached.len()),
            "dirty ranges are not empty and inside the file",
            self.dirty,
            self.cached.len()
        );
        check_slow!(
            self.dirty.windows(2).all(|w| w[0].end < w[1].start),
            "dirty ranges ascend and are joined",
            self.dirty
        );
        check_slow!(
            !self.dirty.is_empty() || self.len_dirty || self.cached == self.media,
            "a clean file is on the medium"
        );
    }

    /// Extends the contents to `len` bytes with zeros, if shorter. The new length becomes durable
    /// by a sync, or by chance.
    pub fn extend(&mut self, len: usize) {
        if len > self.cached.len() {
            Arc::make_mut(&mut self.cached).resize(len, 0);
            self.len_dirty = true;
        }
    }

    pub fn truncate(&mut self, len: usize) {
        if len >= self.cached.len() {
            return;
        }
        Arc::make_mut(&mut self.cached).truncate(len);
        self.len_dirty = true;
        self.truncations += 1;
        self.dirty.retain_mut(|r| {
            r.end = r.end.min(len);
            r.start < r.end
        });
        self.check_dirty();
    }

    /// Starts a sync, which covers the current contents.
    pub fn begin_sync(&mut self) -> SyncPoint {
        self.syncs += 1;
        SyncPoint { number: self.syncs, len: self.cached.len(), truncations: self.truncations }
    }

    /// Completes a successful sync.
    pub fn finish_sync(&mut self, point: SyncPoint) {
        // A sync that started later has completed: it covered this one, whose older length must not
        // overwrite the newer one.
        if point.number < self.synced && point.truncations == self.truncations {
            return;
        }
        self.synced = self.synced.max(point.number);
        // After a concurrent truncation everything is written: stronger than required, and rare.
        let len = if point.truncations == self.truncations { point.len } else { self.cached.len() };
        if self.len_dirty && self.media.len() != len {
            Arc::make_mut(&mut self.media).resize(len, 0);
        }
        let mut rest = Vec::new();
        for range in std::mem::take(&mut self.dirty) {
            let end = range.end.min(len);
            if range.start < end {
                Arc::make_mut(&mut self.media)[range.start..end]
                    .copy_from_slice(&self.cached[range.start..end]);
            }
            if range.end > len {
                rest.push(range.start.max(len)..range.end);
            }
        }
        self.dirty = rest;
        self.len_dirty &= self.cached.len() != len;
        check!(self.synced <= self.syncs, "a sync ends after it began", self.synced, self.syncs);
    }

    /// Applies a failed sync as on ext4 and XFS: pages are marked clean, stay readable for now, and
    /// are never written.
    pub fn drop_dirty(&mut self) {
        self.dirty.clear();
        self.len_dirty = false;
    }

    /// Applies a failed sync as on btrfs: the pages are dropped, and reads return the contents of
    /// the disk again.
    pub fn revert_to_media(&mut self) {
        self.cached = self.media.clone();
        self.truncations += 1;
        self.drop_dirty();
        self.check_dirty();
    }

    /// Returns the contents after a power failure; every unsynced sector is kept with probability
    /// `p`.
    pub fn after_power_cut(&self, rng: &mut SeededRng, p: f64) -> Pages {
        if self.dirty.is_empty() && !self.len_dirty {
            return Self::on_media(self.media.clone());
        }
        let mut out = self.media.as_ref().clone();
        let inside = out.len().min(self.cached.len());
        self.copy_dirty_sectors(&mut out, 0..inside, rng, p);
        if self.len_dirty {
            if self.cached.len() > out.len() {
                self.copy_tail(&mut out, rng, p);
            } else if rng.chance(p) {
                out.truncate(self.cached.len());
            }
        }
        Self::durable(out)
    }

    /// Copies dirty sectors within `window` to `out`, each with probability `p`.
    fn copy_dirty_sectors(
        &self,
        out: &mut [u8],
        window: Range<usize>,
        rng: &mut SeededRng,
        p: f64,
    ) {
        for range in &self.dirty {
            let (mut at, end) = (range.start.max(window.start), range.end.min(window.end));
            while at < end {
                let next = (at / SECTOR + 1).saturating_mul(SECTOR).min(end);
                if rng.chance(p) {
                    out[at..next].copy_from_slice(&self.cached[at..next]);
                }
                at = next;
            }
        }
    }

    /// Adds the appended part: data and length become durable independently.
    fn copy_tail(&self, out: &mut Vec<u8>, rng: &mut SeededRng, p: f64) {
        let (old, full) = (out.len(), self.cached.len());
        if p <= 0.0 {
            return;
        }
        out.resize(full, 0);
        let variant = if p >= 1.0 {
            TailOutcome::Whole
        } else {
            TailOutcome::ALL[rng.index(TailOutcome::ALL.len())]
        };
        let cut = old + rng.index(full - old + 1);
        match variant {
            TailOutcome::Whole => self.copy_dirty_sectors(out, old..full, rng, 1.0),
            TailOutcome::Sectors => self.copy_dirty_sectors(out, old..full, rng, p),
            TailOutcome::Zeros => {}
            TailOutcome::PrefixThenZeros => self.copy_dirty_sectors(out, old..cut, rng, 1.0),
            TailOutcome::CutAtByte => {
                self.copy_dirty_sectors(out, old..cut, rng, 1.0);
                out.truncate(cut);
            }
            TailOutcome::CutAtSector => {
                self.copy_dirty_sectors(out, old..full, rng, p);
                out.truncate((cut / SECTOR * SECTOR).max(old));
            }
        }
    }

    fn mark_dirty(&mut self, new: Range<usize>) {
        // Usually an append after the last range.
        if let Some(last) = self.dirty.last_mut()
            && last.start <= new.start
            && new.start <= last.end
        {
            last.end = last.end.max(new.end);
            return;
        }
        let first = self.dirty.partition_point(|r| r.end < new.start);
        let end = self.dirty.partition_point(|r| r.start <= new.end);
        let mut merged = new;
        for r in self.dirty.drain(first..end.max(first)) {
            merged = merged.start.min(r.start)..merged.end.max(r.end);
        }
        self.dirty.insert(first, merged);
    }
}

/// What remains of an appended tail.
#[derive(Clone, Copy)]
enum TailOutcome {
    Whole,
    Sectors,
    /// Length without data.
    Zeros,
    PrefixThenZeros,
    /// Data without length.
    CutAtByte,
    CutAtSector,
}

impl TailOutcome {
    const ALL: [TailOutcome; 6] = [
        TailOutcome::Whole,
        TailOutcome::Sectors,
        TailOutcome::Zeros,
        TailOutcome::PrefixThenZeros,
        TailOutcome::CutAtByte,
        TailOutcome::CutAtSector,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut_power(p: &Pages, seed: u64, survival: f64) -> Vec<u8> {
        p.after_power_cut(&mut SeededRng::new(seed), survival).bytes().to_vec()
    }

    fn sync(p: &mut Pages) {
        let point = p.begin_sync();
        p.finish_sync(point);
    }

    #[test]
    fn sync_covers_contents_at_its_start() {
        let mut p = Pages::default();
        p.write_at(0, b"before");
        let point = p.begin_sync();
        p.write_at(6, b"after");
        p.finish_sync(point);
        for seed in 0..200 {
            let left = cut_power(&p, seed, 0.5);
            assert!(left.starts_with(b"before") && left.len() <= 11);
        }
        assert_eq!(cut_power(&p, 1, 0.0), b"before");
        assert_eq!(cut_power(&p, 1, 1.0), b"beforeafter");
    }

    #[test]
    fn dropped_pages_are_lost_even_after_a_later_sync() {
        let mut p = Pages::durable(b"old".to_vec());
        p.write_at(3, b"lost");
        p.drop_dirty();
        sync(&mut p);
        assert_eq!(p.bytes(), b"oldlost");
        assert_eq!(cut_power(&p, 1, 1.0), b"old");
        p.write_at(7, b"new");
        sync(&mut p);
        assert_eq!(cut_power(&p, 1, 1.0), b"old\0\0\0\0new");
    }

    #[test]
    fn reverted_pages_are_unreadable_at_once() {
        let mut p = Pages::durable(b"old".to_vec());
        p.write_at(3, b"lost");
        p.revert_to_media();
        assert_eq!(p.bytes(), b"old");
        p.write_at(7, b"x");
        assert_eq!(p.bytes(), b"old\0\0\0\0x");
    }

    #[test]
    fn allocated_zeros_are_durable_only_after_sync() {
        let mut p = Pages::durable(b"old".to_vec());
        p.extend(2000);
        assert!((0..40).any(|s| cut_power(&p, s, 0.5).len() < 2000));
        sync(&mut p);
        p.write_at(3, b"new");
        for seed in 0..40 {
            let left = cut_power(&p, seed, 0.5);
            assert!(
                left.len() == 2000 && left.starts_with(b"old") && left[6..].iter().all(|b| *b == 0)
            );
        }
        p.revert_to_media();
        assert_eq!((p.len(), &p.bytes()[..6]), (2000, &b"old\0\0\0"[..]));
    }

    #[test]
    fn truncation_is_durable_only_after_sync() {
        let mut p = Pages::durable(vec![7; 2000]);
        p.truncate(10);
        let lens: Vec<_> = (0..40).map(|s| cut_power(&p, s, 0.5).len()).collect();
        assert!(lens.contains(&10) && lens.contains(&2000));
        sync(&mut p);
        assert_eq!(cut_power(&p, 0, 0.5), [7; 10]);
    }

    #[test]
    fn sync_observes_concurrent_truncation() {
        let mut p = Pages::default();
        p.write_at(0, b"abcdef");
        let point = p.begin_sync();
        p.truncate(2);
        p.write_at(2, b"XY");
        p.finish_sync(point);
        assert_eq!(cut_power(&p, 1, 0.0), b"abXY");
    }

    #[test]
    fn dirty_ranges_merge() {
        let mut p = Pages::durable(vec![0; 100]);
        for at in [50, 10, 30, 20, 40, 9, 51] {
            p.write_at(at, &[1; 10]);
        }
        assert_eq!(p.dirty[..], *std::slice::from_ref(&(9..61)));
        p.write_at(80, &[1]);
        p.write_at(0, &[1]);
        assert_eq!(p.dirty, [0..1, 9..61, 80..81]);
        p.truncate(30);
        assert_eq!(p.dirty, [0..1, 9..30]);
    }
}
