//! Explains a point read: every source that it consults, with outcome and cost.

use crate::read::source::ReadSource;
use crate::{Family, Result};
pub use perigee_engine::reader::{ExplainStep, ExplainedBlock, Explanation};

impl Family {
    /// Reads `key` with the code of [`Family::get`] and records every source on the way: memtables,
    /// tables with their filters and blocks, and whether each block came from the cache or from
    /// disk.
    ///
    /// # Errors
    /// `Closed`, or `NotFound` for a dropped column family. An error of the read itself is in
    /// [`Explanation::error`].
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// db.put("moon", "full")?;
    /// db.admin().flush()?;
    /// let e = db.default_family().explain("moon")?;
    /// assert_eq!(e.value_bytes, Some(4));
    /// let last = e.steps.last().expect("a get consults at least one source");
    /// assert_eq!((last.source, last.filter, last.outcome), ("table", Some("passes"), "value"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn explain(&self, key: impl AsRef<[u8]>) -> Result<Explanation> {
        self.with_reader(|reader| Ok(reader.explain(key.as_ref())))
    }
}
