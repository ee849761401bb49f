//! Functions of the program that the engine calls: comparators, merge operators, log listeners; and
//! its encryption keys.

use perigee::encryption::{EncryptionKey, KeyId, KeyProvider};
use perigee::{Error, ErrorKind, LogLevel, MergeOperator, Result};
use perigee_c_boundary::callback::CallbackScope;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::null;

/// `perigee_compare_function`. A C++ exception that leaves it ends the process.
pub type CompareFn =
    unsafe extern "C-unwind" fn(*const c_void, usize, *const c_void, usize, *mut c_void) -> c_int;

/// `perigee_merge_function`.
pub type MergeFn = unsafe extern "C-unwind" fn(
    key: *const c_void,
    key_size: usize,
    left: *const c_void,
    left_size: usize,
    right: *const c_void,
    right_size: usize,
    append: unsafe extern "C" fn(*mut c_void, *const c_void, usize),
    out: *mut c_void,
    context: *mut c_void,
) -> c_int;

/// `perigee_log_function`.
pub type LogFn = unsafe extern "C-unwind" fn(c_int, *const c_char, *mut c_void);

/// The context of a callback.
#[derive(Clone, Copy)]
pub struct Context(pub *mut c_void);

// SAFETY: the header requires that callbacks can be called on any thread with their context.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    fn pointer(self) -> *mut c_void {
        self.0
    }
}

/// Returns a comparator that calls a function of the program.
pub fn comparator(
    compare: CompareFn,
    context: Context,
) -> impl Fn(&[u8], &[u8]) -> Ordering + Send + Sync + 'static {
    move |a, b| {
        let _scope = CallbackScope::comparator();
        let context = context.pointer();
        // SAFETY: the program registered the function for such calls; both keys outlive the call.
        unsafe { compare(a.as_ptr().cast(), a.len(), b.as_ptr().cast(), b.len(), context) }.cmp(&0)
    }
}

/// A merge operator that calls a function of the program.
#[derive(Clone)]
pub struct UserMergeOperator {
    pub name: String,
    pub merge: MergeFn,
    pub context: Context,
}

/// Appends bytes to the result of a merge.
unsafe extern "C" fn append(out: *mut c_void, bytes: *const c_void, size: usize) {
    if out.is_null() || bytes.is_null() || size > isize::MAX as usize {
        return;
    }
    // SAFETY: `out` is the vector that `merge` below passed; the program guarantees the size.
    unsafe {
        (*out.cast::<Vec<u8>>()).extend_from_slice(std::slice::from_raw_parts(bytes.cast(), size));
    }
}

impl MergeOperator for UserMergeOperator {
    fn name(&self) -> &str {
        &self.name
    }
    fn merge(
        &self,
        key: &[u8],
        left: Option<&[u8]>,
        right: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let _scope = CallbackScope::comparator();
        let (left, left_size) = left.map_or((null(), 0), |l| (l.as_ptr(), l.len()));
        let out: *mut Vec<u8> = out;
        // SAFETY: the program registered the function for such calls; all arguments outlive it.
        let code = unsafe {
            (self.merge)(
                key.as_ptr().cast(),
                key.len(),
                left.cast(),
                left_size,
                right.as_ptr().cast(),
                right.len(),
                append,
                out.cast(),
                self.context.pointer(),
            )
        };
        match code {
            0 => Ok(()),
            code => Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("the merge operator {:?} returned {code}", self.name),
            )),
        }
    }
}

/// Returns a log listener that calls a function of the program.
pub fn log_listener(
    listener: LogFn,
    context: Context,
) -> impl Fn(LogLevel, &str) + Send + Sync + 'static {
    move |level, line| {
        let level = match level {
            LogLevel::Debug => 0,
            LogLevel::Info => 1,
            LogLevel::Warn => 2,
            _ => 3,
        };
        let line = crate::error::to_c_text(line);
        // SAFETY: the program registered the function for such calls; the line outlives the call.
        unsafe { listener(level, line.as_ptr(), context.pointer()) };
    }
}

/// The encryption keys of a database, by version; the highest encrypts new files.
#[derive(Clone, Default)]
pub struct KeyVersions(pub BTreeMap<u32, EncryptionKey>);

/// Identifies the keys in file headers, as `KeyRing` of the Rust interface does.
const KEY_ID: u32 = 1;

impl KeyProvider for KeyVersions {
    fn current(&self) -> Result<(KeyId, EncryptionKey)> {
        let newest = self.0.last_key_value();
        let (version, key) = newest.ok_or_else(|| Error::internal("there is no key"))?;
        Ok((KeyId { id: KEY_ID, version: *version }, key.clone()))
    }
    fn key(&self, id: KeyId) -> Result<EncryptionKey> {
        let key = self.0.get(&id.version).filter(|_| id.id == KEY_ID);
        key.cloned().ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "perigee_options_add_encryption_key did not add it")
        })
    }
}
