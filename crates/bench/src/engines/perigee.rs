//! Adapter for Perigee, through its public API.

use crate::engine::{
    Cursor, EffectiveOptions, Engine, Failure, Result, Session, Sink, TtlSupport, TxnConflict,
    TxnOps,
};
use crate::settings::{Compression, Level, Settings, Sync, human_bytes};
use perigee::load::BulkLoad;
use perigee::{Db, Durability, ErrorKind, Family, FamilyOptions, Isolation, LockMode, Options};
use perigee::{Snapshot, Txn, TxnOptions, WriteBatch};
use std::path::Path;
use std::time::Duration;

/// Smallest accepted memory budget.
const MEMORY_BUDGET_MIN: u64 = 8 << 20;

struct Perigee {
    db: Db,
    families: Vec<Family>,
    ttl: Option<Duration>,
    level: Level,
    options: EffectiveOptions,
}

pub fn open(dir: &Path, settings: &Settings) -> Result<Box<dyn Engine>> {
    let family = FamilyOptions::new().memtable_bytes(settings.memtable_per_family()).compression(
        match settings.compression {
            Compression::None => perigee::Compression::None,
            Compression::Lz4 => perigee::Compression::Lz4,
        },
    );
    let mut options = Options::new()
        .block_cache_bytes(settings.cache)
        .durability(match settings.sync {
            Sync::None => Durability::None,
            Sync::Full => Durability::Full,
        })
        .default_family(family.clone());
    // Inside a cgroup the engine gets half of the memory; the other half is left to the page cache
    // and to this tool.
    let budget = settings.memory.map(|m| (m / 2).max(MEMORY_BUDGET_MIN));
    if let Some(bytes) = budget {
        options = options.memory_budget(bytes);
    }
    let effective = [
        ("durability", format!("{:?}", options.durability)),
        ("memtable", human_bytes(settings.memtable_per_family())),
        ("cache", format!("{} of blocks, and the page cache", human_bytes(settings.cache))),
        (
            "memory budget",
            budget.map_or("a quarter of the memory (the default)".into(), human_bytes),
        ),
        ("bulk load", "bulk_load: straight into tables, synced".into()),
        ("compression", format!("{:?}", settings.compression)),
        ("filter", "10 bits per key".into()),
        ("outputs of flush and compaction", "re-read and verified (the default)".into()),
        ("checksums", "every block, on every read from disk".into()),
    ];
    let effective = effective.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
    let db = Db::open(dir, options)?;
    let mut families = vec![db.default_family()];
    for f in 1..settings.families() {
        let name = format!("f{f}");
        families.push(match db.family(&name) {
            Ok(there) => there,
            Err(_) => db.create_family(&name, family.clone())?,
        });
    }
    let ttl = settings.shape.ttl.map(Duration::from_secs);
    Ok(Box::new(Perigee { families, ttl, level: settings.level, db, options: effective }))
}

impl Engine for Perigee {
    fn version(&self) -> String {
        super::locked_version("perigee")
    }
    fn effective_options(&self) -> EffectiveOptions {
        self.options.clone()
    }
    fn with_session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()> {
        work(&mut PerigeeSession {
            db: &self.db,
            families: &self.families,
            ttl: self.ttl,
            level: self.level,
            view: None,
        })
    }
    fn wait_idle(&self) -> Result<()> {
        self.db.admin().flush()?;
        Ok(self.db.admin().wait_idle()?)
    }
    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.db.close()?)
    }
    fn ttl_support(&self) -> TtlSupport {
        if self.ttl.is_some() { TtlSupport::OnRead } else { TtlSupport::None }
    }
    fn supports_level(&self, _level: Level) -> bool {
        true
    }
    fn max_value_bytes(&self) -> u64 {
        1 << 30
    }
}

struct PerigeeSession<'e> {
    db: &'e Db,
    families: &'e [Family],
    ttl: Option<Duration>,
    level: Level,
    view: Option<Snapshot>,
}

struct PerigeeBulkSink(BulkLoad);

impl Sink for PerigeeBulkSink {
    fn put(&mut self, _family: usize, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.0.put(key, value)?)
    }
    fn delete(&mut self, _family: usize, _key: &[u8]) -> Result<()> {
        Err("a bulk load only puts".into())
    }
}

struct PerigeeBatch<'e> {
    batch: WriteBatch,
    families: &'e [Family],
    ttl: Option<Duration>,
}

impl Sink for PerigeeBatch<'_> {
    fn put(&mut self, family: usize, key: &[u8], value: &[u8]) -> Result<()> {
        let family = &self.families[family];
        match self.ttl {
            Some(ttl) => Ok(self.batch.put_with_ttl(family, key, value, ttl)?),
            None => Ok(self.batch.put(family, key, value)?),
        }
    }
    fn delete(&mut self, family: usize, key: &[u8]) -> Result<()> {
        Ok(self.batch.delete(&self.families[family], key)?)
    }
}

/// One operation without a batch.
impl Sink for &[Family] {
    fn put(&mut self, family: usize, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self[family].put(key, value)?)
    }
    fn delete(&mut self, family: usize, key: &[u8]) -> Result<()> {
        Ok(self[family].delete(key)?)
    }
}

impl Session for PerigeeSession<'_> {
    fn write(&mut self, n: usize, fill: &mut dyn FnMut(&mut dyn Sink) -> Result<()>) -> Result<()> {
        if n == 1 && self.ttl.is_none() {
            return fill(&mut self.families);
        }
        let mut batched =
            PerigeeBatch { batch: WriteBatch::new(), families: self.families, ttl: self.ttl };
        fill(&mut batched)?;
        self.db.write(batched.batch)?;
        Ok(())
    }
    fn get(&mut self, family: usize, key: &[u8], see: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        let found = match &self.view {
            Some(view) => view.get_pinned(&self.families[family], key)?,
            None => self.families[family].get_pinned(key)?,
        };
        see(found.as_deref());
        Ok(())
    }
    fn bulk_load(
        &mut self,
        n: u64,
        put: &mut dyn FnMut(u64, &mut dyn Sink) -> Result<()>,
    ) -> Result<()> {
        let mut load = PerigeeBulkSink(self.families[0].bulk_load()?);
        (0..n).try_for_each(|i| put(i, &mut load))?;
        load.0.finish()?;
        Ok(())
    }
    fn set_shared_view(&mut self, begin: bool) -> Result<bool> {
        self.view = if begin { Some(self.db.snapshot()?) } else { None };
        Ok(true)
    }
    fn with_cursor(
        &mut self,
        family: usize,
        work: &mut dyn FnMut(&mut dyn Cursor) -> Result<()>,
    ) -> Result<()> {
        work(&mut PerigeeCursor(self.families[family].cursor()?))
    }
    fn run_txn(&mut self, work: &mut dyn FnMut(&mut dyn TxnOps) -> Result<()>) -> Result<()> {
        let options = match self.level {
            Level::Snapshot => TxnOptions::new(),
            Level::Serializable => TxnOptions::new().isolation(Isolation::Serializable),
            Level::Locks => TxnOptions::new().isolation(Isolation::ReadCommitted).pessimistic(true),
        };
        let txn = self.db.begin(options)?;
        work(&mut PerigeeTxn {
            txn: &txn,
            families: self.families,
            locks: self.level == Level::Locks,
        })?;
        txn.commit().map(|_| ()).map_err(map_conflict)
    }
}

/// Maps a conflict, a deadlock or a lock timeout to [`TxnConflict`].
fn map_conflict(e: perigee::Error) -> Failure {
    match e.kind() {
        ErrorKind::Conflict | ErrorKind::Busy => Box::new(TxnConflict),
        _ => e.into(),
    }
}

struct PerigeeTxn<'t> {
    txn: &'t Txn,
    families: &'t [Family],
    locks: bool,
}

impl TxnOps for PerigeeTxn<'_> {
    fn get(
        &mut self,
        family: usize,
        key: &[u8],
        change: bool,
        see: &mut dyn FnMut(Option<&[u8]>),
    ) -> Result<()> {
        let family = &self.families[family];
        if change && self.locks {
            let found =
                self.txn.get_for_update(family, key, LockMode::Exclusive).map_err(map_conflict)?;
            see(found.as_deref());
        } else {
            see(self.txn.get_pinned(family, key).map_err(map_conflict)?.as_deref());
        }
        Ok(())
    }
    fn put(&mut self, family: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.txn.put(&self.families[family], key, value).map_err(map_conflict)
    }
}

struct PerigeeCursor(perigee::Cursor);

impl Cursor for PerigeeCursor {
    fn scan(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.0.seek(key)?;
        while self.0.is_valid() {
            let (key, value) = self.0.entry()?;
            if !see(key, value) {
                break;
            }
            self.0.next()?;
        }
        Ok(())
    }
}
