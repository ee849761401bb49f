//! Feeds arbitrary bytes to `perigee_tables::fuzz_schema`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    perigee_tables::fuzz_schema(bytes);
});
