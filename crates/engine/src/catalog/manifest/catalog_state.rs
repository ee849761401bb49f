//! The catalog: the state that results from all manifest edits. Pure.

use super::edit::{CleanClose, FamilyEvent, ManifestEdit, NextIds, PreparedFiles, PreparedTables};
use crate::catalog::retained_logs::LogSpan;
use crate::limits::ID_MAX;
use crate::settings::FamilySettings;
use perigee_base::{Error, FamilyId, FileId, Result, RunId, SeqNo, limits};
use perigee_tree::{AddedTable, VersionEdit, VlogMeta};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The state of one column family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogFamily {
    /// The name.
    pub name: String,
    /// The settings.
    pub settings: FamilySettings,
    /// The tables. (Boxed: a map node has space for eleven entries, and most column families have
    /// one table.)
    pub tables: BTreeMap<FileId, Box<AddedTable>>,
    /// The value logs.
    pub vlogs: BTreeMap<FileId, VlogMeta>,
    /// Every operation up to this sequence number is in tables.
    pub flushed: SeqNo,
    /// Name of the compaction filter (empty: none).
    pub filter: String,
    /// Sequence number at which the contents start: older readers would miss previous contents.
    pub contents_start: SeqNo,
}

/// The state described by the manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CatalogState {
    /// The identifiers that are allocated next.
    pub next_ids: NextIds,
    /// Column families by id.
    pub families: BTreeMap<FamilyId, CatalogFamily>,
    /// Prepared transactions whose writes are in tables, by global identifier.
    pub prepared: BTreeMap<Vec<u8>, Arc<PreparedTables>>,
    /// Log segments, oldest first, each with its first LSN (0: not known yet, it follows the
    /// previous segment; never for the first).
    pub logs: Vec<(FileId, SeqNo)>,
    /// Complete segments retained for readers, oldest first, without gaps.
    pub retained: Vec<LogSpan>,
    /// Column-family events, as far back as the log is available.
    pub events: Vec<FamilyEvent>,
    /// Column-family events up to this sequence number were discarded.
    pub events_discarded: SeqNo,
    /// Reads at this sequence number or later find complete data.
    pub oldest_readable: SeqNo,
    /// Named snapshots.
    pub snapshots: BTreeMap<String, SeqNo>,
    /// The log is durable up to this LSN.
    pub durable_seq: SeqNo,
    /// Entries may have expired up to this time, in milliseconds since the Unix epoch (0: no entry
    /// ever expired).
    pub expiry_clock_ms: u64,
    /// Set if the last edit was a clean close.
    pub clean_close: Option<CleanClose>,
}

impl CatalogState {
    /// Applies an edit completely or not at all.
    ///
    /// # Errors
    /// `Corruption` if it does not fit the catalog.
    pub fn apply(&mut self, e: &ManifestEdit) -> Result<()> {
        self.check(e)?;
        self.apply_checked(e);
        Ok(())
    }

    /// Applies an edit that has passed [`CatalogState::check`].
    pub fn apply_checked(&mut self, e: &ManifestEdit) {
        self.clean_close = e.clean_close;
        self.next_ids.raise(e.next_ids.unwrap_or_default());
        for (id, name, settings) in &e.families {
            match self.families.get_mut(id) {
                Some(f) => (f.name, f.settings) = (name.clone(), settings.clone()),
                None => {
                    self.families.insert(*id, CatalogFamily::new(name.clone(), settings.clone()));
                }
            }
        }
        for (id, name) in &e.filters {
            if let Some(f) = self.families.get_mut(id) {
                f.filter = name.clone();
            }
        }
        for id in &e.dropped {
            self.families.remove(id);
        }
        for (id, v) in &e.versions {
            if let Some(f) = self.families.get_mut(id) {
                f.apply(v);
            }
        }
        e.decided.iter().for_each(|gid| drop(self.prepared.remove(gid)));
        self.prepared.extend(e.prepared.iter().map(|p| (p.gid.clone(), Arc::clone(p))));
        check_slow!(
            self.prepared.iter().all(|(gid, p)| *gid == p.gid),
            "prepared transactions are listed by their identifiers",
            self.prepared.len()
        );
        self.logs = self.logs_after(e);
        self.apply_history(e);
        self.durable_seq = self.durable_seq.max(e.durable_seq.unwrap_or_default());
        self.expiry_clock_ms = self.expiry_clock_ms.max(e.expiry_clock_ms.unwrap_or(0));
        check_slow!(logs_in_order(&self.logs), "log segments are in order", self.logs);
        check_slow!(
            self.retained.windows(2).all(|w| w[0].end_lsn == w[1].first_lsn),
            "retained log segments have no gaps",
            self.retained
        );
    }

    fn apply_history(&mut self, e: &ManifestEdit) {
        for (id, seq) in &e.contents_start {
            if let Some(f) = self.families.get_mut(id) {
                f.contents_start = *seq;
            }
        }
        self.oldest_readable = self.oldest_readable.max(e.oldest_readable.unwrap_or_default());
        self.snapshots.retain(|name, _| !e.snapshots_dropped.contains(name));
        self.snapshots.extend(e.snapshots.iter().cloned());
        self.retained.retain(|s| !e.retained_removed.contains(&s.id));
        self.retained.extend(&e.logs_retained);
        self.events.extend(e.events.iter().cloned());
        self.events_discarded = self.events_discarded.max(e.events_discarded.unwrap_or_default());
        self.discard_old_events();
    }

    /// Returns the sequence number after which the retained log and the events describe every
    /// change.
    pub fn oldest_position(&self) -> SeqNo {
        let first = self.logs.first().map(|(_, first)| *first);
        let logged = self.retained.first().map(|s| s.first_lsn).or(first).unwrap_or_default();
        logged.prev().max(self.events_discarded)
    }
    /// Discards events that are older than the log, and the oldest ones if there are too many.
    pub fn discard_old_events(&mut self) {
        let excess = self.events.len().saturating_sub(limits::FAMILY_EVENTS_MAX);
        if let Some(last) = excess.checked_sub(1) {
            self.events_discarded = self.events_discarded.max(self.events[last].seq);
        }
        let oldest = self.oldest_position();
        self.events.retain(|e| e.seq > oldest);
        check!(
            self.events.len() <= limits::FAMILY_EVENTS_MAX,
            "the manifest keeps a bounded number of events",
            self.events.len()
        );
    }

    /// Returns those of the `known` segments whose first LSN is missing here.
    pub fn missing_log_starts(&self, known: &[(FileId, SeqNo)]) -> Vec<(FileId, SeqNo)> {
        known.iter().filter(|(id, _)| self.logs.contains(&(*id, SeqNo::ZERO))).copied().collect()
    }

    /// Returns the segments after an edit, which may also set the first LSN of an existing segment.
    fn logs_after(&self, e: &ManifestEdit) -> Vec<(FileId, SeqNo)> {
        let mut logs: Vec<_> =
            self.logs.iter().filter(|(id, _)| !e.logs_removed.contains(id)).copied().collect();
        for added in &e.logs_added {
            match logs.iter_mut().find(|(id, lsn)| *id == added.0 && *lsn == SeqNo::ZERO) {
                Some(known) => known.1 = added.1,
                None => logs.push(*added),
            }
        }
        logs
    }

    /// Checks that an edit fits the catalog.
    ///
    /// # Errors
    /// `Corruption` with the reason if it does not.
    pub fn check(&self, e: &ManifestEdit) -> Result<()> {
        for id in &e.dropped {
            if !self.families.contains_key(id) {
                return Err(Error::corruption(format!(
                    "an edit drops column family {id}, which does not exist"
                )));
            }
        }
        for (id, _) in &e.filters {
            if !self.families.contains_key(id) && !e.families.iter().any(|(new, _, _)| new == id) {
                return Err(Error::corruption(format!(
                    "an edit sets the filter of column family {id}, which does not exist"
                )));
            }
        }
        for (id, v) in &e.versions {
            let entry = match self.families.get(id) {
                Some(f) => f,
                None if e.families.iter().any(|(new, _, _)| new == id) => continue,
                None => {
                    return Err(Error::corruption(format!(
                        "an edit changes column family {id}, which does not exist"
                    )));
                }
            };
            entry.check(*id, v)?;
        }
        self.check_prepared(e)?;
        let prefix: BTreeSet<_> =
            self.logs.iter().take(e.logs_removed.len()).map(|(id, _)| *id).collect();
        // An unused spare segment is the last one.
        let unused = self.logs.last().filter(|(_, lsn)| *lsn == SeqNo::ZERO).map(|(id, _)| *id);
        if e.logs_removed.iter().any(|id| !prefix.contains(id) && Some(*id) != unused) {
            return Err(Error::corruption(
                "an edit removes a log segment that is not among the oldest",
            ));
        }
        let logs = self.logs_after(e);
        if !logs_in_order(&logs) {
            return Err(Error::corruption(
                "an edit adds a log segment that starts before its predecessor",
            ));
        }
        self.check_history(e)
    }

    fn check_prepared(&self, e: &ManifestEdit) -> Result<()> {
        let invalid = |what: &str| Err(Error::corruption(format!("an edit {what}")));
        if e.decided.iter().any(|gid| !self.prepared.contains_key(gid)) {
            return invalid("decides a transaction that is not prepared");
        }
        let undecided = self.prepared.values().filter(|p| !e.decided.contains(&p.gid));
        let mut gids = BTreeSet::new();
        for p in undecided.chain(&e.prepared) {
            if !gids.insert(&p.gid) {
                return invalid("prepares a transaction that is already prepared");
            }
            if p.files.iter().any(|f| e.dropped.contains(&f.family)) {
                return invalid("drops a column family that a prepared transaction writes to");
            }
        }
        let is_new = |f: &PreparedFiles| match self.families.get(&f.family) {
            Some(entry) => !f.ids().any(|id| entry.contains_file(id)),
            None => e.families.iter().any(|(new, _, _)| *new == f.family),
        };
        if !e.prepared.iter().flat_map(|p| &p.files).all(is_new) {
            return invalid(
                "prepares a transaction with a file or column family that does not fit",
            );
        }
        Ok(())
    }

    fn check_history(&self, e: &ManifestEdit) -> Result<()> {
        let invalid = |what: &str| Err(Error::corruption(format!("an edit {what}")));
        let stay = self.retained.iter().filter(|s| !e.retained_removed.contains(&s.id));
        let all: Vec<_> = stay.chain(&e.logs_retained).collect();
        if all.windows(2).any(|w| w[0].end_lsn != w[1].first_lsn)
            || all.iter().any(|s| s.first_lsn >= s.end_lsn)
        {
            return invalid("retains log segments with a gap between them");
        }
        if e.retained_removed.iter().any(|id| !self.retained.iter().any(|s| s.id == *id)) {
            return invalid("removes a log segment that was not retained");
        }
        if e.snapshots_dropped.iter().any(|name| !self.snapshots.contains_key(name)) {
            return invalid("drops a snapshot that does not exist");
        }
        if e.snapshots.iter().any(|(name, _)| self.snapshots.contains_key(name)) {
            return invalid("creates a snapshot that already exists");
        }
        Ok(())
    }

    /// Checks the consistency of the whole catalog before it is used.
    ///
    /// # Errors
    /// `Corruption` with the reason.
    pub fn validate(&self, edits: u64) -> Result<()> {
        let invalid =
            |what: &str| Err(Error::corruption(format!("the manifest is inconsistent: {what}")));
        let NextIds { file: next_file, family: next_family, run: next_run } = self.next_ids;
        if next_file.0 > ID_MAX
            || next_run.0 > ID_MAX
            || self.durable_seq.0 > ID_MAX
            || edits > ID_MAX
        {
            return invalid("a number is too large");
        }
        if self.families.get(&FamilyId::DEFAULT).is_none_or(|f| f.name != "default") {
            return invalid("there is no default column family");
        }
        let names: BTreeSet<&str> = self.families.values().map(|f| &f.name[..]).collect();
        if names.len() < self.families.len()
            || names.iter().any(|n| n.is_empty() || n.contains('\0'))
        {
            return invalid("two column families share a name, or one has no valid name");
        }
        if self.families.keys().any(|id| *id >= next_family)
            || self.data_files().iter().any(|id| *id >= next_file)
        {
            return invalid("a column family or file has an id that was never allocated");
        }
        let tables = || self.families.values().flat_map(|f| f.tables.values());
        if tables().any(|t| t.run >= next_run.max(RunId(1)) || t.meta.summary.bytes > ID_MAX) {
            return invalid("a table has a run id that was never allocated");
        }
        if self.prepared_files().any(|f| !self.families.contains_key(&f.family)) {
            return invalid("a prepared transaction writes to a column family that does not exist");
        }
        let mut prepared_tables = self.prepared_files().flat_map(|f| &f.tables);
        if prepared_tables.any(|t| t.summary.bytes > ID_MAX) {
            return invalid("a table of a prepared transaction is too large");
        }
        let references = || tables().flat_map(|t| &t.meta.summary.vlogs);
        if references().any(|(_, bytes)| *bytes > ID_MAX) {
            return invalid("a table references too many bytes of a value log");
        }
        let ascending = self.logs.windows(2).all(|w| w[0].0 < w[1].0) && logs_in_order(&self.logs);
        if !ascending || self.logs.iter().any(|(id, lsn)| *id >= next_file || lsn.0 > ID_MAX) {
            return invalid("the log segments are out of order");
        }
        if self.retained.iter().any(|s| s.id >= next_file || s.end_lsn.0.max(s.bytes) > ID_MAX) {
            return invalid("a retained log segment has an id that was never allocated");
        }
        let begun = self.families.values().map(|f| f.contents_start);
        let named = self.snapshots.values().copied().chain(self.events.iter().map(|e| e.seq));
        if begun
            .chain(named)
            .chain([self.oldest_readable, self.events_discarded])
            .any(|seq| seq.0 > ID_MAX)
        {
            return invalid("a sequence number is too large");
        }
        Ok(())
    }

    /// Returns an edit that contains the whole catalog.
    pub fn to_edit(&self) -> ManifestEdit {
        let version = |f: &CatalogFamily| VersionEdit {
            added: f.added_tables(),
            vlogs_added: f.vlogs.values().cloned().collect(),
            flushed_up_to: Some(f.flushed),
            ..VersionEdit::default()
        };
        let filters = self.families.iter().filter(|(_, f)| !f.filter.is_empty());
        ManifestEdit {
            snapshot: true,
            next_ids: Some(self.next_ids.into()),
            families: self
                .families
                .iter()
                .map(|(id, f)| (*id, f.name.clone(), f.settings.clone()))
                .collect(),
            filters: filters.map(|(id, f)| (*id, f.filter.clone())).collect(),
            versions: self.families.iter().map(|(id, f)| (*id, version(f))).collect(),
            prepared: self.prepared.values().cloned().collect(),
            logs_added: self.logs.clone(),
            logs_retained: self.retained.clone(),
            events: self.events.clone(),
            events_discarded: Some(self.events_discarded).filter(|seq| seq.0 > 0),
            contents_start: self
                .families
                .iter()
                .map(|(id, f)| (*id, f.contents_start))
                .filter(|(_, s)| s.0 > 0)
                .collect(),
            oldest_readable: Some(self.oldest_readable).filter(|seq| seq.0 > 0),
            snapshots: self.snapshots.iter().map(|(name, seq)| (name.clone(), *seq)).collect(),
            durable_seq: Some(self.durable_seq),
            expiry_clock_ms: (self.expiry_clock_ms > 0).then_some(self.expiry_clock_ms),
            ..ManifestEdit::default()
        }
    }

    /// Returns the ids of all tables and value logs, including those of prepared transactions.
    pub fn data_files(&self) -> BTreeSet<FileId> {
        let prepared = self.prepared_files().flat_map(PreparedFiles::ids);
        self.families
            .values()
            .flat_map(|f| f.tables.keys().chain(f.vlogs.keys()).copied())
            .chain(prepared)
            .collect()
    }
    /// Returns the files of prepared transactions.
    pub fn prepared_files(&self) -> impl Iterator<Item = &PreparedFiles> {
        self.prepared.values().flat_map(|p| &p.files)
    }
}

/// Returns true if the known first LSNs ascend and precede the unknown ones; that of the first
/// segment must be known.
fn logs_in_order(logs: &[(FileId, SeqNo)]) -> bool {
    let known = logs.iter().take_while(|(_, lsn)| *lsn > SeqNo::ZERO).count();
    logs[..known].windows(2).all(|w| w[0].1 <= w[1].1)
        && logs[known..].iter().all(|(_, lsn)| *lsn == SeqNo::ZERO)
        && (known > 0 || logs.is_empty())
}

impl CatalogFamily {
    fn new(name: String, settings: FamilySettings) -> CatalogFamily {
        CatalogFamily {
            name,
            settings,
            tables: BTreeMap::new(),
            vlogs: BTreeMap::new(),
            flushed: SeqNo::ZERO,
            filter: String::new(),
            contents_start: SeqNo::ZERO,
        }
    }

    /// Returns true if this is one of its tables or value logs.
    fn contains_file(&self, id: FileId) -> bool {
        self.tables.contains_key(&id) || self.vlogs.contains_key(&id)
    }
    /// Returns the tables in the form in which an edit adds them.
    pub fn added_tables(&self) -> Vec<AddedTable> {
        self.tables.values().map(|t| (**t).clone()).collect()
    }

    fn apply(&mut self, v: &VersionEdit) {
        for (_, id) in &v.removed {
            self.tables.remove(id);
        }
        self.tables.extend(v.added.iter().map(|t| (t.meta.id, Box::new(t.clone()))));
        for id in &v.vlogs_removed {
            self.vlogs.remove(id);
        }
        self.vlogs.extend(v.vlogs_added.iter().map(|l| (l.id, l.clone())));
        self.flushed = self.flushed.max(v.flushed_up_to.unwrap_or(SeqNo::ZERO));
        check_slow!(
            v.removed.iter().all(|(_, id)| {
                v.added.iter().any(|t| t.meta.id == *id) || !self.tables.contains_key(id)
            }),
            "a removed table is gone, or was moved",
            self.name
        );
    }

    fn check(&self, id: FamilyId, v: &VersionEdit) -> Result<()> {
        let invalid = |verb: &str, file: FileId, problem: &str| {
            Error::corruption(format!("an edit of column family {id} {verb} file {file}{problem}"))
        };
        for (level, file) in &v.removed {
            if self.tables.get(file).is_none_or(|t| t.level != *level) {
                return Err(invalid("removes", *file, " from the wrong level"));
            }
        }
        for t in &v.added {
            if self.tables.contains_key(&t.meta.id)
                && !v.removed.iter().any(|(_, gone)| *gone == t.meta.id)
            {
                return Err(invalid("adds", t.meta.id, " a second time"));
            }
        }
        if let Some(file) = v.vlogs_removed.iter().find(|file| !self.vlogs.contains_key(file)) {
            return Err(invalid("removes", *file, ", which does not exist"));
        }
        if v.flushed_up_to.is_some_and(|seq| seq < self.flushed) {
            return Err(Error::corruption(format!(
                "an edit of column family {id} lowers the flushed sequence number"
            )));
        }
        Ok(())
    }
}
