//! The program `perigee-sim`: one command per kind of attack on the engine.
#![forbid(unsafe_code)]

use clap::{Parser, Subcommand};
use perigee_sim::{
    bugs, crash, faults, flips, isolation, kill, kill_child, model, prepared, recovery, runner,
    safety,
};
use std::path::PathBuf;
use std::process::ExitCode;

/// Tries to make Perigee lose, invent or damage a byte. Every failure prints the command line that
/// replays it.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Random histories against the oracle, each under several option sets, and concurrent
    /// histories.
    Model(model::Args),
    /// Crashes of the process and the machine at random I/Os, and at every I/O of all short
    /// histories.
    Crash(crash::Args),
    /// Every kind of I/O error at every I/O; failing reads; full disks.
    Faults(faults::Args),
    /// Damage to every byte of a small database; truncations; swapped sectors and files.
    Flips(flips::Args),
    /// A real process under SIGKILL.
    Kill(kill::Args),
    /// Concurrent transactions at five levels, every history checked for anomalies.
    Isolation(isolation::Args),
    /// Two-phase commit: crashes at every I/O from the first prepare on.
    Prepared(prepared::Args),
    /// Opens with a log larger than the memory budget, and crashes during them.
    Recovery(recovery::Args),
    /// Checkpoints, backups and prunes under crashes; read-only opens; repairs of damaged copies.
    Safety(safety::Args),
    /// Enables every seeded bug and proves that it is detected.
    Bugs(bugs::Args),
    /// Replays a case and, if it fails, writes its simulated disks to a directory.
    Image {
        /// The output directory.
        dir: PathBuf,
        /// The command that failed: model, crash, faults or flips.
        #[arg(long, default_value = "crash")]
        of: String,
        /// Its seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Its case.
        #[arg(long)]
        case: u64,
    },
    /// The process that `kill` kills.
    #[command(hide = true)]
    KillChild(kill_child::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Err(e) = bugs::plant_from_environment() {
        eprintln!("{e}");
        return ExitCode::from(2);
    }
    if !matches!(cli.command, Command::KillChild(_)) {
        runner::catch_panics();
    }
    let good = match cli.command {
        Command::Model(args) => model::run(&args),
        Command::Crash(args) => crash::run(&args),
        Command::Faults(args) => faults::run(&args),
        Command::Flips(args) => flips::run(&args),
        Command::Kill(args) => kill::run(&args),
        Command::Isolation(args) => isolation::run(&args),
        Command::Prepared(args) => prepared::run(&args),
        Command::Recovery(args) => recovery::run(&args),
        Command::Safety(args) => safety::run(&args),
        Command::Bugs(args) => bugs::run(&args),
        Command::KillChild(args) => kill_child::run(&args),
        Command::Image { dir, of, seed, case } => return image(dir, &of, seed, case),
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs this program again to replay a case and keep its disks.
fn image(dir: PathBuf, of: &str, seed: u64, case: u64) -> ExitCode {
    let (seed, case) = (seed.to_string(), case.to_string());
    let replay = |program| {
        let mut replay = std::process::Command::new(program);
        replay
            .arg(of)
            .args(["--seed", &seed, "--case", &case, "--jobs", "1"])
            .arg("--image")
            .arg(&dir);
        replay.status()
    };
    match std::env::current_exe().and_then(replay) {
        Ok(status) if status.success() => {
            println!("the case passed: nothing to write");
            ExitCode::SUCCESS
        }
        Ok(_) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::from(2)
        }
    }
}
