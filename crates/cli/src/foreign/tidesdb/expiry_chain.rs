//! Location of the expiry time of a TidesDB iterator's current entry: a chain of pointers to follow
//! from the iterator, then an offset. TidesDB's C interface does not expose expiry times;
//! `calibrate` finds the chain with entries whose expiry times are known.
//!
//! Invariant: the value read belongs to the current entry, because the same object also holds, at
//! an offset found in the same way, a pointer to the very key that the iterator returned (or the
//! key itself). Otherwise no value is returned.

/// Bytes of an object that are inspected.
pub const OBJECT_WINDOW: usize = 256;

/// Location of the key relative to the object with the expiry time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAnchor {
    /// The object holds a pointer to the key at this offset.
    Pointer(usize),
    /// The key itself is in the object, at this offset.
    Inside(usize),
}

/// Path from an iterator to the expiry time of its current entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpiryChain {
    /// Offsets of the pointers to follow.
    pub hops: Vec<usize>,
    /// Offset of the expiry time in the last object.
    pub expiry_offset: usize,
    /// Location of the key, which confirms that the object belongs to the entry.
    pub anchor: KeyAnchor,
}

impl ExpiryChain {
    /// Returns the expiry time of the iterator's current entry; `None` if the object does not
    /// belong to this key.
    ///
    /// # Safety
    /// The iterator is at an entry, whose key it returned at the address `key`, and the chain was
    /// found with iterators of the same library over column families with the same settings.
    pub unsafe fn read_expiry(&self, iter: *const u8, key: *const u8) -> Option<i64> {
        let word = |at: *const u8, offset: usize| {
            // SAFETY: in every probe of a chain that was found, each pointer led to an object that
            // holds the next word at this offset; the caller guarantees that this iterator has the
            // same structure.
            unsafe { at.add(offset).cast::<usize>().read_unaligned() }
        };
        let mut object = iter;
        for hop in &self.hops {
            object = std::ptr::with_exposed_provenance(word(object, *hop));
            if object.addr() < 4096 {
                return None;
            }
        }
        let matches_key = match self.anchor {
            KeyAnchor::Pointer(offset) => word(object, offset) == key.addr(),
            KeyAnchor::Inside(offset) => object.addr().wrapping_add(offset) == key.addr(),
        };
        matches_key.then(|| word(object, self.expiry_offset) as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiry_is_read_only_if_the_key_matches() {
        let key = *b"key";
        let entry: [usize; 4] = [7, key.as_ptr().expose_provenance(), 0, usize::MAX];
        let iter: [usize; 2] = [1, entry.as_ptr().expose_provenance()];
        let chain = |end, anchor| ExpiryChain { hops: vec![8], expiry_offset: end, anchor };
        let read = |c: ExpiryChain, key: *const u8| {
            // SAFETY: the arrays above are what the chain describes.
            unsafe { c.read_expiry(iter.as_ptr().cast(), key) }
        };
        assert_eq!(read(chain(0, KeyAnchor::Pointer(8)), key.as_ptr()), Some(7));
        assert_eq!(read(chain(24, KeyAnchor::Pointer(8)), key.as_ptr()), Some(-1));
        assert_eq!(read(chain(0, KeyAnchor::Pointer(16)), key.as_ptr()), None);
        assert_eq!(
            read(chain(0, KeyAnchor::Inside(16)), entry.as_ptr().cast::<u8>().wrapping_add(16)),
            Some(7)
        );
        let nowhere =
            ExpiryChain { hops: vec![0], expiry_offset: 0, anchor: KeyAnchor::Pointer(8) };
        assert_eq!(read(nowhere, key.as_ptr()), None);
    }
}
