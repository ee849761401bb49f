//! Measures the size of each part of the table files, and the cost of reads: `cargo run --profile
//! perf -p perigeedb --example disk_sizes -- [ENTRIES] [CACHE_MIB] [SET]...`
//!
//! A set is one of:
//! - `ascending` or `swapped`: keys are a 16-byte counter, byte-swapped or not; 100-byte values are
//!   an ascending byte sequence.
//! - `ramp` or `half`: keys are 16 random bytes; 100-byte values are an ascending byte sequence, or
//!   half random.
//! - a file of records: key length (u32), value length (u32), key, value; little-endian.
//!
//! Entries are loaded in the order of their numbers, or shuffled if they come from a file. Reads
//! are measured when background work is idle, and again after a compaction. One thread; prints the
//! CPU time of the process in microseconds per operation.

mod common;

use common::{cpu_s, sets::DataSet};
use perigee::{Db, Durability, Options, WriteBatch};
use perigee_base::{FileId, FileKind, HEADER_BYTES};
use perigee_file::{
    FOOTER_BYTES, FRAME_OVERHEAD_BYTES, Footer, Frame, FrameKind, TableBlock, declared_frame_bytes,
};
use std::path::Path;

type AnyResult<T> = Result<T, Box<dyn std::error::Error>>;

/// Sizes of the parts of all table files.
#[derive(Default)]
struct SizeBreakdown {
    files: u64,
    bytes: u64,
    blocks: u64,
    entries: u64,
    /// Uncompressed bytes of data blocks: headers and columns, keys (shared prefixes once), values.
    raw: [u64; 3],
    /// Stored bytes of data blocks without frames; then of filters, indexes and properties.
    stored: u64,
    rest: [u64; 3],
    codecs: [u64; 4],
}

impl SizeBreakdown {
    fn add(&mut self, id: FileId, bytes: &[u8]) -> perigee::Result<()> {
        let end = bytes.len() - FOOTER_BYTES;
        let footer = Footer::decode(&bytes[end..], id, end as u64)?;
        self.files += 1;
        self.bytes += bytes.len() as u64;
        for (sum, handle) in
            self.rest.iter_mut().zip([footer.filter, footer.index, footer.properties])
        {
            *sum += handle.len;
        }
        let mut at = HEADER_BYTES;
        while (at as u64) < footer.data_range().end {
            let length = declared_frame_bytes(&bytes[at..], FrameKind::Data)? as usize;
            let frame = Frame::decode(id, at as u64, &bytes[at..at + length], FrameKind::Data)?;
            self.stored += frame.payload.len() as u64;
            self.codecs[usize::from(frame.codec.code())] += 1;
            let block = TableBlock::parse(frame.decompress(TableBlock::SLACK)?)?;
            let suffixes: usize = (0..block.len()).map(|i| block.suffix(i).len()).sum();
            let values: usize = (0..block.len()).map(|i| block.raw_value(i).len()).sum();
            let keys = block.prefix().len() + suffixes;
            let headers = frame.raw_bytes - keys - values;
            self.raw.iter_mut().zip([headers, keys, values]).for_each(|(sum, n)| *sum += n as u64);
            self.blocks += 1;
            self.entries += block.len() as u64;
            at += length;
        }
        Ok(())
    }

    fn from_dir(dir: &Path) -> AnyResult<SizeBreakdown> {
        let mut sizes = SizeBreakdown::default();
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let name = entry.file_name();
            if let Some((id, FileKind::Klog)) =
                perigee_file::filename::parse_file_name(&name.to_string_lossy())
            {
                sizes.add(id, &std::fs::read(entry.path())?)?;
            }
        }
        Ok(sizes)
    }

    fn print(&self) {
        let each = |n: u64| n as f64 / self.entries.max(1) as f64;
        let headers = self.files * (HEADER_BYTES + FOOTER_BYTES) as u64;
        print!("    {} tables, {:.2} B/entry: ", self.files, each(self.bytes));
        print!("blocks {:.2} ", each(self.stored));
        print!(
            "(headers {:.2}, keys {:.2}, values {:.2}) ",
            each(self.raw[0]),
            each(self.raw[1]),
            each(self.raw[2])
        );
        print!("frames {:.2} ", each(self.blocks * FRAME_OVERHEAD_BYTES as u64));
        print!("filter {:.2} index {:.2} ", each(self.rest[0]), each(self.rest[1]));
        println!(
            "properties {:.2} headers {:.2}; frames none/lz4/snappy/zstd {:?}",
            each(self.rest[2]),
            each(headers),
            self.codecs
        );
    }
}

fn measure(what: &str, n: u64, work: impl FnOnce() -> perigee::Result<()>) -> perigee::Result<()> {
    let cpu = cpu_s();
    work()?;
    print!("{what} {:.2}  ", (cpu_s() - cpu) * 1e6 / n.max(1) as f64);
    Ok(())
}

fn measure_reads(db: &Db, set: &DataSet) -> perigee::Result<()> {
    let n = set.len();
    let reads = n.min(300_000);
    print!("    ");
    measure("get", reads, || {
        for i in (0..reads).map(|i| set.random_index(i)) {
            assert_eq!(db.get_pinned(set.key(i))?.map(|v| v.len()), Some(set.value(i).len()));
        }
        Ok(())
    })?;
    let mut cursor = db.default_family().cursor()?;
    measure("seek", reads / 2, || {
        for i in (0..reads / 2).map(|i| set.random_index(i + n)) {
            cursor.seek(set.key(i))?;
            assert_eq!(cursor.key(), &*set.key(i));
        }
        Ok(())
    })?;
    measure("range100", reads / 50, || {
        for i in (0..reads / 50).map(|i| set.random_index(i + 2 * n)) {
            cursor.seek(set.key(i))?;
            for _ in 0..100 {
                if cursor.is_valid() {
                    std::hint::black_box(cursor.value()?.len());
                    cursor.next()?;
                }
            }
        }
        Ok(())
    })?;
    measure("scan", n, || {
        assert_eq!(db.iter()?.try_fold(0, |c, e| e.map(|_| c + 1))?, n);
        Ok(())
    })?;
    println!();
    Ok(())
}

fn main() -> AnyResult<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, or: u64| args.get(i).and_then(|a| a.parse().ok()).unwrap_or(or);
    let (n, cache) = (number(0, 1_000_000), number(1, 8));
    let mut sets: Vec<&str> = args.iter().skip(2).map(String::as_str).collect();
    if sets.is_empty() {
        sets = vec!["ascending", "swapped", "ramp", "half"];
    }
    for name in sets {
        let set = DataSet::new(name, n)?;
        let n = set.len();
        let dir = std::env::temp_dir().join(format!("perigee-disk-sizes-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let options = Options::new().durability(Durability::None).block_cache_bytes(cache << 20);
        let db = Db::open(&dir, options)?;
        let family = db.default_family();
        println!("{name}: {n} entries, {:.1} raw bytes each", set.raw_bytes() as f64 / n as f64);
        print!("    ");
        measure("write", n, || {
            for start in (0..n).step_by(1000) {
                let mut batch = WriteBatch::new();
                for i in start..(start + 1000).min(n) {
                    batch.put(&family, set.key(i), set.value(i))?;
                }
                db.write(batch)?;
            }
            db.admin().flush()?;
            db.admin().wait_idle()
        })?;
        println!("idle: {:.2} MB", db.admin().stats().disk_bytes as f64 / 1e6);
        SizeBreakdown::from_dir(&dir)?.print();
        measure_reads(&db, &set)?;
        print!("    ");
        measure("compact", n, || db.admin().compact())?;
        println!("compacted: {:.2} MB", db.admin().stats().disk_bytes as f64 / 1e6);
        SizeBreakdown::from_dir(&dir)?.print();
        measure_reads(&db, &set)?;
        db.close()?;
        let _ = std::fs::remove_dir_all(&dir);
    }
    Ok(())
}
