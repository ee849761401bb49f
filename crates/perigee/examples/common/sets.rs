//! Sets of entries, made or read from a file.
#![allow(dead_code)]

use std::borrow::Cow;

/// A number without structure for every number.
pub fn scramble(i: u64) -> u64 {
    let x = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB) ^ x >> 31
}

enum DataSetKind {
    /// A counter, perhaps byte-swapped, or random keys; a ramp, or half random values.
    Made { swapped: bool, random: bool, half: bool },
    /// Records in a file, in a shuffled order.
    File { bytes: Vec<u8>, places: Vec<(usize, usize, usize)> },
}

/// Entries by number.
pub struct DataSet {
    kind: DataSetKind,
    n: u64,
}

impl DataSet {
    /// By name: see the example `sizes`.
    pub fn new(name: &str, n: u64) -> std::io::Result<DataSet> {
        let made = |swapped, random, half| DataSet {
            kind: DataSetKind::Made { swapped, random, half },
            n,
        };
        Ok(match name {
            "ascending" => made(false, false, false),
            "swapped" => made(true, false, false),
            "ramp" => made(false, true, false),
            "half" => made(false, true, true),
            file => Self::file(std::fs::read(file)?, n),
        })
    }

    fn file(bytes: Vec<u8>, n: u64) -> DataSet {
        let word = |at: usize| {
            bytes.get(at..at + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize)
        };
        let (mut places, mut at) = (Vec::new(), 0);
        while let (Some(key), Some(value)) = (word(at), word(at + 4)) {
            places.push((at + 8, key, value));
            at += 8 + key + value;
        }
        for i in (1..places.len()).rev() {
            places.swap(i, (scramble(i as u64) % (i as u64 + 1)) as usize);
        }
        places.truncate(n as usize);
        let n = places.len() as u64;
        DataSet { kind: DataSetKind::File { bytes, places }, n }
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.n
    }
    /// Bytes of all keys and values.
    pub fn raw_bytes(&self) -> usize {
        (0..self.n).map(|i| self.key(i).len() + self.value(i).len()).sum()
    }
    /// One of them, anyhow.
    pub fn random_index(&self, i: u64) -> u64 {
        scramble(i ^ 0x5555) % self.n
    }

    pub fn key(&self, i: u64) -> Cow<'_, [u8]> {
        match &self.kind {
            DataSetKind::File { bytes, places } => {
                let (at, key, _) = places[i as usize];
                Cow::Borrowed(&bytes[at..at + key])
            }
            DataSetKind::Made { random: true, .. } => {
                Cow::Owned([scramble(i).to_be_bytes(), scramble(!i).to_be_bytes()].concat())
            }
            DataSetKind::Made { swapped, .. } => {
                let id = if *swapped { i.swap_bytes() } else { i };
                Cow::Owned([id.to_be_bytes(), *b"00000000"].concat())
            }
        }
    }

    pub fn value(&self, i: u64) -> Cow<'_, [u8]> {
        match &self.kind {
            DataSetKind::File { bytes, places } => {
                let (at, key, value) = places[i as usize];
                Cow::Borrowed(&bytes[at + key..at + key + value])
            }
            DataSetKind::Made { half: false, .. } => {
                Cow::Owned((0..100).map(|n| (i as u8).wrapping_add(n)).collect())
            }
            DataSetKind::Made { .. } => {
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
