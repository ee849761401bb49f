//! Thread-local pool of read buffers: a read that misses the cache neither allocates nor zeroes
//! memory. Independent of the contents.
//!
//! Invariants: a buffer is in the pool only while there is no other reference to it. No buffer
//! longer than [`POOLED_BUFFER_BYTES_MAX`] is kept, and at most [`POOLED_BUFFERS_MAX`] each for
//! blocks and scans, so the memory kept per thread is bounded.

use super::TableBlock;
use crate::limits::{
    BLOCK_BUFFER_BYTES_MIN, POOLED_BUFFER_BYTES_MAX, POOLED_BUFFERS_MAX, SCAN_BUFFER_BYTES_MAX,
};
use crate::table_file_reader::try_extend_zeroed;
use perigee_base::Result;
use std::cell::RefCell;
use std::sync::Arc;

const _: () =
    assert!(BLOCK_BUFFER_BYTES_MIN <= POOLED_BUFFER_BYTES_MAX, "small buffers are pooled");
const _: () = assert!(SCAN_BUFFER_BYTES_MAX <= POOLED_BUFFER_BYTES_MAX);

#[derive(Default)]
struct BufferPool {
    frame: Vec<u8>,
    blocks: Vec<Arc<[u8]>>,
    scan_buffers: Vec<Vec<u8>>,
}

thread_local! {
    static BUFFER_POOL: RefCell<BufferPool> = RefCell::default();
}

/// Calls `work` with a buffer of `len` bytes of unspecified content.
pub(crate) fn with_frame_buffer<T>(
    len: usize,
    work: impl FnOnce(&mut [u8]) -> Result<T>,
) -> Result<T> {
    let mut frame =
        BUFFER_POOL.try_with(|s| std::mem::take(&mut s.borrow_mut().frame)).unwrap_or_default();
    if frame.len() < len {
        let missing = len - frame.len();
        try_extend_zeroed(&mut frame, missing)?;
    }
    let result = work(&mut frame[..len]);
    if frame.capacity() <= POOLED_BUFFER_BYTES_MAX {
        let _ = BUFFER_POOL.try_with(|s| s.borrow_mut().frame = frame);
    }
    result
}

/// Takes a scan buffer from the pool, of any length and content; an empty one if the pool has none.
pub(crate) fn take_scan_buffer() -> Vec<u8> {
    BUFFER_POOL.try_with(|s| s.borrow_mut().scan_buffers.pop()).ok().flatten().unwrap_or_default()
}

/// Returns a scan buffer to the pool unless it is too long.
pub(crate) fn recycle_scan_buffer(buffer: Vec<u8>) {
    if (1..=SCAN_BUFFER_BYTES_MAX).contains(&buffer.capacity()) {
        let _ = BUFFER_POOL.try_with(|s| {
            let pool = &mut s.borrow_mut().scan_buffers;
            if pool.len() < POOLED_BUFFERS_MAX {
                pool.push(buffer);
            }
        });
    }
}

/// Returns an unshared buffer of at least `len` bytes of unspecified content.
pub(crate) fn take_block_buffer(len: usize) -> Result<Arc<[u8]>> {
    let pooled = BUFFER_POOL.try_with(|s| s.borrow_mut().blocks.pop()).ok().flatten();
    match pooled.filter(|buf| buf.len() >= len) {
        Some(buf) => {
            check_slow!(
                Arc::strong_count(&buf) == 1,
                "a pooled buffer is not referenced elsewhere"
            );
            Ok(buf)
        }
        None => {
            let mut buf = Vec::new();
            try_extend_zeroed(&mut buf, len.max(BLOCK_BUFFER_BYTES_MIN))?;
            Ok(buf.into())
        }
    }
}

/// Returns the buffer of a block to the pool unless it is shared or too long.
pub(crate) fn recycle_block(block: TableBlock) {
    let mut buf = block.into_buffer();
    if buf.len() <= POOLED_BUFFER_BYTES_MAX && Arc::get_mut(&mut buf).is_some() {
        let _ = BUFFER_POOL.try_with(|s| {
            let pool = &mut s.borrow_mut().blocks;
            if pool.len() < POOLED_BUFFERS_MAX {
                pool.push(buf);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::writer::BlockWriter;
    use perigee_base::{EntryKind, KeyComparator, SeqNo};

    fn block(value: &[u8]) -> TableBlock {
        let mut w = BlockWriter::new(KeyComparator::Bytes);
        let mut raw = Vec::new();
        w.add_raw(b"k", SeqNo(1), EntryKind::Put, value);
        w.finish(&mut raw);
        let mut buf = take_block_buffer(raw.len() + TableBlock::SLACK).unwrap();
        Arc::get_mut(&mut buf).unwrap()[..raw.len()].copy_from_slice(&raw);
        TableBlock::parse_in_buffer(buf, raw.len()).unwrap()
    }

    #[test]
    fn unshared_block_buffer_is_reused() {
        let first = block(&[1; 500]);
        let at = first.raw().as_ptr();
        recycle_block(first);
        let second = block(&[2; 300]);
        assert_eq!(second.raw().as_ptr(), at, "the same buffer, shorter");
        assert_eq!(second.raw_value(0), [2; 300]);
        let pinned = second.pinned_value(0);
        recycle_block(second);
        let third = block(&[3; 400]);
        assert_eq!((&*pinned, third.raw_value(0)), (&[2; 300][..], &[3; 400][..]));
        for _ in 0..2 * POOLED_BUFFERS_MAX {
            let many: Vec<TableBlock> =
                (0..2 * POOLED_BUFFERS_MAX).map(|_| block(&[4; 70_000])).collect();
            many.into_iter().for_each(recycle_block);
        }
        assert!(BUFFER_POOL.with_borrow(|s| s.blocks.is_empty()), "too long for the pool");
    }

    #[test]
    fn frame_buffers_may_nest() {
        let sum = with_frame_buffer(100, |a| {
            a.fill(1);
            with_frame_buffer(200, |b| {
                b.fill(2);
                Ok(b.len())
            })
            .map(|n| n + a.iter().map(|x| *x as usize).sum::<usize>())
        });
        assert_eq!(sum.unwrap(), 300);
        recycle_scan_buffer(vec![1; 100]);
        recycle_scan_buffer(vec![2; SCAN_BUFFER_BYTES_MAX + 1]);
        assert_eq!([take_scan_buffer(), take_scan_buffer()], [vec![1; 100], vec![]]);
        assert_eq!(with_frame_buffer(10, |a| Ok(a.len())).unwrap(), 10);
        assert_eq!(with_frame_buffer(1 << 20, |a| Ok(a.len())).unwrap(), 1 << 20);
        assert!(BUFFER_POOL.with_borrow(|s| s.frame.capacity() <= POOLED_BUFFER_BYTES_MAX));
    }
}
