//! Validation of file names, the same for every file system of a platform.

use crate::limits::FILE_NAME_BYTES_MAX;
use perigee_base::{Error, Result};

/// Accepts only plain file names.
pub(crate) fn check_file_name(name: &str) -> Result<()> {
    let why = if name.is_empty() {
        "it is empty"
    } else if name == "." || name == ".." {
        "it names a directory"
    } else if name.contains('/') {
        "it contains a slash"
    } else if name.contains('\0') {
        "it contains a NUL byte"
    } else if name.len() > FILE_NAME_BYTES_MAX {
        "it is longer than 255 bytes"
    } else if cfg!(windows)
        && let Some(why) = why_unusable_on_windows(name)
    {
        why
    } else {
        return Ok(());
    };
    Err(Error::invalid(format!("{:?} is not a file name: {why}", shorten(name))))
}

/// Returns why Windows, or some of its programs, cannot use a file of that name.
fn why_unusable_on_windows(name: &str) -> Option<&'static str> {
    const DEVICES: [&str; 6] = ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"];
    let reserved = |c: char| c.is_control() || "\\:*?\"<>|".contains(c);
    // An extension makes no difference: `NUL.txt` is the device, too.
    let stem = name.split('.').next().unwrap_or(name).trim_end().to_uppercase();
    let numbered = ["COM", "LPT"].iter().find_map(|device| stem.strip_prefix(device));
    let is_digit = |c: char| c.is_ascii_digit() || "¹²³".contains(c);
    if name.contains(reserved) {
        Some("it contains a character that is reserved on Windows")
    } else if name.ends_with(['.', ' ']) {
        Some("it ends in a dot or a space, which Windows removes")
    } else if DEVICES.contains(&&*stem)
        || numbered.is_some_and(|n| n.chars().count() == 1 && n.chars().all(is_digit))
    {
        Some("it is the name of a device on Windows")
    } else {
        None
    }
}

fn shorten(name: &str) -> &str {
    let end = (0..=name.len().min(80)).rev().find(|&i| name.is_char_boundary(i)).unwrap_or(0);
    &name[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_windows_reserves_are_recognized() {
        for bad in [
            "a\\b", "C:x", "a:stream", "what?", "*", "\"", "<", ">", "|", "a\tb", "a.", "a ",
            "nul", "NUL.txt", "Aux", "con .log", "COM1", "lpt9.wal", "COM²", "CONOUT$",
        ] {
            assert!(why_unusable_on_windows(bad).is_some(), "{bad:?}");
        }
        for good in [
            "MANIFEST",
            "MANIFEST.tmp",
            "LOG",
            "LOG.1",
            "LOCK",
            "BALLAST",
            "000012.klog",
            ".x",
            "CONSOLE",
            "COM",
            "COM10",
            "NULL",
            "communication.1",
            "a b",
            "é",
        ] {
            assert_eq!(why_unusable_on_windows(good), None, "{good:?}");
            check_file_name(good).unwrap();
        }
        assert_eq!(check_file_name("a:b").is_err(), cfg!(windows));
    }
}
