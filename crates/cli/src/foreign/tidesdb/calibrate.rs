//! Finds the chain from an iterator to the end of its entry: in a database made for it with the
//! same library, entries with known ends are walked over, both ways, from the memtable, from tables
//! and from both, and of all places that may be meant those are kept that held the right end every
//! time. Reads memory only as bytes of this process's own `/proc/self/mem`, where a wrong address
//! is an error and not a crash.
//!
//! Invariant: a chain that is given was right for every probe of every kind of family and source
//! that the import will meet.

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

/// Entries of a round.
const PROBES: usize = 24;
/// Pointers that are followed at most.
const HOPS_MAX: usize = 2;
/// How long a table of a few entries may take to appear, on the busiest machine.
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
    /// The words at the offsets of an object; fewer where memory ends.
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
    /// The object at the end of these hops.
    fn follow_hops(&self, from: usize, hops: &[usize]) -> Option<usize> {
        hops.iter().try_fold(from, |at, hop| self.read_word(at.checked_add(*hop)?))
    }
}

/// Places where the end may be, and where the key may be as seen from there.
struct ExpiryLocation {
    hops: Vec<usize>,
    expiry_offset: usize,
    anchors: Vec<KeyAnchor>,
}

/// The places that are left.
struct ExpirySearch {
    memory: ProcessMemory,
    candidates: Option<Vec<ExpiryLocation>>,
}

/// An end as it may be stored: that of an entry without one is 0 or less.
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
    /// An iterator stands on an entry whose end is known.
    fn observe(&mut self, at: &IterPosition<'_>, known: i64) {
        let (iter, key) = (at.iter.addr(), at.key.as_ptr().addr());
        match &mut self.candidates {
            // The first one with an end shows where to look at all.
            None if known <= 0 => {}
            None => {
                let mut places = Vec::new();
                self.memory.find_locations(iter, &mut Vec::new(), known, key, &mut places);
                self.candidates = Some(places);
            }
            Some(places) => {
                let memory = &self.memory;
                places.retain_mut(|p| {
                    let Some(object) = memory.follow_hops(iter, &p.hops) else { return false };
                    let words = memory.read_words(object);
                    let right = words
                        .get(p.expiry_offset / WORD_BYTES)
                        .is_some_and(|w| is_expiry(*w, known));
                    let now = find_anchors(&words, object, key);
                    p.anchors.retain(|a| now.contains(a));
                    right && !p.anchors.is_empty()
                });
            }
        }
    }
    /// The shortest chain that was always right.
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
    /// Finds every place of an end whose object knows the key.
    fn find_locations(
        &self,
        object: usize,
        hops: &mut Vec<usize>,
        known: i64,
        key: usize,
        places: &mut Vec<ExpiryLocation>,
    ) {
        let words = self.read_words(object);
        let anchors = find_anchors(&words, object, key);
        if !anchors.is_empty() {
            let ends = words.iter().enumerate().filter(|(_, w)| is_expiry(**w, known));
            places.extend(ends.map(|(i, _)| ExpiryLocation {
                hops: hops.clone(),
                expiry_offset: i * WORD_BYTES,
                anchors: anchors.clone(),
            }));
        }
        if hops.len() < HOPS_MAX {
            for (i, word) in words.iter().enumerate() {
                hops.push(i * WORD_BYTES);
                self.find_locations(*word, hops, known, key, places);
                hops.pop();
            }
        }
    }
}

/// What must be the same for two families to be read in the same way.
fn settings_key(config: &FamilyConfig) -> (i32, i32, usize, String) {
    (config.btree, config.compression, config.value_threshold, probe_comparator(config))
}

/// The comparator for the probes: the family's if it is built in.
fn probe_comparator(config: &FamilyConfig) -> String {
    comparators::comparator_by_name(&config.comparator())
        .map_or("memcmp", comparators::comparator_name)
        .to_owned()
}

/// Finds the chain that holds for families with all these settings, in a database in an empty
/// directory.
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
        unreadable_expiry_failure("no place in its iterators holds the ends of entries")
    })
}

/// Why ends cannot be had.
pub fn unreadable_expiry_failure(why: &str) -> Failure {
    Failure::other(
        "import",
        format!("the time to live of entries cannot be read with this library: {why}"),
    )
    .hint("--ignore-ttl imports everything without: nothing will expire")
}

/// Walks over entries in the memtable, in a table, and in both.
fn probe_entries(
    db: &Database,
    family: &str,
    dir: &Path,
    threshold: usize,
    search: &mut ExpirySearch,
) -> Result<()> {
    let now = super::now_secs();
    let end = |round: usize, i: usize| match (i + round) % 4 {
        3 => -1,
        // A month away and all different, in no order.
        _ => now + 2_592_000 + i64::try_from((i * 7919 + round * 104_729) % 1_000_003).unwrap_or(0),
    };
    // Eight bytes, the last of them 0: a key that every built-in comparator takes.
    let key = |i: usize| format!("prob{i:03}\0").into_bytes();
    let value = |i: usize| {
        vec![b'v'; if i.is_multiple_of(5) { threshold.min(64 << 10) + 100 } else { 10 + i }]
    };
    let write = |round: usize, step: usize| {
        let some = (0..PROBES).step_by(step);
        db.put(family, &some.map(|i| (key(i), value(i), end(round, i))).collect::<Vec<_>>())
    };
    let mut look = |ends: &dyn Fn(usize) -> i64| {
        let mut seen = 0;
        let mut visit = |at: &IterPosition<'_>| {
            let number =
                at.key.get(4..7).and_then(|n| std::str::from_utf8(n).ok()?.parse::<usize>().ok());
            let Some(i) = number.filter(|i| *i < PROBES) else {
                return Err(unreadable_expiry_failure("it shows entries that were not written"));
            };
            search.observe(at, ends(i));
            seen += 1;
            Ok(())
        };
        db.for_each_position(family, ScanDirection::Forward, &mut visit)?;
        db.for_each_position(family, ScanDirection::Backward, &mut visit)?;
        if seen == 2 * PROBES {
            Ok(())
        } else {
            Err(unreadable_expiry_failure("it does not show all entries that were written"))
        }
    };
    write(0, 1)?;
    look(&|i| end(0, i))?;
    flush_to_table(db, family, dir)?;
    look(&|i| end(0, i))?;
    write(1, 2)?;
    look(&|i| end(if i.is_multiple_of(2) { 1 } else { 0 }, i))
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
            return Err(unreadable_expiry_failure("a flush does not end in a table"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
