//! Freed memory between live allocations is returned to the system. In a test process of its own,
//! because the resident size includes all threads of the process.

use perigee_env::Fs;
use perigee_env::fs::RealFs;

#[test]
fn trim_heap_returns_freed_pages_to_the_system() {
    let fs = RealFs::new();
    let resident = || fs.resident_bytes().unwrap_or(0);
    let mut blocks: Vec<Option<Vec<u8>>> = (0..4000).map(|_| Some(vec![7; 10_000])).collect();
    let full = resident();
    blocks.iter_mut().skip(1).step_by(2).for_each(|b| *b = None);
    fs.trim_heap();
    assert!(
        blocks.iter().flatten().all(|b| b.iter().all(|x| *x == 7)),
        "live blocks are untouched"
    );
    if cfg!(all(target_os = "linux", target_env = "gnu")) {
        assert!(resident() + (8 << 20) < full, "{} of {full}", resident());
    }
}
