//! Encryption of the contents of one file: AES-256 in counter mode, with a key of its own.
//!
//! Invariants:
//! 1. No keystream is used twice: every file has its own key, derived from a random nonce, and an
//!    offset that is written again after a truncation uses another *generation* of the keystream.
//! 2. An aligned group of [`GROUP_BYTES`] zeros in the stored bytes was never written, and reads as
//!    zeros. A group that would be encrypted to zeros is refused.

use super::keys::{EncryptionKey, KEY_BYTES};
use aes::Aes256Enc;
use aes::cipher::{
    BlockCipherEncrypt, InnerIvInit, KeyInit, StreamCipher, StreamCipherCoreWrapper,
    StreamCipherSeek,
};
use ctr::{Ctr128BE, CtrCore};
use perigee_base::Result;
use std::ops::Range;
use zeroize::Zeroizing;

/// Size of an aligned group of stored bytes in which zeros are recognized.
pub(super) const GROUP_BYTES: usize = 8;
/// Size of the nonce of a file.
pub(super) const NONCE_BYTES: usize = 16;
/// Size of a block of AES.
const BLOCK_BYTES: usize = 16;

const _: () = assert!(KEY_BYTES == 2 * BLOCK_BYTES);
const _: () = assert!(NONCE_BYTES == BLOCK_BYTES, "a nonce is encrypted as one block");
const _: () = assert!(BLOCK_BYTES.is_multiple_of(GROUP_BYTES));

/// A key of the key provider, from which the keys of files are derived.
pub(super) struct MasterKey(Aes256Enc);

impl MasterKey {
    pub fn new(key: &EncryptionKey) -> MasterKey {
        MasterKey(Aes256Enc::new(key.bytes().into()))
    }

    /// Returns the cipher of the file with this nonce. The last byte of the nonce is not used: it
    /// numbers the blocks of the derived key.
    pub fn derive(&self, nonce: &[u8; NONCE_BYTES]) -> FileCipher {
        let mut key = Zeroizing::new([0u8; KEY_BYTES]);
        for (number, half) in key.chunks_exact_mut(BLOCK_BYTES).enumerate() {
            let mut block = *nonce;
            block[BLOCK_BYTES - 1] = number as u8 + 1;
            let mut block = block.into();
            self.0.encrypt_block(&mut block);
            half.copy_from_slice(&block);
        }
        FileCipher(Aes256Enc::new((&*key).into()))
    }
}

/// The cipher of one file.
pub(super) struct FileCipher(Aes256Enc);

impl FileCipher {
    /// Returns a value that depends on the key only, to detect a wrong one. It belongs to a counter
    /// that no generation of the keystream reaches.
    pub fn check_value(&self) -> [u8; BLOCK_BYTES] {
        let mut block = [0xFF; BLOCK_BYTES].into();
        self.0.encrypt_block(&mut block);
        block.into()
    }

    /// Encrypts or decrypts bytes at `offset`, all of one generation.
    fn apply_one(&self, generation: u32, offset: u64, bytes: &mut [u8]) {
        let mut counter = [0u8; BLOCK_BYTES];
        counter[..4].copy_from_slice(&generation.to_be_bytes());
        let core = CtrCore::inner_iv_init(self.0.clone(), &counter.into());
        let mut stream: Ctr128BE<Aes256Enc> = StreamCipherCoreWrapper::from_core(core);
        stream.seek(offset);
        stream.apply_keystream(bytes);
    }

    /// Encrypts or decrypts bytes at `offset`, ignoring invariant 2.
    pub fn apply(&self, generations: &[u64], offset: u64, bytes: &mut [u8]) {
        let (mut at, mut bytes) = (offset, bytes);
        while !bytes.is_empty() {
            let generation = generations.iter().rposition(|&start| start <= at);
            let number = generation.map_or(0, |i| i + 1);
            let next = generations[number..].iter().filter(|&&start| start > at).min();
            let len = next.map_or(bytes.len(), |next| {
                usize::try_from(next - at).map_or(bytes.len(), |n| n.min(bytes.len()))
            });
            check_slow!(len > 0, "every part of a keystream advances", at, generations);
            let (part, rest) = bytes.split_at_mut(len);
            self.apply_one(number as u32, at, part);
            (at, bytes) = (at + len as u64, rest);
        }
    }

    /// Decrypts bytes that were read at `offset`. `read_group` returns the stored bytes of the
    /// group at an offset, or `None` if the file ends inside it; used for groups at the ends of
    /// `bytes` of which only zeros were read.
    pub fn decrypt(
        &self,
        generations: &[u64],
        offset: u64,
        bytes: &mut [u8],
        read_group: &dyn Fn(u64) -> Result<Option<[u8; GROUP_BYTES]>>,
    ) -> Result<()> {
        let groups = whole_groups(offset, bytes.len());
        let mut unwritten = zero_groups(&bytes[groups.clone()], groups.start);
        for edge in [0..groups.start, groups.end..bytes.len()] {
            if !edge.is_empty() && bytes[edge.clone()].iter().all(|&b| b == 0) {
                let at = offset + edge.start as u64;
                if read_group(at - at % GROUP_BYTES as u64)? == Some([0; GROUP_BYTES]) {
                    unwritten.push(edge);
                }
            }
        }
        if unwritten.is_empty() {
            self.apply(generations, offset, bytes);
            return Ok(());
        }
        unwritten.sort_unstable_by_key(|zeros| zeros.start);
        check_slow!(
            unwritten.windows(2).all(|pair| pair[0].end <= pair[1].start),
            "unwritten ranges do not overlap",
            unwritten
        );
        let mut from = 0;
        let end = bytes.len();
        for zeros in unwritten.into_iter().chain(std::iter::once(end..end)) {
            self.apply(generations, offset + from as u64, &mut bytes[from..zeros.start]);
            from = zeros.end;
        }
        Ok(())
    }
}

/// Returns the part of `len` bytes at `offset` that consists of whole groups.
pub(super) fn whole_groups(offset: u64, len: usize) -> Range<usize> {
    let group = GROUP_BYTES as u64;
    let start = (offset.next_multiple_of(group) - offset) as usize;
    if start >= len {
        // Inside one group, or at the ends of two: the first edge is all of it, or up to the
        // boundary.
        return len.min(start)..len.min(start);
    }
    let end = len - (len - start) % GROUP_BYTES;
    check_slow!(start <= end && end <= len, "whole groups are inside the bytes", offset, len);
    start..end
}

/// Returns the ranges of groups of zeros in `groups`, shifted by `shift`; adjacent ones are joined.
pub(super) fn zero_groups(groups: &[u8], shift: usize) -> Vec<Range<usize>> {
    let is_zero = |group: &[u8]| group.iter().fold(0, |all, b| all | b) == 0;
    let mut found: Vec<Range<usize>> = Vec::new();
    for (i, group) in groups.chunks_exact(GROUP_BYTES).enumerate() {
        if is_zero(group) {
            let start = shift + i * GROUP_BYTES;
            match found.last_mut() {
                Some(last) if last.end == start => last.end += GROUP_BYTES,
                _ => found.push(start..start + GROUP_BYTES),
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cipher(byte: u8) -> FileCipher {
        MasterKey::new(&EncryptionKey::new([byte; KEY_BYTES])).derive(&[7; NONCE_BYTES])
    }

    /// The vectors of NIST SP 800-38A, F.5.5 (CTR-AES256.Encrypt), of the cipher that is used.
    #[test]
    fn counter_mode_matches_published_vectors() {
        let hex = |text: &str| -> Vec<u8> {
            let digit = |i: usize| u8::from_str_radix(&text[i..i + 2], 16).unwrap();
            (0..text.len()).step_by(2).map(digit).collect()
        };
        let key = hex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4");
        let counter = hex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff");
        let mut text = hex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51");
        let key: [u8; 32] = key.try_into().unwrap();
        let counter: [u8; 16] = counter.try_into().unwrap();
        let core = CtrCore::inner_iv_init(Aes256Enc::new(&key.into()), &counter.into());
        let mut stream: Ctr128BE<Aes256Enc> = StreamCipherCoreWrapper::from_core(core);
        stream.apply_keystream(&mut text);
        assert_eq!(text, hex("601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5"));
    }

    #[test]
    fn parts_of_any_size_decrypt_to_the_same_bytes() {
        let cipher = cipher(1);
        let text: Vec<u8> = (0..300u32).map(|i| (i % 7) as u8).collect();
        for generations in [&[][..], &[100], &[24, 200], &[200, 24], &[10, 11, 11]] {
            let mut stored = text.clone();
            cipher.apply(generations, 0, &mut stored);
            assert_ne!(stored, text);
            for from in 0..40 {
                for to in (from..300).step_by(13) {
                    let mut part = stored[from..to].to_vec();
                    let group = |at: u64| Ok(stored[at as usize..].first_chunk().copied());
                    cipher.decrypt(generations, from as u64, &mut part, &group).unwrap();
                    assert_eq!(part, text[from..to], "{from}..{to}");
                }
            }
        }
    }

    #[test]
    fn stored_zeros_read_as_zeros_in_parts_of_any_size() {
        let cipher = cipher(2);
        let mut stored = vec![1u8; 100];
        cipher.apply(&[], 0, &mut stored);
        let mut text = [1u8; 100];
        // Groups 2 and 5 were not written, nor were the last four bytes, which are not a group.
        for zeros in [16..24, 40..48, 96..100] {
            stored[zeros.clone()].fill(0);
            text[zeros].fill(0);
        }
        cipher.apply(&[], 96, &mut text[96..]);
        for from in 0..100 {
            for to in from..=100 {
                let mut part = stored[from..to].to_vec();
                let group = |at: u64| Ok(stored[at as usize..].first_chunk().copied());
                cipher.decrypt(&[], from as u64, &mut part, &group).unwrap();
                assert_eq!(part, text[from..to], "{from}..{to}");
            }
        }
    }

    #[test]
    fn keystreams_of_files_keys_and_generations_differ() {
        let stream = |cipher: &FileCipher, generations: &[u64]| {
            let mut zeros = [0u8; 32];
            cipher.apply(generations, 0, &mut zeros);
            zeros
        };
        let master = MasterKey::new(&EncryptionKey::new([1; KEY_BYTES]));
        let all = [
            stream(&master.derive(&[7; 16]), &[]),
            stream(&master.derive(&[8; 16]), &[]),
            stream(&cipher(3), &[]),
            stream(&cipher(1), &[0]),
            stream(&cipher(1), &[0, 0]),
        ];
        for (i, one) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|other| other[..16] != one[..16]));
        }
        assert_ne!(cipher(1).check_value(), cipher(3).check_value());
    }
}
