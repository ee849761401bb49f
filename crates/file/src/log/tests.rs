//! Logs round trip; every bit and every length counts; what lies behind damage is found; a full disk is rolled back.

use super::batch::Finished;
use super::*;
use perigee_base::format::{FileHeader, FileKind, HEADER_BYTES};
use perigee_base::{ErrorKind, FamilyId, FileId};
use perigee_env::fs::fault::Fault;
use perigee_env::fs::memory::SimDisk;
use perigee_env::{Dir, Fs, OpenDir};
use std::path::Path;
use std::sync::Arc;

const DATABASE: u64 = 0x1122_3344_5566_7788;
const NAME: &str = "000003.wal";

fn header() -> FileHeader {
    FileHeader { kind: FileKind::Wal, database: DATABASE, file: FileId(3), a: 7, b: 99 }
}

fn disk() -> (Arc<SimDisk>, Arc<dyn Dir>) {
    let disk = SimDisk::new(1);
    let dir = disk.open_dir(Path::new("/db"), OpenDir::CreateIfMissing).unwrap();
    (disk, dir)
}

fn batch(key: &str, value: &str) -> Finished {
    let mut b = Batch::new();
    b.put(FamilyId(0), key.as_bytes(), value.as_bytes()).unwrap();
    b.finish()
}

fn stamp(lsn: u64, durable: u64) -> Stamp {
    Stamp { kind: RecordKind::Batch, lsn, durable, edits: 4 }
}

/// Five records in three appends.
fn sample(dir: &dyn Dir) {
    let mut w = LogWriter::create(dir, NAME, &header()).unwrap();
    w.append(stamp(7, 6), &mut [&mut batch("a", "1")]).unwrap();
    w.append(stamp(8, 7), &mut [&mut batch("b", "22"), &mut batch("c", ""), &mut batch("", "")]).unwrap();
    w.append(stamp(11, 10), &mut [&mut batch("d", "4")]).unwrap();
}

fn open(dir: &dyn Dir) -> perigee_base::Result<LogReader> {
    LogReader::open(dir, NAME, FileKind::Wal, Some(FileId(3)), Some(DATABASE), None)
}

/// LSNs read, and how it ended.
fn read(dir: &dyn Dir) -> (Vec<u64>, Option<Bad>, Option<Behind>) {
    let mut log = open(dir).unwrap();
    let mut seen = Vec::new();
    loop {
        match log.next_record().unwrap() {
            Step::Record(r) => seen.push(r.header.lsn),
            Step::End => return (seen, None, None),
            Step::Bad(bad) => {
                let behind = log.look_behind().unwrap();
                return (seen, Some(bad), behind);
            }
        }
    }
}

#[test]
fn records_come_back_in_order() {
    let (_disk, dir) = disk();
    sample(&*dir);
    assert_eq!(read(&*dir).0, [7, 8, 9, 10, 11]);
}

#[test]
fn every_bit_counts_and_what_lies_behind_is_found() {
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
        let (seen, bad, behind) = read(&*dir);
        let bad = bad.unwrap_or_else(|| panic!("bit {bit} was not noticed"));
        assert!(!bad.cut_short, "bit {bit}");
        assert_eq!(bad.why.offset(), Some(bad.offset));
        // Everything behind is still there to testify, but for the last record.
        assert_eq!(behind.is_some(), seen.len() < 4, "bit {bit}");
        assert!(behind.is_none_or(|b| b.durable >= 7 && b.edits == 4));
    }
}

#[test]
fn every_length_is_an_end_or_a_cut() {
    let (disk, dir) = disk();
    sample(&*dir);
    let path = Path::new("/db").join(NAME);
    let good = disk.read_raw(&path);
    let mut log = open(&*dir).unwrap();
    let mut starts = Vec::new();
    while let Step::Record(r) = log.next_record().unwrap() {
        starts.push(r.offset);
    }
    for len in HEADER_BYTES..good.len() {
        disk.write_raw(&path, good[..len].to_vec());
        let (seen, bad, behind) = read(&*dir);
        assert!(seen.len() < 5 && behind.is_none());
        assert!(bad.is_none_or(|b| b.cut_short), "length {len}");
        // A file whose tail was never written holds zeros there.
        let mut zeros = good[..len].to_vec();
        zeros.resize(good.len(), 0);
        disk.write_raw(&path, zeros);
        let (_, bad, _) = read(&*dir);
        // From a record's start on, zeros are a cut like the end of the file; inside a record they are wrong bytes.
        assert!(!starts.contains(&(len as u64)) || bad.as_ref().is_none_or(|b| b.cut_short), "length {len}");
        let whole_bytes_lost = good[len..].iter().any(|b| *b != 0);
        assert_eq!(bad.is_some(), whole_bytes_lost, "length {len}");
    }
}

#[test]
fn a_full_disk_is_rolled_back_and_the_log_goes_on() {
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        let dir = disk.open_dir(Path::new("/db"), OpenDir::CreateIfMissing).unwrap();
        let mut w = LogWriter::create(&*dir, NAME, &header()).unwrap();
        w.append(stamp(7, 6), &mut [&mut batch("a", "1")]).unwrap();
        disk.fail_at(1, Fault::Enospc, false);
        let e = w.append(stamp(8, 6), &mut [&mut batch("lost", "x"), &mut batch("lost", "y")]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NoSpace);
        assert_eq!(
            w.append(stamp(8, 6), &mut [&mut batch("b", "2")]).unwrap_err().kind(),
            ErrorKind::Poisoned
        );
        w.roll_back().unwrap();
        w.append(stamp(8, 6), &mut [&mut batch("b", "2")]).unwrap();
        assert_eq!(read(&*dir).0, [7, 8]);
    }
}

#[test]
fn after_any_other_failure_nothing_is_appended() {
    let (disk, dir) = disk();
    let mut w = LogWriter::create(&*dir, NAME, &header()).unwrap();
    disk.fail_at(1, Fault::Eio, false);
    assert_eq!(w.append(stamp(7, 6), &mut [&mut batch("a", "1")]).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(w.append(stamp(7, 6), &mut [&mut batch("a", "1")]).unwrap_err().kind(), ErrorKind::Poisoned);
    assert!(w.roll_back().is_err());
}

#[test]
fn the_worked_example_of_the_format_page() {
    let (disk, dir) = disk();
    let mut w = LogWriter::create(&*dir, NAME, &header()).unwrap();
    w.append(stamp(7, 6), &mut [&mut batch("moon", "tide")]).unwrap();
    let raw = disk.read_raw(Path::new("/db").join(NAME));
    let hex: String = raw[HEADER_BYTES..].iter().map(|b| format!("{b:02x}")).collect();
    let page = include_str!("../../../../docs/format/log.md");
    let block = page.split("```hex").nth(1).unwrap().split("```").next().unwrap();
    assert_eq!(block.split_whitespace().collect::<String>(), hex);
}
