//! What the machine, or the control group that the process runs in, allows it: memory and open
//! files.

use std::path::{Path, PathBuf};

/// Bytes of memory that the process may use: the least of the machine's and of every control group
/// around it.
pub(super) fn memory_limit_bytes() -> Option<u64> {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let limits = limit_files(&groups).into_iter().filter_map(|path| parse_limit(&read(&path)?));
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| parse_mem_total(&text));
    limits.chain(machine).min()
}

/// Bytes of memory that the process has now.
pub(super) fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    pages.checked_mul(rustix::param::page_size() as u64)
}

/// The files that may hold a limit, for the text of `/proc/self/cgroup`: version 2 (`0::/a/b`) and
/// version 1 (`4:memory:/a/b`), the group itself and those around it.
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
        // In a container the path may be that of the host; then only the root is there.
        let inside = Path::new(path.trim_start_matches('/')).to_path_buf();
        all.extend(inside.ancestors().map(|group| Path::new(root).join(group).join(file)));
    }
    all
}

/// A limit; "max", and version 1's number for "none", are no limit.
fn parse_limit(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|n| *n > 0 && *n < 1 << 62)
}

/// `MemTotal` of `/proc/meminfo`.
fn parse_mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Files that the process may have open.
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
