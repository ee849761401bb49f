//! Names and values that sessions show: catalog and schema, version, variables.

/// Name of the catalog.
pub const CATALOG: &str = "perigee";
/// Name of the schema of all tables, as in PostgreSQL.
pub const SCHEMA: &str = "public";
/// The version of PostgreSQL whose protocol and functions clients find.
pub const POSTGRES_VERSION: &str = "16.0";

/// Answers of SHOW for variables of PostgreSQL.
pub const SHOWN_VARIABLES: &[(&str, &str)] = &[
    ("transaction isolation level", "repeatable read"),
    ("transaction_isolation", "repeatable read"),
    ("default_transaction_isolation", "repeatable read"),
    ("server_version", POSTGRES_VERSION),
    ("server_encoding", "UTF8"),
    ("client_encoding", "UTF8"),
    ("search_path", SCHEMA),
    ("standard_conforming_strings", "on"),
    ("integer_datetimes", "on"),
    ("datestyle", "ISO, YMD"),
    ("timezone", "UTC"),
    ("time zone", "UTC"),
    ("max_identifier_length", "255"),
];
