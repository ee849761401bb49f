//! Any bytes as a sequence of calls of the C API; the interpreter and its oracle are those of the smoke test.
#![no_main]
#[path = "../../crates/capi/tests/calls/mod.rs"]
mod calls;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let dir = std::path::Path::new("/dev/shm").join(format!("perigee-fuzz-capi-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a directory in memory");
    calls::run(bytes, &dir);
    let _ = std::fs::remove_dir_all(&dir);
});
