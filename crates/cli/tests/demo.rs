//! `perigee demo` on a small directory tree: import, SIGKILL, recovery, comparison.
#![allow(clippy::unwrap_used)]

use crate::common::TestDir;

#[test]
fn killed_import_loses_no_acknowledged_entry() {
    let w = TestDir::new();
    for i in 0..3000u32 {
        let bytes: Vec<u8> = (0..i % 20_000).map(|n| (n.wrapping_mul(i) >> 3) as u8).collect();
        w.write(&format!("in/{}/{i}", i % 50), &bytes);
    }
    let report = &w.run_json(&["demo", "--dir", "in", "--db", "db", "--keep"])[0]["demo"];
    assert_eq!(report["ok"], true, "{report}");
    assert_eq!(report["lost"], 0);
    assert_eq!(report["identical"], 3000);
    assert_eq!(report["entries"], 3000);
    assert!(report["acknowledged"].as_u64().unwrap() > 0);
    w.run_ok(&["verify", "db"]);
    w.run_failing(2, "already exists", &["demo", "--dir", "in", "--db", "db"]);
}
