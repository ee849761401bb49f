//! Runs the fuzz target's interpreter briefly over fixed seeds, so that every change is tested with
//! it.
#![allow(clippy::unwrap_used)]

mod calls;

/// Generates pseudo-random bytes without dependencies (xorshift).
fn bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(count).collect()
}

#[test]
fn random_call_sequences_match_model() {
    let memory = std::path::Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
    // `CALLS_SEEDS=1467..1468` runs other seeds, or a single one again.
    let seeds = std::env::var("CALLS_SEEDS").unwrap_or("0..40".into());
    let (first, end) = seeds.split_once("..").unwrap();
    for seed in first.parse().unwrap()..end.parse().unwrap() {
        let dir = parent.join(format!("perigee-calls-{}-{seed}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        println!("seed {seed}");
        calls::run(&bytes(seed, 4000), &dir);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
