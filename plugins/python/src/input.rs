//! Arguments: keys and values, durations, durabilities, isolation levels, encryption keys.

use crate::error::OrRaise;
use perigee::encryption::{KEY_BYTES, KeyRing, encrypt_env};
use perigee::env::Env;
use perigee::{Durability, Isolation, WriteOptions};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDelta, PyInt, PyList, PyMemoryView, PyString, PyTuple};
use std::sync::Arc;
use std::time::Duration;

/// A key or value: `bytes` or `str` without a copy, any other buffer as a copy, because its owner
/// could change it while the interpreter lock is released.
pub enum Data<'a> {
    /// The contents of a `bytes` or a `str` (as UTF-8), which never change.
    Borrowed(&'a [u8]),
    /// A copy of a buffer.
    Copied(Py<PyBytes>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Data<'a> {
    type Error = PyErr;

    #[inline]
    fn extract(obj: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if obj.is_instance_of::<PyBytes>() {
            return Ok(Data::Borrowed(obj.extract::<&'a [u8]>()?));
        }
        if obj.is_instance_of::<PyString>() {
            return Ok(Data::Borrowed(obj.extract::<&'a str>()?.as_bytes()));
        }
        copy_buffer(&obj).map(Data::Copied)
    }
}

/// Copies an object with the buffer protocol, in C order.
fn copy_buffer(obj: &Bound<'_, PyAny>) -> PyResult<Py<PyBytes>> {
    let Ok(view) = PyMemoryView::from(obj) else {
        let kind = obj.get_type().qualname()?;
        let text = format!("a bytes-like object or str is required, not {kind:?}");
        return Err(PyTypeError::new_err(text.replace('"', "'")));
    };
    Ok(view.call_method0("tobytes")?.cast_into::<PyBytes>()?.unbind())
}

impl Data<'_> {
    /// Returns the bytes, which stay valid while the interpreter lock is released.
    #[inline]
    pub fn bytes(&self, py: Python<'_>) -> &[u8] {
        match self {
            Data::Borrowed(bytes) => bytes,
            Data::Copied(object) => object.as_bytes(py),
        }
    }
    /// Returns a copy of the bytes.
    pub fn to_vec(&self, py: Python<'_>) -> Vec<u8> {
        self.bytes(py).to_vec()
    }
}

/// An operand of a merge: as a value, or an integer, for the operator `counter`.
pub struct Operand<'a>(Data<'a>);

impl<'a, 'py> FromPyObject<'a, 'py> for Operand<'a> {
    type Error = PyErr;

    fn extract(obj: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if obj.is_instance_of::<PyInt>() {
            let number: i64 = obj.extract()?;
            let bytes = PyBytes::new(obj.py(), &number.to_le_bytes());
            return Ok(Operand(Data::Copied(bytes.unbind())));
        }
        obj.extract().map(Operand)
    }
}

impl Operand<'_> {
    /// Returns the bytes of the operand.
    pub fn bytes(&self, py: Python<'_>) -> &[u8] {
        self.0.bytes(py)
    }
}

/// Keys of the encryption at rest: one key of 32 bytes, or several, the newest last.
pub struct EncryptionKeys(KeyRing);

impl<'py> FromPyObject<'_, 'py> for EncryptionKeys {
    type Error = PyErr;

    fn extract(obj: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let py = obj.py();
        let read = |obj: &Bound<'_, PyAny>| -> PyResult<[u8; KEY_BYTES]> {
            if obj.is_instance_of::<PyString>() {
                return Err(PyTypeError::new_err("an encryption key must be bytes, not str"));
            }
            let key = obj.extract::<Data<'_>>()?.to_vec(py);
            let bytes = key.len();
            key.try_into().map_err(|_| {
                PyValueError::new_err(format!(
                    "an encryption key must have {KEY_BYTES} bytes, not {bytes}"
                ))
            })
        };
        if !obj.is_instance_of::<PyList>() && !obj.is_instance_of::<PyTuple>() {
            return Ok(EncryptionKeys(KeyRing::new(read(&obj)?)));
        }
        let keys: Vec<Bound<'_, PyAny>> = obj.try_iter()?.collect::<PyResult<_>>()?;
        let Some((first, later)) = keys.split_first() else {
            return Err(PyValueError::new_err("encryption_keys is empty: pass at least one key"));
        };
        let mut ring = KeyRing::new(read(first)?);
        for (version, key) in (2..).zip(later) {
            ring = ring.with_version(version, read(key)?);
        }
        Ok(EncryptionKeys(ring))
    }
}

/// Returns the environment of the operating system, with encryption if there are keys.
pub fn environment(keys: Option<EncryptionKeys>) -> Env {
    match keys {
        Some(keys) => encrypt_env(Env::real(), Arc::new(keys.0)),
        None => Env::real(),
    }
}

/// A duration: a number of seconds or a `timedelta`.
#[derive(Clone, Copy)]
pub struct Seconds(pub Duration);

impl<'py> FromPyObject<'_, 'py> for Seconds {
    type Error = PyErr;

    fn extract(obj: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let seconds: f64 = if obj.is_instance_of::<PyDelta>() {
            obj.call_method0("total_seconds")?.extract()?
        } else {
            obj.extract().map_err(|_| {
                PyTypeError::new_err("a duration must be a number of seconds or a timedelta")
            })?
        };
        let duration = Duration::try_from_secs_f64(seconds).map_err(|_| {
            PyValueError::new_err(format!("{seconds} is not a duration: it must not be negative"))
        })?;
        Ok(Seconds(duration))
    }
}

/// A durability: `"full"`, `"none"`, `"interval 100 ms"`, or a `timedelta` for an interval.
#[derive(Clone, Copy)]
pub struct DurabilityArg(pub Durability);

impl<'py> FromPyObject<'_, 'py> for DurabilityArg {
    type Error = PyErr;

    fn extract(obj: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(text) = obj.extract::<&str>() {
            return text.parse().map(DurabilityArg).or_raise();
        }
        if obj.is_instance_of::<PyDelta>() {
            return Ok(DurabilityArg(Durability::Interval(obj.extract::<Seconds>()?.0)));
        }
        Err(PyTypeError::new_err(
            "a durability must be 'full', 'none', 'interval 100 ms' or a timedelta",
        ))
    }
}

/// Returns the write options for the argument `durability` of a write.
pub fn write_options(durability: Option<DurabilityArg>) -> WriteOptions {
    match durability {
        Some(DurabilityArg(durability)) => WriteOptions::new().durability(durability),
        None => WriteOptions::new(),
    }
}

/// An isolation level, such as `"serializable"` or `"read_committed"`.
#[derive(Clone, Copy)]
pub struct IsolationArg(pub Isolation);

impl<'py> FromPyObject<'_, 'py> for IsolationArg {
    type Error = PyErr;

    fn extract(obj: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let text = obj
            .extract::<&str>()
            .map_err(|_| PyTypeError::new_err("an isolation level must be a str"))?;
        text.replace(['_', '-'], " ").parse().map(IsolationArg).or_raise()
    }
}
