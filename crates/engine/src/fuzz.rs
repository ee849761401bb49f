//! Entry points of the fuzz targets in `fuzz/` and of the smoke test that runs without a fuzzer.
//! Each passes arbitrary bytes to a decoder of the log, the manifest or a whole database directory,
//! which must return a result or an error, never panic. They return true if the input was accepted.

use crate::catalog::manifest::{CatalogState, decode_edit, encode_edit};
use crate::maintenance::safety::BackupGeneration;
use crate::settings::durability::Durability;
use crate::settings::{FamilySettings, Settings};
use crate::{Engine, FamilyState};
use perigee_base::{FileHeader, FileId, FileKind, HEADER_BYTES, Result, SeqNo};
use perigee_env::fs::memory::SimDisk;
use perigee_env::{Dir, DirOpenMode, Env, Fs};
use perigee_file::log::{
    Batch, BatchOps, LogReader, NextLogRecord, RECORD_HEADER_BYTES, RecordHeader, RecordKind,
    checksum_seed,
};
use perigee_tree::read::ScanBounds;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Decodes the header of an encrypted file.
pub fn fuzz_crypt(bytes: &[u8]) -> bool {
    perigee_env::encryption::fuzz_header(bytes)
}

/// Decodes a manifest edit; a valid one must survive the round trip, and applying it to an empty
/// catalog must return.
pub fn fuzz_edit(bytes: &[u8]) -> bool {
    let Ok(edit) = decode_edit(bytes) else { return false };
    let again = decode_edit(&encode_edit(&edit));
    assert_eq!(again.ok().as_ref(), Some(&edit), "an edit changes in the round trip");
    let _ = CatalogState::default().apply(&edit);
    true
}

/// Decodes the record of a backup generation; a valid one must survive the round trip.
pub fn fuzz_generation(bytes: &[u8]) -> bool {
    // Once as it is, and once with the length and checksums fixed so that the body is decoded.
    let unmodified_ok = BackupGeneration::decode(bytes, 1).is_ok();
    let header =
        FileHeader { kind: FileKind::Backup, database: DATABASE, file: FileId(1), a: 9, b: 0 };
    let mut fixed = header.encode().to_vec();
    fixed.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    fixed.extend_from_slice(&[0; 4]);
    fixed.extend_from_slice(bytes);
    let sum =
        perigee_base::checksum::checksum(FileId(1), HEADER_BYTES as u64, &fixed[HEADER_BYTES..]);
    fixed.extend_from_slice(&sum.to_le_bytes());
    let Ok(g) = BackupGeneration::decode(&fixed, 1) else { return unmodified_ok };
    let again = BackupGeneration::decode(&g.encode(), 1);
    assert_eq!(again.ok().as_ref(), Some(&g), "a generation changes in the round trip");
    true
}

/// Decodes the operations of a batch.
pub fn fuzz_batch(bytes: &[u8]) -> bool {
    BatchOps::new(bytes, 0..bytes.len()).all(|op| op.is_ok_and(|op| op.value.end <= bytes.len()))
}

/// Decodes the payloads of two-phase commit.
pub fn fuzz_prepare(bytes: &[u8]) -> bool {
    use perigee_file::log::{PrepareRecord, decode_decision, encode_prepare};
    let _ = decode_decision(bytes);
    let comparator_of = |_| Some(perigee_base::KeyComparator::Bytes);
    let _ =
        crate::txn::prepared_txn::PreparedTxn::decode(Arc::new(bytes.to_vec()), &comparator_of, 1);
    let Ok(p) = PrepareRecord::decode(bytes) else { return false };
    let claims = |visit: &mut dyn FnMut(perigee_file::log::PreparedClaim<'_>)| {
        p.claims.iter().for_each(|claim| visit(*claim))
    };
    let again = encode_prepare(p.header, &claims, &bytes[p.ops_range.clone()]);
    let again = again.expect("what was decoded is not too large");
    assert_eq!(
        &again.buf[again.payload_range()],
        bytes,
        "a prepare record changes in the round trip"
    );
    true
}

const DATABASE: u64 = 77;
const LOG: FileId = FileId(3);
const LOG_NAME: &str = "000003.wal";

/// Reads a log file made of a valid header, then `bytes` as records; the first record gets valid
/// checksums so that it is decoded.
pub fn fuzz_log(bytes: &[u8]) -> bool {
    let header = FileHeader { kind: FileKind::Wal, database: DATABASE, file: LOG, a: 1, b: 5 };
    let mut file = header.encode().to_vec();
    let previous = read_checksum(&file, 64);
    if bytes.len() >= 8 {
        let payload_bytes = u32::from_le_bytes([bytes[0], bytes[1], bytes[2] % 2, 0]);
        let count = u32::from(bytes[3]);
        let (mut kind, mut payload) = (RecordKind::Batch, bytes[8..].to_vec());
        match bytes[4] % 8 {
            0 => kind = RecordKind::Close,
            1 => kind = RecordKind::Prepare,
            2 => kind = RecordKind::Decision,
            _ => {}
        }
        let padded = payload.len().next_multiple_of(8);
        payload.resize(padded, 0);
        let payload_checksum = perigee_base::checksum::payload_checksum(&payload);
        let h = RecordHeader {
            kind,
            payload_bytes,
            lsn_count: count,
            lsn: 1,
            durable_lsn: 0,
            manifest_edits: 1,
            previous_checksum: previous,
            payload_checksum,
        };
        file.extend_from_slice(&h.encode(checksum_seed(DATABASE, LOG), HEADER_BYTES as u64));
        file.extend_from_slice(&payload);
    }
    file.extend_from_slice(bytes);
    let disk = SimDisk::new(1);
    let Ok(dir) = disk.open_dir(Path::new("/db"), DirOpenMode::CreateIfMissing) else {
        return false;
    };
    if dir.create(LOG_NAME).is_err() {
        return false;
    }
    disk.write_raw(Path::new("/db").join(LOG_NAME), file);
    read_log(&*dir).unwrap_or(false)
}

fn read_checksum(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

fn read_log(dir: &dyn Dir) -> Result<bool> {
    let mut log = LogReader::open(dir, LOG_NAME, FileKind::Wal, Some(LOG), Some(DATABASE), None)?;
    let mut accepted = false;
    loop {
        match log.next_record()? {
            NextLogRecord::Record(r) => {
                accepted = true;
                let _ = BatchOps::new(&r.payload, 0..r.payload.len()).count();
                assert!(r.header.record_bytes() >= RECORD_HEADER_BYTES as u64);
            }
            NextLogRecord::End => return Ok(accepted),
            NextLogRecord::Bad(_) => {
                log.find_records_after_bad()?;
                return Ok(accepted);
            }
        }
    }
}

fn sample_settings() -> Settings {
    let family = FamilySettings {
        memtable_bytes: 2048,
        block_bytes: 128,
        target_file_bytes: 1024,
        level1_bytes: 2048,
        value_threshold: 64,
        ..FamilySettings::default()
    };
    Settings { durability: Durability::Full, log_retention: 4 << 10, ..small_settings(family) }
}

/// Returns the settings of a small database with durability `None`: for fuzz targets and for tests,
/// which change what they need.
pub fn small_settings(default_family: FamilySettings) -> Settings {
    Settings {
        durability: Durability::None,
        block_cache_bytes: 1 << 16,
        max_open_files: 4,
        min_free_space: 0,
        scrub_interval: Duration::ZERO,
        log_files_kept: 1,
        default_family: Some(default_family),
        ..Settings::default()
    }
}

fn write_sample(engine: &Engine, family: &FamilyState, n: u8) -> Result<()> {
    let mut batch = Batch::new();
    batch.put(family.id, &[n % 16, n], &vec![n; usize::from(n)])?;
    batch.delete(family.id, &[n % 7])?;
    engine.write(batch, None)
}

/// Returns a small closed database with every kind of file.
fn sample_database() -> Result<Arc<SimDisk>> {
    let disk = SimDisk::new(7);
    let env = Env { fs: disk.clone(), ..Env::real() };
    let engine = Engine::open(env, Path::new("/db"), sample_settings())?;
    let second =
        engine.create_family("second", sample_settings().default_family.unwrap_or_default())?;
    let first = engine.family("default")?;
    for n in 0..120 {
        write_sample(&engine, if n % 3 == 0 { &second } else { &first }, n)?;
        if n == 60 {
            engine.compact(&engine.all_families())?;
        }
    }
    engine.close()?;
    Ok(disk)
}

/// Applies `bytes` as changes to a small database (five bytes each: file, offset, new byte), then
/// opens, reads and verifies everything.
pub fn fuzz_directory(bytes: &[u8]) -> bool {
    static IMAGE: OnceLock<Arc<SimDisk>> = OnceLock::new();
    let disk = IMAGE
        .get_or_init(|| sample_database().expect("the untouched image can be built"))
        .deep_clone();
    let paths: Vec<PathBuf> = disk.paths();
    for change in bytes.chunks_exact(5).take(64) {
        let path = &paths[usize::from(change[0]) % paths.len()];
        let mut content = disk.read_raw(path);
        let at = usize::from(u16::from_le_bytes([change[1], change[2]]));
        match change[3] % 8 {
            0 => content.truncate(at),
            1 => content.extend_from_slice(&change[3..]),
            _ if !content.is_empty() => {
                let len = content.len();
                content[at % len] = change[4];
            }
            _ => {}
        }
        disk.write_raw(path, content);
    }
    read_everything(disk).is_ok()
}

fn read_everything(disk: Arc<SimDisk>) -> Result<()> {
    let env = Env { fs: disk, ..Env::real() };
    let engine = Arc::new(Engine::open(env, Path::new("/db"), sample_settings())?);
    for family in engine.all_families() {
        let mut cursor = engine.reader(&family)?.cursor(ScanBounds::all())?;
        cursor.seek_to_last()?;
        while cursor.is_valid() {
            cursor.value()?;
            cursor.step_backward()?;
        }
    }
    let oldest = engine.log().catalog.feed_events(SeqNo::MAX).oldest_position;
    let mut feed = engine.change_feed(oldest)?;
    while feed.next_item(engine.log())?.is_some() {}
    engine.verify(&mut |_, _| {})?;
    engine.close()
}
