//! Reads memory, I/O, CPU time and machine data from the operating system. Linux only; elsewhere
//! most values are zero.

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// Bytes that this process read and wrote, by system calls and at the device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Io {
    pub rchar: u64,
    pub wchar: u64,
    pub read: u64,
    pub written: u64,
}

pub fn io() -> Io {
    let text = fs::read_to_string("/proc/self/io").unwrap_or_default();
    let field = |name: &str| {
        text.lines()
            .find_map(|l| l.strip_prefix(name))
            .and_then(|v| v.trim().parse().ok())
            .unwrap_or(0)
    };
    Io {
        rchar: field("rchar:"),
        wchar: field("wchar:"),
        read: field("read_bytes:"),
        written: field("write_bytes:"),
    }
}

impl Io {
    pub fn since(self, before: Io) -> Io {
        Io {
            rchar: self.rchar - before.rchar,
            wchar: self.wchar - before.wchar,
            read: self.read - before.read,
            written: self.written - before.written,
        }
    }
}

/// CPU time of all threads in microseconds: the total is exact, the system part has a resolution of
/// a hundredth of a second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu {
    pub total_us: f64,
    pub system_us: f64,
}

/// Returns the CPU time of the calling thread in microseconds.
pub fn thread_cpu_us() -> f64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec as f64 * 1e6 + t.tv_nsec as f64 / 1e3
}

pub fn cpu() -> Cpu {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks =
        stat.rsplit(')').next().and_then(|r| r.split_whitespace().nth(12)?.parse::<f64>().ok());
    Cpu {
        total_us: t.tv_sec as f64 * 1e6 + t.tv_nsec as f64 / 1e3,
        system_us: ticks.unwrap_or(0.0) * 10_000.0,
    }
}

/// Returns the resident bytes: all, and those of private memory (no mapped files).
pub fn resident() -> (u64, u64) {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut pages = text.split_whitespace().skip(1).map(|p| p.parse::<u64>().unwrap_or(0) * 4096);
    let (all, shared) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    (all, all.saturating_sub(shared))
}

/// Returns the bytes of memory usable now without swapping; the maximum if the system does not
/// report it.
pub fn available_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
    kib.map_or(u64::MAX, |k| k * 1024)
}

/// Returns the free bytes of the file system that holds `dir`.
pub fn free_disk(dir: &Path) -> u64 {
    rustix::fs::statvfs(dir).map_or(u64::MAX, |s| s.f_bavail.saturating_mul(s.f_frsize))
}

/// Returns the bytes that a directory occupies on disk.
pub fn disk_bytes(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    entries
        .flatten()
        .map(|e| match e.metadata() {
            Ok(m) if m.is_dir() => disk_bytes(&e.path()),
            Ok(m) => m.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}

/// Writes dirty pages and drops the page cache. Returns `false` if that is not permitted.
pub fn drop_page_cache() -> bool {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "1").is_ok()
}

/// Puts this process under a memory limit that includes its page cache. Supports cgroup versions 1
/// and 2.
pub fn limit_memory(bytes: u64) -> Result<String, String> {
    let pid = std::process::id().to_string();
    let places =
        [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
    let mut why = String::from("no cgroup file system is mounted");
    for (root, file) in places {
        if !Path::new(root).exists() {
            continue;
        }
        let group = Path::new(root).join(format!("perigee-bench-{pid}"));
        let tried = fs::create_dir(&group)
            .and_then(|()| fs::write(group.join(file), bytes.to_string()))
            .and_then(|()| fs::write(group.join("cgroup.procs"), &pid));
        match tried {
            Ok(()) => return Ok(group.display().to_string()),
            Err(e) => {
                why = format!("{}: {e}", group.display());
                let _ = fs::remove_dir(&group);
            }
        }
    }
    Err(why)
}

/// Removes the cgroup of a process that has ended.
pub fn remove_memory_limit(pid: u32) {
    for root in ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"] {
        let _ = fs::remove_dir(format!("{root}/perigee-bench-{pid}"));
    }
}

/// Machine on which a record was made.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Host {
    pub cpu: String,
    pub cores: usize,
    pub memory_mb: u64,
    pub kernel: String,
    pub file_system: String,
    /// One-minute load average when the repetition began.
    pub load: f64,
    /// Seconds since 1970.
    pub at: u64,
}

pub fn host(dir: &Path) -> Host {
    let read = |p: &str| fs::read_to_string(p).unwrap_or_default();
    let after = |text: &str, name: &str| {
        let line = text.lines().find(|l| l.starts_with(name)).unwrap_or_default();
        line.split(':').nth(1).unwrap_or_default().trim().to_owned()
    };
    let memory = after(&read("/proc/meminfo"), "MemTotal");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Host {
        cpu: after(&read("/proc/cpuinfo"), "model name"),
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        memory_mb: memory
            .split_whitespace()
            .next()
            .and_then(|k| k.parse::<u64>().ok())
            .unwrap_or(0)
            / 1024,
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        file_system: file_system(dir),
        load: read("/proc/loadavg")
            .split_whitespace()
            .next()
            .and_then(|l| l.parse().ok())
            .unwrap_or(0.0),
        at: now.map_or(0, |d| d.as_secs()),
    }
}

/// Returns the type of the file system that holds `dir`: that of the longest mount point above it.
fn file_system(dir: &Path) -> String {
    let dir = fs::canonicalize(dir).unwrap_or_default();
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let fields = mounts.lines().filter_map(|l| {
        let mut f = l.split_whitespace().skip(1);
        Some((f.next()?, f.next()?))
    });
    let above = fields.filter(|(point, _)| dir.starts_with(point));
    above
        .max_by_key(|(point, _)| point.len())
        .map_or_else(|| "unknown".into(), |(_, kind)| kind.to_owned())
}
