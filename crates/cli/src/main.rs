//! The admin tool `perigee`: a thin wrapper around the public crate that parses arguments, moves
//! bytes between files and a database, and prints. `dump`, `manifest` and `sst` decode database
//! files directly, read-only. `unsafe` is used only to call the libraries of other engines
//! (`foreign`).
//!
//! Exit codes: 0 success, 1 key not found, 2 usage error or any other error, 3 corruption found.
#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod args;
mod commands;
mod failure;
#[cfg(unix)]
mod foreign;
mod output;
mod database_args;
mod process;
mod progress;
#[cfg(test)]
mod reference;
mod size;
mod table_formats;
mod text;

use clap::Parser;
use failure::Failure;
use output::Output;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;

thread_local! {
    /// True while this thread calls a library whose panics are converted to errors.
    static PANICS_ARE_ERRORS: Cell<bool> = const { Cell::new(false) };
}

/// Calls a function that converts panics of a library to errors, without printing them.
#[cfg(feature = "parquet")]
fn with_panics_as_errors<T>(call: impl FnOnce() -> T) -> T {
    PANICS_ARE_ERRORS.set(true);
    let result = call();
    PANICS_ARE_ERRORS.set(false);
    result
}

fn main() -> ExitCode {
    panic::set_hook(Box::new(|info| {
        if !PANICS_ARE_ERRORS.get() {
            eprintln!("{}", panic_line(&info.to_string()));
        }
    }));
    match panic::catch_unwind(AssertUnwindSafe(run)) {
        Ok(code) => ExitCode::from(code),
        Err(_) => ExitCode::from(failure::EXIT_ERROR),
    }
}

/// Parses the arguments, runs the command and reports its error. Returns the exit code.
fn run() -> u8 {
    let args = match args::Args::try_parse() {
        Ok(args) => args,
        Err(e) => return failure::report_usage(&e),
    };
    let json = args.json;
    let mut out = Output::new(json);
    process::raise_file_limit();
    let result = commands::run(args.command, &mut out);
    let flushed = out.flush();
    match result.and_then(|code| flushed.map(|()| code)) {
        Ok(code) => code,
        Err(failure) => Failure::report(&failure, json),
    }
}

/// Returns the line printed for a panic, which is a bug in Perigee: no backtrace, and a request to
/// report it.
fn panic_line(info: &str) -> String {
    let flat = info.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("perigee: internal error, please report it with the command that caused it: {flat}")
}
