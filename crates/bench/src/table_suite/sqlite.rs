//! SQLite as its documentation recommends: write-ahead log, prepared statements, one connection per
//! thread, one transaction per bulk load.

use super::dataset::{Dataset, RowKey};
use super::store::{RowSession, RowStore};
use crate::engine::{EffectiveOptions, Result};
use crate::settings::{Compression, RowDurability, Settings, SqliteTable, human_bytes};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Statement, ToSql};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

struct SqliteRows {
    file: PathBuf,
    pragmas: String,
    options: EffectiveOptions,
    /// SQLite admits one writer and makes the others sleep and retry; this lock avoids the
    /// sleeping.
    writer: Mutex<()>,
    /// Keeps the log alive between sessions and is closed last.
    main: Mutex<Connection>,
}

/// Opens or creates the database.
pub fn open<K: RowKey>(dir: &Path, settings: &Settings) -> Result<Box<dyn RowStore<K>>> {
    std::fs::create_dir_all(dir)?;
    let file = dir.join("rows.sqlite");
    let cache_kib = (settings.cache / settings.threads.max(1) as u64 / 1024).max(1);
    let checkpoint_pages = (settings.memtable / 4096).max(1);
    let synchronous = match settings.rows.durability {
        RowDurability::Power => "FULL",
        RowDurability::Crash => "NORMAL",
        RowDurability::Close => "OFF",
    };
    let pragmas = format!(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous={synchronous}; PRAGMA cache_size=-{cache_kib}; \
         PRAGMA wal_autocheckpoint={checkpoint_pages}; PRAGMA temp_store=MEMORY;"
    );
    let without_rowid = match settings.rows.sqlite_table {
        SqliteTable::Auto => K::WITHOUT_ROWID,
        SqliteTable::Rowid => false,
        SqliteTable::WithoutRowid => true,
    };
    let kind = if without_rowid { " WITHOUT ROWID" } else { "" };
    let table = format!("(id {} PRIMARY KEY NOT NULL, value BLOB NOT NULL){kind}", K::SQL_TYPE);
    let main = connect(&file, &pragmas)?;
    main.execute_batch(&format!("CREATE TABLE IF NOT EXISTS rows {table}"))?;
    let cache = human_bytes(cache_kib << 10);
    let mut effective = vec![
        ("durability", format!("WAL, synchronous={synchronous}")),
        ("memtable", format!("wal_autocheckpoint={checkpoint_pages} pages (as large)")),
        ("cache", format!("{cache} for each connection (its share), and the page cache")),
        ("table", table),
        ("bulk load", "all rows in one transaction".to_owned()),
        ("statements", "prepared once for each thread; values are borrowed, not copied".to_owned()),
        ("writers", "one at a time, waiting on a lock instead of sleeping".to_owned()),
    ];
    if settings.compression != Compression::None {
        effective.push(("compression", "not honoured: there is none".to_owned()));
    }
    Ok(Box::new(SqliteRows {
        file,
        pragmas,
        options: effective.into_iter().map(|(k, v)| (k.to_owned(), v)).collect(),
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

/// A key as a parameter of a statement.
struct SqlKey<'k, K>(&'k K);

impl<K: RowKey> ToSql for SqlKey<'_, K> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(self.0.to_sql()))
    }
}

impl<K: RowKey> RowStore<K> for SqliteRows {
    fn version(&self) -> String {
        rusqlite::version().to_owned()
    }
    fn effective_options(&self) -> EffectiveOptions {
        self.options.clone()
    }
    fn load(&self, data: &Dataset<K>, sorted: bool) -> Result<()> {
        let main = self.main.lock().map_err(|_| "a session panicked")?;
        let mut insert = main.prepare(INSERT)?;
        main.execute_batch("BEGIN IMMEDIATE")?;
        let mut value = Vec::new();
        let loaded = data.load_order(sorted).try_for_each(|i| -> Result<()> {
            data.write_value(i, 1, &mut value);
            insert.execute((SqlKey(&data.key(i)), &value[..]))?;
            Ok(())
        });
        if loaded.is_err() {
            main.execute_batch("ROLLBACK")?;
            return loaded;
        }
        main.execute_batch("COMMIT")?;
        Ok(())
    }
    fn with_session(
        &self,
        work: &mut dyn FnMut(&mut dyn RowSession<K>) -> Result<()>,
    ) -> Result<()> {
        let connection = connect(&self.file, &self.pragmas)?;
        work(&mut SqliteSession {
            writer: &self.writer,
            begin_read: connection.prepare("BEGIN")?,
            begin: connection.prepare("BEGIN IMMEDIATE")?,
            commit: connection.prepare("COMMIT")?,
            rollback: connection.prepare("ROLLBACK")?,
            insert: connection.prepare(INSERT)?,
            put: connection.prepare(PUT)?,
            get: connection.prepare("SELECT value FROM rows WHERE id = ?1")?,
            range: connection
                .prepare("SELECT id, value FROM rows WHERE id >= ?1 ORDER BY id LIMIT ?2")?,
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
}

const INSERT: &str = "INSERT INTO rows VALUES (?1, ?2)";
const PUT: &str =
    "INSERT INTO rows VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET value = excluded.value";

struct SqliteSession<'c> {
    writer: &'c Mutex<()>,
    begin_read: Statement<'c>,
    begin: Statement<'c>,
    commit: Statement<'c>,
    rollback: Statement<'c>,
    insert: Statement<'c>,
    put: Statement<'c>,
    get: Statement<'c>,
    range: Statement<'c>,
}

impl<'c> SqliteSession<'c> {
    fn lock_writer(&self) -> Result<MutexGuard<'c, ()>> {
        Ok(self.writer.lock().map_err(|_| "a writer panicked")?)
    }
    /// Ends a transaction: commits it, or rolls it back after an error.
    fn end_txn(&mut self, result: Result<()>) -> Result<()> {
        if result.is_ok() {
            self.commit.execute(())?
        } else {
            self.rollback.execute(())?
        };
        result
    }
}

fn get_value<K: RowKey>(
    get: &mut Statement<'_>,
    key: K,
    see: &mut dyn FnMut(Option<&[u8]>),
) -> Result<()> {
    let mut rows = get.query((SqlKey(&key),))?;
    match rows.next()? {
        Some(row) => see(Some(row.get_ref(0)?.as_blob()?)),
        None => see(None),
    }
    Ok(())
}

impl<K: RowKey> RowSession<K> for SqliteSession<'_> {
    fn insert_rows(&mut self, rows: &[(K, Vec<u8>)]) -> Result<()> {
        let _only = self.lock_writer()?;
        self.begin.execute(())?;
        let insert = &mut self.insert;
        let inserted = rows.iter().try_for_each(|(key, value)| -> Result<()> {
            insert.execute((SqlKey(key), &value[..]))?;
            Ok(())
        });
        self.end_txn(inserted)
    }
    fn insert(&mut self, key: K, value: &[u8]) -> Result<()> {
        let _only = self.lock_writer()?;
        self.insert.execute((SqlKey(&key), value))?;
        Ok(())
    }
    fn put(&mut self, key: K, value: &[u8]) -> Result<()> {
        let _only = self.lock_writer()?;
        self.put.execute((SqlKey(&key), value))?;
        Ok(())
    }
    fn get(&mut self, key: K, see: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        get_value(&mut self.get, key, see)
    }
    fn get_in_txn(
        &mut self,
        keys: &mut dyn Iterator<Item = K>,
        see: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        self.begin_read.execute(())?;
        let get = &mut self.get;
        let read = keys
            .enumerate()
            .try_for_each(|(at, key)| get_value(get, key, &mut |value| see(at, value)));
        self.end_txn(read)
    }
    fn range(&mut self, from: K, limit: usize, see: &mut dyn FnMut(K, &[u8])) -> Result<()> {
        let mut rows = self.range.query((SqlKey(&from), limit as i64))?;
        while let Some(row) = rows.next()? {
            let key: ValueRef<'_> = row.get_ref(0)?;
            let key = K::from_sql(key).ok_or("a key has another type")?;
            see(key, row.get_ref(1)?.as_blob()?);
        }
        Ok(())
    }
}
