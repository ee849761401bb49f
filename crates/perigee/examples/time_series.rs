//! A time series: readings that expire, range queries in both directions, and a backup.
//!
//! `cargo run --example time_series [DIRECTORY]`

use perigee::{Compression, Db, FamilyOptions, Options, Result, WriteBatch};
use std::time::Duration;

/// The key of a reading: all readings of a sensor are adjacent, in the order of time.
fn reading_key(sensor: &str, second: u64) -> String {
    format!("{sensor}/{second:010}")
}

fn main() -> Result<()> {
    let path = std::env::args_os()
        .nth(1)
        .map_or_else(|| std::env::temp_dir().join("perigee-time-series"), Into::into);
    let db = Db::open(&path, Options::new())?;
    let options = FamilyOptions::new().compression(Compression::Zstd(3));
    let readings = db.family_or_create("readings", options)?;

    let mut batch = WriteBatch::new();
    for second in 0..3600 {
        let value = format!("{} cm", 200 + second % 60);
        batch.put(&readings, reading_key("harbour", second), value)?;
    }
    db.write(batch)?;
    // This reading disappears by itself after a week.
    let week = Duration::from_secs(7 * 24 * 3600);
    readings.put_with_ttl(reading_key("harbour", 3600), "260 cm", week)?;

    let minute = reading_key("harbour", 120)..reading_key("harbour", 180);
    println!("{} readings in the third minute", readings.range(minute)?.count());
    for entry in readings.prefix("harbour/")?.rev().take(3) {
        let (key, value) = entry?;
        println!("{} {}", String::from_utf8_lossy(&key), String::from_utf8_lossy(&value));
    }
    // Older readings are removed with one range tombstone, whatever their number.
    readings.delete_range(reading_key("harbour", 0)..reading_key("harbour", 1800))?;

    let report = db.backups().create(path.with_extension("backup"))?;
    println!("backup: {report:?}");
    db.close()
}
