//! Key types: anything that maps to unsigned 64-bit numbers in the same order.

/// A key of a [`Map`](crate::Map).
///
/// `a < b` exactly if `a.to_bits() < b.to_bits()`, and `from_bits` is the inverse of `to_bits`.
/// With an implementation that breaks this, a map finds the wrong keys; memory safety is not
/// affected.
pub trait Key: Copy + Ord {
    /// Returns the number that represents the key.
    fn to_bits(self) -> u64;
    /// Returns the key that the number represents.
    fn from_bits(bits: u64) -> Self;
}

macro_rules! unsigned {
    ($($t:ty)*) => {$(
        impl Key for $t {
            #[inline]
            fn to_bits(self) -> u64 {
                self as u64
            }
            #[inline]
            fn from_bits(bits: u64) -> Self {
                bits as $t
            }
        }
    )*};
}

// Flipping the sign bit of a two's complement number makes the unsigned order equal the signed one.
macro_rules! signed {
    ($($t:ty)*) => {$(
        impl Key for $t {
            #[inline]
            fn to_bits(self) -> u64 {
                (self as i64 as u64) ^ (1 << 63)
            }
            #[inline]
            fn from_bits(bits: u64) -> Self {
                (bits ^ (1 << 63)) as i64 as $t
            }
        }
    )*};
}

unsigned!(u8 u16 u32 u64 usize);
signed!(i8 i16 i32 i64 isize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_order() {
        let signed = [i64::MIN, i64::MIN + 1, -70_000, -1, 0, 1, 70_000, i64::MAX];
        assert!(signed.windows(2).all(|w| w[0].to_bits() < w[1].to_bits()));
        assert!(signed.iter().all(|&k| i64::from_bits(k.to_bits()) == k));
        let small = [i8::MIN, -1, 0, 1, i8::MAX];
        assert!(small.windows(2).all(|w| w[0].to_bits() < w[1].to_bits()));
        assert!(small.iter().all(|&k| i8::from_bits(k.to_bits()) == k));
        assert_eq!((u64::MAX.to_bits(), u8::from_bits(255)), (u64::MAX, 255));
    }
}
