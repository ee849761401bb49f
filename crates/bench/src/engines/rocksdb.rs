//! Adapter for RocksDB (feature `rocksdb`), tuned as its documentation recommends: LZ4, 10-bit
//! Bloom filter, eight background jobs.

use crate::engine::{Cursor, EffectiveOptions, Engine, Result, Session, Sink, TtlSupport};
use crate::settings::{Compression, Settings, Sync, human_bytes};
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, ColumnFamilyTtl, DB, DBAccess,
    DBCompressionType, DBRawIteratorWithThreadMode, Options, WaitForCompactOptions, WriteBatch,
    WriteOptions,
};
use std::path::Path;
use std::time::Duration;

struct RocksDb {
    db: DB,
    families: Vec<String>,
    sync: bool,
    ttl: bool,
    options: EffectiveOptions,
}

/// Returns the options and the family names, shared with the transactional database.
pub fn build_options(settings: &Settings) -> Result<(Options, Vec<String>, EffectiveOptions)> {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&Cache::new_lru_cache(usize::try_from(settings.cache)?));
    table.set_bloom_filter(10.0, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_block_based_table_factory(&table);
    options.set_write_buffer_size(usize::try_from(settings.memtable_per_family())?);
    options.set_max_background_jobs(8);
    options.set_compression_type(match settings.compression {
        Compression::None => DBCompressionType::None,
        Compression::Lz4 => DBCompressionType::Lz4,
    });
    let mut effective = EffectiveOptions::new();
    let mut say = |k: &str, v: String| effective.insert(k.to_owned(), v);
    say(
        "durability",
        if settings.sync == Sync::None { "WAL, no sync" } else { "WAL, sync" }.into(),
    );
    say("memtable", human_bytes(settings.memtable_per_family()));
    say("cache", format!("{} of blocks, and the page cache", human_bytes(settings.cache)));
    say("compression", format!("{:?}", settings.compression));
    say("filter", "10 bits per key".into());
    say("background jobs", "8".into());
    say("checksums", "every block, on every read from disk (its default)".into());
    let name = |f| if f == 0 { "default".to_owned() } else { format!("f{f}") };
    let families: Vec<String> = (0..settings.families()).map(name).collect();
    Ok((options, families, effective))
}

pub fn open(dir: &Path, settings: &Settings) -> Result<Box<dyn Engine>> {
    if let Some(level) = settings.shape.level {
        return super::rocksdb_txn::open(dir, settings, level);
    }
    let (options, families, mut effective) = build_options(settings)?;
    let ttl = if settings.shape.ttl.is_some() {
        ColumnFamilyTtl::SameAsDb
    } else {
        ColumnFamilyTtl::Disabled
    };
    let all = families
        .iter()
        .map(|name| ColumnFamilyDescriptor::new_with_ttl(name, options.clone(), ttl));
    let db = match settings.shape.ttl {
        Some(seconds) => {
            let text = format!("{seconds} s for the database; dropped by compaction, not by reads");
            effective.insert("time to live".into(), text);
            DB::open_cf_descriptors_with_ttl(&options, dir, all, Duration::from_secs(seconds))?
        }
        None => DB::open_cf_descriptors(&options, dir, all)?,
    };
    Ok(Box::new(RocksDb {
        db,
        families,
        sync: settings.sync == Sync::Full,
        ttl: settings.shape.ttl.is_some(),
        options: effective,
    }))
}

impl RocksDb {
    fn handles(&self) -> Result<Vec<&ColumnFamily>> {
        let find = |name: &String| {
            self.db.cf_handle(name).ok_or_else(|| format!("no column family {name}").into())
        };
        self.families.iter().map(find).collect()
    }
}

impl Engine for RocksDb {
    fn version(&self) -> String {
        super::locked_version("librocksdb-sys")
    }
    fn effective_options(&self) -> EffectiveOptions {
        self.options.clone()
    }
    fn with_session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()> {
        let mut options = WriteOptions::default();
        options.set_sync(self.sync);
        work(&mut RocksDbSession { db: &self.db, families: &self.handles()?, options })
    }
    fn wait_idle(&self) -> Result<()> {
        let mut options = WaitForCompactOptions::default();
        options.set_flush(true);
        Ok(self.db.wait_for_compact(&options)?)
    }
    fn close(self: Box<Self>) -> Result<()> {
        self.db.flush_wal(true)?;
        Ok(())
    }
    fn ttl_support(&self) -> TtlSupport {
        if self.ttl { TtlSupport::AtCompaction } else { TtlSupport::None }
    }
    fn max_value_bytes(&self) -> u64 {
        u64::from(u32::MAX)
    }
}

struct RocksDbSession<'e> {
    db: &'e DB,
    families: &'e [&'e ColumnFamily],
    options: WriteOptions,
}

struct RocksDbBatch<'e> {
    batch: WriteBatch,
    families: &'e [&'e ColumnFamily],
}

impl Sink for RocksDbBatch<'_> {
    fn put(&mut self, family: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.batch.put_cf(self.families[family], key, value);
        Ok(())
    }
    fn delete(&mut self, family: usize, key: &[u8]) -> Result<()> {
        self.batch.delete_cf(self.families[family], key);
        Ok(())
    }
}

impl Session for RocksDbSession<'_> {
    fn write(
        &mut self,
        _n: usize,
        fill: &mut dyn FnMut(&mut dyn Sink) -> Result<()>,
    ) -> Result<()> {
        let mut batched = RocksDbBatch { batch: WriteBatch::default(), families: self.families };
        fill(&mut batched)?;
        Ok(self.db.write_opt(batched.batch, &self.options)?)
    }
    fn get(&mut self, family: usize, key: &[u8], see: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        see(self.db.get_pinned_cf(self.families[family], key)?.as_deref());
        Ok(())
    }
    fn with_cursor(
        &mut self,
        family: usize,
        work: &mut dyn FnMut(&mut dyn Cursor) -> Result<()>,
    ) -> Result<()> {
        work(&mut RocksDbCursor(self.db.raw_iterator_cf(self.families[family])))
    }
}

/// A cursor over any kind of RocksDB database.
pub struct RocksDbCursor<'e, D: DBAccess>(pub DBRawIteratorWithThreadMode<'e, D>);

impl<D: DBAccess> Cursor for RocksDbCursor<'_, D> {
    fn scan(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.0.seek(key);
        while let Some((key, value)) = self.0.item() {
            if !see(key, value) {
                return Ok(());
            }
            self.0.next();
        }
        Ok(self.0.status()?)
    }
}
