//! Lines that a Rust user would write without looking them up: comparisons, conversions, generic
//! code, `?` into other error types. Most of these tests are about what compiles.
#![allow(clippy::unwrap_used)]
// The bytes that a `Slice` shows never change.
#![allow(clippy::mutable_key_type)]

use perigee::env::{Env, fs::memory::SimDisk, sim::SimWorld};
use perigee::{
    Cursor, Db, Error, ErrorKind, Family, FamilyOptions, Iter, Options, Result, Slice, Snapshot,
    Txn, TxnOptions, WriteBatch,
};
use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

fn open() -> Db {
    Db::open("/db", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() })).unwrap()
}

fn open_with_letters() -> Db {
    let db = open();
    db.write(('a'..='e').map(|c| (c.to_string(), c.to_string().to_uppercase())).collect()).unwrap();
    db
}

fn hash_of(value: &(impl std::hash::Hash + ?Sized)) -> u64 {
    use std::hash::BuildHasher;
    std::hash::BuildHasherDefault::<std::hash::DefaultHasher>::default().hash_one(value)
}

#[test]
fn handles_are_send_sync_and_static() {
    fn check<T: Send + Sync + 'static>() {}
    check::<Db>();
    check::<Family>();
    check::<Snapshot>();
    check::<Txn>();
    check::<Iter>();
    check::<Cursor>();
    check::<Slice>();
    check::<WriteBatch>();
    check::<Options>();
    check::<Error>();
}

#[test]
fn slices_compare_with_every_byte_type() {
    let db = open_with_letters();
    let slice = db.get_pinned("b").unwrap().unwrap();
    assert_eq!(slice, "B");
    assert_eq!(slice, *"B");
    assert_eq!(slice, b"B");
    assert_eq!(slice, *b"B");
    assert_eq!(slice, b"B"[..]);
    assert_eq!(slice, &b"B"[..]);
    assert_eq!(slice, vec![b'B']);
    assert_eq!(slice, "B".to_string());
    assert_eq!(slice, db.get_pinned("b").unwrap().unwrap());
    assert_eq!("B", slice);
    assert_eq!(b"B", slice);
    assert_eq!(b"B"[..], slice);
    assert_eq!(vec![b'B'], slice);
    assert!(slice != "b" && slice != [0u8; 3]);
    assert!(slice < "C" && slice < [0xff] && slice <= vec![b'B']);
    assert!(slice > b"A" && slice >= *b"B");
    assert!("C" > slice);
    assert!(slice < db.get_pinned("c").unwrap().unwrap());
    assert_eq!(db.get_pinned("b").unwrap().as_deref(), Some(&b"B"[..]));
    assert!(db.get_pinned("b").unwrap().is_some_and(|v| v == "B"));
}

#[test]
fn slices_are_keys_of_maps_and_sets() {
    let db = open_with_letters();
    let entries = || db.iter().unwrap();
    let sorted: BTreeMap<Slice, Slice> = entries().collect::<Result<_>>().unwrap();
    assert_eq!(sorted.get(&b"c"[..]).unwrap(), "C");
    let hashed: HashMap<Slice, Slice> = entries().collect::<Result<_>>().unwrap();
    assert_eq!(hashed.get(&b"c"[..]).unwrap(), "C");
    let keys: BTreeSet<Slice> = sorted.keys().cloned().collect();
    let same: HashSet<Slice> = hashed.into_keys().collect();
    assert!(keys.iter().all(|key| same.contains(&key[..])));
    assert_eq!(keys.range::<[u8], _>((Included(&b"b"[..]), Unbounded)).next().unwrap(), "b");
    for key in &keys {
        assert_eq!(hash_of(key), hash_of(Borrow::<[u8]>::borrow(key)));
        assert_eq!(key.cmp(keys.first().unwrap()), key[..].cmp(&b"a"[..]));
    }
}

#[test]
fn slices_convert_and_print_short() {
    let db = open_with_letters();
    let slice = db.get_pinned("a").unwrap().unwrap();
    assert_eq!(std::str::from_utf8(&slice), Ok("A"));
    assert_eq!(String::from_utf8(slice.clone().into()).unwrap(), "A");
    assert_eq!(Vec::from(slice.clone()), b"A");
    assert_eq!(format!("{slice:?}"), "\"A\"");
    db.put("long", [0; 10_000]).unwrap();
    let printed = format!("{:?}", db.get_pinned("long").unwrap().unwrap());
    assert!(printed.len() < 200 && printed.contains("10000 bytes"), "{printed}");
}

#[test]
fn ranges_have_the_forms_of_std() {
    let db = open_with_letters();
    let keys = |iter: Result<Iter>| -> Vec<String> {
        let key = |entry: Result<(Slice, Slice)>| String::from_utf8(entry.unwrap().0.into());
        iter.unwrap().map(|entry| key(entry).unwrap()).collect()
    };
    assert_eq!(keys(db.range("b".."d")), ["b", "c"]);
    assert_eq!(keys(db.range("b"..="d")), ["b", "c", "d"]);
    assert_eq!(keys(db.range("d"..)), ["d", "e"]);
    assert_eq!(keys(db.range(.."b")), ["a"]);
    assert_eq!(keys(db.range(..=[b'b'])), ["a", "b"]);
    assert_eq!(keys(db.range(vec![b'd']..)), ["d", "e"]);
    assert_eq!(keys(db.range::<&str>(..)), keys(db.iter()));
    assert_eq!(keys(db.range::<&str>((Excluded("c"), Unbounded))), ["d", "e"]);
    let from = db.get_pinned("c").unwrap().unwrap();
    assert_eq!(keys(db.range(from..)), ["a", "b", "c", "d", "e"], "\"C\" is before \"a\"");
    let mut last_first = keys(Ok(db.iter().unwrap()));
    last_first.reverse();
    let reversed: Vec<Slice> = db.iter().unwrap().rev().map(|entry| entry.unwrap().0).collect();
    assert_eq!(reversed, last_first);
}

#[test]
fn question_mark_converts_into_other_error_types() {
    fn into_io(db: &Db) -> io::Result<Option<Vec<u8>>> {
        Ok(db.get("a")?)
    }
    fn into_box(db: &Db) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let value = db.get("a")?.unwrap_or_default();
        let _number: u32 = std::str::from_utf8(&value)?.parse().unwrap_or(0);
        Err(Error::new(ErrorKind::Busy, "for the test"))?
    }
    let db = open_with_letters();
    assert_eq!(into_io(&db).unwrap().unwrap(), b"A");
    let e = into_box(&db).unwrap_err();
    assert_eq!(e.downcast_ref::<Error>().unwrap().kind(), ErrorKind::Busy);
    db.close().unwrap();
    let e = into_io(&db).unwrap_err();
    let inner = e.get_ref().and_then(|inner| inner.downcast_ref::<Error>()).unwrap();
    assert_eq!(inner.kind(), ErrorKind::Closed);
    assert_eq!(inner.kind().to_string(), "closed");
    assert_eq!(format!("{:>8}", inner.kind()), "  closed");
}

#[test]
#[cfg(unix)] // elsewhere no path fails by an error of the system for certain
fn system_error_is_the_source() {
    let e = Db::open("/dev/null/db", Options::new()).unwrap_err();
    let source = std::error::Error::source(&e).unwrap_or_else(|| panic!("{e}"));
    let source = source.downcast_ref::<io::Error>().unwrap();
    assert_eq!(source.raw_os_error(), e.os_error());
    assert!(e.os_error().is_some(), "{e}");
}

#[derive(Debug)]
enum AppError {
    Refused(u64),
    Db(Error),
}

impl From<Error> for AppError {
    fn from(e: Error) -> AppError {
        AppError::Db(e)
    }
}

#[test]
fn write_txn_returns_the_callers_error() {
    let db = open();
    let family = db.default_family();
    let runs = AtomicU32::new(0);
    let withdraw = |amount: u64| -> std::result::Result<u64, AppError> {
        let left = db.write_txn(TxnOptions::new(), |txn| {
            runs.fetch_add(1, Relaxed);
            let balance = txn.get(&family, "balance")?.map_or(10, |v| u64::from(v[0]));
            let left = balance.checked_sub(amount).ok_or(AppError::Refused(balance))?;
            txn.put(&family, "balance", [left as u8])?;
            Ok::<_, AppError>(left)
        })?;
        Ok(left)
    };
    assert_eq!(withdraw(7).unwrap(), 3);
    assert!(matches!(withdraw(7), Err(AppError::Refused(3))));
    assert_eq!(runs.load(Relaxed), 2, "the caller's own error ends the transaction");
    assert_eq!(db.get("balance").unwrap().unwrap(), [3]);
    db.close().unwrap();
    let closed = withdraw(1).unwrap_err();
    assert!(matches!(&closed, AppError::Db(e) if e.kind() == ErrorKind::Closed), "{closed:?}");

    let db = open();
    let read = db.write_txn(TxnOptions::new(), |_| -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, "input ended"))
    });
    assert_eq!(read.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn write_txn_retries_a_conflict_at_the_commit() {
    let db = open();
    let family = db.default_family();
    let mut runs = 0;
    let result: std::result::Result<u32, AppError> = db.write_txn(TxnOptions::new(), |txn| {
        runs += 1;
        if runs < 3 {
            family.put("k", "another writer")?;
        }
        txn.put(&family, "k", "ours")?;
        Ok(runs)
    });
    assert_eq!(result.unwrap(), 3);
    assert_eq!(db.get_pinned("k").unwrap().unwrap(), "ours");
}

#[test]
fn write_txn_gives_up_after_100_attempts() {
    // In simulated time: the pauses add up to two seconds.
    SimWorld::new(1).run(SimDisk::new(1), |env| {
        let db = Db::open("/db", Options::in_env(env)).unwrap();
        let family = db.default_family();
        let mut runs = 0;
        let result: std::result::Result<(), AppError> = db.write_txn(TxnOptions::new(), |txn| {
            runs += 1;
            family.put("k", "another writer")?;
            txn.put(&family, "k", "ours")?;
            Ok(())
        });
        let e = result.unwrap_err();
        assert!(matches!(&e, AppError::Db(e) if e.kind() == ErrorKind::Conflict), "{e:?}");
        assert_eq!(runs, 100);
        drop(family);
        db.close().unwrap();
    });
}

/// A conflict inside the closure leads to another attempt, whatever the closure makes of the error.
/// A conflict of a call that does not belong to the transaction does not.
#[test]
fn write_txn_retries_a_wrapped_conflict_of_its_transaction() {
    let db = open();
    let family = db.default_family();
    let mut runs = 0;
    let done: std::result::Result<u32, String> = db
        .write_txn(TxnOptions::new(), |txn| -> std::result::Result<u32, Hidden> {
            runs += 1;
            if runs < 3 {
                family.put("k", "another writer")?;
            }
            let read = txn.get_for_update(&family, "k", perigee::LockMode::Exclusive);
            read.map_err(|e| Hidden(format!("cannot read the seat: {e}")))?;
            Ok(runs)
        })
        .map_err(|e| e.0);
    assert_eq!(done, Ok(3));

    let prepared = db.begin(TxnOptions::new()).unwrap();
    prepared.put(&family, "held", "").unwrap();
    prepared.prepare("g").unwrap();
    let mut runs = 0;
    let done = db.write_txn(TxnOptions::new(), |_| -> Result<()> {
        runs += 1;
        family.put("held", "a write outside of the transaction")
    });
    assert_eq!((done.unwrap_err().kind(), runs), (ErrorKind::Conflict, 1));
    db.two_phase().rollback("g").unwrap();
}

struct Hidden(String);

impl From<Error> for Hidden {
    fn from(e: Error) -> Hidden {
        Hidden(e.to_string())
    }
}

#[test]
fn batches_extend_and_collect() {
    let db = open();
    let mut batch: WriteBatch = [("a", "1"), ("b", "2")].into_iter().collect();
    batch.extend(BTreeMap::from([(vec![b'c'], [b'3'])]));
    batch.put_default("d", "4").unwrap();
    batch.delete_default("a").unwrap();
    assert_eq!(batch.len(), 5);
    let other = db.create_family("other", FamilyOptions::new()).unwrap();
    batch.put(&other, "e", "5").unwrap();
    db.write(batch).unwrap();
    assert_eq!(db.iter().unwrap().count(), 3);
    assert_eq!(other.get_pinned("e").unwrap().unwrap(), "5");

    let elsewhere = Db::open("/db", Options::in_env(Env { fs: SimDisk::new(2), ..Env::real() }));
    let elsewhere = elsewhere.unwrap();
    let mut foreign = WriteBatch::from_iter([("x", "y")]);
    foreign.put(&other, "x", "y").unwrap();
    assert!(foreign.put(&elsewhere.default_family(), "x", "y").is_err());
    assert_eq!(elsewhere.write(foreign).unwrap_err().kind(), ErrorKind::InvalidArgument);
    elsewhere.write(WriteBatch::from_iter([("x", "y")])).unwrap();
    assert!(elsewhere.contains("x").unwrap(), "`default` has the same id in every database");
}

#[test]
fn batch_with_a_left_out_pair_is_refused() {
    let db = open();
    let long = vec![0; perigee::limits::KEY_BYTES_MAX + 1];
    let pairs = [(&b"a"[..], "1"), (&long, "2"), (b"c", "3")];
    let mut batch = WriteBatch::from_iter(pairs);
    assert_eq!(batch.len(), 1);
    assert_eq!(db.write(batch.clone()).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(db.iter().unwrap().count(), 0);
    batch.clear();
    batch.extend([("b", "2")]);
    db.write(batch).unwrap();
    assert_eq!(db.iter().unwrap().count(), 1);
}

#[test]
fn family_or_create_from_many_threads() {
    let db = open();
    let ids: HashSet<u32> = std::thread::scope(|scope| {
        let create = || db.family_or_create("f", FamilyOptions::new()).unwrap().id();
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(create)).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(ids.len(), 1);
    let refused = db.family_or_create("", FamilyOptions::new()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn compare_and_swap_compares_before_it_changes() {
    let db = open();
    let family = db.default_family();
    assert!(family.compare_and_swap("k", Some(b"old"), Some(b"new")).unwrap().is_err());
    assert_eq!(db.get("k").unwrap(), None);
    assert_eq!(family.compare_and_swap("k", None, Some(b"1")).unwrap(), Ok(()));
    let refused = family.compare_and_swap("k", None, Some(b"2")).unwrap().unwrap_err();
    assert_eq!(refused.current.as_ref().unwrap(), "1");
    assert!(refused.to_string().contains("\"1\""), "{refused}");
    assert_eq!(family.compare_and_swap("k", Some(b"1"), Some(b"")).unwrap(), Ok(()));
    assert!(family.compare_and_swap("k", None, None).unwrap().is_err(), "empty is not absent");
    let seq = db.history().latest_seq();
    assert_eq!(family.compare_and_swap("absent", None, None).unwrap(), Ok(()));
    assert_eq!(db.history().latest_seq(), seq, "nothing to write");
    assert_eq!(family.compare_and_swap("k", Some(b""), None).unwrap(), Ok(()));
    assert!(!db.contains("k").unwrap());
}

#[test]
fn updates_of_many_threads_are_not_lost() {
    let db = open_read_committed();
    let family = db.default_family();
    let number = |v: Option<&[u8]>| v.map_or(0, |v| u32::from_le_bytes(v.try_into().unwrap()));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (family, number) = (&family, &number);
            scope.spawn(move || {
                for _ in 0..100 {
                    if thread % 2 == 0 {
                        family.update("n", |old| Some((number(old) + 1).to_le_bytes())).unwrap();
                        continue;
                    }
                    let mut old = family.get_pinned("n").unwrap();
                    loop {
                        let new = (number(old.as_deref()) + 1).to_le_bytes();
                        match family.compare_and_swap("n", old.as_deref(), Some(&new)).unwrap() {
                            Ok(()) => break,
                            Err(refused) => old = refused.current,
                        }
                    }
                }
            });
        }
    });
    assert_eq!(number(db.get("n").unwrap().as_deref()), 400);
}

/// Opens a database whose default isolation level would lose updates.
fn open_read_committed() -> Db {
    let options = Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() });
    Db::open("/db", options.isolation(perigee::Isolation::ReadCommitted)).unwrap()
}

#[test]
fn each_key_is_taken_once() {
    let db = open_read_committed();
    let jobs = db.create_family("jobs", FamilyOptions::new()).unwrap();
    for i in 0..100u8 {
        jobs.put([i], [i]).unwrap();
    }
    let taken: Vec<u8> = std::thread::scope(|scope| {
        let take_all =
            || (0..100u8).filter_map(|i| jobs.take([i]).unwrap()).map(|v| v[0]).collect();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(take_all)).collect();
        let lists: Vec<Vec<u8>> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        lists.concat()
    });
    assert_eq!(taken.len(), 100);
    assert_eq!(taken.iter().collect::<HashSet<_>>().len(), 100);
    assert!(jobs.is_empty().unwrap());
}

/// Every kind of write that comes between the read and the commit makes the update run again.
#[test]
fn updates_are_atomic_against_every_kind_of_write() {
    let db = open_read_committed();
    let family = db
        .create_family("f", FamilyOptions::new().merge_operator(perigee::MergeRule::Counter))
        .unwrap();
    type Write = fn(&Db, &Family) -> Result<()>;
    let writes: &[(&str, Write)] = &[
        ("put", |_, f| f.put("k", 5u64.to_le_bytes())),
        ("put with a time to live", |_, f| {
            f.put_with_ttl("k", 5u64.to_le_bytes(), std::time::Duration::from_secs(3600))
        }),
        ("delete", |_, f| f.delete("k")),
        ("range delete", |_, f| f.delete_range("a".."z")),
        ("merge", |_, f| f.merge("k", 5u64.to_le_bytes())),
        ("batch", |db, f| {
            let mut batch = WriteBatch::new();
            batch.put(f, "k", 5u64.to_le_bytes())?;
            db.write(batch).map(drop)
        }),
        ("update", |_, f| f.update("k", |_| Some(5u64.to_le_bytes())).map(drop)),
    ];
    for (name, write) in writes {
        family.put("k", 1u64.to_le_bytes()).unwrap();
        let mut seen = Vec::new();
        family
            .update("k", |old| {
                if seen.is_empty() {
                    write(&db, &family).unwrap();
                }
                seen.push(old.map(<[u8]>::to_vec));
                Some(9u64.to_le_bytes())
            })
            .unwrap();
        let between = match *name {
            "delete" | "range delete" => None,
            "merge" => Some(6u64.to_le_bytes().to_vec()),
            _ => Some(5u64.to_le_bytes().to_vec()),
        };
        assert_eq!(seen, [Some(1u64.to_le_bytes().to_vec()), between], "{name}");
        assert_eq!(family.get_pinned("k").unwrap().unwrap(), 9u64.to_le_bytes(), "{name}");
    }
}

#[cfg(feature = "bytes")]
#[test]
fn slices_and_bytes_share_memory() {
    let db = open_with_letters();
    let slice = db.get_pinned("a").unwrap().unwrap();
    let address = slice.as_ptr();
    let bytes = bytes::Bytes::from(slice);
    assert_eq!((&bytes[..], bytes.as_ptr()), (&b"A"[..], address), "not copied");
    db.close().unwrap();
    drop(db);
    assert_eq!(bytes, "A", "stays pinned");
    let bytes = bytes::Bytes::from(vec![1, 2, 3]);
    let address = bytes.as_ptr();
    let slice = Slice::from(bytes);
    assert_eq!((&slice[..], slice.as_ptr()), (&[1, 2, 3][..], address), "not copied");
}

#[cfg(feature = "serde")]
#[test]
fn options_serialize_as_in_an_options_file() {
    use perigee::{Compression, Durability, Isolation, MergeRule, WriteOptions};
    use std::time::Duration;
    let family = FamilyOptions::new()
        .compression(Compression::Zstd(3))
        .filter_bits(0)
        .merge_operator(MergeRule::Append(", ".into()));
    let options = Options::new()
        .durability(Durability::Interval(Duration::from_millis(100)))
        .read_only(true)
        .default_family(family.clone())
        .family("a b", FamilyOptions::new());
    let json = serde_json::to_value(&options).unwrap();
    assert_eq!(json["database"]["durability"], "interval 100 ms");
    assert_eq!(json["database"]["read_only"], true);
    assert_eq!(json["family"]["default"]["compression"], "zstd 3");
    let read: Options = serde_json::from_value(json).unwrap();
    assert_eq!(read.to_toml(), options.to_toml());
    let json = serde_json::to_string(&family).unwrap();
    assert_eq!(serde_json::from_str::<FamilyOptions>(&json).unwrap(), family);

    let read: FamilyOptions = serde_json::from_str(r#"{"block_bytes": "8 KiB"}"#).unwrap();
    assert_eq!(read, FamilyOptions::new().block_bytes(8 << 10));
    let e = serde_json::from_str::<FamilyOptions>(r#"{"blok_bytes": 1}"#).unwrap_err();
    assert!(e.to_string().contains("did you mean \"block_bytes\""), "{e}");
    let e = serde_json::from_str::<Durability>("\"always\"").unwrap_err();
    assert!(e.to_string().contains("is not one of"), "{e}");

    let txn: TxnOptions = serde_json::from_str(r#"{"isolation": "serializable"}"#).unwrap();
    assert_eq!((txn.isolation, txn.read_only), (Some(Isolation::Serializable), false));
    let write = WriteOptions::new().durability(Durability::None);
    assert_eq!(serde_json::to_string(&write).unwrap(), r#"{"durability":"none"}"#);
}

#[cfg(feature = "serde")]
#[test]
fn statistics_and_reports_serialize() {
    let db = open_with_letters();
    db.admin().flush().unwrap();
    let stats = serde_json::to_value(db.admin().stats()).unwrap();
    assert_eq!(stats["last_sequence"], 5);
    assert_eq!(stats["families"][0]["name"], "default");
    assert!(stats["families"][0]["levels"].is_array(), "{stats}");
    let options = serde_json::to_value(db.default_family().options()).unwrap();
    assert_eq!(options["compression"], "lz4");
    let report = serde_json::to_value(db.admin().verify().unwrap()).unwrap();
    assert_eq!(report["errors"], serde_json::json!([]));
    let e = Error::corruption("a checksum differs").at("000007.klog", 4096);
    let json = serde_json::to_value(&e).unwrap();
    assert_eq!((&json["kind"], &json["offset"]), (&"corruption".into(), &4096.into()));
    for file in db.admin().files() {
        assert_eq!(serde_json::to_value(&file).unwrap()["family"], "default");
    }
}
