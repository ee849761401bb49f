//! What only Linux has: the boot id, limits of the cgroups of the process, allocation of space and
//! read-ahead by ranges.

use perigee_base::checksum;
use rustix::fs::{Advice, FallocateFlags};
use rustix::io::Errno;
use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Returns a number derived from the boot id of the kernel, if it can be read.
pub(in crate::fs) fn boot_id() -> Option<u64> {
    let id = std::fs::read("/proc/sys/kernel/random/boot_id").ok()?;
    (!id.is_empty()).then(|| checksum::key_hash(&id))
}

/// Extends a file to the end of `range` with zeros, whose space is reserved. Returns false if the
/// file system or a sandbox does not support it.
pub(super) fn allocate(file: &File, range: Range<u64>) -> Result<bool, Errno> {
    check!(range.start < range.end, "space to allocate is not empty", range);
    let (mode, len) = (FallocateFlags::empty(), range.end - range.start);
    match rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, mode, range.start, len)) {
        Ok(()) => Ok(true),
        Err(e @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::IO)) => Err(e),
        Err(_) => Ok(false),
    }
}

/// Lets the kernel read a range into the page cache.
pub(super) fn prefetch(file: &File, range: Range<u64>) {
    if let Some(len) = NonZeroU64::new(range.end - range.start) {
        let _ = rustix::fs::fadvise(file, range.start, Some(len), Advice::WillNeed);
    }
}

/// Returns the memory that the process may use, in bytes: the minimum of the physical memory and
/// the limits of its cgroup and all parents.
pub(in crate::fs) fn memory_limit_bytes() -> Option<u64> {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let limits = limit_files(&groups).into_iter().filter_map(|path| parse_limit(&read(&path)?));
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| parse_mem_total(&text));
    limits.chain(machine).min()
}

/// Returns the resident set size, in bytes.
pub(in crate::fs) fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    pages.checked_mul(rustix::param::page_size() as u64)
}

/// Returns the files that may contain a limit, for the text of `/proc/self/cgroup`: version 2
/// (`0::/a/b`) and version 1 (`4:memory:/a/b`), for the group itself and its parents.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (_, Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            c if c.split(',').any(|c| c == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        // In a container the path may be that of the host; then only the file in the root exists.
        let inside = Path::new(path.trim_start_matches('/')).to_path_buf();
        all.extend(inside.ancestors().map(|group| Path::new(root).join(group).join(file)));
    }
    all
}

/// Parses a limit; "max", and the large number that version 1 uses for "none", give `None`.
fn parse_limit(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|n| *n > 0 && *n < 1 << 62)
}

/// Parses `MemTotal` of `/proc/meminfo`, in bytes.
fn parse_mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_files_include_every_parent_cgroup() {
        let two = limit_files("0::/user.slice/a\n");
        assert_eq!(two[0], Path::new("/sys/fs/cgroup/user.slice/a/memory.max"));
        assert_eq!(two[2], Path::new("/sys/fs/cgroup/memory.max"));
        let one = limit_files("5:cpu,cpuacct:/x\n4:hugetlb,memory:/x\n");
        assert_eq!(one[0], Path::new("/sys/fs/cgroup/memory/x/memory.limit_in_bytes"));
        assert_eq!(one.len(), 2);
        assert_eq!(limit_files("garbage\n1:\n"), Vec::<PathBuf>::new());
    }

    #[test]
    fn limits_parse_and_unlimited_is_none() {
        assert_eq!(parse_limit("67108864\n"), Some(64 << 20));
        assert_eq!(parse_limit("max\n"), None);
        assert_eq!(parse_limit("9223372036854771712\n"), None);
        assert_eq!(parse_mem_total("MemTotal:       16384 kB\nMemFree: 1 kB\n"), Some(16 << 20));
        assert_eq!(parse_mem_total("nothing"), None);
    }
}
