//! Where an iterator of TidesDB keeps the end of the entry that it stands on: a few pointers to
//! follow from the iterator, then an offset. Its C interface shows no end; `calibrate` finds the
//! chain with entries whose ends are known.
//!
//! Invariant: what is read is the entry that the iterator stands on, because the same object holds,
//! at a place that was found in the same way, a pointer to the very key that the iterator gave (or
//! the key itself). Otherwise nothing is read.

/// Bytes of an object that are looked at.
pub const OBJECT_WINDOW: usize = 256;

/// Where the key is, as seen from the object with the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAnchor {
    /// The object holds a pointer to it here.
    Pointer(usize),
    /// It lies in the object, here.
    Inside(usize),
}

/// From an iterator to the end of its entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpiryChain {
    /// At these offsets lie the pointers that are followed.
    pub hops: Vec<usize>,
    /// Where the end is in the last object.
    pub expiry_offset: usize,
    /// What shows that the object is the entry's.
    pub anchor: KeyAnchor,
}

impl ExpiryChain {
    /// The end of the entry that an iterator stands on; `None`: the object is not that of this key.
    ///
    /// # Safety
    /// The iterator stands on an entry, whose key it gave at the address `key`, and the chain was
    /// found with iterators of the same library over families with the same settings.
    pub unsafe fn read_expiry(&self, iter: *const u8, key: *const u8) -> Option<i64> {
        let word = |at: *const u8, offset: usize| {
            // SAFETY: on a chain that was found, each pointer led in every probe to an object that
            // holds the next piece at this offset; the caller vouches that this iterator is built
            // the same.
            unsafe { at.add(offset).cast::<usize>().read_unaligned() }
        };
        let mut object = iter;
        for hop in &self.hops {
            object = std::ptr::with_exposed_provenance(word(object, *hop));
            if object.addr() < 4096 {
                return None;
            }
        }
        let there = match self.anchor {
            KeyAnchor::Pointer(offset) => word(object, offset) == key.addr(),
            KeyAnchor::Inside(offset) => object.addr().wrapping_add(offset) == key.addr(),
        };
        there.then(|| word(object, self.expiry_offset) as i64)
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
