//! Test support for this crate: a seeded generator, owned entries, an in-memory directory, and
//! damage.

use perigee_base::{
    EntryRef, Error, ErrorKind, Expiry, FileId, KeyComparator, Result, SeqNo, ValueRef,
    VlogPointer, cmp_entry,
};
use perigee_env::{Dir, DirLock, RandomAccessFile, WritableFile};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// A small deterministic random number generator (a counter through a mixer).
pub struct TestRng(u64);

impl TestRng {
    pub fn new(seed: u64) -> TestRng {
        TestRng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        z = (z ^ (z >> 29)).wrapping_mul(0xA24B_AED4_963E_E407);
        z ^ (z >> 32)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

/// An owned value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TestValue {
    None,
    Inline(Vec<u8>),
    Pointer(VlogPointer),
    InlineExpiring(Vec<u8>, u64),
    PointerExpiring(VlogPointer, u64),
}

/// An owned entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestEntry {
    pub key: Vec<u8>,
    pub seq: SeqNo,
    pub value: TestValue,
}

impl TestEntry {
    pub fn put(key: &[u8], seq: u64, value: &[u8]) -> TestEntry {
        TestEntry { key: key.to_vec(), seq: SeqNo(seq), value: TestValue::Inline(value.to_vec()) }
    }
    pub fn delete(key: &[u8], seq: u64) -> TestEntry {
        TestEntry { key: key.to_vec(), seq: SeqNo(seq), value: TestValue::None }
    }
    pub fn as_ref(&self) -> EntryRef<'_> {
        let value = match &self.value {
            TestValue::None => ValueRef::Tombstone,
            TestValue::Inline(v) => ValueRef::Inline(v),
            TestValue::Pointer(p) => ValueRef::Pointer(*p),
            TestValue::InlineExpiring(v, ms) => ValueRef::InlineExpiring(v, Expiry(*ms)),
            TestValue::PointerExpiring(p, ms) => ValueRef::PointerExpiring(*p, Expiry(*ms)),
        };
        EntryRef { key: &self.key, seq: self.seq, value }
    }
    pub fn sorts_before(&self, k: &[u8], seq: SeqNo) -> bool {
        cmp_entry(KeyComparator::Bytes, (&self.key, self.seq), (k, seq)).is_lt()
    }
}

/// Returns at most `most` entries in entry order: shared prefixes, NULs, empty keys, chains of
/// versions, every kind.
pub fn sorted_entries(rng: &mut TestRng, most: u64) -> Vec<TestEntry> {
    let n = 1 + rng.below(most);
    let prefix = {
        let len = rng.below(12) as usize;
        rng.bytes(len)
    };
    let letters = [2, 3, 256][rng.below(3) as usize];
    let versions = [1, 2, 40][rng.below(3) as usize];
    let value_bytes = [1, 10, 300][rng.below(3) as usize];
    let shift = rng.below(50);
    let mut all = BTreeMap::new();
    while (all.len() as u64) < n {
        let mut k = if rng.below(8) == 0 { Vec::new() } else { prefix.clone() };
        let len = if rng.below(20) == 0 { 300 } else { rng.below(10) };
        k.extend((0..len).map(|_| (rng.below(letters) * [1, 255][rng.below(2) as usize]) as u8));
        for _ in 0..1 + rng.below(versions) {
            let seq = 1 + (rng.next() >> 8 >> shift);
            let len = rng.below(value_bytes) as usize;
            let value = match rng.below(10) {
                0 => TestValue::None,
                1 => TestValue::Pointer(pointer(rng)),
                2 => TestValue::Inline(Vec::new()),
                4 => TestValue::InlineExpiring(rng.bytes(len), rng.next()),
                5 => TestValue::PointerExpiring(pointer(rng), rng.next()),
                3 => TestValue::Inline(rng.bytes(len)),
                _ => TestValue::Inline(vec![7; len]),
            };
            all.insert((k.clone(), std::cmp::Reverse(seq)), value);
        }
    }
    all.into_iter().map(|((key, seq), value)| TestEntry { key, seq: SeqNo(seq.0), value }).collect()
}

fn pointer(rng: &mut TestRng) -> VlogPointer {
    let shift = 34 + rng.below(28);
    VlogPointer {
        file: FileId(rng.below(4)),
        offset: rng.next() >> shift,
        stored_bytes: 1 + (rng.next() >> shift),
        value_bytes: 1 + (rng.next() >> shift),
    }
}

/// Applies one to three small mutations.
pub fn mutate(rng: &mut TestRng, good: &[u8]) -> Vec<u8> {
    let mut bad = good.to_vec();
    for _ in 0..1 + rng.below(3) {
        let at = rng.below(bad.len().max(1) as u64) as usize;
        match rng.below(8) {
            0 => bad.truncate(at),
            1 => bad.insert(at, rng.next() as u8),
            2 if at + 8 <= bad.len() => bad[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes()),
            3 if at + 4 <= bad.len() => {
                bad[at..at + 4].copy_from_slice(&(rng.below(300) as u32).to_le_bytes())
            }
            _ if at < bad.len() => bad[at] = rng.next() as u8,
            _ => bad.push(0),
        }
    }
    bad
}

/// Returns the `n`th hex example of a format page, without white space and comments (`# ...`).
pub fn hex_of_page(page: &str, n: usize) -> String {
    let example = page.split("```hex").nth(n + 1).unwrap_or_default();
    let lines = example.split("```").next().unwrap_or_default().lines();
    lines.flat_map(|l| l.split('#').next().unwrap_or_default().split_whitespace()).collect()
}

/// Decodes hex digits.
pub fn from_hex(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect()
}

/// Encodes bytes as hex digits.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

type SharedBytes = Arc<Mutex<Vec<u8>>>;

/// A directory in memory.
#[derive(Debug, Default)]
pub struct TestDir(Mutex<BTreeMap<String, SharedBytes>>);

impl TestDir {
    pub fn new() -> Arc<TestDir> {
        Arc::default()
    }
    pub fn get(&self, name: &str) -> Vec<u8> {
        self.0.lock().unwrap()[name].lock().unwrap().clone()
    }
    pub fn put(&self, name: &str, bytes: Vec<u8>) {
        self.0.lock().unwrap().insert(name.into(), Arc::new(Mutex::new(bytes)));
    }
}

#[derive(Debug)]
struct TestFile(SharedBytes);

impl WritableFile for TestFile {
    fn append(&self, parts: &[&[u8]]) -> Result<()> {
        parts.iter().for_each(|p| self.0.lock().unwrap().extend_from_slice(p));
        Ok(())
    }
    fn len(&self) -> u64 {
        self.0.lock().unwrap().len() as u64
    }
    fn truncate(&self, len: u64) -> Result<()> {
        self.0.lock().unwrap().truncate(len as usize);
        Ok(())
    }
    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

impl RandomAccessFile for TestFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let all = self.0.lock().unwrap();
        let end = offset as usize + buf.len();
        buf.copy_from_slice(
            all.get(offset as usize..end).ok_or_else(|| Error::corruption("ends early"))?,
        );
        Ok(())
    }
    fn len(&self) -> Result<u64> {
        Ok(WritableFile::len(self))
    }
}

impl Dir for TestDir {
    fn path(&self) -> &Path {
        Path::new("/test")
    }
    fn is_located_at(&self, path: &Path) -> Result<bool> {
        Ok(path == self.path())
    }
    fn list(&self) -> Result<Vec<String>> {
        Ok(self.0.lock().unwrap().keys().cloned().collect())
    }
    fn list_non_files(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
    fn file_len(&self, name: &str) -> Result<Option<u64>> {
        Ok(self.0.lock().unwrap().get(name).map(|f| f.lock().unwrap().len() as u64))
    }
    fn create(&self, name: &str) -> Result<Arc<dyn WritableFile>> {
        if self.0.lock().unwrap().contains_key(name) {
            return Err(Error::new(ErrorKind::AlreadyExists, name));
        }
        self.put(name, Vec::new());
        self.append_to(name)
    }
    fn append_to(&self, name: &str) -> Result<Arc<dyn WritableFile>> {
        Ok(Arc::new(TestFile(self.0.lock().unwrap()[name].clone())))
    }
    fn open(&self, name: &str) -> Result<Arc<dyn RandomAccessFile>> {
        match self.0.lock().unwrap().get(name) {
            Some(f) => Ok(Arc::new(TestFile(f.clone()))),
            None => Err(Error::new(ErrorKind::NotFound, name)),
        }
    }
    fn rename(&self, _from: &str, _to: &str) -> Result<()> {
        unimplemented!("table files are never renamed")
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.0.lock().unwrap().remove(name);
        Ok(())
    }
    fn sync(&self) -> Result<()> {
        Ok(())
    }
    fn lock(&self, _name: &str) -> Result<Box<dyn DirLock>> {
        unimplemented!("table files are never locked")
    }
    fn subdir(&self, _name: &str) -> Result<Arc<dyn Dir>> {
        unimplemented!("table files are in one directory")
    }
    fn move_into(&self, _name: &str, _subdir: &str) -> Result<()> {
        unimplemented!("table files are never moved")
    }
}
