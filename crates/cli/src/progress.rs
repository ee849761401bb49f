//! Progress bars on stderr, with rate and remaining time, for jobs longer than a second. Shown only
//! if stderr is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Jobs shorter than this show no progress.
const QUIET_PERIOD: Duration = Duration::from_secs(1);
/// Items between two updates of a bar.
const ITEMS_PER_UPDATE: u64 = 1024;

/// A progress bar that appears after [`QUIET_PERIOD`].
pub struct Progress {
    bar: ProgressBar,
    /// Calls of [`Progress::count_item`].
    items: u64,
    started: Instant,
    visible: bool,
}

impl Progress {
    /// Creates a bar that counts bytes; a total of 0 means unknown.
    pub fn bytes(what: &'static str, total: u64) -> Progress {
        let template = if total > 0 {
            "{msg} {bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left"
        } else {
            "{msg} {spinner} {bytes}, {bytes_per_sec}, {elapsed}"
        };
        Self::new(what, total, template)
    }

    /// Creates a bar that counts items; a total of 0 means unknown.
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
        let style = ProgressStyle::with_template(template).expect("the templates above are valid");
        bar.set_style(style);
        bar.set_message(what);
        Progress { bar, items: 0, started: Instant::now(), visible: false }
    }

    /// Sets how much of the total is done.
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

    /// Counts an item. Updates the bar only once per [`ITEMS_PER_UPDATE`].
    pub fn count_item(&mut self) {
        self.items += 1;
        if self.items.is_multiple_of(ITEMS_PER_UPDATE) {
            self.set_position(self.items);
        }
    }

    /// Sets or changes the total.
    pub fn set_total(&mut self, total: u64) {
        if self.bar.length() != Some(total) {
            self.bar.set_length(total);
        }
    }

    /// Prints a line on stderr without corrupting the bar.
    pub fn print_line(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
