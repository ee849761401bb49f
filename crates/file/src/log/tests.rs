//! Log tests: round trips; every bit flip and truncation is detected; records after damage are
//! found; appends on a full disk are rolled back.

use super::batch::EncodedRecord;
use super::reader::{BadLogRecord, RecordsAfterBad};
use super::*;
use crate::testing::{hex_of_page, to_hex};
use perigee_base::{ErrorKind, FamilyId, FileHeader, FileId, FileKind, HEADER_BYTES};
use perigee_env::encryption::{EncryptedFs, KEY_BYTES, KeyRing};
use perigee_env::fs::memory::{Fault, SimDisk};
use perigee_env::{Dir, DirOpenMode, Fs, Rand};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const DATABASE: u64 = 0x1122_3344_5566_7788;
const NAME: &str = "000003.wal";

fn header() -> FileHeader {
    FileHeader { kind: FileKind::Wal, database: DATABASE, file: FileId(3), a: 7, b: 99 }
}

fn disk() -> (Arc<SimDisk>, Arc<dyn Dir>) {
    let disk = SimDisk::new(1);
    let dir = disk.open_dir(Path::new("/db"), DirOpenMode::CreateIfMissing).unwrap();
    (disk, dir)
}

fn batch(key: &str, value: &str) -> EncodedRecord {
    let mut b = Batch::new();
    b.put(FamilyId(0), key.as_bytes(), value.as_bytes()).unwrap();
    b.finish()
}

fn stamp(lsn: u64, durable: u64) -> RecordStamp {
    RecordStamp { lsn, durable_lsn: durable, manifest_edits: 4 }
}

/// Five records in three appends.
fn sample(dir: &dyn Dir) {
    let mut w = LogWriter::create(dir, NAME, &header()).unwrap();
    w.append(stamp(7, 6), &mut [&mut batch("a", "1")]).unwrap();
    w.append(stamp(8, 7), &mut [&mut batch("b", "22"), &mut batch("c", ""), &mut batch("", "")])
        .unwrap();
    w.append(stamp(11, 10), &mut [&mut batch("d", "4")]).unwrap();
}

fn open(dir: &dyn Dir) -> perigee_base::Result<LogReader> {
    LogReader::open(dir, NAME, FileKind::Wal, Some(FileId(3)), Some(DATABASE), None)
}

/// Returns the LSNs read, the bad record, and the records found after it.
fn read(dir: &dyn Dir) -> (Vec<u64>, Option<BadLogRecord>, Option<RecordsAfterBad>) {
    let mut log = open(dir).unwrap();
    let mut seen = Vec::new();
    loop {
        match log.next_record().unwrap() {
            NextLogRecord::Record(r) => seen.push(r.header.lsn),
            NextLogRecord::End => return (seen, None, None),
            NextLogRecord::Bad(bad) => {
                let after = log.find_records_after_bad().unwrap();
                return (seen, Some(bad), after);
            }
        }
    }
}

#[test]
fn records_are_read_in_order() {
    let (_disk, dir) = disk();
    sample(&*dir);
    assert_eq!(read(&*dir).0, [7, 8, 9, 10, 11]);
}

#[test]
fn bit_flips_are_detected_and_later_records_found() {
    let (disk, dir) = disk();
    sample(&*dir);
    let path = Path::new("/db").join(NAME);
    let good = disk.read_raw(&path);
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        disk.write_raw(&path, bad);
        if bit / 8 < HEADER_BYTES {
            assert!(open(&*dir).is_err(), "header bit {bit}");
            continue;
        }
        let (seen, bad, after) = read(&*dir);
        let bad = bad.unwrap_or_else(|| panic!("bit {bit} was not detected"));
        assert!(!bad.is_truncated, "bit {bit}");
        assert_eq!(bad.error.offset(), Some(bad.offset));
        // All records after the bad one are found, unless the last record is bad.
        assert_eq!(after.is_some(), seen.len() < 4, "bit {bit}");
        assert!(after.is_none_or(|b| b.durable_lsn >= 7 && b.manifest_edits == 4));
    }
}

#[test]
fn truncated_log_ends_cleanly_or_reports_truncation() {
    let (disk, dir) = disk();
    sample(&*dir);
    let path = Path::new("/db").join(NAME);
    let good = disk.read_raw(&path);
    for len in HEADER_BYTES..good.len() {
        disk.write_raw(&path, good[..len].to_vec());
        let (seen, bad, after) = read(&*dir);
        assert!(seen.len() < 5 && after.is_none());
        assert!(bad.is_none_or(|b| b.is_truncated), "length {len}");
        // If the tail of the file was never written, it reads as zeros, which do not belong to the
        // log.
        for full in [len + 1, good.len(), good.len() + 5000] {
            let mut zeros = good[..len].to_vec();
            zeros.resize(full, 0);
            disk.write_raw(&path, zeros);
            let (before, bad, after) = read(&*dir);
            assert_eq!((before, after.is_none()), (seen.clone(), true));
            assert!(bad.is_none_or(|b| b.is_truncated), "length {len} of {full}");
        }
    }
}

#[test]
fn preallocated_space_is_not_part_of_the_log() {
    let (disk, dir) = disk();
    let path = Path::new("/db").join(NAME);
    let mut w = LogWriter::create(&*dir, NAME, &FileHeader { a: 0, ..header() }).unwrap();
    w.preallocate(1000).unwrap();
    assert_eq!(disk.read_raw(&path).len(), 1000);
    let mut log = open(&*dir).unwrap();
    assert!(
        log.peek_lsn().unwrap().is_none()
            && matches!(log.next_record().unwrap(), NextLogRecord::End)
    );
    for lsn in 7..60 {
        w.append(stamp(lsn, 6), &mut [&mut batch("key", "value that ends in a zero \0")]).unwrap();
    }
    assert!(log.refresh_end().unwrap() && !log.refresh_end().unwrap());
    assert_eq!(log.peek_lsn().unwrap(), Some(7));
    assert_eq!(read(&*dir).0, (7..60).collect::<Vec<_>>());
    let whole = disk.read_raw(&path);
    assert!(whole.len() as u64 > w.offset() && whole.len() % 4096 == 0, "still preallocates");
    let end = w.offset() as usize;
    for at in [end - 1, end, end + 1, end + 63, end + 200, whole.len() - 1] {
        let mut bad = whole.clone();
        bad[at] ^= 0x10;
        disk.write_raw(&path, bad);
        let (seen, bad, after) = read(&*dir);
        assert!(bad.is_some() && after.is_none(), "byte {at}");
        assert_eq!(seen.len(), if at < end { 52 } else { 53 });
    }
    disk.write_raw(&path, whole);
    let mut log = open(&*dir).unwrap();
    log.expect_lsn(8);
    assert!(matches!(log.next_record().unwrap(), NextLogRecord::Bad(_)), "the first LSN is 7");
    w.trim_preallocated().unwrap();
    assert_eq!(disk.read_raw(&path).len() as u64, w.offset());
    w.append(stamp(60, 6), &mut [&mut batch("one", "more")]).unwrap();
    assert_eq!(disk.read_raw(&path).len() as u64, w.offset(), "no more preallocation");
    assert_eq!(read(&*dir).0.len(), 54);
}

#[test]
fn full_disk_stops_preallocation_but_not_appends() {
    let (disk, dir) = disk();
    let mut w = LogWriter::create(&*dir, NAME, &header()).unwrap();
    w.preallocate(0).unwrap();
    disk.set_capacity(disk.total_bytes() + 500);
    w.append(stamp(7, 6), &mut [&mut batch("a", "1")]).unwrap();
    let e = w.append(stamp(8, 6), &mut [&mut batch("large", &"x".repeat(1000))]).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NoSpace);
    w.roll_back_append().unwrap();
    w.append(stamp(8, 6), &mut [&mut batch("b", "2")]).unwrap();
    assert_eq!(read(&*dir).0, [7, 8]);
}

#[test]
fn append_on_full_disk_is_rolled_back() {
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        let dir = disk.open_dir(Path::new("/db"), DirOpenMode::CreateIfMissing).unwrap();
        let mut w = LogWriter::create(&*dir, NAME, &header()).unwrap();
        w.append(stamp(7, 6), &mut [&mut batch("a", "1")]).unwrap();
        disk.fail_at(1, Fault::Enospc, false);
        let e = w
            .append(stamp(8, 6), &mut [&mut batch("lost", "x"), &mut batch("lost", "y")])
            .unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NoSpace);
        assert_eq!(
            w.append(stamp(8, 6), &mut [&mut batch("b", "2")]).unwrap_err().kind(),
            ErrorKind::Poisoned
        );
        w.roll_back_append().unwrap();
        w.append(stamp(8, 6), &mut [&mut batch("b", "2")]).unwrap();
        assert_eq!(read(&*dir).0, [7, 8]);
    }
}

#[test]
fn io_error_poisons_the_log_writer() {
    let (disk, dir) = disk();
    let mut w = LogWriter::create(&*dir, NAME, &header()).unwrap();
    disk.fail_at(1, Fault::Eio, false);
    assert_eq!(
        w.append(stamp(7, 6), &mut [&mut batch("a", "1")]).unwrap_err().kind(),
        ErrorKind::Io
    );
    assert_eq!(
        w.append(stamp(7, 6), &mut [&mut batch("a", "1")]).unwrap_err().kind(),
        ErrorKind::Poisoned
    );
    assert!(w.roll_back_append().is_err());
}

#[test]
fn log_record_matches_format_page_example() {
    let (disk, dir) = disk();
    let mut w = LogWriter::create(&*dir, NAME, &header()).unwrap();
    w.append(stamp(7, 6), &mut [&mut batch("moon", "tide")]).unwrap();
    let raw = disk.read_raw(Path::new("/db").join(NAME));
    let page = include_str!("../../../../docs/format/log.md");
    assert_eq!(hex_of_page(page, 0), to_hex(&raw[HEADER_BYTES..]));
}

/// Nonces of encrypted files: a counter.
#[derive(Debug, Default)]
struct CountingRand(AtomicU64);

impl Rand for CountingRand {
    fn next_u64(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// An encrypted log whose writer died after any byte, in a preallocated file or not: complete
/// records are read, and the rest is a torn end, never damage.
#[test]
fn interrupted_encrypted_log_ends_cleanly_or_reports_truncation() {
    const STORED_AT: usize = 4096;
    let rand: Arc<CountingRand> = Arc::default();
    let (mut ends_in_zero, mut torn) = (0, 0);
    for _ in 0..60 {
        let (disk, _) = disk();
        let fs: Arc<dyn Fs> = Arc::clone(&disk) as _;
        let keys = Arc::new(KeyRing::new([3; KEY_BYTES]));
        let fs = EncryptedFs::wrap(&fs, keys, Arc::clone(&rand) as _, |_| false);
        let dir = fs.open_dir(Path::new("/db"), DirOpenMode::Existing).unwrap();
        sample(&*dir);
        let path = Path::new("/db").join(NAME);
        let good = disk.read_raw(&path);
        let all = read(&*dir).0;
        assert_eq!(all, [7, 8, 9, 10, 11]);
        ends_in_zero += usize::from(good.last() == Some(&0));
        for len in STORED_AT + HEADER_BYTES..good.len() {
            disk.write_raw(&path, good[..len].to_vec());
            let (seen, bad, after) = read(&*dir);
            assert!(seen.len() < 5 && after.is_none());
            assert!(bad.is_none_or(|b| b.is_truncated), "length {len}");
            for full in [good.len(), good.len() + 5000] {
                let mut zeros = good[..len].to_vec();
                zeros.resize(full, 0);
                let same = zeros[..good.len()] == good;
                disk.write_raw(&path, zeros);
                let (before, bad, after) = read(&*dir);
                // A record whose missing bytes are stored as zeros is complete.
                assert!(before == seen || same || before[..seen.len()] == seen[..]);
                assert!(before.len() <= seen.len() + 1 && after.is_none());
                torn += usize::from(bad.is_some());
                assert!(bad.is_none_or(|b| b.is_truncated), "length {len} of {full}");
            }
        }
        // Damage is not a torn end, unless the stored end of the last record looks unwritten.
        for at in (STORED_AT + HEADER_BYTES..good.len() - 1).filter(|_| good.last() != Some(&0)) {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            bad.resize(good.len() + 5000, 0);
            disk.write_raw(&path, bad);
            let (_, bad, _) = read(&*dir);
            assert!(!bad.unwrap_or_else(|| panic!("byte {at} was not detected")).is_truncated);
        }
    }
    assert!(torn > 1000 && ends_in_zero < 5);
}
