//! `perigee serve`: a server for clients of PostgreSQL.

use crate::database_args::DatabaseArg;
use crate::failure::Result;
use crate::output::Output;
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  perigee serve ./db --pg                           any local program can connect, no password
  psql 'host=127.0.0.1 port=5433 dbname=perigee'
  perigee serve ./db --pg --listen 0.0.0.0:5433 --password-file secret.txt \\
      --tls-cert server.crt --tls-key server.key
  psql 'host=db.example.org port=5433 user=perigee sslmode=require'

Without --listen it accepts connections of this machine only. Any other address needs a password \
(SCRAM-SHA-256) and TLS. Ctrl-C or SIGTERM ends the server; open transactions are rolled back.";

/// Serve the tables of a database to clients of PostgreSQL
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    #[command(flatten)]
    pub database: DatabaseArg,
    /// Use the protocol of PostgreSQL (the only one)
    #[arg(long, required = true)]
    pub pg: bool,
    /// Address and port to listen on
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:5433")]
    pub listen: SocketAddr,
    /// Name of the user, if there is a password
    #[arg(long, value_name = "NAME", default_value = "perigee")]
    pub user: String,
    /// File with the password of the user, in one line
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// File with the certificate chain for TLS, in PEM format
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// File with the private key of the certificate, in PEM format
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Connections at a time; others wait
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub connections: usize,
    /// Memory of sorts, joins and aggregates of all connections in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    pub memory: usize,
    /// Open the database read-only: works while a program has it open
    #[arg(long)]
    pub read_only: bool,
}

/// Runs the server until it is stopped.
#[cfg(feature = "sql")]
pub fn run(args: &ServeArgs, out: &mut Output) -> Result<u8> {
    use crate::commands::sql::server_failure;
    use crate::failure::Failure;
    use perigee_sql::{Identity, Server, ServerOptions, SessionOptions};
    let session = SessionOptions::with_memory(args.memory.saturating_mul(1 << 20))
        .map_err(|e| server_failure(&e))?;
    let mut options = ServerOptions::new(args.listen)
        .user(&args.user)
        .connections(args.connections)
        .session(session)
        .on_warning(|text| eprintln!("warning: {}", crate::text::printable(text)));
    if let Some(file) = &args.password_file {
        let text = std::fs::read_to_string(file).map_err(|e| Failure::file("read", file, &e))?;
        options = options.password(text.trim_end_matches(['\r', '\n']));
    }
    if let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) {
        options = options.identity(Identity::new(certificate, key));
    }
    let db = match args.read_only {
        true => args.database.open_read_only()?,
        false => args.database.open_read_write()?,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        // Reads of tables occupy a thread each.
        .worker_threads(std::thread::available_parallelism().map_or(4, |n| n.get()).max(4) * 2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let server = Server::bind(&db, options).await.map_err(|e| server_failure(&e))?;
        let address = server.address();
        let text = format!("serving {} at {address}", args.database.db.display());
        out.json_or_text(&serde_json::json!({"listening": address.to_string()}), text)?;
        out.flush()?;
        let mut terminate =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        server
            .run(async {
                tokio::select! {
                    _ = tokio::signal::ctrl_c() => {}
                    _ = terminate.recv() => {}
                }
            })
            .await;
        Ok::<(), Failure>(())
    })?;
    drop(runtime);
    db.close()?;
    Ok(0)
}

/// Says how to build the command.
#[cfg(not(feature = "sql"))]
pub fn run(_: &ServeArgs, _: &mut Output) -> Result<u8> {
    Err(crate::commands::sql::missing_feature("perigee serve"))
}
