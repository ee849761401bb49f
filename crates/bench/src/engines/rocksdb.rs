//! RocksDB (feature `rocksdb`), tuned as the seed documents say: LZ4, 10-bit Bloom filter, eight background jobs.

use crate::engine::{Cursor, Engine, Result, Session, Sink, Told};
use crate::settings::{Compression, Settings, Sync, shown};
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, DBRawIterator, Options, WriteBatch, WriteOptions,
};
use std::path::Path;

struct Rocks {
    db: DB,
    sync: bool,
    told: Told,
}

pub fn open(dir: &Path, settings: &Settings) -> Result<Box<dyn Engine>> {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&Cache::new_lru_cache(usize::try_from(settings.cache)?));
    table.set_bloom_filter(10.0, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_write_buffer_size(usize::try_from(settings.memtable)?);
    options.set_max_background_jobs(8);
    options.set_compression_type(match settings.compression {
        Compression::None => DBCompressionType::None,
        Compression::Lz4 => DBCompressionType::Lz4,
    });
    let mut told = Told::new();
    let mut say = |k: &str, v: String| told.insert(k.to_owned(), v);
    say("durability", if settings.sync == Sync::None { "WAL, no sync" } else { "WAL, sync" }.into());
    say("memtable", shown(settings.memtable));
    say("cache", format!("{} of blocks, and the page cache", shown(settings.cache)));
    say("compression", format!("{:?}", settings.compression));
    say("filter", "10 bits per key".into());
    say("background jobs", "8".into());
    Ok(Box::new(Rocks { db: DB::open(&options, dir)?, sync: settings.sync == Sync::Full, told }))
}

impl Engine for Rocks {
    fn version(&self) -> String {
        super::locked("librocksdb-sys")
    }
    fn told(&self) -> Told {
        self.told.clone()
    }
    fn session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()> {
        let mut options = WriteOptions::default();
        options.set_sync(self.sync);
        work(&mut Asking { db: &self.db, options })
    }
    fn settle(&self) -> Result<()> {
        self.db.flush()?;
        let pending = |name: &str| self.db.property_int_value(name).map(|n| n.unwrap_or(0));
        while pending("rocksdb.num-running-compactions")? + pending("rocksdb.compaction-pending")? > 0 {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        Ok(())
    }
    fn close(self: Box<Self>) -> Result<()> {
        self.db.flush_wal(true)?;
        Ok(())
    }
}

struct Asking<'e> {
    db: &'e DB,
    options: WriteOptions,
}

impl Sink for WriteBatch {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        WriteBatch::put(self, key, value);
        Ok(())
    }
    fn delete(&mut self, key: &[u8]) -> Result<()> {
        WriteBatch::delete(self, key);
        Ok(())
    }
}

impl Session for Asking<'_> {
    fn write(&mut self, _n: usize, fill: &mut dyn FnMut(&mut dyn Sink) -> Result<()>) -> Result<()> {
        let mut batch = WriteBatch::default();
        fill(&mut batch)?;
        Ok(self.db.write_opt(&batch, &self.options)?)
    }
    fn get(&mut self, key: &[u8], see: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        see(self.db.get_pinned(key)?.as_deref());
        Ok(())
    }
    fn cursor(&mut self, work: &mut dyn FnMut(&mut dyn Cursor) -> Result<()>) -> Result<()> {
        work(&mut Walk(self.db.raw_iterator()))
    }
}

struct Walk<'e>(DBRawIterator<'e>);

impl Cursor for Walk<'_> {
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
