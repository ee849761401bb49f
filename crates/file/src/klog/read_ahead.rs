//! Data blocks from disk: one for the cache, one in passing, or a stretch of them ahead of a walk.
//! The checksum of a frame is compared before anything of it is used, whichever way it came.
//!
//! A block in passing lies in a buffer that the thread keeps ([`spare`]): most reads that miss the
//! cache want one entry of a block that nobody asks for again soon.

use super::reader::{EntryValue, KlogReader};
use crate::block::frame::{Frame, FrameKind};
use crate::block::{TableBlock, buffer_pool};
use crate::table_file_reader::try_extend_zeroed;
use perigee_base::io_stats::IoActivity;
use perigee_base::limits::READ_AHEAD_BYTES_MAX;
use perigee_base::{FileId, KeyComparator, Result, SeqNo};
use std::sync::Arc;

/// A walk reads this much ahead at first, twice as much each time, and so much at most.
const READ_AHEAD_BYTES: (u64, u64) = (4 << 10, READ_AHEAD_BYTES_MAX);
/// A walk that reads so much at a time is a long one: its blocks come into the cache only where
/// there is room.
const LONG_SCAN_BYTES: u64 = 32 << 10;

/// What a walk has read ahead: the frames of some blocks that follow each other.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    /// The last block that was asked for.
    last_block: Option<usize>,
    /// The next block is the first of a walk (forward: true).
    pub scan_forward: Option<bool>,
    /// How much was read the last time.
    window_bytes: u64,
    /// Where `frames` lies in the file.
    offset: u64,
    frames: Vec<u8>,
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        buffer_pool::recycle_scan_buffer(std::mem::take(&mut self.frames));
    }
}

impl ReadAhead {
    /// Which way it reads on for block `i`, if that is a part of a walk.
    fn direction(&self, i: usize) -> Option<bool> {
        self.scan_forward
            .or(self.last_block.filter(|last| i.abs_diff(*last) == 1).map(|last| i > last))
    }
    /// The frame at a place, if it was read.
    fn buffered_frame(&self, (offset, length): (u64, u64)) -> Option<&[u8]> {
        let start = usize::try_from(offset.checked_sub(self.offset)?).ok()?;
        self.frames.get(start..start.checked_add(usize::try_from(length).ok()?)?)
    }
}

impl KlogReader {
    /// What a look-up that has come to data block `i` finds there, if that is not in the cache.
    pub(super) fn get_uncached(
        &self,
        i: usize,
        key: &[u8],
        at: SeqNo,
    ) -> Result<Option<(SeqNo, EntryValue)>> {
        self.count_cache_miss();
        if self.cache.should_admit(i, false) {
            let block = Arc::new(self.read_block(i, IoActivity::Get, true)?);
            self.cache.insert(i, Arc::clone(&block));
            return Ok(self.search_block(&block, i, key, at, EntryValue::from_block));
        }
        let block = self.read_block(i, IoActivity::Get, false)?;
        let answer = self.search_block(&block, i, key, at, EntryValue::copy_from_block);
        buffer_pool::recycle_block(block);
        Ok(answer)
    }

    /// Data block `i` for a walk that was in block `last` before, which goes.
    pub(super) fn load_block_for_scan(
        &self,
        i: usize,
        (fill_cache, cause): (bool, IoActivity),
        ahead: &mut ReadAhead,
        last: Option<Arc<TableBlock>>,
    ) -> Result<Arc<TableBlock>> {
        if let Some(block) = last.and_then(Arc::into_inner) {
            buffer_pool::recycle_block(block);
        }
        let block = match self.cached_block(i) {
            Some(block) => block,
            None => {
                let kept =
                    fill_cache && self.cache.should_admit(i, ahead.window_bytes >= LONG_SCAN_BYTES);
                self.load_uncached_block(i, kept, |kept| {
                    self.read_block_for_scan(i, cause, kept, ahead)
                })?
            }
        };
        (ahead.last_block, ahead.scan_forward) = (Some(i), None);
        Ok(block)
    }

    /// Data block `i` from disk, in a buffer of its own to be kept, or in a spare one.
    pub(super) fn read_block(&self, i: usize, cause: IoActivity, kept: bool) -> Result<TableBlock> {
        let (offset, length) = self.metadata.index.block_handle(i);
        self.count_block_read(cause, length);
        buffer_pool::with_frame_buffer(length as usize, |frame| {
            self.input.fill(offset, frame)?;
            self.decode_block(offset, frame, kept)
        })
    }

    /// The same for a walk: blocks that are asked for one after the other are read together.
    fn read_block_for_scan(
        &self,
        i: usize,
        cause: IoActivity,
        kept: bool,
        ahead: &mut ReadAhead,
    ) -> Result<TableBlock> {
        let place = self.metadata.index.block_handle(i);
        if ahead.buffered_frame(place).is_none() {
            let Some(forward) = ahead.direction(i) else {
                ahead.window_bytes = 0;
                return self.read_block(i, cause, kept);
            };
            // An error ahead belongs to the block that it hits: the walk meets it there, or not at
            // all.
            if self.read_ahead(i, forward, cause, ahead).is_err() {
                ahead.window_bytes = 0;
                return self.read_block(i, cause, kept);
            }
        }
        let frame = ahead
            .buffered_frame(place)
            .expect("what was read ahead begins or ends with this block");
        self.decode_block(place.0, frame, kept)
    }

    /// Reads block `i` and those behind it (or before it) that fit into the window.
    fn read_ahead(
        &self,
        i: usize,
        forward: bool,
        cause: IoActivity,
        ahead: &mut ReadAhead,
    ) -> Result<()> {
        let index = &self.metadata.index;
        ahead.window_bytes = (ahead.window_bytes * 2).clamp(READ_AHEAD_BYTES.0, READ_AHEAD_BYTES.1);
        let (start, length) = index.block_handle(i);
        let (mut from, mut to) = (start, start + length);
        let mut next = i;
        while to - from < ahead.window_bytes {
            next = if forward { next + 1 } else { next.wrapping_sub(1) };
            // A long walk reads through what is cached: one call more would cost more than some
            // bytes.
            if next >= index.block_count()
                || (ahead.window_bytes < LONG_SCAN_BYTES && self.cache.contains(next))
            {
                break;
            }
            let (offset, length) = index.block_handle(next);
            (from, to) = (from.min(offset), to.max(offset + length));
        }
        let length = (to - from) as usize;
        if ahead.frames.capacity() == 0 {
            ahead.frames = buffer_pool::take_scan_buffer();
        }
        match length.checked_sub(ahead.frames.len()) {
            Some(missing) => try_extend_zeroed(&mut ahead.frames, missing)?,
            None => ahead.frames.truncate(length),
        }
        ahead.offset = from;
        self.count_block_read(cause, to - from);
        let done = self.input.fill(from, &mut ahead.frames);
        if done.is_err() {
            ahead.frames.clear();
        }
        done
    }

    /// Data block `i` as it is stored: from what a walk read ahead, or from disk.
    pub(super) fn with_stored_frame<T>(
        &self,
        i: usize,
        cause: IoActivity,
        ahead: &ReadAhead,
        work: impl FnOnce(&Frame<'_>) -> Result<T>,
    ) -> Result<T> {
        let place = self.metadata.index.block_handle(i);
        let with = |bytes: &[u8]| {
            let frame = Frame::decode(self.id(), place.0, bytes, FrameKind::Data);
            work(&frame.map_err(|e| self.input.error_at(place.0, e))?)
        };
        if let Some(bytes) = ahead.buffered_frame(place) {
            return with(bytes);
        }
        self.count_block_read(cause, place.1);
        buffer_pool::with_frame_buffer(place.1 as usize, |bytes| {
            self.input.fill(place.0, bytes)?;
            with(bytes)
        })
    }

    fn decode_block(&self, offset: u64, frame: &[u8], kept: bool) -> Result<TableBlock> {
        let order = self.metadata.comparator;
        let block = decode_frame(self.id(), offset, frame, order)
            .map_err(|e| self.input.error_at(offset, e))?;
        if !kept {
            return Ok(block);
        }
        let copy = block.to_cached(order);
        buffer_pool::recycle_block(block);
        Ok(copy)
    }
}

/// The block of a frame that lies at `offset` of file `id`, in a spare buffer.
pub(super) fn decode_frame(
    id: FileId,
    offset: u64,
    frame: &[u8],
    order: KeyComparator,
) -> Result<TableBlock> {
    let frame = Frame::decode(id, offset, frame, FrameKind::Data)?;
    let length = frame.raw_bytes + TableBlock::SLACK;
    let mut buf = buffer_pool::take_block_buffer(length)?;
    let raw = Arc::get_mut(&mut buf).expect("nobody else holds it yet");
    frame.decompress_to(&mut raw[..frame.raw_bytes])?;
    TableBlock::parse_in_buffer(buf, frame.raw_bytes)?.check_comparator(order)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestDir, TestRng};
    use crate::{BlockCache, CompressionMethod, KlogCursor, KlogOptions, KlogWriter};
    use perigee_base::checksum::key_hash;
    use perigee_base::stats::Counters;
    use perigee_base::{EntryRef, FamilyId, ValueRef};

    const ID: FileId = FileId(7);
    const NAME: &str = "000007.klog";
    const ENTRIES: u32 = 5000;

    /// A klog of blocks of about 4 KiB that do not compress, read through a cache of so many bytes.
    fn klog(cache: u64) -> (Arc<TestDir>, Arc<KlogReader>, Arc<Counters>) {
        let dir = TestDir::new();
        let options = KlogOptions {
            database: 1,
            family: FamilyId(2),
            comparator: KeyComparator::Bytes,
            block_bytes: 4096,
            compression: CompressionMethod::Lz4,
            filter_bits: 10,
        };
        let mut w = KlogWriter::create(&*dir, ID, options).unwrap();
        let mut rng = TestRng::new(5);
        for i in 0..ENTRIES {
            let value = rng.bytes(100);
            w.add(EntryRef {
                key: &i.to_be_bytes(),
                seq: SeqNo(9),
                value: ValueRef::Inline(&value),
            })
            .unwrap();
        }
        w.finish().unwrap();
        let (r, counters) = open(&dir, cache);
        (dir, r, counters)
    }

    fn open(dir: &TestDir, cache: u64) -> (Arc<KlogReader>, Arc<Counters>) {
        let bytes = dir.get(NAME).len() as u64;
        let counters = Arc::new(Counters::default());
        let cache = Arc::new(BlockCache::new(cache));
        let r = KlogReader::open(dir, ID, 1, bytes, cache, Arc::clone(&counters)).unwrap();
        (Arc::new(r), counters)
    }

    fn reads(counters: &Counters) -> (u64, u64) {
        let all = counters.io.totals();
        all.iter().fold((0, 0), |sum, (_, moved)| (sum.0 + moved.reads, sum.1 + moved.bytes_read))
    }

    fn scan_all(c: &mut KlogCursor, forward: bool) -> Result<u32> {
        let mut n = 0;
        if forward {
            c.seek_first()?
        } else {
            c.seek_last()?
        }
        while c.valid() {
            let i = if forward { n } else { ENTRIES - 1 - n };
            assert_eq!(c.entry().key, i.to_be_bytes());
            n += 1;
            if forward { c.next()? } else { c.prev()? }
        }
        Ok(n)
    }

    #[test]
    fn scan_reads_each_byte_once_in_large_reads() {
        for (forward, fill) in [(true, false), (false, false), (true, true), (false, true)] {
            let (_dir, r, counters) = klog(if fill { 100_000 } else { 0 });
            assert!(r.block_count() > 100);
            assert_eq!(scan_all(&mut r.cursor(fill), forward).unwrap(), ENTRIES);
            let (calls, bytes) = reads(&counters);
            let blocks: u64 = r.list_blocks().unwrap().iter().map(|b| b.1).sum();
            assert_eq!(bytes, blocks, "forward {forward}, fill {fill}");
            assert!(
                calls < r.block_count() as u64 / 8,
                "{calls} reads of {} blocks",
                r.block_count()
            );
        }
    }

    #[test]
    fn single_seek_reads_one_block() {
        let (_dir, r, counters) = klog(0);
        let mut c = r.cursor(false);
        let mut rng = TestRng::new(6);
        for n in 1..100 {
            let i = rng.below(u64::from(ENTRIES)) as u32 / 200 * 200;
            let (calls, _) = reads(&counters);
            c.seek(&i.to_be_bytes(), SeqNo::MAX).unwrap();
            assert_eq!(c.entry().key, i.to_be_bytes());
            assert!(reads(&counters).0 <= calls + 1, "seek {n}");
        }
    }

    #[test]
    fn read_ahead_reports_damage_at_its_block() {
        let (dir, r, _) = klog(0);
        let (offset, length, _) = r.list_blocks().unwrap()[50];
        let mut bytes = dir.get(NAME);
        bytes[(offset + length / 2) as usize] ^= 1;
        dir.put(NAME, bytes);
        let (r, _) = open(&dir, 0);
        for forward in [true, false] {
            let mut c = r.cursor(true);
            let e = scan_all(&mut c, forward).unwrap_err();
            assert!(!c.valid() && e.to_string().contains(&offset.to_string()), "{e}");
        }
    }

    /// A file of which some bytes cannot be read.
    #[derive(Debug)]
    struct UnreadableFile {
        bytes: Vec<u8>,
        bad: std::ops::Range<u64>,
    }

    impl perigee_env::RandomAccessFile for UnreadableFile {
        fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
            if offset < self.bad.end && self.bad.start < offset + buf.len() as u64 {
                return Err(perigee_base::Error::new(perigee_base::ErrorKind::Io, "scratched"));
            }
            buf.copy_from_slice(&self.bytes[offset as usize..][..buf.len()]);
            Ok(())
        }
        fn len(&self) -> Result<u64> {
            Ok(self.bytes.len() as u64)
        }
    }

    /// Reads ahead used to fail as a whole: a walk ended up to 64 KiB before what could not be
    /// read.
    #[test]
    fn scan_returns_all_entries_before_unreadable_block() {
        let (dir, r, _) = klog(0);
        let (offset, length, _) = r.list_blocks().unwrap()[50];
        let bytes = dir.get(NAME);
        let len = bytes.len() as u64;
        let file =
            Arc::new(UnreadableFile { bytes, bad: offset + length / 2..offset + length / 2 + 1 });
        let input =
            crate::table_file_reader::TableFileReader::from_file(file, ID, NAME.into(), len)
                .unwrap();
        let cache = Arc::new(BlockCache::new(0));
        let r = Arc::new(KlogReader::from_file(input, 1, cache, Arc::default()).unwrap());
        let shown = |forward: bool| {
            let (mut c, mut n) = (r.cursor(false), 0);
            if forward {
                c.seek_first().unwrap()
            } else {
                c.seek_last().unwrap()
            }
            while c.valid() {
                n += 1;
                let stepped = if forward { c.next() } else { c.prev() };
                assert!(stepped.is_ok() || !c.valid());
            }
            n
        };
        let blocks = r.list_blocks().unwrap();
        let count = |inside: &dyn Fn(&[u8]) -> bool| {
            (0..ENTRIES).filter(|i| inside(&i.to_be_bytes())).count()
        };
        let before = count(&|key| key <= &blocks[49].2[..]);
        let behind = count(&|key| key > &blocks[50].2[..]);
        assert_eq!([shown(true), shown(false)], [before, behind]);
    }

    #[test]
    fn uncached_lookup_matches_cached_lookup() {
        let (_dir, passing, counters) = klog(20_000);
        let (_dir, cached, _) = klog(10 << 20);
        let mut rng = TestRng::new(8);
        let mut held = Vec::new();
        for _ in 0..3000 {
            let key = (rng.below(u64::from(ENTRIES) + 100) as u32).to_be_bytes();
            let at = SeqNo(8 + rng.below(2));
            let get = |r: &KlogReader| r.get(&key, key_hash(&key), at).unwrap();
            let (one, other) = (get(&passing), get(&cached));
            assert_eq!(one, other);
            held.push((one, other));
        }
        assert!(
            held.iter().all(|(one, other)| one == other),
            "buffers that went were not written over"
        );
        let read = counters.cache_misses.get();
        assert!(read > 2000 && passing.cache.cache().block_count() < 10, "{read}");
    }
}
