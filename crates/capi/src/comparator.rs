//! Comparators: the built-in ones as functions, and users' own as key orders of the engine.
//!
//! The engine knows an order by a name for ever, and stores it; a program registers a function
//! under a name each time that it runs, perhaps another one for another database. So a database's
//! order is stored under the program's name and a number drawn by lot when the first family gets
//! it: databases do not share orders, but for copies of one. Behind each stored name stand the
//! functions that open databases have registered for it; the newest is asked, and a close waits for
//! who is asking. No function is called with keys that no program has put.

use crate::abi::ComparatorFn;
use crate::code::{INVALID_ARGS, Result};
use crate::ffi::CallbackScope;
use perigee::KeyComparator;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// A function and what it is given each time.
#[derive(Clone, Copy)]
pub struct UserComparator {
    /// The function.
    pub call: ComparatorFn,
    /// Its context.
    pub context: *mut c_void,
}

// SAFETY: the program has registered both for use by any thread, as the interface says.
unsafe impl Send for UserComparator {}
// SAFETY: the same.
unsafe impl Sync for UserComparator {}

impl UserComparator {
    fn compare(self, a: &[u8], b: &[u8]) -> Ordering {
        let _within = CallbackScope::comparator();
        // SAFETY: the program has registered the function for such calls; both slices live through
        // the call.
        unsafe { (self.call)(a.as_ptr(), a.len(), b.as_ptr(), b.len(), self.context) }.cmp(&0)
    }
}

/// The functions that stand for an order, each with the database that has registered it. The lock
/// is kept while one is asked.
#[derive(Default)]
struct RegisteredFunctions(RwLock<Vec<(u64, UserComparator)>>);

impl RegisteredFunctions {
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let functions = self.0.read().unwrap_or_else(PoisonError::into_inner);
        // Where nobody is open nothing is compared, but for the engine's own try when it is told of
        // the order.
        functions.last().map_or_else(|| a.cmp(b), |(_, f)| f.compare(a, b))
    }
}

static COMPARATORS: Mutex<BTreeMap<String, (KeyComparator, Arc<RegisteredFunctions>)>> =
    Mutex::new(BTreeMap::new());

/// What stands before the number.
const UNIQUE_SUFFIX_MARK: char = '@';

/// A stored name that no database has yet.
pub fn unique_stored_name(name: &str) -> String {
    let lot = RandomState::new().build_hasher().finish();
    format!("{name}{UNIQUE_SUFFIX_MARK}{lot:016x}")
}

/// The engine's order of that stored name, from now on with this function of the database `owner`.
pub fn register(owner: u64, stored: &str, function: UserComparator) -> Result<KeyComparator> {
    let mut orders = COMPARATORS.lock().unwrap_or_else(PoisonError::into_inner);
    let (order, behind) = match orders.get(stored) {
        Some((order, behind)) => (*order, Arc::clone(behind)),
        None => {
            let behind = Arc::new(RegisteredFunctions::default());
            let asked = Arc::clone(&behind);
            let order = KeyComparator::register(stored, move |a, b| asked.compare(a, b))?;
            orders.insert(stored.to_owned(), (order, Arc::clone(&behind)));
            (order, behind)
        }
    };
    drop(orders);
    behind.0.write().unwrap_or_else(PoisonError::into_inner).push((owner, function));
    Ok(order)
}

/// A database is closed: its functions are not called any more.
pub fn unregister_owner(owner: u64) {
    let all: Vec<_> = {
        let orders = COMPARATORS.lock().unwrap_or_else(PoisonError::into_inner);
        orders.values().map(|(_, behind)| Arc::clone(behind)).collect()
    };
    for behind in all {
        behind.0.write().unwrap_or_else(PoisonError::into_inner).retain(|(o, _)| *o != owner);
    }
}

/// The comparator's name of an order, as the program knows it.
pub fn comparator_name(order: KeyComparator) -> String {
    match order {
        KeyComparator::Bytes => "memcmp".into(),
        KeyComparator::Reverse => "reverse".into(),
        KeyComparator::U64 => "uint64".into(),
        KeyComparator::I64 => "int64".into(),
        KeyComparator::CaseInsensitive => "case_insensitive".into(),
        KeyComparator::Lexicographic => "lexicographic".into(),
        other => name_from_stored(other.name()),
    }
}

/// The same from the stored name of a user's order.
pub fn name_from_stored(stored: &str) -> String {
    let own = stored.strip_prefix("user:").unwrap_or(stored);
    own.rsplit_once(UNIQUE_SUFFIX_MARK).map_or(own, |(name, _)| name).to_owned()
}

/// The built-in order of that name.
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
        return Err(INVALID_ARGS
            .with_message("the name of a comparator has 1 to 63 bytes and no control characters"));
    }
    Ok(())
}

/// Compares as an order of the engine does; null is an empty key.
///
/// # Safety
/// The keys are as long as is said, or null.
unsafe fn by(order: KeyComparator, a: *const u8, n: usize, b: *const u8, m: usize) -> c_int {
    let bytes = |p: *const u8, n: usize| {
        if p.is_null() || n > isize::MAX as usize {
            return &[][..];
        }
        // SAFETY: the caller gives so many bytes.
        unsafe { std::slice::from_raw_parts(p, n) }
    };
    order.cmp(bytes(a, n), bytes(b, m)) as c_int
}

macro_rules! built_in_functions {
    ($($(#[$doc:meta])* $name:ident => $order:expr;)*) => {$(
        $(#[$doc])*
        /// # Safety
        /// Both keys are as long as is said, or null.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            key1: *const u8, key1_size: usize, key2: *const u8, key2_size: usize, _ctx: *mut c_void,
        ) -> c_int {
            // SAFETY: passed on.
            unsafe { by($order, key1, key1_size, key2, key2_size) }
        }
    )*};
}

built_in_functions! {
    /// Unsigned bytes, shorter first.
    tidesdb_comparator_memcmp => KeyComparator::Bytes;
    /// Little-endian unsigned integers of 8 bytes.
    tidesdb_comparator_uint64 => KeyComparator::U64;
    /// Little-endian signed integers of 8 bytes.
    tidesdb_comparator_int64 => KeyComparator::I64;
    /// Unsigned bytes, backward.
    tidesdb_comparator_reverse_memcmp => KeyComparator::Reverse;
    /// ASCII letters without their case.
    tidesdb_comparator_case_insensitive => KeyComparator::CaseInsensitive;
    /// Text that ends before its first NUL. TidesDB reads on until there is one; here a key without
    /// one ends with its size.
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
        // SAFETY: passed on.
        -unsafe { tidesdb_comparator_memcmp(a, n, b, m, ctx) }
    }
    /// As some that are made for keys of one length: more than the key has may be read, and on
    /// other keys it is no order.
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
        // SAFETY: eight bytes each.
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
        let order = register(4, "eight", f).unwrap();
        assert_eq!(order.cmp(&9u64.to_be_bytes(), &300u64.to_be_bytes()), Ordering::Less);
        let text = UserComparator {
            call: tidesdb_comparator_lexicographic,
            context: std::ptr::null_mut(),
        };
        let order = register(4, "text", text).unwrap();
        assert_eq!(order.cmp(b"ab\0c", b"ab\0d"), Ordering::Equal);
        assert_eq!(order.cmp(b"ab", b"abc"), Ordering::Less);
        assert_eq!(order.cmp(b"", b"a"), Ordering::Less);
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
