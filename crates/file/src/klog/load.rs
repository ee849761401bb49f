//! Data blocks from disk: one for the cache, one in passing, or a stretch of them ahead of a walk. The checksum of a frame
//! is compared before anything of it is used, whichever way it came.
//!
//! A block in passing lies in a buffer that the thread keeps ([`spare`]): most reads that miss the cache want one entry of
//! a block that nobody asks for again soon.

use super::reader::{Found, KlogReader};
use crate::block::frame::{Frame, FrameKind};
use crate::block::{Block, spare};
use crate::input::grow;
use perigee_base::io::Cause;
use perigee_base::limits::READ_AHEAD_BYTES_MAX;
use perigee_base::{FileId, KeyOrder, Result, SeqNo};
use std::sync::Arc;

/// A walk reads this much ahead at first, twice as much each time, and so much at most.
const AHEAD_BYTES: (u64, u64) = (4 << 10, READ_AHEAD_BYTES_MAX);
/// A walk that reads so much at a time is a long one: its blocks come into the cache only where there is room.
const LONG_BYTES: u64 = 32 << 10;

/// What a walk has read ahead: the frames of some blocks that follow each other.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// The last block that was asked for.
    last: Option<usize>,
    /// The next block is the first of a walk (forward: true).
    pub walk: Option<bool>,
    /// How much was read the last time.
    window: u64,
    /// Where `frames` lies in the file.
    offset: u64,
    frames: Vec<u8>,
}

impl Drop for Ahead {
    fn drop(&mut self) {
        spare::give_frames(std::mem::take(&mut self.frames));
    }
}

impl Ahead {
    /// Which way it reads on for block `i`, if that is a part of a walk.
    fn way(&self, i: usize) -> Option<bool> {
        self.walk.or(self.last.filter(|last| i.abs_diff(*last) == 1).map(|last| i > last))
    }
    /// The frame at a place, if it was read.
    fn frame(&self, (offset, length): (u64, u64)) -> Option<&[u8]> {
        let start = usize::try_from(offset.checked_sub(self.offset)?).ok()?;
        self.frames.get(start..start.checked_add(usize::try_from(length).ok()?)?)
    }
}

impl KlogReader {
    /// What a look-up that has come to data block `i` finds there, if that is not in the cache.
    pub(super) fn get_missed(&self, i: usize, key: &[u8], at: SeqNo) -> Result<Option<(SeqNo, Found)>> {
        self.count_cache_miss();
        if self.cache.admits(i, false) {
            let block = Arc::new(self.read_block(i, Cause::Get, true)?);
            self.cache.insert(i, Arc::clone(&block));
            return Ok(self.answer(&block, i, key, at, Found::of));
        }
        let block = self.read_block(i, Cause::Get, false)?;
        let answer = self.answer(&block, i, key, at, Found::copied);
        spare::give(block);
        Ok(answer)
    }

    /// Data block `i` for a walk that was in block `last` before, which goes.
    pub(super) fn step_to(
        &self,
        i: usize,
        (fill_cache, cause): (bool, Cause),
        ahead: &mut Ahead,
        last: Option<Arc<Block>>,
    ) -> Result<Arc<Block>> {
        if let Some(block) = last.and_then(Arc::into_inner) {
            spare::give(block);
        }
        let block = match self.cached(i) {
            Some(block) => block,
            None => {
                let kept = fill_cache && self.cache.admits(i, ahead.window >= LONG_BYTES);
                self.missed(i, kept, |kept| self.walk_block(i, cause, kept, ahead))?
            }
        };
        (ahead.last, ahead.walk) = (Some(i), None);
        Ok(block)
    }

    /// Data block `i` from disk, in a buffer of its own to be kept, or in a spare one.
    pub(super) fn read_block(&self, i: usize, cause: Cause, kept: bool) -> Result<Block> {
        let (offset, length) = self.parts.index.place(i);
        self.count_block_read(cause, length);
        spare::with_frame(length as usize, |frame| {
            self.input.fill(offset, frame)?;
            self.decode_block(offset, frame, kept)
        })
    }

    /// The same for a walk: blocks that are asked for one after the other are read together.
    fn walk_block(&self, i: usize, cause: Cause, kept: bool, ahead: &mut Ahead) -> Result<Block> {
        let place = self.parts.index.place(i);
        if ahead.frame(place).is_none() {
            let Some(forward) = ahead.way(i) else {
                ahead.window = 0;
                return self.read_block(i, cause, kept);
            };
            // An error ahead belongs to the block that it hits: the walk meets it there, or not at all.
            if self.read_ahead(i, forward, cause, ahead).is_err() {
                ahead.window = 0;
                return self.read_block(i, cause, kept);
            }
        }
        let frame = ahead.frame(place).expect("what was read ahead begins or ends with this block");
        self.decode_block(place.0, frame, kept)
    }

    /// Reads block `i` and those behind it (or before it) that fit into the window.
    fn read_ahead(&self, i: usize, forward: bool, cause: Cause, ahead: &mut Ahead) -> Result<()> {
        let index = &self.parts.index;
        ahead.window = (ahead.window * 2).clamp(AHEAD_BYTES.0, AHEAD_BYTES.1);
        let (start, length) = index.place(i);
        let (mut from, mut to) = (start, start + length);
        let mut next = i;
        while to - from < ahead.window {
            next = if forward { next + 1 } else { next.wrapping_sub(1) };
            // A long walk reads through what is cached: one call more would cost more than some bytes.
            if next >= index.len() || (ahead.window < LONG_BYTES && self.cache.has(next)) {
                break;
            }
            let (offset, length) = index.place(next);
            (from, to) = (from.min(offset), to.max(offset + length));
        }
        let length = (to - from) as usize;
        if ahead.frames.capacity() == 0 {
            ahead.frames = spare::take_frames();
        }
        match length.checked_sub(ahead.frames.len()) {
            Some(missing) => grow(&mut ahead.frames, missing)?,
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
    pub(super) fn with_frame<T>(
        &self,
        i: usize,
        cause: Cause,
        ahead: &Ahead,
        work: impl FnOnce(&Frame<'_>) -> Result<T>,
    ) -> Result<T> {
        let place = self.parts.index.place(i);
        let with = |bytes: &[u8]| {
            let frame = Frame::decode(self.id(), place.0, bytes, FrameKind::Data);
            work(&frame.map_err(|e| self.input.damage(place.0, e))?)
        };
        if let Some(bytes) = ahead.frame(place) {
            return with(bytes);
        }
        self.count_block_read(cause, place.1);
        spare::with_frame(place.1 as usize, |bytes| {
            self.input.fill(place.0, bytes)?;
            with(bytes)
        })
    }

    fn decode_block(&self, offset: u64, frame: &[u8], kept: bool) -> Result<Block> {
        let order = self.parts.order;
        let block = decode(self.id(), offset, frame, order).map_err(|e| self.input.damage(offset, e))?;
        if !kept {
            return Ok(block);
        }
        let copy = block.to_keep(order);
        spare::give(block);
        Ok(copy)
    }
}

/// The block of a frame that lies at `offset` of file `id`, in a spare buffer.
pub(super) fn decode(id: FileId, offset: u64, frame: &[u8], order: KeyOrder) -> Result<Block> {
    let frame = Frame::decode(id, offset, frame, FrameKind::Data)?;
    let length = frame.raw_bytes + Block::SLACK;
    let mut buf = spare::take(length)?;
    let raw = Arc::get_mut(&mut buf).expect("nobody else holds it yet");
    frame.unpack_to(&mut raw[..frame.raw_bytes])?;
    Block::parse_shared(buf, frame.raw_bytes)?.under(order)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rng, TestDir};
    use crate::{BlockCache, Compression, KlogCursor, KlogOptions, KlogWriter};
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
            order: KeyOrder::Bytes,
            block_bytes: 4096,
            compression: Compression::Lz4,
            filter_bits: 10,
        };
        let mut w = KlogWriter::create(&*dir, ID, options).unwrap();
        let mut rng = Rng::new(5);
        for i in 0..ENTRIES {
            let value = rng.bytes(100);
            w.add(EntryRef { key: &i.to_be_bytes(), seq: SeqNo(9), value: ValueRef::Inline(&value) })
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
        let all = counters.io.all();
        all.iter().fold((0, 0), |sum, (_, moved)| (sum.0 + moved.reads, sum.1 + moved.bytes_read))
    }

    fn walk(c: &mut KlogCursor, forward: bool) -> Result<u32> {
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
    fn a_walk_reads_each_byte_once_and_many_blocks_at_a_time() {
        for (forward, fill) in [(true, false), (false, false), (true, true), (false, true)] {
            let (_dir, r, counters) = klog(if fill { 100_000 } else { 0 });
            assert!(r.block_count() > 100);
            assert_eq!(walk(&mut r.cursor(fill), forward).unwrap(), ENTRIES);
            let (calls, bytes) = reads(&counters);
            let blocks: u64 = r.blocks().unwrap().iter().map(|b| b.1).sum();
            assert_eq!(bytes, blocks, "forward {forward}, fill {fill}");
            assert!(calls < r.block_count() as u64 / 8, "{calls} reads of {} blocks", r.block_count());
        }
    }

    #[test]
    fn a_single_seek_reads_one_block() {
        let (_dir, r, counters) = klog(0);
        let mut c = r.cursor(false);
        let mut rng = Rng::new(6);
        for n in 1..100 {
            let i = rng.below(u64::from(ENTRIES)) as u32 / 200 * 200;
            let (calls, _) = reads(&counters);
            c.seek(&i.to_be_bytes(), SeqNo::MAX).unwrap();
            assert_eq!(c.entry().key, i.to_be_bytes());
            assert!(reads(&counters).0 <= calls + 1, "seek {n}");
        }
    }

    #[test]
    fn damage_ahead_is_met_where_it_lies() {
        let (dir, r, _) = klog(0);
        let (offset, length, _) = r.blocks().unwrap()[50];
        let mut bytes = dir.get(NAME);
        bytes[(offset + length / 2) as usize] ^= 1;
        dir.put(NAME, bytes);
        let (r, _) = open(&dir, 0);
        for forward in [true, false] {
            let mut c = r.cursor(true);
            let e = walk(&mut c, forward).unwrap_err();
            assert!(!c.valid() && e.to_string().contains(&offset.to_string()), "{e}");
        }
    }

    /// A file of which some bytes cannot be read.
    #[derive(Debug)]
    struct Scratched {
        bytes: Vec<u8>,
        bad: std::ops::Range<u64>,
    }

    impl perigee_env::ReadAt for Scratched {
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

    /// Reads ahead used to fail as a whole: a walk ended up to 64 KiB before what could not be read.
    #[test]
    fn a_walk_shows_everything_before_what_cannot_be_read() {
        let (dir, r, _) = klog(0);
        let (offset, length, _) = r.blocks().unwrap()[50];
        let bytes = dir.get(NAME);
        let len = bytes.len() as u64;
        let file = Arc::new(Scratched { bytes, bad: offset + length / 2..offset + length / 2 + 1 });
        let input = crate::input::Input::over(file, ID, NAME.into(), len).unwrap();
        let cache = Arc::new(BlockCache::new(0));
        let r = Arc::new(KlogReader::over(input, 1, cache, Arc::default()).unwrap());
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
        let blocks = r.blocks().unwrap();
        let count =
            |inside: &dyn Fn(&[u8]) -> bool| (0..ENTRIES).filter(|i| inside(&i.to_be_bytes())).count();
        let before = count(&|key| key <= &blocks[49].2[..]);
        let behind = count(&|key| key > &blocks[50].2[..]);
        assert_eq!([shown(true), shown(false)], [before, behind]);
    }

    #[test]
    fn a_look_up_in_passing_finds_what_a_cached_one_finds() {
        let (_dir, passing, counters) = klog(20_000);
        let (_dir, cached, _) = klog(10 << 20);
        let mut rng = Rng::new(8);
        let mut held = Vec::new();
        for _ in 0..3000 {
            let key = (rng.below(u64::from(ENTRIES) + 100) as u32).to_be_bytes();
            let at = SeqNo(8 + rng.below(2));
            let get = |r: &KlogReader| r.get(&key, key_hash(&key), at).unwrap();
            let (one, other) = (get(&passing), get(&cached));
            assert_eq!(one, other);
            held.push((one, other));
        }
        assert!(held.iter().all(|(one, other)| one == other), "buffers that went were not written over");
        let read = counters.cache_misses.get();
        assert!(read > 2000 && passing.cache.cache().blocks() < 10, "{read}");
    }
}
