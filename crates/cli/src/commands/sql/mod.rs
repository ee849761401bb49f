//! `perigee sql`: runs SQL statements: from the command line, from stdin, or at a prompt.

#[cfg(feature = "sql")]
mod rows;
#[cfg(feature = "sql")]
mod completion;
#[cfg(feature = "sql")]
mod prompt;
#[cfg(feature = "sql")]
mod shell;

use crate::database_args::DatabaseArg;
use crate::failure::Result;
use crate::output::Output;
use clap::Args;

const EXAMPLES: &str = "\
Examples:
  perigee sql ./db                                  prompt; \\? lists its commands
  perigee sql ./db -c 'SELECT * FROM users LIMIT 5'
  perigee sql ./db --csv -c 'SELECT * FROM users' > users.csv
  perigee sql ./db < schema.sql                     runs a file, stops at the first error
  perigee sql ./db --create < schema.sql            creates the database if there is none";

/// Run SQL statements over the tables of a database
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct SqlArgs {
    #[command(flatten)]
    pub database: DatabaseArg,
    /// Run these statements, separated by semicolons, and exit
    #[arg(short, long, value_name = "SQL")]
    pub command: Option<String>,
    /// Print rows as CSV with a header
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    /// Open the database read-only: works while a program has it open
    #[arg(long)]
    pub read_only: bool,
    /// Create the database if it does not exist
    #[arg(long, conflicts_with = "read_only")]
    pub create: bool,
    /// Memory of sorts, joins and aggregates in MiB; sorts beyond it use temporary files
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    pub memory: usize,
}

/// Runs the statements.
#[cfg(feature = "sql")]
pub fn run(args: &SqlArgs, out: &mut Output) -> Result<u8> {
    shell::run(args, out)
}

/// Converts an error of the server.
#[cfg(feature = "sql")]
pub fn server_failure(e: &perigee_sql::SqlError) -> crate::failure::Failure {
    shell::sql_failure(e, "")
}

/// Says how to build the command.
#[cfg(not(feature = "sql"))]
pub fn run(_: &SqlArgs, _: &mut Output) -> Result<u8> {
    Err(missing_feature("perigee sql"))
}

/// Returns the error of a command that was not compiled.
#[cfg(not(feature = "sql"))]
pub fn missing_feature(command: &str) -> crate::failure::Failure {
    crate::failure::Failure::usage(format!("`{command}` was not compiled into this program"))
        .hint("build it with `cargo build --release -p perigeedb-cli --features sql`")
}
