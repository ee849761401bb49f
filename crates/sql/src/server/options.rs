//! [`ServerOptions`]: address, password and certificate, and which combinations are safe.

use crate::error::{Result, SqlError, SqlState};
use crate::limits::{CONNECTIONS_DEFAULT, PASSWORD_CHARS_MIN};
use crate::session::SessionOptions;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Files with the certificate chain and the private key, in PEM format.
#[derive(Clone, Debug)]
pub struct Identity {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// Options of [`Server`](crate::Server).
///
/// ```
/// use perigee_sql::{Identity, ServerOptions};
/// let local = ServerOptions::new("127.0.0.1:5433".parse().unwrap());
/// let remote = ServerOptions::new("0.0.0.0:5433".parse().unwrap())
///     .password("a long secret")
///     .identity(Identity::new("server.crt", "server.key"));
/// ```
#[derive(Clone)]
pub struct ServerOptions {
    pub(crate) address: SocketAddr,
    pub(crate) user: String,
    pub(crate) password: Option<String>,
    pub(crate) identity: Option<Identity>,
    pub(crate) connections: usize,
    pub(crate) session: SessionOptions,
    pub(crate) on_warning: Arc<dyn Fn(&str) + Send + Sync>,
}

/// Prints everything but the password.
impl std::fmt::Debug for ServerOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerOptions")
            .field("address", &self.address)
            .field("user", &self.user)
            .field("has_password", &self.password.is_some())
            .field("identity", &self.identity)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

impl ServerOptions {
    /// Returns options for a server at a loopback address: any local program can connect.
    ///
    /// ```
    /// let options = perigee_sql::ServerOptions::new("127.0.0.1:5433".parse().unwrap());
    /// ```
    pub fn new(address: SocketAddr) -> ServerOptions {
        ServerOptions {
            address,
            user: "perigee".to_owned(),
            password: None,
            identity: None,
            connections: CONNECTIONS_DEFAULT,
            session: SessionOptions::default(),
            on_warning: Arc::new(|_| {}),
        }
    }
    /// Sets the name of the user (default `perigee`); any name is accepted without a password.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> ServerOptions {
        self.user = user.into();
        self
    }
    /// Demands a password, which clients prove by SCRAM-SHA-256.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> ServerOptions {
        self.password = Some(password.into());
        self
    }
    /// Offers TLS with this certificate. With a password and an identity, connections without TLS
    /// are refused.
    #[must_use]
    pub fn identity(mut self, identity: Identity) -> ServerOptions {
        self.identity = Some(identity);
        self
    }
    /// Sets the number of connections at a time (default 100); others wait.
    #[must_use]
    pub fn connections(mut self, connections: usize) -> ServerOptions {
        self.connections = connections.max(1);
        self
    }
    /// Sets the options of sessions.
    #[must_use]
    pub fn session(mut self, session: SessionOptions) -> ServerOptions {
        self.session = session;
        self
    }
    /// Sets what is called with a message if the server cannot accept connections, for example
    /// because too many files are open. It is called once, and again only after an accepted one.
    #[must_use]
    pub fn on_warning(mut self, report: impl Fn(&str) + Send + Sync + 'static) -> ServerOptions {
        self.on_warning = Arc::new(report);
        self
    }
    /// Refuses what would let others on the network read the database or the password.
    pub(crate) fn check(&self) -> Result<()> {
        if let Some(password) = &self.password
            && password.chars().count() < PASSWORD_CHARS_MIN
        {
            let text = format!("a password of less than {PASSWORD_CHARS_MIN} characters");
            return Err(SqlError::new(SqlState::INVALID_VALUE, text)
                .with_hint("choose a longer one, for example 20 random letters"));
        }
        if self.address.ip().is_loopback() {
            return Ok(());
        }
        let missing = match (&self.password, &self.identity) {
            (Some(_), Some(_)) => return Ok(()),
            (None, None) => "a password and a certificate",
            (None, Some(_)) => "a password",
            (Some(_), None) => "a certificate",
        };
        let text = format!("other machines can reach {}: that needs {missing}", self.address);
        Err(SqlError::new(SqlState::UNSUPPORTED, text)
            .with_hint("pass --password-file, --tls-cert and --tls-key, or listen on 127.0.0.1"))
    }
}

/// Reads certificate and key; returns the certificate in PEM format too.
pub fn load_tls(identity: &Identity) -> Result<(TlsAcceptor, Vec<u8>)> {
    let fails = |file: &PathBuf, e: &dyn std::fmt::Display| {
        let text = format!("cannot use {}: {e}", file.display());
        SqlError::new(SqlState::IO_ERROR, text)
            .with_hint("pass a certificate chain and its private key, both in PEM format")
    };
    let (certificate, key) = (&identity.certificate, &identity.key);
    let pem = std::fs::read(certificate).map_err(|e| fails(certificate, &e))?;
    let chain = CertificateDer::pem_slice_iter(&pem).collect::<std::result::Result<Vec<_>, _>>();
    let chain = chain.map_err(|e| fails(certificate, &e))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|e| fails(key, &e))?;
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|config| config.with_no_client_auth().with_single_cert(chain, private));
    let config = config.map_err(|e| fails(certificate, &e))?;
    Ok((TlsAcceptor::from(Arc::new(config)), pem))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(address: &str) -> ServerOptions {
        ServerOptions::new(address.parse().unwrap())
    }

    #[test]
    fn other_addresses_than_loopback_need_password_and_certificate() {
        let identity = || Identity::new("c", "k");
        for address in ["127.0.0.1:1", "127.0.0.2:1", "[::1]:1"] {
            options(address).check().unwrap();
        }
        for address in ["0.0.0.0:1", "10.1.2.3:1", "[::]:1"] {
            let options = || options(address);
            options().check().unwrap_err();
            options().password("long enough").check().unwrap_err();
            options().identity(identity()).check().unwrap_err();
            options().password("long enough").identity(identity()).check().unwrap();
        }
        options("127.0.0.1:1").password("short").check().unwrap_err();
    }

    #[test]
    fn the_password_is_not_printed() {
        assert!(
            !format!("{:?}", options("127.0.0.1:1").password("secret password")).contains("secret")
        );
    }
}
