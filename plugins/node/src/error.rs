//! Conversion of engine errors to JavaScript `Error` objects.

use napi::bindgen_prelude::{BufferSlice, JsObjectValue, JsValue, Object};
use napi::{Env, Status};
use perigee::{Error, ErrorKind};

/// Returns the `code` property of an error.
pub fn code(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidArgument => "PERIGEE_INVALID_ARGUMENT",
        ErrorKind::NotFound => "PERIGEE_NOT_FOUND",
        ErrorKind::AlreadyExists => "PERIGEE_ALREADY_EXISTS",
        ErrorKind::Locked => "PERIGEE_LOCKED",
        ErrorKind::Corruption => "PERIGEE_CORRUPTION",
        ErrorKind::FormatTooNew => "PERIGEE_FORMAT_TOO_NEW",
        ErrorKind::Io => "PERIGEE_IO",
        ErrorKind::NoSpace => "PERIGEE_NO_SPACE",
        ErrorKind::OutcomeUnknown => "PERIGEE_OUTCOME_UNKNOWN",
        ErrorKind::Poisoned => "PERIGEE_POISONED",
        ErrorKind::Closed => "PERIGEE_CLOSED",
        ErrorKind::NoMemory => "PERIGEE_NO_MEMORY",
        ErrorKind::ReadOnly => "PERIGEE_READ_ONLY",
        ErrorKind::Busy => "PERIGEE_BUSY",
        ErrorKind::Conflict => "PERIGEE_CONFLICT",
        ErrorKind::Aborted => "PERIGEE_ABORTED",
        ErrorKind::Interrupted => "PERIGEE_INTERRUPTED",
        ErrorKind::Internal => "PERIGEE_INTERNAL",
        // The enum is non-exhaustive: a kind of a newer engine.
        _ => "PERIGEE_ERROR",
    }
}

/// Creates the `Error` object for `error`: `code`, `retryable` and, where they are known, `file`,
/// `offset`, `family`, `key` and `errno`.
pub fn to_object<'env>(env: &'env Env, error: &Error) -> napi::Result<Object<'env>> {
    let reason = napi::Error::new(Status::GenericFailure, error.to_string());
    let mut object = env.create_error(reason)?;
    object.set_named_property("name", "PerigeeError")?;
    object.set_named_property("code", code(error.kind()))?;
    object.set_named_property("retryable", error.is_retryable())?;
    if let Some(file) = error.file() {
        object.set_named_property("file", file)?;
    }
    if let Some(offset) = error.offset() {
        object.set_named_property("offset", offset as f64)?;
    }
    if let Some(family) = error.family() {
        object.set_named_property("family", family)?;
    }
    if let Some(key) = error.key() {
        object.set_named_property("key", BufferSlice::copy_from(env, key)?)?;
    }
    if let Some(errno) = error.os_error() {
        object.set_named_property("errno", errno)?;
    }
    Ok(object)
}

/// Converts `error` to an error of Node-API that is thrown as the object of [`to_object`].
pub fn to_js(env: &Env, error: &Error) -> napi::Error {
    match to_object(env, error) {
        Ok(object) => napi::Error::from(object.to_unknown()),
        Err(e) => e,
    }
}
