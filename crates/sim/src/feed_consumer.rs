//! A consumer of the feed of changes: replays it into maps of its own, which must equal the
//! database, over any number of lives of it. Uses the public API only.

use crate::comparators::{self, OrderedKey};
use crate::history::Bytes;
use crate::ledger::Contents;
use crate::settings::Settings;
use perigee::{
    Change, ChangeKind, Commit, Db, ErrorKind, Family, FamilyChange, FamilyChangeKind,
    KeyComparator, MergeRule, Result, Snapshot,
};
use std::collections::BTreeMap;
use std::ops::Bound;

/// A value with the time of its end, and the operands that were merged into it, which outlive it.
#[derive(Clone, Debug, Default)]
struct ReplicaValue {
    put: Option<(Bytes, u64)>,
    operands: Option<Bytes>,
}

impl ReplicaValue {
    fn visible_at(&self, now_ms: u64, separator: &str) -> Option<Bytes> {
        let put =
            self.put.as_ref().filter(|(_, until)| *until > now_ms).map(|(value, _)| value.clone());
        match (put, &self.operands) {
            (Some(put), Some(operands)) => Some([&put, separator.as_bytes(), operands].concat()),
            (put, operands) => put.or(operands.clone()),
        }
    }
}

/// A family as it was told.
#[derive(Clone, Debug, Default)]
struct FamilyReplica {
    name: String,
    map: BTreeMap<OrderedKey, ReplicaValue>,
    /// It was read from the database: everything up to this number is in it.
    copied_to_seq: u64,
    /// Loaded entries are missing: it was gone when the load was told. A clone has them.
    incomplete: bool,
    /// Read so, it does not say when which part of a merged value ends.
    expiry_uncertain: bool,
}

/// So often in a row does a copy begin anew because the log has gone meanwhile.
const COPIES_MAX: u32 = 30;

/// The consumer.
#[derive(Clone, Debug, Default)]
pub struct FeedConsumer {
    families: BTreeMap<u32, FamilyReplica>,
    /// Everything up to here was told.
    position: u64,
    started: bool,
    /// What the merge operator puts between operands.
    separator: String,
    /// Commits that were told.
    pub commits: u64,
    /// How often it had to begin anew, because the log did not reach back.
    pub copies: u64,
}

impl FeedConsumer {
    /// Follows the database, which has these settings, to the end of what is durable.
    pub fn consume(&mut self, db: &Db, settings: &Settings) -> std::result::Result<(), String> {
        let (order, kept) = (settings.family.order, settings.retains_log());
        if let Some(MergeRule::Append(separator)) = &settings.family.merge_operator {
            self.separator.clone_from(separator);
        }
        if !self.started {
            self.families
                .insert(0, FamilyReplica { name: "default".into(), ..FamilyReplica::default() });
            self.started = true;
        }
        let mut copies = 0;
        let mut changes = loop {
            match db.changes(self.position) {
                Ok(changes) => break changes,
                // Flushes may be faster than a copy, now and then.
                Err(e) if e.kind() == ErrorKind::NotFound && !kept && copies < COPIES_MAX => {
                    self.copy_all(db, order).map_err(|e| format!("copying anew: {e}"))?;
                    copies += 1;
                }
                Err(e) => {
                    return Err(format!("the feed does not go on from {}: {e}", self.position));
                }
            }
        };
        loop {
            let change = match changes.next_change() {
                Ok(Some(change)) => change,
                Ok(None) => break,
                Err(e) if e.kind() == ErrorKind::NotFound && !kept => {
                    return self.consume(db, settings);
                }
                Err(e) => return Err(format!("the feed behind {}: {e}", self.position)),
            };
            if change.sequence() <= self.position {
                return Err(format!("{change:?} was told behind {}", self.position));
            }
            if changes.position() != change.sequence() {
                return Err(format!("the position after {change:?} is {}", changes.position()));
            }
            match &change {
                Change::Commit(commit) => self.apply_commit(commit, order)?,
                Change::Family(change) => self
                    .apply_family_change(db, change, order)
                    .map_err(|e| format!("{change:?}: {e}"))?,
                other => return Err(format!("what is {other:?}?")),
            }
            self.position = changes.position();
            // A consumer may be restarted after every change: the next feed must go on where this
            // one stopped.
            changes = match db.changes(self.position) {
                Ok(changes) => changes,
                Err(e) if e.kind() == ErrorKind::NotFound && !kept => {
                    return self.consume(db, settings);
                }
                Err(e) => {
                    return Err(format!("the feed is not reopened at {}: {e}", self.position));
                }
            };
        }
        self.position = changes.position();
        Ok(())
    }

    /// Begins anew with what is there.
    fn copy_all(&mut self, db: &Db, order: KeyComparator) -> Result<()> {
        let snapshot = durable_snapshot(db)?;
        self.families.clear();
        for name in db.families() {
            let Ok(family) = db.family(&name) else { continue };
            self.families.insert(family.id(), FamilyReplica { name, ..FamilyReplica::default() });
            self.copy_family(&family, &snapshot, order)?;
        }
        // What came between is told again.
        self.position = snapshot.sequence();
        self.copies += 1;
        Ok(())
    }

    /// Reads a family, unless it was cleared or dropped since: that will be told.
    fn copy_family(
        &mut self,
        family: &Family,
        then: &Snapshot,
        order: KeyComparator,
    ) -> Result<()> {
        let mut map = BTreeMap::new();
        match then.cursor(family) {
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            cursor => {
                let mut cursor = cursor?;
                cursor.seek_to_first()?;
                while cursor.valid() {
                    let until = cursor.expires_at_ms().unwrap_or(u64::MAX);
                    let put = Some((cursor.value()?.to_vec(), until));
                    map.insert(
                        OrderedKey::new(order, cursor.key()),
                        ReplicaValue { put, operands: None },
                    );
                    cursor.next()?;
                }
            }
        }
        if let Some(told) = self.families.get_mut(&family.id()) {
            (told.map, told.copied_to_seq, told.incomplete) = (map, then.sequence(), false);
            told.expiry_uncertain = !self.separator.is_empty();
        }
        Ok(())
    }

    fn apply_commit(
        &mut self,
        commit: &Commit,
        order: KeyComparator,
    ) -> std::result::Result<(), String> {
        self.commits += 1;
        for op in commit.operations() {
            let Some(told) = self.families.get_mut(&op.family) else {
                return Err(format!(
                    "family {} was never told, and written to by {op:?}",
                    op.family
                ));
            };
            if op.sequence <= told.copied_to_seq {
                continue;
            }
            if told.name != op.family_name {
                return Err(format!("{op:?} in the family that was told as {:?}", told.name));
            }
            let key = |bytes: &[u8]| OrderedKey::new(order, bytes);
            match op.kind {
                ChangeKind::Put { key: k, value, expires_ms } => {
                    told.map.remove(&key(k));
                    let put = Some((value.to_vec(), expires_ms.unwrap_or(u64::MAX)));
                    told.map.insert(key(k), ReplicaValue { put, operands: None });
                }
                ChangeKind::Delete { key: k } | ChangeKind::SingleDelete { key: k } => {
                    told.map.remove(&key(k));
                }
                ChangeKind::Merge { key: k, operand } => {
                    let mut value = told.map.remove(&key(k)).unwrap_or_default();
                    value.operands = Some(match value.operands {
                        Some(older) => [&older, self.separator.as_bytes(), operand].concat(),
                        None => operand.to_vec(),
                    });
                    told.map.insert(key(k), value);
                }
                ChangeKind::DeleteRange { start, end } => {
                    told.map.retain(|k, _| !in_range(k, start, end))
                }
                other => return Err(format!("what is {other:?}?")),
            }
        }
        Ok(())
    }

    fn apply_family_change(
        &mut self,
        db: &Db,
        change: &FamilyChange,
        order: KeyComparator,
    ) -> Result<()> {
        let id = change.family;
        match &change.kind {
            FamilyChangeKind::Created { name } => {
                self.families.entry(id).or_insert_with(|| FamilyReplica {
                    name: name.clone(),
                    ..FamilyReplica::default()
                });
            }
            FamilyChangeKind::Renamed { to, .. } => {
                if let Some(told) = self.families.get_mut(&id) {
                    told.name = to.clone();
                }
            }
            FamilyChangeKind::Dropped { .. } => drop(self.families.remove(&id)),
            FamilyChangeKind::Cleared => {
                if let Some(told) =
                    self.families.get_mut(&id).filter(|t| t.copied_to_seq < change.sequence)
                {
                    (told.map, told.expiry_uncertain, told.incomplete) =
                        (BTreeMap::new(), false, false);
                }
            }
            FamilyChangeKind::Cloned { name, source } => {
                let source = self.families.get(source).cloned().unwrap_or_default();
                let read = source.incomplete || source.copied_to_seq > change.sequence;
                self.families.insert(id, FamilyReplica { name: name.clone(), ..source });
                if read {
                    self.copy_family_now(db, id, order)?;
                }
            }
            // They are in tables only.
            FamilyChangeKind::Loaded => self.copy_family_now(db, id, order)?,
            _ => {}
        }
        Ok(())
    }

    /// Reads a family, unless it is gone.
    fn copy_family_now(&mut self, db: &Db, id: u32, order: KeyComparator) -> Result<()> {
        let snapshot = durable_snapshot(db)?;
        if let Some(told) = self.families.get_mut(&id) {
            told.incomplete = true;
        }
        for name in db.families() {
            match db.family(&name) {
                Ok(family) if family.id() == id => self.copy_family(&family, &snapshot, order)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// What it has of a family that is not over at this time; `None` if it cannot say.
    pub fn entries(&self, family: u32, now_ms: u64) -> Option<Vec<(Bytes, Bytes)>> {
        let told = self.families.get(&family).filter(|told| !told.expiry_uncertain)?;
        let seen = |(key, value): (&OrderedKey, &ReplicaValue)| {
            Some((key.bytes.to_vec(), value.visible_at(now_ms, &self.separator)?))
        };
        Some(told.map.iter().filter_map(seen).collect())
    }
    /// Everything, by name.
    pub fn contents(&self, now_ms: u64) -> Contents {
        let all = self.families.iter();
        let entries =
            |id: &u32| self.entries(*id, now_ms).unwrap_or_default().into_iter().collect();
        all.map(|(id, told)| (told.name.clone(), entries(id))).collect()
    }
    /// Everything up to here was told.
    pub fn position(&self) -> u64 {
        self.position
    }
}

/// The present, none of which a crash takes back.
fn durable_snapshot(db: &Db) -> Result<Snapshot> {
    let snapshot = db.snapshot()?;
    db.sync()?;
    Ok(snapshot)
}

fn in_range(key: &OrderedKey, start: Bound<&[u8]>, end: Bound<&[u8]>) -> bool {
    let cmp = |bound: &[u8]| comparators::compare(key.order, &key.bytes, bound);
    let from = match start {
        Bound::Included(from) => cmp(from).is_ge(),
        Bound::Excluded(from) => cmp(from).is_gt(),
        Bound::Unbounded => true,
    };
    let to = match end {
        Bound::Included(to) => cmp(to).is_le(),
        Bound::Excluded(to) => cmp(to).is_lt(),
        Bound::Unbounded => true,
    };
    from && to
}
