//! Scans: a cursor of the engine that is read in batches.

use crate::packed::{KeyRange, push_entry};
use crate::state::{Shared, lock};
use crate::task::{self, Reply};
use crate::value::{Bytes, Output};
use napi::Env;
use napi_derive::napi;
use perigee::{Cursor, Error, ErrorKind, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Flag: from the last key to the first.
pub const REVERSE: u32 = 1;
/// Flag: leave the keys out of the entries.
pub const NO_KEYS: u32 = 2;
/// Flag: do not read the values.
pub const NO_VALUES: u32 = 4;
/// Flag: a seek to a key outside the range ends the scan, instead of going to the nearest end.
pub const STRICT_SEEK: u32 = 8;

/// The next position of a scan.
enum Position {
    /// The first entry of the scan.
    Start,
    /// The entry at or after this key, in scan order.
    Seek(Vec<u8>),
    /// The cursor is at an entry that was returned, or that could not be read.
    After,
    /// The cursor is at an entry that was not returned yet.
    At,
    /// There are no more entries.
    End,
    /// A read failed: all further ones do, up to a seek. Otherwise the scan would seem complete.
    Failed(Error),
}

struct Scan {
    cursor: Cursor,
    range: KeyRange,
    flags: u32,
    position: Position,
}

impl Scan {
    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Moves the cursor to the next entry to return. Returns false at the end.
    fn advance(&mut self) -> Result<bool> {
        let reverse = self.has(REVERSE);
        match std::mem::replace(&mut self.position, Position::End) {
            Position::Start if reverse => self.cursor.seek_to_last()?,
            Position::Start => self.cursor.seek_to_first()?,
            Position::Seek(key) if self.has(STRICT_SEEK) && !self.range.contains(&key) => {
                return Ok(false);
            }
            Position::Seek(key) if reverse => self.cursor.seek_for_prev(key)?,
            Position::Seek(key) => self.cursor.seek(key)?,
            Position::After if reverse => self.cursor.prev()?,
            Position::After => self.cursor.next()?,
            Position::At => {}
            Position::End => return Ok(false),
            Position::Failed(e) => return Err(e),
        }
        if !self.cursor.is_valid() {
            return Ok(false);
        }
        self.position = Position::At;
        Ok(true)
    }

    /// Returns up to `count` entries as a packed list. Stops when it has `bytes_max` bytes.
    fn read(&mut self, count: u32, bytes_max: usize) -> Result<Vec<u8>> {
        let result = self.read_entries(count, bytes_max);
        if let Err(e) = &result {
            self.position = Position::Failed(e.clone());
        }
        result
    }

    fn read_entries(&mut self, count: u32, bytes_max: usize) -> Result<Vec<u8>> {
        let mut out = vec![0];
        for _ in 0..count {
            if !self.advance()? {
                out[0] = 1;
                break;
            }
            if self.has(NO_VALUES) {
                push_entry(&mut out, self.cursor.key(), &[])?;
            } else {
                let no_keys = self.has(NO_KEYS);
                let (key, value) = self.cursor.entry()?;
                push_entry(&mut out, if no_keys { &[] } else { key }, value)?;
            }
            self.position = Position::After;
            if out.len() >= bytes_max {
                break;
            }
        }
        Ok(out)
    }
}

/// A scan that can be closed while a read of it runs.
struct ScanCell {
    scan: Mutex<Option<Scan>>,
    closed: AtomicBool,
}

impl ScanCell {
    /// Calls `use_scan`, and closes the scan afterwards if this was requested in the meantime.
    fn with<R>(&self, use_scan: impl FnOnce(&mut Scan) -> Result<R>) -> Result<R> {
        let result = match &mut *lock(&self.scan) {
            Some(scan) if !self.closed.load(Ordering::Acquire) => use_scan(scan),
            _ => Err(Error::new(ErrorKind::Closed, "the iterator is closed: create another one")),
        };
        // After the lock was released: a `close` from now on succeeds itself.
        if self.closed.load(Ordering::Acquire) {
            self.close();
        }
        result
    }
    /// Drops the cursor, or lets the read that uses it do so.
    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        if let Ok(mut scan) = self.scan.try_lock() {
            *scan = None;
        }
    }
}

/// A scan of a column family.
#[napi]
pub struct NativeIterator {
    cell: Arc<ScanCell>,
    shared: Arc<Shared>,
}

impl NativeIterator {
    /// Returns a scan with `cursor`, which must be limited to `range`.
    pub fn new(cursor: Cursor, range: KeyRange, flags: u32, shared: Arc<Shared>) -> Self {
        let scan = Scan { cursor, range, flags, position: Position::Start };
        let cell = ScanCell { scan: Mutex::new(Some(scan)), closed: AtomicBool::new(false) };
        NativeIterator { cell: Arc::new(cell), shared }
    }
}

#[napi]
impl NativeIterator {
    /// Returns the next entries as a packed list: up to `count`, and no more once there are
    /// `bytes_max` bytes.
    #[napi]
    pub fn read(&self, env: Env, count: u32, bytes_max: u32, mode: u32) -> napi::Result<Reply> {
        // Keeps the database open while the read runs.
        let (cell, shared) = (Arc::clone(&self.cell), Arc::clone(&self.shared));
        task::run(env, mode, move || {
            let list = cell.with(|scan| scan.read(count, bytes_max as usize));
            // In this order: the cursor must not be what closes the database.
            drop(cell);
            drop(shared);
            list.map(Output::Packed)
        })
    }
    /// Sets the position of the next read to `key`.
    #[napi]
    pub fn seek(&self, env: Env, key: Bytes) -> napi::Result<Reply> {
        let cell = &self.cell;
        let set_position = |scan: &mut Scan| {
            scan.position = Position::Seek(key.0);
            Ok(Output::Undefined)
        };
        cell.with(set_position).map(Reply::Value).map_err(|e| crate::error::to_js(&env, &e))
    }
    /// Closes the scan. A read that is running finishes first.
    #[napi]
    pub fn close(&self) {
        self.cell.close();
    }
}
