//! The ballast: a file of incompressible bytes that an open on a full disk deletes to make space
//! for its new log segment and manifest, and then for deletes and a compaction that free more. It
//! is created again once there is enough free space.
//!
//! It holds no data and nothing depends on its contents: if it is missing or torn, only the
//! reserved space is lost. So a failure to create it is ignored, and its directory entry is never
//! synced.

use crate::limits::{BALLAST_BYTES_MAX, BALLAST_BYTES_MIN, BALLAST_WRITE_CHUNK_BYTES};
use crate::resources::disk_space::DiskReserve;
use perigee_base::{Bytes, Result};
use perigee_env::Dir;
use perigee_file::filename::BALLAST;

/// Returns the size of the ballast for a database with `data` bytes of tables: a quarter of `data`,
/// between 64 KiB and 16 MiB, but never more than `reserve` (`min_free_space`), which is the space
/// kept free in normal operation. 0 if there is no reserve.
fn target_bytes(data: u64, reserve: u64) -> u64 {
    (data / 4).clamp(BALLAST_BYTES_MIN, BALLAST_BYTES_MAX).min(reserve)
}

/// What `maintain` has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BallastPlan {
    /// Leave the ballast as it is.
    Keep,
    /// (Re)create it with this size.
    Create(u64),
}

/// Decides whether to (re)create the ballast, from the `wanted` size, the size of the one that is
/// `there`, the reserve and the free space. It is created only if twice the reserve stays free, and
/// recreated only if it is smaller than half of `wanted`. A pure function.
fn plan_ballast(wanted: u64, there: Option<u64>, reserve: u64, free: u64) -> BallastPlan {
    let enough = there.is_some_and(|n| n >= wanted / 2);
    let enough_space =
        free.saturating_add(there.unwrap_or(0)) >= wanted.saturating_add(reserve.saturating_mul(2));
    if wanted == 0 || enough || !enough_space {
        BallastPlan::Keep
    } else {
        BallastPlan::Create(wanted)
    }
}

/// Returns true if a ballast of the largest size exists; the bytes of the tables need not be
/// counted then.
pub fn is_largest(dir: &dyn Dir) -> bool {
    matches!(dir.file_len(BALLAST), Ok(Some(n)) if n >= BALLAST_BYTES_MAX / 2)
}

/// Creates or recreates the ballast if [`plan_ballast`] says so. Errors are ignored: a partly
/// written file is a smaller ballast.
pub fn maintain(dir: &dyn Dir, table_bytes: Bytes, reserve: DiskReserve) {
    let (data, reserve) = (table_bytes.0, reserve.0);
    let create = || -> Result<()> {
        let there = dir.file_len(BALLAST)?;
        let BallastPlan::Create(bytes) =
            plan_ballast(target_bytes(data, reserve), there, reserve, dir.free_space()?)
        else {
            return Ok(());
        };
        check!(
            bytes <= reserve && there.is_none_or(|there| there < bytes),
            "a new ballast is larger than the old one, and fits in the reserve",
            bytes,
            there,
            reserve
        );
        if there.is_some() {
            dir.remove(BALLAST)?;
        }
        let file = dir.create(BALLAST)?;
        let noise = incompressible_bytes();
        let mut left = bytes;
        while left > 0 {
            let n = left.min(BALLAST_WRITE_CHUNK_BYTES as u64);
            file.append(&[&noise[..n as usize]])?;
            left -= n;
        }
        file.sync()
    };
    let _ = create();
}

/// Returns bytes that no file system can compress.
fn incompressible_bytes() -> Vec<u8> {
    let mut x = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x
    };
    (0..BALLAST_WRITE_CHUNK_BYTES / 8).flat_map(|_| next().to_le_bytes()).collect()
}

/// Deletes the ballast. Returns true if there was one; its space is free when this returns.
///
/// # Errors
/// Those of removing the file and syncing the directory.
pub fn remove(dir: &dyn Dir) -> Result<bool> {
    if dir.file_len(BALLAST)?.is_none() {
        return Ok(false);
    }
    dir.remove(BALLAST)?;
    // Some file systems free space only when the removal is durable.
    dir.sync()?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_env::fs::memory::SimDisk;
    use perigee_env::{DirOpenMode, Fs};
    use std::path::Path;

    #[test]
    fn target_is_a_quarter_of_the_data_within_limits() {
        assert_eq!(target_bytes(0, 16 << 20), 64 << 10);
        assert_eq!(target_bytes(40 << 20, 16 << 20), 10 << 20);
        assert_eq!(target_bytes(1 << 40, 16 << 20), 16 << 20);
        assert_eq!(target_bytes(1 << 40, 2 << 10), 2 << 10, "never more than the reserve");
        assert_eq!(target_bytes(1 << 40, 0), 0, "no reserve, no ballast");
    }

    #[test]
    fn created_only_with_enough_free_space() {
        assert_eq!(plan_ballast(100, None, 1000, 2100), BallastPlan::Create(100));
        assert_eq!(plan_ballast(100, None, 1000, 2099), BallastPlan::Keep);
        assert_eq!(plan_ballast(100, Some(50), 1000, 9999), BallastPlan::Keep);
        assert_eq!(
            plan_ballast(100, Some(49), 1000, 2051),
            BallastPlan::Create(100),
            "less than half of the wanted size"
        );
        assert_eq!(plan_ballast(0, None, 0, u64::MAX), BallastPlan::Keep);
    }

    #[test]
    fn create_grow_and_remove() {
        let disk = SimDisk::new(1);
        let dir = disk.open_dir(Path::new("/db"), DirOpenMode::CreateIfMissing).unwrap();
        assert!(!remove(&*dir).unwrap());
        maintain(&*dir, Bytes(1 << 20), DiskReserve(1 << 20));
        assert_eq!(dir.file_len(BALLAST).unwrap(), Some(256 << 10));
        assert!(!is_largest(&*dir));
        maintain(&*dir, Bytes(1 << 40), DiskReserve(16 << 20));
        assert!(is_largest(&*dir));
        assert!(remove(&*dir).unwrap());
        disk.set_capacity(disk.total_bytes() + 100);
        maintain(&*dir, Bytes(1 << 20), DiskReserve(1 << 20));
        assert_eq!(dir.file_len(BALLAST).unwrap(), None, "not enough free space");
    }
}
