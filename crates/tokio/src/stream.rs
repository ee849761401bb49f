//! Ranges as streams. A blocking thread reads some entries ahead, and none is occupied while the
//! consumer works on them.

use crate::join_error;
use futures_core::Stream;
use perigee::{Iter, Result, Slice};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::ops::{Bound, RangeBounds};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::task::JoinHandle;

/// Entries that the first call to a blocking thread reads: short ranges do not read more.
const FIRST_ENTRIES: usize = 32;
/// Entries that a call reads at most.
const ENTRIES_MAX: usize = 1024;
/// Entries that a call in a transaction reads: what it reads ahead counts as read by it.
const TXN_ENTRIES_MAX: usize = 32;
/// Bytes of keys and values after which a call returns.
const CALL_BYTES: usize = 256 << 10;

/// Copies the bounds of a range, for another thread.
pub(crate) fn owned_bounds<K: AsRef<[u8]>>(
    range: impl RangeBounds<K>,
) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let copy = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
    (copy(range.start_bound()), copy(range.end_bound()))
}

/// An entry: key and value.
type Entry = (Slice, Slice);

/// The entries of a range in key order; ends after an error. It sees the state at its first poll,
/// and until it is dropped it retains the files and memtables that contain it.
#[must_use = "a stream does nothing unless it is polled"]
pub struct EntryStream {
    state: State,
    ready: VecDeque<Entry>,
    /// Follows the entries that are ready.
    error: Option<perigee::Error>,
    /// Entries that the next call reads, and that a call reads at most.
    entries: usize,
    entries_max: usize,
    reversed: bool,
}

enum State {
    New(Box<dyn FnOnce() -> Result<Iter> + Send>),
    /// Boxed: it is several hundred bytes, and moves to the thread and back.
    Idle(Box<Iter>),
    Reading(JoinHandle<Read>),
    Ended,
}

/// What a call has read.
struct Read {
    entries: VecDeque<Entry>,
    /// `None` at the end and after an error.
    iter: Option<Box<Iter>>,
    error: Option<perigee::Error>,
}

impl EntryStream {
    pub(crate) fn new(begin: impl FnOnce() -> Result<Iter> + Send + 'static) -> EntryStream {
        EntryStream {
            state: State::New(Box::new(begin)),
            ready: VecDeque::new(),
            error: None,
            entries: FIRST_ENTRIES,
            entries_max: ENTRIES_MAX,
            reversed: false,
        }
    }
    pub(crate) fn in_txn(begin: impl FnOnce() -> Result<Iter> + Send + 'static) -> EntryStream {
        EntryStream { entries_max: TXN_ENTRIES_MAX, ..EntryStream::new(begin) }
    }
    /// Reverses the order of the entries. Call it before the first poll.
    ///
    /// # Panics
    /// If the stream was polled.
    pub fn rev(mut self) -> EntryStream {
        assert!(matches!(self.state, State::New(_)), "the direction of a stream cannot change");
        self.reversed = !self.reversed;
        self
    }
}

/// Reads up to `most` entries.
fn read(begun: Result<Box<Iter>>, most: usize, reversed: bool) -> Read {
    let mut read = Read { entries: VecDeque::new(), iter: None, error: None };
    let mut iter = match begun {
        Ok(iter) => iter,
        Err(e) => return Read { error: Some(e), ..read },
    };
    let mut bytes = 0;
    while read.entries.len() < most && bytes < CALL_BYTES {
        match if reversed { iter.next_back() } else { iter.next() } {
            Some(Ok(entry)) => {
                bytes += entry.0.len() + entry.1.len();
                read.entries.push_back(entry);
            }
            Some(Err(e)) => return Read { error: Some(e), ..read },
            None => return read,
        }
    }
    Read { iter: Some(iter), ..read }
}

impl Stream for EntryStream {
    type Item = Result<Entry>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(entry) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(entry)));
            }
            if let Some(e) = self.error.take() {
                return Poll::Ready(Some(Err(e)));
            }
            let (most, reversed) = (self.entries, self.reversed);
            self.state = match std::mem::replace(&mut self.state, State::Ended) {
                State::New(begin) => State::Reading(tokio::task::spawn_blocking(move || {
                    read(begin().map(Box::new), most, reversed)
                })),
                State::Idle(iter) => State::Reading(tokio::task::spawn_blocking(move || {
                    read(Ok(iter), most, reversed)
                })),
                State::Reading(mut call) => match Pin::new(&mut call).poll(cx) {
                    Poll::Pending => {
                        self.state = State::Reading(call);
                        return Poll::Pending;
                    }
                    Poll::Ready(done) => {
                        let read = done.unwrap_or_else(|e| Read {
                            entries: VecDeque::new(),
                            iter: None,
                            error: Some(join_error(e)),
                        });
                        self.entries = (self.entries * 4).min(self.entries_max);
                        (self.ready, self.error) = (read.entries, read.error);
                        read.iter.map_or(State::Ended, State::Idle)
                    }
                },
                State::Ended => return Poll::Ready(None),
            };
        }
    }
}

impl fmt::Debug for EntryStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::New(_) => "new",
            State::Idle(_) => "idle",
            State::Reading(_) => "reading",
            State::Ended => "ended",
        };
        write!(f, "EntryStream({state}, {} entries ready)", self.ready.len())
    }
}
