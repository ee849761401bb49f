//! Reads of a transaction: [`TxnFamily`], and the methods of [`Txn`] that take a column family.

use crate::read::inherent_reads;
use crate::read::source::ReadSource;
use crate::stats::RangeEstimate;
use crate::values::ValueReader;
use crate::{
    Cursor, Error, Family, Iter, Keys, Readable, Result, Slice, Snapshot, Txn, ValueWithTtl, Values,
};
use perigee_engine::FamilyState;
use perigee_engine::reader::Reader;
use std::ops::RangeBounds;
use std::sync::Arc;

/// A column family in a transaction; see [`Txn::family`] and [`Txn::family_at`]. Has the methods of
/// [`Readable`].
#[derive(Clone, Copy, Debug)]
pub struct TxnFamily<'a> {
    txn: &'a Txn,
    family: &'a Family,
    /// What it reads besides the transaction's own writes; `None`: what the transaction reads.
    snapshot: Option<&'a Snapshot>,
}

impl ReadSource for TxnFamily<'_> {
    fn family_state(&self) -> Result<&FamilyState> {
        Ok(self.family.inner_for(&self.txn.engine)?)
    }
    fn with_reader<R>(&self, read: impl FnOnce(Reader<'_>) -> Result<R>) -> Result<R> {
        let engine = &self.txn.engine;
        let family = self.family.inner_for(engine)?;
        let Some(snapshot) = self.snapshot else {
            return read(engine.txn_reader(family, &mut self.txn.inner())?);
        };
        if !Arc::ptr_eq(engine, &snapshot.engine) {
            return Err(Error::invalid(
                "the snapshot belongs to another open database: take one of the database of the \
                 transaction with Db::snapshot",
            ));
        }
        read(engine.txn_snapshot_reader(family, &mut self.txn.inner(), &snapshot.handle)?)
    }
}

impl Readable for TxnFamily<'_> {}

inherent_reads!(TxnFamily<'_>);

impl Txn {
    /// Returns a column family in the transaction, for reads without the parameter `family` and for
    /// functions that take a [`Readable`]. Reads fail with `InvalidArgument` if the column family
    /// belongs to another database.
    ///
    /// ```
    /// # use perigee::{Db, Options, TxnOptions};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let family = db.default_family();
    /// db.put("moon", "new")?;
    /// let txn = db.begin(TxnOptions::new())?;
    /// txn.put(&family, "tide", "high")?;
    /// let reads = txn.family(&family);
    /// let (last, _) = reads.last()?.expect("it sees its own writes");
    /// assert_eq!(&last[..], b"tide");
    /// assert_eq!(reads.keys()?.count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn family<'a>(&'a self, family: &'a Family) -> TxnFamily<'a> {
        TxnFamily { txn: self, family, snapshot: None }
    }
    /// Returns a column family as of a snapshot, with the transaction's own writes. The transaction
    /// may write with locks while each of its reads sees a state of the caller's choosing, as SQL
    /// servers do: one snapshot per statement or per transaction.
    ///
    /// These reads are independent of the isolation level, which decides what [`Txn::family`] sees.
    /// They are not added to the read set: a later change of what was read is no conflict, also for
    /// a serializable transaction. A cursor or iterator sees the writes made before it was created.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// family.put("moon", "new")?;
    /// let txn = db.begin(TxnOptions::new().pessimistic(true))?;
    /// let before = db.snapshot()?;
    /// family.put("moon", "full")?;
    /// txn.put(&family, "tide", "high")?;
    /// let after = db.snapshot()?;
    ///
    /// let reads = txn.family_at(&family, &before);
    /// assert_eq!(reads.get("moon")?.as_deref(), Some(&b"new"[..]));
    /// assert_eq!(reads.get("tide")?.as_deref(), Some(&b"high"[..])); // its own write
    /// let reads = txn.family_at(&family, &after);
    /// assert_eq!(reads.get("moon")?.as_deref(), Some(&b"full"[..]));
    /// assert_eq!(reads.iter()?.count(), 2);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Reads fail with `InvalidArgument` if the column family or the snapshot belongs to another
    /// database, or if the transaction has ended; otherwise as those of a [`Snapshot`]: `NotFound`
    /// if the column family was created by a clone, cleared or dropped after the snapshot.
    pub fn family_at<'a>(&'a self, family: &'a Family, snapshot: &'a Snapshot) -> TxnFamily<'a> {
        TxnFamily { txn: self, family, snapshot: Some(snapshot) }
    }
    /// Returns a copy of the value of `key`; see [`Family::get`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # family.put("moon", "new")?;
    /// # let txn = db.begin(TxnOptions::new())?;
    /// # txn.put(&family, "tide", "high")?;
    /// assert_eq!(txn.get(&family, "moon")?.as_deref(), Some(&b"new"[..])); // committed before
    /// assert_eq!(txn.get(&family, "tide")?.as_deref(), Some(&b"high"[..])); // its own write
    /// # Ok::<(), Error>(())
    /// ```
    pub fn get(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.family(family).get(key)
    }
    /// Returns the value of `key` without copying it; see [`Family::get_pinned`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # family.put("moon", "new")?;
    /// # let txn = db.begin(TxnOptions::new())?;
    /// # txn.put(&family, "tide", "high")?;
    /// assert_eq!(txn.get_pinned(&family, "tide")?.expect("its own write"), "high");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn get_pinned(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.family(family).get_pinned(key)
    }
    /// Returns the value of `key` without adding the key to the read set: a later change of the key
    /// by another commit is not a conflict.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// family.put("price", "7")?;
    /// let txn = db.begin(TxnOptions::new().isolation(Isolation::Serializable))?;
    /// let price = txn.get_untracked(&family, "price")?.expect("a price");
    /// txn.put(&family, "order", &price)?;
    /// family.put("price", "8")?; // no conflict
    /// txn.commit()?;
    /// assert_eq!(family.get("order")?.as_deref(), Some(&b"7"[..]));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn get_untracked(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        let read = |reader: Reader<'_>| reader.untracked().get(key.as_ref());
        Ok(self.family(family).with_reader(read)?.map(Slice))
    }
    /// Returns true if `key` exists.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # family.put("moon", "new")?;
    /// # let txn = db.begin(TxnOptions::new())?;
    /// # txn.put(&family, "tide", "high")?;
    /// assert!(txn.contains(&family, "moon")?); // committed before
    /// assert!(txn.contains(&family, "tide")?); // its own write
    /// # Ok::<(), Error>(())
    /// ```
    pub fn contains(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<bool> {
        self.family(family).contains(key)
    }
    /// Returns true if `key` exists, without adding the key to the read set.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// family.put("moon", "new")?;
    /// let txn = db.begin(TxnOptions::new().isolation(Isolation::Serializable))?;
    /// assert!(txn.contains_untracked(&family, "moon")?);
    /// txn.put(&family, "tide", "high")?;
    /// family.delete("moon")?; // no conflict
    /// txn.commit()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn contains_untracked(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<bool> {
        self.family(family).with_reader(|reader| reader.untracked().contains(key.as_ref()))
    }
    /// Returns the values of many keys, in the order of `keys`, each with its own result; see
    /// [`Family::multi_get`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # family.put("moon", "new")?;
    /// # let txn = db.begin(TxnOptions::new())?;
    /// # txn.put(&family, "tide", "high")?;
    /// let values = txn.multi_get(&family, ["moon", "tide", "sun"]);
    /// let found = values.into_iter().map(|v| Ok(v?.is_some())).collect::<Result<Vec<_>>>()?;
    /// assert_eq!(found, [true, true, false]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        family: &Family,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<Result<Option<Slice>>> {
        self.family(family).multi_get(keys)
    }

    /// Returns an iterator over all entries.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # family.put("moon", "new")?;
    /// # let txn = db.begin(TxnOptions::new())?;
    /// # txn.put(&family, "tide", "high")?;
    /// assert_eq!(txn.iter(&family)?.count(), 2); // with its own write
    /// assert_eq!(family.iter()?.count(), 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn iter(&self, family: &Family) -> Result<Iter> {
        self.family(family).iter()
    }
    /// Returns an iterator over the entries of a key range.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # family.put("moon", "new")?;
    /// # let txn = db.begin(TxnOptions::new())?;
    /// # txn.put(&family, "tide", "high")?;
    /// let (key, _) = txn.range(&family, "n"..)?.next().expect("its own write")?;
    /// assert_eq!(key, "tide");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn range<K: AsRef<[u8]>>(
        &self,
        family: &Family,
        range: impl RangeBounds<K>,
    ) -> Result<Iter> {
        self.family(family).range(range)
    }
    /// Returns an iterator over the entries whose key starts with `prefix`; see [`Family::prefix`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # family.put("moon", "new")?;
    /// # let txn = db.begin(TxnOptions::new())?;
    /// # txn.put(&family, "tide", "high")?;
    /// assert_eq!(txn.prefix(&family, "ti")?.count(), 1); // its own write
    /// # Ok::<(), Error>(())
    /// ```
    pub fn prefix(&self, family: &Family, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        self.family(family).prefix(prefix)
    }
    /// Returns an unpositioned cursor over all entries.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # family.put("moon", "new")?;
    /// # let txn = db.begin(TxnOptions::new())?;
    /// # txn.put(&family, "tide", "high")?;
    /// let mut cursor = txn.cursor(&family)?;
    /// cursor.seek_to_last()?;
    /// assert_eq!(cursor.key(), b"tide"); // its own write
    /// # Ok::<(), Error>(())
    /// ```
    pub fn cursor(&self, family: &Family) -> Result<Cursor> {
        self.family(family).cursor()
    }
    /// Returns an unpositioned cursor over a key range.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # family.put("moon", "new")?;
    /// # let txn = db.begin(TxnOptions::new())?;
    /// # txn.put(&family, "tide", "high")?;
    /// let mut cursor = txn.cursor_within(&family, "a".."n")?;
    /// cursor.seek_to_last()?;
    /// assert_eq!(cursor.key(), b"moon");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn cursor_within<K: AsRef<[u8]>>(
        &self,
        family: &Family,
        range: impl RangeBounds<K>,
    ) -> Result<Cursor> {
        self.family(family).cursor_within(range)
    }
}
