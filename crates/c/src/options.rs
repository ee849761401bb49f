//! Options: values set by name, kept as the lines of an options file, and registered functions.

use crate::boundary::{Bytes, ErrorOut, Handle, Out, Text, call};
use crate::callbacks::{
    CompareFn, Context, KeyVersions, LogFn, MergeFn, UserMergeOperator, comparator, log_listener,
};
use crate::memory::return_text;
use perigee::encryption::{EncryptionKey, KEY_BYTES};
use perigee::{Error, FamilyOptions, KeyComparator, LogLevel, OptionValue, Options, Result};
use perigee_c_boundary::handle::HandleTable;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Arc;

/// Longest text of an options file.
const TOML_BYTES_MAX: usize = 1 << 20;

/// Options that were created and not released.
pub static OPTIONS: HandleTable<OptionSet> = HandleTable::new(7);

/// Options by name, in the syntax of the options file.
type Values = BTreeMap<String, String>;

/// Options of a database and its column families.
#[derive(Clone, Default)]
pub struct OptionSet {
    database: Values,
    families: BTreeMap<String, Values>,
    comparators: Vec<KeyComparator>,
    merge_operators: Vec<UserMergeOperator>,
    listener: Option<(LogLevel, LogFn, Context)>,
    keys: KeyVersions,
}

/// Returns a TOML string.
fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out + "\""
}

fn add_lines(out: &mut String, section: &str, values: &Values) {
    out.push_str(section);
    for (name, value) in values {
        out.push_str(&format!("{name} = {value}\n"));
    }
}

fn family_section(name: &str) -> String {
    format!("[family.{}]\n", quoted(name))
}

/// Returns a value as in an options file: numbers and `true`, `false` without quotes, other text
/// with quotes. `parse` is called with a file of this one option, and reports what is wrong.
fn to_literal(section: &str, name: &str, value: &str) -> Result<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(is_name) {
        return Err(Error::invalid(format!("{name:?} is not the name of an option")));
    }
    let parse = |literal: &str| Options::from_toml(&format!("{section}{name} = {literal}\n"));
    let is_bare = matches!(value, "true" | "false") || value.parse::<i64>().is_ok();
    if is_bare && parse(value).is_ok() {
        return Ok(value.to_owned());
    }
    let literal = quoted(value);
    match parse(&literal) {
        Ok(_) => Ok(literal),
        // The message for a number names it without quotes.
        Err(e) if is_bare => Err(parse(value).err().unwrap_or(e)),
        Err(e) => Err(e),
    }
}

fn to_values(options: Vec<OptionValue>) -> Values {
    options.into_iter().map(|o| (o.name.to_owned(), o.value)).collect()
}

impl OptionSet {
    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let literal = to_literal("[database]\n", name, value)?;
        self.database.insert(name.to_owned(), literal);
        Ok(())
    }
    fn set_family(&mut self, family: &str, name: &str, value: &str) -> Result<()> {
        let literal = to_literal(&family_section(family), name, value)?;
        self.families.entry(family.to_owned()).or_default().insert(name.to_owned(), literal);
        Ok(())
    }
    fn load(&mut self, loaded: &Options) {
        self.database = to_values(loaded.values());
        let default = loaded.default_family.iter().map(|o| ("default", o));
        let named = loaded.families.iter().map(|(name, o)| (name.as_str(), o));
        self.families = default
            .chain(named)
            .map(|(name, options)| (name.to_owned(), to_values(options.values())))
            .collect();
    }
    /// Returns the options that have a text form.
    fn values(&self) -> Result<Options> {
        let mut toml = String::new();
        add_lines(&mut toml, "[database]\n", &self.database);
        for (name, values) in &self.families {
            add_lines(&mut toml, &family_section(name), values);
        }
        Options::from_toml(&toml)
    }
    /// Returns all options.
    pub fn to_options(&self) -> Result<Options> {
        let mut options = self.values()?;
        options.comparators.clone_from(&self.comparators);
        for operator in &self.merge_operators {
            options = options.register_merge_operator(Arc::new(operator.clone()));
        }
        if let Some((level, listener, context)) = self.listener {
            options = options.log_listener(level, log_listener(listener, context));
        }
        if !self.keys.0.is_empty() {
            options = options.encryption(Arc::new(self.keys.clone()));
        }
        Ok(options)
    }
    /// Returns the options of a column family.
    pub fn family_options(&self, name: &str) -> Result<FamilyOptions> {
        let mut options = self.values()?;
        let found = match name {
            "default" => options.default_family,
            name => options.families.remove(name),
        };
        Ok(found.unwrap_or_default())
    }
}

/// Returns options of a column family with one value changed.
pub fn with_value(options: &FamilyOptions, name: &str, value: &str) -> Result<FamilyOptions> {
    let section = family_section("family");
    let mut values = to_values(options.values());
    values.insert(name.to_owned(), to_literal(&section, name, value)?);
    let mut toml = String::new();
    add_lines(&mut toml, &section, &values);
    let mut parsed = Options::from_toml(&toml)?;
    parsed.families.remove("family").ok_or_else(|| Error::internal("the options were not parsed"))
}

/// Returns the value of an option without quotes.
pub fn value_of(options: &FamilyOptions, name: &str) -> Result<String> {
    let all = options.values();
    let Some(option) = all.iter().find(|o| o.name == name) else {
        let names: Vec<_> = all.iter().map(|o| o.name).collect();
        let names = names.join(", ");
        return Err(Error::invalid(format!("there is no option {name:?}; there are {names}")));
    };
    Ok(option.value.trim_matches('"').replace("\\\"", "\"").replace("\\\\", "\\"))
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_options_new(options: Out<Handle>, error: ErrorOut) -> c_int {
    options.set(Handle::NULL);
    call(error, || {
        options.require()?;
        options.set(Handle::insert(&OPTIONS, OptionSet::default())?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_options_set(
    options: Handle,
    name: Text,
    value: Text,
    error: ErrorOut,
) -> c_int {
    call(error, || OPTIONS.lock(options.raw())?.set(name.get()?, value.get()?))
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_options_set_family(
    options: Handle,
    family: Text,
    name: Text,
    value: Text,
    error: ErrorOut,
) -> c_int {
    call(error, || {
        OPTIONS.lock(options.raw())?.set_family(family.get()?, name.get()?, value.get()?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_options_load_file(options: Handle, path: Text, error: ErrorOut) -> c_int {
    call(error, || {
        let mut set = OPTIONS.lock(options.raw())?;
        set.load(&Options::load(path.get()?)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_options_load_text(options: Handle, toml: Text, error: ErrorOut) -> c_int {
    call(error, || {
        let mut set = OPTIONS.lock(options.raw())?;
        set.load(&Options::from_toml(toml.get_long(TOML_BYTES_MAX)?)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_options_text(
    options: Handle,
    toml: Out<*mut c_char>,
    error: ErrorOut,
) -> c_int {
    return_text(&toml, error, || Ok(OPTIONS.pin(options.raw())?.values()?.to_toml()))
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_options_add_comparator(
    options: Handle,
    name: Text,
    compare: Option<CompareFn>,
    context: *mut c_void,
    error: ErrorOut,
) -> c_int {
    call(error, || {
        let mut set = OPTIONS.lock(options.raw())?;
        let compare = compare.ok_or_else(|| Error::invalid("the comparator is NULL"))?;
        let call = comparator(compare, Context(context));
        let registered = KeyComparator::register(name.get()?, call)?;
        if !set.comparators.contains(&registered) {
            set.comparators.push(registered);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_options_add_merge_operator(
    options: Handle,
    name: Text,
    merge: Option<MergeFn>,
    context: *mut c_void,
    error: ErrorOut,
) -> c_int {
    call(error, || {
        let mut set = OPTIONS.lock(options.raw())?;
        let merge = merge.ok_or_else(|| Error::invalid("the merge operator is NULL"))?;
        let name = name.get()?.to_owned();
        set.merge_operators.retain(|operator| operator.name != name);
        set.merge_operators.push(UserMergeOperator { name, merge, context: Context(context) });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_options_set_log_listener(
    options: Handle,
    level: c_int,
    listener: Option<LogFn>,
    context: *mut c_void,
    error: ErrorOut,
) -> c_int {
    call(error, || {
        let level = match level {
            0 => LogLevel::Debug,
            1 => LogLevel::Info,
            2 => LogLevel::Warn,
            3 => LogLevel::Error,
            _ => return Err(Error::invalid(format!("{level} is not a perigee_log_level"))),
        };
        let listener = listener.map(|function| (level, function, Context(context)));
        OPTIONS.lock(options.raw())?.listener = listener;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_options_add_encryption_key(
    options: Handle,
    version: c_uint,
    key: Bytes,
    key_size: usize,
    error: ErrorOut,
) -> c_int {
    call(error, || {
        let bytes = key.get(key_size, KEY_BYTES)?;
        let bytes: [u8; KEY_BYTES] = bytes.try_into().map_err(|_| {
            Error::invalid(format!("the key has {key_size} bytes, {KEY_BYTES} are needed"))
        })?;
        OPTIONS.lock(options.raw())?.keys.0.insert(version, EncryptionKey::new(bytes));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_options_release(options: Handle) {
    options.release(&OPTIONS);
}
