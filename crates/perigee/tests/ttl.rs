//! Entries that expire: through memtable, tables, value logs, compaction and reopen, under a clock
//! that jumps.
#![allow(clippy::unwrap_used)]

use perigee::env::Env;
use perigee::env::clock::Clock;
use perigee::env::fs::memory::SimDisk;
use perigee::env::sim::SimWorld as Simulated;
use perigee::{Db, FamilyOptions, Options, WriteBatch};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

const HOUR: u64 = 3_600_000;
const YEARS: u64 = 10 * 365 * 24 * HOUR;
const START: u64 = 5 * YEARS;

/// A wall clock and a monotonic clock that stand still until somebody turns them.
#[derive(Debug)]
struct ManualClock {
    wall: AtomicU64,
    monotonic: AtomicU64,
}

impl ManualClock {
    /// Time passes for both.
    fn advance(&self, ms: u64) {
        self.wall.fetch_add(ms, SeqCst);
        self.monotonic.fetch_add(ms, SeqCst);
    }
}

impl Clock for ManualClock {
    fn wall_ms(&self) -> u64 {
        self.wall.load(SeqCst)
    }
    fn monotonic_us(&self) -> u64 {
        self.monotonic.load(SeqCst) * 1000
    }
    fn sleep_us(&self, _: u64) {}
}

struct TtlFixture {
    disk: Arc<SimDisk>,
    hands: Arc<ManualClock>,
}

impl TtlFixture {
    fn new() -> TtlFixture {
        let hands = ManualClock { wall: AtomicU64::new(START), monotonic: AtomicU64::new(9) };
        TtlFixture { disk: SimDisk::new(3), hands: Arc::new(hands) }
    }
    fn open(&self) -> Db {
        let env = Env { fs: self.disk.clone(), clock: self.hands.clone(), ..Env::real() };
        let family = FamilyOptions::new().value_threshold(10).block_bytes(64);
        Db::open("/ttl", Options::in_env(env).default_family(family)).unwrap()
    }
}

fn keys(db: &Db) -> Vec<String> {
    let text = |e: perigee::Result<(perigee::Slice, perigee::Slice)>| {
        String::from_utf8(e.unwrap().0.to_vec()).unwrap()
    };
    let forward: Vec<String> = db.iter().unwrap().map(text).collect();
    let mut back: Vec<String> = db.iter().unwrap().rev().map(text).collect();
    back.reverse();
    assert_eq!(forward, back);
    for k in ["a", "b", "c", "d"] {
        assert_eq!(db.contains(k).unwrap(), forward.iter().any(|f| f == k), "{k}");
        assert_eq!(db.get(k).unwrap().is_some(), forward.iter().any(|f| f == k), "{k}");
    }
    forward
}

fn fill(db: &Db) {
    db.put("a", "for ever").unwrap();
    db.put("b", "the older b").unwrap();
    db.put("c", "the older c, in the value log").unwrap();
    let family = db.default_family();
    let mut batch = WriteBatch::new();
    batch.put_with_ttl(&family, "b", "short", Duration::from_millis(HOUR)).unwrap();
    batch
        .put_with_ttl(&family, "c", "long, in the value log", Duration::from_millis(HOUR))
        .unwrap();
    batch.put_until(&family, "d", "", START + 2 * HOUR).unwrap();
    db.write(batch).unwrap();
}

#[test]
fn expired_version_hides_older_versions() {
    type Action = fn(&Db);
    let acts: [Action; 4] = [
        |_| {},
        |db| db.flush().unwrap(),
        |db| db.compact().unwrap(),
        |db| {
            db.flush().unwrap();
            db.put("x", "").unwrap();
            db.delete("x").unwrap();
            db.compact().unwrap();
        },
    ];
    for (i, act) in acts.iter().enumerate() {
        let world = TtlFixture::new();
        let db = world.open();
        fill(&db);
        act(&db);
        assert_eq!(keys(&db), ["a", "b", "c", "d"], "act {i}");
        let c = db.get_with_ttl("c").unwrap().unwrap();
        assert_eq!(
            (&c.value[..], c.remaining),
            (&b"long, in the value log"[..], Some(Duration::from_millis(HOUR)))
        );
        assert_eq!(db.get_with_ttl("a").unwrap().unwrap().expires_at_ms, None);
        let mut cursor = db.cursor().unwrap();
        cursor.seek("b").unwrap();
        assert_eq!(cursor.expires_at_ms(), Some(START + HOUR));
        let snapshot = db.snapshot().unwrap();
        world.hands.advance(HOUR - 1);
        assert_eq!(keys(&db), ["a", "b", "c", "d"]);
        world.hands.advance(1);
        assert_eq!(keys(&db), ["a", "d"], "act {i}");
        assert_eq!(
            snapshot.get(&db.default_family(), "c").unwrap(),
            None,
            "time goes on in a snapshot"
        );
        act(&db);
        assert_eq!(keys(&db), ["a", "d"]);
        drop(snapshot);
        db.compact().unwrap();
        assert_eq!(keys(&db), ["a", "d"]);
        db.wait_idle().unwrap();
        let stats = db.stats();
        let dropped = stats.counters.iter().find(|(name, _)| *name == "dropped_expired").unwrap().1;
        assert!(dropped >= 2, "{dropped}");
        let entries: u64 = db.files().iter().map(|f| f.entries).sum();
        assert_eq!(entries, 2, "what has expired takes no room at the bottom");
        db.close().unwrap();
        world.hands.wall.store(START - YEARS, SeqCst);
        let db = world.open();
        assert_eq!(keys(&db), ["a", "d"], "time does not go back over a reopen");
        assert!(db.verify().unwrap().errors.is_empty());
    }
}

#[test]
fn clock_set_back_before_confirmation_restores_entries() {
    for confirmed in [false, true] {
        let world = TtlFixture::new();
        let db = world.open();
        fill(&db);
        world.hands.wall.store(START + YEARS, SeqCst);
        assert_eq!(keys(&db), ["a"], "hidden");
        assert!(db.clock().jumped);
        if confirmed {
            db.confirm_clock();
        }
        db.compact().unwrap();
        world.hands.wall.store(START, SeqCst);
        let expected: &[&str] = if confirmed { &["a"] } else { &["a", "b", "c", "d"] };
        assert_eq!(keys(&db), expected);
    }
}

#[test]
fn extreme_expiries_saturate() {
    let world = TtlFixture::new();
    let db = world.open();
    db.put_with_ttl("a", "1", Duration::MAX).unwrap();
    db.put_until("b", "2", u64::MAX).unwrap();
    db.put_until("c", "3", 0).unwrap();
    assert_eq!(keys(&db), ["a", "b"]);
    assert!(
        db.put_with_ttl(vec![0; perigee::limits::KEY_BYTES_MAX + 1], "", Duration::MAX).is_err()
    );
    assert_eq!(db.clock().now_ms, START);
    db.close().unwrap();
    assert!(db.put_with_ttl("a", "1", Duration::MAX).is_err());
}

/// A clock on which a millisecond passes at every look.
#[derive(Debug)]
struct TickingClock(AtomicU64);

impl Clock for TickingClock {
    fn wall_ms(&self) -> u64 {
        self.0.fetch_add(1, SeqCst)
    }
    fn monotonic_us(&self) -> u64 {
        self.0.load(SeqCst) * 1000
    }
    fn sleep_us(&self, _: u64) {}
}

/// A backward scan asked twice whether an entry had expired: if it did between the two, the scan
/// ended there. An explanation told of a value, and then found none.
#[test]
fn entry_expiring_during_read_is_consistent() {
    let mut outcomes = std::collections::BTreeSet::new();
    for lead in 0..12 {
        let clock = Arc::new(TickingClock(AtomicU64::new(START)));
        let env = Env { fs: SimDisk::new(1), clock: clock.clone(), ..Env::real() };
        let db = Db::open("/db", Options::in_env(env).latency_stats(false)).unwrap();
        db.put("a", "for ever").unwrap();
        db.put_until("b", "short", START + 1000).unwrap();
        let turn = || clock.0.store(START + 1000 - lead, SeqCst);
        turn();
        let mut keys: Vec<_> = db.iter().unwrap().rev().map(|e| e.unwrap().0.to_vec()).collect();
        assert_eq!(keys.pop(), Some(b"a".to_vec()), "lead {lead}");
        outcomes.insert(keys.len());
        turn();
        let told = db.explain("b").unwrap();
        let outcome = told.steps.last().unwrap().outcome;
        assert_eq!(outcome == "value", told.value_bytes.is_some(), "lead {lead}: {told:?}");
    }
    assert_eq!(outcomes.len(), 2, "with and without the other");
}

#[test]
fn put_under_untrusted_clock_can_be_read() {
    let world = TtlFixture::new();
    let db = world.open();
    world.hands.wall.store(START + YEARS, SeqCst);
    db.put_with_ttl("a", "1", Duration::from_millis(HOUR)).unwrap();
    assert!(db.clock().jumped);
    assert_eq!(db.get_with_ttl("a").unwrap().unwrap().remaining, Some(Duration::from_millis(HOUR)));
    world.hands.wall.store(START, SeqCst);
    let left = db.get_with_ttl("a").unwrap().unwrap().remaining;
    assert_eq!(left, Some(Duration::from_millis(YEARS + HOUR)));
}

/// The story: data with an end that nobody overwrote lay in its tables for ever, unless somebody
/// asked for a compaction.
#[test]
fn expired_entries_are_reclaimed_without_writes() {
    let world = TtlFixture::new();
    let db = world.open();
    let entries = |db: &Db| db.files().iter().map(|f| f.entries).sum::<u64>();
    for i in 0..100u32 {
        let ttl = Duration::from_millis(if i % 2 == 0 { HOUR / 2 } else { 10 * HOUR });
        db.put_with_ttl(i.to_be_bytes(), "a value that is separated", ttl).unwrap();
    }
    db.put("stays", "for ever").unwrap();
    db.flush().unwrap();
    db.wait_idle().unwrap();
    assert_eq!(entries(&db), 101);
    let snapshot = db.snapshot().unwrap();
    world.hands.advance(HOUR / 2 + HOUR / 10);
    db.wait_idle().unwrap();
    assert_eq!(entries(&db), 51, "the snapshot is newer than all of them");
    assert_eq!(db.iter().unwrap().count(), 51);
    drop(snapshot);
    // A clock that leaps hides, but destroys nothing.
    world.hands.wall.fetch_add(YEARS, SeqCst);
    db.wait_idle().unwrap();
    assert_eq!((entries(&db), db.iter().unwrap().count()), (51, 1));
    world.hands.wall.fetch_sub(YEARS, SeqCst);
    assert_eq!(db.iter().unwrap().count(), 51);
    world.hands.advance(11 * HOUR);
    db.close().unwrap();
    let db = world.open();
    db.wait_idle().unwrap();
    assert_eq!(entries(&db), 1, "also after a reopen");
    assert_eq!(db.get("stays").unwrap().unwrap(), b"for ever");
    assert!(db.verify().unwrap().errors.is_empty());
}

/// The compaction thread wakes by itself when the time has come.
#[test]
fn compaction_wakes_at_expiry() {
    Simulated::new(5).run(SimDisk::new(5), |env| {
        let db = Db::open("/ttl", Options::in_env(env.clone())).unwrap();
        db.put_with_ttl("soon", "gone", Duration::from_secs(60)).unwrap();
        db.flush().unwrap();
        env.clock.sleep_us(30_000_000);
        assert_eq!(db.files().len(), 1);
        env.clock.sleep_us(60_000_000);
        assert!(db.files().is_empty(), "{:?}", db.files());
        db.close().unwrap();
    });
}
