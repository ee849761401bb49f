//! Memtable to level 0: the rewrite road with a memtable as its source.

use crate::memtable::Memtable;
use crate::mvcc::Strata;
use crate::rewrite::place::Place;
use crate::rewrite::split::Split;
use crate::rewrite::{Created, Output, Rewrite, run};
use crate::scan::{MergeCursor, Source};
use crate::version::{AddedTable, Version, VersionEdit};
use perigee_base::{LevelNo, Result, RunId};
use perigee_file::{KlogOptions, Shelf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// What a flush or compaction needs besides its input.
pub struct Setting<'a> {
    /// The current version of the family.
    pub version: &'a Version,
    /// The readers to respect.
    pub strata: Strata,
    /// Format of the outputs.
    pub options: KlogOptions,
    /// Values of this length and up are separated.
    pub threshold: usize,
    /// Bytes at which tables are cut.
    pub target_bytes: u64,
    /// Read outputs again before they are believed.
    pub verify: bool,
    /// Opens and creates files.
    pub shelf: &'a Shelf,
    /// Where file ids come from.
    pub ids: &'a AtomicU64,
    /// Set from outside: give up.
    pub cancel: &'a AtomicBool,
}

impl<'a> Setting<'a> {
    /// The rewrite of `source` in this setting.
    pub(crate) fn rewrite(self, source: MergeCursor, bottom: bool, place: Place) -> Rewrite<'a> {
        Rewrite {
            source,
            version: self.version,
            strata: self.strata,
            bottom,
            place,
            split: Split { target_bytes: self.target_bytes },
            options: self.options,
            verify: self.verify,
            shelf: self.shelf,
            ids: self.ids,
            cancel: self.cancel,
        }
    }
}

/// Writes a sealed memtable as run `run_id` of level 0. Files are synced, the directory is not.
pub fn flush(
    memtable: &Arc<Memtable>,
    run_id: RunId,
    setting: Setting<'_>,
    created: &mut Created,
) -> Result<(VersionEdit, Output)> {
    let order = setting.options.order;
    let place = Place { threshold: setting.threshold, ..Place::default() };
    let source = MergeCursor::new(order, vec![Source::Mem(memtable.cursor())]);
    let output = run(setting.rewrite(source, false, place), created)?;
    let added = |meta: &crate::TableMeta| AddedTable { level: LevelNo(0), run: run_id, meta: meta.clone() };
    let edit = VersionEdit {
        added: output.tables.iter().map(added).collect(),
        vlogs_added: output.vlogs.clone(),
        flushed: Some(memtable.last_seq()),
        ..VersionEdit::default()
    };
    Ok((edit, output))
}
