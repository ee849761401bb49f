//! The decoders of rows and schemas on random and on mutated bytes, without a fuzzer: the
//! stable-toolchain smoke run of the targets `row` and `schema` in `fuzz/`, which call the same
//! functions.
#![allow(clippy::unwrap_used)]

use perigee_tables::{fuzz_row, fuzz_schema, row_sample, schema_sample};

/// A generator of pseudo-random numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
    fn byte(&mut self) -> u8 {
        let special = [0, 1, 2, 0x7f, 0x80, 0xfe, 0xff];
        if self.below(2) == 0 { special[self.below(7)] } else { self.next() as u8 }
    }
    /// Overwrites, removes, inserts or repeats some bytes.
    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..1 + self.below(4) {
            let at = self.below(bytes.len() + 1);
            let byte = self.byte();
            match self.below(6) {
                0 => bytes.insert(at, byte),
                1 => bytes.truncate(at),
                2 => bytes.extend_from_within(at..),
                3 if at < bytes.len() => drop(bytes.remove(at)),
                _ if at < bytes.len() => bytes[at] = byte,
                _ => bytes.push(byte),
            }
        }
    }
}

/// Passes random bytes and mutated samples to a target. Returns the number of accepted mutations.
fn smoke(target: fn(&[u8]) -> bool, sample: impl Fn(u8) -> Vec<u8>) -> usize {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for number in 0..=255 {
        assert!(target(&sample(number)), "sample {number} is valid");
    }
    let mut accepted = 0;
    for _ in 0..20_000 {
        let bytes: Vec<u8> = (0..random.below(200)).map(|_| random.byte()).collect();
        target(&bytes);
        let mut bytes = sample(random.next() as u8);
        random.mutate(&mut bytes);
        accepted += usize::from(target(&bytes));
    }
    accepted
}

#[test]
fn rows_of_any_bytes_are_refused_or_valid() {
    let accepted = smoke(fuzz_row, row_sample);
    assert!(accepted > 1000, "only {accepted} mutations reach the checks of valid rows");
}

#[test]
fn schemas_of_any_bytes_are_refused_or_valid() {
    let accepted = smoke(fuzz_schema, |_| schema_sample());
    assert!(accepted > 300, "only {accepted} mutations reach the checks of valid schemas");
}
