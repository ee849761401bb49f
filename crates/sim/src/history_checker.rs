//! State remembered across the sessions of one database, in addition to the ledger: a consumer of
//! its change feed, sequence numbers with the contents at the time, and named snapshots. Each
//! session begins with a check of all of them.

use crate::feed_consumer::FeedConsumer;
use crate::ledger::{Contents, compare_families};
use crate::rng::{Rng, mix};
use crate::settings::Settings;
use perigee::{Db, ErrorKind, Snapshot};
use std::collections::BTreeMap;

/// Column families that are never cleared, cloned or dropped once they exist.
const STEADY_FAMILIES: [&str; 3] = ["default", "a", "b"];
/// Maximum number of remembered points, and of named snapshots.
const HISTORY_POINTS_MAX: usize = 6;

/// Consumer, remembered points and named snapshots of one database.
#[derive(Clone, Debug, Default)]
pub struct HistoryChecker {
    feed_consumer: FeedConsumer,
    /// Contents of the database at remembered sequence numbers.
    contents_by_seq: BTreeMap<u64, Contents>,
    /// Sequence number of each named snapshot.
    named_snapshots: BTreeMap<String, u64>,
    /// A name whose creation or removal a crash may have prevented.
    uncertain_name: Option<String>,
    check_count: u64,
}

impl HistoryChecker {
    /// Checks an idle database whose contents are `found`. After an error the remembered state is
    /// still valid.
    pub fn check_all(
        &mut self,
        db: &Db,
        found: &Contents,
        settings: &Settings,
        seed: u64,
    ) -> Result<(), String> {
        self.check_count += 1;
        let mut rng = Rng::new(mix(seed, self.check_count));
        self.check_change_feed(db, found, settings)?;
        self.check_past_reads(db, settings)?;
        self.check_named_snapshots(db)?;
        let seq = db.history().latest_seq();
        self.contents_by_seq.insert(seq, found.clone());
        while self.contents_by_seq.len() > HISTORY_POINTS_MAX {
            let named: Vec<u64> = self.named_snapshots.values().copied().collect();
            let Some(old) = self.contents_by_seq.keys().copied().find(|seq| !named.contains(seq))
            else {
                break;
            };
            self.contents_by_seq.remove(&old);
        }
        match rng.below(4) {
            0 if self.named_snapshots.len() < HISTORY_POINTS_MAX / 2 => {
                self.create_named_snapshot(db, seq)
            }
            1 if !self.named_snapshots.is_empty() => self.drop_named_snapshot(db),
            _ => Ok(()),
        }
    }

    /// Lets the consumer read what is durable by now, while writers run.
    pub fn poll_changes(&mut self, db: &Db, settings: &Settings) -> Result<(), String> {
        self.feed_consumer.consume(db, settings)
    }

    /// Continues the feed where it stopped and compares the consumer with the database.
    fn check_change_feed(
        &mut self,
        db: &Db,
        found: &Contents,
        settings: &Settings,
    ) -> Result<(), String> {
        if self.feed_consumer.position() > db.history().latest_seq() {
            let (delivered, there) = (self.feed_consumer.position(), db.history().latest_seq());
            return Err(format!(
                "the feed delivered operation {delivered}, but the database ends with {there}"
            ));
        }
        self.feed_consumer.consume(db, settings)?;
        if self.feed_consumer.position() != db.history().latest_seq() {
            let (delivered, there) = (self.feed_consumer.position(), db.history().latest_seq());
            return Err(format!("the feed ends with {delivered}, the database with {there}"));
        }
        let delivered = self.feed_consumer.contents(0);
        if delivered.keys().ne(found.keys()) {
            let (delivered, found): (Vec<_>, Vec<_>) =
                (delivered.keys().collect(), found.keys().collect());
            return Err(format!("column families delivered {delivered:?}, found {found:?}"));
        }
        delivered.iter().try_for_each(|(name, map)| {
            compare_families(name, &found[name], map)
                .map_err(|e| format!("the feed's contents: {e}"))
        })
    }

    fn check_past_reads(&self, db: &Db, settings: &Settings) -> Result<(), String> {
        for (seq, then) in &self.contents_by_seq {
            match db.history().snapshot_at(*seq) {
                Ok(snapshot) => check_snapshot(db, &snapshot, then)?,
                Err(e)
                    if e.kind() == ErrorKind::NotFound
                        && *seq < db.history().oldest_readable_seq() =>
                {
                    if settings.retains_history() {
                        return Err(format!("history is missing although all of it is kept: {e}"));
                    }
                }
                Err(e) => return Err(format!("reading history at {seq}: {e}")),
            }
        }
        Ok(())
    }

    fn check_named_snapshots(&mut self, db: &Db) -> Result<(), String> {
        let there: BTreeMap<String, u64> =
            db.history().named_snapshots().into_iter().map(|s| (s.name, s.sequence)).collect();
        if let Some(name) = self.uncertain_name.take() {
            match there.get(&name) {
                Some(seq) => drop(self.named_snapshots.insert(name, *seq)),
                None => drop(self.named_snapshots.remove(&name)),
            }
        }
        if there != self.named_snapshots {
            return Err(format!(
                "named snapshots: found {there:?}, expected {:?}",
                self.named_snapshots
            ));
        }
        for (name, seq) in &self.named_snapshots {
            let snapshot =
                db.history().named_snapshot(name).map_err(|e| format!("snapshot {name}: {e}"))?;
            let then = self
                .contents_by_seq
                .get(seq)
                .ok_or(format!("{name} has sequence number {seq}, which was never recorded"))?;
            check_snapshot(db, &snapshot, then).map_err(|e| format!("snapshot {name}: {e}"))?;
        }
        Ok(())
    }

    fn create_named_snapshot(&mut self, db: &Db, seq: u64) -> Result<(), String> {
        let name = format!("snapshot {}", self.check_count);
        self.uncertain_name = Some(name.clone());
        let made =
            db.history().create_snapshot(&name).map_err(|e| format!("create_snapshot: {e}"))?;
        self.uncertain_name = None;
        self.named_snapshots.insert(name, made);
        if made == seq { Ok(()) } else { Err(format!("a snapshot of {seq} has number {made}")) }
    }

    fn drop_named_snapshot(&mut self, db: &Db) -> Result<(), String> {
        let Some(name) = self.named_snapshots.keys().next().cloned() else { return Ok(()) };
        self.uncertain_name = Some(name.clone());
        db.history().drop_snapshot(&name).map_err(|e| format!("drop_snapshot: {e}"))?;
        self.uncertain_name = None;
        self.named_snapshots.remove(&name);
        Ok(())
    }
}

/// Checks that a snapshot shows the contents recorded at its sequence number.
fn check_snapshot(db: &Db, snapshot: &Snapshot, then: &Contents) -> Result<(), String> {
    let said = |e: perigee::Error| format!("reading at {}: {e}", snapshot.sequence());
    for name in STEADY_FAMILIES {
        let Ok(family) = db.family(name) else { continue };
        let mut map = BTreeMap::new();
        for entry in snapshot.iter(&family).map_err(said)? {
            let (key, value) = entry.map_err(said)?;
            map.insert(key.to_vec(), value.to_vec());
        }
        let nothing = BTreeMap::new();
        compare_families(name, then.get(name).unwrap_or(&nothing), &map)
            .map_err(|e| format!("reading history at {}: {e}", snapshot.sequence()))?;
    }
    Ok(())
}
