//! Delivers the lines of the info log to the user's log listener.
//!
//! 1. Lines are delivered in the order in which they entered the queue, one at a time: by a
//!    dedicated thread (`jobs::worker`), and at open and close by the calling thread, which then
//!    holds no lock. They are not delivered by the threads that flush and compact: a listener that
//!    writes may have to wait for those. All threads only add lines to the queue
//!    ([`ListenerQueue::enqueue`]).
//! 2. A panic in a listener ends only that call.
//! 3. The queue is bounded. When it is full, the oldest lines are dropped, and the listener
//!    receives their number.
//! 4. Once [`ListenerQueue::finish_delivery`] has returned true, no line is delivered any more.

use crate::settings::log_listener::{LogLevel, LogListener};
use perigee_base::limits::LOG_LISTENER_LINES_MAX;
use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
struct ListenerQueueState {
    queue: VecDeque<(LogLevel, String)>,
    dropped_lines: u64,
    delivering: bool,
    finished: bool,
}

thread_local! {
    /// Address of the queue whose listener is running on this thread (0: none).
    static CALLED: Cell<usize> = const { Cell::new(0) };
}

/// The listener of a database and its undelivered lines. The mutex guards the queue; user code is
/// never called while it is held.
#[derive(Debug)]
pub struct ListenerQueue {
    listener: Option<LogListener>,
    state: Mutex<ListenerQueueState>,
    /// Number of lines in the queue; written under the mutex.
    queued_lines: AtomicUsize,
    panics: AtomicU64,
}

impl ListenerQueue {
    /// Creates the queue, with or without a listener.
    pub fn new(listener: Option<LogListener>) -> ListenerQueue {
        let (state, queued_lines, panics) = Default::default();
        ListenerQueue { listener, state, queued_lines, panics }
    }
    fn state(&self) -> MutexGuard<'_, ListenerQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn address(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }
    /// Returns true if the listener receives lines of that level.
    pub fn accepts(&self, level: LogLevel) -> bool {
        self.listener.as_ref().is_some_and(|l| level >= l.level)
    }
    /// Returns true if there is a listener.
    pub fn has_listener(&self) -> bool {
        self.listener.is_some()
    }
    /// Adds a line, to be delivered at the next [`ListenerQueue::deliver`]; returns false if the
    /// listener does not receive this level or delivery is finished.
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
    /// Delivers the queued lines, unless another thread (or an outer call on this thread) is doing
    /// so.
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
            let mut state = self.state();
            check!(state.delivering, "one thread at a time delivers lines", state.finished);
            state.delivering = false;
        }
    }

    /// Takes the next line for delivery by this thread; `None` if there is none, or if another
    /// thread is delivering.
    fn take_next(&self) -> Option<(LogLevel, String)> {
        let mut state = self.state();
        if state.delivering {
            return None;
        }
        let next = match std::mem::take(&mut state.dropped_lines) {
            0 => state.queue.pop_front()?,
            lost => (
                LogLevel::Warn,
                format!(
                    "log        {lost} lines before this one were dropped: the listener is too slow"
                ),
            ),
        };
        check!(!state.finished, "no line is delivered after the last one", next.1);
        self.queued_lines.store(state.queue.len(), Relaxed);
        state.delivering = true;
        Some(next)
    }

    /// Returns true if this thread is inside a call of the listener.
    pub fn is_inside_listener(&self) -> bool {
        CALLED.get() == self.address()
    }
    /// Delivers the remaining lines. Returns true if delivery is finished and no line will be
    /// delivered any more, false if another thread is still delivering one.
    pub fn finish_delivery(&self) -> bool {
        self.deliver();
        let mut state = self.state();
        let over = !state.delivering && state.queue.is_empty();
        state.finished |= over;
        over
    }
    /// Returns the number of listener calls that panicked.
    pub fn panic_count(&self) -> u64 {
        self.panics.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::log_listener::LogListenerFn;
    use std::sync::Arc;

    /// The lines received.
    type ReceivedLines = Arc<Mutex<Vec<(LogLevel, String)>>>;

    fn queue(
        level: LogLevel,
        on_line: impl Fn(&str) + Send + Sync + 'static,
    ) -> (ListenerQueue, ReceivedLines) {
        let received = ReceivedLines::default();
        let list = Arc::clone(&received);
        let code: LogListenerFn = Arc::new(move |level, line| {
            list.lock().unwrap().push((level, line.to_owned()));
            on_line(line);
        });
        (ListenerQueue::new(Some(LogListener { level, callback: code })), received)
    }

    #[test]
    fn lines_arrive_in_order_filtered_by_level() {
        let (queue, received) = queue(LogLevel::Info, |_| {});
        queue.enqueue(LogLevel::Debug, || unreachable!("below the level of the listener"));
        queue.enqueue(LogLevel::Info, || "one".into());
        queue.enqueue(LogLevel::Error, || "two".into());
        assert!(received.lock().unwrap().is_empty(), "enqueue does not call the listener");
        queue.deliver();
        assert_eq!(
            *received.lock().unwrap(),
            [(LogLevel::Info, "one".into()), (LogLevel::Error, "two".into())]
        );
        assert!(queue.finish_delivery());
        queue.enqueue(LogLevel::Error, || "three".into());
        queue.deliver();
        assert_eq!(received.lock().unwrap().len(), 2, "delivery was finished");
        let no_listener = ListenerQueue::new(None);
        no_listener.enqueue(LogLevel::Error, || unreachable!("there is no listener"));
        assert!(no_listener.finish_delivery());
    }

    #[test]
    fn full_queue_drops_oldest_and_panic_ends_one_call() {
        let (queue, received) = queue(LogLevel::Debug, |line| assert_ne!(line, "3"));
        for i in 0..LOG_LISTENER_LINES_MAX + 3 {
            assert!(queue.enqueue(LogLevel::Info, || i.to_string()));
        }
        queue.deliver();
        let received = received.lock().unwrap();
        assert_eq!(received[0].0, LogLevel::Warn);
        assert!(received[0].1.contains(" 3 lines"), "{}", received[0].1);
        assert_eq!((&*received[1].1, received.len()), ("3", LOG_LISTENER_LINES_MAX + 1));
        assert_eq!(queue.panic_count(), 1);
    }
}
