//! A minimal interactive shell for a database, with the commands `put KEY VALUE`, `get KEY`, `del
//! KEY`, `scan [PREFIX]`, `stats` and `quit`.
//!
//! `cargo run --example shell [DIRECTORY]`, or `echo 'put a 1' | cargo run --example shell`

use perigee::{Db, Options, Result};
use std::io::BufRead;

fn main() -> Result<()> {
    let path = std::env::args_os()
        .nth(1)
        .map_or_else(|| std::env::temp_dir().join("perigee-shell"), Into::into);
    let db = Db::open(&path, Options::new())?;
    println!(
        "opened {}; commands: put KEY VALUE, get KEY, del KEY, scan [PREFIX], stats, quit",
        db.path().display()
    );
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        if line.trim() == "quit" {
            break;
        }
        // Print an error and continue: writes acknowledged before it are not affected.
        if let Err(e) = run_command(&db, line.trim()) {
            println!("{e}");
        }
    }
    db.close()
}

fn run_command(db: &Db, line: &str) -> Result<()> {
    let mut words = line.splitn(3, ' ');
    let (command, key, value) =
        (words.next().unwrap_or_default(), words.next().unwrap_or_default(), words.next());
    match (command, value) {
        ("", _) => {}
        ("put", Some(value)) => db.put(key, value)?,
        ("get", None) => match db.get(key)? {
            Some(value) => println!("{}", value.escape_ascii()),
            None => println!("(not found)"),
        },
        ("del", None) => db.delete(key)?,
        ("scan", None) => {
            for entry in db.prefix(key)? {
                let (key, value) = entry?;
                println!("{} = {}", key.escape_ascii(), value.escape_ascii());
            }
        }
        ("stats", None) => {
            for c in db.admin().stats().counters.iter().filter(|c| c.value > 0) {
                println!("{} {}", c.name, c.value);
            }
        }
        _ => println!("commands: put KEY VALUE, get KEY, del KEY, scan [PREFIX], stats, quit"),
    }
    Ok(())
}
