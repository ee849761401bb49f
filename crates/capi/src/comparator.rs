//! Comparators: the built-in ones as C functions, and user-defined ones registered with the engine.
//!
//! The engine identifies a comparator by a name that is stored permanently; a program registers a
//! function under a name each time it runs, possibly different functions for different databases. A
//! database's comparator is therefore stored under the program's name with a random suffix, which
//! is chosen when the first column family uses it: databases do not share comparators, except
//! copies of one database. Each stored name maps to the functions that open databases registered
//! for it. The most recently registered one is called, and a close waits for running calls. User
//! functions are called only with keys that the program wrote.

use crate::abi::ComparatorFn;
use crate::code::{INVALID_ARGS, Result};
use crate::ffi::CallbackScope;
use perigee::KeyComparator;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// A comparator function with its context.
#[derive(Clone, Copy)]
pub struct UserComparator {
    /// The function.
    pub call: ComparatorFn,
    /// Its context.
    pub context: *mut c_void,
}

// SAFETY: the program guarantees that both may be used on any thread.
unsafe impl Send for UserComparator {}
// SAFETY: as above.
unsafe impl Sync for UserComparator {}

impl UserComparator {
    fn compare(self, a: &[u8], b: &[u8]) -> Ordering {
        let _within = CallbackScope::comparator();
        // SAFETY: the program registered the function for such calls; both slices outlive the call.
        unsafe { (self.call)(a.as_ptr(), a.len(), b.as_ptr(), b.len(), self.context) }.cmp(&0)
    }
}

/// Functions registered for one stored comparator, each with the id of its database. The lock is
/// held during a call.
#[derive(Default)]
struct RegisteredFunctions(RwLock<Vec<(u64, UserComparator)>>);

impl RegisteredFunctions {
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let functions = self.0.read().unwrap_or_else(PoisonError::into_inner);
        // Without an open database no keys are compared, except by the engine's check when a
        // comparator is registered.
        functions.last().map_or_else(|| a.cmp(b), |(_, f)| f.compare(a, b))
    }
}

static COMPARATORS: Mutex<BTreeMap<String, (KeyComparator, Arc<RegisteredFunctions>)>> =
    Mutex::new(BTreeMap::new());

/// Separates the program's name from the random suffix.
const UNIQUE_SUFFIX_MARK: char = '@';

/// Returns a new unique stored name.
pub fn unique_stored_name(name: &str) -> String {
    let suffix = RandomState::new().build_hasher().finish();
    format!("{name}{UNIQUE_SUFFIX_MARK}{suffix:016x}")
}

/// Registers `function` of the database `owner` for a stored name. Returns the engine's comparator.
pub fn register(owner: u64, stored: &str, function: UserComparator) -> Result<KeyComparator> {
    let mut comparators = COMPARATORS.lock().unwrap_or_else(PoisonError::into_inner);
    let (comparator, functions) = match comparators.get(stored) {
        Some((comparator, functions)) => (*comparator, Arc::clone(functions)),
        None => {
            let functions = Arc::new(RegisteredFunctions::default());
            let shared = Arc::clone(&functions);
            let comparator = KeyComparator::register(stored, move |a, b| shared.compare(a, b))?;
            comparators.insert(stored.to_owned(), (comparator, Arc::clone(&functions)));
            (comparator, functions)
        }
    };
    drop(comparators);
    functions.0.write().unwrap_or_else(PoisonError::into_inner).push((owner, function));
    Ok(comparator)
}

/// Removes the functions of a closed database. Returns when none of them is running.
pub fn unregister_owner(owner: u64) {
    let all: Vec<_> = {
        let comparators = COMPARATORS.lock().unwrap_or_else(PoisonError::into_inner);
        comparators.values().map(|(_, functions)| Arc::clone(functions)).collect()
    };
    for functions in all {
        functions.0.write().unwrap_or_else(PoisonError::into_inner).retain(|(o, _)| *o != owner);
    }
}

/// Returns the comparator's name as known to the program.
pub fn comparator_name(comparator: KeyComparator) -> String {
    match comparator {
        KeyComparator::Bytes => "memcmp".into(),
        KeyComparator::Reverse => "reverse".into(),
        KeyComparator::U64 => "uint64".into(),
        KeyComparator::I64 => "int64".into(),
        KeyComparator::CaseInsensitive => "case_insensitive".into(),
        KeyComparator::Lexicographic => "lexicographic".into(),
        other => name_from_stored(other.name()),
    }
}

/// Returns the program's name for a stored name.
pub fn name_from_stored(stored: &str) -> String {
    let name = stored.strip_prefix("user:").unwrap_or(stored);
    name.rsplit_once(UNIQUE_SUFFIX_MARK).map_or(name, |(program_name, _)| program_name).to_owned()
}

/// Returns the built-in comparator of that name.
pub fn built_in_comparator(name: &str) -> Option<(KeyComparator, ComparatorFn)> {
    Some(match name {
        "" | "memcmp" => (KeyComparator::Bytes, tidesdb_comparator_memcmp),
        "lexicographic" => (KeyComparator::Lexicographic, tidesdb_comparator_lexicographic),
        "uint64" => (KeyComparator::U64, tidesdb_comparator_uint64),
        "int64" => (KeyComparator::I64, tidesdb_comparator_int64),
        "reverse" => (KeyComparator::Reverse, tidesdb_comparator_reverse_memcmp),
        "case_insensitive" => (KeyComparator::CaseInsensitive, tidesdb_comparator_case_insensitive),
        _ => return None,
    })
}

/// Refuses names that cannot be stored.
pub fn check_name(name: &str) -> Result<()> {
    if name.is_empty()
        || name.len() >= crate::abi::COMPARATOR_BYTES
        || name.chars().any(char::is_control)
    {
        return Err(INVALID_ARGS.with_message(
            "the name of a comparator must have 1 to 63 bytes and no control characters",
        ));
    }
    Ok(())
}

/// Compares two keys with a comparator of the engine; null is an empty key.
///
/// # Safety
/// The keys are null or valid for the given sizes.
unsafe fn compare_keys(
    comparator: KeyComparator,
    a: *const u8,
    n: usize,
    b: *const u8,
    m: usize,
) -> c_int {
    let bytes = |p: *const u8, n: usize| {
        if p.is_null() || n > isize::MAX as usize {
            return &[][..];
        }
        // SAFETY: the caller guarantees the sizes.
        unsafe { std::slice::from_raw_parts(p, n) }
    };
    comparator.cmp(bytes(a, n), bytes(b, m)) as c_int
}

macro_rules! built_in_functions {
    ($($(#[$doc:meta])* $name:ident => $comparator:expr;)*) => {$(
        $(#[$doc])*
        /// # Safety
        /// Both keys are null or valid for the given sizes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            key1: *const u8, key1_size: usize, key2: *const u8, key2_size: usize, _ctx: *mut c_void,
        ) -> c_int {
            // SAFETY: the caller's guarantees are passed on.
            unsafe { compare_keys($comparator, key1, key1_size, key2, key2_size) }
        }
    )*};
}

built_in_functions! {
    /// Compares unsigned bytes, a prefix before its extensions.
    tidesdb_comparator_memcmp => KeyComparator::Bytes;
    /// Compares little-endian unsigned 64-bit integers.
    tidesdb_comparator_uint64 => KeyComparator::U64;
    /// Compares little-endian signed 64-bit integers.
    tidesdb_comparator_int64 => KeyComparator::I64;
    /// Compares unsigned bytes in descending order.
    tidesdb_comparator_reverse_memcmp => KeyComparator::Reverse;
    /// Compares bytes, ignoring the case of ASCII letters.
    tidesdb_comparator_case_insensitive => KeyComparator::CaseInsensitive;
    /// Compares text up to its first NUL. TidesDB reads until it finds one; here a key without NUL
    /// ends at its size.
    tidesdb_comparator_lexicographic => KeyComparator::Lexicographic;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    unsafe extern "C-unwind" fn backward(
        a: *const u8,
        n: usize,
        b: *const u8,
        m: usize,
        ctx: *mut c_void,
    ) -> c_int {
        // SAFETY: the caller's guarantees are passed on.
        -unsafe { tidesdb_comparator_memcmp(a, n, b, m, ctx) }
    }
    /// Like comparators written for keys of one length: reads eight bytes whatever the size, and is
    /// not a total order for other keys.
    unsafe extern "C-unwind" fn eight_bytes(
        a: *const u8,
        n: usize,
        b: *const u8,
        m: usize,
        _: *mut c_void,
    ) -> c_int {
        if n != 8 || m != 8 {
            return 1;
        }
        // SAFETY: the keys have eight bytes each.
        let [a, b] = [a, b].map(|p| u64::from_be_bytes(unsafe { p.cast::<[u8; 8]>().read() }));
        a.cmp(&b) as c_int
    }
    unsafe extern "C-unwind" fn by_length(
        _: *const u8,
        n: usize,
        _: *const u8,
        m: usize,
        _: *mut c_void,
    ) -> c_int {
        n.cmp(&m) as c_int
    }

    #[test]
    fn register_calls_function_with_user_keys_only() {
        let f = UserComparator { call: eight_bytes, context: std::ptr::null_mut() };
        let comparator = register(4, "eight", f).unwrap();
        assert_eq!(comparator.cmp(&9u64.to_be_bytes(), &300u64.to_be_bytes()), Ordering::Less);
        let text = UserComparator {
            call: tidesdb_comparator_lexicographic,
            context: std::ptr::null_mut(),
        };
        let comparator = register(4, "text", text).unwrap();
        assert_eq!(comparator.cmp(b"ab\0c", b"ab\0d"), Ordering::Equal);
        assert_eq!(comparator.cmp(b"ab", b"abc"), Ordering::Less);
        assert_eq!(comparator.cmp(b"", b"a"), Ordering::Less);
    }
    #[test]
    fn databases_may_reuse_a_comparator_name() {
        let f = |call| UserComparator { call, context: std::ptr::null_mut() };
        let (one, two) = (unique_stored_name("mine"), unique_stored_name("mine"));
        let a = register(1, &one, f(backward)).unwrap();
        let b = register(2, &two, f(by_length)).unwrap();
        assert!(a != b && comparator_name(a) == "mine" && comparator_name(b) == "mine");
        assert_eq!(a.cmp(b"a", b"b"), Ordering::Greater);
        assert_eq!(b.cmp(b"b", b"a"), Ordering::Equal);
        unregister_owner(1);
        assert_eq!(register(3, &one, f(backward)).unwrap(), a);
        assert_eq!(a.cmp(b"a", b"b"), Ordering::Greater);
    }
}
