//! The human-readable log: lines with a level, on standard error or in the file `LOG` of the
//! database that was opened last with `log_to_file`. One log per process, as in TidesDB. Does not
//! depend on the engine.

use std::ffi::c_int;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::abi::{LOG_DEBUG, LOG_ERROR, LOG_INFO, LOG_NONE, LOG_WARN};

/// Lines below this level are not written. Exported because a macro of TidesDB's header reads it.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static _tidesdb_log_level: AtomicI32 = AtomicI32::new(LOG_INFO);

struct LogFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// Size at which the file is truncated; 0: never.
    max_bytes: u64,
}

static LOG_FILE: Mutex<Option<LogFile>> = Mutex::new(None);

fn log_file() -> std::sync::MutexGuard<'static, Option<LogFile>> {
    LOG_FILE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the level.
pub fn set_level(level: c_int) {
    _tidesdb_log_level.store(level, Relaxed);
}

/// Returns true if lines of a level are written.
#[inline]
pub fn is_enabled(level: c_int) -> bool {
    let least = _tidesdb_log_level.load(Relaxed);
    least != LOG_NONE && level >= least
}

/// Lines buffered until the log's target is known.
static BUFFERED_LINES: Mutex<Option<Vec<String>>> = Mutex::new(None);

fn buffered_lines() -> std::sync::MutexGuard<'static, Option<Vec<String>>> {
    BUFFERED_LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Buffers lines until `flush_buffered` or `log_to_file`.
pub fn start_buffering() {
    buffered_lines().get_or_insert_default();
}

/// Writes the buffered lines to the current target.
pub fn flush_buffered() {
    let lines = buffered_lines().take();
    let mut target = log_file();
    for line in lines.into_iter().flatten() {
        write_line(&mut target, &line);
    }
}

/// Appends all further lines to this file; if it cannot be opened, the target stays as it is.
pub fn log_to_file(path: &Path, most: u64) {
    let open = || {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let bytes = file.metadata()?.len();
        Ok::<_, std::io::Error>(LogFile { path: path.to_owned(), file, bytes, max_bytes: most })
    };
    let failed = match open() {
        Ok(opened) => {
            *log_file() = Some(opened);
            None
        }
        Err(e) => Some(e),
    };
    flush_buffered();
    if let Some(e) = failed {
        warn(&format!("the log file cannot be written: {}: {e}", path.display()));
    }
}

/// If this file is the target, switches to standard error.
pub fn stop_logging_to(path: &Path) {
    let mut target = log_file();
    if target.as_ref().is_some_and(|t| t.path == path) {
        *target = None;
    }
}

fn level_name(level: c_int) -> &'static str {
    match level {
        LOG_DEBUG => "DEBUG",
        LOG_INFO => "INFO",
        LOG_WARN => "WARN",
        LOG_ERROR => "ERROR",
        _ => "FATAL",
    }
}

/// Converts days since 1970 to year, month and day (proleptic Gregorian calendar).
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let (era, day) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let rest = day - (365 * year + year / 4 - year / 100);
    let month = (5 * rest + 2) / 153;
    let (d, m) = (rest - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    (year + era * 400 + i64::from(m <= 2), m, d)
}

fn timestamp() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (s, ms) = (now.as_secs() as i64, now.subsec_millis());
    let (y, mo, d) = civil_from_days(s.div_euclid(86_400));
    let (h, mi, s) = (s / 3600 % 24, s / 60 % 60, s % 60);
    format!("{y:04}-{mo:02}-{d:02}T{h:02}:{mi:02}:{s:02}.{ms:03}Z")
}

/// Writes a line with its source location, whatever its level.
pub fn log_from_source(level: c_int, file: &str, line: c_int, text: &str) {
    let whole = format!("[{}] [{}] {file}:{line}: {text}\n", timestamp(), level_name(level));
    if let Some(lines) = buffered_lines().as_mut() {
        lines.push(whole);
        return;
    }
    write_line(&mut log_file(), &whole);
}

fn write_line(target: &mut Option<LogFile>, whole: &str) {
    let Some(t) = target.as_mut() else {
        let _ = std::io::stderr().write_all(whole.as_bytes());
        return;
    };
    if t.max_bytes > 0 && t.bytes >= t.max_bytes && t.file.set_len(0).is_ok() {
        let _ = writeln!(t.file, "[the log was truncated at {} bytes]", t.bytes);
        t.bytes = 0;
    }
    if t.file.write_all(whole.as_bytes()).is_ok() {
        t.bytes += whole.len() as u64;
    }
}

fn log_line(level: c_int, text: &str) {
    if is_enabled(level) {
        log_from_source(level, "perigee", 0, text);
    }
}

/// Logs an error.
#[cold]
pub fn error(text: &str) {
    log_line(LOG_ERROR, text);
}
/// Logs a warning.
#[cold]
pub fn warn(text: &str) {
    log_line(LOG_WARN, text);
}
/// Logs information.
#[cold]
pub fn info(text: &str) {
    log_line(LOG_INFO, text);
}
#[cfg(test)]
mod tests {
    #[test]
    fn civil_dates_of_days_are_correct() {
        for (days, date) in [
            (0, (1970, 1, 1)),
            (59, (1970, 3, 1)),
            (20_778, (2026, 11, 21)),
            (11_016, (2000, 2, 29)),
        ] {
            assert_eq!(super::civil_from_days(days), date);
        }
    }
}
