//! Snapshots and iterators: a consistent view while writes continue, scanned in both directions.
//!
//! `cargo run --example snapshots [DIRECTORY]`

use perigee::{Db, Options, Result};

fn main() -> Result<()> {
    let path = std::env::args_os()
        .nth(1)
        .map_or_else(|| std::env::temp_dir().join("perigee-snapshots"), Into::into);
    let db = Db::open(&path, Options::new())?;
    for hour in 0..24 {
        db.put(format!("{hour:02}:00"), format!("{} cm", 200 + hour * 5))?;
    }

    // The snapshot does not see the writes that follow.
    let snapshot = db.snapshot()?;
    db.put("06:00", "replaced")?;
    db.delete("07:00")?;

    let family = db.default_family();
    println!(
        "06:00 in the snapshot {:?}, now {:?}",
        text(snapshot.get(&family, "06:00")?),
        text(db.get("06:00")?)
    );
    println!(
        "07:00 in the snapshot {:?}, now {:?}",
        text(snapshot.get(&family, "07:00")?),
        text(db.get("07:00")?)
    );

    // A range of the current state; then the last entry of the snapshot.
    for entry in db.range("05:00".."09:00")? {
        let (key, value) = entry?;
        println!("  {} {}", key.escape_ascii(), value.escape_ascii());
    }
    let last = snapshot.iter(&family)?.next_back().transpose()?;
    println!(
        "last entry of the snapshot: {}",
        last.map(|(key, _)| key.escape_ascii().to_string()).unwrap_or_default()
    );

    // A cursor can seek to any key and change its direction.
    let mut cursor = db.default_family().cursor()?;
    cursor.seek("11:30")?;
    println!("at or after 11:30: {}", cursor.key().escape_ascii());
    cursor.prev()?;
    println!("previous entry: {}", cursor.key().escape_ascii());
    cursor.seek_for_prev("99")?;
    println!("at or before 99: {}", cursor.key().escape_ascii());
    db.close()
}

fn text(value: Option<Vec<u8>>) -> Option<String> {
    value.map(|v| String::from_utf8_lossy(&v).into_owned())
}
