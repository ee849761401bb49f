//! One merge per family of everything that was found, by the rewrite road, into a new database with an id of its own.

use super::is_damage;
use super::report::Repaired;
use super::survey::Survey;
use crate::manifest::{Catalog, Edit, Place, write_snapshot_file};
use crate::settings::FamilySettings;
use perigee_base::expiry::Frozen;
use perigee_base::format::{FileHeader, FileKind};
use perigee_base::limits::LEVELS;
use perigee_base::stats::Counters;
use perigee_base::{Error, FamilyId, FileId, KeyOrder, LevelNo, Result, RunId, SeqNo, ValueRef};
use perigee_env::{Dir, Env};
use perigee_file::log::{LogWriter, Op};
use perigee_file::{BlockCache, Fragments, KlogOptions, KlogWriter, Shelf, name};
use perigee_tree::mvcc::Strata;
use perigee_tree::rewrite::{Created, Input, Setting, Unhindered, run};
use perigee_tree::scan::{MergeCursor, RunCursor, Source};
use perigee_tree::version::AddedTable;
use perigee_tree::{Memtable, Run, Table, TableMeta, Version, VersionEdit, Vlog, VlogMeta};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// What was found of a family.
struct Found {
    name: String,
    settings: FamilySettings,
    tables: Vec<Arc<Table>>,
    ranges: Fragments,
    memtable: Arc<Memtable>,
}

/// The new database being made.
pub struct Making {
    env: Env,
    database: u64,
    /// The old tables.
    source: Shelf,
    /// The new ones, and interim ones.
    target: Shelf,
    dir: Arc<dyn Dir>,
    ids: AtomicU64,
    families: BTreeMap<FamilyId, Found>,
    vlogs: BTreeMap<FileId, Arc<Vlog>>,
    interim: Vec<FileId>,
}

impl Making {
    /// An empty one, with the families that the manifest knows.
    pub fn new(env: &Env, from: Arc<dyn Dir>, to: Arc<dyn Dir>, survey: &Survey) -> Making {
        let database = env.rand.next_u64();
        let shelf = |dir, database| {
            Shelf::new(dir, database, Arc::new(BlockCache::new(0)), Arc::new(Counters::default()))
        };
        let mut making = Making {
            env: env.clone(),
            database,
            source: shelf(from, survey.database.unwrap_or_default()),
            target: shelf(Arc::clone(&to), database),
            dir: to,
            ids: AtomicU64::new(1),
            families: BTreeMap::new(),
            vlogs: BTreeMap::new(),
            interim: Vec::new(),
        };
        making.know(survey, FamilyId::DEFAULT, None);
        survey.catalog.families.keys().for_each(|id| making.know(survey, *id, None));
        making
    }

    fn next(&self) -> FileId {
        FileId(self.ids.fetch_add(1, SeqCst))
    }

    /// Makes a family known; its order counts when it is the first that is heard.
    pub fn know(&mut self, survey: &Survey, id: FamilyId, order: Option<KeyOrder>) {
        let known_order = survey.catalog.families.contains_key(&id);
        let entry = self.families.entry(id).or_insert_with(|| {
            let (name, settings) = survey.family(id);
            let memtable = Arc::new(Memtable::new(settings.order));
            Found { name, settings, tables: Vec::new(), ranges: Fragments::default(), memtable }
        });
        let fresh = entry.tables.is_empty() && entry.memtable.is_empty();
        if let Some(order) = order.filter(|o| fresh && !known_order && *o != entry.settings.order) {
            entry.settings.order = order;
            entry.memtable = Arc::new(Memtable::new(order));
        }
    }

    /// The name of a known family.
    pub fn family_name(&self, id: FamilyId) -> String {
        self.families.get(&id).map(|f| f.name.clone()).unwrap_or_default()
    }

    fn family(&mut self, id: FamilyId) -> Result<&mut Found> {
        self.families.get_mut(&id).ok_or_else(|| Error::internal(format!("family {id} was not made known")))
    }

    /// Opens the value logs that can be opened.
    pub fn open_vlogs(&mut self, survey: &Survey, report: &mut Repaired) -> Result<()> {
        for (id, bytes) in &survey.vlogs {
            match self.source.vlog(*id, *bytes) {
                Ok(reader) => {
                    let meta = VlogMeta { id: *id, bytes: *bytes, checksum: 0 };
                    self.vlogs.insert(*id, Arc::new(Vlog { meta, reader }));
                }
                Err(e) if is_damage(&e) => report.lose(&name::file_name(*id, FileKind::Vlog), None, e),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Whether a separated value can be read.
    pub fn check_value(&self, value: &ValueRef<'_>) -> Result<()> {
        let Some(p) = pointer(value) else { return Ok(()) };
        match self.vlogs.get(&p.file) {
            Some(vlog) => vlog.reader.read(&p).map(|_| ()),
            None => Err(Error::corruption("the value log cannot be read")
                .in_file(name::file_name(p.file, FileKind::Vlog))),
        }
    }

    fn options(&self, family: FamilyId, settings: &FamilySettings) -> KlogOptions {
        KlogOptions {
            database: self.database,
            family,
            order: settings.order,
            block_bytes: settings.block_bytes as usize,
            compression: settings.compression,
            filter_bits: settings.filter_bits,
        }
    }

    /// A table for what can be read of a damaged one.
    pub fn interim(&mut self, family: FamilyId) -> Result<KlogWriter> {
        let id = self.next();
        let settings = self.family(family)?.settings.clone();
        self.interim.push(id);
        self.target.klog_writer(id, self.options(family, &settings))
    }
    /// Adds an interim table.
    pub fn add_interim(&mut self, family: FamilyId, writer: KlogWriter) -> Result<()> {
        let id = *self.interim.last().ok_or_else(|| Error::internal("there is no interim table"))?;
        let summary = writer.finish()?;
        let reader = self.target.klog(id, summary.bytes)?;
        let meta = TableMeta { id, summary, stamp: None };
        self.family(family)?.tables.push(Arc::new(Table { meta, reader }));
        Ok(())
    }
    /// Adds a whole table of the source.
    pub fn add_table(&mut self, survey: &Survey, id: FileId, family: FamilyId) -> Result<()> {
        let bytes = survey.dir.file_len(&name::file_name(id, FileKind::Klog))?.unwrap_or(0);
        let reader = self.source.klog(id, bytes)?;
        let summary = reader.summary().clone();
        let stamp = survey.stamp(id);
        stamp.into_iter().for_each(|seq| reader.stamp(seq));
        let meta = TableMeta { id, summary, stamp };
        self.family(family)?.tables.push(Arc::new(Table { meta, reader }));
        Ok(())
    }
    /// The order of a known family.
    pub fn order(&self, family: FamilyId) -> KeyOrder {
        self.families.get(&family).map_or(KeyOrder::Bytes, |f| f.settings.order)
    }
    /// Adds range tombstones.
    pub fn add_ranges(&mut self, family: FamilyId, ranges: &Fragments) -> Result<()> {
        let found = self.family(family)?;
        found.ranges = found.ranges.merge(found.settings.order, ranges);
        Ok(())
    }
    /// Adds operations of a log record.
    pub fn insert(
        &mut self,
        family: FamilyId,
        buffer: &Arc<Vec<u8>>,
        base: u64,
        ops: &[(Op, SeqNo)],
    ) -> Result<()> {
        self.family(family)?.memtable.insert(buffer, base, ops)
    }

    /// Merges, and writes log and manifest. The directory is synced; its name is the caller's.
    pub fn finish(&mut self, survey: &Survey, report: &mut Repaired) -> Result<()> {
        let newest = |f: &Found| {
            let tables =
                f.tables.iter().map(|t| t.meta.stamp.unwrap_or_default().max(t.meta.summary.largest));
            let ranges = f.ranges.seqs().map(|(_, largest)| largest);
            tables.chain(ranges).chain([f.memtable.last_seq()]).max().unwrap_or_default().0
        };
        let last = self.families.values().map(newest).max().unwrap_or(0);
        // A merge may give number 1 to what was loaded under none.
        let last = last.max(report.sequence).max(survey.catalog.durable).max(1);
        report.sequence = last;
        let mut edit = Edit { durable: Some(last), clock: Some(survey.catalog.clock), ..Edit::default() };
        // One version of each key is left.
        edit.floor = Some(SeqNo(last));
        for (id, found) in &self.families {
            if !survey.trusted && found.tables.iter().any(|t| t.reader.operands() > 0) {
                report.warn(format!(
                    "operands of merges were found in the family {:?}, and no manifest that says which tables count: its \
                     merged values may count some twice, or lack some",
                    found.name
                ));
            }
            let version = self.merge(*id, found, SeqNo(last))?;
            let entries = version.added.iter().map(|t| t.meta.summary.entries).sum();
            report.families.push((found.name.clone(), entries));
            edit.families.push((*id, found.name.clone(), found.settings.clone()));
            edit.versions.push((*id, version));
        }
        for id in std::mem::take(&mut self.interim) {
            self.target.forget(id);
            let _ = self.dir.remove(&name::file_name(id, FileKind::Klog));
        }
        self.write_own(edit, last)
    }

    fn merge(&self, id: FamilyId, found: &Found, last: SeqNo) -> Result<VersionEdit> {
        let order = found.settings.order;
        let mut version = Version::empty(order);
        version.vlogs = self.vlogs.clone();
        let mut sources = vec![Source::from(found.memtable.cursor())];
        for t in &found.tables {
            let run = Arc::new(Run::new(RunId(0), vec![Arc::clone(t)], order));
            sources.push(Source::Run(RunCursor::new(run, order, false)));
        }
        let of_log = found.memtable.ranges().with(Fragments::clone).unwrap_or_default();
        let input = Input {
            ranges: found.ranges.merge(order, &of_log),
            source: MergeCursor::new(order, sources),
            bottom: true,
            relocate: self.vlogs.keys().copied().collect::<BTreeSet<_>>(),
            renumber: false,
            whole: false,
            taken_back: Arc::default(),
        };
        let setting = Setting {
            version: &version,
            strata: Strata::new(Vec::new(), SeqNo::MAX),
            options: self.options(id, &found.settings),
            threshold: found.settings.value_threshold as usize,
            target_bytes: found.settings.target_file_bytes,
            cuts: Vec::new(),
            verify: true,
            shelf: &self.target,
            ids: &self.ids,
            pace: &Unhindered,
            // Nothing expires by a repair.
            now: &Frozen(0),
            // Whether an operand was joined already, nobody says: each stays as it is.
            merger: None,
            filter: None,
            settle: None,
            later: None,
        };
        let output = run(input, setting, &mut Created::default())?;
        let level = LevelNo((LEVELS - 1) as u8);
        let place = |meta: TableMeta| AddedTable { level, run: RunId(0), meta };
        Ok(VersionEdit {
            added: output.tables.into_iter().map(place).collect(),
            vlogs_added: output.vlogs,
            flushed: Some(last),
            ..VersionEdit::default()
        })
    }

    /// An empty log, names synced, then the manifest.
    fn write_own(&self, mut edit: Edit, last: u64) -> Result<()> {
        let (log, manifest) = (self.next(), self.next());
        let boot = self.env.fs.boot_id();
        let header =
            FileHeader { kind: FileKind::Wal, database: self.database, file: log, a: last + 1, b: boot };
        LogWriter::create(&*self.dir, &name::file_name(log, FileKind::Wal), &header)?.file().sync()?;
        let families = self.families.keys().map(|id| id.0.saturating_add(1)).max().unwrap_or(1);
        edit.next = Some((manifest.0 + 1, families, 1));
        edit.logs_added = vec![(log, last + 1)];
        let mut catalog = Catalog::default();
        catalog.apply(&edit)?;
        catalog.validate(1)?;
        let place = Place { database: self.database, boot };
        write_snapshot_file(&*self.dir, name::MANIFEST_TMP, place, manifest, 1, &catalog)?;
        self.dir.rename(name::MANIFEST_TMP, name::MANIFEST)?;
        self.dir.sync()
    }
}

/// Where a separated value lies.
fn pointer(value: &ValueRef<'_>) -> Option<perigee_base::key::VlogPointer> {
    value.apart()
}
