//! Writes parts of a file to the disk without making them durable (`sync_file_range`; on macOS
//! `fsync`, which writes the whole file but not the cache of the disk), so that a large file is
//! written while its contents are produced.

use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::ops::Range;

/// Begins to write the bytes of a range that were appended.
pub(super) fn begin(file: &File, range: Range<u64>) -> io::Result<()> {
    sync_range(file, range, Flags::Begin)
}
/// Waits until the bytes of a range have been written.
pub(super) fn finish(file: &File, range: Range<u64>) -> io::Result<()> {
    sync_range(file, range, Flags::Finish)
}
/// Returns true if the error says that the system or the file system cannot do this.
pub(super) fn is_unsupported(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied
    ) || e.raw_os_error() == Some(Errno::SPIPE.raw_os_error())
}

#[derive(Clone, Copy, Debug)]
enum Flags {
    Begin,
    Finish,
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn sync_range(file: &File, range: Range<u64>, flags: Flags) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    if range.is_empty() {
        // A length of zero would mean: up to the end of the file.
        return Ok(());
    }
    let bits = match flags {
        Flags::Begin => libc::SYNC_FILE_RANGE_WRITE,
        Flags::Finish => {
            libc::SYNC_FILE_RANGE_WAIT_BEFORE
                | libc::SYNC_FILE_RANGE_WRITE
                | libc::SYNC_FILE_RANGE_WAIT_AFTER
        }
    };
    let overflow = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let start = i64::try_from(range.start).map_err(overflow)?;
    let bytes = i64::try_from(range.end - range.start).map_err(overflow)?;
    loop {
        // SAFETY: the descriptor is open, because `file` is borrowed; the call takes no pointer.
        if unsafe { libc::sync_file_range(file.as_raw_fd(), start, bytes, bits) } == 0 {
            return Ok(());
        }
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    }
}

#[cfg(target_os = "macos")]
fn sync_range(file: &File, range: Range<u64>, flags: Flags) -> io::Result<()> {
    match flags {
        // One call waits for everything that the other began.
        Flags::Begin => Ok(()),
        Flags::Finish if range.is_empty() => Ok(()),
        Flags::Finish => Ok(rustix::io::retry_on_intr(|| rustix::fs::fsync(file))?),
    }
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn sync_range(_: &File, _: Range<u64>, _: Flags) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn ranges_of_a_file_are_written_back() {
        let path = std::env::temp_dir().join(format!("perigee-write-back-{}", std::process::id()));
        let mut file = File::create(&path).unwrap();
        file.write_all(&[1; 100_000]).unwrap();
        for done in [begin(&file, 0..65_536), finish(&file, 0..65_536), finish(&file, 5..5)] {
            assert!(done.as_ref().map_or_else(is_unsupported, |()| true), "{done:?}");
        }
        let e = begin(&file, 0..u64::MAX).unwrap_err();
        assert!(is_unsupported(&e), "{e}");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn errors_of_the_disk_are_not_taken_for_missing_support() {
        for code in [Errno::IO, Errno::NOSPC, Errno::BADF, Errno::DQUOT] {
            assert!(!is_unsupported(&io::Error::from(code)), "{code}");
        }
        for code in [Errno::NOSYS, Errno::INVAL, Errno::SPIPE, Errno::PERM, Errno::OPNOTSUPP] {
            assert!(is_unsupported(&io::Error::from(code)), "{code}");
        }
    }
}
