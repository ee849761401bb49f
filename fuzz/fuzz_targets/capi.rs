//! Interprets arbitrary bytes as a sequence of C API calls, with the interpreter and oracle of the
//! smoke test.
#![no_main]
#[path = "../../crates/capi/tests/calls/mod.rs"]
mod calls;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let dir =
        std::path::Path::new("/dev/shm").join(format!("perigee-fuzz-capi-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("cannot create a directory in /dev/shm");
    calls::run(bytes, &dir);
    let _ = std::fs::remove_dir_all(&dir);
});
