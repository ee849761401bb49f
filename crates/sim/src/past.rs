//! What lives of one database remember of each other, beside the ledger: a consumer of its changes, moments with their contents,
//! snapshots with a name. Each life begins with a look at all of them.

use crate::follower::Follower;
use crate::ledger::{Contents, compare};
use crate::rng::{Rng, mix};
use crate::settings::Settings;
use perigee::{Db, ErrorKind, Snapshot};
use std::collections::BTreeMap;

/// Families that are never cleared, cloned or dropped once they are there.
const STEADY: [&str; 3] = ["default", "a", "b"];
/// Most moments, and most names.
const MANY: usize = 6;

/// What is remembered.
#[derive(Clone, Debug, Default)]
pub struct Past {
    follower: Follower,
    /// Numbers, and what the database held then.
    moments: BTreeMap<u64, Contents>,
    /// Names, and the numbers they stand for.
    named: BTreeMap<String, u64>,
    /// A name that a crash may have kept from being made, or from being dropped.
    unsure: Option<String>,
    looks: u64,
}

impl Past {
    /// Looks at a database that nobody writes to, whose contents are `found`. After an error what it knew is still true.
    pub fn look(&mut self, db: &Db, found: &Contents, settings: &Settings, seed: u64) -> Result<(), String> {
        self.looks += 1;
        let mut rng = Rng::new(mix(seed, self.looks));
        self.follow(db, found, settings)?;
        self.moments(db, settings)?;
        self.names(db)?;
        let seq = db.latest_seq();
        self.moments.insert(seq, found.clone());
        while self.moments.len() > MANY {
            let named: Vec<u64> = self.named.values().copied().collect();
            let Some(old) = self.moments.keys().copied().find(|seq| !named.contains(seq)) else { break };
            self.moments.remove(&old);
        }
        match rng.below(4) {
            0 if self.named.len() < MANY / 2 => self.name(db, seq),
            1 if !self.named.is_empty() => self.unname(db),
            _ => Ok(()),
        }
    }

    /// The consumer hears what is durable by now, while others write.
    pub fn listen(&mut self, db: &Db, settings: &Settings) -> Result<(), String> {
        self.follower.follow(db, settings)
    }

    /// The consumer goes on where it was, and has what the database has.
    fn follow(&mut self, db: &Db, found: &Contents, settings: &Settings) -> Result<(), String> {
        if self.follower.position() > db.latest_seq() {
            let (told, there) = (self.follower.position(), db.latest_seq());
            return Err(format!("the feed told operation {told}, and the database ends with {there}"));
        }
        self.follower.follow(db, settings)?;
        if self.follower.position() != db.latest_seq() {
            let (told, there) = (self.follower.position(), db.latest_seq());
            return Err(format!("the feed ends with {told}, the database with {there}"));
        }
        let told = self.follower.contents(0);
        if told.keys().ne(found.keys()) {
            let (told, found): (Vec<_>, Vec<_>) = (told.keys().collect(), found.keys().collect());
            return Err(format!("families as told {told:?}, as found {found:?}"));
        }
        told.iter().try_for_each(|(name, map)| {
            compare(name, &found[name], map).map_err(|e| format!("what the feed told: {e}"))
        })
    }

    fn moments(&self, db: &Db, settings: &Settings) -> Result<(), String> {
        for (seq, then) in &self.moments {
            match db.snapshot_at(*seq) {
                Ok(snapshot) => same(db, &snapshot, then)?,
                Err(e) if e.kind() == ErrorKind::NotFound && *seq < db.oldest_readable_seq() => {
                    if settings.keeps_history() {
                        return Err(format!("all history was to be kept: {e}"));
                    }
                }
                Err(e) => return Err(format!("the past at {seq}: {e}")),
            }
        }
        Ok(())
    }

    fn names(&mut self, db: &Db) -> Result<(), String> {
        let there: BTreeMap<String, u64> = db.named_snapshots().into_iter().collect();
        if let Some(name) = self.unsure.take() {
            match there.get(&name) {
                Some(seq) => drop(self.named.insert(name, *seq)),
                None => drop(self.named.remove(&name)),
            }
        }
        if there != self.named {
            return Err(format!("snapshots with a name: {there:?}, and there were {:?}", self.named));
        }
        for (name, seq) in &self.named {
            let snapshot = db.named_snapshot(name).map_err(|e| format!("snapshot {name}: {e}"))?;
            let then = self.moments.get(seq).ok_or(format!("{name} stands for {seq}, where nobody was"))?;
            same(db, &snapshot, then).map_err(|e| format!("snapshot {name}: {e}"))?;
        }
        Ok(())
    }

    fn name(&mut self, db: &Db, seq: u64) -> Result<(), String> {
        let name = format!("look {}", self.looks);
        self.unsure = Some(name.clone());
        let made = db.create_snapshot(&name).map_err(|e| format!("create_snapshot: {e}"))?;
        self.unsure = None;
        self.named.insert(name, made);
        if made == seq { Ok(()) } else { Err(format!("a snapshot of {seq} has number {made}")) }
    }

    fn unname(&mut self, db: &Db) -> Result<(), String> {
        let Some(name) = self.named.keys().next().cloned() else { return Ok(()) };
        self.unsure = Some(name.clone());
        db.drop_snapshot(&name).map_err(|e| format!("drop_snapshot: {e}"))?;
        self.unsure = None;
        self.named.remove(&name);
        Ok(())
    }
}

/// A snapshot shows what was there then.
fn same(db: &Db, snapshot: &Snapshot, then: &Contents) -> Result<(), String> {
    let said = |e: perigee::Error| format!("reading at {}: {e}", snapshot.sequence());
    for name in STEADY {
        let Ok(family) = db.family(name) else { continue };
        let mut map = BTreeMap::new();
        for entry in snapshot.iter(&family).map_err(said)? {
            let (key, value) = entry.map_err(said)?;
            map.insert(key.to_vec(), value.to_vec());
        }
        let nothing = BTreeMap::new();
        compare(name, then.get(name).unwrap_or(&nothing), &map)
            .map_err(|e| format!("the past at {}: {e}", snapshot.sequence()))?;
    }
    Ok(())
}
