//! Memtable to level 0: the rewrite road with a memtable as its source.

use crate::memtable::Memtable;
use crate::rewrite::{Created, Input, Output, Setting, run};
use crate::scan::{MergeCursor, Source};
use crate::version::{AddedTable, VersionEdit};
use perigee_base::{LevelNo, Result, RunId};
use perigee_file::Fragments;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Writes a sealed memtable as run `run_id` of level 0. Files are synced, the directory is not.
pub fn flush(
    memtable: &Arc<Memtable>,
    run_id: RunId,
    setting: Setting<'_>,
    created: &mut Created,
) -> Result<(VersionEdit, Output)> {
    let order = setting.options.order;
    let source = MergeCursor::new(order, vec![Source::from(memtable.cursor().through())]);
    let ranges = memtable.ranges().with(Fragments::clone).unwrap_or_default();
    let input = Input {
        source,
        ranges,
        bottom: false,
        relocate: BTreeSet::new(),
        renumber: false,
        whole: false,
        taken_back: Arc::default(),
    };
    let output = run(input, setting, created)?;
    let added = |meta: &crate::TableMeta| AddedTable { level: LevelNo(0), run: run_id, meta: meta.clone() };
    let edit = VersionEdit {
        added: output.tables.iter().map(added).collect(),
        vlogs_added: output.vlogs.clone(),
        flushed: Some(memtable.last_seq()),
        ..VersionEdit::default()
    };
    Ok((edit, output))
}
