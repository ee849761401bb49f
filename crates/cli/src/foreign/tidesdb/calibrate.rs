//! Finds the chain from an iterator to the expiry time of its entry. Entries with known expiry
//! times are written to a temporary database with the same library and read in both directions,
//! from the memtable, from tables and from both; of all candidate locations, those are kept that
//! held the right value every time. Memory is read only through `/proc/self/mem` of this process,
//! where an invalid address is an error and not a crash.
//!
//! Invariant: a chain that is returned was right for every probe, with every combination of
//! settings that occurs in the import.

use super::api::{Database, FamilyConfig, IterPosition, Library, ScanDirection};
use super::expiry_chain::{ExpiryChain, KeyAnchor, OBJECT_WINDOW};
use crate::failure::{Failure, Result};
use crate::foreign::comparators;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Entries per round.
const PROBES: usize = 24;
/// Maximum number of pointers that are followed.
const HOPS_MAX: usize = 2;
/// Maximum time to wait for a table of a few entries, even on a very busy machine.
const TABLE_TIMEOUT: Duration = Duration::from_secs(600);
const WORD_BYTES: usize = size_of::<usize>();

/// The memory of this process.
struct ProcessMemory(File);

impl ProcessMemory {
    fn open() -> Result<ProcessMemory> {
        let path = Path::new("/proc/self/mem");
        File::open(path).map(ProcessMemory).map_err(|e| Failure::file("open", path, &e))
    }
    fn read_word(&self, at: usize) -> Option<usize> {
        let mut bytes = [0; WORD_BYTES];
        self.0.read_exact_at(&mut bytes, u64::try_from(at).ok()?).ok()?;
        Some(usize::from_ne_bytes(bytes))
    }
    /// Reads the words of an object; fewer at the end of mapped memory.
    fn read_words(&self, at: usize) -> Vec<usize> {
        if at < 4096 || !at.is_multiple_of(WORD_BYTES) {
            return Vec::new();
        }
        let mut bytes = [0; OBJECT_WINDOW];
        let n =
            u64::try_from(at).ok().and_then(|at| self.0.read_at(&mut bytes, at).ok()).unwrap_or(0);
        bytes[..n]
            .chunks_exact(WORD_BYTES)
            .map(|w| usize::from_ne_bytes(w.try_into().unwrap_or_default()))
            .collect()
    }
    /// Returns the address of the object at the end of these hops.
    fn follow_hops(&self, from: usize, hops: &[usize]) -> Option<usize> {
        hops.iter().try_fold(from, |at, hop| self.read_word(at.checked_add(*hop)?))
    }
}

/// Candidate location of the expiry time, with the candidate anchors of the key.
struct ExpiryLocation {
    hops: Vec<usize>,
    expiry_offset: usize,
    anchors: Vec<KeyAnchor>,
}

/// The search for the chain, with the remaining candidates.
struct ExpirySearch {
    memory: ProcessMemory,
    candidates: Option<Vec<ExpiryLocation>>,
}

/// Returns true if a stored word can be this expiry time; without one, 0 or -1 is stored.
fn is_expiry(stored: usize, known: i64) -> bool {
    let stored = stored as i64;
    if known > 0 { stored == known } else { (-1..=0).contains(&stored) }
}

fn find_anchors(words: &[usize], object: usize, key: usize) -> Vec<KeyAnchor> {
    let pointers = words
        .iter()
        .enumerate()
        .filter(|(_, w)| **w == key)
        .map(|(i, _)| KeyAnchor::Pointer(i * WORD_BYTES));
    let inside =
        key.checked_sub(object).filter(|offset| *offset < OBJECT_WINDOW).map(KeyAnchor::Inside);
    pointers.chain(inside).collect()
}

impl ExpirySearch {
    /// Checks the candidates against an iterator at an entry whose expiry time is known.
    fn observe(&mut self, at: &IterPosition<'_>, known: i64) {
        let (iter, key) = (at.iter.addr(), at.key.as_ptr().addr());
        match &mut self.candidates {
            // The first entry with an expiry time yields the candidates.
            None if known <= 0 => {}
            None => {
                let mut locations = Vec::new();
                self.memory.find_locations(iter, &mut Vec::new(), known, key, &mut locations);
                self.candidates = Some(locations);
            }
            Some(locations) => {
                let memory = &self.memory;
                locations.retain_mut(|location| {
                    let Some(object) = memory.follow_hops(iter, &location.hops) else {
                        return false;
                    };
                    let words = memory.read_words(object);
                    let matches = words
                        .get(location.expiry_offset / WORD_BYTES)
                        .is_some_and(|w| is_expiry(*w, known));
                    let anchors = find_anchors(&words, object, key);
                    location.anchors.retain(|a| anchors.contains(a));
                    matches && !location.anchors.is_empty()
                });
            }
        }
    }
    /// Returns the shortest chain that was right for all probes.
    fn best_chain(&self) -> Option<ExpiryChain> {
        let best = self
            .candidates
            .as_ref()?
            .iter()
            .min_by_key(|p| (p.hops.len(), p.hops.clone(), p.expiry_offset))?;
        Some(ExpiryChain {
            hops: best.hops.clone(),
            expiry_offset: best.expiry_offset,
            anchor: *best.anchors.first()?,
        })
    }
}

impl ProcessMemory {
    /// Finds every location of the expiry time in an object that has an anchor of the key.
    fn find_locations(
        &self,
        object: usize,
        hops: &mut Vec<usize>,
        known: i64,
        key: usize,
        locations: &mut Vec<ExpiryLocation>,
    ) {
        let words = self.read_words(object);
        let anchors = find_anchors(&words, object, key);
        if !anchors.is_empty() {
            let matches = words.iter().enumerate().filter(|(_, w)| is_expiry(**w, known));
            locations.extend(matches.map(|(i, _)| ExpiryLocation {
                hops: hops.clone(),
                expiry_offset: i * WORD_BYTES,
                anchors: anchors.clone(),
            }));
        }
        if hops.len() < HOPS_MAX {
            for (i, word) in words.iter().enumerate() {
                hops.push(i * WORD_BYTES);
                self.find_locations(*word, hops, known, key, locations);
                hops.pop();
            }
        }
    }
}

/// Returns the settings that determine how the library reads a column family.
fn settings_key(config: &FamilyConfig) -> (i32, i32, usize, String) {
    (config.btree, config.compression, config.value_threshold, probe_comparator(config))
}

/// Returns the comparator for the probes: that of the column family if it is built in.
fn probe_comparator(config: &FamilyConfig) -> String {
    comparators::comparator_by_name(&config.comparator())
        .map_or("memcmp", comparators::comparator_name)
        .to_owned()
}

/// Finds the chain that is right for column families with all these settings, using a temporary
/// database in the empty directory `dir`.
pub fn find_expiry_chain(
    library: &Rc<Library>,
    dir: &Path,
    unified: bool,
    families: &[FamilyConfig],
) -> Result<ExpiryChain> {
    let db = library.open(dir, unified)?;
    let mut search = ExpirySearch { memory: ProcessMemory::open()?, candidates: None };
    let mut seen = BTreeSet::new();
    for config in families {
        if seen.insert(settings_key(config)) {
            let name = format!("probe{}", seen.len());
            db.create_family_like(&name, *config, &probe_comparator(config))?;
            probe_entries(&db, &name, &dir.join(&name), config.value_threshold, &mut search)?;
        }
    }
    search.best_chain().ok_or_else(|| {
        unreadable_expiry_failure("the expiry times were not found in its iterators")
    })
}

/// Returns the error for expiry times that cannot be read.
pub fn unreadable_expiry_failure(reason: &str) -> Failure {
    Failure::other(
        "import",
        format!("the expiry times of entries cannot be read with this library: {reason}"),
    )
    .hint("--ignore-ttl imports all entries without expiry times")
}

/// Reads probe entries in the memtable, in a table, and in both.
fn probe_entries(
    db: &Database,
    family: &str,
    dir: &Path,
    threshold: usize,
    search: &mut ExpirySearch,
) -> Result<()> {
    let now = super::now_secs();
    let expiry = |round: usize, i: usize| match (i + round) % 4 {
        3 => -1,
        // In a month, all different and unordered.
        _ => now + 2_592_000 + i64::try_from((i * 7919 + round * 104_729) % 1_000_003).unwrap_or(0),
    };
    // Eight bytes, the last of them 0: a valid key for every built-in comparator.
    let key = |i: usize| format!("prob{i:03}\0").into_bytes();
    let value = |i: usize| {
        vec![b'v'; if i.is_multiple_of(5) { threshold.min(64 << 10) + 100 } else { 10 + i }]
    };
    let write = |round: usize, step: usize| {
        let probes = (0..PROBES).step_by(step);
        db.put(family, &probes.map(|i| (key(i), value(i), expiry(round, i))).collect::<Vec<_>>())
    };
    let mut read_all = |expiries: &dyn Fn(usize) -> i64| {
        let mut seen = 0;
        let mut visit = |at: &IterPosition<'_>| {
            let number =
                at.key.get(4..7).and_then(|n| std::str::from_utf8(n).ok()?.parse::<usize>().ok());
            let Some(i) = number.filter(|i| *i < PROBES) else {
                return Err(unreadable_expiry_failure("it returns entries that were not written"));
            };
            search.observe(at, expiries(i));
            seen += 1;
            Ok(())
        };
        db.for_each_position(family, ScanDirection::Forward, &mut visit)?;
        db.for_each_position(family, ScanDirection::Backward, &mut visit)?;
        if seen == 2 * PROBES {
            Ok(())
        } else {
            Err(unreadable_expiry_failure("it does not return all entries that were written"))
        }
    };
    write(0, 1)?;
    read_all(&|i| expiry(0, i))?;
    flush_to_table(db, family, dir)?;
    read_all(&|i| expiry(0, i))?;
    write(1, 2)?;
    read_all(&|i| expiry(if i.is_multiple_of(2) { 1 } else { 0 }, i))
}

/// Flushes, and waits until there is a table.
fn flush_to_table(db: &Database, family: &str, dir: &Path) -> Result<()> {
    db.flush(family)?;
    let started = Instant::now();
    let has_table = || {
        let Ok(files) = std::fs::read_dir(dir) else { return false };
        files.flatten().any(|f| f.path().extension().is_some_and(|e| e == "klog"))
    };
    while !has_table() {
        if started.elapsed() > TABLE_TIMEOUT {
            return Err(unreadable_expiry_failure("a flush does not produce a table"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
