//! [`Session`]: a connection: parses statements, runs them, and keeps the transaction.

use crate::catalog::TableCatalog;
use crate::constants::{CATALOG, SCHEMA};
use crate::error::{Result, SqlError, SqlState};
use crate::limits::{STATEMENT_BYTES_MAX, STATEMENT_MEMORY_DEFAULT};
use crate::pg_catalog::relations::RelationCache;
use crate::read_state::{CurrentReadState, ReadState, SharedTxn};
use crate::row_plan::RowPlan;
use crate::statement::{Statement, StatementKind, parse};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::execute_stream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::TryStreamExt;
use perigee::Db;
use std::sync::Arc;

/// Options of sessions. Clones share the memory limit.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    runtime: Arc<RuntimeEnv>,
    files: bool,
}

impl SessionOptions {
    /// Returns options with a limit for the memory of sorts, joins and aggregates, in bytes. Above
    /// it sorts and aggregates use temporary files, and other statements fail.
    ///
    /// ```
    /// let options = perigee_sql::SessionOptions::with_memory(256 << 20)?;
    /// # Ok::<(), perigee_sql::SqlError>(())
    /// ```
    pub fn with_memory(bytes: usize) -> Result<SessionOptions> {
        let runtime = RuntimeEnvBuilder::new().with_memory_limit(bytes, 1.0).build()?;
        Ok(SessionOptions { runtime: Arc::new(runtime), files: false })
    }
    /// Allows statements to read and write files with the rights of this process: CREATE EXTERNAL
    /// TABLE and COPY. Off by default.
    #[must_use]
    pub fn allow_files(mut self, allow: bool) -> SessionOptions {
        self.files = allow;
        self
    }
}

/// One GiB of memory, no files.
impl Default for SessionOptions {
    fn default() -> SessionOptions {
        let runtime = RuntimeEnvBuilder::new().with_memory_limit(STATEMENT_MEMORY_DEFAULT, 1.0);
        // Fails only with temporary directories that are set.
        let runtime = runtime.build().unwrap_or_default();
        SessionOptions { runtime: Arc::new(runtime), files: false }
    }
}

/// State of the transaction of a session.
#[derive(Clone, Debug)]
pub enum TxnState {
    /// Each statement is a transaction of its own.
    Idle,
    Active(Arc<SharedTxn>),
    /// A statement has failed: everything but ROLLBACK is refused.
    Failed,
}

/// What a statement returned.
pub enum Outcome {
    /// Rows, read as the stream advances.
    Rows {
        /// `SELECT`, or the command that wrote the rows of RETURNING.
        command: &'static str,
        /// The rows.
        stream: SendableRecordBatchStream,
    },
    /// The name of the command, and the number of rows that it wrote.
    Done {
        /// As PostgreSQL reports it, such as `INSERT` or `CREATE TABLE`.
        command: &'static str,
        /// Number of rows, for INSERT, UPDATE and DELETE.
        rows: Option<u64>,
    },
}

/// Prints the schema or the command.
impl std::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Outcome::Rows { command, stream } => {
                write!(f, "Rows({command}, {:?})", stream.schema())
            }
            Outcome::Done { command, rows } => write!(f, "Done({command}, {rows:?})"),
        }
    }
}

/// The result of a statement, in memory.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StatementResult {
    /// The name of the command, such as `SELECT` or `CREATE TABLE`.
    pub command: &'static str,
    /// Number of rows returned or written.
    pub rows: Option<u64>,
    /// The schema of returned rows.
    pub schema: Option<SchemaRef>,
    /// The returned rows.
    pub batches: Vec<RecordBatch>,
}

/// A prepared statement.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub(crate) statement: Statement,
    pub(crate) parameters: Vec<Option<DataType>>,
    schema: Option<SchemaRef>,
}

impl Prepared {
    /// Returns the types of the parameters `$1`, `$2`, ..., as far as they are known.
    ///
    /// ```
    /// # use perigee_sql::Session;
    /// # let db = perigee::example_db().unwrap();
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let mut session = Session::new(&db, Default::default())?;
    /// session.run("CREATE TABLE users (id BIGINT PRIMARY KEY, name TEXT)").await?;
    /// let statement = session.parse("INSERT INTO users VALUES ($1, $2)")?.remove(0);
    /// assert_eq!(session.prepare(statement).await?.parameters().len(), 2);
    /// # Ok::<(), perigee_sql::SqlError>(())
    /// # }).unwrap();
    /// ```
    pub fn parameters(&self) -> &[Option<DataType>] {
        &self.parameters
    }
    /// Returns the schema of the rows; `None` if the statement returns none.
    ///
    /// ```
    /// # use perigee_sql::Session;
    /// # let db = perigee::example_db().unwrap();
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let mut session = Session::new(&db, Default::default())?;
    /// let statement = session.parse("SELECT 1, 2")?.remove(0);
    /// let prepared = session.prepare(statement).await?;
    /// assert_eq!(prepared.schema().map(|schema| schema.fields().len()), Some(2));
    /// # Ok::<(), perigee_sql::SqlError>(())
    /// # }).unwrap();
    /// ```
    pub fn schema(&self) -> Option<&SchemaRef> {
        self.schema.as_ref()
    }
}

/// A session: runs statements one after the other, in transactions of their own, or between BEGIN
/// and COMMIT in one.
///
/// ```
/// use perigee_sql::Session;
/// # let db = perigee::example_db().unwrap();
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let mut session = Session::new(&db, Default::default())?;
/// session.run("CREATE TABLE users (id BIGINT PRIMARY KEY, name TEXT NOT NULL)").await?;
/// session.run("INSERT INTO users VALUES (1, 'ann'), (2, 'bob')").await?;
/// let results = session.run("SELECT name FROM users WHERE id = 2").await?;
/// assert_eq!(results[0].batches[0].num_rows(), 1);
/// # Ok::<(), perigee_sql::SqlError>(())
/// # }).unwrap();
/// ```
pub struct Session {
    pub(crate) db: Db,
    pub(crate) context: SessionContext,
    pub(crate) catalog: TableCatalog,
    pub(crate) read_state: Arc<CurrentReadState>,
    pub(crate) relations: Arc<RelationCache>,
    pub(crate) txn: TxnState,
    /// For BEGIN without modes.
    pub(crate) txn_defaults: perigee::TxnOptions,
    pub(crate) files: bool,
    /// True while a statement runs.
    pub(crate) running: bool,
}

/// Prints the database.
impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({:?})", self.db)
    }
}

impl Session {
    /// Begins a session.
    ///
    /// ```
    /// # use perigee_sql::Session;
    /// # let db = perigee::example_db().unwrap();
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let mut session = Session::new(&db, Default::default())?;
    /// assert_eq!(session.run("SELECT 1").await?.len(), 1);
    /// # Ok::<(), perigee_sql::SqlError>(())
    /// # }).unwrap();
    /// ```
    pub fn new(db: &Db, options: SessionOptions) -> Result<Session> {
        let mut config = SessionConfig::new()
            .with_default_catalog_and_schema(CATALOG, SCHEMA)
            .with_create_default_catalog_and_schema(false)
            .with_information_schema(true);
        let settings = config.options_mut();
        settings.sql_parser.collect_spans = true;
        settings.sql_parser.dialect = datafusion::config::Dialect::PostgreSQL;
        settings.explain.physical_plan_only = true;
        let context = SessionContext::new_with_config_rt(config, options.runtime);
        let read_state = Arc::new(CurrentReadState::default());
        let relations = Arc::new(RelationCache::new(db));
        let catalog = TableCatalog::new(db, Arc::clone(&read_state), Arc::clone(&relations));
        context.register_catalog(CATALOG, Arc::new(catalog.clone()));
        crate::functions::register(&context, &relations);
        let (db, txn, files) = (db.clone(), TxnState::Idle, options.files);
        let txn_defaults = perigee::TxnOptions::new();
        Ok(Session {
            db,
            context,
            catalog,
            read_state,
            relations,
            txn,
            txn_defaults,
            files,
            running: false,
        })
    }
    /// Parses statements, separated by semicolons.
    ///
    /// ```
    /// # use perigee_sql::Session;
    /// # let db = perigee::example_db().unwrap();
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let session = Session::new(&db, Default::default())?;
    /// assert_eq!(session.parse("SELECT 1; SELECT 2")?.len(), 2);
    /// # Ok::<(), perigee_sql::SqlError>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// `SYNTAX_ERROR` with the position.
    pub fn parse(&self, sql: &str) -> Result<Vec<Statement>> {
        if sql.len() > STATEMENT_BYTES_MAX {
            let text = format!("statements of more than {STATEMENT_BYTES_MAX} bytes");
            return Err(SqlError::unsupported(text, "split them"));
        }
        parse(sql)
    }
    /// Reads all rows of an outcome. An error in a transaction fails the transaction.
    ///
    /// ```
    /// # use perigee_sql::Session;
    /// # let db = perigee::example_db().unwrap();
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let mut session = Session::new(&db, Default::default())?;
    /// let statement = session.parse("SELECT 1")?.remove(0);
    /// let outcome = session.execute(&statement).await?;
    /// assert_eq!(session.collect(outcome).await?.batches[0].num_rows(), 1);
    /// # Ok::<(), perigee_sql::SqlError>(())
    /// # }).unwrap();
    /// ```
    pub async fn collect(&mut self, outcome: Outcome) -> Result<StatementResult> {
        match outcome {
            Outcome::Done { command, rows } => {
                Ok(StatementResult { command, rows, schema: None, batches: Vec::new() })
            }
            Outcome::Rows { command, stream } => {
                let schema = Some(stream.schema());
                let batches = self.read_all(stream).await?;
                let rows = batches.iter().map(|batch| batch.num_rows() as u64).sum();
                Ok(StatementResult { command, rows: Some(rows), schema, batches })
            }
        }
    }
    /// Reads all rows of an outcome into memory, so that other statements can run before they are
    /// fetched.
    ///
    /// ```
    /// # use perigee_sql::Session;
    /// # let db = perigee::example_db().unwrap();
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let mut session = Session::new(&db, Default::default())?;
    /// let statement = session.parse("SELECT 1")?.remove(0);
    /// let first = session.execute(&statement).await?;
    /// let first = session.buffer(first).await?;
    /// session.run("SELECT 2").await?;
    /// assert_eq!(session.collect(first).await?.rows, Some(1));
    /// # Ok::<(), perigee_sql::SqlError>(())
    /// # }).unwrap();
    /// ```
    pub async fn buffer(&mut self, outcome: Outcome) -> Result<Outcome> {
        let Outcome::Rows { command, stream } = outcome else { return Ok(outcome) };
        let schema = stream.schema();
        let batches = self.read_all(stream).await?;
        Ok(Outcome::Rows { command, stream: stream_of(schema, batches) })
    }
    async fn read_all(&mut self, stream: SendableRecordBatchStream) -> Result<Vec<RecordBatch>> {
        let batches = stream.try_collect().await;
        if batches.is_err() {
            self.fail_transaction();
        }
        Ok(batches?)
    }
    /// Returns true between BEGIN and COMMIT or ROLLBACK.
    ///
    /// ```
    /// # use perigee_sql::Session;
    /// # let db = perigee::example_db().unwrap();
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let mut session = Session::new(&db, Default::default())?;
    /// session.run("BEGIN").await?;
    /// assert!(session.in_transaction());
    /// # Ok::<(), perigee_sql::SqlError>(())
    /// # }).unwrap();
    /// ```
    pub fn in_transaction(&self) -> bool {
        !matches!(self.txn, TxnState::Idle)
    }
    /// Returns true if a statement of the transaction has failed.
    ///
    /// ```
    /// # use perigee_sql::Session;
    /// # let db = perigee::example_db().unwrap();
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let mut session = Session::new(&db, Default::default())?;
    /// session.run("BEGIN").await?;
    /// session.run("SELECT no_column").await.unwrap_err();
    /// assert!(session.has_failed());
    /// # Ok::<(), perigee_sql::SqlError>(())
    /// # }).unwrap();
    /// ```
    pub fn has_failed(&self) -> bool {
        matches!(self.txn, TxnState::Failed)
    }
    /// Rolls the transaction back, if there is one, and refuses its other statements until ROLLBACK.
    /// Failed statements do so; call it if the rows of [`Outcome::Rows`] cannot be read to the end.
    ///
    /// ```
    /// # use perigee_sql::Session;
    /// # let db = perigee::example_db().unwrap();
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let mut session = Session::new(&db, Default::default())?;
    /// session.run("BEGIN").await?;
    /// session.fail_transaction();
    /// assert!(session.run("SELECT 1").await.is_err());
    /// session.run("ROLLBACK").await?;
    /// # Ok::<(), perigee_sql::SqlError>(())
    /// # }).unwrap();
    /// ```
    pub fn fail_transaction(&mut self) {
        if let TxnState::Active(txn) = &self.txn {
            drop(txn.take());
            self.txn = TxnState::Failed;
        }
    }
    /// Prepares a statement for execution with parameters.
    ///
    /// ```
    /// # use perigee_sql::Session;
    /// # let db = perigee::example_db().unwrap();
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// use datafusion::common::ScalarValue;
    ///
    /// let mut session = Session::new(&db, Default::default())?;
    /// session.run("CREATE TABLE users (id BIGINT PRIMARY KEY, name TEXT)").await?;
    /// let statement = session.parse("INSERT INTO users VALUES ($1, $2)")?.remove(0);
    /// let insert = session.prepare(statement).await?;
    /// let ann = [ScalarValue::from(1i64), ScalarValue::from("ann")];
    /// session.execute_prepared(&insert, &ann).await?;
    /// # Ok::<(), perigee_sql::SqlError>(())
    /// # }).unwrap();
    /// ```
    pub async fn prepare(&mut self, statement: Statement) -> Result<Prepared> {
        self.relations.clear();
        let mut prepared = Prepared { statement, parameters: Vec::new(), schema: None };
        let types = match prepared.statement.kind() {
            StatementKind::Query => {
                let plan = self.plan(&prepared.statement, true).await?;
                prepared.schema = Some(Arc::clone(plan.schema().inner()));
                plan.get_parameter_types()?
            }
            StatementKind::Insert | StatementKind::Update | StatementKind::Delete => {
                self.begin_read()?;
                let plan = RowPlan::new(&self.context, &prepared.statement).await;
                self.read_state.clear();
                let plan = plan?;
                prepared.schema = plan.returned_schema();
                plan.parameter_types()?
            }
            _ => return Ok(prepared),
        };
        for (name, data_type) in types {
            let number = name.strip_prefix('$').and_then(|n| n.parse::<usize>().ok());
            let Some(position) = number.and_then(|n| n.checked_sub(1)) else {
                let text = format!("the parameter {name} is no number");
                return Err(
                    SqlError::new(SqlState::SYNTAX_ERROR, text).with_hint("write $1, $2, ...")
                );
            };
            let needed = prepared.parameters.len().max(position + 1).min(u16::MAX.into());
            prepared.parameters.resize(needed, None);
            if let Some(parameter) = prepared.parameters.get_mut(position) {
                *parameter = data_type;
            }
        }
        Ok(prepared)
    }
    /// Sets the state that the statement reads: that of the transaction, or the newest one.
    pub(crate) fn begin_read(&self) -> Result<()> {
        let state = match &self.txn {
            TxnState::Active(txn) => ReadState::Txn(Arc::clone(txn)),
            TxnState::Idle | TxnState::Failed => ReadState::Snapshot(Arc::new(self.db.snapshot()?)),
        };
        self.read_state.set(state);
        Ok(())
    }
    /// Plans a query.
    pub(crate) async fn plan(
        &self,
        statement: &Statement,
        only_to_describe: bool,
    ) -> Result<LogicalPlan> {
        self.begin_read()?;
        let plan = self.context.state().statement_to_plan(statement.to_plan()?).await;
        if only_to_describe {
            self.read_state.clear();
        }
        Ok(plan?)
    }
    /// Runs a plan that returns rows.
    pub(crate) async fn run_plan(&self, plan: LogicalPlan) -> Result<SendableRecordBatchStream> {
        crate::statement::check_plan(&plan)?;
        let physical = self.context.state().create_physical_plan(&plan).await?;
        Ok(execute_stream(physical, self.context.task_ctx())?)
    }
}

/// Returns rows in memory as a stream.
pub fn stream_of(schema: SchemaRef, batches: Vec<RecordBatch>) -> SendableRecordBatchStream {
    let rows = futures::stream::iter(batches.into_iter().map(Ok));
    Box::pin(RecordBatchStreamAdapter::new(schema, rows))
}
