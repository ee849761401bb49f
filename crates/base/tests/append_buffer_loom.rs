//! The append buffer under `loom`, which runs every interleaving of its writers and readers and
//! every reordering that the memory model allows. `append_buffer.rs` is compiled again here, with
//! loom's atomics and with memory that reports every access to loom.
#![allow(clippy::unwrap_used, dead_code, missing_docs, unsafe_code)]

mod raw_bytes {
    use loom::cell::UnsafeCell;
    pub use loom::sync::atomic::AtomicUsize;

    /// Replacement for the real `RawBytes`: a loom cell beside each byte records every access.
    #[derive(Debug)]
    pub struct RawBytes {
        access_cells: Vec<UnsafeCell<()>>,
        bytes: *mut [u8],
    }
    // SAFETY: loom runs one thread at a time and fails the test on conflicting accesses.
    unsafe impl Send for RawBytes {}
    // SAFETY: as above.
    unsafe impl Sync for RawBytes {}

    impl RawBytes {
        pub fn new(len: usize) -> RawBytes {
            let access_cells = (0..len).map(|_| UnsafeCell::new(())).collect();
            RawBytes { access_cells, bytes: Box::into_raw(vec![0; len].into_boxed_slice()) }
        }
        pub fn len(&self) -> usize {
            self.access_cells.len()
        }
        /// # Safety
        /// Same as the real one.
        pub unsafe fn write(&self, at: usize, bytes: &[u8]) {
            for (i, byte) in bytes.iter().enumerate() {
                // SAFETY: in bounds, because the index was checked; exclusive, or loom fails the
                // test.
                self.access_cells[at + i]
                    .with_mut(|_| unsafe { self.bytes.cast::<u8>().add(at + i).write(*byte) });
            }
        }
        /// # Safety
        /// Same as the real one.
        pub unsafe fn read(&self, len: usize) -> &[u8] {
            self.access_cells[..len].iter().for_each(|cell| cell.with(|_| ()));
            // SAFETY: in bounds, because the index was checked above; not being written, or loom
            // fails the test.
            unsafe { std::slice::from_raw_parts(self.bytes.cast::<u8>(), len) }
        }
    }
    impl Drop for RawBytes {
        fn drop(&mut self) {
            // SAFETY: `new` created it from a box, and no reference to it remains.
            drop(unsafe { Box::from_raw(self.bytes) });
        }
    }
}
#[path = "../src/append_buffer.rs"]
mod append_buffer;

use append_buffer::AppendBuffer;
use loom::sync::Arc;
use loom::thread;

#[test]
fn reader_sees_whole_appends() {
    loom::model(|| {
        let buffer = Arc::new(AppendBuffer::new(4));
        let writer = {
            let buffer = Arc::clone(&buffer);
            thread::spawn(move || {
                buffer.append(&[1, 1]).unwrap();
                buffer.append(&[2, 2]).unwrap();
            })
        };
        let seen = buffer.bytes();
        assert!([&[][..], &[1, 1], &[1, 1, 2, 2]].contains(&seen));
        writer.join().unwrap();
        assert_eq!(buffer.bytes(), [1, 1, 2, 2]);
    });
}

#[test]
fn concurrent_appends_never_share_a_byte() {
    loom::model(|| {
        let buffer = Arc::new(AppendBuffer::new(4));
        let writers: Vec<_> = [1, 2]
            .map(|n| {
                let buffer = Arc::clone(&buffer);
                thread::spawn(move || usize::from(buffer.append(&[n, n]).is_some()))
            })
            .into();
        let seen = buffer.bytes().len();
        assert!(seen % 2 == 0);
        let done: usize = writers.into_iter().map(|w| w.join().unwrap()).sum();
        assert!(done >= 1 && buffer.bytes().len() == 2 * done);
        assert!(buffer.bytes().chunks(2).all(|p| p[0] == p[1] && p[0] != 0));
    });
}
