//! Merges: writes that say how a value changes, not what it is.

use crate::{Db, Family, Options, Result, Txn, WriteBatch, WriteOptions, translate};
use perigee_base::{Error, MergeOperator};
use perigee_engine::locks::LockMode;
use perigee_file::log::Batch;
use std::sync::Arc;

/// Asks the operator of a family about an operand.
fn check_operand(family: &Family, key: &[u8], operand: &[u8]) -> Result<()> {
    match family.inner.tree.pin().merge_operator.get() {
        Some(merger) => merger.check_operand(key, operand),
        None => Err(Error::invalid(format!(
            "the family {:?} has no merge operator: give it one with FamilyOptions::merge_operator",
            family.name()
        ))),
    }
}

impl Options {
    /// Registers a merge operator of the user's own for this database: families have it by its name
    /// ([`FamilyOptions::merge_operator`], [`MergeRule::User`]). A database in which a family has
    /// one that is not registered does not open for writing; read-only it does, and reads of keys
    /// that have operands fail. One name is one operator for ever: what it computes must not
    /// change, since what is stored was computed by it in parts.
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
    ///     fn merge(&self, _: &[u8], left: Option<&[u8]>, right: &[u8], out: &mut Vec<u8>) -> Result<()> {
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
    /// Merges an operand into the value of `key`, as the family's [`MergeRule`](crate::MergeRule)
    /// says, without reading it: reads see what value and operands come to, and compaction makes
    /// one value of them. Where nothing is, the operand stands alone.
    ///
    /// Into a value that expires nothing is merged for good: at its time it goes, and operands
    /// written over it stay, as if there had been no value. A read of a key with thousands of
    /// operands costs as much as there are; flushes and compactions join them, as far as snapshots
    /// allow.
    ///
    /// ```
    /// # use perigee::{Db, FamilyOptions, MergeRule, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let visits = db.create_family("visits", FamilyOptions::new().merge_operator(MergeRule::Counter))?;
    /// for page in ["/", "/tides", "/"] {
    ///     visits.merge(page, 1i64.to_le_bytes())?;
    /// }
    /// assert_eq!(visits.get("/")?, Some(2i64.to_le_bytes().to_vec()));
    ///
    /// let log = db.create_family("log", FamilyOptions::new().merge_operator(MergeRule::Append("; ".into())))?;
    /// log.merge("moon", "rose")?;
    /// log.merge("moon", "set")?;
    /// assert_eq!(log.get("moon")?.as_deref(), Some(&b"rose; set"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if the family has no merge operator, or the operator refuses the operand;
    /// those of [`Db::write`]. If the operator fails later, reads of the key do, with its name and
    /// the key in the error; nothing is lost, and a put or delete of the key ends it.
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.merge_with(key, operand, WriteOptions::new())
    }
    /// The same with options.
    ///
    /// # Errors
    /// As [`Family::merge`].
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
        self.engine.write(batch, options.durability.map(translate::durability))
    }
}

impl WriteBatch {
    /// As [`Family::merge`]; an operand is merged into what earlier operations of the batch put,
    /// too.
    ///
    /// # Errors
    /// As [`Family::merge`]; the batch is unchanged.
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
    /// As [`Family::merge`]. It is a write like any other: at the levels that check writes it
    /// conflicts with whoever wrote the key since, merges included; at read committed nothing does.
    /// A read of the key merges it onto what the transaction sees.
    ///
    /// ```
    /// # use perigee::{Db, FamilyOptions, Isolation, MergeRule, Options, TxnOptions};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let stock = db.create_family("stock", FamilyOptions::new().merge_operator(MergeRule::Counter))?;
    /// stock.put("lamps", 5i64.to_le_bytes())?;
    /// let txn = db.begin(TxnOptions::new().isolation(Isolation::ReadCommitted))?;
    /// txn.merge(&stock, "lamps", (-1i64).to_le_bytes())?;
    /// assert_eq!(txn.get(&stock, "lamps")?.as_deref(), Some(&4i64.to_le_bytes()[..]));
    /// stock.merge("lamps", (-2i64).to_le_bytes())?; // no conflict at this level
    /// txn.commit()?;
    /// assert_eq!(stock.get("lamps")?, Some(2i64.to_le_bytes().to_vec()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Family::merge`] and [`Txn::put`].
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

impl Db {
    /// [`Family::merge`] on `default`.
    ///
    /// # Errors
    /// As [`Family::merge`].
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.default_family().merge(key, operand)
    }
}
