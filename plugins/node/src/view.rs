//! Reads of a column family: its current state, or as seen by a snapshot or transaction.

use crate::iterator::NativeIterator;
use crate::options::lock_mode;
use crate::packed::{KeyRange, decode_keys, push_value};
use crate::state::{Shared, SnapshotCell, TxnCell};
use crate::task::{self, Reply};
use crate::value::{Bytes, Output};
use crate::{error, options};
use napi::Env;
use napi::bindgen_prelude::Uint8ArraySlice;
use napi_derive::napi;
use perigee::{CompareAndSwapError, Family, Readable, Result, Slice};
use std::sync::Arc;

/// What is read.
#[derive(Clone)]
pub enum Source {
    /// The current state.
    Live,
    /// The state when a snapshot was taken.
    Snapshot(Arc<SnapshotCell>),
    /// The state that a transaction sees.
    Txn(Arc<TxnCell>),
}

/// A column family in a source.
#[derive(Clone)]
pub struct View {
    pub(crate) family: Family,
    pub(crate) source: Source,
    // Last, so that the other fields never close the database when they are dropped.
    pub(crate) shared: Arc<Shared>,
}

/// Evaluates an expression with the [`Readable`] of a view.
macro_rules! read {
    ($view:expr, |$source:ident| $read:expr) => {
        match &$view.source {
            Source::Live => {
                let $source = &$view.family;
                $read
            }
            Source::Snapshot(cell) => {
                let snapshot = cell.get()?;
                let $source = &snapshot.family(&$view.family);
                $read
            }
            Source::Txn(cell) => {
                let $source = &cell.get()?.family(&$view.family);
                $read
            }
        }
    };
}

impl View {
    fn get(&self, key: &[u8]) -> Result<Option<Slice>> {
        read!(self, |source| Readable::get_pinned(source, key))
    }
    fn contains(&self, key: &[u8]) -> Result<bool> {
        read!(self, |source| Readable::contains(source, key))
    }
    /// Returns the values of packed keys as a packed list.
    fn get_many(&self, keys: &[u8]) -> Result<Vec<u8>> {
        let keys = decode_keys(keys)?;
        let values = read!(self, |source| Readable::multi_get(source, &keys));
        let mut out = Vec::new();
        for value in values {
            push_value(&mut out, value?.as_deref())?;
        }
        Ok(out)
    }
    /// Returns a byte for each packed key: 1 if it exists, else 0.
    fn contains_many(&self, keys: &[u8]) -> Result<Vec<u8>> {
        let keys = decode_keys(keys)?;
        keys.iter().map(|key| self.contains(key).map(u8::from)).collect()
    }
    /// Returns the expiry time as `f64` (NaN: never) and the value, or nothing.
    fn get_with_expiry(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let found = read!(self, |source| Readable::get_with_ttl(source, key))?;
        Ok(found.map(|found| {
            let expiry = found.expires_at_ms.map_or(f64::NAN, |ms| ms as f64);
            [&expiry.to_le_bytes()[..], &found.value].concat()
        }))
    }
    fn scan(&self, range: KeyRange, flags: u32) -> Result<NativeIterator> {
        let bounds = range.bounds();
        let cursor = read!(self, |source| Readable::cursor_within::<&[u8]>(source, bounds))?;
        Ok(NativeIterator::new(cursor, range, flags, Arc::clone(&self.shared)))
    }
    fn count(&self, range: &KeyRange) -> Result<u64> {
        let bounds = range.bounds();
        let mut cursor = read!(self, |source| Readable::cursor_within::<&[u8]>(source, bounds))?;
        cursor.seek_to_first()?;
        let mut count = 0;
        while cursor.is_valid() {
            count += 1;
            cursor.next()?;
        }
        Ok(count)
    }
}

/// A column family in a source. See [`View`].
#[napi]
pub struct NativeView {
    pub(crate) view: View,
}

impl NativeView {
    /// Returns the current state of a column family, and makes it known to packed operations.
    pub fn live(family: Family, shared: &Arc<Shared>) -> NativeView {
        shared.add_family(&family);
        let shared = Arc::clone(shared);
        NativeView { view: View { family, source: Source::Live, shared } }
    }
    /// Returns the same column family in another source.
    pub fn in_source(&self, source: Source) -> NativeView {
        NativeView { view: View { source, ..self.view.clone() } }
    }
    fn run(
        &self,
        env: Env,
        mode: u32,
        work: impl FnOnce(&View) -> Result<Output> + Send + 'static,
    ) -> napi::Result<Reply> {
        let view = self.view.clone();
        task::run(env, mode, move || work(&view))
    }
}

#[napi]
impl NativeView {
    /// Returns the id of the column family, for packed operations.
    #[napi(getter)]
    pub fn id(&self) -> u32 {
        self.view.family.id()
    }
    /// Returns the name of the column family.
    #[napi(getter)]
    pub fn name(&self) -> String {
        self.view.family.name()
    }
    /// Returns the value of a key, as a string if `text`; `undefined` if the key does not exist.
    #[napi]
    pub fn get(&self, env: Env, key: Bytes, text: bool, mode: u32) -> napi::Result<Reply> {
        self.run(env, mode, move |view| Ok(Output::value(view.get(&key.0)?, text)))
    }
    /// Returns true if a key exists.
    #[napi]
    pub fn has(&self, env: Env, key: Bytes, mode: u32) -> napi::Result<Reply> {
        self.run(env, mode, move |view| Ok(Output::Bool(view.contains(&key.0)?)))
    }
    /// Returns the values of packed keys as a packed list.
    #[napi]
    pub fn get_many(&self, env: Env, keys: Uint8ArraySlice<'_>, mode: u32) -> napi::Result<Reply> {
        let keys = keys.to_vec();
        self.run(env, mode, move |view| Ok(Output::Packed(view.get_many(&keys)?)))
    }
    /// Returns a byte for each packed key: 1 if it exists, else 0.
    #[napi]
    pub fn has_many(&self, env: Env, keys: Uint8ArraySlice<'_>, mode: u32) -> napi::Result<Reply> {
        let keys = keys.to_vec();
        self.run(env, mode, move |view| Ok(Output::Packed(view.contains_many(&keys)?)))
    }
    /// Returns the expiry time of a key (`f64`, milliseconds since the Unix epoch, NaN: never)
    /// followed by its value; `undefined` if the key does not exist.
    #[napi]
    pub fn get_with_expiry(&self, env: Env, key: Bytes, mode: u32) -> napi::Result<Reply> {
        self.run(env, mode, move |view| {
            let found = view.get_with_expiry(&key.0)?;
            Ok(found.map_or(Output::Undefined, Output::Packed))
        })
    }
    /// Begins a scan of a packed key range. `flags`: constants of module `iterator`.
    #[napi]
    pub fn scan(
        &self,
        env: Env,
        range: Uint8ArraySlice<'_>,
        flags: u32,
    ) -> napi::Result<NativeIterator> {
        KeyRange::decode(&range)
            .and_then(|range| self.view.scan(range, flags))
            .map_err(|e| error::to_js(&env, &e))
    }
    /// Returns the number of keys in a packed key range.
    #[napi]
    pub fn count(&self, env: Env, range: Uint8ArraySlice<'_>, mode: u32) -> napi::Result<Reply> {
        let range = KeyRange::decode(&range).map_err(|e| error::to_js(&env, &e))?;
        self.run(env, mode, move |view| Ok(Output::Number(view.count(&range)? as f64)))
    }
    /// Estimates the size of a packed key range; returns JSON.
    #[napi]
    pub fn estimate(&self, env: Env, range: Uint8ArraySlice<'_>, mode: u32) -> napi::Result<Reply> {
        let range = KeyRange::decode(&range).map_err(|e| error::to_js(&env, &e))?;
        self.run(env, mode, move |view| {
            let e = view.family.estimate_range::<&[u8]>(range.bounds())?;
            let (keys, entries) = (e.keys, e.entries);
            let json = serde_json::json!({
                "keys": keys,
                "entries": entries,
                "diskBytes": e.disk_bytes,
                "memoryBytes": e.memory_bytes,
            });
            Ok(Output::String(json.to_string()))
        })
    }
    /// Replaces the value of a key if it is `expected`. Returns `undefined`, or if the key has
    /// another value, a packed list of this one value.
    #[napi]
    pub fn compare_and_swap(
        &self,
        env: Env,
        key: Bytes,
        expected: Option<Bytes>,
        new: Option<Bytes>,
        mode: u32,
    ) -> napi::Result<Reply> {
        self.run(env, mode, move |view| {
            let (expected, new) = (expected.as_ref(), new.as_ref());
            let (expected, new) = (expected.map(|v| &v.0[..]), new.map(|v| &v.0[..]));
            match view.family.compare_and_swap(&key.0, expected, new)? {
                Ok(()) => Ok(Output::Undefined),
                Err(CompareAndSwapError { current, .. }) => {
                    let mut out = Vec::new();
                    push_value(&mut out, current.as_deref())?;
                    Ok(Output::Packed(out))
                }
            }
        })
    }
    /// Deletes a key and returns its value; `undefined` if it did not exist.
    #[napi]
    pub fn take(&self, env: Env, key: Bytes, text: bool, mode: u32) -> napi::Result<Reply> {
        self.run(env, mode, move |view| {
            let value = view.family.take(&key.0)?.map(Slice::from);
            Ok(Output::value(value, text))
        })
    }
    /// In a transaction: locks a key and returns its value.
    #[napi]
    pub fn get_for_update(
        &self,
        env: Env,
        key: Bytes,
        lock: String,
        text: bool,
        mode: u32,
    ) -> napi::Result<Reply> {
        self.run(env, mode, move |view| {
            let Source::Txn(cell) = &view.source else {
                return Err(perigee::Error::invalid("getForUpdate needs a transaction"));
            };
            let mode = lock_mode(&lock)?;
            let value = cell.get()?.get_for_update(&view.family, &key.0, mode)?;
            Ok(Output::value(value, text))
        })
    }
    /// Flushes this column family.
    #[napi]
    pub fn flush(&self, env: Env, mode: u32) -> napi::Result<Reply> {
        self.run(env, mode, |view| view.family.flush().map(|()| Output::Undefined))
    }
    /// Compacts a packed key range of this column family.
    #[napi]
    pub fn compact_range(
        &self,
        env: Env,
        range: Uint8ArraySlice<'_>,
        mode: u32,
    ) -> napi::Result<Reply> {
        let range = KeyRange::decode(&range).map_err(|e| error::to_js(&env, &e))?;
        self.run(env, mode, move |view| {
            view.family.compact_range::<&[u8]>(range.bounds())?;
            Ok(Output::Undefined)
        })
    }
    /// Returns the statistics of this column family as JSON.
    #[napi]
    pub fn stats(&self, env: Env, mode: u32) -> napi::Result<Reply> {
        self.run(env, mode, |view| crate::database::to_json(&view.family.stats()?))
    }
    /// Changes the options of this column family: lines of an options file.
    #[napi]
    pub fn set_options(&self, env: Env, lines: String, mode: u32) -> napi::Result<Reply> {
        self.run(env, mode, move |view| {
            view.family.set_options(options::family_options(&lines)?)?;
            Ok(Output::Undefined)
        })
    }
    /// Returns the options of this column family as JSON.
    #[napi]
    pub fn options(&self, env: Env, mode: u32) -> napi::Result<Reply> {
        self.run(env, mode, |view| crate::database::to_json(&view.family.options()))
    }
}
