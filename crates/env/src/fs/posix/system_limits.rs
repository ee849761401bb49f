//! Limits of the machine and of the cgroups of the process: memory and open files.

use std::path::{Path, PathBuf};

/// Returns the memory that the process may use, in bytes: the minimum of the physical memory and
/// the limits of its cgroup and all parents.
pub(super) fn memory_limit_bytes() -> Option<u64> {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let limits = limit_files(&groups).into_iter().filter_map(|path| parse_limit(&read(&path)?));
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| parse_mem_total(&text));
    limits.chain(machine).min()
}

/// Returns the resident set size, in bytes.
pub(super) fn resident_bytes() -> Option<u64> {
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

/// Returns the number of files that the process may have open.
pub(super) fn open_file_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
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
        assert!(memory_limit_bytes().is_none_or(|n| n > 1 << 20));
        assert!(resident_bytes().is_none_or(|n| n > 100 << 10));
        assert!(open_file_limit().is_none_or(|n| n > 10));
    }
}
