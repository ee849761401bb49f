//! Reads data blocks from disk: one to insert into the cache, one to use once, or several ahead of
//! a scan. The checksum of a frame is verified before use in every case.
//!
//! A block that is used once is read into a buffer of the thread's [`buffer_pool`]: most reads that
//! miss the cache need one entry of a block that is not requested again soon.

use super::reader::{EntryValue, KlogReader};
use crate::block::frame::{Frame, FrameKind};
use crate::block::{TableBlock, buffer_pool};
use crate::limits::{LONG_SCAN_BYTES, READ_AHEAD_BYTES};
use crate::table_file_reader::try_extend_zeroed;
use perigee_base::{BlockHandle, FileId, IoActivity, KeyComparator, Result, SeqNo};
use std::sync::Arc;

const _: () = assert!(READ_AHEAD_BYTES.0 < LONG_SCAN_BYTES && LONG_SCAN_BYTES < READ_AHEAD_BYTES.1);

/// Read-ahead state of a scan: the frames of some consecutive blocks.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    /// The last block requested.
    last_block: Option<usize>,
    /// The next block is the first of a scan (forward: true).
    pub scan_forward: Option<bool>,
    /// Size of the last read-ahead, in bytes.
    window_bytes: u64,
    /// File offset of `frames`.
    offset: u64,
    frames: Vec<u8>,
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        buffer_pool::recycle_scan_buffer(std::mem::take(&mut self.frames));
    }
}

impl ReadAhead {
    /// Returns the direction in which to read ahead for block `i`; `None` if it is not part of a
    /// scan.
    fn direction(&self, i: usize) -> Option<bool> {
        self.scan_forward
            .or(self.last_block.filter(|last| i.abs_diff(*last) == 1).map(|last| i > last))
    }
    /// Returns the frame with this handle, if it was read ahead.
    fn buffered_frame(&self, handle: BlockHandle) -> Option<&[u8]> {
        let start = usize::try_from(handle.offset.checked_sub(self.offset)?).ok()?;
        self.frames.get(start..start.checked_add(usize::try_from(handle.len).ok()?)?)
    }
}

impl KlogReader {
    /// Completes a point lookup in data block `i`, which is not cached.
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

    /// Returns data block `i` for a scan; `last`, the scan's previous block, is recycled.
    pub(super) fn load_block_for_scan(
        &self,
        i: usize,
        fill_cache: bool,
        cause: IoActivity,
        ahead: &mut ReadAhead,
        last: Option<Arc<TableBlock>>,
    ) -> Result<Arc<TableBlock>> {
        if let Some(block) = last.and_then(Arc::into_inner) {
            buffer_pool::recycle_block(block);
        }
        let block = match self.cached_block(i) {
            Some(block) => block,
            None => {
                let admit =
                    fill_cache && self.cache.should_admit(i, ahead.window_bytes >= LONG_SCAN_BYTES);
                self.load_uncached_block(i, admit, |admit| {
                    self.read_block_for_scan(i, cause, admit, ahead)
                })?
            }
        };
        (ahead.last_block, ahead.scan_forward) = (Some(i), None);
        Ok(block)
    }

    /// Reads data block `i` from disk; with `for_cache`, into a buffer of its own for the cache,
    /// else into a pooled one.
    pub(super) fn read_block(
        &self,
        i: usize,
        cause: IoActivity,
        for_cache: bool,
    ) -> Result<TableBlock> {
        let BlockHandle { offset, len } = self.metadata.index.block_handle(i);
        self.count_block_read(cause, len);
        buffer_pool::with_frame_buffer(len as usize, |frame| {
            self.input.fill(offset, frame)?;
            self.decode_block(offset, frame, for_cache)
        })
    }

    /// Like [`KlogReader::read_block`], for a scan: consecutive blocks are read together.
    fn read_block_for_scan(
        &self,
        i: usize,
        cause: IoActivity,
        for_cache: bool,
        ahead: &mut ReadAhead,
    ) -> Result<TableBlock> {
        let handle = self.metadata.index.block_handle(i);
        if ahead.buffered_frame(handle).is_none() {
            let Some(forward) = ahead.direction(i) else {
                ahead.window_bytes = 0;
                return self.read_block(i, cause, for_cache);
            };
            // A read error ahead must be reported for the block that it affects, if the scan
            // reaches it at all.
            if self.read_ahead(i, forward, cause, ahead).is_err() {
                ahead.window_bytes = 0;
                return self.read_block(i, cause, for_cache);
            }
        }
        let frame =
            ahead.buffered_frame(handle).expect("the read-ahead includes the requested block");
        self.decode_block(handle.offset, frame, for_cache)
    }

    /// Reads block `i` and the blocks after it (or before it) that fit into the window.
    fn read_ahead(
        &self,
        i: usize,
        forward: bool,
        cause: IoActivity,
        ahead: &mut ReadAhead,
    ) -> Result<()> {
        let index = &self.metadata.index;
        ahead.window_bytes = (ahead.window_bytes * 2).clamp(READ_AHEAD_BYTES.0, READ_AHEAD_BYTES.1);
        let first = index.block_handle(i);
        let (mut from, mut to) = (first.offset, first.end());
        let mut next = i;
        while to - from < ahead.window_bytes {
            next = if forward { next + 1 } else { next.wrapping_sub(1) };
            // A long scan also reads cached blocks: splitting the read would cost more than their
            // bytes.
            if next >= index.block_count()
                || (ahead.window_bytes < LONG_SCAN_BYTES && self.cache.contains(next))
            {
                break;
            }
            let handle = index.block_handle(next);
            (from, to) = (from.min(handle.offset), to.max(handle.end()));
        }
        check!(
            from <= first.offset && first.end() <= to,
            "the read-ahead includes the requested block",
            first,
            from,
            to
        );
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
        let result = self.input.fill(from, &mut ahead.frames);
        if result.is_err() {
            ahead.frames.clear();
        }
        result
    }

    /// Calls `work` with the stored frame of data block `i`, from the read-ahead or from disk.
    pub(super) fn with_stored_frame<T>(
        &self,
        i: usize,
        cause: IoActivity,
        ahead: &ReadAhead,
        work: impl FnOnce(&Frame<'_>) -> Result<T>,
    ) -> Result<T> {
        let handle = self.metadata.index.block_handle(i);
        let decode = |bytes: &[u8]| {
            let frame = Frame::decode(self.id(), handle.offset, bytes, FrameKind::Data);
            work(&frame.map_err(|e| self.input.error_at(handle.offset, e))?)
        };
        if let Some(bytes) = ahead.buffered_frame(handle) {
            return decode(bytes);
        }
        self.count_block_read(cause, handle.len);
        buffer_pool::with_frame_buffer(handle.len as usize, |bytes| {
            self.input.fill(handle.offset, bytes)?;
            decode(bytes)
        })
    }

    fn decode_block(&self, offset: u64, frame: &[u8], for_cache: bool) -> Result<TableBlock> {
        let comparator = self.metadata.comparator;
        let block = decode_frame(self.id(), offset, frame, comparator)
            .map_err(|e| self.input.error_at(offset, e))?;
        if !for_cache {
            return Ok(block);
        }
        let copy = block.to_cached(comparator);
        buffer_pool::recycle_block(block);
        Ok(copy)
    }
}

/// Decodes the block in a frame stored at `offset` of file `id` into a pooled buffer.
pub(super) fn decode_frame(
    id: FileId,
    offset: u64,
    frame: &[u8],
    comparator: KeyComparator,
) -> Result<TableBlock> {
    let frame = Frame::decode(id, offset, frame, FrameKind::Data)?;
    let length = frame.raw_bytes + TableBlock::SLACK;
    let mut buf = buffer_pool::take_block_buffer(length)?;
    let raw = Arc::get_mut(&mut buf).expect("a buffer from the pool is not shared");
    frame.decompress_to(&mut raw[..frame.raw_bytes])?;
    TableBlock::parse_in_buffer(buf, frame.raw_bytes)?.check_comparator(comparator)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestDir, TestRng};
    use crate::{BlockCache, Compression, KlogCursor, KlogOptions, KlogWriter};
    use perigee_base::checksum::key_hash;
    use perigee_base::{Counters, EntryRef, FamilyId, ValueRef};

    const ID: FileId = FileId(7);
    const NAME: &str = "000007.klog";
    const ENTRIES: u32 = 5000;

    /// A klog of incompressible blocks of about 4 KiB, read through a cache of `cache` bytes.
    fn klog(cache: u64) -> (Arc<TestDir>, Arc<KlogReader>, Arc<Counters>) {
        let dir = TestDir::new();
        let options = KlogOptions {
            database: 1,
            family: FamilyId(2),
            comparator: KeyComparator::Bytes,
            block_bytes: 4096,
            compression: Compression::Lz4,
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
        let r =
            KlogReader::open(dir, ID, 1, perigee_base::Bytes(bytes), cache, Arc::clone(&counters))
                .unwrap();
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

    /// A file with an unreadable range.
    #[derive(Debug)]
    struct UnreadableFile {
        bytes: Vec<u8>,
        bad: std::ops::Range<u64>,
    }

    impl perigee_env::RandomAccessFile for UnreadableFile {
        fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
            if offset < self.bad.end && self.bad.start < offset + buf.len() as u64 {
                return Err(perigee_base::Error::new(perigee_base::ErrorKind::Io, "unreadable"));
            }
            buf.copy_from_slice(&self.bytes[offset as usize..][..buf.len()]);
            Ok(())
        }
        fn len(&self) -> Result<u64> {
            Ok(self.bytes.len() as u64)
        }
    }

    /// Regression test: a failed read-ahead used to end a scan up to 64 KiB before the unreadable
    /// block.
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
        let entries_scanned = |forward: bool| {
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
        let after = count(&|key| key > &blocks[50].2[..]);
        assert_eq!([entries_scanned(true), entries_scanned(false)], [before, after]);
    }

    #[test]
    fn uncached_lookup_matches_cached_lookup() {
        let (_dir, uncached, counters) = klog(20_000);
        let (_dir, cached, _) = klog(10 << 20);
        let mut rng = TestRng::new(8);
        let mut results = Vec::new();
        for _ in 0..3000 {
            let key = (rng.below(u64::from(ENTRIES) + 100) as u32).to_be_bytes();
            let at = SeqNo(8 + rng.below(2));
            let get = |r: &KlogReader| r.get(&key, key_hash(&key), at).unwrap();
            let (one, other) = (get(&uncached), get(&cached));
            assert_eq!(one, other);
            results.push((one, other));
        }
        assert!(
            results.iter().all(|(one, other)| one == other),
            "recycled buffers did not overwrite returned values"
        );
        let read = counters.cache_misses.get();
        assert!(read > 2000 && uncached.cache.cache().block_count() < 10, "{read}");
    }
}
