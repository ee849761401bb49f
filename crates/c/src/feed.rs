//! The change feed: commits and changes of column families, as structures that are valid until the
//! next call.

use crate::boundary::{ErrorOut, Handle, Out, call};
use crate::database::database;
use crate::error::to_c_text;
use crate::range::{LOWER_EXCLUSIVE, UPPER_INCLUSIVE, bound_parts};
use perigee::Result;
use perigee::changes::{ChangeFeed, ChangeKind, ChangeOperation, FamilyChangeKind, FeedEvent};
use perigee_c_boundary::handle::HandleTable;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr::null;
use std::time::Duration;

/// `perigee_operation`.
#[repr(C)]
pub struct Operation {
    sequence: u64,
    expires_ms: u64,
    family: *const c_char,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
    kind: c_int,
    flags: c_uint,
}

/// `perigee_change`.
#[repr(C)]
pub struct Change {
    first_sequence: u64,
    sequence: u64,
    position: u64,
    operations: *const Operation,
    operation_count: usize,
    family: *const c_char,
    from: *const c_char,
    kind: c_int,
    family_id: u32,
}

/// A feed and the last change that it returned.
struct Feed {
    changes: ChangeFeed,
    returned: Option<Box<ReturnedChange>>,
}

struct ReturnedChange {
    event: FeedEvent,
    names: Vec<CString>,
    operations: Vec<Operation>,
    change: Change,
}

// SAFETY: the pointers refer to the other fields, which are not modified and live as long.
unsafe impl Send for ReturnedChange {}
// SAFETY: as above.
unsafe impl Sync for ReturnedChange {}

static FEEDS: HandleTable<Feed> = HandleTable::new(11);

const KIND_COMMIT: c_int = 0;
const KIND_OTHER: c_int = 99;

/// Returns an operation; `family` is the name of its column family.
fn to_operation(op: &ChangeOperation<'_>, family: *const c_char) -> Operation {
    let none: &[u8] = &[];
    let (mut flags, mut expires_ms) = (0, 0);
    let bytes = |b: &[u8]| (b.as_ptr().cast::<c_void>(), b.len());
    let (kind, (key, key_size), (value, value_size)) = match &op.kind {
        ChangeKind::Put { key, value, expires_at_ms } => {
            expires_ms = expires_at_ms.unwrap_or(0);
            (0, bytes(key), bytes(value))
        }
        ChangeKind::Delete { key } => (1, bytes(key), bytes(none)),
        ChangeKind::DeleteRange { start, end } => {
            let (lower, lower_size, lower_included) = bound_parts(*start);
            let (upper, upper_size, upper_included) = bound_parts(*end);
            if !lower.is_null() && !lower_included {
                flags |= LOWER_EXCLUSIVE;
            }
            if upper_included {
                flags |= UPPER_INCLUSIVE;
            }
            (2, (lower, lower_size), (upper, upper_size))
        }
        ChangeKind::Merge { key, operand } => (3, bytes(key), bytes(operand)),
        ChangeKind::SingleDelete { key } => (4, bytes(key), bytes(none)),
        _ => (KIND_OTHER, bytes(none), bytes(none)),
    };
    Operation {
        sequence: op.sequence,
        expires_ms,
        family,
        key,
        key_size,
        value,
        value_size,
        kind,
        flags,
    }
}

fn to_returned(event: FeedEvent, position: u64) -> Box<ReturnedChange> {
    let change = Change {
        first_sequence: event.sequence(),
        sequence: event.sequence(),
        position,
        operations: null(),
        operation_count: 0,
        family: c"".as_ptr(),
        from: c"".as_ptr(),
        kind: KIND_OTHER,
        family_id: 0,
    };
    let (names, operations) = (Vec::new(), Vec::new());
    let mut returned = Box::new(ReturnedChange { event, names, operations, change });
    // The box is not moved from here on, so pointers to its contents stay valid.
    let ReturnedChange { event, names, operations, change } = &mut *returned;
    match event {
        FeedEvent::Commit(commit) => {
            for op in commit.operations() {
                // Most operations of a commit have the column family of the one before.
                let same = names.last().is_some_and(|n| n.as_bytes() == op.family_name.as_bytes());
                if !same {
                    names.push(to_c_text(op.family_name));
                }
                // The text of a `CString` does not move when the vector grows.
                let family = names.last().map_or(c"".as_ptr(), |name| name.as_ptr());
                operations.push(to_operation(&op, family));
            }
            change.kind = KIND_COMMIT;
            change.first_sequence = commit.first_sequence();
            (change.operations, change.operation_count) = (operations.as_ptr(), operations.len());
        }
        FeedEvent::Family(family) => {
            let (kind, name, from) = match &family.kind {
                FamilyChangeKind::Created { name } => (1, &name[..], ""),
                FamilyChangeKind::Dropped { name } => (2, &name[..], ""),
                FamilyChangeKind::Renamed { from, to } => (3, &to[..], &from[..]),
                FamilyChangeKind::Cleared => (4, "", ""),
                FamilyChangeKind::Cloned { name, .. } => (5, &name[..], ""),
                FamilyChangeKind::Loaded => (6, "", ""),
                _ => (KIND_OTHER, "", ""),
            };
            names.extend([to_c_text(name), to_c_text(from)]);
            (change.kind, change.family_id) = (kind, family.family);
            (change.family, change.from) = (names[0].as_ptr(), names[1].as_ptr());
        }
        _ => {}
    }
    returned
}

impl Feed {
    fn next(&mut self, timeout_ms: u64) -> Result<*const Change> {
        self.returned = None;
        let next = match timeout_ms {
            0 => self.changes.next_change()?,
            ms => self.changes.wait(Duration::from_millis(ms))?,
        };
        Ok(next.map_or(null(), |event| {
            let returned = self.returned.insert(to_returned(event, self.changes.position()));
            &raw const returned.change
        }))
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_feed_open(
    db: Handle,
    since: u64,
    feed: Out<Handle>,
    error: ErrorOut,
) -> c_int {
    feed.set(Handle::NULL);
    call(error, || {
        feed.require()?;
        let changes = database(db)?.history().changes(since)?;
        feed.set(Handle::insert(&FEEDS, Feed { changes, returned: None })?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_feed_next(
    feed: Handle,
    timeout_ms: u64,
    change: Out<*const Change>,
    error: ErrorOut,
) -> c_int {
    change.set(null());
    call(error, || {
        change.require()?;
        change.set(FEEDS.lock(feed.raw())?.next(timeout_ms)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_feed_release(feed: Handle) {
    feed.release(&FEEDS);
}
