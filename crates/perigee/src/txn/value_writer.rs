//! [`ValueWriter`]: puts of values that are written in parts. See `docs/large-values.md`.

use crate::txn::begin;
use crate::txn::limits::COPIED_PART_BYTES;
use crate::{Error, Family, Isolation, Result, Txn, TxnOptions};
use perigee_engine::Expiry;
use perigee_engine::value_parts::EngineValueWriter;
use std::io::{Read, Write};
use std::time::Duration;

/// A value that is written in parts, with [`Write`] or [`ValueWriter::copy_from`], and need not fit
/// into memory: up to 4 GiB. It is put by [`ValueWriter::finish`]; if the writer is dropped,
/// nothing has changed.
///
/// A value of more than 1 MiB goes directly to a file of its own, compressed as the column family's
/// other values are, without being logged: it is written once. Until it is finished it takes disk
/// space, but only a few MiB of memory. After a crash, the next open moves the file to `trash/`.
///
/// From [`Family::writer`] or [`Txn::writer`].
pub struct ValueWriter<'t> {
    inner: EngineValueWriter,
    family: Family,
    key: Vec<u8>,
    expiry: Option<Expiry>,
    /// The transaction that puts the value; `None`: one of its own.
    txn: Option<&'t Txn>,
}

impl std::fmt::Debug for ValueWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ValueWriter").field("bytes", &self.len()).finish_non_exhaustive()
    }
}

impl<'t> ValueWriter<'t> {
    fn new(family: &Family, key: &[u8], txn: Option<&'t Txn>) -> Result<ValueWriter<'t>> {
        if key.len() > crate::limits::KEY_BYTES_MAX {
            return Err(Error::invalid("the key is too long").expected(
                format_args!("at most {} bytes", crate::limits::KEY_BYTES_MAX),
                key.len(),
            ));
        }
        let inner = family.engine.value_writer(&family.inner)?;
        Ok(ValueWriter { inner, family: family.clone(), key: key.to_vec(), expiry: None, txn })
    }
    /// Returns the number of bytes written so far.
    ///
    /// ```
    /// # use perigee::*;
    /// # use std::io::Write;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// let mut writer = family.writer("video")?;
    /// assert!(writer.is_empty());
    /// writer.write_all(b"first part")?;
    /// assert_eq!(writer.len(), 10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn len(&self) -> u64 {
        self.inner.value_bytes()
    }
    /// Returns true if nothing was written yet.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// assert!(db.default_family().writer("video")?.is_empty());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Writes the value to a file of its own if it is longer than `bytes`, instead of 1 MiB. For
    /// tests, in which long values would take much time.
    #[doc(hidden)]
    pub fn set_logged_bytes_max(&mut self, bytes: usize) {
        self.inner.set_logged_bytes_max(bytes);
    }
    /// Gives the value a time to live, which starts now; see [`Family::put_with_ttl`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// let mut writer = family.writer("session")?;
    /// writer.set_ttl(std::time::Duration::from_secs(60));
    /// writer.finish()?;
    /// assert!(family.get_with_ttl("session")?.expect("not expired").expires_at_ms.is_some());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn set_ttl(&mut self, ttl: Duration) {
        self.expiry = Some(self.family.expiry_after(ttl));
    }
    /// Appends a part. As [`Write::write_all`], with an error of the engine.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// let mut writer = family.writer("tides")?;
    /// writer.append(b"high, ")?;
    /// writer.append(b"low")?;
    /// writer.finish()?;
    /// assert_eq!(family.get("tides")?.as_deref(), Some(&b"high, low"[..]));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`ValueWriter::finish`]; the value cannot be finished any more then, and its file
    /// is gone.
    pub fn append(&mut self, part: &[u8]) -> Result<()> {
        self.inner.append(part)
    }
    /// Appends all that `source` returns, until its end. Returns the number of bytes.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// let mut writer = family.writer("log")?;
    /// writer.copy_from(&mut "one, ".as_bytes())?;
    /// writer.copy_from(&mut "two".as_bytes())?;
    /// writer.finish()?;
    /// assert_eq!(family.get("log")?.as_deref(), Some(&b"one, two"[..]));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `Io` if `source` fails: what it returned before is part of the value, so that the call can
    /// be repeated; those of [`ValueWriter::finish`].
    pub fn copy_from(&mut self, source: &mut impl Read) -> Result<u64> {
        let (before, mut part) = (self.len(), Vec::new());
        loop {
            part.clear();
            // A full part is stored without another copy.
            let read = source.take(COPIED_PART_BYTES).read_to_end(&mut part);
            // Before an error of the source is returned: these bytes have left it.
            self.inner.append(&part)?;
            read.map_err(|e| Error::io("read the source of a value", &e))?;
            if part.is_empty() {
                return Ok(self.len() - before);
            }
        }
    }
    /// Ends the value and puts it: for a writer of a column family durably, as a commit of its own;
    /// for one of a transaction as a part of it. Returns the length of the value.
    ///
    /// The commit is always synced if the value is longer than 1 MiB; otherwise it has the
    /// durability of [`Family::put`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// let mut writer = family.writer("tides")?;
    /// writer.append(b"high, low")?;
    /// assert!(!family.contains("tides")?);
    /// assert_eq!(writer.finish()?, 9);
    /// assert!(family.contains("tides")?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Nothing was put, and the file is gone:
    /// - `InvalidArgument` if the value is longer than 4 GiB, an earlier write failed, or the
    ///   transaction contains merge operands.
    /// - `NoSpace` or `Io`; `Busy` while background work is paused; `NotFound` if the column family
    ///   was dropped; `Conflict` with a prepared transaction.
    /// - Those of [`Txn::put`] for a writer of a transaction.
    pub fn finish(self) -> Result<u64> {
        if let Some(txn) = self.txn {
            return self.finish_in(txn);
        }
        let options = TxnOptions::new().isolation(Isolation::ReadCommitted);
        let txn = begin::begin_txn(&self.family.engine, &options, None)?;
        let bytes = self.finish_in(&txn)?;
        txn.commit()?;
        Ok(bytes)
    }
    /// Ends the value and puts it in a transaction. For bindings to other languages, whose objects
    /// cannot borrow the transaction.
    #[doc(hidden)]
    pub fn finish_in(self, txn: &Txn) -> Result<u64> {
        let ValueWriter { inner, family, key, expiry, .. } = self;
        let (engine, bytes) = (&family.engine, inner.value_bytes());
        check!(
            bytes <= crate::limits::STREAMED_VALUE_BYTES_MAX,
            "a value that was written in parts is not too long",
            bytes
        );
        let state = family.inner_for(&txn.engine)?;
        engine.put_written_value(&mut txn.inner(), state, &key, expiry, inner)?;
        Ok(bytes)
    }
    /// Sets when the value expires, in milliseconds since the Unix epoch; see
    /// [`Family::put_until`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// let tomorrow = db.admin().clock().now_ms + 24 * 60 * 60 * 1000;
    /// let mut writer = family.writer("session")?;
    /// writer.set_expiry(tomorrow);
    /// writer.finish()?;
    /// let found = family.get_with_ttl("session")?.expect("not expired");
    /// assert_eq!(found.expires_at_ms, Some(tomorrow));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn set_expiry(&mut self, expires_at_ms: u64) {
        self.expiry = Some(Expiry(expires_at_ms));
    }
}

/// Errors contain the [`Error`](crate::Error) of the engine ([`std::io::Error::get_ref`]).
impl Write for ValueWriter<'_> {
    fn write(&mut self, part: &[u8]) -> std::io::Result<usize> {
        self.inner.append(part)?;
        Ok(part.len())
    }
    /// Does nothing: the value is put, and synced, when it is complete.
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Family {
    /// Begins a value that is written in parts, up to 4 GiB, without holding it in memory. Nothing
    /// changes before [`ValueWriter::finish`].
    ///
    /// ```
    /// # use perigee::*;
    /// # use std::io::Write;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// let mut writer = family.writer("video")?;
    /// for frame in 0..100u8 {
    ///     writer.write_all(&[frame; 30_000])?;
    /// }
    /// assert!(!family.contains("video")?);
    /// assert_eq!(writer.finish()?, 3_000_000);
    /// assert_eq!(family.get("video")?.map(|v| v.len()), Some(3_000_000));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if the key is too long; `NotFound` if the column family was dropped;
    /// `Closed`.
    pub fn writer(&self, key: impl AsRef<[u8]>) -> Result<ValueWriter<'static>> {
        ValueWriter::new(self, key.as_ref(), None)
    }
    /// Puts a value that is too long for a batch.
    pub(crate) fn put_long(&self, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<()> {
        put_whole(self.writer(key)?, value, expiry)
    }
    /// Sets `key` to all that `source` returns, up to 4 GiB, without holding it in memory. Returns
    /// the length of the value.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # let directory = std::env::temp_dir().join(format!("put-stream-{}", std::process::id()));
    /// # std::fs::write(&directory, [7; 2_000_000])?;
    /// # let path = &directory;
    /// let bytes = family.put_stream("video", &mut std::fs::File::open(path)?)?;
    /// assert_eq!(family.reader("video")?.expect("it was put").len(), bytes);
    /// # std::fs::remove_file(path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`ValueWriter::copy_from`] and [`ValueWriter::finish`].
    pub fn put_stream(&self, key: impl AsRef<[u8]>, source: &mut impl Read) -> Result<u64> {
        let mut writer = self.writer(key)?;
        writer.copy_from(source)?;
        writer.finish()
    }
}

impl Txn {
    /// Begins a value that is written in parts; [`ValueWriter::finish`] makes it a write of the
    /// transaction. See [`Family::writer`]. Meanwhile the transaction can be used.
    ///
    /// A transaction with a value of more than 1 MiB that was written in parts is *spilled*, as one
    /// larger than memory is: see `docs/transactions.md`.
    ///
    /// ```
    /// # use perigee::*;
    /// # use std::io::Write;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// let txn = db.begin(TxnOptions::new())?;
    /// let mut writer = txn.writer(&family, "video")?;
    /// writer.write_all(&[1; 2_000_000])?;
    /// txn.put(&family, "title", "Tides")?;
    /// writer.finish()?;
    /// assert!(txn.contains(&family, "video")? && !family.contains("video")?);
    /// txn.commit()?;
    /// assert!(family.contains("video")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Family::writer`]; `InvalidArgument` if the column family belongs to another
    /// database.
    pub fn writer(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<ValueWriter<'_>> {
        family.inner_for(&self.engine)?;
        ValueWriter::new(family, key.as_ref(), Some(self))
    }
    /// Puts a value that is too long for a batch.
    pub(crate) fn put_long(
        &self,
        family: &Family,
        key: &[u8],
        value: &[u8],
        expiry: Option<Expiry>,
    ) -> Result<()> {
        put_whole(self.writer(family, key)?, value, expiry)
    }
    /// Sets `key` to all that `source` returns. See [`Family::put_stream`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// let txn = db.begin(TxnOptions::new())?;
    /// txn.put_stream(&family, "tides", &mut "high, low".as_bytes())?;
    /// txn.commit()?;
    /// assert!(family.contains("tides")?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`ValueWriter::copy_from`] and [`ValueWriter::finish`].
    pub fn put_stream(
        &self,
        family: &Family,
        key: impl AsRef<[u8]>,
        source: &mut impl Read,
    ) -> Result<u64> {
        let mut writer = self.writer(family, key)?;
        writer.copy_from(source)?;
        writer.finish()
    }
}

fn put_whole(mut writer: ValueWriter<'_>, value: &[u8], expiry: Option<Expiry>) -> Result<()> {
    writer.expiry = expiry;
    writer.append(value)?;
    writer.finish().map(drop)
}
