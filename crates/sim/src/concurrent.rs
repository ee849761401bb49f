//! Concurrent writers and readers on a simulated disk. Every batch moves a token between two column
//! families and rewrites a pair of keys in one of them. Readers must never see half of a batch and
//! never see an older state than before.

use crate::contents::read_all;
use crate::engine_target::{PATH, check_report};
use crate::ledger::Contents;
use crate::rng::{Rng, mix, value_bytes};
use crate::runner::{Case, lock_mutex};
use crate::settings::Settings;
use perigee::env::Env;
use perigee::{Db, Family, WriteBatch};
use perigee_env::fs::memory::SimDisk;
use perigee_env::sim::SimWorld;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Number of tokens per writer.
const TOKENS_PER_WRITER: u64 = 4;

/// State shared by all threads.
struct TokenState {
    db: Db,
    left: Family,
    right: Family,
    /// Acknowledged version of each token: `[writer][token]`.
    acked: Vec<Vec<Mutex<u64>>>,
    failure: Mutex<Option<String>>,
    operations: Mutex<u64>,
}

/// Runs one history.
pub fn run_case(case: &Case) -> Result<(), String> {
    let mut rng = Rng::new(case.case_seed());
    let (settings, seed) = (Settings::random(&mut rng), rng.next());
    let disk = SimDisk::new(seed);
    case.keep_disk("concurrent", &disk);
    let mut world = SimWorld::new(seed);
    if rng.percent(50) {
        world.lock_switch_probability(0.5);
    }
    world
        .run(disk, |env| run_history(case, env, &settings, &mut rng))
        .map_err(|e| format!("concurrent {settings:?}: {e}"))
}

fn run_history(case: &Case, env: Env, settings: &Settings, rng: &mut Rng) -> Result<(), String> {
    let say = |e: perigee::Error| e.to_string();
    let db = Db::open(Path::new(PATH), settings.options(env.clone())).map_err(say)?;
    let left = db.create_family("left", settings.family.clone()).map_err(say)?;
    let right = db.create_family("right", settings.family.clone()).map_err(say)?;
    let (writers, readers) = (rng.between(1, 3), rng.between(1, 2));
    let acked =
        (0..writers).map(|_| (0..TOKENS_PER_WRITER).map(|_| Mutex::new(0)).collect()).collect();
    let scene = Arc::new(TokenState {
        db,
        left,
        right,
        acked,
        failure: Mutex::new(None),
        operations: Mutex::new(0),
    });
    let mut joins = Vec::new();
    for i in 0..writers + readers {
        let (scene, seed) = (scene.clone(), mix(rng.next(), i as u64));
        let body = Box::new(move || {
            let result =
                if i < writers { scene.run_writer(i, seed) } else { scene.run_reader(seed) };
            if let Err(e) = result {
                lock_mutex(&scene.failure).get_or_insert(e);
            }
        });
        joins.push(env.spawn.spawn(&format!("actor-{i}"), body).map_err(say)?);
    }
    for join in joins {
        join.join().map_err(|panic| format!("a thread panicked: {panic}"))?;
    }
    if let Some(wrong) = lock_mutex(&scene.failure).take() {
        return Err(wrong);
    }
    case.count("operations", *lock_mutex(&scene.operations));
    scene.check_after_reopen(settings, env)
}

impl TokenState {
    /// Moves tokens. Odd versions of a token are in `left`.
    fn run_writer(&self, writer: usize, seed: u64) -> Result<(), String> {
        let mut rng = Rng::new(seed);
        for _ in 0..rng.between(20, 150) {
            let token = rng.below(TOKENS_PER_WRITER);
            let version = *lock_mutex(&self.acked[writer][token as usize]) + 1;
            let batch = self
                .token_batch(writer, token, version, rng.between(0, 200))
                .map_err(|e| e.to_string())?;
            self.db.write(batch).map_err(|e| format!("write: {e}"))?;
            *lock_mutex(&self.acked[writer][token as usize]) = version;
            match rng.below(60) {
                0 => self.db.admin().flush().map_err(|e| format!("flush: {e}"))?,
                1 => self.db.admin().compact().map_err(|e| format!("compact: {e}"))?,
                _ => {}
            }
            *lock_mutex(&self.operations) += 1;
        }
        Ok(())
    }

    fn token_batch(
        &self,
        writer: usize,
        token: u64,
        version: u64,
        len: usize,
    ) -> perigee::Result<WriteBatch> {
        let mut batch = WriteBatch::new();
        let (from, to) = self.families_of_version(version);
        let value = value(version, len);
        batch.delete(from, key("token", writer, token))?;
        batch.put(&self.left, key("pair-a", writer, token), &value)?;
        batch.put(&self.left, key("pair-z", writer, token), &value)?;
        batch.put(to, key("token", writer, token), &value)?;
        Ok(batch)
    }

    /// Returns the column families that a version comes from and is stored in.
    fn families_of_version(&self, version: u64) -> (&Family, &Family) {
        if version % 2 == 1 { (&self.right, &self.left) } else { (&self.left, &self.right) }
    }

    fn run_reader(&self, seed: u64) -> Result<(), String> {
        let mut rng = Rng::new(seed);
        for _ in 0..rng.between(20, 100) {
            let writer = rng.index(self.acked.len());
            let token = rng.below(TOKENS_PER_WRITER);
            let result = match rng.below(4) {
                0 | 1 => self.check_snapshot(writer, token),
                2 => self.check_iterator(&mut rng),
                _ => self.check_get(writer, token),
            };
            result.map_err(|e| format!("reader: {e}"))?;
            *lock_mutex(&self.operations) += 1;
        }
        Ok(())
    }

    fn acked_version(&self, writer: usize, token: u64) -> u64 {
        *lock_mutex(&self.acked[writer][token as usize])
    }

    /// Checks one snapshot: the token is in exactly one column family, its version is at least the
    /// acknowledged one, the pair agrees with it, and a second read returns the same.
    fn check_snapshot(&self, writer: usize, token: u64) -> Result<(), String> {
        let say = |e: perigee::Error| e.to_string();
        let least = self.acked_version(writer, token);
        let snapshot = self.db.snapshot().map_err(say)?;
        let read_version = || -> Result<u64, String> {
            let read = |family, name| snapshot.get(family, key(name, writer, token)).map_err(say);
            let sides = (read(&self.left, "token")?, read(&self.right, "token")?);
            let pair = (read(&self.left, "pair-a")?, read(&self.left, "pair-z")?);
            let version = match &sides {
                (None, None) => 0,
                (Some(value), None) if version(value) % 2 == 1 => version(value),
                (None, Some(value)) if version(value).is_multiple_of(2) => version(value),
                _ => {
                    return Err(format!(
                        "half of a batch across column families: {:?}",
                        versions(&sides)
                    ));
                }
            };
            let pair_version = version_of(pair.0.as_deref());
            if pair.0 != pair.1 || pair_version != version {
                return Err(format!(
                    "half of a batch: token at {version}, pair {:?}",
                    versions(&pair)
                ));
            }
            Ok(version)
        };
        let first = read_version()?;
        if first < least {
            return Err(format!("a snapshot saw version {first} after {least} was acknowledged"));
        }
        perigee_env::sim::yield_now();
        let second = read_version()?;
        if first != second {
            return Err(format!("a snapshot changed from version {first} to {second}"));
        }
        Ok(())
    }

    /// Checks with one iterator, forwards or backwards, that both keys of a pair agree.
    fn check_iterator(&self, rng: &mut Rng) -> Result<(), String> {
        let least: Vec<Vec<u64>> = (0..self.acked.len())
            .map(|w| (0..TOKENS_PER_WRITER).map(|t| self.acked_version(w, t)).collect())
            .collect();
        let iter = self.left.prefix("pair").map_err(|e| e.to_string())?;
        let back = rng.percent(50);
        let entries: Result<Vec<_>, _> = if back { iter.rev().collect() } else { iter.collect() };
        let entries = entries.map_err(|e| e.to_string())?;
        let find = |name: &str, writer: usize, token: u64| {
            let wanted = key(name, writer, token);
            let found = entries.iter().find(|(k, _)| k[..] == wanted[..]).map(|(_, v)| v.to_vec());
            version_of(found.as_deref())
        };
        for (writer, tokens) in least.iter().enumerate() {
            for (token, &least) in (0..).zip(tokens) {
                let pair = (find("pair-a", writer, token), find("pair-z", writer, token));
                if pair.0 != pair.1 || pair.0 < least {
                    return Err(format!(
                        "an iterator (back: {back}) saw {pair:?}, acknowledged {least}"
                    ));
                }
            }
        }
        Ok(())
    }

    fn check_get(&self, writer: usize, token: u64) -> Result<(), String> {
        let least = self.acked_version(writer, token);
        let found = self.left.get(key("pair-a", writer, token)).map_err(|e| e.to_string())?;
        let version = version_of(found.as_deref());
        if version < least {
            return Err(format!("get saw version {version} after {least} was acknowledged"));
        }
        Ok(())
    }

    /// Checks the final state: the contents are the last acknowledged versions, verify is clean,
    /// and a reopen changes nothing.
    fn check_after_reopen(&self, settings: &Settings, env: Env) -> Result<(), String> {
        let say = |e: perigee::Error| e.to_string();
        let check = |found: &Contents| -> Result<(), String> {
            for (writer, tokens) in self.acked.iter().enumerate() {
                for (token, acked) in (0..).zip(tokens) {
                    let acked = *lock_mutex(acked);
                    let at = |family: &str, name: &str| {
                        version_of(found[family].get(&key(name, writer, token)).map(|v| &v[..]))
                    };
                    let side = if acked % 2 == 1 { "left" } else { "right" };
                    if (at(side, "token"), at("left", "pair-z")) != (acked, acked) {
                        return Err(format!(
                            "writer {writer}, token {token}: version {acked} is not there at the \
                             end"
                        ));
                    }
                }
            }
            Ok(())
        };
        let before = read_all(&self.db).map_err(say)?;
        check(&before)?;
        check_report(&self.db.admin().verify().map_err(say)?).map_err(say)?;
        self.db.close().map_err(say)?;
        let db = Db::open(Path::new(PATH), settings.options(env)).map_err(say)?;
        let after = read_all(&db).map_err(say)?;
        if before != after {
            return Err("the contents changed by closing and opening".into());
        }
        db.close().map_err(say)
    }
}

fn key(name: &str, writer: usize, token: u64) -> Vec<u8> {
    format!("{name}/{writer}/{token}").into_bytes()
}

fn value(version: u64, len: usize) -> Vec<u8> {
    let mut value = version.to_le_bytes().to_vec();
    value.extend(value_bytes(version, len));
    value
}

fn version(value: &[u8]) -> u64 {
    value.first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
}

fn version_of(value: Option<&[u8]>) -> u64 {
    value.map_or(0, version)
}

fn versions(pair: &(Option<Vec<u8>>, Option<Vec<u8>>)) -> (u64, u64) {
    (version_of(pair.0.as_deref()), version_of(pair.1.as_deref()))
}
