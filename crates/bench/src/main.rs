//! **perigee-bench** measures Perigee beside other engines: identical work, every answer checked,
//! one report.
//!
//! Workloads are independent of engines and engines of workloads; a record is data, and reports
//! read only records. A run in which an engine answered wrongly or refused work fails: exit code 1.

mod keys;
mod values;
mod random;
mod settings;
mod engine;
mod meter;
mod sys;
mod record;
mod trace;
mod engines;
mod workload;
mod resource_sampler;
mod job;
mod parent;
mod table_suite;
mod question_suites;
mod suite;
mod report;
mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
