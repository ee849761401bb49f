//! `tidesdb_log_write`: writes a program's own lines to the log. Its variadic arguments are
//! formatted in C (`csrc/log_write.c`); Rust exports the symbol as a single jump, which leaves all
//! arguments unchanged.

use crate::log;
use std::ffi::{CStr, c_char, c_int};

type IsEnabledFn = extern "C" fn(c_int) -> c_int;
type WriteLineFn = unsafe extern "C" fn(c_int, *const c_char, c_int, *const c_char, usize);

unsafe extern "C" {
    fn perigee_log_format(
        level: c_int,
        file: *const c_char,
        line: c_int,
        format: *const c_char,
        ...
    );
    fn perigee_log_connect(wanted: IsEnabledFn, line_to: WriteLineFn);
}

/// Writes a line, if its level is enabled; `format` and the arguments after it as for `printf`.
///
/// # Safety
/// As `printf`; `file` is null or a NUL-terminated string.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn tidesdb_log_write() {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!("jmp {}", sym perigee_log_format);
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!("b {}", sym perigee_log_format);
}

/// Runs when the library is loaded.
#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".init_array"))]
static CONNECT: extern "C" fn() = connect;

/// Passes the log callbacks to the C part; can be repeated.
pub extern "C" fn connect() {
    // SAFETY: both functions have the declared types and are static.
    unsafe { perigee_log_connect(is_level_enabled, write_c_line) }
}

extern "C" fn is_level_enabled(level: c_int) -> c_int {
    c_int::from(log::is_enabled(level))
}

unsafe extern "C" fn write_c_line(
    level: c_int,
    file: *const c_char,
    line: c_int,
    text: *const c_char,
    size: usize,
) {
    // SAFETY: the C part formatted that many bytes.
    let text = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), size) };
    let file = if file.is_null() {
        "?".into()
    } else {
        // SAFETY: null or a NUL-terminated string, as the interface requires.
        unsafe { CStr::from_ptr(file) }.to_string_lossy()
    };
    log::log_from_source(level, &file, line, &String::from_utf8_lossy(text));
}
