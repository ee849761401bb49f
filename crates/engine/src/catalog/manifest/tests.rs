//! Tests that edits survive the round trip, that damaged and foreign edits are rejected, and that
//! the catalog rejects edits that do not fit.

use super::edit::NextIds;
use super::*;
use crate::catalog::retained_logs::LogSpan;
use crate::settings::FamilySettings;
use perigee_base::{FamilyId, FileId, KeyBoundary, KeyBoundaryRef, LevelNo, RunId, SeqNo, limits};
use perigee_file::log::{ClaimTarget, PrepareHeader, PreparedClaim, encode_prepare};
use perigee_file::{KlogSummary, RangeTombstoneSummary};
use perigee_tree::{AddedTable, TableMeta, VersionEdit, VlogMeta};
use std::sync::Arc;

fn next_ids(file: u64, family: u32, run: u64) -> NextIdsEdit {
    NextIds { file: FileId(file), family: FamilyId(family), run: RunId(run) }.into()
}

fn span(id: u64, first: u64, end: u64) -> LogSpan {
    LogSpan { id: FileId(id), first_lsn: SeqNo(first), end_lsn: SeqNo(end), bytes: 500 }
}

fn events() -> Vec<FamilyEvent> {
    let name = || "tides".to_string();
    let all = [
        FamilyEventKind::Created { name: name() },
        FamilyEventKind::Dropped { name: name() },
        FamilyEventKind::Renamed { from: name(), to: "ebb".into() },
        FamilyEventKind::Cleared,
        FamilyEventKind::Cloned { name: name(), source: FamilyId(1) },
        FamilyEventKind::Loaded,
    ];
    let event =
        |(i, what)| FamilyEvent { seq: SeqNo(5 + i as u64), family: FamilyId(1), kind: what };
    all.into_iter().enumerate().map(event).collect()
}

/// Returns the transaction of the format page.
fn prepared() -> Arc<PreparedTables> {
    let gid = b"order 7".to_vec();
    let header = PrepareHeader {
        gid: &gid,
        isolation_level: 4,
        prepared_at_ms: 1_800_000_000_000,
        op_count: 0,
    };
    let claims = |visit: &mut dyn FnMut(PreparedClaim<'_>)| {
        let read = ClaimTarget::Key(b"sun");
        visit(PreparedClaim { family: FamilyId(3), mode: 0, target: read });
        let gap = ClaimTarget::Range(KeyBoundaryRef::Before(b"a"), KeyBoundaryRef::Last);
        visit(PreparedClaim { family: FamilyId(0), mode: 3, target: gap });
    };
    let record = encode_prepare(header, &claims, &[]).unwrap();
    let summary = KlogSummary {
        bytes: 500,
        checksum: 0x1122_3344_5566_7788,
        entries: 2,
        tombstones: 0,
        smallest_seq: SeqNo(0),
        largest_seq: SeqNo(0),
        first_key: b"moon".to_vec(),
        last_key: b"star".to_vec(),
        raw_key_bytes: 8,
        raw_value_bytes: 5004,
        vlogs: vec![(FileId(9), 5000)],
        ranges: None,
    };
    let files = PreparedFiles {
        family: FamilyId(0),
        tables: vec![TableMeta { id: FileId(10), summary: summary.into(), global_seq: None }],
        vlogs: vec![VlogMeta { id: FileId(9), bytes: 5100, checksum: 0x8877_6655_4433_2211 }],
    };
    Arc::new(PreparedTables {
        gid,
        record: Arc::new(record.buf[record.payload_range()].to_vec()),
        operations: 2,
        files: vec![files],
    })
}

fn sample_edit() -> ManifestEdit {
    let summary = KlogSummary {
        bytes: 1000,
        checksum: 0xdead_beef_0000_0001,
        entries: 10,
        tombstones: 1,
        smallest_seq: SeqNo(3),
        largest_seq: SeqNo(12),
        first_key: b"a".to_vec(),
        last_key: b"z\0".to_vec(),
        raw_key_bytes: 30,
        raw_value_bytes: 900,
        vlogs: vec![(FileId(8), 77)],
        ranges: Some(Box::new(RangeTombstoneSummary {
            count: 3,
            begin: KeyBoundary::First,
            end: KeyBoundary::After(b"zz".to_vec()),
        })),
    };
    let table = AddedTable {
        level: LevelNo(1),
        run: RunId(4),
        meta: TableMeta {
            id: FileId(7),
            summary: summary.into(),
            global_seq: Some(perigee_base::SeqNo(40)),
        },
    };
    let version = VersionEdit {
        added: vec![table],
        removed: vec![(LevelNo(0), FileId(5))],
        vlogs_added: vec![VlogMeta { id: FileId(8), bytes: 99, checksum: 5 }],
        vlogs_removed: vec![FileId(6)],
        flushed_up_to: Some(SeqNo(12)),
    };
    ManifestEdit {
        snapshot: true,
        next_ids: Some(next_ids(9, 2, 5)),
        families: vec![(FamilyId(1), "tides".into(), FamilySettings::default())],
        filters: vec![(FamilyId(1), "f".into())],
        dropped: vec![FamilyId(3)],
        versions: vec![(FamilyId(1), version)],
        prepared: vec![prepared()],
        decided: vec![b"order 6".to_vec()],
        logs_added: vec![(FileId(9), SeqNo(13))],
        logs_removed: vec![FileId(2)],
        logs_retained: vec![span(2, 1, 5), span(3, 5, 13)],
        retained_removed: vec![FileId(1)],
        events: events(),
        events_discarded: Some(SeqNo(4)),
        contents_start: vec![(FamilyId(1), SeqNo(9))],
        oldest_readable: Some(SeqNo(11)),
        snapshots: vec![("before the tide".into(), SeqNo(10))],
        snapshots_dropped: vec!["old".into()],
        durable_seq: Some(SeqNo(12)),
        expiry_clock_ms: Some(1_800_000_000_000),
        clean_close: Some(CleanClose { log: FileId(9), bytes: 72, last_seq: SeqNo(12) }),
    }
}

#[test]
fn edits_round_trip() {
    let e = sample_edit();
    assert_eq!(decode_edit(&encode_edit(&e)).unwrap(), e);
    assert_eq!(decode_edit(&[]).unwrap(), ManifestEdit::default());
}

#[test]
fn damaged_edits_give_errors_not_panics() {
    let good = encode_edit(&sample_edit());
    for i in 0..good.len() {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[i] ^= 1 << bit;
            let _ = decode_edit(&bad);
        }
        let _ = decode_edit(&good[..i]);
    }
}

#[test]
fn unknown_fields_are_skipped_or_rejected_by_parity() {
    assert_eq!(decode_edit(&[100, 1, 0]).unwrap(), ManifestEdit::default());
    assert_eq!(
        decode_edit(&[101, 1, 0]).unwrap_err().kind(),
        perigee_base::ErrorKind::FormatTooNew
    );
}

#[test]
fn catalog_rejects_unfit_edits_and_round_trips() {
    let mut c = CatalogState::default();
    let family = ManifestEdit {
        families: vec![(FamilyId(1), "f".into(), FamilySettings::default())],
        logs_added: vec![(FileId(2), SeqNo(1))],
        ..ManifestEdit::default()
    };
    c.apply(&family).unwrap();
    let mut add = sample_edit().versions[0].1.clone();
    add.removed.clear();
    add.vlogs_removed.clear();
    let add = ManifestEdit { versions: vec![(FamilyId(1), add)], ..ManifestEdit::default() };
    c.apply(&add).unwrap();
    let before = c.clone();
    assert!(c.apply(&add).is_err(), "the same table twice");
    assert!(
        c.apply(&ManifestEdit { dropped: vec![FamilyId(9)], ..ManifestEdit::default() }).is_err()
    );
    assert!(
        c.apply(&ManifestEdit { logs_removed: vec![FileId(3)], ..ManifestEdit::default() })
            .is_err()
    );
    assert_eq!(c, before, "a rejected edit changes nothing");
    let mut again = CatalogState::default();
    again.apply(&c.to_edit()).unwrap();
    assert_eq!(again, c);
}

#[test]
fn preallocated_segment_gets_first_lsn_later() {
    let logs = |added: &[(u64, u64)], removed: &[u64]| ManifestEdit {
        logs_added: added.iter().map(|(id, lsn)| (FileId(*id), SeqNo(*lsn))).collect(),
        logs_removed: removed.iter().map(|id| FileId(*id)).collect(),
        ..ManifestEdit::default()
    };
    let mut c = CatalogState::default();
    assert!(c.apply(&logs(&[(2, 0)], &[])).is_err(), "the start of the log would be unknown");
    c.apply(&logs(&[(2, 1)], &[])).unwrap();
    c.apply(&logs(&[(3, 0)], &[])).unwrap();
    c.apply(&logs(&[(4, 0)], &[])).unwrap();
    let mut closed = c.clone();
    closed.apply(&logs(&[], &[4])).unwrap();
    assert_eq!(
        closed.logs,
        [(FileId(2), SeqNo(1)), (FileId(3), SeqNo(0))],
        "the last was never used"
    );
    assert!(c.clone().apply(&logs(&[], &[3])).is_err(), "it is neither the first nor the last");
    assert!(
        c.clone().apply(&logs(&[], &[2])).is_err(),
        "the first LSN of the first segment must be known"
    );
    assert!(c.clone().apply(&logs(&[(5, 40)], &[])).is_err(), "out of order");
    assert!(c.clone().apply(&logs(&[(4, 40)], &[])).is_err(), "out of order");
    let known = c.missing_log_starts(&[(FileId(2), SeqNo(1)), (FileId(3), SeqNo(20))]);
    c.apply(&ManifestEdit { logs_added: known, ..logs(&[], &[2]) }).unwrap();
    assert_eq!(c.logs, [(FileId(3), SeqNo(20)), (FileId(4), SeqNo(0))]);
    let mut both = c.clone();
    both.apply(&logs(&[(5, 0)], &[])).unwrap();
    both.apply(&logs(&[(5, 60)], &[3, 4])).unwrap();
    assert_eq!(
        both.logs,
        [(FileId(5), SeqNo(60))],
        "the first LSN of a removed segment is not needed"
    );
    assert!(
        c.clone().apply(&logs(&[(4, 30), (3, 20)], &[3])).is_err(),
        "a segment is not added and removed by the same edit"
    );
    assert!(c.clone().apply(&logs(&[(4, 19)], &[])).is_err(), "it starts before its predecessor");
    let mut again = CatalogState::default();
    again.apply(&c.to_edit()).unwrap();
    assert_eq!(again.logs, c.logs);
}

#[test]
fn retained_log_has_no_gap_and_bounds_events() {
    let mut c = CatalogState::default();
    c.apply(&ManifestEdit {
        logs_added: vec![(FileId(4), SeqNo(13))],
        events: events(),
        ..ManifestEdit::default()
    })
    .unwrap();
    assert!(c.events.is_empty(), "the log starts after them");
    let kept = ManifestEdit {
        logs_retained: vec![span(2, 1, 5), span(3, 5, 13)],
        ..ManifestEdit::default()
    };
    c.apply(&kept).unwrap();
    c.apply(&ManifestEdit { events: events(), ..ManifestEdit::default() }).unwrap();
    assert_eq!((c.oldest_position(), c.events.len()), (SeqNo(0), 6));
    let many = ManifestEdit {
        events: vec![events()[3].clone(); limits::FAMILY_EVENTS_MAX - 3],
        ..ManifestEdit::default()
    };
    let mut full = c.clone();
    full.apply(&many).unwrap();
    assert_eq!(full.oldest_position(), SeqNo(7), "the oldest three are discarded");
    assert_eq!(full.events.iter().filter(|e| e.seq <= SeqNo(7)).count(), 0);
    let rejected = |e: ManifestEdit| assert!(c.clone().apply(&e).is_err(), "{e:?}");
    rejected(ManifestEdit { logs_retained: vec![span(5, 14, 15)], ..ManifestEdit::default() });
    rejected(ManifestEdit { logs_retained: vec![span(5, 13, 13)], ..ManifestEdit::default() });
    rejected(ManifestEdit { retained_removed: vec![FileId(9)], ..ManifestEdit::default() });
    rejected(ManifestEdit { snapshots_dropped: vec!["none".into()], ..ManifestEdit::default() });
    let named = ManifestEdit {
        snapshots: vec![("a".into(), SeqNo(3))],
        oldest_readable: Some(SeqNo(2)),
        ..ManifestEdit::default()
    };
    c.apply(&named).unwrap();
    assert!(c.clone().apply(&named).is_err(), "the name already exists");
    c.apply(&ManifestEdit { oldest_readable: Some(SeqNo(1)), ..ManifestEdit::default() }).unwrap();
    assert_eq!(c.oldest_readable, SeqNo(2), "it never decreases");
    let mut again = CatalogState::default();
    again.apply(&c.to_edit()).unwrap();
    assert_eq!(again, c);
    c.apply(&ManifestEdit {
        retained_removed: vec![FileId(2), FileId(3)],
        ..ManifestEdit::default()
    })
    .unwrap();
    assert_eq!(c.events, [], "they end before the log starts");
}

#[test]
fn format_page_example_matches_encoding() {
    let edit = ManifestEdit {
        next_ids: Some(next_ids(10, 2, 5)),
        families: vec![(FamilyId(1), "tides".into(), FamilySettings::default())],
        versions: vec![(
            FamilyId(1),
            VersionEdit { flushed_up_to: Some(SeqNo(12)), ..VersionEdit::default() },
        )],
        logs_added: vec![(FileId(9), SeqNo(13))],
        durable_seq: Some(SeqNo(12)),
        ..ManifestEdit::default()
    };
    let hex = |edit: &ManifestEdit| {
        encode_edit(edit).iter().map(|b| format!("{b:02x}")).collect::<String>()
    };
    let page = include_str!("../../../../../docs/format/manifest.md");
    let block = |n| page.split("```hex").nth(n).unwrap().split("```").next().unwrap();
    let flat = |n| -> String {
        let bytes = block(n).lines().map(|l| l.split(';').next().unwrap());
        bytes.collect::<String>().split_whitespace().collect()
    };
    assert_eq!(flat(1), hex(&edit));
    let event = |at, what| FamilyEvent { seq: SeqNo(at), family: FamilyId(1), kind: what };
    let history = ManifestEdit {
        logs_removed: vec![FileId(9)],
        logs_retained: vec![LogSpan {
            id: FileId(9),
            first_lsn: SeqNo(13),
            end_lsn: SeqNo(40),
            bytes: 4096,
        }],
        events: vec![
            event(38, FamilyEventKind::Renamed { from: "tides".into(), to: "ebb".into() }),
            event(39, FamilyEventKind::Cleared),
        ],
        contents_start: vec![(FamilyId(1), SeqNo(39))],
        oldest_readable: Some(SeqNo(30)),
        snapshots: vec![("eve".into(), SeqNo(35))],
        snapshots_dropped: vec!["old".into()],
        ..ManifestEdit::default()
    };
    assert_eq!(flat(2), hex(&history));
    let prepare = ManifestEdit { prepared: vec![prepared()], ..ManifestEdit::default() };
    assert_eq!(flat(3), hex(&prepare));
    let decide = ManifestEdit { decided: vec![prepared().gid.clone()], ..ManifestEdit::default() };
    assert_eq!(flat(4), hex(&decide));
}

#[test]
fn prepared_tables_are_in_the_catalog_until_the_decision() {
    let edit = |id| ManifestEdit {
        families: vec![(FamilyId(id), format!("f{id}"), FamilySettings::default())],
        ..ManifestEdit::default()
    };
    let prepare = ManifestEdit { prepared: vec![prepared()], ..ManifestEdit::default() };
    let decide = ManifestEdit { decided: vec![prepared().gid.clone()], ..ManifestEdit::default() };
    let mut c = CatalogState::default();
    assert!(c.apply(&prepare).is_err(), "there is no such column family");
    c.apply(&edit(0)).unwrap();
    assert!(c.apply(&decide).is_err(), "it is not prepared");
    c.apply(&prepare).unwrap();
    assert!(c.clone().apply(&prepare).is_err(), "it is prepared already");
    let drop_family = ManifestEdit { dropped: vec![FamilyId(0)], ..ManifestEdit::default() };
    assert!(c.clone().apply(&drop_family).is_err(), "it would lose its column family");
    assert_eq!(c.data_files().into_iter().collect::<Vec<_>>(), [FileId(9), FileId(10)]);
    let mut again = CatalogState::default();
    again.apply(&c.to_edit()).unwrap();
    assert_eq!(again, c);
    // A commit moves the files to the column family; a rollback forgets them.
    let files = &prepared().files[0];
    let added = AddedTable { level: LevelNo(0), run: RunId(1), meta: files.tables[0].clone() };
    let version = VersionEdit {
        added: vec![added],
        vlogs_added: files.vlogs.clone(),
        ..VersionEdit::default()
    };
    let mut committed = c.clone();
    let versions = vec![(FamilyId(0), version)];
    committed.apply(&ManifestEdit { versions, ..decide.clone() }).unwrap();
    assert_eq!(committed.data_files(), c.data_files());
    assert!(committed.prepared.is_empty() && committed.families[&FamilyId(0)].tables.len() == 1);
    assert!(committed.apply(&prepare).is_err(), "its files belong to a column family");
    c.apply(&decide).unwrap();
    assert!(c.data_files().is_empty() && c.prepared.is_empty());
}
