//! Options of databases, column families and transactions from keyword arguments. Names, values and
//! error messages are those of the options file (`docs/OPTIONS.md`).

use crate::input::{IsolationArg, Seconds};
use perigee::{FamilyOptions, Options, TxnOptions};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDelta, PyDict, PyFloat, PyInt, PyMapping, PyString};

/// Options that take a duration.
const DURATION_OPTIONS: [&str; 3] = ["durability", "history", "scrub_interval"];

fn family_names() -> Vec<&'static str> {
    FamilyOptions::new().values().iter().map(|o| o.name).collect()
}

fn database_names() -> Vec<&'static str> {
    Options::new().values().iter().map(|o| o.name).collect()
}

/// Returns the exception for an unknown keyword argument, with the most similar name.
fn unknown_option(function: &str, name: &str, known: &[&str]) -> PyErr {
    let common = |other: &str| {
        let (a, b) = (name.as_bytes(), other.as_bytes());
        let prefix = a.iter().zip(b).take_while(|(x, y)| x == y).count();
        let suffix = a.iter().rev().zip(b.iter().rev()).take_while(|(x, y)| x == y).count();
        prefix + suffix
    };
    let similar = known.iter().max_by_key(|k| common(k)).filter(|k| common(k) * 2 >= name.len());
    let hint = match similar {
        Some(similar) => format!("did you mean '{similar}'?"),
        None => format!("the options are {}", known.join(", ")),
    };
    PyTypeError::new_err(format!(
        "{function}() got an unexpected keyword argument '{name}': {hint}"
    ))
}

/// Converts a value of an option into a number, flag or text of the options file.
fn option_value<'py>(name: &str, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = value.py();
    let is_duration = DURATION_OPTIONS.contains(&name);
    let is_plain = value.is_instance_of::<PyBool>() || value.is_instance_of::<PyString>();
    if is_plain || (value.is_instance_of::<PyInt>() && name != "scrub_interval") {
        return Ok(value.clone());
    }
    let is_number = value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>();
    if is_duration && (value.is_instance_of::<PyDelta>() || (is_number && name == "scrub_interval"))
    {
        let prefix = if name == "durability" { "interval " } else { "" };
        let us = value.extract::<Seconds>()?.0.as_micros();
        return Ok(PyString::new(py, &format!("{prefix}{us} us")).into_any());
    }
    let kind = value.get_type().name()?;
    let accepted = if is_duration { "str or timedelta" } else { "int, bool or str" };
    Err(PyTypeError::new_err(format!("the option {name} must be {accepted}, not {kind}")))
}

/// Copies the options that are not `None`, which stands for the default, and checks their names.
fn copy_options<'py>(
    function: &str,
    known: &[&str],
    from: &Bound<'py, PyDict>,
    into: &Bound<'py, PyDict>,
) -> PyResult<()> {
    for (name, value) in from.iter() {
        let name: String = name.extract()?;
        if !known.contains(&name.as_str()) {
            return Err(unknown_option(function, &name, known));
        }
        if !value.is_none() {
            into.set_item(&name, option_value(&name, &value)?)?;
        }
    }
    Ok(())
}

/// Converts a dictionary with the structure of an options file.
fn parse<T: serde::de::DeserializeOwned>(options: &Bound<'_, PyDict>) -> PyResult<T> {
    pythonize::depythonize(options).map_err(|e| {
        let text = e.to_string();
        // The sections of an options file mean nothing to a caller with keyword arguments.
        let text = text.trim_start_matches("[database]: ").trim_start_matches("column family: ");
        PyValueError::new_err(text.replacen("[family.default]: ", "", 1))
    })
}

/// Returns the options for the keyword arguments of `open`: options of the database, options of the
/// column family `default`, and `families`, a dictionary of the options of others.
pub fn open_options(arguments: Option<&Bound<'_, PyDict>>) -> PyResult<Options> {
    let Some(arguments) = arguments else { return Ok(Options::new()) };
    let py = arguments.py();
    let (family_names, database_names) = (family_names(), database_names());
    let (database, default) = (PyDict::new(py), PyDict::new(py));
    let families = PyDict::new(py);
    let mut all = database_names.clone();
    all.extend(family_names.iter().filter(|name| !database_names.contains(name)));
    all.push("families");
    for (name, value) in arguments.iter() {
        let name: String = name.extract()?;
        if name == "families" {
            if !value.is_none() {
                copy_families(&value, &family_names, &families)?;
            }
            continue;
        }
        if !all.contains(&name.as_str()) {
            return Err(unknown_option("open", &name, &all));
        }
        if !value.is_none() {
            let section =
                if database_names.contains(&name.as_str()) { &database } else { &default };
            section.set_item(&name, option_value(&name, &value)?)?;
        }
    }
    if !default.is_empty() {
        if families.contains("default")? {
            return Err(PyTypeError::new_err(
                "options of the column family 'default' are given twice: as keyword arguments and \
                 in families",
            ));
        }
        families.set_item("default", default)?;
    }
    let file = PyDict::new(py);
    file.set_item("database", database)?;
    file.set_item("family", families)?;
    parse(&file)
}

fn copy_families(
    value: &Bound<'_, PyAny>,
    known: &[&str],
    into: &Bound<'_, PyDict>,
) -> PyResult<()> {
    let wrong =
        || PyTypeError::new_err("families must be a mapping from names to dictionaries of options");
    let mapping = value.cast::<PyMapping>().map_err(|_| wrong())?;
    for pair in mapping.items()?.iter() {
        let (name, options): (String, Bound<'_, PyDict>) = pair.extract().map_err(|_| wrong())?;
        let copied = PyDict::new(value.py());
        copy_options("families", known, &options, &copied)?;
        into.set_item(name, copied)?;
    }
    Ok(())
}

/// Returns the options for the keyword arguments of `family`.
pub fn family_options(arguments: Option<&Bound<'_, PyDict>>) -> PyResult<FamilyOptions> {
    changed_family_options(&FamilyOptions::new(), "family", arguments)
}

/// Returns `current` with the options in the keyword arguments changed.
pub fn changed_family_options(
    current: &FamilyOptions,
    function: &str,
    arguments: Option<&Bound<'_, PyDict>>,
) -> PyResult<FamilyOptions> {
    let Some(arguments) = arguments else { return Ok(current.clone()) };
    let options = pythonize::pythonize(arguments.py(), current)?.cast_into::<PyDict>()?;
    copy_options(function, &family_names(), arguments, &options)?;
    parse(&options)
}

/// Keyword arguments of a transaction.
#[derive(Default)]
pub struct TxnArguments {
    pub isolation: Option<IsolationArg>,
    pub lock: bool,
    pub read_only: bool,
    pub lock_timeout: Option<Seconds>,
    pub timeout: Option<Seconds>,
    pub max_bytes: Option<u64>,
}

impl TxnArguments {
    /// Returns the options of the transaction.
    pub fn to_options(&self) -> TxnOptions {
        let mut options = TxnOptions::new().pessimistic(self.lock).read_only(self.read_only);
        options.isolation = self.isolation.map(|level| level.0);
        if let Some(timeout) = self.lock_timeout {
            options.lock_timeout = timeout.0;
        }
        options.timeout = self.timeout.map(|t| t.0);
        options.max_bytes = self.max_bytes;
        options
    }
}
