//! The beginning of a connection: TLS is demanded where there is a password, and the password is
//! checked by SCRAM-SHA-256.

use crate::constants::POSTGRES_VERSION;
use crate::error::{Result, SqlError, SqlState};
use async_trait::async_trait;
use futures::Sink;
use pgwire::api::auth::sasl::SASLAuthStartupHandler;
use pgwire::api::auth::sasl::scram::{SCRAM_ITERATIONS, ScramAuth, gen_salted_password};
use pgwire::api::auth::{
    AuthDriver, AuthSource, DefaultServerParameterProvider, LoginInfo, Password, StartupHandler,
    protocol_negotiation, save_startup_parameters_to_metadata,
};
use pgwire::api::{ClientInfo, ConnectionManager};
use pgwire::error::{ErrorInfo, PgWireError, PgWireResult};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use std::fmt;
use std::sync::Arc;

/// Size of the salt of the password.
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

/// Returns the parameters that clients receive once they are authenticated, with or without a
/// password.
fn parameters() -> DefaultServerParameterProvider {
    let mut parameters = DefaultServerParameterProvider::default();
    parameters.server_version = POSTGRES_VERSION.to_owned();
    parameters.is_superuser = false;
    parameters
}

/// See the module.
pub enum Startup {
    Open(OpenStartup),
    Password(PasswordStartup),
}

/// A connection that needs no password.
pub struct OpenStartup(AuthDriver<DefaultServerParameterProvider>);

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
            let driver = AuthDriver::new(parameters()).with_connection_manager(connections);
            return Startup::Open(OpenStartup(driver));
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
            Startup::Open(open) => {
                let PgWireFrontendMessage::Startup(startup) = message else { return Ok(()) };
                protocol_negotiation(client, &startup).await?;
                save_startup_parameters_to_metadata(client, &startup);
                open.0.complete_authentication(client, None).await
            }
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

#[cfg(test)]
mod tests {
    use crate::{Server, ServerOptions};
    use std::net::SocketAddr;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    /// Begins a connection, sends `more`, and returns the messages that arrive until the server
    /// waits: their types and bodies.
    async fn startup_messages(address: SocketAddr, more: &[u8]) -> Vec<(u8, Vec<u8>)> {
        let mut socket = TcpStream::connect(address).await.unwrap();
        let body = b"\0\x03\0\0user\0perigee\0database\0perigee\0\0";
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        socket.write_all(&[&length, &body[..], more].concat()).await.unwrap();
        let mut messages = Vec::new();
        loop {
            let read = tokio::time::timeout(Duration::from_millis(500), socket.read_u8()).await;
            let Ok(Ok(kind)) = read else { return messages };
            let length = socket.read_u32().await.unwrap() as usize;
            let mut body = vec![0; length - 4];
            socket.read_exact(&mut body).await.unwrap();
            messages.push((kind, body));
        }
    }

    async fn serve(options: ServerOptions) -> SocketAddr {
        let db = perigee::example_db().unwrap();
        let server = Server::bind(&db, options).await.unwrap();
        let address = server.address();
        tokio::spawn(server.run(std::future::pending()));
        address
    }

    /// Statement as a message of the simple protocol.
    fn query(sql: &str) -> Vec<u8> {
        let length = u32::try_from(sql.len() + 5).unwrap().to_be_bytes();
        [b"Q", &length[..], sql.as_bytes(), b"\0"].concat()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn clients_without_password_receive_the_parameters_of_this_server() {
        let address = serve(ServerOptions::new("127.0.0.1:0".parse().unwrap())).await;
        let messages = startup_messages(address, &[]).await;
        for parameter in [&b"server_version\x0016.0\0"[..], b"is_superuser\0off\0"] {
            let parameter = (b'S', parameter.to_vec());
            assert!(messages.contains(&parameter), "{messages:?}");
        }
        assert_eq!(messages.first(), Some(&(b'R', vec![0; 4])));
        assert_eq!(messages.last(), Some(&(b'Z', b"I".to_vec())));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn nothing_is_sent_before_the_password() {
        let options = ServerOptions::new("127.0.0.1:0".parse().unwrap()).password("a secret word");
        let address = serve(options).await;
        // A demand for SASL only, also if the client sends a statement already.
        for more in [Vec::new(), query("SHOW server_version")] {
            let messages = startup_messages(address, &more).await;
            assert_eq!(messages.len(), 1, "{messages:?}");
            let (kind, body) = &messages[0];
            assert_eq!((*kind, &body[..4]), (b'R', &[0, 0, 0, 10][..]));
        }
    }
}
