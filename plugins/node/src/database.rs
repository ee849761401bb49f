//! The database: open, close, writes, column families, maintenance.

use crate::error;
use crate::operations;
use crate::options::{NativeTxnOptions, durability, family_options};
use crate::snapshot::NativeSnapshot;
use crate::state::Shared;
use crate::task::{self, Reply};
use crate::transaction::NativeTransaction;
use crate::value::Output;
use crate::view::NativeView;
use napi::Env;
use napi::bindgen_prelude::{Uint8ArraySlice, Uint32ArraySlice};
use napi_derive::napi;
use perigee::{Db, Error, Options, Result, WriteOptions};
use std::sync::Arc;

/// Formats a report as JSON, with the field names of the crate.
pub fn to_json(report: &impl serde::Serialize) -> Result<Output> {
    serde_json::to_string(report)
        .map(Output::String)
        .map_err(|e| Error::internal(format!("format a report: {e}")))
}

/// An open database.
#[napi]
pub struct NativeDatabase {
    shared: Arc<Shared>,
}

/// Opens the database in the directory `path` with the options in the text of an options file.
#[napi]
pub fn open(env: Env, path: String, options: String, mode: u32) -> napi::Result<Reply> {
    task::run(env, mode, move || {
        let db = Db::open(path, Options::from_toml(&options)?)?;
        Ok(Output::Database(NativeDatabase { shared: Shared::new(db) }))
    })
}

impl NativeDatabase {
    fn run(
        &self,
        env: Env,
        mode: u32,
        work: impl FnOnce(&Arc<Shared>) -> Result<Output> + Send + 'static,
    ) -> napi::Result<Reply> {
        let shared = Arc::clone(&self.shared);
        task::run(env, mode, move || work(&shared))
    }
    fn run_unit(
        &self,
        env: Env,
        mode: u32,
        work: impl FnOnce(&Db) -> Result<()> + Send + 'static,
    ) -> napi::Result<Reply> {
        self.run(env, mode, move |shared| work(shared.db()).map(|()| Output::Undefined))
    }
}

#[napi]
impl NativeDatabase {
    /// Closes the database. Running operations finish or fail with `PERIGEE_CLOSED`.
    #[napi]
    pub fn close(&self, env: Env, mode: u32) -> napi::Result<Reply> {
        self.run_unit(env, mode, Db::close)
    }
    /// Commits groups of packed operations; `ends` has the end of each group in `packed`. Returns
    /// a list of errors, one for each group, or an empty list if all were committed.
    #[napi]
    pub fn write(
        &self,
        env: Env,
        packed: Uint8ArraySlice<'_>,
        ends: Uint32ArraySlice<'_>,
        durability_name: Option<String>,
        mode: u32,
    ) -> napi::Result<Reply> {
        let (packed, ends) = (packed.to_vec(), ends.to_vec());
        self.run(env, mode, move |shared| {
            let mut options = WriteOptions::new();
            options.durability = durability(durability_name.as_deref())?;
            operations::write_groups(shared, &packed, &ends, options).map(Output::Errors)
        })
    }
    /// Returns the column family `name`.
    #[napi]
    pub fn family(&self, env: Env, name: String) -> napi::Result<NativeView> {
        let family = self.shared.db().family(&name).map_err(|e| error::to_js(&env, &e))?;
        Ok(NativeView::live(family, &self.shared))
    }
    /// Creates a column family with options: lines of an options file. If `may_exist`, returns the
    /// one that exists.
    #[napi]
    pub fn create_family(
        &self,
        env: Env,
        name: String,
        lines: String,
        may_exist: bool,
        mode: u32,
    ) -> napi::Result<Reply> {
        self.run(env, mode, move |shared| {
            let options = family_options(&lines)?;
            let family = if may_exist {
                shared.db().family_or_create(&name, options)?
            } else {
                shared.db().create_family(&name, options)?
            };
            Ok(Output::View(NativeView::live(family, shared)))
        })
    }
    /// Drops a column family.
    #[napi]
    pub fn drop_family(&self, env: Env, name: String, mode: u32) -> napi::Result<Reply> {
        self.run_unit(env, mode, move |db| db.drop_family(&name))
    }
    /// Deletes everything in a column family.
    #[napi]
    pub fn clear_family(&self, env: Env, name: String, mode: u32) -> napi::Result<Reply> {
        self.run_unit(env, mode, move |db| db.admin().clear_family(&name))
    }
    /// Renames a column family.
    #[napi]
    pub fn rename_family(
        &self,
        env: Env,
        name: String,
        to: String,
        mode: u32,
    ) -> napi::Result<Reply> {
        self.run_unit(env, mode, move |db| db.admin().rename_family(&name, &to))
    }
    /// Returns the names of the column families, sorted.
    #[napi]
    pub fn families(&self) -> Vec<String> {
        self.shared.db().families()
    }
    /// Takes a snapshot.
    #[napi]
    pub fn snapshot(&self, env: Env) -> napi::Result<NativeSnapshot> {
        let snapshot = self.shared.db().snapshot().map_err(|e| error::to_js(&env, &e))?;
        Ok(NativeSnapshot::new(snapshot, &self.shared))
    }
    /// Begins a transaction.
    #[napi]
    pub fn begin(&self, env: Env, options: NativeTxnOptions) -> napi::Result<NativeTransaction> {
        let pessimistic = options.pessimistic.unwrap_or(false);
        let txn = options.to_engine().and_then(|options| self.shared.db().begin(options));
        let txn = txn.map_err(|e| error::to_js(&env, &e))?;
        Ok(NativeTransaction::new(txn, pessimistic, &self.shared))
    }
    /// Makes all acknowledged writes durable.
    #[napi]
    pub fn sync(&self, env: Env, mode: u32) -> napi::Result<Reply> {
        self.run_unit(env, mode, Db::sync)
    }
    /// Flushes all column families.
    #[napi]
    pub fn flush(&self, env: Env, mode: u32) -> napi::Result<Reply> {
        self.run_unit(env, mode, |db| db.admin().flush())
    }
    /// Compacts all column families.
    #[napi]
    pub fn compact(&self, env: Env, mode: u32) -> napi::Result<Reply> {
        self.run_unit(env, mode, |db| db.admin().compact())
    }
    /// Reclaims the space of deleted, overwritten and expired entries.
    #[napi]
    pub fn purge(&self, env: Env, mode: u32) -> napi::Result<Reply> {
        self.run_unit(env, mode, |db| db.admin().purge())
    }
    /// Waits until no flush or compaction is running or due.
    #[napi]
    pub fn wait_idle(&self, env: Env, mode: u32) -> napi::Result<Reply> {
        self.run_unit(env, mode, |db| db.admin().wait_idle())
    }
    /// Verifies every byte of the database; returns JSON.
    #[napi]
    pub fn verify(&self, env: Env, mode: u32) -> napi::Result<Reply> {
        self.run(env, mode, |shared| to_json(&shared.db().admin().verify()?))
    }
    /// Adds a generation to a backup directory; returns JSON.
    #[napi]
    pub fn backup(&self, env: Env, dir: String, mode: u32) -> napi::Result<Reply> {
        self.run(env, mode, move |shared| to_json(&shared.db().backups().create(dir)?))
    }
    /// Makes a copy of the database that can be opened; returns JSON.
    #[napi]
    pub fn checkpoint(&self, env: Env, dir: String, mode: u32) -> napi::Result<Reply> {
        self.run(env, mode, move |shared| to_json(&shared.db().backups().checkpoint(dir)?))
    }
    /// Returns the statistics as JSON.
    #[napi]
    pub fn stats(&self, env: Env, mode: u32) -> napi::Result<Reply> {
        self.run(env, mode, |shared| to_json(&shared.db().admin().stats()))
    }
    /// Returns the statistics in the OpenMetrics format.
    #[napi]
    pub fn metrics(&self, env: Env, mode: u32) -> napi::Result<Reply> {
        self.run(env, mode, |shared| Ok(Output::String(shared.db().admin().metrics())))
    }
}
