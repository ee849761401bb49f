//! Results as Python objects: statistics and reports as dictionaries, entries as `bytes`.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use serde::Serialize;
use std::time::Duration;

/// Names of fields that contain bytes; serialization yields lists of numbers for them.
const BYTE_FIELDS: [&str; 3] = ["first_key", "last_key", "key"];

/// Converts a report or statistics into dictionaries, lists and numbers.
pub fn report<'py>(py: Python<'py>, value: &impl Serialize) -> PyResult<Bound<'py, PyAny>> {
    let object = pythonize::pythonize(py, value)?;
    restore_bytes(&object)?;
    Ok(object)
}

/// Replaces the lists of numbers in byte fields by `bytes`, at every depth.
fn restore_bytes(object: &Bound<'_, PyAny>) -> PyResult<()> {
    if let Ok(dict) = object.cast::<PyDict>() {
        for (name, value) in dict.iter() {
            let is_bytes = name.extract::<&str>().is_ok_and(|n| BYTE_FIELDS.contains(&n));
            if is_bytes && let Ok(bytes) = value.extract::<Vec<u8>>() {
                dict.set_item(name, PyBytes::new(object.py(), &bytes))?;
            } else {
                restore_bytes(&value)?;
            }
        }
    } else if let Ok(list) = object.cast::<PyList>() {
        for item in list.iter() {
            restore_bytes(&item)?;
        }
    }
    Ok(())
}

/// Returns a value as `bytes`, or `default`.
#[inline]
pub fn value_or<'py>(
    py: Python<'py>,
    value: Option<impl AsRef<[u8]>>,
    default: Option<Bound<'py, PyAny>>,
) -> Bound<'py, PyAny> {
    match value {
        Some(value) => PyBytes::new(py, value.as_ref()).into_any(),
        None => default.unwrap_or_else(|| py.None().into_bound(py)),
    }
}

/// Returns a pair of `bytes`.
#[inline]
pub fn entry<'py>(py: Python<'py>, key: &[u8], value: &[u8]) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, [PyBytes::new(py, key), PyBytes::new(py, value)])
}

/// Returns a remaining time to live in seconds.
pub fn seconds(remaining: Option<Duration>) -> Option<f64> {
    remaining.map(|left| left.as_secs_f64())
}
