//! [`ValueReader`]: reads of one value in parts. See `docs/large-values.md`.

use crate::{Family, Readable, Result, Snapshot, Txn};
use perigee_engine::reader::EngineValueReader;
use std::io::{BufRead, Read, Seek, SeekFrom};

/// A value that is read in parts, from any position, without holding it in memory. Implements
/// [`Read`], [`BufRead`] and [`Seek`], and reads only the parts that are asked for: a value of more
/// than 1 MiB is stored in chunks of 1 MiB, each with a checksum of its own.
///
/// It shows the value as of the moment when it was opened. Until it is dropped, the file that holds
/// the value stays on disk, even if the key is changed or deleted.
///
/// From [`Readable::reader`](crate::Readable::reader).
///
/// ```
/// # use perigee::*;
/// # use std::io::{Read, Seek, SeekFrom};
/// # let db = example_db()?;
/// # let family = db.default_family();
/// family.put_stream("video", &mut &vec![1; 3_000_000][..])?;
/// let mut reader = family.reader("video")?.expect("it exists");
/// assert_eq!(reader.len(), 3_000_000);
/// reader.seek(SeekFrom::Start(2_500_000))?; // as for the header "Range: bytes=2500000-"
/// let mut rest = Vec::new();
/// reader.read_to_end(&mut rest)?;
/// assert_eq!(rest.len(), 500_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ValueReader {
    inner: EngineValueReader,
    position: u64,
}

impl std::fmt::Debug for ValueReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("ValueReader");
        shown.field("bytes", &self.len()).field("position", &self.position).finish_non_exhaustive()
    }
}

impl ValueReader {
    pub(crate) fn new(inner: EngineValueReader) -> ValueReader {
        ValueReader { inner, position: 0 }
    }
    /// Returns the length of the value in bytes.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// family.put("tides", "high, low")?;
    /// assert_eq!(family.reader("tides")?.map(|value| value.len()), Some(9));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn len(&self) -> u64 {
        self.inner.value_bytes()
    }
    /// Returns true if the value is empty.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// family.put("empty", "")?;
    /// assert!(family.reader("empty")?.is_some_and(|value| value.is_empty()));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns the bytes from `position` on, as many as are available at once, without copying
    /// them: up to 1 MiB of a long value; none at the end. Independent of the current position.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// family.put("tides", "high, low")?;
    /// let mut reader = family.reader("tides")?.expect("it exists");
    /// assert_eq!(reader.part_at(6)?, b"low");
    /// assert!(reader.part_at(100)?.is_empty());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`ValueReader::read_at`].
    pub fn part_at(&mut self, position: u64) -> Result<&[u8]> {
        self.inner.part_at(position)
    }
    /// Copies bytes from `position` on to `buf`, independently of the current position. Returns
    /// their number, which is less than the length of `buf` only at the end of the value.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// family.put("tides", "high, low")?;
    /// let mut reader = family.reader("tides")?.expect("it exists");
    /// let mut buf = [0; 4];
    /// assert_eq!(reader.read_at(6, &mut buf)?, 3);
    /// assert_eq!(&buf[..3], b"low");
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `Io`; `Corruption` if a chunk is damaged: the others can still be read; `Closed`.
    pub fn read_at(&mut self, position: u64, buf: &mut [u8]) -> Result<usize> {
        let mut copied = 0;
        while copied < buf.len() {
            let part = self.inner.part_at(position.saturating_add(copied as u64))?;
            if part.is_empty() {
                break;
            }
            let bytes = part.len().min(buf.len() - copied);
            check!(bytes > 0, "each part brings the read further", position, copied);
            buf[copied..copied + bytes].copy_from_slice(&part[..bytes]);
            copied += bytes;
        }
        Ok(copied)
    }
}

/// Errors contain the [`Error`](crate::Error) of the engine ([`std::io::Error::get_ref`]).
impl Read for ValueReader {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let copied = self.read_at(self.position, buf)?;
        self.position += copied as u64;
        Ok(copied)
    }
}

impl BufRead for ValueReader {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        Ok(self.inner.part_at(self.position)?)
    }
    fn consume(&mut self, bytes: usize) {
        self.position = self.position.saturating_add(bytes as u64);
    }
}

/// A position after the end is allowed: reads there return no bytes.
impl Seek for ValueReader {
    fn seek(&mut self, target: SeekFrom) -> std::io::Result<u64> {
        let position = match target {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(offset) => self.len().checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        self.position = position.ok_or_else(|| {
            let text = "a seek to a position before the start of the value, or beyond 2^64";
            std::io::Error::new(std::io::ErrorKind::InvalidInput, text)
        })?;
        Ok(self.position)
    }
}

impl Family {
    /// Opens the value of `key`, to read it in parts, or returns `None` if the key does not exist.
    ///
    /// ```
    /// # use perigee::*;
    /// # use std::io::Read;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// family.put("tides", "high, low")?;
    /// let mut reader = family.reader("tides")?.expect("it exists");
    /// family.delete("tides")?; // the reader still has it
    /// let mut text = String::new();
    /// reader.read_to_string(&mut text)?;
    /// assert_eq!(text, "high, low");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`Family::get`].
    pub fn reader(&self, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>> {
        Readable::reader(self, key)
    }
}

impl Snapshot {
    /// Opens the value of `key` as of the snapshot, to read it in parts; see [`Family::reader`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// family.put("tides", "high, low")?;
    /// let snapshot = db.snapshot()?;
    /// family.put("tides", "low")?;
    /// assert_eq!(snapshot.reader(&family, "tides")?.map(|value| value.len()), Some(9));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`Snapshot::get`].
    pub fn reader(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>> {
        self.family(family).reader(key)
    }
}

impl Txn {
    /// Opens the value of `key`, to read it in parts; see [`Family::reader`]. Later writes of the
    /// transaction do not change what it reads.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// let txn = db.begin(TxnOptions::new())?;
    /// txn.put_stream(&family, "video", &mut &[1; 2_000_000][..])?;
    /// assert_eq!(txn.reader(&family, "video")?.map(|value| value.len()), Some(2_000_000));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`Txn::get`].
    pub fn reader(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>> {
        self.family(family).reader(key)
    }
}
