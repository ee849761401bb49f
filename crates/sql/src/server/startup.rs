//! The beginning of a connection: TLS is demanded where there is a password, and the password is
//! checked by SCRAM-SHA-256.

use crate::error::{Result, SqlError, SqlState};
use crate::functions::POSTGRES_VERSION;
use async_trait::async_trait;
use futures::Sink;
use pgwire::api::auth::noop::NoopStartupHandler;
use pgwire::api::auth::sasl::SASLAuthStartupHandler;
use pgwire::api::auth::sasl::scram::{SCRAM_ITERATIONS, ScramAuth, gen_salted_password};
use pgwire::api::auth::{
    AuthSource, DefaultServerParameterProvider, LoginInfo, Password, StartupHandler,
};
use pgwire::api::{ClientInfo, ConnectionManager};
use pgwire::error::{ErrorInfo, PgWireError, PgWireResult};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use std::fmt;
use std::sync::Arc;

/// Bytes of the salt of the password.
const SALT_BYTES: usize = 16;

/// The user, and what is derived from the password: the password itself is not kept.
pub struct StartupSecrets {
    user: String,
    salt: [u8; SALT_BYTES],
    salted_password: Vec<u8>,
    /// For channel binding, in PEM format; `None`: TLS is not configured.
    certificate: Option<Vec<u8>>,
}

impl StartupSecrets {
    pub fn new(user: &str, password: &str, certificate: Option<Vec<u8>>) -> Result<StartupSecrets> {
        let mut salt = [0; SALT_BYTES];
        getrandom::fill(&mut salt).map_err(|e| {
            SqlError::new(SqlState::IO_ERROR, format!("no random numbers from the system: {e}"))
        })?;
        let salted_password = gen_salted_password(password, &salt, SCRAM_ITERATIONS);
        Ok(StartupSecrets { user: user.to_owned(), salt, salted_password, certificate })
    }
}

/// Prints no secrets.
impl fmt::Debug for StartupSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StartupSecrets({:?})", self.user)
    }
}

/// Looks the password of a user up.
#[derive(Debug)]
struct SecretSource(Arc<StartupSecrets>);

#[async_trait]
impl AuthSource for SecretSource {
    async fn get_password(&self, login: &LoginInfo) -> PgWireResult<Password> {
        let user = login.user().unwrap_or_default();
        if user != self.0.user {
            return Err(PgWireError::InvalidPassword(user.to_owned()));
        }
        Ok(Password::new(Some(self.0.salt.to_vec()), self.0.salted_password.clone()))
    }
}

fn parameters() -> DefaultServerParameterProvider {
    let mut parameters = DefaultServerParameterProvider::default();
    parameters.server_version = POSTGRES_VERSION.to_owned();
    parameters.is_superuser = false;
    parameters
}

/// Begins a connection without a password.
struct OpenStartup(Arc<ConnectionManager>);

impl NoopStartupHandler for OpenStartup {
    fn connection_manager(&self) -> Option<Arc<ConnectionManager>> {
        Some(Arc::clone(&self.0))
    }
}

/// See the module.
pub enum Startup {
    Open(OpenStartupHandler),
    Password(PasswordStartup),
}

/// A connection that needs no password.
pub struct OpenStartupHandler(OpenStartup);

/// A connection that needs the password.
pub struct PasswordStartup {
    handler: SASLAuthStartupHandler<DefaultServerParameterProvider>,
    demands_tls: bool,
}

impl Startup {
    pub fn new(
        secrets: Option<Arc<StartupSecrets>>,
        connections: Arc<ConnectionManager>,
    ) -> Startup {
        let Some(secrets) = secrets else {
            return Startup::Open(OpenStartupHandler(OpenStartup(connections)));
        };
        let mut scram = ScramAuth::new(Arc::new(SecretSource(Arc::clone(&secrets))));
        scram.set_iterations(SCRAM_ITERATIONS);
        if let Some(pem) = &secrets.certificate {
            // Channel binding is offered for the kinds of certificates that support it.
            let _ = scram.configure_certificate(pem);
        }
        let handler = SASLAuthStartupHandler::new(Arc::new(parameters()))
            .with_scram(scram)
            .with_connection_manager(connections);
        let demands_tls = secrets.certificate.is_some();
        Startup::Password(PasswordStartup { handler, demands_tls })
    }
}

#[async_trait]
impl StartupHandler for Startup {
    async fn on_startup<C>(
        &self,
        client: &mut C,
        message: PgWireFrontendMessage,
    ) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: fmt::Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        match self {
            Startup::Open(open) => open.0.on_startup(client, message).await,
            Startup::Password(password) => {
                if password.demands_tls && !client.is_secure() {
                    let text = "the server accepts TLS connections only";
                    let mut error =
                        ErrorInfo::new("FATAL".to_owned(), "28000".to_owned(), text.to_owned());
                    error.hint = Some("connect with sslmode=require".to_owned());
                    return Err(PgWireError::UserError(Box::new(error)));
                }
                password.handler.on_startup(client, message).await
            }
        }
    }
}
