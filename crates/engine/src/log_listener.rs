//! A user's listener: code that is told the lines of the log for people as they come, for a program
//! that has a log of its own.
//!
//! 1. Lines are told in the order in which they entered the queue, one at a time: by a thread of
//!    its own (`jobs::worker`), and at open and close by those who do that, holding nothing. Not by
//!    the threads that flush and compact: a listener that writes may have to wait for them. Whoever
//!    has something to tell leaves it in the queue ([`ListenerQueue::push`]).
//! 2. A panic in a listener ends that call and nothing else.
//! 3. The queue has a limit. Beyond it the oldest lines go, and the listener is told how many.
//! 4. When [`ListenerQueue::finish`] returns true no line is told any more.

use perigee_base::limits::LOG_LISTENER_LINES_MAX;
use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How much a line of the log matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LogLevel {
    /// Work begins: a flush, a compaction. Only listeners hear it, the file `LOG` does not.
    Debug,
    /// What happens all the time: open, flush, compaction, changes of families, close.
    Info,
    /// Something to look at: writers were stopped, the end of a log was cut.
    Warn,
    /// Something failed.
    Error,
}

impl LogLevel {
    /// In a word: `debug`, `info`, `warn`, `error`.
    pub fn name(self) -> &'static str {
        match self {
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Warn => "warn",
            LogLevel::Error => "error",
        }
    }
}

/// A user's code.
pub type LogListenerFn = Arc<dyn Fn(LogLevel, &str) + Send + Sync>;

/// It, and from which level on it wants to hear.
#[derive(Clone)]
pub struct LogListener {
    /// The least level.
    pub level: LogLevel,
    /// The code.
    pub callback: LogListenerFn,
}

impl std::fmt::Debug for LogListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Listener(from {})", self.level.name())
    }
}

#[derive(Debug, Default)]
struct ListenerQueueState {
    queue: VecDeque<(LogLevel, String)>,
    dropped_lines: u64,
    delivering: bool,
    finished: bool,
}

thread_local! {
    /// The audience whose listener runs on this thread, by address (0: none).
    static CALLED: Cell<usize> = const { Cell::new(0) };
}

/// The listener of a database, and what it has not heard yet. The mutex guards the queue; no user's
/// code runs inside.
#[derive(Debug)]
pub struct ListenerQueue {
    listener: Option<LogListener>,
    state: Mutex<ListenerQueueState>,
    /// Lines in the queue, written under the mutex.
    queued_lines: AtomicUsize,
    panics: AtomicU64,
}

impl ListenerQueue {
    /// Somebody, or nobody.
    pub fn new(listener: Option<LogListener>) -> ListenerQueue {
        let (state, waiting, panics) = Default::default();
        ListenerQueue { listener, state, queued_lines: waiting, panics }
    }
    fn state(&self) -> MutexGuard<'_, ListenerQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn address(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }
    /// Whether anybody wants lines of that level.
    pub fn accepts(&self, level: LogLevel) -> bool {
        self.listener.as_ref().is_some_and(|l| level >= l.level)
    }
    /// Whether there is somebody.
    pub fn has_listener(&self) -> bool {
        self.listener.is_some()
    }
    /// Adds a line, which is told at the next [`ListenerQueue::call`]; false if nobody wants it.
    pub fn enqueue(&self, level: LogLevel, line: impl FnOnce() -> String) -> bool {
        if !self.accepts(level) {
            return false;
        }
        let line = line();
        let mut state = self.state();
        if state.finished {
            return false;
        }
        if state.queue.len() >= LOG_LISTENER_LINES_MAX {
            state.queue.pop_front();
            state.dropped_lines += 1;
        }
        state.queue.push_back((level, line));
        self.queued_lines.store(state.queue.len(), Relaxed);
        true
    }
    /// Tells what is in the queue, unless another thread (or the listener further up this one)
    /// does.
    #[inline]
    pub fn deliver(&self) {
        if self.queued_lines.load(Relaxed) != 0 {
            self.deliver_all();
        }
    }

    #[cold]
    fn deliver_all(&self) {
        let Some(listener) = &self.listener else { return };
        while let Some((level, line)) = self.take_next() {
            let outer = CALLED.replace(self.address());
            if catch_unwind(AssertUnwindSafe(|| (listener.callback)(level, &line))).is_err() {
                self.panics.fetch_add(1, Relaxed);
            }
            CALLED.set(outer);
            self.state().delivering = false;
        }
    }

    /// Takes the next line, to be told by this thread; none if there is none, or if another thread
    /// tells lines.
    fn take_next(&self) -> Option<(LogLevel, String)> {
        let mut state = self.state();
        if state.delivering {
            return None;
        }
        let next = match std::mem::take(&mut state.dropped_lines) {
            0 => state.queue.pop_front()?,
            lost => (
                LogLevel::Warn,
                format!("log        {lost} lines before this one are lost: the listener is slow"),
            ),
        };
        self.queued_lines.store(state.queue.len(), Relaxed);
        state.delivering = true;
        Some(next)
    }

    /// Whether the listener runs on this thread, further up.
    pub fn is_inside_listener(&self) -> bool {
        CALLED.get() == self.address()
    }
    /// Tells what is left. True: that is over, and no line is told any more. False: another thread
    /// is still telling one.
    pub fn finish_delivery(&self) -> bool {
        self.deliver();
        let mut state = self.state();
        let over = !state.delivering && state.queue.is_empty();
        state.finished |= over;
        over
    }
    /// How many calls panicked.
    pub fn panic_count(&self) -> u64 {
        self.panics.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was heard.
    type ReceivedLines = Arc<Mutex<Vec<(LogLevel, String)>>>;

    fn audience(
        level: LogLevel,
        act: impl Fn(&str) + Send + Sync + 'static,
    ) -> (ListenerQueue, ReceivedLines) {
        let heard = ReceivedLines::default();
        let list = Arc::clone(&heard);
        let code: LogListenerFn = Arc::new(move |level, line| {
            list.lock().unwrap().push((level, line.to_owned()));
            act(line);
        });
        (ListenerQueue::new(Some(LogListener { level, callback: code })), heard)
    }

    #[test]
    fn lines_arrive_in_order_filtered_by_level() {
        let (audience, heard) = audience(LogLevel::Info, |_| {});
        audience.enqueue(LogLevel::Debug, || unreachable!("nobody wants it"));
        audience.enqueue(LogLevel::Info, || "one".into());
        audience.enqueue(LogLevel::Error, || "two".into());
        assert!(heard.lock().unwrap().is_empty(), "who pushes may hold locks");
        audience.deliver();
        assert_eq!(
            *heard.lock().unwrap(),
            [(LogLevel::Info, "one".into()), (LogLevel::Error, "two".into())]
        );
        assert!(audience.finish_delivery());
        audience.enqueue(LogLevel::Error, || "three".into());
        audience.deliver();
        assert_eq!(heard.lock().unwrap().len(), 2, "it was over");
        let nobody = ListenerQueue::new(None);
        nobody.enqueue(LogLevel::Error, || unreachable!("nobody is there"));
        assert!(nobody.finish_delivery());
    }

    #[test]
    fn full_queue_drops_oldest_and_panic_ends_one_call() {
        let (audience, heard) = audience(LogLevel::Debug, |line| assert_ne!(line, "3"));
        for i in 0..LOG_LISTENER_LINES_MAX + 3 {
            assert!(audience.enqueue(LogLevel::Info, || i.to_string()));
        }
        audience.deliver();
        let heard = heard.lock().unwrap();
        assert_eq!(heard[0].0, LogLevel::Warn);
        assert!(heard[0].1.contains(" 3 lines"), "{}", heard[0].1);
        assert_eq!((&*heard[1].1, heard.len()), ("3", LOG_LISTENER_LINES_MAX + 1));
        assert_eq!(audience.panic_count(), 1);
    }
}
