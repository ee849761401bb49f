//! Single-threaded test of the hash index against a map; with a concurrent reader:
//! `tests/memtable_loom.rs`.

use super::hash::*;
use std::collections::HashMap;

#[test]
fn matches_map_while_growing_with_tag_collisions() {
    for few_tags in [false, true] {
        let index = HashIndex::new(0);
        let mut model = HashMap::new();
        let mut keys: Vec<u64> = Vec::new();
        let mut x = 3u64;
        for entry in 0..3000u32 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let key = x >> 52;
            let hash =
                if few_tags { (key % 5) << 32 } else { key.wrapping_mul(0x9E37_79B9_7F4A_7C15) };
            index.reserve(1).unwrap();
            let slot = index.find_slot(hash, |e| keys[e as usize] == key);
            assert_eq!(slot.older, model.get(&key).copied());
            keys.push(key);
            index.set_slot(slot, hash, entry);
            model.insert(key, entry);
            if entry % 100 == 0 || entry < 20 {
                for k in 0..4096u64 {
                    let hash = if few_tags {
                        (k % 5) << 32
                    } else {
                        k.wrapping_mul(0x9E37_79B9_7F4A_7C15)
                    };
                    assert_eq!(index.find(hash, |e| keys[e as usize] == k), model.get(&k).copied());
                }
            }
        }
        assert_eq!(index.distinct_keys(), model.len() as u64);
    }
}

#[test]
fn reserve_reports_new_memory() {
    let index = HashIndex::new(1 << 20);
    assert_eq!((index.reserve(1).unwrap(), index.reserve(1 << 20).unwrap()), (16 << 20, 0));
    let small = HashIndex::new(0);
    assert_eq!((small.reserve(1).unwrap(), small.reserve(1).unwrap()), (32, 0));
}
