//! Tests that the assertions of this crate fail when their invariant is violated.

use crate::entry::VlogPointer;
use crate::invariant::violation;
use crate::{BlockHandle, FileId, KeyComparator, KeyRef, PinnedSlice, ValueRef, limits};
use std::sync::Arc;

const POINTER: VlogPointer =
    VlogPointer { file: FileId(7), offset: 72, stored_bytes: 30, value_bytes: 6 };

#[test]
fn assertions_detect_violations() {
    let split = KeyRef { prefix: b"a", suffix: b"b" };
    let whole = KeyRef::from_key(b"ab");
    let long = VlogPointer { value_bytes: limits::STREAMED_VALUE_BYTES_MAX + 1, ..POINTER };
    let beyond = VlogPointer { offset: u64::MAX, ..POINTER };
    let cases: [(&str, &dyn Fn()); 9] = [
        ("a written pointer is one that readers accept", &|| long.encode(&mut Vec::new())),
        ("a written pointer is one that readers accept", &|| beyond.encode(&mut Vec::new())),
        ("a tombstone has no value to separate", &|| {
            ValueRef::Tombstone.with_pointer(POINTER);
        }),
        ("a tombstone has no value to replace", &|| {
            ValueRef::SingleDelete.with_bytes(b"v");
        }),
        ("a pinned slice lies inside its buffer", &|| {
            PinnedSlice::new(Arc::new(vec![0; 4]), 2..5);
        }),
        ("a pinned slice lies inside its buffer", &|| {
            let (start, end) = (3, 2);
            PinnedSlice::new(Arc::new(vec![0; 4]), start..end);
        }),
        ("only bytewise order splits keys", &|| {
            split.cmp(KeyComparator::Reverse, whole);
        }),
        ("only bytewise order splits keys", &|| {
            split.equals(KeyComparator::CaseInsensitive, b"ab");
        }),
        ("a block ends inside the file offsets", &|| {
            BlockHandle { offset: u64::MAX, len: 1 }.end();
        }),
    ];
    for (invariant, work) in cases {
        let message = violation(work);
        assert!(message.contains(invariant), "{invariant}: {message}");
    }
}
