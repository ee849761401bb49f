//! A consumer of the feed of changes: replays it into maps of its own, which must equal the database, over any number of lives of
//! it. Uses the public API only.

use crate::history::Bytes;
use crate::ledger::Contents;
use crate::orders::{self, Key};
use perigee::{
    Change, ChangeKind, Commit, Db, ErrorKind, Family, FamilyChange, FamilyChangeKind, KeyOrder, Result,
};
use std::collections::BTreeMap;
use std::ops::Bound;

/// A family as it was told: values with the time of their end.
#[derive(Clone, Debug, Default)]
struct Told {
    name: String,
    map: BTreeMap<Key, (Bytes, u64)>,
    /// It was read from the database, and holds what has not been told yet: up to this number.
    ahead: u64,
}

/// The consumer.
#[derive(Clone, Debug, Default)]
pub struct Follower {
    families: BTreeMap<u32, Told>,
    /// Everything up to here was told.
    position: u64,
    begun: bool,
    /// Commits that were told.
    pub commits: u64,
    /// How often it had to begin anew, because the log did not reach back.
    pub copies: u64,
}

impl Follower {
    /// Follows the database to the end of what is durable. `kept`: the log is kept for ever.
    pub fn follow(&mut self, db: &Db, order: KeyOrder, kept: bool) -> std::result::Result<(), String> {
        if !self.begun {
            self.families.insert(0, Told { name: "default".into(), ..Told::default() });
            self.begun = true;
        }
        let mut changes = match db.changes(self.position) {
            Ok(changes) => changes,
            Err(e) if e.kind() == ErrorKind::NotFound && !kept => {
                self.copy(db, order).map_err(|e| format!("copying anew: {e}"))?;
                db.changes(self.position).map_err(|e| format!("right after a copy: {e}"))?
            }
            Err(e) => return Err(format!("the feed does not go on from {}: {e}", self.position)),
        };
        loop {
            let change = match changes.next_change() {
                Ok(Some(change)) => change,
                Ok(None) => break,
                Err(e) if e.kind() == ErrorKind::NotFound && !kept => return self.follow(db, order, kept),
                Err(e) => return Err(format!("the feed behind {}: {e}", self.position)),
            };
            if change.sequence() < self.position {
                return Err(format!("{change:?} was told behind {}", self.position));
            }
            self.position = change.sequence();
            match &change {
                Change::Commit(commit) => self.commit(commit, order)?,
                Change::Family(change) => {
                    self.family(db, change, order).map_err(|e| format!("{change:?}: {e}"))?
                }
                other => return Err(format!("what is {other:?}?")),
            }
        }
        self.position = self.position.max(changes.position());
        Ok(())
    }

    /// Begins anew with what is there.
    fn copy(&mut self, db: &Db, order: KeyOrder) -> Result<()> {
        let snapshot = durable(db)?;
        self.families.clear();
        for name in db.families() {
            let Ok(family) = db.family(&name) else { continue };
            self.families.insert(family.id(), Told { name, ..Told::default() });
            self.read(&family, &snapshot, order)?;
        }
        // What came between is told again.
        self.position = snapshot.sequence();
        self.copies += 1;
        Ok(())
    }

    /// Reads a family, unless it was cleared or dropped since: that will be told.
    fn read(&mut self, family: &Family, then: &Snapshot, order: KeyOrder) -> Result<()> {
        let mut map = BTreeMap::new();
        match then.cursor(family) {
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            cursor => {
                let mut cursor = cursor?;
                cursor.seek_to_first()?;
                while cursor.valid() {
                    let until = cursor.expires_at_ms().unwrap_or(u64::MAX);
                    map.insert(Key::new(order, cursor.key()), (cursor.value()?.to_vec(), until));
                    cursor.next()?;
                }
            }
        }
        if let Some(told) = self.families.get_mut(&family.id()) {
            (told.map, told.ahead) = (map, then.sequence());
        }
        Ok(())
    }

    fn commit(&mut self, commit: &Commit, order: KeyOrder) -> std::result::Result<(), String> {
        self.commits += 1;
        for op in commit.operations() {
            let Some(told) = self.families.get_mut(&op.family) else {
                return Err(format!("family {} was never told, and written to by {op:?}", op.family));
            };
            if told.name != op.family_name && told.ahead < op.sequence {
                return Err(format!("{op:?} in the family that was told as {:?}", told.name));
            }
            let key = |bytes: &[u8]| Key::new(order, bytes);
            match op.kind {
                ChangeKind::Put { key: k, value, expires_ms } => {
                    told.map.remove(&key(k));
                    told.map.insert(key(k), (value.to_vec(), expires_ms.unwrap_or(u64::MAX)));
                }
                ChangeKind::Delete { key: k } | ChangeKind::SingleDelete { key: k } => {
                    told.map.remove(&key(k));
                }
                ChangeKind::DeleteRange { start, end } => told.map.retain(|k, _| !inside(k, start, end)),
                other => return Err(format!("what is {other:?}?")),
            }
        }
        Ok(())
    }

    fn family(&mut self, db: &Db, change: &FamilyChange, order: KeyOrder) -> Result<()> {
        let id = change.family;
        match &change.kind {
            FamilyChangeKind::Created { name } => {
                self.families.entry(id).or_insert_with(|| Told { name: name.clone(), ..Told::default() });
            }
            FamilyChangeKind::Renamed { to, .. } => {
                if let Some(told) = self.families.get_mut(&id) {
                    told.name = to.clone();
                }
            }
            FamilyChangeKind::Dropped { .. } => drop(self.families.remove(&id)),
            FamilyChangeKind::Cleared => {
                if let Some(told) = self.families.get_mut(&id) {
                    (told.map, told.ahead) = (BTreeMap::new(), 0);
                }
            }
            FamilyChangeKind::Cloned { name, source } => {
                let source = self.families.get(source).cloned().unwrap_or_default();
                let ahead = source.ahead > change.sequence;
                self.families.insert(id, Told { name: name.clone(), ..source });
                if ahead {
                    self.read_now(db, id, order)?;
                }
            }
            // They are in tables only.
            FamilyChangeKind::Loaded => self.read_now(db, id, order)?,
            _ => {}
        }
        Ok(())
    }

    /// Reads a family, unless it is gone.
    fn read_now(&mut self, db: &Db, id: u32, order: KeyOrder) -> Result<()> {
        let snapshot = durable(db)?;
        for name in db.families() {
            match db.family(&name) {
                Ok(family) if family.id() == id => self.read(&family, &snapshot, order)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// What it has of a family that is not over at this time.
    pub fn entries(&self, family: u32, now_ms: u64) -> Vec<(Bytes, Bytes)> {
        let told = self.families.get(&family);
        let live = told.iter().flat_map(|t| &t.map).filter(|(_, (_, until))| *until > now_ms);
        live.map(|(key, (value, _))| (key.bytes.to_vec(), value.clone())).collect()
    }
    /// Everything, by name.
    pub fn contents(&self, now_ms: u64) -> Contents {
        let all = self.families.iter();
        all.map(|(id, told)| (told.name.clone(), self.entries(*id, now_ms).into_iter().collect())).collect()
    }
    /// Everything up to here was told.
    pub fn position(&self) -> u64 {
        self.position
    }
}

/// The present, none of which a crash takes back.
fn durable(db: &Db) -> Result<Snapshot> {
    let snapshot = db.snapshot()?;
    db.sync()?;
    Ok(snapshot)
}

fn inside(key: &Key, start: Bound<&[u8]>, end: Bound<&[u8]>) -> bool {
    let cmp = |bound: &[u8]| orders::compare(key.order, &key.bytes, bound);
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
