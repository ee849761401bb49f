//! Every decoder on random and on mutated bytes, without a fuzzer: the stable-toolchain smoke run
//! of `fuzz/`.
//!
//! The targets behind it are the same functions; a crash that a fuzzer finds is replayed by adding
//! its bytes here.
#![allow(clippy::unwrap_used)]

use perigee_engine::fuzz as engine;
use perigee_env::SeededRng;
use perigee_file::fuzz as file;

/// `rounds` inputs: random bytes, small numbers, and repetitions, up to `max` bytes.
fn smoke(name: &str, rounds: u64, max: u64, target: impl Fn(&[u8]) -> bool) -> u64 {
    let mut rng = SeededRng::new(name.bytes().fold(17, |h, b| h * 31 + u64::from(b)));
    let mut accepted = 0;
    for round in 0..rounds {
        let len = rng.next_u64() % max;
        let mut byte = |_| match round % 3 {
            0 => rng.next_u64() as u8,
            1 => (rng.next_u64() % 6) as u8,
            _ => [0, 1, 2, 0x7f, 0x80, 0xff][(rng.next_u64() % 6) as usize],
        };
        let bytes: Vec<u8> = (0..len).map(&mut byte).collect();
        accepted += u64::from(target(&bytes));
    }
    accepted
}

#[test]
fn decoders_do_not_panic() {
    smoke("frame", 20_000, 200, file::fuzz_frame);
    smoke("block", 20_000, 300, file::fuzz_block);
    smoke("column", 20_000, 64, file::fuzz_column);
    smoke("ranges", 20_000, 200, file::fuzz_ranges);
    smoke("filter", 20_000, 200, file::fuzz_filter);
    smoke("props", 20_000, 100, file::fuzz_props);
    smoke("footer", 20_000, 120, file::fuzz_footer);
    smoke("pointer", 20_000, 40, file::fuzz_pointer);
    smoke("klog", 5_000, 600, file::fuzz_klog);
    smoke("vlog", 5_000, 400, file::fuzz_vlog);
    assert!(smoke("batch", 20_000, 60, engine::fuzz_batch) > 0);
    assert!(smoke("prepare", 20_000, 60, engine::fuzz_prepare) > 0);
    assert!(smoke("edit", 20_000, 60, engine::fuzz_edit) > 0);
    smoke("crypt", 20_000, 120, engine::fuzz_crypt);
    smoke("generation", 20_000, 60, engine::fuzz_generation);
    assert!(smoke("log", 10_000, 200, engine::fuzz_log) > 0);
}

#[test]
fn open_of_arbitrary_files_does_not_panic() {
    assert!(engine::fuzz_directory(&[]), "the untouched directory opens");
    let accepted = smoke("directory", 300, 30, engine::fuzz_directory);
    assert!(accepted < 150, "most damage is noticed: {accepted} of 300 accepted");
}
