//! Open encrypted files.

use super::cipher::{FileCipher, GROUP_BYTES, whole_groups, zero_groups};
use super::header::{
    CryptHeader, FIXED_BYTES, GENERATION_BYTES, GENERATION_RECORDS, HEADER_BYTES, generation_offset,
};
use super::key_cache::{CurrentKey, KeyCache, exhausted_error};
use crate::fs::{DataEnd, RandomAccessFile, WritableFile, end_without_zeros, short_file_error};
use crate::limits::FIRST_APPEND_BYTES_MAX;
use perigee_base::bug::{self, Bug};
use perigee_base::{ENCRYPTED_MAGIC, Error, ErrorKind, Result};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const HEADER_LEN: u64 = HEADER_BYTES as u64;

/// What the header of a file says.
pub(super) struct OpenedHeader {
    header: CryptHeader,
    cipher: Arc<FileCipher>,
    /// Where each generation of the keystream after the first starts.
    generations: Vec<u64>,
}

/// Whether a file is encrypted.
pub(super) enum FileEncryption {
    /// It is not encrypted.
    Plain,
    /// Its header was not written completely, so it is empty.
    Empty,
    /// It is encrypted.
    Encrypted(OpenedHeader),
}

/// How a file is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoredForm {
    /// It is not encrypted.
    Plain,
    /// Its header was not written completely.
    Unfinished,
    /// It has a header.
    Encrypted,
}

/// Returns how a file is stored. A crash may lose the header of a new file but not what follows it;
/// no plain file of a database starts with zeros.
pub(super) fn stored_form(file: &dyn RandomAccessFile) -> Result<StoredForm> {
    let mut magic = [0; ENCRYPTED_MAGIC.len()];
    let len = file.len()?;
    if len < magic.len() as u64 {
        return Ok(StoredForm::Plain);
    }
    file.read_exact_at(&mut magic, 0)?;
    Ok(match magic == ENCRYPTED_MAGIC {
        true if len >= HEADER_LEN => StoredForm::Encrypted,
        true => StoredForm::Unfinished,
        false
            if magic == [0; ENCRYPTED_MAGIC.len()]
                && len <= HEADER_LEN + FIRST_APPEND_BYTES_MAX =>
        {
            StoredForm::Unfinished
        }
        false => StoredForm::Plain,
    })
}

/// Reads the header of a file.
pub(super) fn read_header(
    file: &dyn RandomAccessFile,
    name: &str,
    keys: &KeyCache,
) -> Result<FileEncryption> {
    match stored_form(file)? {
        StoredForm::Plain => return Ok(FileEncryption::Plain),
        StoredForm::Unfinished => return Ok(FileEncryption::Empty),
        StoredForm::Encrypted => {}
    }
    let mut fixed = [0; FIXED_BYTES];
    file.read_exact_at(&mut fixed, 0)?;
    let header = CryptHeader::decode(&fixed).map_err(|e| e.at(name, 0))?;
    let cipher = keys.cipher_of(&header).map_err(|e| e.in_file(name))?;
    let mut generations = Vec::new();
    while let Some(start) = read_generation(file, &header, generations.len() + 1)? {
        generations.push(start);
    }
    Ok(FileEncryption::Encrypted(OpenedHeader { header, cipher, generations }))
}

/// Returns where generation `number` starts; `None` if it does not exist. A record that was not
/// written completely does not count: nothing was written in its generation.
fn read_generation(
    file: &dyn RandomAccessFile,
    header: &CryptHeader,
    number: usize,
) -> Result<Option<u64>> {
    if number > GENERATION_RECORDS {
        return Ok(None);
    }
    let mut record = [0; GENERATION_BYTES];
    file.read_exact_at(&mut record, generation_offset(number))?;
    Ok(header.decode_generation(number, &record))
}

#[derive(Debug)]
pub(super) struct EncryptedWritableFile {
    inner: Arc<dyn WritableFile>,
    name: String,
    keys: Arc<KeyCache>,
    /// Callers serialize appends and truncations, so this lock is never waited for.
    state: Mutex<EncryptedWriterState>,
}

struct EncryptedWriterState {
    header: CryptHeader,
    cipher: Arc<FileCipher>,
    generations: Vec<u64>,
    /// The key to start over with, if the file was created by this handle.
    current: Option<CurrentKey>,
    /// Offsets below this may have been written, with the newest generation.
    used_end: u64,
    /// The bytes of the last group, if incomplete, are stored as zeros.
    ends_in_zeros: bool,
    /// Encrypted bytes of an append.
    buffer: Vec<u8>,
}

impl std::fmt::Debug for EncryptedWriterState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EncryptedWriterState({}, generations {:?})", self.header.key, self.generations)
    }
}

impl EncryptedWritableFile {
    /// Wraps a new, empty file. Its header is written with the first append.
    pub fn create(
        inner: Arc<dyn WritableFile>,
        name: &str,
        keys: &Arc<KeyCache>,
        current: CurrentKey,
    ) -> EncryptedWritableFile {
        let (header, cipher) = keys.new_file(&current);
        let opened = OpenedHeader { header, cipher, generations: Vec::new() };
        Self::with_header(inner, name, keys, opened, Some(current))
    }
    /// Wraps a file that exists.
    pub fn append_to(
        inner: Arc<dyn WritableFile>,
        name: &str,
        keys: &Arc<KeyCache>,
        opened: OpenedHeader,
    ) -> EncryptedWritableFile {
        Self::with_header(inner, name, keys, opened, None)
    }
    fn with_header(
        inner: Arc<dyn WritableFile>,
        name: &str,
        keys: &Arc<KeyCache>,
        opened: OpenedHeader,
        current: Option<CurrentKey>,
    ) -> EncryptedWritableFile {
        let OpenedHeader { header, cipher, generations } = opened;
        let state = Mutex::new(EncryptedWriterState {
            header,
            cipher,
            generations,
            // What was written to an existing file before, and truncated, is not known.
            used_end: if current.is_some() { 0 } else { u64::MAX },
            current,
            ends_in_zeros: false,
            buffer: Vec::new(),
        });
        let (name, keys) = (name.to_owned(), Arc::clone(keys));
        EncryptedWritableFile { inner, name, keys, state }
    }

    fn lock_state(&self) -> MutexGuard<'_, EncryptedWriterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn has_header(&self) -> bool {
        self.inner.len() >= HEADER_LEN
    }

    /// Makes sure that no keystream is used twice by an append at `offset`.
    fn begin_append(&self, state: &mut EncryptedWriterState, offset: u64) -> Result<()> {
        if offset >= state.used_end {
            return Ok(());
        }
        if !self.has_header() {
            // The first append failed: the file starts over.
            let current = state.current.as_ref();
            let current = current.ok_or_else(|| Error::internal("a file without a header"))?;
            (state.header, state.cipher) = self.keys.new_file(current);
            state.used_end = 0;
            return Ok(());
        }
        let number = state.generations.len() + 1;
        if number > GENERATION_RECORDS {
            return Err(exhausted_error().in_file(&self.name));
        }
        let record = state.header.encode_generation(number, offset);
        if !bug::is_active(Bug::GenerationNotRecorded) {
            self.inner.overwrite(generation_offset(number), &record)?;
            self.inner.sync()?;
        }
        check!(
            state.generations.len() + 1 == number,
            "generations are numbered in the order of their creation",
            self.name,
            number
        );
        state.generations.push(offset);
        state.used_end = offset;
        Ok(())
    }
}

impl EncryptedWriterState {
    /// Encrypts `parts` at `offset` into the buffer. Fails if a group would be stored as zeros.
    fn encrypt(&mut self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        self.buffer.clear();
        parts.iter().for_each(|part| self.buffer.extend_from_slice(part));
        self.cipher.apply(&self.generations, offset, &mut self.buffer);
        let groups = whole_groups(offset, self.buffer.len());
        let (first, last) = (&self.buffer[..groups.start], &self.buffer[groups.end..]);
        let is_zero = |bytes: &[u8]| bytes.iter().all(|&b| b == 0);
        let completes_first =
            groups.start > 0 && (offset + groups.start as u64).is_multiple_of(GROUP_BYTES as u64);
        let zeros = (completes_first && self.ends_in_zeros && is_zero(first))
            || !zero_groups(&self.buffer[groups.clone()], 0).is_empty();
        if zeros {
            return Err(Error::new(
                ErrorKind::Io,
                "encrypted bytes that look like unwritten space; reopen the database, which \
                 continues in a new file (the probability of this is 2^-64 for each 8 bytes)",
            ));
        }
        self.ends_in_zeros = match groups.start {
            // The append is inside one group.
            start if start == self.buffer.len() && start > 0 && !completes_first => {
                (offset.is_multiple_of(GROUP_BYTES as u64) || self.ends_in_zeros) && is_zero(first)
            }
            _ => !last.is_empty() && is_zero(last),
        };
        Ok(())
    }
}

impl WritableFile for EncryptedWritableFile {
    fn append(&self, parts: &[&[u8]]) -> Result<()> {
        let mut state = self.lock_state();
        let state = &mut *state;
        let offset = self.len();
        let total: usize = parts.iter().map(|part| part.len()).sum();
        if total == 0 {
            return Ok(());
        }
        self.begin_append(state, offset)?;
        state.encrypt(offset, parts).map_err(|e| e.at(&self.name, offset))?;
        state.used_end = offset + total as u64;
        let buffer: &[u8] = &state.buffer;
        if self.has_header() {
            self.inner.append(&[buffer])?;
        } else {
            let mut header = vec![0; HEADER_BYTES];
            header[..FIXED_BYTES].copy_from_slice(&state.header.encode());
            self.inner.append(&[&header, buffer])?;
        }
        check!(
            self.len() == offset + total as u64,
            "an append extends the file by what was encrypted",
            self.name,
            offset,
            total
        );
        Ok(())
    }

    fn len(&self) -> u64 {
        self.inner.len().saturating_sub(HEADER_LEN)
    }

    fn allocate(&self, len: u64) -> Result<bool> {
        if !self.has_header() {
            return Ok(false);
        }
        self.inner.allocate(len + HEADER_LEN)
    }

    fn overwrite(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        if offset + bytes.len() as u64 > self.len() {
            let text = "overwrite beyond the end of the file";
            return Err(Error::invalid(text).at(&self.name, offset));
        }
        let state = self.lock_state();
        let mut buffer = bytes.to_vec();
        state.cipher.apply(&state.generations, offset, &mut buffer);
        self.inner.overwrite(offset + HEADER_LEN, &buffer)
    }

    fn truncate(&self, len: u64) -> Result<()> {
        let mut state = self.lock_state();
        state.ends_in_zeros = false;
        if !self.has_header() {
            return match len {
                0 => self.inner.truncate(0),
                _ => Err(Error::invalid("truncate beyond the end of the file").at(&self.name, len)),
            };
        }
        self.inner.truncate(len + HEADER_LEN)
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    fn write_back(&self, begin: Range<u64>, finish: Range<u64>) -> Result<()> {
        let stored = |range: Range<u64>| range.start + HEADER_LEN..range.end + HEADER_LEN;
        self.inner.write_back(stored(begin), stored(finish))
    }
}

#[derive(Debug)]
pub(super) struct EncryptedRandomAccessFile {
    inner: Arc<dyn RandomAccessFile>,
    name: String,
    /// `None` for an empty file.
    contents: Option<EncryptedContents>,
}

struct EncryptedContents {
    header: CryptHeader,
    cipher: Arc<FileCipher>,
    /// A writer of this process may add generations.
    generations: Mutex<Vec<u64>>,
    generation_count: AtomicUsize,
}

impl std::fmt::Debug for EncryptedContents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EncryptedContents({})", self.header.key)
    }
}

impl EncryptedContents {
    fn lock_generations(&self) -> MutexGuard<'_, Vec<u64>> {
        self.generations.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn decrypt(&self, file: &dyn RandomAccessFile, buf: &mut [u8], offset: u64) -> Result<()> {
        let generations = match self.generation_count.load(Ordering::Acquire) {
            0 => Vec::new(),
            _ => self.lock_generations().clone(),
        };
        self.cipher.decrypt(&generations, offset, buf, &|at| {
            let mut group = [0; GROUP_BYTES];
            let at = at + HEADER_LEN;
            match file.read_exact_at(&mut group, at) {
                Ok(()) => Ok(Some(group)),
                Err(_) if file.len()? < at + GROUP_BYTES as u64 => Ok(None),
                Err(e) => Err(e),
            }
        })
    }
    /// Reads the generations that were added since the file was opened.
    fn read_new_generations(&self, file: &dyn RandomAccessFile) -> Result<()> {
        loop {
            let count = self.generation_count.load(Ordering::Acquire);
            let Some(start) = read_generation(file, &self.header, count + 1)? else {
                return Ok(());
            };
            let mut generations = self.lock_generations();
            check!(
                generations.len() >= count,
                "generations are only added",
                generations.len(),
                count
            );
            if generations.len() == count {
                generations.push(start);
                self.generation_count.store(count + 1, Ordering::Release);
            }
        }
    }
}

impl EncryptedRandomAccessFile {
    /// Wraps an open file; `None` if its header was not written completely.
    pub fn new(
        inner: Arc<dyn RandomAccessFile>,
        name: &str,
        opened: Option<OpenedHeader>,
    ) -> EncryptedRandomAccessFile {
        let contents =
            opened.map(|OpenedHeader { header, cipher, generations }| EncryptedContents {
                header,
                cipher,
                generation_count: AtomicUsize::new(generations.len()),
                generations: Mutex::new(generations),
            });
        EncryptedRandomAccessFile { inner, name: name.to_owned(), contents }
    }
}

impl RandomAccessFile for EncryptedRandomAccessFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let Some(contents) = &self.contents else {
            let empty = buf.is_empty() && offset == 0;
            let error = || short_file_error(&self.name, offset, buf.len(), 0);
            return if empty { Ok(()) } else { Err(error()) };
        };
        let Some(stored_at) = offset.checked_add(HEADER_LEN) else {
            return Err(short_file_error(&self.name, offset, buf.len(), self.len()?));
        };
        self.inner.read_exact_at(buf, stored_at)?;
        contents.decrypt(&*self.inner, buf, offset)
    }
    fn prefetch(&self, range: Range<u64>) {
        if self.contents.is_some() {
            self.inner.prefetch(range.start + HEADER_LEN..range.end + HEADER_LEN);
        }
    }
    fn len(&self) -> Result<u64> {
        let Some(contents) = &self.contents else { return Ok(0) };
        let len = self.inner.len()?.saturating_sub(HEADER_LEN);
        contents.read_new_generations(&*self.inner)?;
        Ok(len)
    }
    /// Stored zeros were not written, whatever they decrypt to; of the last group that was written
    /// in part it is not known which zeros are.
    fn data_end(&self, from: u64) -> Result<DataEnd> {
        let len = self.len()?;
        if bug::is_active(Bug::UnwrittenSpaceIsLog) {
            return Ok(DataEnd { written: len, readable: len });
        }
        let stored = end_without_zeros(&*self.inner, from + HEADER_LEN, len + HEADER_LEN)?;
        let written = stored.saturating_sub(HEADER_LEN);
        let readable = written.next_multiple_of(GROUP_BYTES as u64).min(len).max(written);
        check!(
            written <= readable && readable - written < GROUP_BYTES as u64,
            "less than a group may be unwritten",
            self.name,
            written,
            readable
        );
        Ok(DataEnd { written, readable })
    }
}
