//! Tests of the encrypting file system on the simulated disk.

use super::*;
use crate::fs::memory::SimDisk;
use crate::fs::{DataEnd, WritableFile};
use crate::rand::SeededRng;
use perigee_base::{ENCRYPTED_MAGIC, ErrorKind};
use std::sync::Mutex;

#[derive(Debug)]
struct TestRand(Mutex<SeededRng>);

impl Rand for TestRand {
    fn next_u64(&self) -> u64 {
        self.0.lock().unwrap().next_u64()
    }
}

fn is_plain(name: &str) -> bool {
    name == "LOG"
}

fn wrap(disk: &Arc<SimDisk>, keys: KeyRing, seed: u64) -> Arc<dyn Dir> {
    let fs: Arc<dyn Fs> = Arc::clone(disk) as _;
    let rand = Arc::new(TestRand(Mutex::new(SeededRng::new(seed))));
    let fs = EncryptedFs::wrap(&fs, Arc::new(keys), rand, is_plain);
    fs.open_dir(Path::new("/db"), DirOpenMode::CreateIfMissing).unwrap()
}

fn plain(disk: &Arc<SimDisk>) -> Arc<dyn Dir> {
    disk.open_dir(Path::new("/db"), DirOpenMode::CreateIfMissing).unwrap()
}

fn read(dir: &dyn Dir, name: &str) -> Vec<u8> {
    let file = dir.open(name).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn ring(byte: u8) -> KeyRing {
    KeyRing::new([byte; KEY_BYTES])
}

#[test]
fn contents_are_stored_encrypted_and_read_back() {
    let disk = SimDisk::new(1);
    let dir = wrap(&disk, ring(1), 1);
    let file = dir.create("a").unwrap();
    assert_eq!((dir.file_len("a").unwrap(), file.len()), (Some(0), 0));
    let text = b"the marker is here, and here: the marker".repeat(40);
    for part in text.chunks(37) {
        file.append(&[&part[..10.min(part.len())], &part[10.min(part.len())..]]).unwrap();
    }
    assert_eq!(file.len(), text.len() as u64);
    assert_eq!(dir.file_len("a").unwrap(), Some(text.len() as u64));
    assert_eq!(read(&*dir, "a"), text);
    let stored = read(&*plain(&disk), "a");
    assert_eq!(stored.len(), text.len() + header::HEADER_BYTES);
    assert!(!stored.windows(6).any(|w| w == b"marker"));
    let open = dir.open("a").unwrap();
    for from in [0usize, 1, 8, 15, 16, 100] {
        let mut part = vec![0; 50];
        open.read_exact_at(&mut part, from as u64).unwrap();
        assert_eq!(part, text[from..from + 50]);
    }
    let e = open.read_exact_at(&mut [0; 2], text.len() as u64 - 1).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Corruption, "{e}");
    assert!(open.read_exact_at(&mut [0], u64::MAX).is_err());
    file.overwrite(3, b"xyz").unwrap();
    assert_eq!(&read(&*dir, "a")[..8], b"thexyzrk");
    assert!(file.overwrite(file.len() - 1, b"xy").is_err());
    // Two files with the same contents differ.
    dir.create("b").unwrap().append(&[&text]).unwrap();
    let other = read(&*plain(&disk), "b");
    assert!(stored[4096..].iter().zip(&other[4096..]).filter(|(a, b)| a == b).count() < 40);
}

#[test]
fn plain_files_are_read_and_named_files_stay_plain() {
    let disk = SimDisk::new(1);
    plain(&disk).create("old").unwrap().append(&[b"old contents"]).unwrap();
    let dir = wrap(&disk, ring(1), 1);
    assert_eq!(read(&*dir, "old"), b"old contents");
    assert_eq!(dir.file_len("old").unwrap(), Some(12));
    dir.append_to("old").unwrap().append(&[b" more"]).unwrap();
    assert_eq!(read(&*plain(&disk), "old"), b"old contents more");
    dir.create("LOG").unwrap().append(&[b"event"]).unwrap();
    dir.append_to("LOG").unwrap().append(&[b"s"]).unwrap();
    assert_eq!(read(&*plain(&disk), "LOG"), b"events");
    assert_eq!(read(&*dir, "LOG"), b"events");
    // A file that starts with part of a header is empty, as the writer saw it.
    plain(&disk).create("torn").unwrap().append(&[&ENCRYPTED_MAGIC, &[1; 90]]).unwrap();
    assert_eq!((read(&*dir, "torn").len(), dir.file_len("torn").unwrap()), (0, Some(0)));
    assert!(dir.open("torn").unwrap().read_exact_at(&mut [0], 0).is_err());
    // So is one whose header a crash has lost.
    plain(&disk).create("lost").unwrap().append(&[&[0; 4096], &[7; 72]]).unwrap();
    assert_eq!((read(&*dir, "lost").len(), dir.file_len("lost").unwrap()), (0, Some(0)));
    // Plain files are copied, encrypted ones linked.
    let target = disk.open_dir(Path::new("/copy"), DirOpenMode::CreateIfMissing).unwrap();
    dir.create("new").unwrap().append(&[b"n"]).unwrap();
    assert!(!dir.link_into("old", &*target).unwrap());
    assert!(dir.link_into("new", &*target).unwrap());
}

#[test]
fn missing_and_wrong_keys_are_reported() {
    let disk = SimDisk::new(1);
    wrap(&disk, ring(1), 1).create("a").unwrap().append(&[b"secret"]).unwrap();
    let wrong = wrap(&disk, ring(2), 2).open("a").unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::InvalidArgument);
    assert!(wrong.to_string().contains("wrong encryption key"), "{wrong}");
    // Rotated: new files use version 3, old ones are still readable.
    let rotated = wrap(&disk, ring(1).with_version(3, [9; KEY_BYTES]), 3);
    rotated.create("b").unwrap().append(&[b"newer"]).unwrap();
    assert_eq!(read(&*rotated, "a"), b"secret");
    assert_eq!(read(&*rotated, "b"), b"newer");
    let missing = wrap(&disk, ring(1), 4).open("b").unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::InvalidArgument);
    assert!(missing.to_string().contains("key 1 version 3"), "{missing}");
    // A damaged header is not taken for a wrong key.
    let mut stored = read(&*plain(&disk), "a");
    stored[45] ^= 1;
    plain(&disk).create("damaged").unwrap().append(&[&stored]).unwrap();
    let damaged = rotated.open("damaged").unwrap_err();
    assert_eq!(damaged.kind(), ErrorKind::Corruption, "{damaged}");
}

/// A provider that decrypts only.
struct DecryptOnly(KeyRing);

impl KeyProvider for DecryptOnly {
    fn current(&self) -> Result<(KeyId, EncryptionKey)> {
        self.0.current()
    }
    fn key(&self, id: KeyId) -> Result<EncryptionKey> {
        self.0.key(id)
    }
    fn encrypts_new_files(&self) -> bool {
        false
    }
}

#[test]
fn wrapping_twice_replaces_the_keys_and_decrypting_providers_write_plain_files() {
    let disk = SimDisk::new(1);
    wrap(&disk, ring(1), 1).create("a").unwrap().append(&[b"secret"]).unwrap();
    let fs: Arc<dyn Fs> = Arc::clone(&disk) as _;
    let rand = || Arc::new(TestRand(Mutex::new(SeededRng::new(5))));
    let first = EncryptedFs::wrap(&fs, Arc::new(ring(8)), rand(), is_plain);
    let fs = EncryptedFs::wrap(&first, Arc::new(DecryptOnly(ring(1))), rand(), is_plain);
    let dir = fs.open_dir(Path::new("/db"), DirOpenMode::Existing).unwrap();
    assert_eq!(read(&*dir, "a"), b"secret");
    dir.create("b").unwrap().append(&[b"public"]).unwrap();
    assert_eq!(read(&*plain(&disk), "b"), b"public");
}

#[test]
fn preallocated_space_reads_as_zeros() {
    let disk = SimDisk::new(1);
    let dir = wrap(&disk, ring(1), 1);
    let file = dir.create("a").unwrap();
    assert!(!file.allocate(100).unwrap(), "nothing was appended yet");
    let text = [0xFFu8; 72];
    file.append(&[&text]).unwrap();
    assert!(file.allocate(1000).unwrap());
    assert_eq!((file.len(), dir.file_len("a").unwrap()), (72, Some(1000)));
    let mut expected = vec![0; 1000];
    expected[..72].copy_from_slice(&text);
    assert_eq!(read(&*dir, "a"), expected);
    let open = dir.open("a").unwrap();
    assert_eq!(open.data_end(0).unwrap(), DataEnd { written: 72, readable: 72 });
    file.append(&[&text]).unwrap();
    expected[72..144].copy_from_slice(&text);
    assert_eq!(read(&*dir, "a"), expected);
    file.truncate(72).unwrap();
    assert_eq!(dir.file_len("a").unwrap(), Some(72));
}

/// Appends that a process interrupts after any byte: what is missing is not taken for written.
#[test]
fn end_of_an_interrupted_append_is_found() {
    let disk = SimDisk::new(1);
    let dir = wrap(&disk, ring(1), 1);
    let text: Vec<u8> = (1..=160).collect();
    dir.create("a").unwrap().append(&[&text]).unwrap();
    let stored = read(&*plain(&disk), "a");
    for kept in 0..=160 {
        let mut torn = stored.clone();
        torn[4096 + kept..].fill(0);
        torn.resize(4096 + 800, 0);
        let name = format!("torn{kept}");
        plain(&disk).create(&name).unwrap().append(&[&torn]).unwrap();
        let end = dir.open(&name).unwrap().data_end(0).unwrap();
        // Stored bytes may be zero too, so the end may be found too early, but by less than a group.
        assert!(end.written <= kept as u64 && end.readable == (kept as u64).next_multiple_of(8));
        assert!(kept as u64 - end.written < 8);
        let bytes = read(&*dir, &name);
        assert_eq!(bytes[..kept], text[..kept]);
        assert!(bytes[kept.next_multiple_of(8)..].iter().all(|&b| b == 0));
    }
}

/// What was truncated and written again is encrypted with another keystream, which is recorded.
#[test]
fn rewritten_offsets_use_a_new_keystream() {
    let disk = SimDisk::new(1);
    let dir = wrap(&disk, ring(1), 1);
    let file = dir.create("a").unwrap();
    let zeros = |n: usize| vec![0u8; n];
    file.append(&[&zeros(64)]).unwrap();
    let reader = dir.open("a").unwrap();
    let mut streams = Vec::new();
    for _ in 0..5 {
        file.append(&[&zeros(64)]).unwrap();
        // Plain zeros are stored as the keystream itself.
        let stored = read(&*plain(&disk), "a")[4096 + 64..4096 + 128].to_vec();
        assert!(!streams.contains(&stored), "a keystream was used twice");
        streams.push(stored);
        assert_eq!(read(&*dir, "a"), zeros(128));
        // A reader that was open before sees it after it asked for the length.
        assert_eq!(reader.len().unwrap(), 128);
        let mut seen = vec![1; 128];
        reader.read_exact_at(&mut seen, 0).unwrap();
        assert_eq!(seen, zeros(128));
        file.truncate(64).unwrap();
    }
    // A file that is reopened for writing continues with a new keystream too.
    drop(file);
    dir.append_to("a").unwrap().append(&[&zeros(64)]).unwrap();
    assert!(!streams.contains(&read(&*plain(&disk), "a")[4096 + 64..4096 + 128].to_vec()));
    assert_eq!(read(&*dir, "a"), zeros(128));
}

#[test]
fn a_file_that_is_rolled_back_too_often_is_not_continued() {
    let disk = SimDisk::new(1);
    let dir = wrap(&disk, ring(1), 1);
    let file: Arc<dyn WritableFile> = dir.create("a").unwrap();
    file.append(&[b"12345678"]).unwrap();
    for _ in 0..=header::GENERATION_RECORDS {
        file.append(&[b"abcdefgh"]).unwrap();
        file.truncate(8).unwrap();
    }
    let e = file.append(&[b"abcdefgh"]).unwrap_err();
    assert!(e.to_string().contains("rolled back too often"), "{e}");
    assert_eq!(read(&*dir, "a"), b"12345678");
}

/// The first append writes the header too: if it fails, the file starts over with another key.
#[test]
fn a_failed_first_append_starts_the_file_over() {
    let disk = SimDisk::new(3);
    let dir = wrap(&disk, ring(1), 1);
    let file = dir.create("a").unwrap();
    disk.fail_at(1, crate::fs::memory::Fault::Enospc, false);
    let e = file.append(&[b"first"]).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NoSpace);
    assert_eq!(file.len(), 0);
    file.truncate(0).unwrap();
    file.append(&[b"second"]).unwrap();
    assert_eq!(read(&*dir, "a"), b"second");
}
