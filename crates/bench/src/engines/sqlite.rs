//! Adapter for SQLite, configured as its documentation recommends: write-ahead log, prepared
//! statements, one connection per thread.

use crate::engine::{Cursor, EffectiveOptions, Engine, Result, Session, Sink, TxnOps};
use crate::settings::{Compression, Level, Settings, Sync, human_bytes};
use rusqlite::{Connection, Statement};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

struct Sqlite {
    file: PathBuf,
    pragmas: String,
    tables: usize,
    options: EffectiveOptions,
    /// SQLite admits one writer and makes the others sleep and retry; this lock avoids the
    /// sleeping.
    writer: Mutex<()>,
    /// Keeps the log alive between sessions and is closed last.
    main: Mutex<Connection>,
}

pub fn open(dir: &Path, settings: &Settings) -> Result<Box<dyn Engine>> {
    std::fs::create_dir_all(dir)?;
    let file = dir.join("bench.sqlite");
    let cache_kib = (settings.cache / settings.threads.max(1) as u64 / 1024).max(1);
    let checkpoint_pages = (settings.memtable / 4096).max(1);
    let synchronous = if settings.sync == Sync::None { "OFF" } else { "FULL" };
    let pragmas = format!(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous={synchronous}; PRAGMA cache_size=-{cache_kib}; \
         PRAGMA wal_autocheckpoint={checkpoint_pages}; PRAGMA temp_store=MEMORY;"
    );
    let main = connect(&file, &pragmas)?;
    let create = |f| {
        format!(
            "CREATE TABLE IF NOT EXISTS kv{f} (k BLOB PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID;"
        )
    };
    let tables = settings.families();
    main.execute_batch(&format!("BEGIN;{}COMMIT", (0..tables).map(create).collect::<String>()))?;
    let mut effective = EffectiveOptions::new();
    let mut say = |k: &str, v: &str| effective.insert(k.to_owned(), v.to_owned());
    say("durability", &format!("WAL, synchronous={synchronous}"));
    let cache = human_bytes(cache_kib << 10);
    say(
        "cache",
        &format!("{cache} for each connection (its share of the cache), and the page cache"),
    );
    say("memtable", &format!("wal_autocheckpoint={checkpoint_pages} pages (as large)"));
    say("table", "k BLOB PRIMARY KEY, v BLOB, WITHOUT ROWID");
    say("statements", "prepared once for each thread");
    say("bulk load", "all rows in one transaction");
    say("writers", "one at a time, waiting on a lock instead of sleeping");
    say("checksums", "in the log only");
    if settings.compression != Compression::None {
        say("compression", "not honoured: there is none");
    }
    Ok(Box::new(Sqlite {
        file,
        pragmas,
        tables,
        options: effective,
        writer: Mutex::new(()),
        main: Mutex::new(main),
    }))
}

fn connect(file: &Path, pragmas: &str) -> Result<Connection> {
    let connection = Connection::open(file)?;
    connection.busy_timeout(Duration::from_secs(120))?;
    connection.execute_batch(pragmas)?;
    Ok(connection)
}

impl Engine for Sqlite {
    fn version(&self) -> String {
        rusqlite::version().to_owned()
    }
    fn effective_options(&self) -> EffectiveOptions {
        self.options.clone()
    }
    fn with_session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()> {
        let connection = connect(&self.file, &self.pragmas)?;
        work(&mut SqliteSession {
            writer: &self.writer,
            begin_read: connection.prepare("BEGIN")?,
            begin: connection.prepare("BEGIN IMMEDIATE")?,
            commit: connection.prepare("COMMIT")?,
            rollback: connection.prepare("ROLLBACK")?,
            tables: (0..self.tables).map(|_| None).collect(),
            connection: &connection,
        })
    }
    fn wait_idle(&self) -> Result<()> {
        let main = self.main.lock().map_err(|_| "a session panicked")?;
        Ok(main.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
    }
    fn close(self: Box<Self>) -> Result<()> {
        let main = self.main.into_inner().map_err(|_| "a session panicked")?;
        main.close().map_err(|(_, e)| e.into())
    }
    /// There is one writer at a time, so all levels behave alike.
    fn supports_level(&self, _level: Level) -> bool {
        true
    }
    fn max_value_bytes(&self) -> u64 {
        // SQLITE_MAX_LENGTH applies to the whole row.
        1_000_000_000 - 1000
    }
}

struct SqliteSession<'c> {
    writer: &'c Mutex<()>,
    begin_read: Statement<'c>,
    begin: Statement<'c>,
    commit: Statement<'c>,
    rollback: Statement<'c>,
    connection: &'c Connection,
    /// Statements of each table, prepared when it is first used.
    tables: Vec<Option<TableStatements<'c>>>,
}

struct TableStatements<'c> {
    put: Statement<'c>,
    delete: Statement<'c>,
    get: Statement<'c>,
    scan: Statement<'c>,
}

/// Returns the statements of a table.
fn statements_of<'a, 'c>(
    connection: &'c Connection,
    tables: &'a mut [Option<TableStatements<'c>>],
    family: usize,
) -> Result<&'a mut TableStatements<'c>> {
    let statements = tables.get_mut(family).ok_or("no such family")?;
    if statements.is_none() {
        let prepare = |text: &str| connection.prepare(&text.replace("kv", &format!("kv{family}")));
        *statements = Some(TableStatements {
            put: prepare(
                "INSERT INTO kv VALUES (?1, ?2) ON CONFLICT (k) DO UPDATE SET v = excluded.v",
            )?,
            delete: prepare("DELETE FROM kv WHERE k = ?1")?,
            get: prepare("SELECT v FROM kv WHERE k = ?1")?,
            scan: prepare("SELECT k, v FROM kv WHERE k >= ?1 ORDER BY k")?,
        });
    }
    statements.as_mut().ok_or_else(|| "the statements were just prepared".into())
}

struct SqliteTxn<'a, 'c> {
    connection: &'c Connection,
    tables: &'a mut [Option<TableStatements<'c>>],
}

impl Sink for SqliteTxn<'_, '_> {
    fn put(&mut self, family: usize, key: &[u8], value: &[u8]) -> Result<()> {
        statements_of(self.connection, self.tables, family)?.put.execute((key, value))?;
        Ok(())
    }
    fn delete(&mut self, family: usize, key: &[u8]) -> Result<()> {
        statements_of(self.connection, self.tables, family)?.delete.execute((key,))?;
        Ok(())
    }
}

impl Session for SqliteSession<'_> {
    fn write(&mut self, n: usize, fill: &mut dyn FnMut(&mut dyn Sink) -> Result<()>) -> Result<()> {
        let _only = self.writer.lock().map_err(|_| "a writer panicked")?;
        let mut writing = SqliteTxn { connection: self.connection, tables: &mut self.tables };
        if n == 1 {
            return fill(&mut writing);
        }
        self.begin.execute(())?;
        if let Err(e) = fill(&mut writing) {
            self.rollback.execute(())?;
            return Err(e);
        }
        self.commit.execute(())?;
        Ok(())
    }
    fn bulk_load(
        &mut self,
        n: u64,
        put: &mut dyn FnMut(u64, &mut dyn Sink) -> Result<()>,
    ) -> Result<()> {
        // A single row would not get a transaction; at least two rows are always one transaction,
        // however large.
        self.write(n.max(2) as usize, &mut |sink| (0..n).try_for_each(|i| put(i, sink)))
    }
    fn set_shared_view(&mut self, begin: bool) -> Result<bool> {
        if begin {
            self.begin_read.execute(())?
        } else {
            self.commit.execute(())?
        };
        Ok(true)
    }
    fn get(&mut self, family: usize, key: &[u8], see: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        get_value(statements_of(self.connection, &mut self.tables, family)?, key, see)
    }
    fn with_cursor(
        &mut self,
        family: usize,
        work: &mut dyn FnMut(&mut dyn Cursor) -> Result<()>,
    ) -> Result<()> {
        self.begin_read.execute(())?;
        let done = work(&mut SqliteCursor(
            &mut statements_of(self.connection, &mut self.tables, family)?.scan,
        ));
        self.commit.execute(())?;
        done
    }
    fn run_txn(&mut self, work: &mut dyn FnMut(&mut dyn TxnOps) -> Result<()>) -> Result<()> {
        let _only = self.writer.lock().map_err(|_| "a writer panicked")?;
        self.begin.execute(())?;
        let mut writing = SqliteTxn { connection: self.connection, tables: &mut self.tables };
        if let Err(e) = work(&mut writing) {
            self.rollback.execute(())?;
            return Err(e);
        }
        self.commit.execute(())?;
        Ok(())
    }
}

fn get_value(
    table: &mut TableStatements<'_>,
    key: &[u8],
    see: &mut dyn FnMut(Option<&[u8]>),
) -> Result<()> {
    let mut rows = table.get.query((key,))?;
    match rows.next()? {
        Some(row) => see(Some(row.get_ref(0)?.as_blob()?)),
        None => see(None),
    }
    Ok(())
}

impl TxnOps for SqliteTxn<'_, '_> {
    fn get(
        &mut self,
        family: usize,
        key: &[u8],
        _change: bool,
        see: &mut dyn FnMut(Option<&[u8]>),
    ) -> Result<()> {
        get_value(statements_of(self.connection, self.tables, family)?, key, see)
    }
    fn put(&mut self, family: usize, key: &[u8], value: &[u8]) -> Result<()> {
        Sink::put(self, family, key, value)
    }
}

struct SqliteCursor<'a, 'c>(&'a mut Statement<'c>);

impl Cursor for SqliteCursor<'_, '_> {
    fn scan(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let mut rows = self.0.query((key,))?;
        while let Some(row) = rows.next()? {
            if !see(row.get_ref(0)?.as_blob()?, row.get_ref(1)?.as_blob()?) {
                break;
            }
        }
        Ok(())
    }
}
