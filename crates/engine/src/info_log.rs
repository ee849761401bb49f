//! The log for people: `LOG` in the database directory, one line for each event, UTC time first. (The write-ahead log is
//! another thing.) Nothing ever reads it back.
//!
//! 1. Nothing depends on it: a write that fails switches it off until the next open, and nobody hears an error.
//! 2. It is never synced, and named in no manifest: recovery, checkpoints, backups and `verify` pass it by.
//! 3. All its files together stay within (files kept + 1) times the limit, and one line.

use perigee_env::clock::Clock;
use perigee_env::sync::Mutex;
use perigee_env::{Append, Dir};
use perigee_file::name;
use std::fmt::{self, Display, Write};
use std::sync::Arc;

/// Longest line; the rest is cut off.
const LINE_BYTES_MAX: usize = 4096;

#[derive(Debug)]
enum State {
    /// Nothing was written yet.
    Unopened,
    Open(Arc<dyn Append>),
    /// Switched off, or given up.
    Off,
}

/// The log. The mutex guards the file, and is held across I/O; nothing is locked inside.
pub struct InfoLog {
    dir: Arc<dyn Dir>,
    clock: Arc<dyn Clock>,
    bytes_max: u64,
    files_kept: u32,
    state: Mutex<State>,
}

impl fmt::Debug for InfoLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InfoLog({} bytes, {} kept)", self.bytes_max, self.files_kept)
    }
}

impl InfoLog {
    /// A log of files of `bytes_max` (0: none at all), with so many older ones kept. Opened at the first line.
    pub fn new(dir: Arc<dyn Dir>, clock: Arc<dyn Clock>, bytes_max: u64, files_kept: u32) -> InfoLog {
        let state = Mutex::new(if bytes_max == 0 { State::Off } else { State::Unopened });
        InfoLog { dir, clock, bytes_max, files_kept, state }
    }

    /// Writes a line. Whatever goes wrong, the caller goes on.
    pub fn line(&self, what: impl Display) {
        let mut state = self.state.lock();
        if matches!(*state, State::Off) {
            return;
        }
        let mut line = utc(self.clock.wall_ms());
        let _ = write!(line, " {what}");
        let mut line = one_line(&line);
        line.push('\n');
        *state = match self.append(&state, line.as_bytes()) {
            Ok(file) => State::Open(file),
            Err(_) => State::Off,
        };
    }

    fn append(&self, state: &State, line: &[u8]) -> perigee_base::Result<Arc<dyn Append>> {
        let mut file = match state {
            State::Open(file) => Arc::clone(file),
            _ if self.dir.file_len(name::INFO_LOG)?.is_some() => self.dir.append_to(name::INFO_LOG)?,
            _ => self.dir.create(name::INFO_LOG)?,
        };
        if !file.is_empty() && file.len() + line.len() as u64 > self.bytes_max {
            drop(file);
            self.rotate()?;
            file = self.dir.create(name::INFO_LOG)?;
        }
        file.append(&[line])?;
        Ok(file)
    }

    /// `LOG.1` becomes `LOG.2`, `LOG` becomes `LOG.1`; the oldest goes.
    fn rotate(&self) -> perigee_base::Result<()> {
        for n in (1..self.files_kept).rev() {
            let old = name::info_log(n);
            if self.dir.file_len(&old)?.is_some() {
                self.dir.rename(&old, &name::info_log(n + 1))?;
            }
        }
        match self.files_kept {
            0 => self.dir.remove(name::INFO_LOG),
            _ => self.dir.rename(name::INFO_LOG, &name::info_log(1)),
        }
    }
}

/// Without line feeds and control characters, not too long.
pub fn one_line(text: &str) -> String {
    let mut end = text.len().min(LINE_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// `2026-11-21T06:12:33.045Z`.
fn utc(ms: u64) -> String {
    let (days, of_day) = (ms / 86_400_000, ms % 86_400_000);
    let (year, month, day) = date(days);
    let (h, m, s) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{:03}Z", ms % 1000)
}

/// Year, month and day of a day since 1970, in the Gregorian calendar.
fn date(mut days: u64) -> (u64, u64, u64) {
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
    use perigee_env::Env;
    use perigee_env::fs::OpenDir;
    use perigee_env::fs::memory::SimDisk;

    #[test]
    fn times_are_readable() {
        assert_eq!(utc(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(utc(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(utc(1_795_241_553_045), "2026-11-21T06:12:33.045Z");
        assert_eq!(utc(4_107_542_399_999), "2100-02-28T23:59:59.999Z");
        assert_eq!(utc(4_107_542_400_000), "2100-03-01T00:00:00.000Z");
        assert!(utc(u64::MAX).ends_with('Z'));
    }

    #[test]
    fn lines_are_lines() {
        assert_eq!(one_line("a\nb\u{7}c"), "a b c");
        assert_eq!(one_line(&"é".repeat(3000)).len(), LINE_BYTES_MAX);
    }

    fn log(kept: u32) -> (InfoLog, Arc<dyn Dir>) {
        let env = Env { fs: SimDisk::new(1), ..Env::real() };
        let dir = env.fs.open_dir("/d".as_ref(), OpenDir::CreateIfMissing).unwrap();
        (InfoLog::new(Arc::clone(&dir), env.clock, 300, kept), dir)
    }

    #[test]
    fn old_files_are_kept_up_to_their_number() {
        let (log, dir) = log(2);
        for i in 0..40 {
            log.line(format_args!("event {i} {}", "x".repeat(50)));
        }
        assert_eq!(dir.list().unwrap(), ["LOG", "LOG.1", "LOG.2"]);
        let total: u64 = dir.list().unwrap().iter().map(|n| dir.file_len(n).unwrap().unwrap()).sum();
        assert!(total <= 900, "{total}");
        let (log, dir) = self::log(0);
        (0..40).for_each(|i| log.line(i));
        assert_eq!(dir.list().unwrap(), ["LOG"]);
    }

    #[test]
    fn a_log_that_cannot_be_written_is_given_up() {
        let (log, dir) = log(1);
        let readonly = perigee_env::fs::readonly::ReadOnlyDir::over(Arc::clone(&dir));
        let log = InfoLog { dir: readonly, ..log };
        log.line("nobody hears this");
        assert!(matches!(*log.state.lock(), State::Off));
        assert!(dir.list().unwrap().is_empty());
    }
}
