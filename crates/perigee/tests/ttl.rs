//! Entries that expire: in memtables, tables, value logs, compactions and after a reopen, under a
//! clock that jumps.
#![allow(clippy::unwrap_used)]

use perigee::env::fs::memory::SimDisk;
use perigee::env::sim::SimWorld as Simulated;
use perigee::env::{Clock, Env};
use perigee::{Db, FamilyOptions, Options, WriteBatch};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

const HOUR: u64 = 3_600_000;
const YEARS: u64 = 10 * 365 * 24 * HOUR;
const START: u64 = 5 * YEARS;

/// A wall clock and a monotonic clock that the test sets.
#[derive(Debug)]
struct ManualClock {
    wall: AtomicU64,
    monotonic: AtomicU64,
}

impl ManualClock {
    /// Advances both clocks.
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
    clock: Arc<ManualClock>,
}

impl TtlFixture {
    fn new() -> TtlFixture {
        let clock = ManualClock { wall: AtomicU64::new(START), monotonic: AtomicU64::new(9) };
        TtlFixture { disk: SimDisk::new(3), clock: Arc::new(clock) }
    }
    fn open(&self) -> Db {
        let env = Env { fs: self.disk.clone(), clock: self.clock.clone(), ..Env::real() };
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
        |db| db.admin().flush().unwrap(),
        |db| db.admin().compact().unwrap(),
        |db| {
            db.admin().flush().unwrap();
            db.put("x", "").unwrap();
            db.delete("x").unwrap();
            db.admin().compact().unwrap();
        },
    ];
    for (i, act) in acts.iter().enumerate() {
        let fixture = TtlFixture::new();
        let db = fixture.open();
        fill(&db);
        act(&db);
        assert_eq!(keys(&db), ["a", "b", "c", "d"], "act {i}");
        let c = db.default_family().get_with_ttl("c").unwrap().unwrap();
        assert_eq!(
            (&c.value[..], c.remaining),
            (&b"long, in the value log"[..], Some(Duration::from_millis(HOUR)))
        );
        assert_eq!(db.default_family().get_with_ttl("a").unwrap().unwrap().expires_at_ms, None);
        let mut cursor = db.default_family().cursor().unwrap();
        cursor.seek("b").unwrap();
        assert_eq!(cursor.expires_at_ms(), Some(START + HOUR));
        let snapshot = db.snapshot().unwrap();
        fixture.clock.advance(HOUR - 1);
        assert_eq!(keys(&db), ["a", "b", "c", "d"]);
        fixture.clock.advance(1);
        assert_eq!(keys(&db), ["a", "d"], "act {i}");
        assert_eq!(
            snapshot.get(&db.default_family(), "c").unwrap(),
            None,
            "entries expire in a snapshot, too"
        );
        act(&db);
        assert_eq!(keys(&db), ["a", "d"]);
        drop(snapshot);
        db.admin().compact().unwrap();
        assert_eq!(keys(&db), ["a", "d"]);
        db.admin().wait_idle().unwrap();
        let stats = db.admin().stats();
        let dropped = stats.counter("dropped_expired").unwrap();
        assert!(dropped >= 2, "{dropped}");
        let entries: u64 = db.admin().files().iter().map(|f| f.entries).sum();
        assert_eq!(entries, 2, "expired entries are removed from the bottom level");
        db.close().unwrap();
        fixture.clock.wall.store(START - YEARS, SeqCst);
        let db = fixture.open();
        assert_eq!(keys(&db), ["a", "d"], "time does not go backwards across a reopen");
        assert!(db.admin().verify().unwrap().errors.is_empty());
    }
}

#[test]
fn clock_set_back_before_confirmation_restores_entries() {
    for confirmed in [false, true] {
        let fixture = TtlFixture::new();
        let db = fixture.open();
        fill(&db);
        fixture.clock.wall.store(START + YEARS, SeqCst);
        assert_eq!(keys(&db), ["a"], "hidden");
        assert!(db.admin().clock().jumped);
        if confirmed {
            db.admin().confirm_clock();
        }
        db.admin().compact().unwrap();
        fixture.clock.wall.store(START, SeqCst);
        let expected: &[&str] = if confirmed { &["a"] } else { &["a", "b", "c", "d"] };
        assert_eq!(keys(&db), expected);
    }
}

#[test]
fn extreme_expiries_saturate() {
    let fixture = TtlFixture::new();
    let db = fixture.open();
    db.default_family().put_with_ttl("a", "1", Duration::MAX).unwrap();
    db.default_family().put_until("b", "2", u64::MAX).unwrap();
    db.default_family().put_until("c", "3", 0).unwrap();
    assert_eq!(keys(&db), ["a", "b"]);
    assert!(
        db.default_family()
            .put_with_ttl(vec![0; perigee::limits::KEY_BYTES_MAX + 1], "", Duration::MAX)
            .is_err()
    );
    assert_eq!(db.admin().clock().now_ms, START);
    db.close().unwrap();
    assert!(db.default_family().put_with_ttl("a", "1", Duration::MAX).is_err());
}

/// A clock that advances by a millisecond at every read.
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

/// Regression test: a backward scan checked twice whether an entry had expired; if it expired
/// between the two checks, the scan ended there. `explain` reported a value, and then did not find
/// it.
#[test]
fn entry_expiring_during_read_is_consistent() {
    let mut outcomes = std::collections::BTreeSet::new();
    for lead in 0..12 {
        let clock = Arc::new(TickingClock(AtomicU64::new(START)));
        let env = Env { fs: SimDisk::new(1), clock: clock.clone(), ..Env::real() };
        let db = Db::open("/db", Options::in_env(env).latency_stats(false)).unwrap();
        db.put("a", "for ever").unwrap();
        db.default_family().put_until("b", "short", START + 1000).unwrap();
        let turn = || clock.0.store(START + 1000 - lead, SeqCst);
        turn();
        let mut keys: Vec<_> = db.iter().unwrap().rev().map(|e| e.unwrap().0.to_vec()).collect();
        assert_eq!(keys.pop(), Some(b"a".to_vec()), "lead {lead}");
        outcomes.insert(keys.len());
        turn();
        let explanation = db.default_family().explain("b").unwrap();
        let outcome = explanation.steps.last().unwrap().outcome;
        assert_eq!(
            outcome == "value",
            explanation.value_bytes.is_some(),
            "lead {lead}: {explanation:?}"
        );
    }
    assert_eq!(outcomes.len(), 2, "both outcomes must occur");
}

#[test]
fn put_under_untrusted_clock_can_be_read() {
    let fixture = TtlFixture::new();
    let db = fixture.open();
    fixture.clock.wall.store(START + YEARS, SeqCst);
    db.default_family().put_with_ttl("a", "1", Duration::from_millis(HOUR)).unwrap();
    assert!(db.admin().clock().jumped);
    assert_eq!(
        db.default_family().get_with_ttl("a").unwrap().unwrap().remaining,
        Some(Duration::from_millis(HOUR))
    );
    fixture.clock.wall.store(START, SeqCst);
    let left = db.default_family().get_with_ttl("a").unwrap().unwrap().remaining;
    assert_eq!(left, Some(Duration::from_millis(YEARS + HOUR)));
}

/// Regression test: expired data that is never overwritten stayed in its tables forever, unless a
/// compaction was requested.
#[test]
fn expired_entries_are_reclaimed_without_writes() {
    let fixture = TtlFixture::new();
    let db = fixture.open();
    let entries = |db: &Db| db.admin().files().iter().map(|f| f.entries).sum::<u64>();
    for i in 0..100u32 {
        let ttl = Duration::from_millis(if i % 2 == 0 { HOUR / 2 } else { 10 * HOUR });
        db.default_family()
            .put_with_ttl(i.to_be_bytes(), "a value that is separated", ttl)
            .unwrap();
    }
    db.put("stays", "for ever").unwrap();
    db.admin().flush().unwrap();
    db.admin().wait_idle().unwrap();
    assert_eq!(entries(&db), 101);
    let snapshot = db.snapshot().unwrap();
    fixture.clock.advance(HOUR / 2 + HOUR / 10);
    db.admin().wait_idle().unwrap();
    assert_eq!(entries(&db), 51, "the snapshot is newer than all entries");
    assert_eq!(db.iter().unwrap().count(), 51);
    drop(snapshot);
    // After a clock jump expired entries are hidden, but not removed.
    fixture.clock.wall.fetch_add(YEARS, SeqCst);
    db.admin().wait_idle().unwrap();
    assert_eq!((entries(&db), db.iter().unwrap().count()), (51, 1));
    fixture.clock.wall.fetch_sub(YEARS, SeqCst);
    assert_eq!(db.iter().unwrap().count(), 51);
    fixture.clock.advance(11 * HOUR);
    db.close().unwrap();
    let db = fixture.open();
    db.admin().wait_idle().unwrap();
    assert_eq!(entries(&db), 1, "also after a reopen");
    assert_eq!(db.get("stays").unwrap().unwrap(), b"for ever");
    assert!(db.admin().verify().unwrap().errors.is_empty());
}

/// The compaction thread wakes up on its own when entries expire.
#[test]
fn compaction_wakes_at_expiry() {
    Simulated::new(5).run(SimDisk::new(5), |env| {
        let db = Db::open("/ttl", Options::in_env(env.clone())).unwrap();
        db.default_family().put_with_ttl("soon", "gone", Duration::from_secs(60)).unwrap();
        db.admin().flush().unwrap();
        env.clock.sleep_us(30_000_000);
        assert_eq!(db.admin().files().len(), 1);
        env.clock.sleep_us(60_000_000);
        assert!(db.admin().files().is_empty(), "{:?}", db.admin().files());
        db.close().unwrap();
    });
}
