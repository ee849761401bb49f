//! File names: formats and parses names such as `000012.klog`. Independent of directories.
//!
//! Invariant: each (file number, kind) has exactly one name, and no other name is accepted for it.

use perigee_base::{FileId, FileKind};

/// Name of the manifest.
pub const MANIFEST: &str = "MANIFEST";
/// Name of the current info log (human-readable events).
pub const INFO_LOG: &str = "LOG";
/// Returns the name of the `n`th rotated info log; 1 is the most recent.
pub fn info_log_name(n: u32) -> String {
    format!("{INFO_LOG}.{n}")
}
/// Returns true for the current and for rotated info logs.
pub fn is_info_log_name(name: &str) -> bool {
    name.strip_prefix(INFO_LOG).is_some_and(|rest| {
        rest.is_empty() || rest.strip_prefix('.').is_some_and(|n| n.parse::<u32>().is_ok())
    })
}
/// The next manifest while it is being written; it is renamed over [`MANIFEST`].
pub const MANIFEST_TMP: &str = "MANIFEST.tmp";
/// A file that reserves disk space, so that an open on a full disk can delete it; it holds no data.
pub const BALLAST: &str = "BALLAST";
/// The file that carries the exclusive lock.
pub const LOCK: &str = "LOCK";

/// Minimum number of digits in a name, so that lexicographic and numeric order usually agree.
const DIGITS_MIN: usize = 6;

/// Returns the name of a file. The manifest has the same name whatever its number.
pub fn file_name(id: FileId, kind: FileKind) -> String {
    match file_extension(kind) {
        Some(ext) => format!("{:0width$}.{ext}", id.0, width = DIGITS_MIN),
        None => MANIFEST.to_string(),
    }
}

/// Parses a numbered file name. Returns `None` for every other name, including `MANIFEST` and
/// `LOCK`.
pub fn parse_file_name(name: &str) -> Option<(FileId, FileKind)> {
    let (digits, ext) = name.split_once('.')?;
    let kind = [FileKind::Wal, FileKind::Klog, FileKind::Vlog]
        .into_iter()
        .find(|&k| file_extension(k) == Some(ext))?;
    if digits.len() < DIGITS_MIN || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let id = FileId(digits.parse().ok()?);
    // A different spelling of the same number (more leading zeros) is a foreign file.
    (file_name(id, kind) == name).then_some((id, kind))
}

fn file_extension(kind: FileKind) -> Option<&'static str> {
    match kind {
        FileKind::Wal => Some("wal"),
        FileKind::Klog => Some("klog"),
        FileKind::Vlog => Some("vlog"),
        FileKind::Backup => Some("generation"),
        FileKind::Manifest => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_round_trip() {
        assert_eq!(file_name(FileId(12), FileKind::Klog), "000012.klog");
        assert_eq!(file_name(FileId(12), FileKind::Manifest), "MANIFEST");
        for id in [0, 1, 12, 999_999, 1_000_000, u64::MAX] {
            for kind in [FileKind::Wal, FileKind::Klog, FileKind::Vlog] {
                assert_eq!(parse_file_name(&file_name(FileId(id), kind)), Some((FileId(id), kind)));
            }
        }
    }

    #[test]
    fn foreign_names_are_rejected() {
        for name in [
            "",
            ".klog",
            "12.klog",
            "0000012.klog",
            "000012",
            "000012.",
            "000012.KLOG",
            "000012.klog.klog",
            "+00012.klog",
            "99999999999999999999.klog",
            "MANIFEST",
            "LOCK",
            "BALLAST",
            "00001\u{661}.klog",
        ] {
            assert_eq!(parse_file_name(name), None, "{name}");
        }
    }
}
