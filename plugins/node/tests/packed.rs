//! Tests of the packed lists. The module is compiled into this program, because a program that is
//! not loaded by Node.js cannot be linked with the other modules.

#![allow(missing_docs)]

#[path = "../src/packed.rs"]
#[allow(dead_code)]
mod packed;

use packed::{KeyRange, decode_keys};

#[test]
fn damaged_lists_are_errors() {
    assert!(decode_keys(&[1, 0, 0, 0]).is_err());
    assert!(decode_keys(&[1, 0, 0, 0, 7]).is_ok_and(|keys| keys == [[7]]));
    assert!(KeyRange::decode(&[]).is_err());
    assert!(KeyRange::decode(&[3, 0, 0, 0, 0, 0, 0, 0, 0, 0]).is_err());
    let range = KeyRange::decode(&[1, 1, 0, 0, 0, 5, 2, 1, 0, 0, 0, 7]).unwrap();
    assert!(range.contains(&[5]) && range.contains(&[6, 255]) && !range.contains(&[7]));
    assert!(KeyRange::decode(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]).is_err());
}
