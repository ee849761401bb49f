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
        _ => Ok(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn safe_keys_are_accepted() {
        assert_eq!(path_parts(b"a").unwrap(), [b"a"]);
        assert_eq!(path_parts(b"a/b.c/..d").unwrap(), [&b"a"[..], b"b.c", b"..d"]);
        assert_eq!(path_parts(b"...").unwrap(), [b"..."]);
        assert_eq!(path_parts(b"\xff\\").unwrap(), [b"\xff\\"]);
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
