//! [`Slice`]: a key or value that is not copied out of the database.

use perigee_engine::{BytesPreview, PinnedSlice};
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

/// A key or value that is pinned in the block or memtable that contains it. Dereferences to `[u8]`.
/// Cloning copies no bytes. Dropping the last clone unpins the block. Do not keep slices for long:
/// each pins a whole block in memory.
///
/// Compares, hashes and borrows like `[u8]`: byte by byte, regardless of the comparator of the
/// column family. So a `HashMap<Slice, _>` or `BTreeMap<Slice, _>` can be searched by `&[u8]`, and
/// a slice can be compared with text, arrays and vectors. With the feature `bytes` it converts into
/// `bytes::Bytes` without a copy.
///
/// Clippy warns about slices as keys (`mutable_key_type`), because it sees the reference count. The
/// bytes never change: list `perigee::Slice` under `ignore-interior-mutability` in `clippy.toml`.
///
/// ```
/// # use perigee::{Db, Options};
/// # fn main() -> perigee::Result<()> {
/// # use perigee::env::{Env, fs::memory::SimDisk};
/// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
/// use std::collections::BTreeSet;
///
/// db.put("moon", "full")?;
/// let value = db.get_pinned("moon")?.expect("it was just put");
/// assert!(value == "full" && value == b"full" && value == vec![b'f', b'u', b'l', b'l']);
/// assert!(value < *"half" && value.starts_with(b"fu"));
/// assert_eq!(std::str::from_utf8(&value), Ok("full"));
///
/// let keys: BTreeSet<_> = db.iter()?.map(|e| e.map(|(k, _)| k)).collect::<Result<_, _>>()?;
/// assert!(keys.contains(&b"moon"[..]));
/// let copy: Vec<u8> = value.into();
/// assert_eq!(copy, b"full");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Slice(pub(crate) PinnedSlice);

impl Deref for Slice {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Borrow<[u8]> for Slice {
    fn borrow(&self) -> &[u8] {
        self
    }
}

/// Copies the bytes.
impl From<Slice> for Vec<u8> {
    fn from(s: Slice) -> Vec<u8> {
        s.to_vec()
    }
}

/// Takes over the bytes.
impl From<Vec<u8>> for Slice {
    fn from(bytes: Vec<u8>) -> Slice {
        Slice(PinnedSlice::from(bytes))
    }
}

/// Copies nothing: the block or memtable stays pinned until the last clone of the result is
/// dropped.
#[cfg(feature = "bytes")]
impl From<Slice> for bytes::Bytes {
    fn from(s: Slice) -> bytes::Bytes {
        bytes::Bytes::from_owner(s)
    }
}

/// Copies the bytes only if `bytes` is shared or a part of a larger buffer.
#[cfg(feature = "bytes")]
impl From<bytes::Bytes> for Slice {
    fn from(bytes: bytes::Bytes) -> Slice {
        Slice::from(Vec::from(bytes))
    }
}

impl PartialEq for Slice {
    fn eq(&self, other: &Slice) -> bool {
        **self == **other
    }
}

impl Eq for Slice {}

impl PartialOrd for Slice {
    fn partial_cmp(&self, other: &Slice) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Slice {
    fn cmp(&self, other: &Slice) -> Ordering {
        (**self).cmp(&**other)
    }
}

/// Same as the hash of `[u8]`.
impl Hash for Slice {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

/// Implements comparisons with another byte type, in both directions.
macro_rules! compare_with {
    ($([$($generics:tt)*] $other:ty;)+) => {$(
        impl<$($generics)*> PartialEq<$other> for Slice {
            fn eq(&self, other: &$other) -> bool {
                **self == *AsRef::<[u8]>::as_ref(other)
            }
        }
        impl<$($generics)*> PartialEq<Slice> for $other {
            fn eq(&self, other: &Slice) -> bool {
                other == self
            }
        }
        impl<$($generics)*> PartialOrd<$other> for Slice {
            fn partial_cmp(&self, other: &$other) -> Option<Ordering> {
                Some((**self).cmp(AsRef::<[u8]>::as_ref(other)))
            }
        }
        impl<$($generics)*> PartialOrd<Slice> for $other {
            fn partial_cmp(&self, other: &Slice) -> Option<Ordering> {
                other.partial_cmp(self).map(Ordering::reverse)
            }
        }
    )+};
}

compare_with! {
    [] [u8];
    ['a] &'a [u8];
    [const N: usize] [u8; N];
    ['a, const N: usize] &'a [u8; N];
    [] Vec<u8>;
    [] str;
    ['a] &'a str;
    [] String;
}

/// Prints the first bytes and the length.
impl std::fmt::Debug for Slice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        BytesPreview(self).fmt(f)
    }
}
