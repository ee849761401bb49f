//! Column families and atomic batches: two sorted maps that change together.
//!
//! `cargo run --example families [DIRECTORY]`

use perigee::{Db, FamilyOptions, Options, Result, WriteBatch};

fn main() -> Result<()> {
    let path = std::env::args_os()
        .nth(1)
        .map_or_else(|| std::env::temp_dir().join("perigee-families"), Into::into);
    let db = Db::open(&path, Options::new())?;

    // A column family is a separate sorted map. Its options are stored with it: here, values of 256
    // bytes or more go to a value log.
    let notes = match db.family("notes") {
        Ok(family) => family,
        Err(_) => db.create_family("notes", FamilyOptions::new().value_threshold(256))?,
    };
    let by_day =
        db.family("by-day").or_else(|_| db.create_family("by-day", FamilyOptions::new()))?;

    // A note and its index entry: after a crash, both or neither are there.
    for (id, day, text) in [
        ("1", "2026-11-20", "spring tide"),
        ("2", "2026-11-21", "calm"),
        ("3", "2026-11-21", "wind"),
    ] {
        let mut batch = WriteBatch::new();
        batch.put(&notes, id, text)?;
        batch.put(&by_day, format!("{day}/{id}"), b"")?;
        db.write(batch)?;
    }

    // All notes of one day, in order.
    for entry in by_day.prefix("2026-11-21/")? {
        let (key, _) = entry?;
        let id = key.rsplit(|&b| b == b'/').next().unwrap_or_default();
        let text = notes.get(id)?.unwrap_or_default();
        println!("{}  {}", key.escape_ascii(), text.escape_ascii());
    }
    println!("column families: {}", db.families().join(", "));
    db.close()
}
