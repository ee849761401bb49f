//! Lock waits of a transaction, which another thread can end (KILL).

use crate::status::{Result, Status, lock_error};
use perigee::TxnHandle;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};

/// Lets a thread wait for locks, and others end its wait.
///
/// No cancellation is lost: either the waiting thread sees `cancelled` before it requests the lock,
/// or the cancelling thread sees `in_request` and tries until the wait or the request has ended.
#[derive(Debug)]
pub struct LockWaits {
    handle: Mutex<TxnHandle>,
    /// The owner of the transaction requests a lock.
    in_request: AtomicBool,
    /// Requests fail until [`LockWaits::forget_cancel`].
    cancelled: AtomicBool,
}

/// Marks the end of a request, also after a panic.
struct Request<'a>(&'a LockWaits);

impl Drop for Request<'_> {
    fn drop(&mut self) {
        self.0.in_request.store(false, SeqCst);
    }
}

impl LockWaits {
    /// Creates the lock waits of a transaction.
    pub fn new(handle: TxnHandle) -> LockWaits {
        let (in_request, cancelled) = (AtomicBool::new(false), AtomicBool::new(false));
        LockWaits { handle: Mutex::new(handle), in_request, cancelled }
    }
    /// Requests a lock.
    #[inline]
    pub fn request<T>(&self, lock: impl FnOnce() -> perigee::Result<T>) -> Result<T> {
        self.in_request.store(true, SeqCst);
        let _request = Request(self);
        if self.cancelled.load(SeqCst) {
            return Err(Status::INTERRUPTED.with_message("the statement was interrupted"));
        }
        lock().map_err(lock_error)
    }
    /// Ends the wait of the transaction, and fails its later requests. Thread-safe.
    pub fn cancel(&self) {
        self.cancelled.store(true, SeqCst);
        while !self.handle.lock().unwrap_or_else(PoisonError::into_inner).cancel_wait()
            && self.in_request.load(SeqCst)
        {
            std::thread::yield_now();
        }
    }
    /// Forgets an earlier cancellation.
    #[inline]
    pub fn forget_cancel(&self) {
        if self.cancelled.load(SeqCst) {
            self.cancelled.store(false, SeqCst);
        }
    }
    /// Replaces the handle, at the begin of the next transaction.
    pub fn set_handle(&self, handle: TxnHandle) {
        *self.handle.lock().unwrap_or_else(PoisonError::into_inner) = handle;
    }
}
