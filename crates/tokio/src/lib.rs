//! Perigee for async programs: the calls of the crate `perigee` as futures, and ranges as streams.
//!
//! Each call runs on a blocking thread of the tokio runtime, so a task that waits for a sync, a
//! lock or a read from disk does not stop the other tasks of its thread. Handing a call to such a
//! thread and back takes 5 to 20 us, a get of a cached entry about 1 us: code that makes many calls
//! makes them together, with [`Family::multi_get`], [`Db::write`], [`Db::transaction`] or
//! [`Db::run`], and code that knows its data to be cached calls [`Db::blocking`] directly.
//!
//! ```
//! use futures_util::TryStreamExt;
//! use perigee_tokio::Db;
//! # use perigee::env::{Env, fs::memory::SimDisk};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> perigee::Result<()> {
//! # let options = perigee::Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() });
//! let db = Db::open("/moon.db", options).await?;
//! db.put("moon", "full").await?;
//! let tides = db.family_or_create("tides", Default::default()).await?;
//! tides.put("06:12", "high").await?;
//! let entries: Vec<_> = tides.range("06:00".."12:00").try_collect().await?;
//! assert_eq!(entries[0].1, "high");
//! db.close().await
//! # }
//! ```
//!
//! **Cancellation.** A future that is dropped before it is ready does not stop a call that has
//! begun: a write may still be committed. What began, ends; nothing is ever half done.
//!
//! **Runtime.** The futures must be polled in a tokio runtime; they panic elsewhere, as
//! `tokio::task::spawn_blocking` does. Its limit of blocking threads (512 by default) bounds the
//! number of calls that run at a time.

mod stream;
mod family;
mod txn;
mod db;

pub use db::Db;
pub use family::Family;
pub use stream::EntryStream;
pub use txn::Txn;

use perigee::{Error, ErrorKind};

/// Runs a call on a blocking thread.
async fn run_blocking<T, E>(call: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, E>
where
    T: Send + 'static,
    E: From<Error> + Send + 'static,
{
    match tokio::task::spawn_blocking(call).await {
        Ok(done) => done,
        Err(e) => Err(join_error(e).into()),
    }
}

/// Passes on the panic of a call; returns the error for a call that a runtime did not begin.
fn join_error(e: tokio::task::JoinError) -> Error {
    match e.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => Error::new(
            ErrorKind::Interrupted,
            "the runtime is shutting down: the call did not begin, and nothing was changed",
        ),
    }
}
