//! A consumer of the change feed: replays it into its own maps, which must equal the database
//! across any number of reopens. Uses only the public API.

use crate::comparators::{self, OrderedKey};
use crate::history::Bytes;
use crate::ledger::Contents;
use crate::settings::Settings;
use perigee::changes::{ChangeKind, CommittedBatch, FamilyChange, FamilyChangeKind, FeedEvent};
use perigee::{Db, ErrorKind, Family, KeyComparator, MergeRule, Result, Snapshot};
use std::collections::BTreeMap;
use std::ops::Bound;

/// A value with its expiry time, and the operands that were merged into it, which outlive it.
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

/// A column family as the feed described it.
#[derive(Clone, Debug, Default)]
struct FamilyReplica {
    name: String,
    map: BTreeMap<OrderedKey, ReplicaValue>,
    /// Sequence number of the copy from the database, which includes everything up to it.
    copied_to_seq: u64,
    /// Loaded entries are missing, because the column family was gone when the load was delivered.
    /// A clone inherits the gap.
    incomplete: bool,
    /// The copy does not say when each part of a merged value expires.
    expiry_uncertain: bool,
}

/// Maximum number of consecutive copies that are restarted because the log was deleted meanwhile.
const COPIES_MAX: u32 = 30;

/// Consumer state that persists across reopens.
#[derive(Clone, Debug, Default)]
pub struct FeedConsumer {
    families: BTreeMap<u32, FamilyReplica>,
    /// Sequence number up to which everything was delivered.
    position: u64,
    started: bool,
    /// Separator that the merge operator puts between operands.
    separator: String,
    /// Number of commits delivered.
    pub commits: u64,
    /// Number of times it had to copy the database because the log did not reach back far enough.
    pub copies: u64,
}

impl FeedConsumer {
    /// Consumes the feed of the database with these settings up to the end of what is durable.
    pub fn consume(&mut self, db: &Db, settings: &Settings) -> std::result::Result<(), String> {
        let (comparator, kept) = (settings.family.comparator, settings.retains_log());
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
            match db.history().changes(self.position) {
                Ok(changes) => break changes,
                // Occasionally, flushes are faster than a copy.
                Err(e) if e.kind() == ErrorKind::NotFound && !kept && copies < COPIES_MAX => {
                    self.copy_all(db, comparator)
                        .map_err(|e| format!("copying the database: {e}"))?;
                    copies += 1;
                }
                Err(e) => {
                    return Err(format!("the feed does not continue from {}: {e}", self.position));
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
                Err(e) => return Err(format!("the feed after {}: {e}", self.position)),
            };
            if change.sequence() <= self.position {
                return Err(format!("{change:?} was delivered after {}", self.position));
            }
            if changes.position() != change.sequence() {
                return Err(format!("the position after {change:?} is {}", changes.position()));
            }
            match &change {
                FeedEvent::Commit(commit) => self.apply_commit(commit, comparator)?,
                FeedEvent::Family(change) => self
                    .apply_family_change(db, change, comparator)
                    .map_err(|e| format!("{change:?}: {e}"))?,
                other => return Err(format!("unknown change {other:?}")),
            }
            self.position = changes.position();
            // A consumer may restart after every change: a new feed must continue where this one
            // stopped.
            changes = match db.history().changes(self.position) {
                Ok(changes) => changes,
                Err(e) if e.kind() == ErrorKind::NotFound && !kept => {
                    return self.consume(db, settings);
                }
                Err(e) => {
                    return Err(format!("the feed cannot be reopened at {}: {e}", self.position));
                }
            };
        }
        self.position = changes.position();
        Ok(())
    }

    /// Replaces its maps with a copy of the current contents.
    fn copy_all(&mut self, db: &Db, comparator: KeyComparator) -> Result<()> {
        let snapshot = durable_snapshot(db)?;
        self.families.clear();
        for name in db.families() {
            let Ok(family) = db.family(&name) else { continue };
            self.families.insert(family.id(), FamilyReplica { name, ..FamilyReplica::default() });
            self.copy_family(&family, &snapshot, comparator)?;
        }
        // Changes made during the copy are delivered again.
        self.position = snapshot.sequence();
        self.copies += 1;
        Ok(())
    }

    /// Copies a column family. If it was cleared or dropped meanwhile, the feed delivers that
    /// later.
    fn copy_family(
        &mut self,
        family: &Family,
        then: &Snapshot,
        comparator: KeyComparator,
    ) -> Result<()> {
        let mut map = BTreeMap::new();
        match then.cursor(family) {
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            cursor => {
                let mut cursor = cursor?;
                cursor.seek_to_first()?;
                while cursor.is_valid() {
                    let until = cursor.expires_at_ms().unwrap_or(u64::MAX);
                    let put = Some((cursor.value()?.to_vec(), until));
                    map.insert(
                        OrderedKey::new(comparator, cursor.key()),
                        ReplicaValue { put, operands: None },
                    );
                    cursor.next()?;
                }
            }
        }
        if let Some(replica) = self.families.get_mut(&family.id()) {
            (replica.map, replica.copied_to_seq, replica.incomplete) =
                (map, then.sequence(), false);
            replica.expiry_uncertain = !self.separator.is_empty();
        }
        Ok(())
    }

    fn apply_commit(
        &mut self,
        commit: &CommittedBatch,
        comparator: KeyComparator,
    ) -> std::result::Result<(), String> {
        self.commits += 1;
        for op in commit.operations() {
            let Some(replica) = self.families.get_mut(&op.family) else {
                return Err(format!(
                    "column family {} is written to by {op:?}, but was never announced",
                    op.family
                ));
            };
            if op.sequence <= replica.copied_to_seq {
                continue;
            }
            if replica.name != op.family_name {
                return Err(format!("{op:?} in the column family announced as {:?}", replica.name));
            }
            let key = |bytes: &[u8]| OrderedKey::new(comparator, bytes);
            match op.kind {
                ChangeKind::Put { key: k, value, expires_at_ms } => {
                    replica.map.remove(&key(k));
                    let put = Some((value.to_vec(), expires_at_ms.unwrap_or(u64::MAX)));
                    replica.map.insert(key(k), ReplicaValue { put, operands: None });
                }
                ChangeKind::Delete { key: k } | ChangeKind::SingleDelete { key: k } => {
                    replica.map.remove(&key(k));
                }
                ChangeKind::Merge { key: k, operand } => {
                    let mut value = replica.map.remove(&key(k)).unwrap_or_default();
                    value.operands = Some(match value.operands {
                        Some(older) => [&older, self.separator.as_bytes(), operand].concat(),
                        None => operand.to_vec(),
                    });
                    replica.map.insert(key(k), value);
                }
                ChangeKind::DeleteRange { start, end } => {
                    replica.map.retain(|k, _| !in_range(k, start, end))
                }
                other => return Err(format!("unknown operation {other:?}")),
            }
        }
        Ok(())
    }

    fn apply_family_change(
        &mut self,
        db: &Db,
        change: &FamilyChange,
        comparator: KeyComparator,
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
                if let Some(replica) = self.families.get_mut(&id) {
                    replica.name = to.clone();
                }
            }
            FamilyChangeKind::Dropped { .. } => drop(self.families.remove(&id)),
            FamilyChangeKind::Cleared => {
                if let Some(replica) =
                    self.families.get_mut(&id).filter(|t| t.copied_to_seq < change.sequence)
                {
                    (replica.map, replica.expiry_uncertain, replica.incomplete) =
                        (BTreeMap::new(), false, false);
                }
            }
            FamilyChangeKind::Cloned { name, source } => {
                let source = self.families.get(source).cloned().unwrap_or_default();
                let read = source.incomplete || source.copied_to_seq > change.sequence;
                self.families.insert(id, FamilyReplica { name: name.clone(), ..source });
                if read {
                    self.copy_family_now(db, id, comparator)?;
                }
            }
            // Loaded entries exist only in tables.
            FamilyChangeKind::Loaded => self.copy_family_now(db, id, comparator)?,
            _ => {}
        }
        Ok(())
    }

    /// Copies a column family if it still exists.
    fn copy_family_now(&mut self, db: &Db, id: u32, comparator: KeyComparator) -> Result<()> {
        let snapshot = durable_snapshot(db)?;
        if let Some(replica) = self.families.get_mut(&id) {
            replica.incomplete = true;
        }
        for name in db.families() {
            match db.family(&name) {
                Ok(family) if family.id() == id => {
                    self.copy_family(&family, &snapshot, comparator)?
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the entries of a column family that have not expired at this time; `None` if it
    /// cannot say.
    pub fn entries(&self, family: u32, now_ms: u64) -> Option<Vec<(Bytes, Bytes)>> {
        let replica = self.families.get(&family).filter(|replica| !replica.expiry_uncertain)?;
        let seen = |(key, value): (&OrderedKey, &ReplicaValue)| {
            Some((key.bytes.to_vec(), value.visible_at(now_ms, &self.separator)?))
        };
        Some(replica.map.iter().filter_map(seen).collect())
    }
    /// Returns all contents, by column-family name.
    pub fn contents(&self, now_ms: u64) -> Contents {
        let all = self.families.iter();
        let entries =
            |id: &u32| self.entries(*id, now_ms).unwrap_or_default().into_iter().collect();
        all.map(|(id, replica)| (replica.name.clone(), entries(id))).collect()
    }
    /// Returns the sequence number up to which everything was delivered.
    pub fn position(&self) -> u64 {
        self.position
    }
}

/// Returns a snapshot of the current state after a sync, so that no crash can undo any of it.
fn durable_snapshot(db: &Db) -> Result<Snapshot> {
    let snapshot = db.snapshot()?;
    db.sync()?;
    Ok(snapshot)
}

fn in_range(key: &OrderedKey, start: Bound<&[u8]>, end: Bound<&[u8]>) -> bool {
    let cmp = |bound: &[u8]| comparators::compare(key.comparator, &key.bytes, bound);
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
