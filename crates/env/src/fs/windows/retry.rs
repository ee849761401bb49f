//! Repeats calls that fail because another program has a file open. Virus scanners and indexers
//! open new files for some milliseconds, and many do not allow that they are deleted or renamed
//! meanwhile.

use crate::limits::IN_USE_DELAY_MS_MAX;
use std::io;
use std::time::Duration;
use windows_sys::Win32::Foundation::{ERROR_ACCESS_DENIED, ERROR_SHARING_VIOLATION};

/// Calls `call` until it succeeds, fails for another reason, or the delays between the calls, which
/// double, have reached their limit: half a second in total. Windows reports a missing permission
/// by the same error number, so that such a call fails late.
pub(super) fn while_in_use<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut delay_ms = 1;
    loop {
        match call() {
            Err(e) if is_in_use(&e) && delay_ms <= IN_USE_DELAY_MS_MAX => {
                std::thread::sleep(Duration::from_millis(delay_ms));
                delay_ms *= 2;
            }
            done => return done,
        }
    }
}

fn is_in_use(e: &io::Error) -> bool {
    let number = e.raw_os_error().and_then(|number| u32::try_from(number).ok());
    matches!(number, Some(ERROR_SHARING_VIOLATION | ERROR_ACCESS_DENIED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_in_use_are_tried_again() {
        let mut calls = 0;
        let done = while_in_use(|| {
            calls += 1;
            if calls < 3 { Err(io::Error::from_raw_os_error(32)) } else { Ok(calls) }
        });
        assert_eq!(done.unwrap(), 3);
        let failed = while_in_use(|| {
            calls += 1;
            Err::<(), _>(io::Error::from_raw_os_error(112))
        });
        assert_eq!((failed.unwrap_err().kind(), calls), (io::ErrorKind::StorageFull, 4));
    }
}
