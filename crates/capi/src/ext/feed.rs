//! The change feed: every commit and every change of column families from a position on, as arrays
//! that are valid until the next call.

use crate::abi::Handle;
use crate::catalog::{SETTINGS_FAMILY, c_name};
use crate::code::NOT_FOUND;
use crate::ffi::{call, out_param};
use crate::state::database;
use perigee::changes::{ChangeFeed, ChangeKind, ChangeOperation, FamilyChangeKind, FeedEvent};
use perigee_c_boundary::handle::HandleTable;
use std::ffi::{c_char, c_int};
use std::ops::Bound;
use std::ptr::{null, null_mut};
use std::time::Duration;

/// An operation of a commit.
#[repr(C)]
#[allow(missing_docs)]
pub struct ChangeOp {
    pub seq: u64,
    pub family: u32,
    pub kind: c_int,
    pub family_name: *const c_char,
    pub family_name_size: usize,
    pub key: *const u8,
    pub key_size: usize,
    pub value: *const u8,
    pub value_size: usize,
    pub expires_ms: u64,
}

/// A commit, or a change of a column family.
#[repr(C)]
#[allow(missing_docs)]
pub struct ChangeInfo {
    pub first_seq: u64,
    pub seq: u64,
    pub position: u64,
    pub kind: c_int,
    pub family: u32,
    pub ops: *const ChangeOp,
    pub num_ops: usize,
    pub name: *const c_char,
    pub name_size: usize,
    pub from: *const c_char,
    pub from_size: usize,
    pub source: u32,
    pub reserved: u32,
}

/// A feed and the last change it delivered.
pub struct Feed {
    changes: ChangeFeed,
    delivered: Option<Box<DeliveredChange>>,
}

struct DeliveredChange {
    change: FeedEvent,
    ops: Vec<ChangeOp>,
    info: ChangeInfo,
}

// SAFETY: the pointers refer to `change`, which is not modified and lives as long.
unsafe impl Send for DeliveredChange {}
// SAFETY: as above.
unsafe impl Sync for DeliveredChange {}

static FEEDS: HandleTable<Feed> = HandleTable::new(5);

const KIND_COMMIT: c_int = 0;
const KIND_CREATED: c_int = 1;
const KIND_DROPPED: c_int = 2;
const KIND_RENAMED: c_int = 3;
const KIND_CLEARED: c_int = 4;
const KIND_CLONED: c_int = 5;
const KIND_LOADED: c_int = 6;
const KIND_OTHER: c_int = 99;

fn bound_key<'a>(b: &Bound<&'a [u8]>) -> &'a [u8] {
    match b {
        Bound::Included(k) | Bound::Excluded(k) => k,
        Bound::Unbounded => &[],
    }
}

/// Converts an operation. Kinds: 0 put, 1 delete, 2 range delete, 3 merge, 4 single delete, as in
/// hooks.
fn to_change_op(op: &ChangeOperation<'_>) -> ChangeOp {
    let none: &[u8] = &[];
    let (kind, key, value, expires) = match &op.kind {
        ChangeKind::Put { key, value, expires_at_ms } => (0, *key, *value, *expires_at_ms),
        ChangeKind::Delete { key } => (1, *key, none, None),
        ChangeKind::DeleteRange { start, end } => (2, bound_key(start), bound_key(end), None),
        ChangeKind::Merge { key, operand } => (3, *key, *operand, None),
        ChangeKind::SingleDelete { key } => (4, *key, none, None),
        _ => (KIND_OTHER, none, none, None),
    };
    let name = c_name(op.family_name);
    ChangeOp {
        seq: op.sequence,
        family: op.family,
        kind,
        family_name: name.as_ptr().cast(),
        family_name_size: name.len(),
        key: key.as_ptr(),
        key_size: key.len(),
        value: value.as_ptr(),
        value_size: value.len(),
        expires_ms: expires.unwrap_or(0),
    }
}

/// Returns true for changes of the library's own settings, which are not delivered.
fn is_internal(change: &FeedEvent) -> bool {
    match change {
        FeedEvent::Commit(commit) => {
            commit.operations().all(|op| op.family_name == SETTINGS_FAMILY)
        }
        FeedEvent::Family(family) => {
            matches!(&family.kind, FamilyChangeKind::Created { name } if name == SETTINGS_FAMILY)
        }
        _ => false,
    }
}

fn to_delivered(change: FeedEvent, position: u64) -> Box<DeliveredChange> {
    let empty = ChangeInfo {
        first_seq: 0,
        seq: 0,
        position,
        kind: KIND_COMMIT,
        family: 0,
        ops: null(),
        num_ops: 0,
        name: null(),
        name_size: 0,
        from: null(),
        from_size: 0,
        source: 0,
        reserved: 0,
    };
    let mut delivered = Box::new(DeliveredChange { change, ops: Vec::new(), info: empty });
    // The box is not moved from here on, so pointers to its contents stay valid.
    let DeliveredChange { change, ops, info } = &mut *delivered;
    match change {
        FeedEvent::Commit(commit) => {
            let seen = commit.operations().filter(|op| op.family_name != SETTINGS_FAMILY);
            *ops = seen.map(|op| to_change_op(&op)).collect();
            (info.first_seq, info.seq) = (commit.first_sequence(), commit.sequence());
            (info.ops, info.num_ops) = (ops.as_ptr(), ops.len());
        }
        FeedEvent::Family(family) => {
            (info.first_seq, info.seq, info.family) =
                (family.sequence, family.sequence, family.family);
            let (kind, name, from, source) = match &family.kind {
                FamilyChangeKind::Created { name } => (KIND_CREATED, &name[..], "", 0),
                FamilyChangeKind::Dropped { name } => (KIND_DROPPED, &name[..], "", 0),
                FamilyChangeKind::Renamed { from, to } => (KIND_RENAMED, &to[..], &from[..], 0),
                FamilyChangeKind::Cleared => (KIND_CLEARED, "", "", 0),
                FamilyChangeKind::Cloned { name, source } => (KIND_CLONED, &name[..], "", *source),
                FamilyChangeKind::Loaded => (KIND_LOADED, "", "", 0),
                _ => (KIND_OTHER, "", "", 0),
            };
            let (name, from) = (c_name(name), c_name(from));
            (info.kind, info.source) = (kind, source);
            (info.name, info.name_size) = (name.as_ptr().cast(), name.len());
            (info.from, info.from_size) = (from.as_ptr().cast(), from.len());
        }
        _ => info.kind = KIND_OTHER,
    }
    delivered
}

/// Opens a feed of all changes after the sequence number `since`.
///
/// # Safety
/// `feed` is null or valid for writing a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_changes_new(db: Handle, since: u64, feed: *mut Handle) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: guaranteed by the caller.
        let place = unsafe { out_param(feed) }?;
        *place = null_mut();
        let changes = db.engine()?.history().changes(since)?;
        *place = FEEDS.insert(Feed { changes, delivered: None })? as Handle;
        Ok(())
    })
}

/// Returns the next change, and waits for it at most the given time; valid until the next call with
/// this feed. `TDB_ERR_NOT_FOUND`: no change within that time.
///
/// # Safety
/// `change` is null or valid for writing a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_changes_next(
    feed: Handle,
    timeout_us: u64,
    change: *mut *const ChangeInfo,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let place = unsafe { out_param(change) }?;
        *place = null();
        let mut feed = FEEDS.lock(feed as usize)?;
        feed.delivered = None;
        let change = loop {
            let next = match timeout_us {
                0 => feed.changes.next_change()?,
                us => feed.changes.wait(Duration::from_micros(us))?,
            };
            match next {
                Some(change) if is_internal(&change) => {}
                next => {
                    break next.ok_or_else(|| {
                        NOT_FOUND.with_message("no change within the given time")
                    })?;
                }
            }
        };
        let position = feed.changes.position();
        let delivered = feed.delivered.insert(to_delivered(change, position));
        *place = &raw const delivered.info;
        Ok(())
    })
}

/// Frees a feed.
#[unsafe(no_mangle)]
pub extern "C" fn perigee_changes_free(feed: Handle) {
    call(|| Ok(FEEDS.remove(feed as usize).map(drop)?));
}
