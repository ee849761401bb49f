//! Sets the soname of the shared library, which linked programs require, and compiles the one
//! function that must be written in C.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=csrc/log_write.c");
    cc::Build::new()
        .file("csrc/log_write.c")
        .warnings_into_errors(true)
        .compile("perigee_log_write");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtidesdb.so.9");
    }
}
