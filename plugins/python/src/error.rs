//! Converts errors of the engine into exceptions. The classes, one for each kind of error, are
//! defined in `perigeedb/_errors.py`.

use perigee::{Error, ErrorKind};
use pyo3::exceptions::{PyKeyError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict};

/// Function `make_error` of `perigeedb/_errors.py`.
static MAKE_ERROR: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Converts the result of a call of the engine.
pub trait OrRaise<T> {
    /// Converts an error into an exception.
    fn or_raise(self) -> PyResult<T>;
}

impl<T> OrRaise<T> for perigee::Result<T> {
    #[inline]
    fn or_raise(self) -> PyResult<T> {
        self.map_err(exception)
    }
}

/// Returns the exception for an error.
#[cold]
pub fn exception(e: Error) -> PyErr {
    Python::attach(|py| match build_exception(py, &e) {
        Ok(object) => PyErr::from_value(object),
        // The package is incomplete: the message is all that can be kept.
        Err(_) => PyRuntimeError::new_err(e.to_string()),
    })
}

fn build_exception<'py>(py: Python<'py>, e: &Error) -> PyResult<Bound<'py, PyAny>> {
    let make = MAKE_ERROR.get_or_try_init(py, || {
        py.import("perigeedb._errors")?.getattr("make_error").map(Bound::unbind)
    })?;
    let fields = PyDict::new(py);
    fields.set_item("file", e.file())?;
    fields.set_item("offset", e.offset())?;
    fields.set_item("family", e.family())?;
    fields.set_item("key", e.key().map(|key| PyBytes::new(py, key)))?;
    fields.set_item("os_error", e.os_error())?;
    fields.set_item("retryable", e.is_retryable())?;
    make.bind(py).call1((e.kind().name(), e.to_string(), fields))
}

/// Returns the error for a handle that was closed; `what` names the handle.
pub fn closed(what: &str) -> Error {
    Error::new(ErrorKind::Closed, format!("the {what} is closed"))
}

/// Returns the exception for a key that does not exist.
#[cold]
pub fn missing_key(key: &Bound<'_, PyAny>) -> PyErr {
    PyKeyError::new_err(key.clone().unbind())
}
