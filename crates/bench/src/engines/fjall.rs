//! Adapter for fjall, through its public API.

use crate::engine::{Cursor, EffectiveOptions, Engine, Result, Session, Sink};
use crate::settings::{Compression, Settings, Sync, human_bytes};
use fjall::config::CompressionPolicy;
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable};
use std::path::Path;

struct Fjall {
    db: Database,
    keyspaces: Vec<Keyspace>,
    sync: Sync,
    options: EffectiveOptions,
}

pub fn open(dir: &Path, settings: &Settings) -> Result<Box<dyn Engine>> {
    let db = Database::builder(dir).cache_size(settings.cache).open()?;
    let compression = match settings.compression {
        Compression::None => CompressionType::None,
        Compression::Lz4 => CompressionType::Lz4,
    };
    let mut keyspaces = Vec::new();
    for f in 0..settings.families() {
        keyspaces.push(db.keyspace(&format!("bench{f}"), || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(settings.memtable_per_family())
                .data_block_compression_policy(CompressionPolicy::all(compression))
        })?);
    }
    let mut effective = EffectiveOptions::new();
    let mut say = |k: &str, v: String| effective.insert(k.to_owned(), v);
    say(
        "durability",
        if settings.sync == Sync::None { "buffer" } else { "fsync (SyncData) after each commit" }
            .into(),
    );
    say("memtable", human_bytes(settings.memtable_per_family()));
    say("cache", format!("{} of blocks, and the page cache", human_bytes(settings.cache)));
    say("compression", format!("{:?}", settings.compression));
    say("filter", "its default".into());
    say("iterator", "a new range on one snapshot for each seek".into());
    Ok(Box::new(Fjall { db, keyspaces, sync: settings.sync, options: effective }))
}

impl Engine for Fjall {
    fn version(&self) -> String {
        super::locked_version("fjall")
    }
    fn effective_options(&self) -> EffectiveOptions {
        self.options.clone()
    }
    fn with_session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()> {
        work(&mut FjallSession { db: &self.db, keyspaces: &self.keyspaces, sync: self.sync })
    }
    fn wait_idle(&self) -> Result<()> {
        for keyspace in &self.keyspaces {
            keyspace.rotate_memtable_and_wait()?;
        }
        let mut quiet = 0;
        // fjall has no call to wait for compactions: ten consecutive idle checks count as idle.
        while quiet < 10 {
            let busy = self.db.active_compactions() > 0 || self.db.outstanding_flushes() > 0;
            quiet = if busy { 0 } else { quiet + 1 };
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        Ok(())
    }
    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.db.persist(PersistMode::SyncAll)?)
    }
    fn max_value_bytes(&self) -> u64 {
        u64::from(u32::MAX)
    }
}

struct FjallSession<'e> {
    db: &'e Database,
    keyspaces: &'e [Keyspace],
    sync: Sync,
}

struct FjallBatch<'e> {
    batch: fjall::OwnedWriteBatch,
    keyspaces: &'e [Keyspace],
}

impl Sink for FjallBatch<'_> {
    fn put(&mut self, family: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.batch.insert(&self.keyspaces[family], key, value);
        Ok(())
    }
    fn delete(&mut self, family: usize, key: &[u8]) -> Result<()> {
        self.batch.remove(&self.keyspaces[family], key);
        Ok(())
    }
}

/// One operation without a batch.
impl Sink for &[Keyspace] {
    fn put(&mut self, family: usize, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self[family].insert(key, value)?)
    }
    fn delete(&mut self, family: usize, key: &[u8]) -> Result<()> {
        Ok(self[family].remove(key)?)
    }
}

impl Session for FjallSession<'_> {
    fn write(&mut self, n: usize, fill: &mut dyn FnMut(&mut dyn Sink) -> Result<()>) -> Result<()> {
        if n == 1 && self.sync == Sync::None {
            return fill(&mut self.keyspaces);
        }
        let durability = (self.sync == Sync::Full).then_some(PersistMode::SyncData);
        let mut batched =
            FjallBatch { batch: self.db.batch().durability(durability), keyspaces: self.keyspaces };
        fill(&mut batched)?;
        Ok(batched.batch.commit()?)
    }
    fn get(&mut self, family: usize, key: &[u8], see: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        see(self.keyspaces[family].get(key)?.as_deref());
        Ok(())
    }
    fn with_cursor(
        &mut self,
        family: usize,
        work: &mut dyn FnMut(&mut dyn Cursor) -> Result<()>,
    ) -> Result<()> {
        work(&mut FjallCursor { view: self.db.snapshot(), keyspace: &self.keyspaces[family] })
    }
}

struct FjallCursor<'e> {
    view: fjall::Snapshot,
    keyspace: &'e Keyspace,
}

impl Cursor for FjallCursor<'_> {
    fn scan(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        for entry in self.view.range(self.keyspace, key..) {
            let (key, value) = entry.into_inner()?;
            if !see(&key, &value) {
                break;
            }
        }
        Ok(())
    }
}
