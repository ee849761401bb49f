//! The admin tool `perigee`. A shell around the public crate: no logic of its own beyond reading
//! arguments, moving bytes between files and a database, and printing. `dump` alone looks into
//! files directly, and only reads. `unsafe` is only where another engine's library is called
//! (`foreign`).
//!
//! Exit codes: 0 done, 1 the key is not there, 2 wrong use or an error, 3 damaged bytes were found.
#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod args;
mod commands;
mod failure;
mod foreign;
mod output;
mod database_args;
mod process;
mod progress;
#[cfg(test)]
mod reference;
mod size;
mod text;

use clap::Parser;
use failure::Failure;
use output::Output;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;

fn main() -> ExitCode {
    panic::set_hook(Box::new(|info| eprintln!("{}", panic_line(&info.to_string()))));
    match panic::catch_unwind(AssertUnwindSafe(run)) {
        Ok(code) => ExitCode::from(code),
        Err(_) => ExitCode::from(failure::EXIT_ERROR),
    }
}

/// Parses, runs, reports; returns the exit code.
fn run() -> u8 {
    let args = match args::Args::try_parse() {
        Ok(args) => args,
        Err(e) => return failure::report_usage(&e),
    };
    let json = args.json;
    let mut out = Output::new(json);
    process::raise_file_limit();
    let done = commands::run(args.command, &mut out);
    let flushed = out.flush();
    match done.and_then(|code| flushed.map(|()| code)) {
        Ok(code) => code,
        Err(failure) => Failure::report(&failure, json),
    }
}

/// A panic is a bug of ours: one line, no backtrace, and what to do with it.
fn panic_line(info: &str) -> String {
    let flat = info.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("perigee: internal error, please report it with the command that led here: {flat}")
}
