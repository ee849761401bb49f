//! Feeds arbitrary bytes to `perigee_file::fuzz::fuzz_footer`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    perigee_file::fuzz::fuzz_footer(bytes);
});
