//! Compares kinds of klog index: `cargo run --release -p perigeedb-file --example index_kinds --
//! [KEY FILE]...`.
//!
//! For each key set (generated ones, and the lines of each file), divided into blocks of 100
//! entries, at most 8192 blocks, it prints: CPU time per search for random keys of the set, bytes
//! of the search structure per separator (the separators themselves and the block offsets are the
//! same for all kinds), and time to decode the index per separator.

use perigee_base::{KeyComparator, SeqNo};
use perigee_file::{IndexKind, IndexReader, IndexWriter, TableBlock, block_separator};
use std::hint::black_box;

const ENTRIES: usize = 100;
const BLOCKS_MAX: usize = 8192;
/// Number of lookup keys, size of a stored lookup key, and rounds of lookups.
const LOOKUPS: usize = 8192;
const KEY_BYTES: usize = 128;
const ROUNDS: usize = 200;
const REPS: usize = 5;
const DECODES: usize = 100;
const KINDS: [IndexKind; 2] = [IndexKind::BinarySearch, IndexKind::KeyPrefixes];

struct Rng(u64);
impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        let z = (z ^ (z >> 29)).wrapping_mul(0xA24B_AED4_963E_E407);
        z ^ (z >> 32)
    }
}

fn generate_key_sets() -> Vec<(String, Vec<Vec<u8>>)> {
    let n = (ENTRIES * BLOCKS_MAX) as u64;
    let mut r = Rng(3);
    let binary = (0..n).map(|i| i.to_be_bytes().to_vec()).collect();
    let decimal = (0..n).map(|i| format!("user{i:012}").into_bytes()).collect();
    let random =
        (0..n).map(|_| [r.next().to_be_bytes(), r.next().to_be_bytes()].concat()).collect();
    // Irregular timestamps: the number of entries per second varies.
    let mut now = 1_700_000_000_000_000u64;
    let time = (0..n)
        .map(|_| {
            now += r.next() % (1 << (r.next() % 24));
            now.to_be_bytes().to_vec()
        })
        .collect();
    let clustered = (0..n)
        .map(|i| format!("tenant{:03}/{:010}", r.next() % 300, i * 7 + r.next() % 7).into_bytes())
        .collect();
    [
        ("sequential, 8 bytes", binary),
        ("sequential, decimal", decimal),
        ("random, 16 bytes", random),
        ("timestamps", time),
        ("clustered", clustered),
    ]
    .map(|(name, keys)| (name.to_owned(), keys))
    .into()
}

fn read_key_set(file: &str) -> (String, Vec<Vec<u8>>) {
    let bytes = std::fs::read(file).expect("cannot read the key file");
    let name = file.rsplit('/').next().unwrap_or(file).to_owned();
    (name, bytes.split(|b| *b == b'\n').filter(|l| !l.is_empty()).map(<[u8]>::to_vec).collect())
}

/// Returns the raw index over sorted keys, and the number of its data blocks.
fn build_raw_index(keys: &[Vec<u8>]) -> (Vec<u8>, usize) {
    let mut writer = IndexWriter::new(KeyComparator::Bytes);
    let blocks = keys.len().div_ceil(ENTRIES).min(BLOCKS_MAX);
    for b in 0..blocks {
        let last = &keys[((b + 1) * ENTRIES).min(keys.len()) - 1];
        let (key, seq) = match keys.get((b + 1) * ENTRIES) {
            Some(next) if b + 1 < blocks => {
                block_separator(KeyComparator::Bytes, (last, SeqNo(1)), next)
            }
            _ => (last.clone(), SeqNo::ZERO),
        };
        writer.add_block((&key, seq), 9000);
    }
    let mut out = Vec::new();
    writer.finish(&mut out);
    out.resize(out.len() + TableBlock::SLACK, 0);
    (out, blocks)
}

/// Returns the CPU time of this thread in nanoseconds.
fn cpu_ns() -> u64 {
    let line =
        std::fs::read_to_string("/proc/thread-self/schedstat").expect("needs Linux schedstat");
    line.split(' ').next().and_then(|w| w.parse().ok()).expect("schedstat starts with a number")
}

/// Returns the CPU time of `work` in nanoseconds per operation.
fn cpu_ns_per_op(operations: usize, work: impl FnOnce() -> usize) -> f64 {
    let start = cpu_ns();
    black_box(work());
    (cpu_ns() - start) as f64 / operations as f64
}
fn median(mut values: [f64; REPS]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[REPS / 2]
}
/// Encodes a key in a fixed number of bytes: its length, then the key, truncated if too long.
fn to_fixed_length(key: &[u8]) -> [u8; KEY_BYTES] {
    let mut out = [0; KEY_BYTES];
    let n = key.len().min(KEY_BYTES - 1);
    out[0] = n as u8;
    out[1..=n].copy_from_slice(&key[..n]);
    out
}

fn main() {
    let files = std::env::args().skip(1).map(|f| read_key_set(&f));
    println!(
        "| keys | blocks | bytes of a separator | kind | ns per search | bytes | \
         ns to decode |\n|---|---|---|---|---|---|---|"
    );
    for (name, mut keys) in generate_key_sets().into_iter().chain(files) {
        keys.sort();
        keys.dedup();
        let (raw, blocks) = build_raw_index(&keys);
        let mut r = Rng(17);
        let in_blocks = keys.len().min(blocks * ENTRIES) as u64;
        // Contiguous, so that reading the lookup keys adds no memory latency.
        let lookup_keys: Vec<u8> = (0..LOOKUPS)
            .flat_map(|_| to_fixed_length(&keys[(r.next() % in_blocks) as usize]))
            .collect();
        let lookup_keys = || lookup_keys.chunks(KEY_BYTES).map(|c| &c[1..1 + c[0] as usize]);
        let decode = |kind| {
            let data = 72..72 + 9000 * blocks as u64;
            IndexReader::decode_with_kind(kind, raw.clone(), data, KeyComparator::Bytes)
                .expect("the index is well-formed")
        };
        let indexes = KINDS.map(decode);
        let (mut times, mut decoding) = ([[0.0; KINDS.len()]; REPS], [[0.0; KINDS.len()]; REPS]);
        // The kinds are interleaved; the result is the median.
        for rep in 0..REPS {
            for (k, index) in indexes.iter().enumerate() {
                times[rep][k] = cpu_ns_per_op(LOOKUPS * ROUNDS, || {
                    let find =
                        |key| index.find_block(KeyComparator::Bytes, black_box(key), SeqNo::MAX);
                    (0..ROUNDS).map(|_| lookup_keys().map(find).sum::<usize>()).sum()
                });
                decoding[rep][k] = cpu_ns_per_op(DECODES * blocks, || {
                    (0..DECODES).map(|_| decode(KINDS[k]).block_count()).sum()
                });
            }
        }
        let all = |key: &[u8]| {
            indexes.each_ref().map(|i| i.find_block(KeyComparator::Bytes, key, SeqNo::MAX))
        };
        assert!(
            lookup_keys().all(|k| all(k).windows(2).all(|w| w[0] == w[1])),
            "the kinds disagree"
        );
        for (k, index) in indexes.iter().enumerate() {
            let (time, decode_time) = (median(times.map(|t| t[k])), median(decoding.map(|t| t[k])));
            let bytes = index.search_bytes() as f64 / blocks as f64;
            let kind = if index.search_kind() == KINDS[k] {
                format!("{:?}", KINDS[k])
            } else {
                format!("{:?}: none", KINDS[k])
            };
            let separators = (raw.len() - TableBlock::SLACK) as f64 / blocks as f64;
            println!(
                "| {name} | {blocks} | {separators:.1} | {kind} | {time:.0} | {bytes:.2} | \
                 {decode_time:.0} |"
            );
        }
    }
}
