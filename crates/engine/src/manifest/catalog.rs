//! The state that the edits add up to. Pure.

use super::edit::{CleanClose, FamilyEvent, ManifestEdit};
use crate::settings::FamilySettings;
use crate::wal::LogSpan;
use perigee_base::{Error, FamilyId, FileId, Result, SeqNo, limits};
use perigee_tree::version::AddedTable;
use perigee_tree::{VersionEdit, VlogMeta};
use std::collections::{BTreeMap, BTreeSet};

/// No honest number comes near; beyond it, arithmetic could overflow.
const ID_MAX: u64 = 1 << 60;

/// One family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogFamily {
    /// Its name.
    pub name: String,
    /// Its settings.
    pub settings: FamilySettings,
    /// Its tables. (In boxes: a map of one, and most families have one, keeps room for eleven.)
    pub tables: BTreeMap<FileId, Box<AddedTable>>,
    /// Its value logs.
    pub vlogs: BTreeMap<FileId, VlogMeta>,
    /// Every operation up to here is in tables.
    pub flushed: SeqNo,
    /// The name of its compaction filter (empty: none).
    pub filter: String,
    /// Its contents begin with this number: older readers would miss what was there before.
    pub contents_start: SeqNo,
}

/// Everything the manifest says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    /// Next file id, family id, run id.
    pub next_ids: (u64, u32, u64),
    /// Families by id.
    pub families: BTreeMap<FamilyId, CatalogFamily>,
    /// Log segments, oldest first, each with its first LSN (0: not known yet, it follows the one
    /// before; never of the first).
    pub logs: Vec<(FileId, u64)>,
    /// Complete segments that stay for readers, oldest first, without a gap between them.
    pub retained: Vec<LogSpan>,
    /// What befell families beside the log, as far back as the log is there.
    pub events: Vec<FamilyEvent>,
    /// Up to here they were too many to remember.
    pub events_discarded: SeqNo,
    /// Readers at this number or a newer one find everything.
    pub oldest_readable: SeqNo,
    /// Named snapshots.
    pub snapshots: BTreeMap<String, SeqNo>,
    /// The log is durable up to here.
    pub durable_seq: u64,
    /// Entries may have expired by this time, in milliseconds (0: none ever did).
    pub expiry_clock_ms: u64,
    /// Set if the last edit was a clean close.
    pub clean_close: Option<CleanClose>,
}

impl Catalog {
    /// Applies an edit, all of it or nothing.
    ///
    /// # Errors
    /// `Corruption` if it does not fit the state.
    pub fn apply(&mut self, e: &ManifestEdit) -> Result<()> {
        self.check(e)?;
        self.apply_checked(e);
        Ok(())
    }

    /// Applies an edit that [`Catalog::check`] found to fit.
    pub fn apply_checked(&mut self, e: &ManifestEdit) {
        self.clean_close = e.clean_close;
        if let Some((file, family, run)) = e.next_ids {
            self.next_ids =
                (self.next_ids.0.max(file), self.next_ids.1.max(family), self.next_ids.2.max(run));
        }
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
        self.logs = self.logs_after(e);
        self.apply_history(e);
        self.durable_seq = self.durable_seq.max(e.durable_seq.unwrap_or(0));
        self.expiry_clock_ms = self.expiry_clock_ms.max(e.expiry_clock_ms.unwrap_or(0));
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

    /// Everything behind this number is told by the log that is still there, with what is retained,
    /// and by the events.
    pub fn oldest_position(&self) -> SeqNo {
        let first = self.logs.first().map(|(_, first)| *first);
        let logged = self.retained.first().map(|s| s.first_lsn).or(first).unwrap_or(0);
        SeqNo(logged).prev().max(self.events_discarded)
    }
    /// Events go with the log before them; the oldest, if there are too many.
    pub fn discard_old_events(&mut self) {
        let excess = self.events.len().saturating_sub(limits::FAMILY_EVENTS_MAX);
        if let Some(last) = excess.checked_sub(1) {
            self.events_discarded = self.events_discarded.max(self.events[last].seq);
        }
        let oldest = self.oldest_position();
        self.events.retain(|e| e.seq > oldest);
    }

    /// Those of the segments whose first LSN is not known here.
    pub fn missing_log_starts(&self, known: &[(FileId, u64)]) -> Vec<(FileId, u64)> {
        known.iter().filter(|(id, _)| self.logs.contains(&(*id, 0))).copied().collect()
    }

    /// The segments after an edit: it may say where one begins that is there already.
    fn logs_after(&self, e: &ManifestEdit) -> Vec<(FileId, u64)> {
        let mut logs: Vec<_> =
            self.logs.iter().filter(|(id, _)| !e.logs_removed.contains(id)).copied().collect();
        for added in &e.logs_added {
            match logs.iter_mut().find(|(id, lsn)| *id == added.0 && *lsn == 0) {
                Some(known) => known.1 = added.1,
                None => logs.push(*added),
            }
        }
        logs
    }

    /// Whether an edit fits the state.
    ///
    /// # Errors
    /// `Corruption` saying why not.
    pub fn check(&self, e: &ManifestEdit) -> Result<()> {
        for id in &e.dropped {
            if !self.families.contains_key(id) {
                return Err(Error::corruption(format!(
                    "an edit drops family {id}, which does not exist"
                )));
            }
        }
        for (id, _) in &e.filters {
            if !self.families.contains_key(id) && !e.families.iter().any(|(new, _, _)| new == id) {
                return Err(Error::corruption(format!(
                    "an edit gives a filter to family {id}, which does not exist"
                )));
            }
        }
        for (id, v) in &e.versions {
            let entry = match self.families.get(id) {
                Some(f) => f,
                None if e.families.iter().any(|(new, _, _)| new == id) => continue,
                None => {
                    return Err(Error::corruption(format!(
                        "an edit changes family {id}, which does not exist"
                    )));
                }
            };
            entry.check(*id, v)?;
        }
        let prefix: BTreeSet<_> =
            self.logs.iter().take(e.logs_removed.len()).map(|(id, _)| *id).collect();
        // A segment that was made ahead and never used is the last.
        let unused = self.logs.last().filter(|(_, lsn)| *lsn == 0).map(|(id, _)| *id);
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

    fn check_history(&self, e: &ManifestEdit) -> Result<()> {
        let wrong = |what: &str| Err(Error::corruption(format!("an edit {what}")));
        let stay = self.retained.iter().filter(|s| !e.retained_removed.contains(&s.id));
        let all: Vec<_> = stay.chain(&e.logs_retained).collect();
        if all.windows(2).any(|w| w[0].end_lsn != w[1].first_lsn)
            || all.iter().any(|s| s.first_lsn >= s.end_lsn)
        {
            return wrong("keeps log segments with a gap between them");
        }
        if e.retained_removed.iter().any(|id| !self.retained.iter().any(|s| s.id == *id)) {
            return wrong("removes a log segment that was not kept");
        }
        if e.snapshots_dropped.iter().any(|name| !self.snapshots.contains_key(name)) {
            return wrong("drops a snapshot that does not exist");
        }
        if e.snapshots.iter().any(|(name, _)| self.snapshots.contains_key(name)) {
            return wrong("makes a snapshot a second time");
        }
        Ok(())
    }

    /// Whether the whole of it makes sense, before anything is built on it.
    ///
    /// # Errors
    /// `Corruption` saying what does not.
    pub fn validate(&self, edits: u64) -> Result<()> {
        let wrong =
            |what: &str| Err(Error::corruption(format!("the manifest makes no sense: {what}")));
        let (files, families, runs) = self.next_ids;
        if files > ID_MAX || runs > ID_MAX || self.durable_seq > ID_MAX || edits > ID_MAX {
            return wrong("a number is too large");
        }
        if self.families.get(&FamilyId::DEFAULT).is_none_or(|f| f.name != "default") {
            return wrong("there is no default family");
        }
        let names: BTreeSet<&str> = self.families.values().map(|f| &f.name[..]).collect();
        if names.len() < self.families.len()
            || names.iter().any(|n| n.is_empty() || n.contains('\0'))
        {
            return wrong("two families share a name, or one has none");
        }
        if self.families.keys().any(|id| id.0 >= families)
            || self.data_files().iter().any(|id| id.0 >= files)
        {
            return wrong("something has a number that was not given out");
        }
        let tables = || self.families.values().flat_map(|f| f.tables.values());
        if tables().any(|t| t.run.0 >= runs.max(1) || t.meta.summary.bytes > ID_MAX) {
            return wrong("a table has a run number that was not given out");
        }
        let references = || tables().flat_map(|t| &t.meta.summary.vlogs);
        if references().any(|(_, bytes)| *bytes > ID_MAX) {
            return wrong("a table references more of a value log than can be");
        }
        let ascending = self.logs.windows(2).all(|w| w[0].0 < w[1].0) && logs_in_order(&self.logs);
        if !ascending || self.logs.iter().any(|(id, lsn)| id.0 >= files || *lsn > ID_MAX) {
            return wrong("the log segments are out of order");
        }
        if self.retained.iter().any(|s| s.id.0 >= files || s.end_lsn.max(s.bytes) > ID_MAX) {
            return wrong("a log segment that is kept has a number that was not given out");
        }
        let begun = self.families.values().map(|f| f.contents_start);
        let named = self.snapshots.values().copied().chain(self.events.iter().map(|e| e.seq));
        if begun
            .chain(named)
            .chain([self.oldest_readable, self.events_discarded])
            .any(|seq| seq.0 > ID_MAX)
        {
            return wrong("a sequence number is too large");
        }
        Ok(())
    }

    /// The edit that says all of it.
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
            next_ids: Some(self.next_ids),
            families: self
                .families
                .iter()
                .map(|(id, f)| (*id, f.name.clone(), f.settings.clone()))
                .collect(),
            filters: filters.map(|(id, f)| (*id, f.filter.clone())).collect(),
            versions: self.families.iter().map(|(id, f)| (*id, version(f))).collect(),
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
            oldest_readable: Some(self.oldest_readable).filter(|floor| floor.0 > 0),
            snapshots: self.snapshots.iter().map(|(name, seq)| (name.clone(), *seq)).collect(),
            durable_seq: Some(self.durable_seq),
            expiry_clock_ms: (self.expiry_clock_ms > 0).then_some(self.expiry_clock_ms),
            ..ManifestEdit::default()
        }
    }

    /// Ids of every table and value log.
    pub fn data_files(&self) -> BTreeSet<FileId> {
        self.families
            .values()
            .flat_map(|f| f.tables.keys().chain(f.vlogs.keys()).copied())
            .collect()
    }
}

/// First LSNs ascend, as far as they are known; that of the first segment is.
fn logs_in_order(logs: &[(FileId, u64)]) -> bool {
    let known = logs.iter().take_while(|(_, lsn)| *lsn > 0).count();
    logs[..known].windows(2).all(|w| w[0].1 <= w[1].1)
        && logs[known..].iter().all(|(_, lsn)| *lsn == 0)
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

    /// Its tables, as an edit adds them.
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
    }

    fn check(&self, id: FamilyId, v: &VersionEdit) -> Result<()> {
        let wrong = |what: &str, file: FileId| {
            Error::corruption(format!("an edit of family {id} {what} file {file}"))
        };
        for (level, file) in &v.removed {
            if self.tables.get(file).is_none_or(|t| t.level != *level) {
                return Err(wrong("removes, from a level where it is not,", *file));
            }
        }
        for t in &v.added {
            if self.tables.contains_key(&t.meta.id)
                && !v.removed.iter().any(|(_, gone)| *gone == t.meta.id)
            {
                return Err(wrong("adds, a second time,", t.meta.id));
            }
        }
        if let Some(file) = v.vlogs_removed.iter().find(|file| !self.vlogs.contains_key(file)) {
            return Err(wrong("removes the unknown", *file));
        }
        if v.flushed_up_to.is_some_and(|seq| seq < self.flushed) {
            return Err(Error::corruption(format!("an edit of family {id} flushes backwards")));
        }
        Ok(())
    }
}
