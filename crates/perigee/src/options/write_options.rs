//! Options of single writes. Plain data.

use perigee_engine::Durability;

/// Options of one write.
///
/// ```
/// # use perigee::{Db, Durability, Options, WriteOptions};
/// # fn main() -> perigee::Result<()> {
/// # use perigee::env::{Env, fs::memory::SimDisk};
/// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
/// // A cache entry that a power loss may delete, in a database that is otherwise durable:
/// let quick = WriteOptions::new().durability(Durability::None);
/// db.default_family().put_with("cache", "value", quick)?;
/// # Ok(())
/// # }
/// ```
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteOptions {
    /// Durability of this write; `None`: [`Options::durability`](crate::Options::durability).
    pub durability: Option<Durability>,
}

impl WriteOptions {
    /// Returns the default options.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.default_family().put_with("moon", "full", WriteOptions::new())?;
    /// assert!(db.contains("moon")?);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn new() -> Self {
        Self::default()
    }
    /// Sets [`WriteOptions::durability`].
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }
}
