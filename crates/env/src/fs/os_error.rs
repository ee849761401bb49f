//! Numbers of errors of the operating system that the engine recognizes or simulates.

#[cfg(not(windows))]
mod numbers {
    /// `EMFILE`, `ENFILE`: too many open files in the process, in the system.
    pub const TOO_MANY_FILES: [i32; 2] = [24, 23];
    /// `EIO`.
    #[cfg(feature = "sim")]
    pub const DEVICE_FAILED: i32 = 5;
    /// `ENOSPC`.
    #[cfg(feature = "sim")]
    pub const DISK_FULL: i32 = 28;
}

#[cfg(windows)]
mod numbers {
    /// `ERROR_TOO_MANY_OPEN_FILES`, `ERROR_NO_SYSTEM_RESOURCES`: Windows has no limit on the handles
    /// of a process below 16 million, but the memory of the kernel for them is limited.
    pub const TOO_MANY_FILES: [i32; 2] = [4, 1450];
    /// `ERROR_IO_DEVICE`.
    #[cfg(feature = "sim")]
    pub const DEVICE_FAILED: i32 = 1117;
    /// `ERROR_DISK_FULL`.
    #[cfg(feature = "sim")]
    pub const DISK_FULL: i32 = 112;
}

pub(super) use numbers::TOO_MANY_FILES;
#[cfg(feature = "sim")]
pub(super) use numbers::{DEVICE_FAILED, DISK_FULL};

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn full_disk_is_recognized_by_the_standard_library() {
        let kind = |number| io::Error::from_raw_os_error(number).kind();
        assert_eq!(kind(DISK_FULL), io::ErrorKind::StorageFull);
        for other in [DEVICE_FAILED, TOO_MANY_FILES[0], TOO_MANY_FILES[1]] {
            assert_ne!(kind(other), io::ErrorKind::StorageFull, "{other}");
        }
    }
}
