//! The disk-space guard: when free space is below a reserve, only deletes are accepted, so that
//! flushes, compactions and the manifest have space to work and to free more. It queries the file
//! system periodically, and before each further write while space is short.

use crate::limits::FREE_SPACE_CHECK_US;
use perigee_base::{Bytes, Error, ErrorKind, Micros, Result};
use perigee_env::Dir;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of disk space to keep free.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct DiskReserve(pub u64);

/// The reserve and the free space, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpaceStatus {
    /// Bytes to keep free.
    pub reserve: u64,
    /// Free bytes at the last query; `u64::MAX`: not queried yet, or unlimited.
    pub free: u64,
}

/// The reserve and the result of the last query. Relaxed: a stale value admits at most one
/// interval's worth of writes too many.
#[derive(Debug)]
pub struct DiskSpaceGuard {
    reserve: AtomicU64,
    free: AtomicU64,
    checked_us: AtomicU64,
    /// Bytes that may be written before the next query.
    allowance: AtomicU64,
}

impl DiskSpaceGuard {
    /// Creates a guard that keeps `reserve` bytes free; 0 disables it.
    pub fn new(reserve: u64) -> DiskSpaceGuard {
        DiskSpaceGuard {
            reserve: AtomicU64::new(reserve),
            free: AtomicU64::new(u64::MAX),
            checked_us: AtomicU64::new(0),
            allowance: AtomicU64::new(0),
        }
    }
    /// Returns the reserve and the free space.
    pub fn status(&self) -> DiskSpaceStatus {
        DiskSpaceStatus { reserve: self.reserve.load(Relaxed), free: self.free.load(Relaxed) }
    }
    /// Changes the number of bytes to keep free.
    pub fn set_reserve(&self, bytes: u64) {
        self.reserve.store(bytes, Relaxed);
        // The allowance was computed from the old reserve.
        self.allowance.store(0, Relaxed);
    }

    /// Admits a write of `bytes`, or refuses it because too little space is left.
    ///
    /// # Errors
    /// `NoSpace`: nothing was written; the same write is accepted once there is enough free space.
    /// Those of querying the file system.
    pub fn admit(&self, dir: &dyn Dir, now: Micros, bytes: Bytes) -> Result<()> {
        let (now_us, bytes) = (now.0, bytes.0);
        let reserve = self.reserve.load(Relaxed);
        if reserve == 0 {
            return Ok(());
        }
        let left = self.allowance.load(Relaxed);
        let fresh = now_us.saturating_sub(self.checked_us.load(Relaxed)) < FREE_SPACE_CHECK_US;
        if fresh && left >= bytes {
            self.allowance.store(left - bytes, Relaxed);
            return Ok(());
        }
        let free = dir.free_space()?;
        self.free.store(free, Relaxed);
        self.checked_us.store(now_us, Relaxed);
        let above = free.saturating_sub(reserve);
        if above < bytes {
            self.allowance.store(0, Relaxed);
            return Err(no_space_error(reserve, free));
        }
        // The log is not the only file that grows: flushes and compactions write, too.
        let allowance = (above - bytes) / 4;
        check!(
            free.saturating_sub(bytes).saturating_sub(allowance) >= reserve,
            "what is admitted leaves the reserve free",
            free,
            bytes,
            reserve
        );
        self.allowance.store(allowance, Relaxed);
        Ok(())
    }
}

fn no_space_error(reserve: u64, free: u64) -> Error {
    let text = format!(
        "only {free} bytes are free on the disk and min_free_space is {reserve}: deletes are \
         accepted, other writes once there is more free space"
    );
    Error::new(ErrorKind::NoSpace, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_env::fs::memory::SimDisk;
    use perigee_env::{DirOpenMode, Fs};
    use std::path::Path;

    #[test]
    fn writes_are_refused_below_the_reserve_and_accepted_again() {
        let disk = SimDisk::new(1);
        let dir = disk.open_dir(Path::new("/db"), DirOpenMode::CreateIfMissing).unwrap();
        let guard = DiskSpaceGuard::new(1000);
        disk.set_capacity(1500);
        guard.admit(&*dir, Micros(0), Bytes(400)).unwrap();
        let e = guard.admit(&*dir, Micros(1), Bytes(501)).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NoSpace);
        assert!(e.message().contains("1500 bytes are free"), "{e}");
        disk.set_capacity(u64::MAX);
        guard.admit(&*dir, Micros(2), Bytes(501)).unwrap();
        guard.set_reserve(1 << 62);
        guard.admit(&*dir, Micros(3), Bytes(1)).unwrap();
        disk.set_capacity(1500);
        guard.admit(&*dir, Micros(FREE_SPACE_CHECK_US + 4), Bytes(1)).unwrap_err();
        guard.set_reserve(0);
        guard.admit(&*dir, Micros(5), Bytes(u64::MAX)).unwrap();
    }
}
