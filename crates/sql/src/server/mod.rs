//! The server for clients of PostgreSQL: [`Server`] accepts connections, each with a session of its
//! own.

pub mod options;
mod parameters;
mod rows;
mod startup;
mod handlers;

use crate::error::{Result, SqlError, SqlState};
use crate::limits::ACCEPT_PAUSE;
use crate::server::handlers::ConnectionHandlers;
use crate::server::options::{Identity, ServerOptions, load_tls};
use crate::server::startup::StartupSecrets;
use crate::session::SessionOptions;
use perigee::Db;
use pgwire::api::ConnectionManager;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// A server that clients of PostgreSQL connect to: psql, drivers, tools.
///
/// ```
/// use perigee_sql::{Server, ServerOptions};
/// # let db = perigee::example_db().unwrap();
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let options = ServerOptions::new("127.0.0.1:0".parse().unwrap());
/// let server = Server::bind(&db, options).await?;
/// assert!(server.address().ip().is_loopback());
/// // server.run(shutdown).await
/// # Ok::<(), perigee_sql::SqlError>(())
/// # }).unwrap();
/// ```
pub struct Server {
    db: Db,
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    secrets: Option<Arc<StartupSecrets>>,
    session: SessionOptions,
    connections: Arc<Semaphore>,
    running: Arc<ConnectionManager>,
    on_warning: Arc<dyn Fn(&str) + Send + Sync>,
}

/// Prints the address.
impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server({})", self.address)
    }
}

impl Server {
    /// Binds the address, without accepting connections yet.
    ///
    /// ```
    /// # use perigee_sql::{Server, ServerOptions};
    /// # let db = perigee::example_db().unwrap();
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let options = ServerOptions::new("127.0.0.1:0".parse().unwrap());
    /// let server = Server::bind(&db, options).await?;
    /// # Ok::<(), perigee_sql::SqlError>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// `UNSUPPORTED` if the address is not a loopback address and password, certificate or key are
    /// missing; `IO_ERROR` if the address is in use, or a file cannot be read.
    pub async fn bind(db: &Db, options: ServerOptions) -> Result<Server> {
        options.check()?;
        let (tls, certificate) = match &options.identity {
            Some(identity) => {
                let (acceptor, pem) = load_tls(identity)?;
                (Some(acceptor), Some(pem))
            }
            None => (None, None),
        };
        let secrets = match &options.password {
            Some(password) => {
                let secrets = StartupSecrets::new(&options.user, password, certificate)?;
                Some(Arc::new(secrets))
            }
            None => None,
        };
        let fails = |e: std::io::Error| {
            let text = format!("cannot listen on {}: {e}", options.address);
            SqlError::new(SqlState::IO_ERROR, text)
                .with_hint("choose another port with --listen ADDRESS:PORT")
        };
        let listener = TcpListener::bind(options.address).await.map_err(fails)?;
        let address = listener.local_addr().map_err(fails)?;
        Ok(Server {
            db: db.clone(),
            listener,
            address,
            tls,
            secrets,
            session: options.session,
            connections: Arc::new(Semaphore::new(options.connections)),
            running: Arc::new(ConnectionManager::new()),
            on_warning: options.on_warning,
        })
    }
    /// Returns the address, with the port that was chosen if it was 0.
    ///
    /// ```
    /// # use perigee_sql::{Server, ServerOptions};
    /// # let db = perigee::example_db().unwrap();
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let options = ServerOptions::new("127.0.0.1:0".parse().unwrap());
    /// let server = Server::bind(&db, options).await?;
    /// assert_ne!(server.address().port(), 0);
    /// # Ok::<(), perigee_sql::SqlError>(())
    /// # }).unwrap();
    /// ```
    pub fn address(&self) -> SocketAddr {
        self.address
    }
    /// Accepts connections until `shutdown` completes; then closes all of them, which rolls their
    /// transactions back.
    ///
    /// ```
    /// # use perigee_sql::{Server, ServerOptions};
    /// # let db = perigee::example_db().unwrap();
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let options = ServerOptions::new("127.0.0.1:0".parse().unwrap());
    /// let server = Server::bind(&db, options).await?;
    /// server.run(async {}).await; // ends at once
    /// # Ok::<(), perigee_sql::SqlError>(())
    /// # }).unwrap();
    /// ```
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let mut tasks = JoinSet::new();
        let mut failed = false;
        tokio::pin!(shutdown);
        loop {
            // More clients than connections wait in the queue of the listener.
            let permit = Arc::clone(&self.connections).acquire_owned();
            let accept = async { (permit.await, self.listener.accept().await) };
            let (permit, accepted) = tokio::select! {
                () = &mut shutdown => break,
                Some(_) = tasks.join_next(), if !tasks.is_empty() => continue,
                accepted = accept => accepted,
            };
            let socket = match accepted {
                Ok((socket, _)) => socket,
                Err(e) => {
                    // Usually the limit of open files: the listener stays ready, and each attempt
                    // fails until a connection ends.
                    if !std::mem::replace(&mut failed, true) {
                        (self.on_warning)(&format!("cannot accept connections: {e}"));
                    }
                    tokio::select! {
                        () = &mut shutdown => break,
                        () = tokio::time::sleep(ACCEPT_PAUSE) => continue,
                    }
                }
            };
            failed = false;
            let Ok(handlers) = self.begin_connection() else { continue };
            let tls = self.tls.clone();
            tasks.spawn(async move {
                // Errors of statements are reported to the client; those of the socket end it.
                let _ = pgwire::tokio::process_socket(socket, tls, handlers).await;
                drop(permit);
            });
        }
        tasks.shutdown().await;
    }
    fn begin_connection(&self) -> Result<ConnectionHandlers> {
        let session = crate::session::Session::new(&self.db, self.session.clone())?;
        let running = Arc::clone(&self.running);
        Ok(ConnectionHandlers::new(session, self.secrets.clone(), running))
    }
}

/// Certificate and key of a server that accepts connections from other machines.
impl Identity {
    /// Names the files, in PEM format.
    ///
    /// ```
    /// let identity = perigee_sql::Identity::new("server.crt", "server.key");
    /// ```
    pub fn new(
        certificate: impl Into<std::path::PathBuf>,
        key: impl Into<std::path::PathBuf>,
    ) -> Identity {
        Identity { certificate: certificate.into(), key: key.into() }
    }
}
