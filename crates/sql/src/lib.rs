//! **SQL** over the tables of a Perigee database: sessions with transactions, and a server for
//! clients of PostgreSQL. Queries are planned and executed by DataFusion; conditions become ranges
//! of the primary key or of an index, and only the columns that a statement needs are decoded.
//!
//! `docs/sql.md` describes statements, types, transactions, the server and limits.
//!
//! ```
//! use perigee_sql::Session;
//! # let db = perigee::example_db().unwrap();
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let mut session = Session::new(&db, Default::default())?;
//! session.run("CREATE TABLE readings (sensor INTEGER, at TIMESTAMP, value DOUBLE PRECISION,
//!              PRIMARY KEY (sensor, at))").await?;
//! session.run("INSERT INTO readings VALUES (7, '2026-01-01 12:00:00', 0.5)").await?;
//! let plan = session.run("EXPLAIN SELECT value FROM readings WHERE sensor = 7").await?;
//! assert!(format!("{:?}", plan[0].batches).contains("range=(sensor, at) = (7)"));
//! # Ok::<(), perigee_sql::SqlError>(())
//! # }).unwrap();
//! ```
//!
//! # Items by subject
//! | subject | items |
//! |---|---|
//! | sessions | [`Session`], [`SessionOptions`], [`Statement`], [`Prepared`] |
//! | results | [`Outcome`], [`StatementResult`] |
//! | server for clients of PostgreSQL | [`Server`], [`ServerOptions`], [`Identity`] |
//! | names of types | [`type_name`] |
//! | errors | [`SqlError`], [`SqlState`], [`Position`], [`Result`] |
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod limits;
mod constants;
mod error;
mod read_state;
mod values;
mod sql_types;
mod key_ranges;
mod table_scan;
mod table_provider;
mod wire_types;
mod pg_catalog;
mod catalog;
mod functions;
mod schema_statements;
mod row_changes;
mod statement;
mod row_plan;
mod session;
mod row_statements;
mod schema_changes;
mod execution;
mod server;

pub use error::{Position, Result, SqlError, SqlState};
pub use server::Server;
pub use server::options::{Identity, ServerOptions};
pub use session::{Outcome, Prepared, Session, SessionOptions, StatementResult};
pub use sql_types::type_name;
pub use statement::Statement;
