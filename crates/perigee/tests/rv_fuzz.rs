#![allow(clippy::unwrap_used)]
use perigee::env::fs::memory::SimDisk;
use perigee::env::{Clock, Env};
use perigee::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

#[derive(Debug)]
struct ManualClock(AtomicU64);
impl Clock for ManualClock {
    fn wall_ms(&self) -> u64 { self.0.load(SeqCst) }
    fn monotonic_us(&self) -> u64 { self.0.load(SeqCst) * 1000 }
    fn sleep_us(&self, _: u64) {}
}
struct Rng(u64);
impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13; self.0 ^= self.0 >> 7; self.0 ^= self.0 << 17;
        self.0 % n
    }
}
type Model = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;
const KEYS: u64 = 400;
fn key(i: u64, cs: bool, r: &mut Rng) -> Vec<u8> {
    let s = format!("key{i:05}x");
    if cs && r.below(2) == 0 { s.to_uppercase().into_bytes() } else { s.into_bytes() }
}
fn norm(k: &[u8]) -> Vec<u8> { k.to_ascii_lowercase() }

fn options(env: &Env, cs: bool) -> Options {
    Options::in_env(env.clone()).memory_budget(512 << 10).row_cache_bytes(64 << 10)
        .durability(Durability::None).history(HistoryPolicy::None).default_family(fam(cs))
}
fn fam(cs: bool) -> FamilyOptions {
    let f = FamilyOptions::new().memtable_bytes(8 << 10).merge_operator(MergeRule::Append(",".into()));
    if cs { f.comparator(KeyComparator::CaseInsensitive) } else { f }
}
fn live(m: &Model, now: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    m.iter().filter(|(_, (_, x))| *x > now).map(|(k, (v, _))| (k.clone(), v.clone())).collect()
}
fn check_cursor(c: &mut Cursor, m: &Model, now: u64, r: &mut Rng, what: &str) {
    let all = live(m, now);
    let at = if r.below(3) == 0 { vec![] } else { key(r.below(KEYS), false, r) };
    let n = 1 + r.below(30) as usize;
    if r.below(5) > 0 {
        c.seek(&at).unwrap();
        for (k, v) in all.range(at.clone()..).take(n) {
            assert!(c.is_valid(), "{what}: ended before {:?} from {:?}", String::from_utf8_lossy(k), String::from_utf8_lossy(&at));
            assert_eq!(String::from_utf8_lossy(&norm(c.key())), String::from_utf8_lossy(k), "{what} from {:?}", String::from_utf8_lossy(&at));
            assert_eq!(&c.value().unwrap()[..], &v[..], "{what}");
            c.next().unwrap();
        }
        if all.range(at..).count() < n { assert!(!c.is_valid(), "{what}"); }
    } else {
        c.seek_for_prev(&at).unwrap();
        for (k, v) in all.range(..=at.clone()).rev().take(n) {
            assert!(c.is_valid(), "{what}");
            assert_eq!(&norm(c.key()), k, "{what}");
            assert_eq!(&c.value().unwrap()[..], &v[..]);
            c.prev().unwrap();
        }
    }
}
fn merge(m: &mut Model, k: Vec<u8>, v: &[u8], now: u64) {
    // an expired base is absent
    match m.get_mut(&k) {
        Some((old, x)) if *x > now => { old.push(b','); old.extend_from_slice(v); }
        _ => { m.insert(k, (v.to_vec(), u64::MAX)); }
    }
}

fn run(seed: u64, steps: u64) {
    let mut r = Rng(seed.wrapping_mul(0x9E3779B97F4A7C15) | 1);
    let clock = Arc::new(ManualClock(AtomicU64::new(1_700_000_000_000)));
    let cs = seed % 4 == 3;
    let ttl = seed % 2 == 0;
    let env = Env { fs: SimDisk::new(seed), clock: clock.clone(), ..Env::real() };
    let mut db = Db::open("/db", options(&env, cs)).unwrap();
    let mut names: Vec<String> = vec!["default".into()];
    let mut models: BTreeMap<String, Model> = [("default".to_string(), Model::new())].into();
    let mut snaps: Vec<(Snapshot, BTreeMap<String, Model>)> = vec![];
    let mut named: Vec<(String, BTreeMap<String, Model>)> = vec![];
    let mut held: Vec<(Cursor, Model, String)> = vec![];
    for step in 0..steps {
        let now = clock.0.load(SeqCst);
        let name = names[r.below(names.len() as u64) as usize].clone();
        let f = db.family(&name).unwrap();
        let i = r.below(KEYS);
        let len = if r.below(3) == 0 { 1 + r.below(200) } else { 1 + r.below(6) };
        let val = format!("v{step}").into_bytes();
        let op = r.below(32);
        {
        let m = models.get_mut(&name).unwrap();
        match op {
            0..2 => { for j in i..(i + len).min(KEYS) { let k = key(j, cs, &mut r); f.put(&k, &val).unwrap(); m.insert(norm(&k), (val.clone(), u64::MAX)); } }
            2..7 => { for j in i..(i + len * 3).min(KEYS) { let k = key(j, cs, &mut r); f.delete(&k).unwrap(); m.remove(&norm(&k)); } }
            7 => { let (a, b) = (key(i, false, &mut r), key((i + len).min(KEYS), false, &mut r)); f.delete_range(a.clone()..b.clone()).unwrap();
                let ks: Vec<_> = m.range(a..b).map(|x| x.0.clone()).collect(); for k in ks { m.remove(&k); } }
            8 => { let mut load = f.bulk_load().unwrap(); for j in (i..(i + len).min(KEYS)).step_by(1 + r.below(9) as usize) { let k = key(j, false, &mut r); load.put(&k, &val).unwrap(); m.insert(k, (val.clone(), u64::MAX)); } load.finish().unwrap(); }
            9 => { let txn = db.begin(TxnOptions::new()).unwrap(); let big = vec![b'b'; 3000];
                let mut m2 = m.clone();
                for j in (i..(i + len).min(KEYS)).step_by(1 + r.below(9) as usize) { let k = key(j, cs, &mut r); let v = if r.below(2) == 0 { big.clone() } else { val.clone() };
                    if r.below(3) == 0 { txn.delete(&f, &k).unwrap(); m2.remove(&norm(&k)); } else { txn.put(&f, &k, &v).unwrap(); m2.insert(norm(&k), (v, u64::MAX)); } }
                for _ in 0..3 { let mut c = txn.cursor(&f).unwrap(); check_cursor(&mut c, &m2, now, &mut r, &format!("txn {seed}/{step}")); }
                match r.below(3) { 0 => txn.rollback(),
                    1 => { txn.commit().unwrap(); *m = m2; }
                    _ => { let gid = format!("g{step}"); txn.prepare(&gid).unwrap();
                        if r.below(2) == 0 { db.two_phase().commit(&gid).unwrap(); *m = m2; } else { db.two_phase().rollback(&gid).unwrap(); } } }
            }
            10 if !ttl => { let k = key(i, cs, &mut r); f.merge(&k, &val).unwrap(); merge(m, norm(&k), &val, now); }
            10 | 11 if ttl => { let d = r.below(2000) + 1; for j in i..(i + len).min(KEYS) { let k = key(j, cs, &mut r); f.put_with_ttl(&k, &val, std::time::Duration::from_millis(d)).unwrap(); m.insert(norm(&k), (val.clone(), now + d)); } }
            12 => { f.flush().unwrap(); }
            13 => { f.compact().unwrap(); }
            14 => { let mut b = WriteBatch::new(); for j in (i..(i + len).min(KEYS)).step_by(3) { let k = key(j, cs, &mut r); if r.below(2) == 0 { b.put(&f, &k, &val).unwrap(); m.insert(norm(&k), (val.clone(), u64::MAX)); } else { b.delete(&f, &k).unwrap(); m.remove(&norm(&k)); } } db.write(b).unwrap(); }
            15 => { let k = key(i, cs, &mut r); f.put(&k, &val).unwrap(); m.insert(norm(&k), (val.clone(), u64::MAX)); }
            _ => {}
        }
        }
        match op {
            16 if snaps.len() < 4 => snaps.push((db.snapshot().unwrap(), models.clone())),
            17 if !snaps.is_empty() => { let n = r.below(snaps.len() as u64) as usize; snaps.remove(n); }
            18 if named.len() < 3 => { let n = format!("n{step}"); db.history().create_snapshot(&n).unwrap(); named.push((n, models.clone())); }
            19 if ttl => { clock.0.fetch_add(r.below(600), SeqCst); }
            20 if r.below(4) == 0 && names.len() < 4 => { let n = format!("c{step}"); db.admin().clone_family(&name, &n).unwrap(); let m = models[&name].clone(); models.insert(n.clone(), m); names.push(n); }
            21 if r.below(6) == 0 => { db.admin().clear_family(&name).unwrap(); models.get_mut(&name).unwrap().clear();
                for s in &mut snaps { s.1.remove(&name); } for s in &mut named { s.1.remove(&name); } }
            22 if r.below(6) == 0 && name != "default" => { drop(f); db.drop_family(&name).unwrap(); models.remove(&name); names.retain(|n| *n != name);
                for s in &mut snaps { s.1.remove(&name); } for s in &mut named { s.1.remove(&name); } held.retain(|h| h.2 != name); continue; }
            23 if r.below(4) == 0 => { snaps.clear(); held.clear(); drop(f); if r.below(2) == 0 { db.close().unwrap(); } drop(db); db = Db::open("/db", options(&env, cs)).unwrap(); }
            24 | 25 if held.len() < 4 => { let mut c = f.cursor().unwrap(); c.seek(key(i, false, &mut r)).unwrap(); held.push((c, models[&name].clone(), name.clone())); }
            27 if held.len() < 6 && !snaps.is_empty() => { let (s, ms) = &snaps[r.below(snaps.len() as u64) as usize]; if let Some(m) = ms.get(&name) { let mut c = s.cursor(&f).unwrap(); c.seek(key(i, false, &mut r)).unwrap(); held.push((c, m.clone(), name.clone())); } }
            26 if !held.is_empty() => { let n = r.below(held.len() as u64) as usize; held.remove(n); }
            _ => {}
        }
        let now = clock.0.load(SeqCst);
        let Ok(f) = db.family(&name) else { continue };
        let m = &models[&name];
        for _ in 0..2 { let mut c = f.cursor().unwrap(); check_cursor(&mut c, m, now, &mut r, &format!("latest {seed}/{step}")); }
        let all = live(m, now);
        let hot = r.below(KEYS);
        for j in 0..6 { let k = key((hot + j) % KEYS, cs, &mut r); let want = all.get(&norm(&k)).cloned(); assert_eq!(f.get(&k).unwrap().map(|v| v.to_vec()), want, "get {seed}/{step} {:?}", String::from_utf8_lossy(&k)); }
        for (s, ms) in &snaps { if let Some(m) = ms.get(&name) { let mut c = s.cursor(&f).unwrap(); check_cursor(&mut c, m, now, &mut r, &format!("snap {seed}/{step}"));
            let all = live(m, now); for j in 0..3 { let k = key((hot + j) % KEYS, cs, &mut r); assert_eq!(s.get(&f, &k).unwrap().map(|v| v.to_vec()), all.get(&norm(&k)).cloned(), "snap get {seed}/{step}"); } } }
        for (n, ms) in &named { if let Some(m) = ms.get(&name) { let s = db.history().named_snapshot(n).unwrap(); let mut c = s.cursor(&f).unwrap(); check_cursor(&mut c, m, now, &mut r, &format!("named {seed}/{step}"));
            let all = live(m, now); for j in 0..3 { let k = key((hot + j) % KEYS, cs, &mut r); assert_eq!(s.get(&f, &k).unwrap().map(|v| v.to_vec()), all.get(&norm(&k)).cloned(), "named get {seed}/{step}"); } } }
        for (c, m, _) in &mut held { check_cursor(c, m, now, &mut r, &format!("held {seed}/{step}")); }
    }
    let s = db.admin().stats().row_cache;
    if seed < 4 { println!("seed {seed} hits {} misses {} inval {}", s.hits, s.misses, s.invalidations); }
}

#[test]
fn fuzz() {
    let start: u64 = std::env::var("RV_START").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    let count: u64 = std::env::var("RV_COUNT").ok().and_then(|s| s.parse().ok()).unwrap_or(8);
    for seed in start..start + count { run(seed, 400); }
}
