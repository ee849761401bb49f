//! Storage that only grows: items and runs keep their place.

use super::arena::*;

#[test]
fn items_keep_their_place() {
    let s = Slots::new();
    for i in 0..1000u32 {
        assert_eq!(s.push(i * 3).unwrap(), i);
    }
    assert!((0..1000).all(|i| s.get(i) == Some(&(i * 3))));
    assert_eq!(s.get(1000), None);
}

#[test]
fn runs_of_words_never_straddle_a_bucket() {
    let w = Words::new();
    for n in 0..5000 {
        let (i, _) = w.take(7 + n % 13).unwrap();
        assert_eq!(w.run(i, (7 + n % 13) as usize).len(), (7 + n % 13) as usize);
    }
}
