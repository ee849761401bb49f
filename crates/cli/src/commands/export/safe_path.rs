//! Decides which keys may become paths below a directory. Keys are untrusted: they come from a
//! database that any program may have written. Performs no I/O.

/// Maximum length of a file name on common file systems.
const NAME_BYTES_MAX: usize = 255;
/// Maximum length of a path below the directory; leaves space for the directory within PATH_MAX.
const PATH_BYTES_MAX: usize = 3 << 10;

/// Returns the components of the path that a key denotes, or the reason why it is refused.
pub fn path_parts(key: &[u8]) -> Result<Vec<&[u8]>, &'static str> {
    if key.is_empty() {
        return Err("it is empty");
    }
    if key.len() > PATH_BYTES_MAX {
        return Err("it is too long for a path");
    }
    if key.contains(&0) {
        return Err("it contains NUL");
    }
    if key[0] == b'/' {
        return Err("it is an absolute path");
    }
    key.split(|&b| b == b'/').map(check_part).collect()
}

fn check_part(name: &[u8]) -> Result<&[u8], &'static str> {
    match name {
        b"" => Err("it has an empty component, so it could collide with another key"),
        b"." => Err("it has the component \".\""),
        b".." => Err("it has the component \"..\""),
        _ if name.len() > NAME_BYTES_MAX => Err("a component of it is too long for a file name"),
        _ if cfg!(windows) && !is_safe_on_windows(name) => {
            Err("a component of it is reserved on Windows")
        }
        _ => Ok(name),
    }
}

/// Returns true if the name contains no separator, drive, stream or wildcard of Windows, is no
/// device, and is not changed by Windows.
fn is_safe_on_windows(name: &[u8]) -> bool {
    const DEVICES: [&[u8]; 6] = [b"CON", b"PRN", b"AUX", b"NUL", b"CONIN$", b"CONOUT$"];
    let stem = name.split(|b| *b == b'.').next().unwrap_or(name).trim_ascii_end();
    let stem = stem.to_ascii_uppercase();
    // `COM1`, and `COM²` in UTF-8.
    let numbered = [b"COM", b"LPT"].iter().any(|device| {
        stem.strip_prefix(&device[..])
            .is_some_and(|n| matches!(n, [b'0'..=b'9'] | [0xc2, 0xb2 | 0xb3 | 0xb9]))
    });
    !name.iter().any(|b| *b < b' ' || b"\\:*?\"<>|".contains(b))
        && !name.ends_with(b".")
        && !name.ends_with(b" ")
        && !DEVICES.contains(&&stem[..])
        && !numbered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn safe_keys_are_accepted() {
        assert_eq!(path_parts(b"a").unwrap(), [b"a"]);
        assert_eq!(path_parts(b"a/b.c/..d").unwrap(), [&b"a"[..], b"b.c", b"..d"]);
        #[cfg(not(windows))]
        assert_eq!(path_parts(b"...").unwrap(), [b"..."]);
        #[cfg(not(windows))]
        assert_eq!(path_parts(b"\xff\\").unwrap(), [b"\xff\\"]);
    }

    #[test]
    fn names_that_windows_reserves_are_recognized() {
        for bad in ["C:", "..\\x", "a:b", "nul", "NUL.txt", "com1.a", "LPT³", "a.", "a ", "a\tb"] {
            assert!(!is_safe_on_windows(bad.as_bytes()), "{bad:?}");
            assert_eq!(path_parts(bad.as_bytes()).is_err(), cfg!(windows), "{bad:?}");
        }
        for good in ["a", "COM", "COM10", "null", ".a", "a b", "é"] {
            assert!(is_safe_on_windows(good.as_bytes()), "{good:?}");
        }
    }

    #[test]
    fn unsafe_keys_are_rejected() {
        let long = [b'x'; 256];
        let deep = b"a/".repeat(2000);
        let bad: [&[u8]; 15] = [
            b"",
            b"/",
            b"/etc/passwd",
            b"..",
            b"../x",
            b"a/../b",
            b"a/..",
            b".",
            b"./a",
            b"a/./b",
            b"a//b",
            b"a/",
            b"a\0b",
            &long,
            &deep,
        ];
        for key in bad {
            assert!(path_parts(key).is_err(), "{}", key.escape_ascii());
        }
    }
}
