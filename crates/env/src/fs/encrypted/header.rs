//! The header of an encrypted file: which key it was written with, and where its keystream changes.
//! See `docs/format/encryption.md`. Decoding never panics.

use super::cipher::{FileCipher, GROUP_BYTES, NONCE_BYTES};
use super::keys::KeyId;
use perigee_base::{ENCRYPTED_MAGIC, Error, ErrorKind, FileId, Result, checksum};

/// Size of the header, in bytes. A multiple of the page size, so that contents keep their position
/// in pages and sectors.
pub(super) const HEADER_BYTES: usize = 4096;
/// Size of the part before the generations.
pub(super) const FIXED_BYTES: usize = 64;
/// Size of the record of a generation.
pub(super) const GENERATION_BYTES: usize = 16;
/// Number of generations of a file after the first.
pub(super) const GENERATION_RECORDS: usize = (HEADER_BYTES - FIXED_BYTES) / GENERATION_BYTES;
/// Size of what the checksum covers.
const CHECKED_BYTES: usize = 56;
const FORMAT_VERSION: u16 = 1;
/// AES-256 in counter mode.
const CIPHER_AES256_CTR: u8 = 1;

const _: () = assert!(CHECKED_BYTES + size_of::<u64>() == FIXED_BYTES);
const _: () = assert!(FIXED_BYTES + GENERATION_RECORDS * GENERATION_BYTES == HEADER_BYTES);
const _: () = assert!(HEADER_BYTES.is_multiple_of(GROUP_BYTES), "groups keep their alignment");

/// The fixed part of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CryptHeader {
    pub key: KeyId,
    pub nonce: [u8; NONCE_BYTES],
    /// See [`FileCipher::check_value`].
    pub check_value: [u8; 16],
}

impl CryptHeader {
    pub fn encode(&self) -> [u8; FIXED_BYTES] {
        let mut out = [0; FIXED_BYTES];
        out[..8].copy_from_slice(&ENCRYPTED_MAGIC);
        out[8..10].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[10] = CIPHER_AES256_CTR;
        out[12..16].copy_from_slice(&(HEADER_BYTES as u32).to_le_bytes());
        out[16..20].copy_from_slice(&self.key.id.to_le_bytes());
        out[20..24].copy_from_slice(&self.key.version.to_le_bytes());
        out[24..40].copy_from_slice(&self.nonce);
        out[40..56].copy_from_slice(&self.check_value);
        let sum = checksum::checksum(FileId(0), 0, &out[..CHECKED_BYTES]);
        out[CHECKED_BYTES..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    pub fn decode(bytes: &[u8; FIXED_BYTES]) -> Result<CryptHeader> {
        let u32_at = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        if bytes[..8] != ENCRYPTED_MAGIC {
            return Err(Error::corruption("not an encrypted file: wrong magic bytes"));
        }
        let sum = checksum::checksum(FileId(0), 0, &bytes[..CHECKED_BYTES]).to_le_bytes();
        if sum != bytes[CHECKED_BYTES..] {
            return Err(Error::corruption("the checksum of the encryption header differs"));
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        let known = [version == FORMAT_VERSION, bytes[10] == CIPHER_AES256_CTR, bytes[11] == 0];
        if known.contains(&false) || u32_at(12) as usize != HEADER_BYTES {
            return Err(Error::new(
                ErrorKind::FormatTooNew,
                format!(
                    "the file uses encryption format {version}, cipher {}; this build reads \
                     format {FORMAT_VERSION}, cipher {CIPHER_AES256_CTR}: open it with a newer \
                     Perigee",
                    bytes[10]
                ),
            ));
        }
        let key = KeyId { id: u32_at(16), version: u32_at(20) };
        let (mut nonce, mut check_value) = ([0; NONCE_BYTES], [0; 16]);
        nonce.copy_from_slice(&bytes[24..40]);
        check_value.copy_from_slice(&bytes[40..56]);
        Ok(CryptHeader { key, nonce, check_value })
    }

    /// Fails if `cipher` was derived from another key than the file was written with.
    pub fn check_key(&self, cipher: &FileCipher) -> Result<()> {
        if cipher.check_value() == self.check_value {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "wrong encryption key: the file was written with another key {}; supply the key that \
             the database was created with",
            self.key
        )))
    }

    /// Encodes the record of generation `number`, which starts at `offset`.
    pub fn encode_generation(&self, number: usize, offset: u64) -> [u8; GENERATION_BYTES] {
        let mut out = [0; GENERATION_BYTES];
        out[..8].copy_from_slice(&offset.to_le_bytes());
        out[8..].copy_from_slice(&self.generation_checksum(number, offset).to_le_bytes());
        out
    }

    /// Decodes the record of generation `number`; `None` if it was not written completely.
    pub fn decode_generation(&self, number: usize, bytes: &[u8]) -> Option<u64> {
        let (offset, sum) = (bytes.first_chunk()?, bytes.get(8..)?.first_chunk()?);
        let offset = u64::from_le_bytes(*offset);
        (u64::from_le_bytes(*sum) == self.generation_checksum(number, offset)).then_some(offset)
    }

    fn generation_checksum(&self, number: usize, offset: u64) -> u64 {
        let mut bytes = [0; NONCE_BYTES + 8];
        bytes[..8].copy_from_slice(&offset.to_le_bytes());
        bytes[8..].copy_from_slice(&self.nonce);
        checksum::checksum(FileId(0), number as u64, &bytes)
    }
}

/// Returns the offset of the record of generation `number`, from 1 on.
pub(super) fn generation_offset(number: usize) -> u64 {
    check!(
        (1..=GENERATION_RECORDS).contains(&number),
        "the record of a generation is inside the header",
        number
    );
    (FIXED_BYTES + (number - 1) * GENERATION_BYTES) as u64
}

/// Decodes a header from untrusted bytes, for fuzzing: returns true if the bytes are a valid header
/// whose encoding is the same. Never panics.
pub fn fuzz_header(bytes: &[u8]) -> bool {
    let Some((fixed, rest)) = bytes.split_first_chunk::<FIXED_BYTES>() else { return false };
    let Ok(header) = CryptHeader::decode(fixed) else { return false };
    check!(header.encode() == *fixed, "a header has one encoding");
    for (i, record) in rest.chunks(GENERATION_BYTES).enumerate() {
        if let Some(offset) = header.decode_generation(i + 1, record) {
            check!(
                header.encode_generation(i + 1, offset)[..] == *record,
                "a record has one encoding",
                i
            );
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> CryptHeader {
        let nonce = std::array::from_fn(|i| if i < 15 { i as u8 } else { 0 });
        CryptHeader { key: KeyId { id: 1, version: 3 }, nonce, check_value: [0xAB; 16] }
    }

    #[test]
    fn header_matches_format_page_example() {
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let page = include_str!("../../../../../docs/format/encryption.md");
        let block = page.split("```hex").nth(1).unwrap().split("```").next().unwrap();
        let flat: String = block.split_whitespace().collect();
        let generation = sample().encode_generation(1, 4160);
        assert_eq!(flat, hex(&sample().encode()) + &hex(&generation));
    }

    #[test]
    fn every_damaged_bit_is_detected() {
        let good = sample().encode();
        assert_eq!(CryptHeader::decode(&good).unwrap(), sample());
        for bit in 0..good.len() * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(CryptHeader::decode(&bad).is_err(), "bit {bit}");
        }
        let record = sample().encode_generation(2, 72);
        assert_eq!(sample().decode_generation(2, &record), Some(72));
        assert_eq!(sample().decode_generation(1, &record), None);
        for bit in 0..record.len() * 8 {
            let mut bad = record;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(sample().decode_generation(2, &bad), None, "bit {bit}");
        }
        assert_eq!(sample().decode_generation(1, &[0; GENERATION_BYTES]), None);
        assert_eq!(sample().decode_generation(1, &[0; 3]), None);
    }

    #[test]
    fn newer_formats_are_refused() {
        for at in [8, 10, 11, 12] {
            let mut newer = sample().encode();
            newer[at] += 1;
            let sum = checksum::checksum(FileId(0), 0, &newer[..CHECKED_BYTES]).to_le_bytes();
            newer[CHECKED_BYTES..].copy_from_slice(&sum);
            let e = CryptHeader::decode(&newer).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::FormatTooNew, "byte {at}: {e}");
        }
    }

    #[test]
    fn decoder_accepts_only_valid_headers() {
        let mut bytes = sample().encode().to_vec();
        bytes.extend(sample().encode_generation(1, 9));
        assert!(fuzz_header(&bytes));
        // Deterministic mutations; the fuzz target `crypt` continues them without end.
        let mut rng = crate::rand::SeededRng::new(11);
        for _ in 0..20_000 {
            let mut bad = bytes.clone();
            for _ in 0..=rng.below(3) {
                let at = rng.index(bad.len());
                bad[at] = rng.next_u64() as u8;
            }
            bad.truncate(rng.index(bad.len() + 1));
            fuzz_header(&bad);
        }
    }
}
