//! Feeds arbitrary bytes to `perigee_engine::fuzz::fuzz_crypt`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    perigee_engine::fuzz::fuzz_crypt(bytes);
});
