//! Lock waits and deadlocks of all transactions: methods of [`Admin`].

use crate::locks::{LockListener, LockWait};
use crate::{Admin, Error, Result};
use std::sync::Arc;

impl Admin<'_> {
    /// Returns the requests for locks that wait, and the transactions that each waits for. Waits in
    /// different column families are not read at the same moment.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// let holder = db.begin(TxnOptions::new())?;
    /// holder.lock(&family, "seat 12", LockMode::Exclusive)?;
    /// let txn = db.begin(TxnOptions::new().lock_timeout(std::time::Duration::MAX))?;
    /// let (handle, waiting) = (txn.handle(), txn.lock_owner());
    /// std::thread::scope(|scope| {
    ///     let request = scope.spawn(|| txn.lock(&family, "seat 12", LockMode::Shared));
    ///     let waits = loop {
    ///         let waits = db.admin().lock_waits();
    ///         if !waits.is_empty() {
    ///             break waits;
    ///         }
    ///     };
    ///     assert_eq!((waits[0].waiting, &waits[0].key[..]), (waiting, &b"seat 12"[..]));
    ///     assert_eq!(waits[0].blocking, [holder.lock_owner()]);
    ///     assert!(handle.cancel_wait());
    ///     assert!(request.join().unwrap().is_err());
    /// });
    /// # Ok::<(), Error>(())
    /// ```
    pub fn lock_waits(&self) -> Vec<LockWait> {
        self.engine.locks().lock_waits(&*self.engine.env().clock)
    }
    /// Returns the transactions that hold locks, by [`Txn::lock_owner`](crate::Txn::lock_owner), and
    /// the number of locks of each, in ascending order. Prepared transactions are included. Takes
    /// time in proportion to the number of all locks.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// let txn = db.begin(TxnOptions::new())?;
    /// txn.lock(&db.default_family(), "seat 12", LockMode::Exclusive)?;
    /// assert_eq!(db.admin().lock_counts(), [(txn.lock_owner(), 1)]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn lock_counts(&self) -> Vec<(u64, u64)> {
        self.engine.locks().lock_counts()
    }
    /// Sets the listener that learns of lock waits and deadlocks. It stays until the database is
    /// closed.
    ///
    /// ```
    /// # use perigee::*;
    /// use perigee::locks::LockListener;
    /// # use std::sync::{Arc, Mutex};
    /// # use std::time::Duration;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// #[derive(Default)]
    /// struct Waits(Mutex<Vec<(u64, Vec<u64>)>>);
    /// impl LockListener for Waits {
    ///     fn wait_began(&self, waiting: u64, blocking: &[u64]) {
    ///         self.0.lock().unwrap().push((waiting, blocking.to_vec()));
    ///     }
    /// }
    /// let waits = Arc::new(Waits::default());
    /// db.admin().set_lock_listener(Arc::clone(&waits) as _)?;
    /// let holder = db.begin(TxnOptions::new())?;
    /// holder.lock(&family, "seat 12", LockMode::Exclusive)?;
    /// let txn = db.begin(TxnOptions::new().lock_timeout(Duration::from_millis(1)))?;
    /// assert!(txn.lock(&family, "seat 12", LockMode::Shared).is_err());
    /// assert_eq!(*waits.0.lock().unwrap(), [(txn.lock_owner(), vec![holder.lock_owner()])]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if there is a listener already.
    pub fn set_lock_listener(&self, listener: Arc<dyn LockListener>) -> Result<()> {
        match self.engine.locks().set_listener(listener) {
            true => Ok(()),
            false => Err(Error::new(
                crate::ErrorKind::InvalidArgument,
                "the database has a lock listener already",
            )),
        }
    }
}
