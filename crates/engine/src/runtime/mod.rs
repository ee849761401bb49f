//! Services for all other parts of the engine, [`Runtime`]: the environment and the directory,
//! health, the signal that waiting threads wait for, the logical clock, counters, events and the
//! info log. Knows nothing about column families, the log or jobs.

pub mod health;
pub mod dir_sync;
pub mod signal;
pub mod logical_clock;
pub mod listener_queue;
pub mod info_log;
pub mod events;

use crate::settings::Settings;
use dir_sync::DirSync;
use events::EngineEvent;
use health::Health;
use info_log::InfoLog;
use listener_queue::ListenerQueue;
use logical_clock::LogicalClock;
use perigee_base::{Counters, Operation, Result};
use perigee_env::{Dir, Env};
use signal::Signal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Identifies a database, and the boot of the machine during which its files are written.
#[derive(Clone, Copy, Debug)]
pub struct DatabaseIdentity {
    /// Id of the database.
    pub database: u64,
    /// Boot id of the machine now.
    pub boot: u64,
}

/// What an open database runs on. The lowest subsystem: all others hold a reference to it.
#[derive(Debug)]
pub struct Runtime {
    /// The environment: file system, clock, random numbers.
    pub env: Env,
    /// The database directory.
    pub dir: Arc<dyn Dir>,
    /// The settings given at open.
    pub settings: Settings,
    /// Identifies the database and the boot of the machine.
    pub identity: DatabaseIdentity,
    /// Counters.
    pub counters: Arc<Counters>,
    /// Whether the database may be read and written, and background errors.
    pub health: Health,
    /// Notified when anything changes that a thread may wait for.
    pub signal: Signal,
    /// The clock that decides whether entries have expired.
    pub logical_clock: Arc<LogicalClock>,
    dir_sync: Arc<DirSync>,
    info_log: InfoLog,
    listener_queue: ListenerQueue,
    /// Set when jobs must stop.
    closing: AtomicBool,
}

impl Runtime {
    /// Creates the runtime of a database that is being opened; the info log is written unless the
    /// database is read-only. `dir_sync` makes changes of the directory durable.
    pub fn new(
        env: Env,
        dir: Arc<dyn Dir>,
        settings: Settings,
        identity: DatabaseIdentity,
        counters: Arc<Counters>,
        logical_clock: Arc<LogicalClock>,
        dir_sync: Arc<DirSync>,
    ) -> Runtime {
        let log_bytes = if settings.read_only { 0 } else { settings.log_file_bytes };
        let (log_dir, clock) = (Arc::clone(&dir), Arc::clone(&env.clock));
        Runtime {
            listener_queue: ListenerQueue::new(settings.listener.clone()),
            info_log: InfoLog::new(log_dir, clock, log_bytes, settings.log_files_kept),
            env,
            dir,
            settings,
            identity,
            counters,
            health: Health::default(),
            signal: Signal::new(),
            logical_clock,
            dir_sync,
            closing: AtomicBool::new(false),
        }
    }
    /// Reports an event to the info log, the listener and tracing.
    pub fn report_event(&self, event: &EngineEvent<'_>) {
        if events::emit(&self.info_log, &self.listener_queue, event) {
            self.signal.notify();
        }
    }
    /// Returns the queue of the log listener.
    pub fn listener_queue(&self) -> &ListenerQueue {
        &self.listener_queue
    }
    /// Returns the current time if this call of `operation` is to be measured; `before` is the
    /// number of earlier calls.
    #[inline]
    pub fn start_timer(&self, operation: Operation, before: u64) -> Option<u64> {
        let measured = self.settings.latency_stats && before % operation.one_in() == 0;
        measured.then(|| self.env.clock.monotonic_ns())
    }
    /// Ends a measurement begun with [`Runtime::start_timer`].
    #[inline]
    pub fn stop_timer(&self, operation: Operation, started: Option<u64>) {
        if let Some(started) = started {
            let took = self.env.clock.monotonic_ns().saturating_sub(started);
            self.counters.latency.histogram(operation).record(took);
        }
    }
    /// Makes files created in the database directory durable.
    pub fn sync_dir(&self) -> Result<()> {
        self.dir_sync.sync(&self.health)
    }
    /// Returns true if the database is closing: jobs and loads must stop.
    pub fn is_closing(&self) -> bool {
        self.closing.load(SeqCst)
    }
    /// Requests that jobs and loads stop. The caller notifies the signal.
    pub fn begin_closing(&self) {
        self.closing.store(true, SeqCst);
    }
}
