//! The process that `kill` kills: opens a real database, writes from several threads, and prints
//! what was acknowledged. A write is a function of (seed, writer, number), so the parent needs only
//! numbers.

use crate::ledger::{COUNTER_FAMILY, Put, SHARED_KEY, counter_key};
use crate::rng::{Rng, mix, value_bytes};
use perigee::{
    Compression, Db, Durability, ErrorKind, FamilyOptions, Options, Result, WriteBatch,
    WriteOptions,
};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Column families besides the default one.
const STEADY_FAMILIES: [&str; 2] = ["a", "b"];

/// Options of the hidden command.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Directory of the database.
    #[arg(long)]
    pub dir: PathBuf,
    /// Seed of the case.
    #[arg(long)]
    pub seed: u64,
    /// Writer threads.
    #[arg(long)]
    pub writers: usize,
}

/// Returns the database options of a case.
pub fn options(seed: u64) -> Options {
    let mut rng = Rng::new(seed);
    let family = FamilyOptions::new()
        .memtable_bytes(rng.pick(&[4 << 10, 16 << 10, 64 << 10]))
        .block_bytes(256)
        .target_file_bytes(8 << 10)
        .level1_bytes(16 << 10)
        .level_ratio(3)
        .value_threshold(rng.pick(&[32, 4096]))
        .compression(rng.pick(&[Compression::None, Compression::Lz4]));
    let durability = rng.pick(&[
        Durability::Full,
        Durability::None,
        Durability::Interval(Duration::from_millis(2)),
    ]);
    Options::new().durability(durability).block_cache_bytes(64 << 10).default_family(family)
}

/// Returns what commit `number` of a writer writes, without the counter.
pub fn commit_puts(seed: u64, writer: usize, number: usize) -> Vec<Put> {
    let mut rng = Rng::new(mix(seed, mix(writer as u64, number as u64)));
    let n = rng.between(1, 5);
    let mut puts: Vec<Put> = (0..n)
        .map(|_| {
            let family = rng.pick(&[COUNTER_FAMILY, STEADY_FAMILIES[0], STEADY_FAMILIES[1]]);
            let key = format!("d/{writer}/{:03}", rng.below(60)).into_bytes();
            let len = if rng.percent(5) { rng.between(300, 3000) } else { rng.between(0, 80) };
            let value = if rng.percent(15) { None } else { Some(value_bytes(rng.next(), len)) };
            Put { family: (family.into(), 0), key, value }
        })
        .collect();
    let shared = format!("{writer} {number}").into_bytes();
    puts.extend([COUNTER_FAMILY, STEADY_FAMILIES[0], STEADY_FAMILIES[1]].map(|family| Put {
        family: (family.into(), 0),
        key: SHARED_KEY.to_vec(),
        value: Some(shared.clone()),
    }));
    puts
}

/// Writes until it is killed. Returns only on an error.
pub fn run(args: &Args) -> bool {
    print_line(&format!("p {}", std::process::id()));
    match open_and_write(args) {
        Ok(()) => true,
        Err(e) => {
            print_line(&format!("e {e}"));
            false
        }
    }
}

/// Prints one line with one write call, so that lines of different threads never mix.
fn print_line(line: &str) {
    let _ = std::io::stdout().lock().write_all(format!("{line}\n").as_bytes());
}

fn open_and_write(args: &Args) -> Result<()> {
    let db = Db::open(&args.dir, options(args.seed))?;
    for name in STEADY_FAMILIES {
        match db.create_family(name, options(args.seed).default_family.unwrap_or_default()) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
    }
    let starts: Vec<usize> =
        (0..args.writers).map(|writer| count_commits(&db, writer)).collect::<Result<_>>()?;
    for (writer, start) in starts.iter().enumerate() {
        print_line(&format!("s {writer} {start}"));
    }
    print_line("o");
    let results: Vec<Result<()>> = std::thread::scope(|scope| {
        let threads: Vec<_> = starts
            .iter()
            .enumerate()
            .map(|(writer, &start)| {
                scope.spawn({
                    let db = db.clone();
                    move || run_writer(&db, args.seed, writer, start)
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().expect("writers do not panic")).collect()
    });
    results.into_iter().collect()
}

/// Returns the number of a writer's commits in the database.
fn count_commits(db: &Db, writer: usize) -> Result<usize> {
    let text = db.get(counter_key(writer))?;
    Ok(text.and_then(|t| String::from_utf8(t).ok()?.parse().ok()).map_or(0, |n: usize| n + 1))
}

fn run_writer(db: &Db, seed: u64, writer: usize, start: usize) -> Result<()> {
    let mut rng = Rng::new(mix(seed, (writer + 1000 * start) as u64));
    for number in start..1_000_000 {
        let mut batch = WriteBatch::new();
        for put in commit_puts(seed, writer, number) {
            let family = db.family(&put.family.0)?;
            match put.value {
                Some(value) if number % 3 == 1 => {
                    batch.put_until(&family, put.key, value, u64::MAX)?
                }
                Some(value) => batch.put(&family, put.key, value)?,
                None if number % 2 == 1 => {
                    batch.delete_range(&family, &put.key[..]..=&put.key[..])?
                }
                None => batch.delete(&family, put.key)?,
            }
        }
        batch.put(&db.default_family(), counter_key(writer), number.to_string())?;
        let options = match rng.below(6) {
            0 => WriteOptions::new().durability(Durability::Full),
            1 => WriteOptions::new().durability(Durability::None),
            _ => WriteOptions::new(),
        };
        db.write_with(batch, options)?;
        print_line(&format!("a {writer} {number}"));
        match rng.below(200) {
            0 => db.admin().flush()?,
            1 => db.admin().compact()?,
            2 => db.sync()?,
            _ => {}
        }
    }
    Ok(())
}

/// Removes the directory of a case.
pub fn remove_dir(dir: &Path) {
    let _ = std::fs::remove_dir_all(dir);
}
