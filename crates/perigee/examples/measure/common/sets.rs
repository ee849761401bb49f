//! Data sets for the benchmark examples: generated, or read from a file.
#![allow(dead_code)]

use std::borrow::Cow;

/// Hashes a number.
pub fn scramble(i: u64) -> u64 {
    let x = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB) ^ x >> 31
}

enum DataSetKind {
    /// Keys are a counter, byte-swapped or not, or random; values are an ascending byte sequence,
    /// or half random.
    Generated { swapped: bool, random: bool, half: bool },
    /// Records of a file in random order; `records` are offset, key length and value length.
    File { bytes: Vec<u8>, records: Vec<(usize, usize, usize)> },
}

/// A data set: entries by number.
pub struct DataSet {
    kind: DataSetKind,
    n: u64,
}

impl DataSet {
    /// Creates the data set `name`: see the example `disk_sizes`.
    pub fn new(name: &str, n: u64) -> std::io::Result<DataSet> {
        let generated = |swapped, random, half| DataSet {
            kind: DataSetKind::Generated { swapped, random, half },
            n,
        };
        Ok(match name {
            "ascending" => generated(false, false, false),
            "swapped" => generated(true, false, false),
            "ramp" => generated(false, true, false),
            "half" => generated(false, true, true),
            file => Self::file(std::fs::read(file)?, n),
        })
    }

    fn file(bytes: Vec<u8>, n: u64) -> DataSet {
        let word = |at: usize| {
            bytes.get(at..at + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize)
        };
        let (mut records, mut at) = (Vec::new(), 0);
        while let (Some(key), Some(value)) = (word(at), word(at + 4)) {
            records.push((at + 8, key, value));
            at += 8 + key + value;
        }
        for i in (1..records.len()).rev() {
            records.swap(i, (scramble(i as u64) % (i as u64 + 1)) as usize);
        }
        records.truncate(n as usize);
        let n = records.len() as u64;
        DataSet { kind: DataSetKind::File { bytes, records }, n }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> u64 {
        self.n
    }
    /// Returns the total bytes of all keys and values.
    pub fn raw_bytes(&self) -> usize {
        (0..self.n).map(|i| self.key(i).len() + self.value(i).len()).sum()
    }
    /// Returns a pseudo-random entry number for `i`.
    pub fn random_index(&self, i: u64) -> u64 {
        scramble(i ^ 0x5555) % self.n
    }

    pub fn key(&self, i: u64) -> Cow<'_, [u8]> {
        match &self.kind {
            DataSetKind::File { bytes, records } => {
                let (at, key, _) = records[i as usize];
                Cow::Borrowed(&bytes[at..at + key])
            }
            DataSetKind::Generated { random: true, .. } => {
                Cow::Owned([scramble(i).to_be_bytes(), scramble(!i).to_be_bytes()].concat())
            }
            DataSetKind::Generated { swapped, .. } => {
                let id = if *swapped { i.swap_bytes() } else { i };
                Cow::Owned([id.to_be_bytes(), *b"00000000"].concat())
            }
        }
    }

    pub fn value(&self, i: u64) -> Cow<'_, [u8]> {
        match &self.kind {
            DataSetKind::File { bytes, records } => {
                let (at, key, value) = records[i as usize];
                Cow::Borrowed(&bytes[at + key..at + key + value])
            }
            DataSetKind::Generated { half: false, .. } => {
                Cow::Owned((0..100).map(|n| (i as u8).wrapping_add(n)).collect())
            }
            DataSetKind::Generated { .. } => {
                let mut v = vec![b'v'; 100];
                let mut x = i;
                for chunk in v[..50].chunks_mut(8) {
                    x = scramble(x);
                    chunk.copy_from_slice(&x.to_le_bytes()[..chunk.len()]);
                }
                Cow::Owned(v)
            }
        }
    }
}
