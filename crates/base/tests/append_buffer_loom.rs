//! The chunk under `loom`, which runs every interleaving of its writers and readers and every
//! reordering that the memory model allows. The room is compiled here once more, with loom's
//! atomics and with cells that tell loom of every access.
#![allow(clippy::unwrap_used, dead_code, missing_docs, unsafe_code)]

mod raw_bytes {
    use loom::cell::UnsafeCell;
    pub use loom::sync::atomic::AtomicUsize;

    /// As the real ones; a cell of loom beside each byte hears of every access.
    #[derive(Debug)]
    pub struct RawBytes {
        access_cells: Vec<UnsafeCell<()>>,
        bytes: *mut [u8],
    }
    // SAFETY: loom runs one thread at a time, and fails the test where two could have met.
    unsafe impl Send for RawBytes {}
    // SAFETY: as above.
    unsafe impl Sync for RawBytes {}

    impl RawBytes {
        pub fn new(len: usize) -> RawBytes {
            let told = (0..len).map(|_| UnsafeCell::new(())).collect();
            RawBytes { access_cells: told, bytes: Box::into_raw(vec![0; len].into_boxed_slice()) }
        }
        pub fn len(&self) -> usize {
            self.access_cells.len()
        }
        /// # Safety
        /// As the real one.
        pub unsafe fn write(&self, at: usize, bytes: &[u8]) {
            for (i, byte) in bytes.iter().enumerate() {
                // SAFETY: inside, by the index; alone, or loom fails the test.
                self.access_cells[at + i]
                    .with_mut(|_| unsafe { self.bytes.cast::<u8>().add(at + i).write(*byte) });
            }
        }
        /// # Safety
        /// As the real one.
        pub unsafe fn read(&self, len: usize) -> &[u8] {
            self.access_cells[..len].iter().for_each(|cell| cell.with(|_| ()));
            // SAFETY: inside, by the index above; not being written, or loom fails the test.
            unsafe { std::slice::from_raw_parts(self.bytes.cast::<u8>(), len) }
        }
    }
    impl Drop for RawBytes {
        fn drop(&mut self) {
            // SAFETY: it came from a box, and nobody refers to it any more.
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
        let chunk = Arc::new(AppendBuffer::new(4));
        let writer = {
            let chunk = Arc::clone(&chunk);
            thread::spawn(move || {
                chunk.append(&[1, 1]).unwrap();
                chunk.append(&[2, 2]).unwrap();
            })
        };
        let seen = chunk.bytes();
        assert!([&[][..], &[1, 1], &[1, 1, 2, 2]].contains(&seen));
        writer.join().unwrap();
        assert_eq!(chunk.bytes(), [1, 1, 2, 2]);
    });
}

#[test]
fn concurrent_appends_never_share_a_byte() {
    loom::model(|| {
        let chunk = Arc::new(AppendBuffer::new(4));
        let writers: Vec<_> = [1, 2]
            .map(|n| {
                let chunk = Arc::clone(&chunk);
                thread::spawn(move || usize::from(chunk.append(&[n, n]).is_some()))
            })
            .into();
        let seen = chunk.bytes().len();
        assert!(seen % 2 == 0);
        let done: usize = writers.into_iter().map(|w| w.join().unwrap()).sum();
        assert!(done >= 1 && chunk.bytes().len() == 2 * done);
        assert!(chunk.bytes().chunks(2).all(|p| p[0] == p[1] && p[0] != 0));
    });
}
