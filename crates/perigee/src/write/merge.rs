//! Merge operators: writes that describe how a value changes, without reading it.

use crate::{Family, Options, Result, Txn, WriteBatch, WriteOptions};
use perigee_engine::callbacks::MergeOperator;
use perigee_engine::{Batch, LockMode};
use std::sync::Arc;

/// Checks an operand with the merge operator of the column family.
fn check_operand(family: &Family, key: &[u8], operand: &[u8]) -> Result<()> {
    family.inner.check_operand(key, operand)
}

impl Options {
    /// Registers a user-defined merge operator. Column families refer to it by name
    /// ([`FamilyOptions::merge_operator`](crate::FamilyOptions::merge_operator),
    /// [`MergeRule::User`](crate::MergeRule::User)). If a column family has an operator that is not
    /// registered, the database does not open for writing. It opens read-only, but reads of keys
    /// with operands fail.
    ///
    /// The function registered under a name must never change, because stored operands are partial
    /// results of it.
    ///
    /// ```
    /// # use perigee::{Db, FamilyOptions, MergeOperator, MergeRule, Options, Result};
    /// # use std::sync::Arc;
    /// /// Keeps the larger one.
    /// struct Max;
    /// impl MergeOperator for Max {
    ///     fn name(&self) -> &str {
    ///         "max"
    ///     }
    ///     fn merge(
    ///         &self,
    ///         _key: &[u8],
    ///         left: Option<&[u8]>,
    ///         right: &[u8],
    ///         out: &mut Vec<u8>,
    ///     ) -> Result<()> {
    ///         out.extend_from_slice(left.map_or(right, |left| left.max(right)));
    ///         Ok(())
    ///     }
    /// }
    /// # fn main() -> Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let env = Env { fs: SimDisk::new(1), ..Env::real() };
    /// let options = || {
    ///     let tides = FamilyOptions::new().merge_operator(MergeRule::User("max".into()));
    ///     Options::in_env(env.clone()).default_family(tides)
    /// };
    /// let db = Db::open("/doc", options().register_merge_operator(Arc::new(Max)))?;
    /// let tides = db.default_family();
    /// tides.merge("high", "3.1 m")?;
    /// tides.merge("high", "2.9 m")?;
    /// assert_eq!(tides.get("high")?.as_deref(), Some(&b"3.1 m"[..]));
    /// db.close()?;
    /// let refused = Db::open("/doc", options()).unwrap_err();
    /// assert!(refused.to_string().contains("\"max\" is not registered"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn register_merge_operator(mut self, operator: Arc<dyn MergeOperator>) -> Self {
        self.merge_operators.register(operator);
        self
    }
}

impl Family {
    /// Adds a merge operand to `key` without reading the value. The column family's
    /// [`MergeRule`](crate::MergeRule) defines how operands combine: reads return the value with
    /// all operands applied; flushes and compactions combine operands, except where a snapshot
    /// needs them separately. For a key that does not exist, the operands alone form the value.
    ///
    /// A merge costs the same as a put. A read applies every operand that is not combined yet, so
    /// its cost grows with their number.
    ///
    /// An operand never expires. Operands are applied to a value with an expiry time until it
    /// expires; afterwards they remain, as if the value had never existed.
    ///
    /// ```
    /// # use perigee::{Db, FamilyOptions, MergeRule, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let counter = FamilyOptions::new().merge_operator(MergeRule::Counter);
    /// let visits = db.create_family("visits", counter)?;
    /// for page in ["/", "/tides", "/"] {
    ///     visits.merge(page, 1i64.to_le_bytes())?;
    /// }
    /// assert_eq!(visits.get("/")?, Some(2i64.to_le_bytes().to_vec()));
    ///
    /// let append = FamilyOptions::new().merge_operator(MergeRule::Append("; ".into()));
    /// let log = db.create_family("log", append)?;
    /// log.merge("moon", "rose")?;
    /// log.merge("moon", "set")?;
    /// assert_eq!(log.get("moon")?.as_deref(), Some(&b"rose; set"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if the column family has no merge operator, or the operator rejects the
    /// operand; as [`Db::write`](crate::Db::write) otherwise. If the operator fails later, reads of
    /// this key fail with an error that names operator and key. Nothing is lost, and a put or
    /// delete of the key removes the error.
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.merge_with(key, operand, WriteOptions::new())
    }
    /// Merges like [`Family::merge`], with `options`.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// let counter = FamilyOptions::new().merge_operator(MergeRule::Counter);
    /// let visits = db.create_family("visits", counter)?;
    /// let options = WriteOptions::new().durability(Durability::None);
    /// visits.merge_with("/", 1i64.to_le_bytes(), options)?;
    /// assert_eq!(visits.get("/")?, Some(1i64.to_le_bytes().to_vec()));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`Family::merge`].
    pub fn merge_with(
        &self,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
        options: WriteOptions,
    ) -> Result<()> {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        check_operand(self, key, operand)?;
        let mut batch = Batch::with_capacity(Batch::encoded_put_bytes(self.inner.id, key, operand));
        batch.merge(self.inner.id, key, operand)?;
        self.engine.write(batch, options.durability)
    }
}

impl WriteBatch {
    /// Adds a merge; see [`Family::merge`]. The operand also applies to a value that an earlier
    /// operation of the batch puts.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// let counter = FamilyOptions::new().merge_operator(MergeRule::Counter);
    /// let visits = db.create_family("visits", counter)?;
    /// let mut batch = WriteBatch::new();
    /// batch.merge(&visits, "/", 1i64.to_le_bytes())?;
    /// batch.merge(&visits, "/", 2i64.to_le_bytes())?;
    /// db.write(batch)?;
    /// assert_eq!(visits.get("/")?, Some(3i64.to_le_bytes().to_vec()));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`Family::merge`]; the batch is unchanged.
    pub fn merge(
        &mut self,
        family: &Family,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        let batch = self.operations_for(family)?;
        check_operand(family, key, operand)?;
        batch.merge(family.inner.id, key, operand)
    }
}

impl Txn {
    /// Merges an operand into `key`; see [`Family::merge`]. Reads in this transaction return the
    /// merged value. A merge is a write: at the isolation levels that check writes, it conflicts
    /// with every commit to the key since the transaction began, merges included. At
    /// [`Isolation::ReadCommitted`](crate::Isolation) merges never conflict.
    ///
    /// ```
    /// # use perigee::{Db, FamilyOptions, Isolation, MergeRule, Options, TxnOptions};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let counter = FamilyOptions::new().merge_operator(MergeRule::Counter);
    /// let stock = db.create_family("stock", counter)?;
    /// stock.put("lamps", 5i64.to_le_bytes())?;
    /// let txn = db.begin(TxnOptions::new().isolation(Isolation::ReadCommitted))?;
    /// txn.merge(&stock, "lamps", (-1i64).to_le_bytes())?;
    /// assert_eq!(txn.get(&stock, "lamps")?.as_deref(), Some(&4i64.to_le_bytes()[..]));
    /// stock.merge("lamps", (-2i64).to_le_bytes())?; // no conflict at this isolation level
    /// txn.commit()?;
    /// assert_eq!(stock.get("lamps")?, Some(2i64.to_le_bytes().to_vec()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Family::merge`] and [`Txn::put`].
    pub fn merge(
        &self,
        family: &Family,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        family.inner_for(&self.engine)?;
        check_operand(family, key, operand)?;
        self.write_key(family, key, LockMode::Insert, |batch| {
            batch.merge(family.inner.id, key, operand)
        })
    }
}
