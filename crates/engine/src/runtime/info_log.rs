//! The info log: `LOG` in the database directory, one line per event, beginning with the UTC time.
//! (Not the write-ahead log.) It is never read back.
//!
//! 1. Nothing depends on it: a failed write switches it off until the next open; no error is
//!    reported.
//! 2. It is never synced and not listed in the manifest: recovery, checkpoints, backups and
//!    `verify` ignore it.
//! 3. All its files together are no larger than (files kept + 1) times the size limit, plus one
//!    line.

use crate::limits::INFO_LOG_LINE_BYTES_MAX;
use perigee_env::{Clock, Dir, Mutex, WritableFile};
use perigee_file::filename;
use std::fmt::{self, Display, Write};
use std::sync::Arc;

#[derive(Debug)]
enum InfoLogState {
    /// No line has been written yet.
    Unopened,
    Open(Arc<dyn WritableFile>),
    /// Disabled, or switched off after an error.
    Off,
}

/// The info log. The mutex guards the file and is held across I/O; no other lock is taken while it
/// is held.
pub struct InfoLog {
    dir: Arc<dyn Dir>,
    clock: Arc<dyn Clock>,
    bytes_max: u64,
    files_kept: u32,
    state: Mutex<InfoLogState>,
}

impl fmt::Debug for InfoLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InfoLog({} bytes, {} kept)", self.bytes_max, self.files_kept)
    }
}

impl InfoLog {
    /// Creates a log with files of at most `bytes_max` bytes (0: disabled), keeping `files_kept`
    /// older ones. The file is opened when the first line is written.
    pub fn new(
        dir: Arc<dyn Dir>,
        clock: Arc<dyn Clock>,
        bytes_max: u64,
        files_kept: u32,
    ) -> InfoLog {
        let state =
            Mutex::new(if bytes_max == 0 { InfoLogState::Off } else { InfoLogState::Unopened });
        InfoLog { dir, clock, bytes_max, files_kept, state }
    }

    /// Writes a line. Errors are not reported to the caller.
    pub fn write_line(&self, what: impl Display) {
        let mut state = self.state.lock();
        if matches!(*state, InfoLogState::Off) {
            return;
        }
        let mut line = format_utc(self.clock.wall_ms());
        let _ = write!(line, " {what}");
        let mut line = sanitize_line(&line);
        line.push('\n');
        *state = match self.append(&state, line.as_bytes()) {
            Ok(file) => InfoLogState::Open(file),
            Err(_) => InfoLogState::Off,
        };
    }

    fn append(
        &self,
        state: &InfoLogState,
        line: &[u8],
    ) -> perigee_base::Result<Arc<dyn WritableFile>> {
        let mut file = match state {
            InfoLogState::Open(file) => Arc::clone(file),
            _ if self.dir.file_len(filename::INFO_LOG)?.is_some() => {
                self.dir.append_to(filename::INFO_LOG)?
            }
            _ => self.dir.create(filename::INFO_LOG)?,
        };
        check_slow!(
            line.ends_with(b"\n") && line.iter().filter(|b| **b == b'\n').count() == 1,
            "an event is one line of the log",
            line.len()
        );
        if !file.is_empty() && file.len() + line.len() as u64 > self.bytes_max {
            drop(file);
            self.rotate()?;
            file = self.dir.create(filename::INFO_LOG)?;
        }
        file.append(&[line])?;
        check_slow!(
            file.len() <= self.bytes_max.max(line.len() as u64),
            "a log file exceeds its limit only by a single line",
            file.len(),
            self.bytes_max
        );
        Ok(file)
    }

    /// Renames `LOG.1` to `LOG.2`, `LOG` to `LOG.1` and so on; the oldest file is replaced or
    /// removed.
    fn rotate(&self) -> perigee_base::Result<()> {
        for n in (1..self.files_kept).rev() {
            let old = filename::info_log_name(n);
            if self.dir.file_len(&old)?.is_some() {
                self.dir.rename(&old, &filename::info_log_name(n + 1))?;
            }
        }
        match self.files_kept {
            0 => self.dir.remove(filename::INFO_LOG),
            _ => self.dir.rename(filename::INFO_LOG, &filename::info_log_name(1)),
        }
    }
}

/// Returns `text` with control characters replaced by spaces, cut at the maximum line length.
pub fn sanitize_line(text: &str) -> String {
    let mut end = text.len().min(INFO_LOG_LINE_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Formats a time in milliseconds since the Unix epoch as `2026-11-21T06:12:33.045Z`.
fn format_utc(ms: u64) -> String {
    let (days, of_day) = (ms / 86_400_000, ms % 86_400_000);
    let (year, month, day) = civil_date(days);
    let (h, m, s) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{:03}Z", ms % 1000)
}

/// Returns year, month and day of a day since 1970-01-01, in the Gregorian calendar.
fn civil_date(mut days: u64) -> (u64, u64, u64) {
    let leap = |y: u64| (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
    // Every 400 years have the same number of days.
    let mut year = 1970 + days / 146_097 * 400;
    days %= 146_097;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    (year, month as u64 + 1, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_env::fs::memory::SimDisk;
    use perigee_env::{DirOpenMode, Env};

    #[test]
    fn times_are_formatted_as_utc() {
        assert_eq!(format_utc(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(format_utc(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(format_utc(1_795_241_553_045), "2026-11-21T06:12:33.045Z");
        assert_eq!(format_utc(4_107_542_399_999), "2100-02-28T23:59:59.999Z");
        assert_eq!(format_utc(4_107_542_400_000), "2100-03-01T00:00:00.000Z");
        assert!(format_utc(u64::MAX).ends_with('Z'));
    }

    #[test]
    fn lines_are_sanitized_and_truncated() {
        assert_eq!(sanitize_line("a\nb\u{7}c"), "a b c");
        assert_eq!(sanitize_line(&"é".repeat(3000)).len(), INFO_LOG_LINE_BYTES_MAX);
    }

    fn log(kept: u32) -> (InfoLog, Arc<dyn Dir>) {
        let env = Env { fs: SimDisk::new(1), ..Env::real() };
        let dir = env.fs.open_dir("/d".as_ref(), DirOpenMode::CreateIfMissing).unwrap();
        (InfoLog::new(Arc::clone(&dir), env.clock, 300, kept), dir)
    }

    #[test]
    fn rotation_keeps_the_configured_number_of_files() {
        let (log, dir) = log(2);
        for i in 0..40 {
            log.write_line(format_args!("event {i} {}", "x".repeat(50)));
        }
        assert_eq!(dir.list().unwrap(), ["LOG", "LOG.1", "LOG.2"]);
        let total: u64 =
            dir.list().unwrap().iter().map(|n| dir.file_len(n).unwrap().unwrap()).sum();
        assert!(total <= 900, "{total}");
        let (log, dir) = self::log(0);
        (0..40).for_each(|i| log.write_line(i));
        assert_eq!(dir.list().unwrap(), ["LOG"]);
    }

    #[test]
    fn unwritable_log_is_switched_off() {
        let (log, dir) = log(1);
        let readonly = perigee_env::fs::ReadOnlyDir::wrap(Arc::clone(&dir));
        let log = InfoLog { dir: readonly, ..log };
        log.write_line("not written");
        assert!(matches!(*log.state.lock(), InfoLogState::Off));
        assert!(dir.list().unwrap().is_empty());
    }
}
