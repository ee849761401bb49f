//! Backup directories and repair: functions that need no open database.

use crate::database::to_json;
use crate::task::{self, Reply};
use napi::Env;
use napi_derive::napi;
use perigee::backup::BackupDir;

/// Converts the number of a generation.
fn generation(number: Option<f64>) -> Option<u64> {
    number.map(|n| n as u64)
}

/// Lists the generations of a backup directory; returns JSON.
#[napi]
pub fn list_backups(env: Env, dir: String, mode: u32) -> napi::Result<Reply> {
    task::run(env, mode, move || to_json(&BackupDir::open(dir).list()?))
}

/// Verifies a backup directory; returns JSON.
#[napi]
pub fn verify_backup(env: Env, dir: String, number: Option<f64>, mode: u32) -> napi::Result<Reply> {
    task::run(env, mode, move || to_json(&BackupDir::open(dir).verify(generation(number))?))
}

/// Restores a generation into a new directory; returns JSON.
#[napi]
pub fn restore_backup(
    env: Env,
    dir: String,
    target: String,
    number: Option<f64>,
    mode: u32,
) -> napi::Result<Reply> {
    task::run(env, mode, move || {
        to_json(&BackupDir::open(dir).restore(generation(number), target)?)
    })
}

/// Removes all but the newest generations; returns JSON.
#[napi]
pub fn prune_backups(env: Env, dir: String, keep: u32, mode: u32) -> napi::Result<Reply> {
    task::run(env, mode, move || to_json(&BackupDir::open(dir).prune(keep as usize)?))
}

/// Copies what is readable of a damaged database into a new one; returns JSON.
#[napi]
pub fn repair(env: Env, source: String, target: String, mode: u32) -> napi::Result<Reply> {
    task::run(env, mode, move || to_json(&perigee::repair(source, target)?))
}

/// Returns the version of the native module.
#[napi]
pub fn version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

/// Returns the default options of a database as the text of an options file.
#[napi]
pub fn default_options() -> String {
    perigee::Options::new().to_toml()
}
