//! Builds the new database: one merge per column family of everything found, as a rewrite, into a
//! database with a new id.

use super::is_damage;
use super::report::{RepairReport, RepairedFamily};
use super::survey::Survey;
use crate::catalog::manifest::{CatalogState, ManifestEdit, NextIdsEdit, write_snapshot_file};
use crate::runtime::DatabaseIdentity;
use crate::settings::FamilySettings;
use perigee_base::limits::LEVELS;
use perigee_base::{
    Counters, Error, FamilyId, FileHeader, FileId, FileKind, FixedClock, KeyComparator, LevelNo,
    OpIndex, Result, RunId, SeqNo, ValueRef,
};
use perigee_env::{Dir, Env};
use perigee_file::log::{BatchOp, LogWriter};
use perigee_file::{BlockCache, KlogOptions, KlogWriter, RangeTombstones, TableCache, filename};
use perigee_tree::read::{MergeCursor, RunCursor, SourceCursor};
use perigee_tree::rewrite::{CreatedFiles, NoPacing, RewriteContext, RewriteInput, run_rewrite};
use perigee_tree::{
    AddedTable, Memtable, Run, SnapshotStripes, Table, TableMeta, Version, VersionEdit, Vlog,
    VlogMeta,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// What was found of a column family.
struct SalvagedFamily {
    name: String,
    settings: FamilySettings,
    tables: Vec<Arc<Table>>,
    ranges: RangeTombstones,
    memtable: Arc<Memtable>,
}

/// The new database under construction.
pub struct RepairBuilder {
    env: Env,
    database: u64,
    /// Tables of the source.
    source_tables: TableCache,
    /// New and interim tables.
    target_tables: TableCache,
    dir: Arc<dyn Dir>,
    ids: AtomicU64,
    families: BTreeMap<FamilyId, SalvagedFamily>,
    vlogs: BTreeMap<FileId, Arc<Vlog>>,
    interim_ids: Vec<FileId>,
}

impl RepairBuilder {
    /// Creates a builder with the column families of the manifest.
    pub fn new(env: &Env, from: Arc<dyn Dir>, to: Arc<dyn Dir>, survey: &Survey) -> RepairBuilder {
        let database = env.rand.next_u64();
        let new_cache = |dir, database| {
            TableCache::new(
                dir,
                database,
                Arc::new(BlockCache::new(0)),
                Arc::new(Counters::default()),
            )
        };
        let mut builder = RepairBuilder {
            env: env.clone(),
            database,
            source_tables: new_cache(from, survey.database.unwrap_or_default()),
            target_tables: new_cache(Arc::clone(&to), database),
            dir: to,
            ids: AtomicU64::new(1),
            families: BTreeMap::new(),
            vlogs: BTreeMap::new(),
            interim_ids: Vec::new(),
        };
        builder.add_family(survey, FamilyId::DEFAULT, None);
        survey.catalog.families.keys().for_each(|id| builder.add_family(survey, *id, None));
        builder
    }

    fn next_file_id(&self) -> FileId {
        FileId(self.ids.fetch_add(1, SeqCst))
    }

    /// Registers a column family. Uses `comparator` if the manifest does not contain the column
    /// family and nothing was added to it yet.
    pub fn add_family(&mut self, survey: &Survey, id: FamilyId, comparator: Option<KeyComparator>) {
        let known_order = survey.catalog.families.contains_key(&id);
        let entry = self.families.entry(id).or_insert_with(|| {
            let (name, settings) = survey.family(id);
            let memtable = Arc::new(Memtable::new(settings.comparator));
            SalvagedFamily {
                name,
                settings,
                tables: Vec::new(),
                ranges: RangeTombstones::default(),
                memtable,
            }
        });
        let fresh = entry.tables.is_empty() && entry.memtable.is_empty();
        if let Some(comparator) =
            comparator.filter(|o| fresh && !known_order && *o != entry.settings.comparator)
        {
            entry.settings.comparator = comparator;
            entry.memtable = Arc::new(Memtable::new(comparator));
        }
    }

    /// Returns the name of a registered column family.
    pub fn family_name(&self, id: FamilyId) -> String {
        self.families.get(&id).map(|f| f.name.clone()).unwrap_or_default()
    }

    fn family(&mut self, id: FamilyId) -> Result<&mut SalvagedFamily> {
        self.families
            .get_mut(&id)
            .ok_or_else(|| Error::internal(format!("column family {id} was not registered")))
    }

    /// Opens the readable value logs.
    pub fn open_vlogs(&mut self, survey: &Survey, report: &mut RepairReport) -> Result<()> {
        for (id, bytes) in &survey.vlogs {
            match self.source_tables.vlog_reader(*id, *bytes) {
                Ok(reader) => {
                    let meta = VlogMeta { id: *id, bytes: *bytes, checksum: 0 };
                    self.vlogs.insert(*id, Arc::new(Vlog { meta, reader }));
                }
                Err(e) if is_damage(&e) => {
                    report.add_lost_file(&filename::file_name(*id, FileKind::Vlog), None, e)
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Checks that a separated value is readable.
    pub fn check_value(&self, value: &ValueRef<'_>) -> Result<()> {
        let Some(p) = vlog_pointer(value) else { return Ok(()) };
        match self.vlogs.get(&p.file) {
            Some(vlog) => vlog.reader.read(&p).map(|_| ()),
            None => Err(Error::corruption("the value log cannot be read")
                .in_file(filename::file_name(p.file, FileKind::Vlog))),
        }
    }

    fn klog_options(&self, family: FamilyId, settings: &FamilySettings) -> KlogOptions {
        KlogOptions {
            database: self.database,
            family,
            comparator: settings.comparator,
            block_bytes: settings.block_bytes,
            compression: settings.compression,
            filter_bits: settings.filter_bits,
        }
    }

    /// Starts an interim table for the readable entries of a damaged one.
    pub fn begin_interim_table(&mut self, family: FamilyId) -> Result<KlogWriter> {
        let id = self.next_file_id();
        let settings = self.family(family)?.settings.clone();
        self.interim_ids.push(id);
        self.target_tables.klog_writer(id, self.klog_options(family, &settings))
    }
    /// Finishes and adds the interim table.
    pub fn add_interim_table(&mut self, family: FamilyId, writer: KlogWriter) -> Result<()> {
        let id =
            *self.interim_ids.last().ok_or_else(|| Error::internal("there is no interim table"))?;
        let summary = writer.finish()?;
        let reader = self.target_tables.klog_reader(id, summary.bytes)?;
        let meta = TableMeta { id, summary: summary.into(), global_seq: None };
        self.family(family)?.tables.push(Arc::new(Table { meta, reader }));
        Ok(())
    }
    /// Adds an intact table of the source.
    pub fn add_table(&mut self, survey: &Survey, id: FileId, family: FamilyId) -> Result<()> {
        let bytes = survey.dir.file_len(&filename::file_name(id, FileKind::Klog))?.unwrap_or(0);
        let reader = self.source_tables.klog_reader(id, bytes)?;
        let summary = reader.read_summary()?.into();
        let stamp = survey.stamp(id);
        stamp.into_iter().for_each(|seq| reader.set_global_seq(seq));
        let meta = TableMeta { id, summary, global_seq: stamp };
        self.family(family)?.tables.push(Arc::new(Table { meta, reader }));
        Ok(())
    }
    /// Returns the comparator of a registered column family.
    pub fn comparator(&self, family: FamilyId) -> KeyComparator {
        self.families.get(&family).map_or(KeyComparator::Bytes, |f| f.settings.comparator)
    }
    /// Adds range tombstones.
    pub fn add_ranges(&mut self, family: FamilyId, ranges: &RangeTombstones) -> Result<()> {
        let found = self.family(family)?;
        found.ranges = found.ranges.merge(found.settings.comparator, ranges);
        Ok(())
    }
    /// Adds operations of a log record.
    pub fn insert_ops(
        &mut self,
        family: FamilyId,
        buffer: &Arc<Vec<u8>>,
        base: SeqNo,
        ops: &[(BatchOp, OpIndex)],
    ) -> Result<()> {
        self.family(family)?.memtable.insert(buffer, base, ops)
    }

    /// Merges everything, and writes log and manifest. The directory is synced; renaming it is left
    /// to the caller.
    pub fn write_database(&mut self, survey: &Survey, report: &mut RepairReport) -> Result<()> {
        let newest = |f: &SalvagedFamily| {
            let tables = f
                .tables
                .iter()
                .map(|t| t.meta.global_seq.unwrap_or_default().max(t.meta.summary.largest_seq));
            let ranges = f.ranges.seq_range().map(|(_, largest)| largest);
            tables.chain(ranges).chain([f.memtable.last_seq()]).max().unwrap_or_default()
        };
        let last = self.families.values().map(newest).max().unwrap_or_default();
        // A merge may assign sequence number 1 to loaded entries that have none.
        let last = last.max(SeqNo(report.sequence)).max(survey.catalog.durable_seq).max(SeqNo(1));
        report.sequence = last.0;
        let mut edit = ManifestEdit {
            durable_seq: Some(last),
            expiry_clock_ms: Some(survey.catalog.expiry_clock_ms),
            ..ManifestEdit::default()
        };
        // Only one version of each key is left.
        edit.oldest_readable = Some(last);
        for (id, found) in &self.families {
            if !survey.is_manifest_trusted
                && found.tables.iter().any(|t| t.reader.operand_count() > 0)
            {
                report.warn(format!(
                    "operands of merges were found in the column family {:?}, but no manifest \
                     that lists the current tables: its merged values may contain operands twice \
                     or lack some",
                    found.name
                ));
            }
            let version = self.merge_family(*id, found, last)?;
            let entries = version.added.iter().map(|t| t.meta.summary.entries).sum();
            report.families.push(RepairedFamily { name: found.name.clone(), entries });
            edit.families.push((*id, found.name.clone(), found.settings.clone()));
            edit.versions.push((*id, version));
        }
        check_slow!(
            edit.versions
                .iter()
                .flat_map(|(_, v)| &v.added)
                .all(|t| !self.interim_ids.contains(&t.meta.id)),
            "the new database has no interim tables",
            self.interim_ids
        );
        for id in std::mem::take(&mut self.interim_ids) {
            self.target_tables.evict(id);
            let _ = self.dir.remove(&filename::file_name(id, FileKind::Klog));
        }
        self.write_log_and_manifest(edit, last)
    }

    fn merge_family(
        &self,
        id: FamilyId,
        found: &SalvagedFamily,
        last: SeqNo,
    ) -> Result<VersionEdit> {
        let comparator = found.settings.comparator;
        let mut version = Version::empty(comparator);
        version.vlogs = self.vlogs.clone();
        let mut sources = vec![SourceCursor::from(found.memtable.cursor())];
        for t in &found.tables {
            let run = Arc::new(Run::new(RunId(0), vec![Arc::clone(t)], comparator));
            sources.push(SourceCursor::Run(RunCursor::new(run, comparator, false)));
        }
        let stripes = SnapshotStripes::new(Vec::new(), SeqNo::MAX);
        let log_ranges = found.memtable.range_tombstones().fragments(&stripes);
        let input = RewriteInput {
            range_tombstones: found.ranges.merge(comparator, &log_ranges),
            source: MergeCursor::new(comparator, sources),
            bottommost: true,
            relocate_vlogs: self.vlogs.keys().copied().collect::<BTreeSet<_>>(),
            zero_seqs: false,
            pass_through_blocks: false,
            rolled_back: Arc::default(),
        };
        let setting = RewriteContext {
            version: &version,
            stripes,
            options: self.klog_options(id, &found.settings),
            separation_threshold: found.settings.value_threshold,
            target_bytes: found.settings.target_file_bytes,
            cuts: Vec::new(),
            verify_outputs: true,
            fill_cache: false,
            table_cache: &self.target_tables,
            next_file_id: &self.ids,
            pacer: &NoPacing,
            // A repair expires nothing.
            now: &FixedClock(0),
            // It is unknown whether an operand was already merged: operands are kept as they are.
            merge_operator: None,
            filter: None,
            bottom_seq: None,
            deferred_sync: None,
        };
        let output = run_rewrite(input, setting, &mut CreatedFiles::default())?;
        check_slow!(
            output.tables.iter().all(|t| t.seq_range().1 <= last),
            "no table of the new database is newer than its log",
            found.name,
            last
        );
        let level = LevelNo((LEVELS - 1) as u8);
        let added_table = |meta: TableMeta| AddedTable { level, run: RunId(0), meta };
        Ok(VersionEdit {
            added: output.tables.into_iter().map(added_table).collect(),
            vlogs_added: output.vlogs,
            flushed_up_to: Some(last),
            ..VersionEdit::default()
        })
    }

    /// Writes an empty log, syncs the directory, then writes the manifest.
    fn write_log_and_manifest(&self, mut edit: ManifestEdit, last: SeqNo) -> Result<()> {
        let (log, manifest) = (self.next_file_id(), self.next_file_id());
        let boot = self.env.fs.boot_id();
        let header = FileHeader {
            kind: FileKind::Wal,
            database: self.database,
            file: log,
            a: last.0 + 1,
            b: boot,
        };
        LogWriter::create(&*self.dir, &filename::file_name(log, FileKind::Wal), &header)?
            .file()
            .sync()?;
        let families = self.families.keys().map(|id| id.0.saturating_add(1)).max().unwrap_or(1);
        edit.next_ids = Some(NextIdsEdit {
            file: Some(FileId(manifest.0 + 1)),
            family: Some(FamilyId(families)),
            run: Some(RunId(1)),
        });
        edit.logs_added = vec![(log, last.plus(1))];
        let mut catalog = CatalogState::default();
        catalog.apply(&edit)?;
        catalog.validate(1)?;
        let identity = DatabaseIdentity { database: self.database, boot };
        write_snapshot_file(&*self.dir, filename::MANIFEST_TMP, identity, manifest, 1, &catalog)?;
        self.dir.rename(filename::MANIFEST_TMP, filename::MANIFEST)?;
        self.dir.sync()
    }
}

/// Returns the location of a separated value.
fn vlog_pointer(value: &ValueRef<'_>) -> Option<perigee_base::VlogPointer> {
    value.vlog_pointer()
}
