//! Progress on stderr, with rate and remaining time, for anything longer than a second. Only if
//! stderr is a terminal; never on stdout.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Short jobs stay silent.
const QUIET_PERIOD: Duration = Duration::from_secs(1);

/// A bar that appears when the job has taken a second.
pub struct Progress {
    bar: ProgressBar,
    started: Instant,
    visible: bool,
}

impl Progress {
    /// A bar over bytes; a total of 0 means unknown.
    pub fn bytes(what: &'static str, total: u64) -> Progress {
        let template = if total > 0 {
            "{msg} {bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left"
        } else {
            "{msg} {spinner} {bytes}, {bytes_per_sec}, {elapsed}"
        };
        Self::new(what, total, template)
    }

    /// A bar over things; a total of 0 means unknown.
    pub fn items(what: &'static str, total: u64) -> Progress {
        let template = if total > 0 {
            "{msg} {bar:30} {human_pos} of {human_len}, {per_sec}, {eta} left"
        } else {
            "{msg} {spinner} {human_pos}, {per_sec}, {elapsed}"
        };
        Self::new(what, total, template)
    }

    fn new(what: &'static str, total: u64, template: &str) -> Progress {
        let length = (total > 0).then_some(total);
        let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::hidden());
        let style =
            ProgressStyle::with_template(template).expect("the templates above are well-formed");
        bar.set_style(style);
        bar.set_message(what);
        Progress { bar, started: Instant::now(), visible: false }
    }

    /// The job has come to `position`.
    pub fn set_position(&mut self, position: u64) {
        self.bar.set_position(position);
        if !self.visible
            && self.started.elapsed() >= QUIET_PERIOD
            && std::io::stderr().is_terminal()
        {
            self.visible = true;
            self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(8));
        }
    }

    /// The total is known now, or is another.
    pub fn set_total(&mut self, total: u64) {
        if self.bar.length() != Some(total) {
            self.bar.set_length(total);
        }
    }

    /// A line on stderr that does not tear the bar.
    pub fn print_line(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
