//! The ballast: a file of noise that an open on a disk without a free byte gives up, so that there
//! is room for its fresh log segment and manifest, and then for deletes and a compaction, which
//! make more. Made again when there is room.
//!
//! It holds no data and nothing depends on its contents: a missing or torn one costs only what it
//! is for. So no failure to make it is anybody's error, and its name is never synced.

use perigee_base::Result;
use perigee_env::Dir;
use perigee_file::filename::BALLAST;

/// Largest and smallest.
const BALLAST_BYTES_MAX: u64 = 16 << 20;
const BALLAST_BYTES_MIN: u64 = 64 << 10;
/// Written at once.
const WRITE_CHUNK_BYTES: usize = 64 << 10;

/// How large it should be beside so many bytes of tables: a quarter of them, from 64 KiB to 16 MiB,
/// and never more than the reserve (`min_free_space`), which keeps as much free in better times. No
/// reserve, no ballast.
pub fn target_bytes(data: u64, reserve: u64) -> u64 {
    (data / 4).clamp(BALLAST_BYTES_MIN, BALLAST_BYTES_MAX).min(reserve)
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BallastPlan {
    /// Nothing.
    Keep,
    /// Write it anew, that large.
    Create(u64),
}

/// Pure: of the size wanted, the one that is there, the reserve, and the free space. It is made
/// where twice the reserve stays free, and made again only if it is not even half of what it should
/// be.
pub fn plan_ballast(wanted: u64, there: Option<u64>, reserve: u64, free: u64) -> BallastPlan {
    let enough = there.is_some_and(|n| n >= wanted / 2);
    let room =
        free.saturating_add(there.unwrap_or(0)) >= wanted.saturating_add(reserve.saturating_mul(2));
    if wanted == 0 || enough || !room { BallastPlan::Keep } else { BallastPlan::Create(wanted) }
}

/// Whether one of the largest size is there: then nothing needs to be counted.
pub fn is_largest(dir: &dyn Dir) -> bool {
    matches!(dir.file_len(BALLAST), Ok(Some(n)) if n >= BALLAST_BYTES_MAX / 2)
}

/// Makes it, or makes it anew, if that is the plan. Nobody's error: a part of it that is left is a
/// smaller ballast.
pub fn maintain(dir: &dyn Dir, data: u64, reserve: u64) {
    let made = || -> Result<()> {
        let there = dir.file_len(BALLAST)?;
        let BallastPlan::Create(bytes) =
            plan_ballast(target_bytes(data, reserve), there, reserve, dir.free_space()?)
        else {
            return Ok(());
        };
        if there.is_some() {
            dir.remove(BALLAST)?;
        }
        let file = dir.create(BALLAST)?;
        let noise = incompressible_bytes();
        let mut left = bytes;
        while left > 0 {
            let n = left.min(WRITE_CHUNK_BYTES as u64);
            file.append(&[&noise[..n as usize]])?;
            left -= n;
        }
        file.sync()
    };
    let _ = made();
}

/// Bytes that no file system stores in less space.
fn incompressible_bytes() -> Vec<u8> {
    let mut x = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x
    };
    (0..WRITE_CHUNK_BYTES / 8).flat_map(|_| next().to_le_bytes()).collect()
}

/// Gives it up; whether there was one. Its space is free when this returns.
///
/// # Errors
/// As of removing and syncing the directory.
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
            "it grew too small"
        );
        assert_eq!(plan_ballast(0, None, 0, u64::MAX), BallastPlan::Keep);
    }

    #[test]
    fn create_grow_and_remove() {
        let disk = SimDisk::new(1);
        let dir = disk.open_dir(Path::new("/db"), DirOpenMode::CreateIfMissing).unwrap();
        assert!(!remove(&*dir).unwrap());
        maintain(&*dir, 1 << 20, 1 << 20);
        assert_eq!(dir.file_len(BALLAST).unwrap(), Some(256 << 10));
        assert!(!is_largest(&*dir));
        maintain(&*dir, 1 << 40, 16 << 20);
        assert!(is_largest(&*dir));
        assert!(remove(&*dir).unwrap());
        disk.set_capacity(disk.total_bytes() + 100);
        maintain(&*dir, 1 << 20, 1 << 20);
        assert_eq!(dir.file_len(BALLAST).unwrap(), None, "there is no room");
    }
}
