//! Queries of a connection: the simple protocol (text, several statements) and the extended one
//! (prepared statements, parameters, rows in portions).

use crate::error::SqlError;
use crate::server::parameters::{decode_parameter, described_type};
use crate::server::rows::{describe_columns, encode_rows};
use crate::server::startup::{Startup, StartupSecrets};
use crate::session::{Outcome, Prepared, Session};
use async_trait::async_trait;
use datafusion::common::ScalarValue;
use futures::{Sink, SinkExt, StreamExt, stream};
use pgwire::api::auth::StartupHandler;
use pgwire::api::cancel::{CancelHandler, DefaultCancelHandler};
use pgwire::api::portal::{Format, Portal};
use pgwire::api::query::{ExtendedQueryHandler, SimpleQueryHandler};
use pgwire::api::results::{FieldInfo, QueryResponse, Response, Tag};
use pgwire::api::stmt::QueryParser;
use pgwire::api::store::{Entry, PortalStore};
use pgwire::api::{
    ClientInfo, ClientPortalStore, ConnectionManager, DEFAULT_NAME, PgWireServerHandlers, Type,
};
use pgwire::error::{ErrorInfo, PgWireError, PgWireResult};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::data::{NoData, ParameterDescription};
use pgwire::messages::extendedquery::{Describe, TARGET_TYPE_BYTE_STATEMENT};
use pgwire::messages::response::TransactionStatus;
use std::fmt::Debug;
use std::sync::Arc;
use tokio::sync::Mutex;

/// Everything that a connection needs.
pub struct ConnectionHandlers {
    queries: Arc<QueryHandlers>,
    startup: Arc<Startup>,
    connections: Arc<ConnectionManager>,
}

impl ConnectionHandlers {
    pub fn new(
        session: Session,
        secrets: Option<Arc<StartupSecrets>>,
        connections: Arc<ConnectionManager>,
    ) -> ConnectionHandlers {
        let session = Arc::new(Mutex::new(session));
        let parser = Arc::new(StatementParser { session: Arc::clone(&session) });
        ConnectionHandlers {
            queries: Arc::new(QueryHandlers { session, parser }),
            startup: Arc::new(Startup::new(secrets, Arc::clone(&connections))),
            connections,
        }
    }
}

impl PgWireServerHandlers for ConnectionHandlers {
    fn simple_query_handler(&self) -> Arc<impl SimpleQueryHandler> {
        Arc::clone(&self.queries)
    }
    fn extended_query_handler(&self) -> Arc<impl ExtendedQueryHandler> {
        Arc::clone(&self.queries)
    }
    fn startup_handler(&self) -> Arc<impl StartupHandler> {
        Arc::clone(&self.startup)
    }
    fn cancel_handler(&self) -> Arc<impl CancelHandler> {
        Arc::new(DefaultCancelHandler::new(Arc::clone(&self.connections)))
    }
}

/// Converts an error for the protocol. `sql` is the text that positions refer to.
fn wire_error(e: &SqlError, sql: &str) -> Box<ErrorInfo> {
    let code = e.state().code().to_owned();
    let mut info = ErrorInfo::new("ERROR".to_owned(), code, e.message().to_owned());
    info.hint = e.hint().map(str::to_owned);
    info.position = e.position().map(|position| position.offset_in(sql).to_string());
    info.table = e.table().map(str::to_owned);
    info.column = e.column().map(str::to_owned);
    info.constraint = e.constraint().map(str::to_owned);
    Box::new(info)
}

fn user_error(e: &SqlError, sql: &str) -> PgWireError {
    PgWireError::UserError(wire_error(e, sql))
}

/// Parses and prepares statements of the extended protocol.
pub struct StatementParser {
    session: Arc<Mutex<Session>>,
}

/// A prepared statement and its text.
#[derive(Clone)]
pub struct StoredQuery {
    prepared: Arc<Prepared>,
    sql: Arc<str>,
}

#[async_trait]
impl QueryParser for StatementParser {
    type Statement = StoredQuery;

    async fn parse_sql<C>(
        &self,
        _: &C,
        sql: &str,
        _: &[Option<Type>],
    ) -> PgWireResult<Option<StoredQuery>>
    where
        C: ClientInfo + Unpin + Send + Sync,
    {
        let mut session = self.session.lock().await;
        let mut statements = session.parse(sql).map_err(|e| user_error(&e, sql))?;
        if statements.len() > 1 {
            let hint = "send them one by one";
            let error = SqlError::unsupported("several statements in a prepared one", hint);
            return Err(user_error(&error, sql));
        }
        let Some(statement) = statements.pop() else { return Ok(None) };
        let prepared = session.prepare(statement).await.map_err(|e| user_error(&e, sql))?;
        Ok(Some(StoredQuery { prepared: Arc::new(prepared), sql: sql.into() }))
    }
    fn get_parameter_types(&self, query: &StoredQuery) -> PgWireResult<Vec<Type>> {
        let types = query.prepared.parameters().iter();
        Ok(types.map(|inferred| described_type(inferred.as_ref())).collect())
    }
    fn get_result_schema(
        &self,
        query: &StoredQuery,
        format: Option<&Format>,
    ) -> PgWireResult<Vec<FieldInfo>> {
        let schema = query.prepared.schema();
        Ok(schema.map(|schema| describe_columns(schema, format)).unwrap_or_default())
    }
}

/// Runs statements in the session of the connection.
pub struct QueryHandlers {
    session: Arc<Mutex<Session>>,
    parser: Arc<StatementParser>,
}

impl QueryHandlers {
    /// Returns the response to an outcome. Rows are sent as they are read.
    fn respond(&self, session: &Session, outcome: Outcome, format: Option<&Format>) -> Response {
        match outcome {
            Outcome::Done { command, rows } => {
                // As in PostgreSQL, with the object id that no row has any more.
                let tag = match (command, rows) {
                    ("INSERT", Some(rows)) => {
                        Tag::new(command).with_oid(0).with_rows(rows as usize)
                    }
                    (_, Some(rows)) => Tag::new(command).with_rows(rows as usize),
                    (_, None) => Tag::new(command),
                };
                match command {
                    "BEGIN" => Response::TransactionStart(tag),
                    // ROLLBACK TO a savepoint does not end the transaction.
                    "COMMIT" | "ROLLBACK" if !session.in_transaction() => {
                        Response::TransactionEnd(tag)
                    }
                    _ => Response::Execution(tag),
                }
            }
            Outcome::Rows { command, stream: rows } => {
                let columns = Arc::new(describe_columns(&rows.schema(), format));
                let session = Arc::clone(&self.session);
                let described = Arc::clone(&columns);
                let rows = rows.then(move |batch| {
                    let (session, columns) = (Arc::clone(&session), Arc::clone(&described));
                    async move {
                        let encoded =
                            batch.map_err(SqlError::from).and_then(|b| encode_rows(&columns, &b));
                        match encoded {
                            Ok(rows) => rows,
                            Err(e) => {
                                session.lock().await.fail_transaction();
                                vec![Err(user_error(&e, ""))]
                            }
                        }
                    }
                });
                let mut response = QueryResponse::new(columns, rows.flat_map(stream::iter));
                // The number of rows follows; for INSERT after an object id, as above.
                response.set_command_tag(if command == "INSERT" { "INSERT 0" } else { command });
                Response::Query(response)
            }
        }
    }
    /// Sets the transaction status that the client receives after an error.
    fn set_status<C: ClientInfo>(client: &mut C, session: &Session) {
        client.set_transaction_status(match session.in_transaction() {
            true => TransactionStatus::Transaction,
            false => TransactionStatus::Idle,
        });
    }
}

#[async_trait]
impl SimpleQueryHandler for QueryHandlers {
    async fn do_query<C>(&self, client: &mut C, sql: &str) -> PgWireResult<Vec<Response>>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let mut session = self.session.lock().await;
        let statements = session.parse(sql).map_err(|e| user_error(&e, sql))?;
        if statements.is_empty() {
            return Ok(vec![Response::EmptyQuery]);
        }
        let mut responses = Vec::new();
        let count = statements.len();
        for (i, statement) in statements.iter().enumerate() {
            let outcome = match session.execute(statement).await {
                // Rows must be read before the next statement runs.
                Ok(outcome) if i + 1 < count => session.buffer(outcome).await,
                outcome => outcome,
            };
            match outcome {
                Ok(outcome) => responses.push(self.respond(&session, outcome, None)),
                Err(e) => {
                    Self::set_status(client, &session);
                    if responses.is_empty() {
                        return Err(user_error(&e, sql));
                    }
                    responses.push(Response::Error(wire_error(&e, sql)));
                    break;
                }
            }
        }
        Ok(responses)
    }
}

#[async_trait]
impl ExtendedQueryHandler for QueryHandlers {
    type Statement = StoredQuery;
    type QueryParser = StatementParser;

    fn query_parser(&self) -> Arc<StatementParser> {
        Arc::clone(&self.parser)
    }
    /// Reports a statement with parameters but without rows as one without rows: the default is an
    /// empty description of rows, after which the JDBC driver expects some.
    async fn on_describe<C>(&self, client: &mut C, message: Describe) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = StoredQuery>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        if message.target_type == TARGET_TYPE_BYTE_STATEMENT {
            let name = message.name.as_deref().unwrap_or(DEFAULT_NAME);
            if let Some(Entry::Value(statement)) = client.portal_store().get_statement(name)
                && statement.statement.prepared.schema().is_none()
            {
                let described = self.do_describe_statement(client, &statement).await?;
                let types = described.parameters.iter().map(Type::oid).collect();
                let parameters = ParameterDescription::new(types);
                client.feed(PgWireBackendMessage::ParameterDescription(parameters)).await?;
                client.send(PgWireBackendMessage::NoData(NoData::new())).await?;
                return Ok(());
            }
        }
        self._on_describe(client, message).await
    }
    async fn do_query<C>(
        &self,
        client: &mut C,
        portal: &Portal<StoredQuery>,
        _: usize,
    ) -> PgWireResult<Response>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = StoredQuery>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let query = &portal.statement.statement;
        let mut session = self.session.lock().await;
        let parameters = decode_parameters(portal).map_err(|e| user_error(&e, &query.sql))?;
        match session.execute_prepared(&query.prepared, &parameters).await {
            Ok(outcome) => Ok(self.respond(&session, outcome, Some(&portal.result_column_format))),
            Err(e) => {
                Self::set_status(client, &session);
                Err(user_error(&e, &query.sql))
            }
        }
    }
}

fn decode_parameters(portal: &Portal<StoredQuery>) -> Result<Vec<ScalarValue>, SqlError> {
    let declared = &portal.statement.parameter_types;
    let inferred = portal.statement.statement.prepared.parameters();
    let decode = |(i, bytes): (usize, &Option<bytes::Bytes>)| {
        let is_binary = match &portal.parameter_format {
            Format::UnifiedBinary => true,
            Format::UnifiedText => false,
            Format::Individual(formats) => formats.get(i) == Some(&1),
        };
        let declared = declared.get(i).and_then(Option::as_ref);
        let inferred = inferred.get(i).and_then(Option::as_ref);
        decode_parameter(bytes.as_deref(), is_binary, declared, inferred)
    };
    portal.parameters.iter().enumerate().map(decode).collect()
}
