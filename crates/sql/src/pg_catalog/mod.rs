//! The catalog `pg_catalog` of PostgreSQL, as far as psql and drivers read it: tables, functions,
//! and a rewrite of queries that DataFusion cannot plan.

pub mod relations;
pub mod tables;
pub mod functions;
pub mod rewrite;

/// Name of the schema.
pub const PG_CATALOG: &str = "pg_catalog";
/// A table that PostgreSQL does not have: a row for each column of each index. See [`rewrite`].
pub const INDEX_COLUMNS: &str = "perigee_index_columns";
/// Owner of everything.
pub const OWNER: &str = "perigee";
/// Object identifier of [`OWNER`].
pub const OWNER_OID: i32 = 10;
/// Object identifier of the schema `pg_catalog`.
pub const PG_CATALOG_OID: i32 = 11;
/// Object identifier of the schema `public`.
pub const PUBLIC_OID: i32 = 2200;
/// Object identifier of the schema `information_schema`.
pub const INFORMATION_SCHEMA_OID: i32 = 13_000;
