//! Many point reads in one pass: keys are sorted, so that adjacent keys reuse a block, and results
//! are returned in the caller's order. The result of each key is that of [`get`]; this module only
//! orders the work.
//!
//! Keys are processed in chunks. If a chunk had to read from disk, the blocks of the next chunk are
//! prefetched first, so that the device reads them in parallel instead of one after the other;
//! likewise values in value logs, which are known once a chunk has been looked up.

use crate::View;
use crate::get::{self, RunBlockHints};
use perigee_base::bug::{self, Bug};
use perigee_base::{Error, FileId, PinnedSlice, Result, SeqNo};
use perigee_file::EntryValue;

/// Number of keys whose reads are prefetched together.
const KEYS_PER_CHUNK: usize = 128;

/// Returns one result per key, in the order of `keys`; a failure of one key does not affect the
/// others.
pub fn multi_get(view: &View, keys: &[&[u8]], at: SeqNo) -> Vec<Result<Option<PinnedSlice>>> {
    let comparator = &view.version.comparator;
    let mut sorted: Vec<usize> = (0..keys.len()).collect();
    sorted.sort_by(|a, b| comparator.cmp(keys[*a], keys[*b]));
    let mut answers: Vec<Option<Result<Option<PinnedSlice>>>> = keys.iter().map(|_| None).collect();
    let mut hints = RunBlockHints::default();
    let mut cold = keys.len() > 1;
    for chunk in sorted.chunks(KEYS_PER_CHUNK) {
        if cold {
            let mut last = vec![None; view.version.runs().count()];
            chunk.iter().for_each(|i| prefetch_key_blocks(view, keys[*i], at, &mut last));
        }
        let misses = hints.blocks_read();
        let found = lookup_chunk(view, keys, chunk, at, &mut hints);
        check!(found.len() == chunk.len(), "every key of a chunk has a result", found.len());
        cold = hints.blocks_read() > misses;
        let chunk_keys = chunk.iter().map(|i| keys[*i]);
        for (i, answer) in chunk.iter().zip(fetch_values(view, at, chunk_keys, found)) {
            answers[*i] = Some(answer);
        }
    }
    if bug::is_active(Bug::MultiGetResultsSorted) {
        answers = sorted.iter().map(|i| answers[*i].take()).collect();
    }
    let missing = || Err(Error::internal("a key of a multi-get was not looked up"));
    answers.into_iter().map(|a| a.unwrap_or_else(missing)).collect()
}

/// Prefetches the block that a lookup of `key` would read; `last`: the block that was last
/// prefetched in each run.
fn prefetch_key_blocks(view: &View, key: &[u8], at: SeqNo, last: &mut [Option<(FileId, usize)>]) {
    let hash = view.version.comparator.filter_hash(key);
    for (run, last) in view.version.runs().zip(last) {
        if let Some(table) = run.table_covering(view.version.comparator, key) {
            table.reader.prefetch_block_for(key, hash, at, last);
        }
    }
}

type LookupResult = Result<Option<EntryValue>>;

/// Looks up each key of a chunk; equal adjacent keys are looked up once.
fn lookup_chunk(
    view: &View,
    keys: &[&[u8]],
    chunk: &[usize],
    at: SeqNo,
    hints: &mut RunBlockHints,
) -> Vec<LookupResult> {
    let mut out: Vec<LookupResult> = Vec::with_capacity(chunk.len());
    for (n, i) in chunk.iter().enumerate() {
        let same = n > 0 && view.version.comparator.keys_equal(keys[chunk[n - 1]], keys[*i]);
        out.push(match out.last() {
            Some(last) if same => last.clone(),
            _ => {
                get::lookup_with_hints(view, keys[*i], at, hints).map(|found| found.map(|(_, f)| f))
            }
        });
    }
    out
}

/// Returns the values. Those in value logs are prefetched before the first one is read.
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
