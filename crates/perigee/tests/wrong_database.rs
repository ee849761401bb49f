//! Every public call that takes a column family (batch, load) refuses one of another open database:
//! ids of column families are meaningless elsewhere.
//!
//! Regression test: `snapshot.get_with_ttl(&family_of_another_database, key)` returned the other
//! database's value, while the calls beside it refused. One table now lists every call, and a scan
//! of the sources fails when a new one is missing in it.
#![allow(clippy::unwrap_used)]

use crate::sources::rust_files;
use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::load::TableWriter;
use perigee::{
    Db, Error, ErrorKind, Family, FamilyOptions, LockMode, MergeRule, Options, Snapshot, Txn,
    TxnOptions, WriteBatch,
};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// Two open databases, and the objects of the first that the calls need.
struct TwoDatabases {
    here: Db,
    ours: Family,
    there: Db,
    foreign: Family,
    snapshot: Snapshot,
    foreign_snapshot: Snapshot,
    txn: Txn,
}

fn family_options() -> FamilyOptions {
    FamilyOptions::new().merge_operator(MergeRule::Append(",".into()))
}

/// Opens two databases. With `twins` the second database is a checkpoint of the first, so that both
/// have the same database id.
fn open_two_databases(twins: bool) -> TwoDatabases {
    let env = Env { fs: SimDisk::new(1), ..Env::real() };
    let options = Options::in_env(env.clone()).default_family(family_options());
    let here = Db::open("/here", options.clone()).unwrap();
    here.default_family().put("a", "ours").unwrap();
    if twins {
        here.backups().checkpoint("/there").unwrap();
    }
    let there = Db::open("/there", options).unwrap();
    let foreign = there.create_family("theirs", family_options()).unwrap();
    let ours = here.create_family("ours", family_options()).unwrap();
    assert_eq!(
        foreign.id(),
        ours.id(),
        "the ids are equal: only the check distinguishes the databases"
    );
    for (family, value) in [(&ours, "ours"), (&foreign, "theirs")] {
        family.put("a", value).unwrap();
        family.put_with_ttl("t", value, HOUR).unwrap();
    }
    let mut table = TableWriter::create_in(env, "/table", family_options()).unwrap();
    table.put("x", "ingested").unwrap();
    table.finish().unwrap();
    let (snapshot, txn) = (here.snapshot().unwrap(), here.begin(TxnOptions::new()).unwrap());
    let foreign_snapshot = there.snapshot().unwrap();
    TwoDatabases { here, ours, there, foreign, snapshot, foreign_snapshot, txn }
}

type Call = fn(&TwoDatabases) -> Option<Error>;

/// Every public call that takes an object of a database, called with an object of another database.
const CALLS: &[(&str, Call)] = &[
    ("WriteBatch::put", |w| batch(w).put(&w.foreign, "a", "1").err()),
    ("WriteBatch::delete", |w| batch(w).delete(&w.foreign, "a").err()),
    ("WriteBatch::single_delete", |w| batch(w).single_delete(&w.foreign, "a").err()),
    ("WriteBatch::delete_range", |w| batch(w).delete_range(&w.foreign, "a".."b").err()),
    ("WriteBatch::delete_prefix", |w| batch(w).delete_prefix(&w.foreign, "a").err()),
    ("WriteBatch::merge", |w| batch(w).merge(&w.foreign, "a", "1").err()),
    ("WriteBatch::put_with_ttl", |w| batch(w).put_with_ttl(&w.foreign, "a", "1", HOUR).err()),
    ("WriteBatch::put_until", |w| batch(w).put_until(&w.foreign, "a", "1", u64::MAX).err()),
    ("Db::write", |w| w.here.write(foreign_batch(w)).err()),
    ("Db::write_with", |w| w.here.write_with(foreign_batch(w), Default::default()).err()),
    ("BulkLoad::finish_all", |w| {
        let mut load = w.foreign.bulk_load().unwrap();
        load.put("a", "1").unwrap();
        perigee::load::BulkLoad::finish_all(&mut [w.ours.bulk_load().unwrap(), load]).err()
    }),
    ("Admin::ingest_many", |w| {
        w.here
            .admin()
            .ingest_many(&[
                (w.ours.clone(), vec![]),
                (w.foreign.clone(), vec![PathBuf::from("/table")]),
            ])
            .err()
    }),
    ("Snapshot::family", |w| w.snapshot.family(&w.foreign).first().err()),
    ("Snapshot::get", |w| w.snapshot.get(&w.foreign, "a").err()),
    ("Snapshot::reader", |w| w.snapshot.reader(&w.foreign, "a").err()),
    ("Snapshot::get_pinned", |w| w.snapshot.get_pinned(&w.foreign, "a").err()),
    ("Snapshot::get_with_ttl", |w| w.snapshot.get_with_ttl(&w.foreign, "t").err()),
    ("Snapshot::get_into", |w| w.snapshot.get_into(&w.foreign, "a", &mut [0; 8]).err()),
    ("Snapshot::get_into_vec", |w| w.snapshot.get_into_vec(&w.foreign, "a", &mut Vec::new()).err()),
    ("Snapshot::multi_get", |w| w.snapshot.multi_get(&w.foreign, ["a"]).remove(0).err()),
    ("Snapshot::contains", |w| w.snapshot.contains(&w.foreign, "a").err()),
    ("Snapshot::iter", |w| w.snapshot.iter(&w.foreign).err()),
    ("Snapshot::range", |w| w.snapshot.range(&w.foreign, "a".."b").err()),
    ("Snapshot::prefix", |w| w.snapshot.prefix(&w.foreign, "a").err()),
    ("Snapshot::cursor", |w| w.snapshot.cursor(&w.foreign).err()),
    ("Snapshot::cursor_within", |w| w.snapshot.cursor_within(&w.foreign, "a".."b").err()),
    ("Txn::family", |w| w.txn.family(&w.foreign).first().err()),
    ("Txn::family_at", |w| w.txn.family_at(&w.foreign, &w.snapshot).first().err()),
    ("Txn::family_at (snapshot)", |w| w.txn.family_at(&w.ours, &w.foreign_snapshot).cursor().err()),
    ("Txn::get", |w| w.txn.get(&w.foreign, "a").err()),
    ("Txn::get_pinned", |w| w.txn.get_pinned(&w.foreign, "a").err()),
    ("Txn::get_untracked", |w| w.txn.get_untracked(&w.foreign, "a").err()),
    ("Txn::contains", |w| w.txn.contains(&w.foreign, "a").err()),
    ("Txn::contains_untracked", |w| w.txn.contains_untracked(&w.foreign, "a").err()),
    ("Txn::multi_get", |w| w.txn.multi_get(&w.foreign, ["a"]).remove(0).err()),
    ("Txn::iter", |w| w.txn.iter(&w.foreign).err()),
    ("Txn::range", |w| w.txn.range(&w.foreign, "a".."b").err()),
    ("Txn::prefix", |w| w.txn.prefix(&w.foreign, "a").err()),
    ("Txn::cursor", |w| w.txn.cursor(&w.foreign).err()),
    ("Txn::cursor_within", |w| w.txn.cursor_within(&w.foreign, "a".."b").err()),
    ("Txn::get_for_update", |w| w.txn.get_for_update(&w.foreign, "a", LockMode::Shared).err()),
    ("Txn::lock", |w| w.txn.lock(&w.foreign, "a", LockMode::Shared).err()),
    ("Txn::lock_range", |w| w.txn.lock_range(&w.foreign, "a".."b", LockMode::Gap).err()),
    ("Txn::unlock", |w| w.txn.unlock(&w.foreign, "a").err()),
    ("Txn::put", |w| w.txn.put(&w.foreign, "a", "2").err()),
    ("Txn::reader", |w| w.txn.reader(&w.foreign, "a").err()),
    ("Txn::writer", |w| w.txn.writer(&w.foreign, "a").err()),
    ("Txn::put_stream", |w| w.txn.put_stream(&w.foreign, "a", &mut &b"2"[..]).err()),
    ("ValueWriter::finish_in", |w| w.foreign.writer("a").and_then(|v| v.finish_in(&w.txn)).err()),
    ("Txn::put_with_ttl", |w| w.txn.put_with_ttl(&w.foreign, "a", "2", HOUR).err()),
    ("Txn::put_until", |w| w.txn.put_until(&w.foreign, "a", "2", u64::MAX).err()),
    ("Txn::delete", |w| w.txn.delete(&w.foreign, "a").err()),
    ("Txn::single_delete", |w| w.txn.single_delete(&w.foreign, "a").err()),
    ("Txn::delete_range", |w| w.txn.delete_range(&w.foreign, "a".."b").err()),
    ("Txn::delete_prefix", |w| w.txn.delete_prefix(&w.foreign, "a").err()),
    ("Txn::merge", |w| w.txn.merge(&w.foreign, "a", "2").err()),
];

/// Takes only what it was given by the call itself.
const EXEMPT_CALLS: &[&str] = &["Db::write_txn"];

/// A batch with an operation on a column family of the first database.
fn batch(w: &TwoDatabases) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(&w.ours, "b", "1").unwrap();
    batch
}

fn foreign_batch(w: &TwoDatabases) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(&w.foreign, "a", "1").unwrap();
    batch
}

/// Everything that both databases contain.
fn contents(w: &TwoDatabases) -> Vec<String> {
    let mut all = Vec::new();
    for db in [&w.here, &w.there] {
        all.push(format!("{} {:?}", db.history().latest_seq(), db.families()));
        for name in db.families() {
            for entry in db.family(&name).unwrap().iter().unwrap() {
                let (key, value) = entry.unwrap();
                all.push(format!("{name} {} {}", key.escape_ascii(), value.escape_ascii()));
            }
        }
    }
    all
}

fn assert_every_call_refuses(w: &TwoDatabases) {
    let before = contents(w);
    let mut wrong = Vec::new();
    for (name, call) in CALLS {
        match call(w) {
            Some(e)
                if e.kind() == ErrorKind::InvalidArgument
                    && e.to_string().contains("another open database") => {}
            Some(e) => wrong.push(format!("{name} failed with {e}")),
            None => wrong.push(format!("{name} took it")),
        }
        if contents(w) != before {
            panic!("{name} changed a database: {:#?}", contents(w));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(w.txn.len(), 0);
    w.txn.put(&w.ours, "c", "3").unwrap();
    w.txn.commit_in_place(None).unwrap();
    assert_eq!(w.ours.get("c").unwrap().unwrap(), b"3");
}

#[test]
fn every_call_refuses_a_family_of_another_database() {
    assert_every_call_refuses(&open_two_databases(false));
}

#[test]
fn every_call_refuses_a_family_of_a_checkpoint() {
    assert_every_call_refuses(&open_two_databases(true));
}

#[test]
fn cleared_batch_can_be_used_with_another_database() {
    let w = open_two_databases(false);
    let mut batch = foreign_batch(&w);
    w.there.write(batch.clone()).unwrap();
    batch.clear();
    w.here.write(batch.clone()).unwrap();
    batch.put(&w.ours, "b", "1").unwrap();
    w.here.write(batch).unwrap();
    let mut refused = WriteBatch::new();
    let too_long = vec![0; perigee::limits::KEY_BYTES_MAX + 1];
    refused.put(&w.foreign, too_long, "1").unwrap_err();
    refused.put(&w.ours, "d", "1").unwrap();
    w.here.write(refused).unwrap();
}

/// Returns the parameter list of the function whose name `text` begins with.
fn parameters(text: &str) -> &str {
    let begin = text.find("(").unwrap();
    // Generics may contain parentheses, but here those of `impl FnMut(...)` never precede the
    // parameters.
    let mut depth = 0;
    for (i, c) in text[begin..].char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[begin..begin + i];
        }
    }
    panic!("no closing parenthesis: {text}")
}

fn mentions_type(text: &str, types: &[&str]) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| types.contains(&word))
}

#[test]
fn call_table_covers_public_api() {
    let types = [
        "Family",
        "WriteBatch",
        "BulkLoad",
        "Snapshot",
        "Txn",
        "PreparedTxnInfo",
        "ChangeFeed",
        "Cursor",
        "Iter",
    ];
    let mut found = BTreeSet::new();
    let src = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src");
    for file in rust_files(&src) {
        let text = std::fs::read_to_string(file).unwrap();
        let code: Vec<&str> = text.lines().filter(|l| !l.trim_start().starts_with("//")).collect();
        let mut inside = "";
        for (i, line) in code.iter().enumerate() {
            if let Some(rest) = line.strip_prefix("impl ") {
                let of = rest.split(" for ").last().unwrap();
                inside = of.split([' ', '<', '{']).next().unwrap();
            }
            if let Some(rest) = line.trim_start().strip_prefix("pub fn ") {
                let name = rest.split(['(', '<']).next().unwrap();
                if mentions_type(parameters(&code[i..].join("\n")), &types) {
                    let inside = if line.starts_with(' ') { inside } else { "" };
                    found.insert(format!("{inside}::{name}"));
                }
            }
        }
    }
    let listed: BTreeSet<&str> = CALLS.iter().map(|(name, _)| *name).collect();
    assert_eq!(listed.len(), CALLS.len(), "a call is listed twice");
    // A call with several such parameters is listed once for each, as `call (parameter)`.
    let call_of = |name: &&str| name.split(' ').next().unwrap().to_string();
    let mut known: BTreeSet<String> = listed.iter().map(call_of).collect();
    known.extend(EXEMPT_CALLS.iter().map(|name| (*name).to_string()));
    let missing: Vec<_> = found.difference(&known).collect();
    assert!(missing.is_empty(), "not in the table of this test: {missing:?}");
    let gone: Vec<_> = known.difference(&found).collect();
    assert!(gone.is_empty(), "in the table, but not in the sources: {gone:?}");
    assert!(found.len() > 40);
}
