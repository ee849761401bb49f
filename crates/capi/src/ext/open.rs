//! Opens databases with options that TidesDB's configuration lacks, and with user-defined merge
//! operators.

use crate::abi::{Config, Handle};
use crate::code::{INVALID_ARGS, Result};
use crate::database;
use crate::ffi::{CallbackScope, call, out_param, struct_param, text};
use crate::state::family;
use crate::{alloc, log};
use perigee::{Error, ErrorKind, HistoryPolicy, MergeOperator, MergeRule, Options};
use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

/// Merges an operand into the older value: appends the result to `out` by `append(out, bytes,
/// size)`. Returns 0, or another value if the two cannot be merged.
pub type MergeFn = unsafe extern "C-unwind" fn(
    key: *const u8,
    key_size: usize,
    left: *const u8,
    left_size: usize,
    right: *const u8,
    right_size: usize,
    append: unsafe extern "C" fn(*mut c_void, *const u8, usize),
    out: *mut c_void,
    ctx: *mut c_void,
) -> c_int;

/// A user-defined merge operator.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct Operator {
    pub name: *const c_char,
    pub merge: Option<MergeFn>,
    pub ctx: *mut c_void,
}

/// Options beyond TidesDB's; zero in all fields except `size` changes nothing.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct OpenOptions {
    pub size: usize,
    pub read_only: c_int,
    pub salvage_readonly: c_int,
    pub error_if_exists: c_int,
    pub must_exist: c_int,
    pub history_operations: u64,
    pub history_us: u64,
    pub log_retention: u64,
    pub background_rate: u64,
    pub space_amplification: u32,
    pub num_merge_operators: u32,
    pub merge_operators: *const Operator,
}

/// Returns the default options.
#[unsafe(no_mangle)]
pub extern "C" fn perigee_default_options() -> OpenOptions {
    OpenOptions {
        size: size_of::<OpenOptions>(),
        read_only: 0,
        salvage_readonly: 0,
        error_if_exists: 0,
        must_exist: 0,
        history_operations: 0,
        history_us: 0,
        log_retention: 0,
        background_rate: 0,
        space_amplification: 0,
        num_merge_operators: 0,
        merge_operators: std::ptr::null(),
    }
}

struct UserMergeOperator {
    name: String,
    merge: MergeFn,
    context: *mut c_void,
}

// SAFETY: the program guarantees that function and context may be used on any thread.
unsafe impl Send for UserMergeOperator {}
// SAFETY: as above.
unsafe impl Sync for UserMergeOperator {}

/// Appends bytes to the result of a user's merge operator.
unsafe extern "C" fn append(out: *mut c_void, bytes: *const u8, size: usize) {
    if out.is_null() || bytes.is_null() || size > isize::MAX as usize {
        return;
    }
    // SAFETY: `out` is the vector passed by `merge` below; the user's function guarantees the size.
    unsafe { (*out.cast::<Vec<u8>>()).extend_from_slice(std::slice::from_raw_parts(bytes, size)) }
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
    ) -> perigee::Result<()> {
        let _within = CallbackScope::comparator();
        let (below, size) = left.map_or((std::ptr::null(), 0), |l| (l.as_ptr(), l.len()));
        let to: *mut Vec<u8> = out;
        // SAFETY: the program registered the function for such calls; all arguments outlive the
        // call.
        let code = unsafe {
            (self.merge)(
                key.as_ptr(),
                key.len(),
                below,
                size,
                right.as_ptr(),
                right.len(),
                append,
                to.cast(),
                self.context,
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

/// Adds these options to those of TidesDB's configuration.
///
/// # Safety
/// `merge_operators` points to the given number of elements; their names are null or NUL-terminated
/// strings.
unsafe fn apply_open_options(mut all: Options, o: &OpenOptions) -> Result<Options> {
    if o.size != size_of::<OpenOptions>() {
        return Err(
            INVALID_ARGS.with_message("initialize the options with perigee_default_options()")
        );
    }
    if o.history_operations > 0 && o.history_us > 0 {
        return Err(INVALID_ARGS.with_message("set history_operations or history_us, not both"));
    }
    all = all.read_only(o.read_only != 0).salvage_readonly(o.salvage_readonly != 0);
    all = all.error_if_exists(o.error_if_exists != 0).create_if_missing(o.must_exist == 0);
    if o.history_operations > 0 {
        all = all.history(HistoryPolicy::Operations(o.history_operations));
    }
    if o.history_us > 0 {
        all = all.history(HistoryPolicy::Time(Duration::from_micros(o.history_us)));
    }
    all = all.log_retention(o.log_retention);
    if o.background_rate > 0 {
        all = all.background_rate(Some(o.background_rate));
    }
    if o.space_amplification > 0 {
        all = all.space_amplification(o.space_amplification);
    }
    if o.num_merge_operators > 256 || (o.num_merge_operators > 0 && o.merge_operators.is_null()) {
        return Err(INVALID_ARGS
            .with_message("merge_operators: an array of at most 256 elements is required"));
    }
    for i in 0..o.num_merge_operators as usize {
        // SAFETY: the caller guarantees the length of the array.
        let operator = unsafe { *o.merge_operators.add(i) };
        // SAFETY: null or a NUL-terminated string, guaranteed by the caller.
        let name = unsafe { text(operator.name) }?.to_owned();
        let merge = operator
            .merge
            .ok_or_else(|| INVALID_ARGS.with_message("the function of a merge operator is null"))?;
        all = all.register_merge_operator(Arc::new(UserMergeOperator {
            name,
            merge,
            context: operator.ctx,
        }));
    }
    Ok(all)
}

/// Opens a database with options beyond TidesDB's.
///
/// # Safety
/// `config` and `options` are null or point to valid structures, `db` is null or valid for writing
/// a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_open(
    config: *const Config,
    options: *const OpenOptions,
    db: *mut Handle,
) -> c_int {
    alloc::ensure_initialized();
    let code = call(|| {
        // SAFETY: guaranteed by the caller.
        let (c, o, place) =
            unsafe { (struct_param(config)?, struct_param(options)?, out_param(db)?) };
        *place = null_mut();
        // SAFETY: guaranteed by the caller.
        *place = database::open_database(c, |all| unsafe { apply_open_options(all, o) })? as Handle;
        Ok(())
    });
    if code != 0 {
        log::error(&format!("the database was not opened ({code}): {}", crate::code::last_error()));
    }
    code
}

/// Sets the merge operator of a column family: `counter`, `append:` and a separator, or `user:` and
/// a registered name.
///
/// # Safety
/// `rule` is null or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_cf_set_merge_operator(cf: Handle, rule: *const c_char) -> c_int {
    call(|| {
        let cf = family(cf)?;
        // SAFETY: guaranteed by the caller.
        let rule = MergeRule::from_stored_name(unsafe { text(rule) }?)?;
        Ok(cf.inner.set_options(cf.inner.options().merge_operator(rule))?)
    })
}
