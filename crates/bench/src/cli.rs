//! The command line.

use crate::parent::{self, RunRequest};
use crate::question_suites::SuiteArgs;
use crate::record::Record;
use crate::report::{html, summary, table, views};
use crate::settings::{Settings, count};
use crate::suite::{self, Suite};
use crate::table_suite;
use crate::{engines, workload};
use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Benchmarks Perigee against other engines: identical work, every answer checked, one report.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    /// List the engines of this build and the workloads
    #[arg(long)]
    list: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs workloads on engines
    Run {
        /// Engines, comma-separated, or `all`
        #[arg(long, value_delimiter = ',', default_value = "all")]
        engines: Vec<String>,
        /// Workloads, comma-separated, or `all`
        #[arg(long, value_delimiter = ',', default_value = "all")]
        workloads: Vec<String>,
        /// Repetitions; the engines alternate
        #[arg(long, default_value_t = 3)]
        reps: u32,
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        out: OutputArgs,
    },
    /// Runs a named set of workloads
    #[command(after_help = EXAMPLES)]
    Suite {
        #[arg(value_enum)]
        suite: Suite,
        /// Numbers of keys of the suite `growth`, comma-separated
        #[arg(long, value_delimiter = ',', value_parser = count, default_value = "1M,10M")]
        nums: Vec<u64>,
        /// Engines, comma-separated, or `all`
        #[arg(long, value_delimiter = ',', default_value = "all")]
        engines: Vec<String>,
        /// Repetitions; the engines alternate (default: the suite's)
        #[arg(long)]
        reps: Option<u32>,
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        out: OutputArgs,
    },
    /// Prints tables and writes reports from saved records; several files are combined
    Report {
        #[arg(required = true)]
        records: Vec<PathBuf>,
        /// Treat records that belong to no suite as records of this one
        #[arg(long, value_enum)]
        suite: Option<Suite>,
        #[command(flatten)]
        out: OutputArgs,
    },
    /// Compares the records of two runs, for example of two versions
    Compare { before: PathBuf, after: PathBuf },
    /// Records the operations of a workload, to be replayed by `run --workloads replay --trace
    /// FILE`
    Trace {
        #[command(subcommand)]
        command: TraceCommand,
    },
    /// One repetition, for the parent process
    #[command(name = parent::CHILD, hide = true)]
    Child,
}

#[derive(Debug, Subcommand)]
enum TraceCommand {
    /// Runs a workload and writes its operations to a file
    Record {
        /// Workload to record
        #[arg(long)]
        workload: String,
        /// Engine that executes the operations while they are recorded
        #[arg(long, default_value = "perigee")]
        engine: String,
        /// Trace file to write
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        #[command(flatten)]
        settings: Box<Settings>,
    },
    /// Replays a trace on any engines
    Replay {
        /// Trace file to replay
        trace: PathBuf,
        /// Engines, comma-separated, or `all`
        #[arg(long, value_delimiter = ',', default_value = "all")]
        engines: Vec<String>,
        /// Repetitions; the engines alternate
        #[arg(long, default_value_t = 3)]
        reps: u32,
        #[command(flatten)]
        settings: Box<Settings>,
        #[command(flatten)]
        out: OutputArgs,
    },
}

#[derive(Debug, Args)]
struct OutputArgs {
    /// Write the records to this file, as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write one line per record to this file, as CSV
    #[arg(long)]
    csv: Option<PathBuf>,
    /// Write the report to this file, as HTML
    #[arg(long)]
    html: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:
  perigee-bench suite quick --html report.html
  perigee-bench suite growth --engines perigee,lmdb --nums 1M,10M,50M --json growth.json --html growth.html
  perigee-bench suite inside --memory 512M --tidesdb-lib libtidesdb.so --html inside.html
  perigee-bench suite churn --num 100k --engines perigee --html churn.html      (small: a few seconds)
The durations given for suites were measured on two shared cores; `--seconds` limits each measured
phase. Every run prints tables and can write records (--json), one line per record (--csv), and one
page with tables and charts that needs no network (--html).";

pub fn main() -> ExitCode {
    let matches = Cli::command().get_matches();
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(e) => e.exit(),
    };
    // A suite has its own size unless the user gave one.
    let sized = matches.subcommand().is_some_and(|(name, m)| {
        name == "suite" && m.value_source("num") == Some(ValueSource::CommandLine)
    });
    match execute(cli, sized) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("perigee-bench: {why}");
            ExitCode::from(2)
        }
    }
}

/// Executes a command. Returns true if every run succeeded with correct answers.
fn execute(cli: Cli, sized: bool) -> Result<bool, String> {
    match cli.command {
        Some(Command::Run { engines, workloads, reps, settings, out }) => {
            let request = RunRequest::without_suite(
                engine_names(&engines, &settings)?,
                workload_names(&workloads)?,
                reps,
                settings,
            );
            run_and_report(&[request], &out)
        }
        Some(Command::Suite { suite, nums, engines, reps, settings, out }) => {
            let mut engines = engine_names(&engines, &settings)?;
            if suite == Suite::Sqlite {
                engines.retain(|e| ["perigee", "sqlite", "liar"].contains(&e.as_str()));
            }
            if suite == Suite::Tables {
                engines.retain(|e| table_suite::ENGINES.contains(&e.as_str()));
            }
            let num = sized.then_some(settings.num);
            let args = SuiteArgs { engines: &engines, reps, num, nums: &nums, settings: &settings };
            run_and_report(&suite::suite_requests(suite, args), &out)
        }
        Some(Command::Report { records, suite, out }) => {
            let mut all = Vec::new();
            for file in &records {
                all.extend(read_records(file)?);
            }
            let name = suite
                .and_then(|s| Some(s.to_possible_value()?.get_name().to_owned()))
                .unwrap_or_default();
            all.iter_mut().filter(|r| r.suite.is_empty()).for_each(|r| r.suite.clone_from(&name));
            write_reports(&all, &out)
        }
        Some(Command::Compare { before, after }) => {
            println!("{}", table::compare(&read_records(&before)?, &read_records(&after)?));
            Ok(true)
        }
        Some(Command::Trace { command }) => run_trace_command(command),
        Some(Command::Child) => parent::child_main().map(|()| true),
        None => {
            if !cli.list {
                Cli::command().print_help().map_err(|e| e.to_string())?;
                println!();
            }
            print_list();
            Ok(true)
        }
    }
}

fn run_trace_command(command: TraceCommand) -> Result<bool, String> {
    match command {
        TraceCommand::Record { workload, engine, out, settings } => {
            let mut settings = *settings;
            settings.shape.record = Some(std::path::absolute(&out).map_err(|e| e.to_string())?);
            let engines = engine_names(&[engine], &settings)?;
            let workloads = workload_names(&[workload])?;
            let records = parent::run_requests(
                &[RunRequest::without_suite(engines, workloads, 1, settings)],
                &mut |_| (),
            );
            let ops: u64 = records.iter().map(|r| r.ops).sum();
            println!("{ops} operations recorded in {}", out.display());
            Ok(!summary::failed(&records) && ops > 0)
        }
        TraceCommand::Replay { trace, engines, reps, settings, out } => {
            let settings = Settings { trace: Some(trace), ..*settings };
            let engines = engine_names(&engines, &settings)?;
            let workloads = vec![workload::REPLAY.to_owned()];
            run_and_report(&[RunRequest::without_suite(engines, workloads, reps, settings)], &out)
        }
    }
}

fn print_list() {
    println!("Engines of this build:");
    for e in engines::ENGINES.iter().filter(|e| !e.hidden) {
        println!("  {:<20} {}", e.name, e.about);
    }
    println!("Workloads:");
    for w in workload::WORKLOADS {
        println!("  {:<20} {}", w.name, w.about);
    }
}

fn engine_names(names: &[String], settings: &Settings) -> Result<Vec<String>, String> {
    let named = settings.tidesdb_lib.is_some();
    if names == ["all"] {
        let all =
            engines::ENGINES.iter().filter(|e| !e.hidden && (named || e.name != engines::TIDESDB));
        return Ok(all.map(|e| e.name.to_owned()).collect());
    }
    if !named && names.iter().any(|e| e == engines::TIDESDB) {
        return Err("the engine `tidesdb` needs its shared library: --tidesdb-lib PATH".into());
    }
    match names.iter().find(|name| engines::find_engine(name).is_none()) {
        Some(name) => Err(format!("no engine `{name}` in this build; see --list")),
        None => Ok(names.to_vec()),
    }
}

fn workload_names(names: &[String]) -> Result<Vec<String>, String> {
    if names == ["all"] {
        let all = workload::WORKLOADS.iter().filter(|w| w.name != workload::REPLAY);
        return Ok(all.map(|w| w.name.to_owned()).collect());
    }
    match names.iter().find(|name| workload::find_workload(name).is_none()) {
        Some(name) => Err(format!("no workload `{name}`; see --list")),
        None => Ok(names.to_vec()),
    }
}

fn run_and_report(requests: &[RunRequest], out: &OutputArgs) -> Result<bool, String> {
    // Saves the records after each repetition, so that an interrupted run keeps them. A path that
    // cannot be written is reported at the end.
    let mut keep = |so_far: &[Record]| {
        if let (Some(path), Ok(text)) = (&out.json, serde_json::to_string_pretty(so_far)) {
            let _ = std::fs::write(path, text);
        }
    };
    let mut records = parent::run_requests(requests, &mut keep);
    records.iter_mut().for_each(|r| r.command = command_line());
    write_reports(&records, out)
}

/// Writes the requested files and prints the table. Returns true if no run failed.
fn write_reports(records: &[Record], out: &OutputArgs) -> Result<bool, String> {
    let put = |path: &Option<PathBuf>, text: &dyn Fn() -> String| match path {
        Some(p) => std::fs::write(p, text()).map_err(|e| format!("{}: {e}", p.display())),
        None => Ok(()),
    };
    put(&out.json, &|| serde_json::to_string_pretty(records).unwrap_or_else(|e| e.to_string()))?;
    put(&out.csv, &|| table::csv(records))?;
    put(&out.html, &|| html::page(records))?;
    println!("{}", table::table(records));
    for view in views::views(records) {
        println!("\n{}", table::view(&view));
    }
    let failed = summary::failed(records);
    if failed {
        eprintln!("\nFAILED: an engine refused work or answered wrongly; its figures are invalid.");
        for r in records.iter().filter(|r| r.errors + r.wrong > 0) {
            let first = r.first_failure.as_deref().unwrap_or("");
            eprintln!(
                "  {} on {}: {} errors, {} wrong answers; first: {first}",
                r.workload, r.engine, r.errors, r.wrong
            );
        }
    }
    Ok(!failed)
}

fn read_records(path: &Path) -> Result<Vec<Record>, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
}

/// Returns the command line as typed.
fn command_line() -> String {
    let mut words: Vec<String> = std::env::args().collect();
    if let Some(first) = words.first_mut() {
        *first = "perigee-bench".into();
    }
    words.join(" ")
}
