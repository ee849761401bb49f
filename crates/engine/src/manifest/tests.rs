//! Edits survive the round trip; damaged and foreign ones are refused; the catalog refuses what does not fit.

use super::*;
use crate::settings::FamilySettings;
use crate::wal::LogSpan;
use perigee_base::cut::Cut;
use perigee_base::{FamilyId, FileId, LevelNo, RunId, SeqNo, limits};
use perigee_file::{KlogSummary, RangeSummary};
use perigee_tree::version::AddedTable;
use perigee_tree::{TableMeta, VersionEdit, VlogMeta};

fn span(id: u64, first: u64, end: u64) -> LogSpan {
    LogSpan { id: FileId(id), first, end, bytes: 500 }
}

fn events() -> Vec<FamilyEvent> {
    let name = || "tides".to_string();
    let all = [
        Befell::Created { name: name() },
        Befell::Dropped { name: name() },
        Befell::Renamed { from: name(), to: "ebb".into() },
        Befell::Cleared,
        Befell::Cloned { name: name(), source: FamilyId(1) },
        Befell::Loaded,
    ];
    let event = |(i, what)| FamilyEvent { at: SeqNo(5 + i as u64), family: FamilyId(1), what };
    all.into_iter().enumerate().map(event).collect()
}

fn sample() -> Edit {
    let summary = KlogSummary {
        bytes: 1000,
        checksum: 0xdead_beef_0000_0001,
        entries: 10,
        tombstones: 1,
        smallest: SeqNo(3),
        largest: SeqNo(12),
        first_key: b"a".to_vec(),
        last_key: b"z\0".to_vec(),
        raw_key_bytes: 30,
        raw_value_bytes: 900,
        vlogs: vec![(FileId(8), 77)],
        ranges: Some(RangeSummary { count: 3, begin: Cut::First, end: Cut::After(b"zz".to_vec()) }),
    };
    let table = AddedTable {
        level: LevelNo(1),
        run: RunId(4),
        meta: TableMeta { id: FileId(7), summary, stamp: Some(perigee_base::SeqNo(40)) },
    };
    let version = VersionEdit {
        added: vec![table],
        removed: vec![(LevelNo(0), FileId(5))],
        vlogs_added: vec![VlogMeta { id: FileId(8), bytes: 99, checksum: 5 }],
        vlogs_removed: vec![FileId(6)],
        flushed: Some(SeqNo(12)),
    };
    Edit {
        snapshot: true,
        next: Some((9, 2, 5)),
        families: vec![(FamilyId(1), "tides".into(), FamilySettings::default())],
        filters: vec![(FamilyId(1), "f".into())],
        dropped: vec![FamilyId(3)],
        versions: vec![(FamilyId(1), version)],
        logs_added: vec![(FileId(9), 13)],
        logs_removed: vec![FileId(2)],
        logs_retained: vec![span(2, 1, 5), span(3, 5, 13)],
        retained_removed: vec![FileId(1)],
        events: events(),
        events_forgotten: Some(SeqNo(4)),
        begun: vec![(FamilyId(1), SeqNo(9))],
        floor: Some(SeqNo(11)),
        snapshots: vec![("before the tide".into(), SeqNo(10))],
        snapshots_dropped: vec!["old".into()],
        durable: Some(12),
        clock: Some(1_800_000_000_000),
        clean: Some(CleanClose { log: FileId(9), bytes: 72, last: 12 }),
    }
}

#[test]
fn edits_round_trip() {
    let e = sample();
    assert_eq!(decode(&encode(&e)).unwrap(), e);
    assert_eq!(decode(&[]).unwrap(), Edit::default());
}

#[test]
fn damaged_edits_give_errors_not_panics() {
    let good = encode(&sample());
    for i in 0..good.len() {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[i] ^= 1 << bit;
            let _ = decode(&bad);
        }
        let _ = decode(&good[..i]);
    }
}

#[test]
fn unknown_fields_are_skipped_or_refused_by_parity() {
    assert_eq!(decode(&[100, 1, 0]).unwrap(), Edit::default());
    assert_eq!(decode(&[101, 1, 0]).unwrap_err().kind(), perigee_base::ErrorKind::FormatTooNew);
}

#[test]
fn the_catalog_refuses_what_does_not_fit_and_a_snapshot_says_it_all() {
    let mut c = Catalog::default();
    let family = Edit {
        families: vec![(FamilyId(1), "f".into(), FamilySettings::default())],
        logs_added: vec![(FileId(2), 1)],
        ..Edit::default()
    };
    c.apply(&family).unwrap();
    let mut add = sample().versions[0].1.clone();
    add.removed.clear();
    add.vlogs_removed.clear();
    let add = Edit { versions: vec![(FamilyId(1), add)], ..Edit::default() };
    c.apply(&add).unwrap();
    let before = c.clone();
    assert!(c.apply(&add).is_err(), "the same table twice");
    assert!(c.apply(&Edit { dropped: vec![FamilyId(9)], ..Edit::default() }).is_err());
    assert!(c.apply(&Edit { logs_removed: vec![FileId(3)], ..Edit::default() }).is_err());
    assert_eq!(c, before, "a refused edit changes nothing");
    let mut again = Catalog::default();
    again.apply(&c.snapshot()).unwrap();
    assert_eq!(again, c);
}

#[test]
fn segments_made_ahead_learn_later_where_they_begin() {
    let logs = |added: &[(u64, u64)], removed: &[u64]| Edit {
        logs_added: added.iter().map(|(id, lsn)| (FileId(*id), *lsn)).collect(),
        logs_removed: removed.iter().map(|id| FileId(*id)).collect(),
        ..Edit::default()
    };
    let mut c = Catalog::default();
    assert!(c.apply(&logs(&[(2, 0)], &[])).is_err(), "nobody would know where the log begins");
    c.apply(&logs(&[(2, 1)], &[])).unwrap();
    c.apply(&logs(&[(3, 0)], &[])).unwrap();
    c.apply(&logs(&[(4, 0)], &[])).unwrap();
    let mut closed = c.clone();
    closed.apply(&logs(&[], &[4])).unwrap();
    assert_eq!(closed.logs, [(FileId(2), 1), (FileId(3), 0)], "the last was never used");
    assert!(c.clone().apply(&logs(&[], &[3])).is_err(), "it is neither the first nor the last");
    assert!(c.clone().apply(&logs(&[], &[2])).is_err(), "the first must be known");
    assert!(c.clone().apply(&logs(&[(5, 40)], &[])).is_err(), "in order");
    assert!(c.clone().apply(&logs(&[(4, 40)], &[])).is_err(), "in order");
    let known = c.logs_begun(&[(FileId(2), 1), (FileId(3), 20)]);
    c.apply(&Edit { logs_added: known, ..logs(&[], &[2]) }).unwrap();
    assert_eq!(c.logs, [(FileId(3), 20), (FileId(4), 0)]);
    let mut both = c.clone();
    both.apply(&logs(&[(5, 0)], &[])).unwrap();
    both.apply(&logs(&[(5, 60)], &[3, 4])).unwrap();
    assert_eq!(both.logs, [(FileId(5), 60)], "of one that goes nobody has to know where it began");
    assert!(c.clone().apply(&logs(&[(4, 30), (3, 20)], &[3])).is_err(), "one that goes does not come");
    assert!(c.clone().apply(&logs(&[(4, 19)], &[])).is_err(), "it begins before its predecessor");
    let mut again = Catalog::default();
    again.apply(&c.snapshot()).unwrap();
    assert_eq!(again.logs, c.logs);
}

#[test]
fn what_is_kept_for_readers_has_no_gap_and_events_go_with_the_log() {
    let mut c = Catalog::default();
    c.apply(&Edit { logs_added: vec![(FileId(4), 13)], events: events(), ..Edit::default() }).unwrap();
    assert!(c.events.is_empty(), "the log begins behind them");
    let kept = Edit { logs_retained: vec![span(2, 1, 5), span(3, 5, 13)], ..Edit::default() };
    c.apply(&kept).unwrap();
    c.apply(&Edit { events: events(), ..Edit::default() }).unwrap();
    assert_eq!((c.oldest_position(), c.events.len()), (SeqNo(0), 6));
    let many = Edit { events: vec![events()[3].clone(); limits::FAMILY_EVENTS_MAX - 3], ..Edit::default() };
    let mut full = c.clone();
    full.apply(&many).unwrap();
    assert_eq!(full.oldest_position(), SeqNo(7), "the oldest three are forgotten");
    assert_eq!(full.events.iter().filter(|e| e.at <= SeqNo(7)).count(), 0);
    let refused = |e: Edit| assert!(c.clone().apply(&e).is_err(), "{e:?}");
    refused(Edit { logs_retained: vec![span(5, 14, 15)], ..Edit::default() });
    refused(Edit { logs_retained: vec![span(5, 13, 13)], ..Edit::default() });
    refused(Edit { retained_removed: vec![FileId(9)], ..Edit::default() });
    refused(Edit { snapshots_dropped: vec!["none".into()], ..Edit::default() });
    let named = Edit { snapshots: vec![("a".into(), SeqNo(3))], floor: Some(SeqNo(2)), ..Edit::default() };
    c.apply(&named).unwrap();
    assert!(c.clone().apply(&named).is_err(), "the name is taken");
    c.apply(&Edit { floor: Some(SeqNo(1)), ..Edit::default() }).unwrap();
    assert_eq!(c.floor, SeqNo(2), "it never goes back");
    let mut again = Catalog::default();
    again.apply(&c.snapshot()).unwrap();
    assert_eq!(again, c);
    c.apply(&Edit { retained_removed: vec![FileId(2), FileId(3)], ..Edit::default() }).unwrap();
    assert_eq!(c.events, [], "they end before the log begins");
}

#[test]
fn the_worked_example_of_the_format_page() {
    let edit = Edit {
        next: Some((10, 2, 5)),
        families: vec![(FamilyId(1), "tides".into(), FamilySettings::default())],
        versions: vec![(FamilyId(1), VersionEdit { flushed: Some(SeqNo(12)), ..VersionEdit::default() })],
        logs_added: vec![(FileId(9), 13)],
        durable: Some(12),
        ..Edit::default()
    };
    let hex = |edit: &Edit| encode(edit).iter().map(|b| format!("{b:02x}")).collect::<String>();
    let page = include_str!("../../../../docs/format/manifest.md");
    let block = |n| page.split("```hex").nth(n).unwrap().split("```").next().unwrap();
    let flat = |n| -> String {
        let bytes = block(n).lines().map(|l| l.split(';').next().unwrap());
        bytes.collect::<String>().split_whitespace().collect()
    };
    assert_eq!(flat(1), hex(&edit));
    let event = |at, what| FamilyEvent { at: SeqNo(at), family: FamilyId(1), what };
    let history = Edit {
        logs_removed: vec![FileId(9)],
        logs_retained: vec![LogSpan { id: FileId(9), first: 13, end: 40, bytes: 4096 }],
        events: vec![
            event(38, Befell::Renamed { from: "tides".into(), to: "ebb".into() }),
            event(39, Befell::Cleared),
        ],
        begun: vec![(FamilyId(1), SeqNo(39))],
        floor: Some(SeqNo(30)),
        snapshots: vec![("eve".into(), SeqNo(35))],
        snapshots_dropped: vec!["old".into()],
        ..Edit::default()
    };
    assert_eq!(flat(2), hex(&history));
}
