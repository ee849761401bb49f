//! Arguments and results of the native functions.

use crate::database::NativeDatabase;
use crate::error;
use crate::view::NativeView;
use napi::bindgen_prelude::{
    BufferSlice, FromNapiValue, Object, ToNapiValue, TypeName, Unknown, ValidateNapiValue,
};
use napi::{Env, JsValue, ValueType, sys};
use perigee::{Error, Slice};

/// Results of at least this many bytes are handed over instead of copied.
const HAND_OVER_BYTES_MIN: usize = 64 << 10;

/// A key or value: the UTF-8 bytes of a string, or a copy of the bytes of a `Buffer`, typed array
/// or `DataView`.
pub struct Bytes(pub Vec<u8>);

impl TypeName for Bytes {
    fn type_name() -> &'static str {
        "string | Uint8Array"
    }
    fn value_type() -> ValueType {
        ValueType::Unknown
    }
}

// The conversion checks the type itself, to throw an error with a code.
impl ValidateNapiValue for Bytes {
    unsafe fn validate(_: sys::napi_env, _: sys::napi_value) -> napi::Result<sys::napi_value> {
        Ok(std::ptr::null_mut())
    }
}

impl FromNapiValue for Bytes {
    unsafe fn from_napi_value(env: sys::napi_env, value: sys::napi_value) -> napi::Result<Self> {
        // SAFETY: the caller passes a valid environment and a value of it.
        let unknown = unsafe { Unknown::from_napi_value(env, value)? };
        let kind = unknown.get_type()?;
        if kind == ValueType::String {
            // SAFETY: the value is a string of this environment.
            return Ok(Bytes(unsafe { String::from_napi_value(env, value)? }.into_bytes()));
        }
        if kind == ValueType::Object && unknown.is_buffer()? {
            // SAFETY: the value is a view of an `ArrayBuffer` of this environment. Its bytes are
            // copied before JavaScript runs again.
            let bytes = unsafe { BufferSlice::from_napi_value(env, value)? };
            return Ok(Bytes(bytes.to_vec()));
        }
        let text = format!(
            "a key or value must be a string, a Buffer or a Uint8Array, not {}",
            format!("{kind:?}").to_lowercase()
        );
        Err(error::to_js(&Env::from_raw(env), &Error::invalid(text)))
    }
}

/// The result of an operation, before it is converted to a JavaScript value.
pub enum Output {
    /// `undefined`.
    Undefined,
    /// A boolean.
    Bool(bool),
    /// A number; integers above 2^53 lose their last digits.
    Number(f64),
    /// A value of the database, as a `Buffer`.
    Bytes(Slice),
    /// A value of the database, as a string; invalid UTF-8 becomes U+FFFD.
    Text(Slice),
    /// A list of module `packed`, as a `Buffer`.
    Packed(Vec<u8>),
    /// A string.
    String(String),
    /// An error for each group of operations that failed, `undefined` for the others.
    Errors(Vec<Option<Error>>),
    /// An open database.
    Database(NativeDatabase),
    /// A column family.
    View(NativeView),
}

impl Output {
    /// Returns a value, or `undefined` if there is none.
    pub fn value(value: Option<Slice>, text: bool) -> Output {
        match value {
            Some(value) if text => Output::Text(value),
            Some(value) => Output::Bytes(value),
            None => Output::Undefined,
        }
    }
}

impl TypeName for Output {
    fn type_name() -> &'static str {
        "any"
    }
    fn value_type() -> ValueType {
        ValueType::Unknown
    }
}

/// Converts a value to JavaScript.
fn convert(env: &Env, value: impl ToNapiValue) -> napi::Result<sys::napi_value> {
    // SAFETY: an `Env` refers to the environment of the running callback.
    unsafe { ToNapiValue::to_napi_value(env.raw(), value) }
}

impl ToNapiValue for Output {
    unsafe fn to_napi_value(raw: sys::napi_env, output: Self) -> napi::Result<sys::napi_value> {
        let env = Env::from_raw(raw);
        match output {
            Output::Undefined => convert(&env, ()),
            Output::Bool(value) => convert(&env, value),
            Output::Number(value) => convert(&env, value),
            Output::Bytes(value) => Ok(BufferSlice::copy_from(&env, &value)?.raw()),
            Output::Text(value) if value.is_ascii() => Ok(env.create_string_latin1(&*value)?.raw()),
            Output::Text(value) => Ok(env.create_string(String::from_utf8_lossy(&value))?.raw()),
            Output::Packed(list) if list.len() < HAND_OVER_BYTES_MIN => {
                Ok(BufferSlice::copy_from(&env, list)?.raw())
            }
            Output::Packed(list) => Ok(BufferSlice::from_data(&env, list)?.raw()),
            Output::String(text) => Ok(env.create_string_from_std(text)?.raw()),
            Output::Errors(errors) => {
                let to_object = |e: &Option<Error>| -> napi::Result<Option<Object<'_>>> {
                    e.as_ref().map(|e| error::to_object(&env, e)).transpose()
                };
                let objects: napi::Result<Vec<_>> = errors.iter().map(to_object).collect();
                convert(&env, objects?)
            }
            Output::Database(database) => convert(&env, database),
            Output::View(view) => convert(&env, view),
        }
    }
}
