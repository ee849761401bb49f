//! Options of column families: stored, compared at reopen, and changed while the database is open.
#![allow(clippy::unwrap_used)]

use perigee::env::{Env, fs::memory::SimDisk};
use perigee::{Compression, Db, ErrorKind, FamilyOptions, OptionValue, Options};
use std::path::Path;

fn new_env() -> Env {
    Env { fs: SimDisk::new(1), ..Env::real() }
}

fn non_default_options() -> FamilyOptions {
    FamilyOptions::new()
        .memtable_bytes(1 << 20)
        .value_threshold(100)
        .block_bytes(1024)
        .compression(Compression::Zstd(7))
        .filter_rate(0.001)
        .target_file_bytes(1 << 20)
        .level1_bytes(2 << 20)
        .level_ratio(4)
}

#[test]
fn family_options_are_persisted() {
    let env = new_env();
    let db = Db::open("/db", Options::in_env(env.clone()).default_family(non_default_options()))
        .unwrap();
    db.create_family("plain", FamilyOptions::new()).unwrap();
    db.close().unwrap();
    let db = Db::open("/db", Options::in_env(env)).unwrap();
    assert_eq!(db.default_family().options(), non_default_options());
    assert_eq!(db.family("plain").unwrap().options(), FamilyOptions::new());
    assert!(db.admin().stats().recovery.changed_options.is_empty(), "no option was changed");
}

#[test]
fn changed_options_are_reported_at_open() {
    let env = new_env();
    let with = |o: FamilyOptions| Options::in_env(env.clone()).family("logs", o);
    let db = Db::open("/db", with(FamilyOptions::new())).unwrap();
    assert_eq!(db.families(), ["default", "logs"], "configured column families are created");
    db.close().unwrap();
    let db = Db::open("/db", with(FamilyOptions::new().block_bytes(1024).filter_bits(0))).unwrap();
    let changed = db.admin().stats().recovery.changed_options;
    assert_eq!(changed, ["logs: block_bytes: 4096 -> 1024", "logs: filter_bits: 10 -> 0"]);
    db.close().unwrap();
    let db = Db::open("/db", Options::in_env(env.clone())).unwrap();
    assert_eq!(db.family("logs").unwrap().options().block_bytes, 1024, "the change is stored");
    db.close().unwrap();
    let e = Db::open("/db", with(FamilyOptions::new().block_bytes(1))).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument);
    assert!(e.to_string().contains("block_bytes") && e.to_string().contains("64 to"), "{e}");
    let e = Db::open("/db", Options::in_env(env).family("", non_default_options())).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn set_options_applies_while_family_is_in_use() {
    let env = new_env();
    let db = Db::open("/db", Options::in_env(env.clone())).unwrap();
    let f = db.create_family("f", FamilyOptions::new()).unwrap();
    let fill = |from: u32| {
        for i in from..from + 500 {
            f.put(i.to_be_bytes(), vec![b'v'; 200]).unwrap();
        }
        f.flush().unwrap();
    };
    fill(0);
    f.set_options(non_default_options()).unwrap();
    assert_eq!(f.options(), non_default_options());
    assert_eq!(
        db.family("f").unwrap().options(),
        non_default_options(),
        "the change is visible to every handle"
    );
    fill(500);
    let files = db.admin().files();
    let separated: Vec<bool> = files.iter().map(|f| f.separated_bytes > 0).collect();
    assert!(separated.contains(&true) && separated.contains(&false), "{separated:?}");
    let bad = f.options().level_ratio(1);
    assert_eq!(f.set_options(bad).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(f.options(), non_default_options(), "refused options change nothing");
    db.close().unwrap();
    assert_eq!(f.set_options(non_default_options()).unwrap_err().kind(), ErrorKind::Closed);
    let db = Db::open("/db", Options::in_env(env)).unwrap();
    let f = db.family("f").unwrap();
    assert_eq!(f.options(), non_default_options());
    assert_eq!(f.iter().unwrap().count(), 1000);
    db.drop_family("f").unwrap();
    assert_eq!(f.set_options(non_default_options()).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn filter_rate_maps_to_bits_per_key() {
    let bits = |rate| FamilyOptions::new().filter_rate(rate).filter_bits;
    assert_eq!([1.0, 0.01, 0.001, 0.0].map(bits), [0, 11, 17, 30]);
    let rate = FamilyOptions::new().false_positive_rate();
    assert!((0.012..0.014).contains(&rate), "{rate}");
}

/// Returns the table of options in `docs/OPTIONS.md`.
fn options_table(options: &[OptionValue]) -> String {
    let mut out = "| option | default | effect and trade-off |\n|---|---|---|\n".to_owned();
    for o in options {
        let default = o.default.replace('"', "");
        out += &format!("| `{}` | `{default}` | {} |\n", o.name, o.tradeoff);
    }
    out
}

#[test]
fn options_page_matches_the_option_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/OPTIONS.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let mut generated = page.clone();
    for (title, options) in [
        ("## Options of the database\n\n", Options::new().values()),
        ("## Options of a column family\n\n", FamilyOptions::new().values()),
    ] {
        let start = generated.find(title).unwrap() + title.len();
        let rest = &generated[start..];
        let end = start + rest.find("\n\n").map_or(rest.len(), |end| end + 1);
        generated.replace_range(start..end, &options_table(&options));
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap();
    let same = written == generated;
    assert!(
        same,
        "docs/OPTIONS.md is out of date: UPDATE_DOCS=1 cargo test -p perigeedb --test options"
    );
}
