//! Many point reads in one pass: keys sorted, so that neighbours find their block at hand, and
//! answers in the caller's order. What a key's answer is, `get` decides; this room decides only the
//! order of the work.
//!
//! Keys are worked off in stretches. When a stretch had to go to the disk, the next one says
//! beforehand which blocks it will read, so that the device fetches them side by side instead of
//! one after the other; the same for values in value logs, which are known when a stretch has been
//! looked up.

use crate::View;
use crate::get::{self, RunBlockHints};
use perigee_base::bug::{self, Bug};
use perigee_base::{Error, FileId, PinnedSlice, Result, SeqNo};
use perigee_file::EntryValue;

/// Keys whose reads are announced together.
const KEYS_PER_CHUNK: usize = 128;

/// One answer for each key, in the order of `keys`; a failure of one is no failure of the others.
pub fn multi_get(view: &View, keys: &[&[u8]], at: SeqNo) -> Vec<Result<Option<PinnedSlice>>> {
    let order = &view.version.comparator;
    let mut sorted: Vec<usize> = (0..keys.len()).collect();
    sorted.sort_by(|a, b| order.cmp(keys[*a], keys[*b]));
    let mut answers: Vec<Option<Result<Option<PinnedSlice>>>> = keys.iter().map(|_| None).collect();
    let mut hand = RunBlockHints::default();
    let mut cold = keys.len() > 1;
    for stretch in sorted.chunks(KEYS_PER_CHUNK) {
        if cold {
            let mut last = vec![None; view.version.runs().count()];
            stretch.iter().for_each(|i| prefetch_key_blocks(view, keys[*i], at, &mut last));
        }
        let misses = hand.blocks_read();
        let found = lookup_chunk(view, keys, stretch, at, &mut hand);
        cold = hand.blocks_read() > misses;
        let asked = stretch.iter().map(|i| keys[*i]);
        for (i, answer) in stretch.iter().zip(fetch_values(view, at, asked, found)) {
            answers[*i] = Some(answer);
        }
    }
    if bug::is_active(Bug::SortedAnswers) {
        answers = sorted.iter().map(|i| answers[*i].take()).collect();
    }
    let missing = || Err(Error::internal("a key of a multi-get was not looked up"));
    answers.into_iter().map(|a| a.unwrap_or_else(missing)).collect()
}

/// Tells the file system which blocks the look-up of `key` would read now; `last`: the one that
/// each run announced last.
fn prefetch_key_blocks(view: &View, key: &[u8], at: SeqNo, last: &mut [Option<(FileId, usize)>]) {
    let hash = view.version.comparator.filter_hash(key);
    for (run, last) in view.version.runs().zip(last) {
        if let Some(table) = run.table_covering(view.version.comparator, key) {
            table.reader.prefetch_block_for(key, hash, at, last);
        }
    }
}

type LookupResult = Result<Option<EntryValue>>;

/// What each key of a stretch has; equal neighbours are looked up once.
fn lookup_chunk(
    view: &View,
    keys: &[&[u8]],
    stretch: &[usize],
    at: SeqNo,
    hand: &mut RunBlockHints,
) -> Vec<LookupResult> {
    let mut out: Vec<LookupResult> = Vec::with_capacity(stretch.len());
    for (n, i) in stretch.iter().enumerate() {
        let same = n > 0 && view.version.comparator.keys_equal(keys[stretch[n - 1]], keys[*i]);
        out.push(match out.last() {
            Some(last) if same => last.clone(),
            _ => {
                get::lookup_with_hints(view, keys[*i], at, hand).map(|found| found.map(|(_, f)| f))
            }
        });
    }
    out
}

/// The values, those in value logs announced before the first of them is read.
fn fetch_values<'k>(
    view: &View,
    at: SeqNo,
    keys: impl Iterator<Item = &'k [u8]>,
    found: Vec<LookupResult>,
) -> impl Iterator<Item = Result<Option<PinnedSlice>>> {
    let pointers = || found.iter().filter_map(|f| f.as_ref().ok()?.as_ref()?.vlog_pointer());
    if pointers().nth(1).is_some() {
        for p in pointers() {
            if let Some(vlog) = view.version.vlogs.get(&p.file) {
                vlog.reader.prefetch(&p);
            }
        }
    }
    keys.zip(found).map(move |(key, f)| get::read_live_value(view, key, at, f?))
}
