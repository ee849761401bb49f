//! Which keys may become paths below a directory. Pure: the keys come from a database that anybody
//! may have written.

/// Longest name that common file systems take.
const NAME_BYTES_MAX: usize = 255;
/// Longest path below the directory; leaves room for the directory itself within PATH_MAX.
const PATH_BYTES_MAX: usize = 3 << 10;

/// The parts of the path that a key stands for, or why it may not be one.
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
        b"" => Err("it has an empty part, which another key would share"),
        b"." => Err("it has the part \".\""),
        b".." => Err("it has the part \"..\""),
        _ if name.len() > NAME_BYTES_MAX => Err("a part of it is too long for a file name"),
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
