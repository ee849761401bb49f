//! Execution of statements in a [`Session`]: transactions, retries, and which part of the crate
//! runs a statement.

use crate::error::{Result, SqlError, SqlState};
use crate::limits::CONFLICT_ATTEMPTS_MAX;
use crate::read_state::{ReadState, SharedTxn};
use crate::row_plan::{RowPlan, bind_parameters};
use crate::row_statements::{self, WrittenRows};
use crate::session::{Outcome, Prepared, Session, StatementResult, TxnState, stream_of};
use crate::statement::{Statement, StatementKind};
use datafusion::common::ScalarValue;
use perigee_tables::TableDb;
use std::sync::Arc;
use std::time::Duration;

impl Session {
    /// Runs statements, separated by semicolons, and returns their results in memory. Stops at the
    /// first error.
    ///
    /// ```
    /// # use perigee_sql::Session;
    /// # let db = perigee::example_db().unwrap();
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let mut session = Session::new(&db, Default::default())?;
    /// let results = session.run("SELECT 1; SELECT 2").await?;
    /// assert_eq!(results.len(), 2);
    /// # Ok::<(), perigee_sql::SqlError>(())
    /// # }).unwrap();
    /// ```
    pub async fn run(&mut self, sql: &str) -> Result<Vec<StatementResult>> {
        let mut results = Vec::new();
        for statement in self.parse(sql)? {
            let outcome = self.execute(&statement).await?;
            results.push(self.collect(outcome).await?);
        }
        Ok(results)
    }
    /// Runs a statement.
    ///
    /// ```
    /// # use perigee_sql::Session;
    /// # let db = perigee::example_db().unwrap();
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let mut session = Session::new(&db, Default::default())?;
    /// let statement = session.parse("SELECT 1")?.remove(0);
    /// let outcome = session.execute(&statement).await?;
    /// assert_eq!(session.collect(outcome).await?.rows, Some(1));
    /// # Ok::<(), perigee_sql::SqlError>(())
    /// # }).unwrap();
    /// ```
    pub async fn execute(&mut self, statement: &Statement) -> Result<Outcome> {
        self.execute_with(statement, &[]).await
    }
    /// Runs a prepared statement. It is planned again, with the current schemas of its tables.
    ///
    /// ```
    /// # use perigee_sql::Session;
    /// # let db = perigee::example_db().unwrap();
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let mut session = Session::new(&db, Default::default())?;
    /// use datafusion::common::ScalarValue;
    ///
    /// session.run("CREATE TABLE users (id BIGINT PRIMARY KEY, name TEXT)").await?;
    /// let statement = session.parse("SELECT name FROM users WHERE id = $1")?.remove(0);
    /// let select = session.prepare(statement).await?;
    /// let outcome = session.execute_prepared(&select, &[ScalarValue::from(1i64)]).await?;
    /// assert_eq!(session.collect(outcome).await?.rows, Some(0));
    /// # Ok::<(), perigee_sql::SqlError>(())
    /// # }).unwrap();
    /// ```
    pub async fn execute_prepared(
        &mut self,
        prepared: &Prepared,
        parameters: &[ScalarValue],
    ) -> Result<Outcome> {
        if parameters.len() < prepared.parameters.len() {
            let (n, needed) = (parameters.len(), prepared.parameters.len());
            let text = format!("{n} parameters for a statement with {needed}");
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, text));
        }
        self.execute_with(&prepared.statement, parameters).await
    }

    async fn execute_with(
        &mut self,
        statement: &Statement,
        parameters: &[ScalarValue],
    ) -> Result<Outcome> {
        // A statement whose future was dropped, for example by a cancel request, may have written a
        // part of its rows.
        if std::mem::replace(&mut self.running, true) {
            self.fail_transaction();
        }
        let result = self.execute_checked(statement, parameters).await;
        self.running = false;
        result
    }
    async fn execute_checked(
        &mut self,
        statement: &Statement,
        parameters: &[ScalarValue],
    ) -> Result<Outcome> {
        if self.has_failed() && !statement.kind().ends_transaction() {
            let text = "a statement of this transaction has failed: its others are ignored";
            return Err(SqlError::new(SqlState::FAILED_TRANSACTION, text)
                .with_hint("send ROLLBACK, then repeat the transaction"));
        }
        self.relations.clear();
        let result = self.dispatch(statement, parameters).await;
        self.read_state.clear();
        if result.is_err() {
            self.fail_transaction();
        }
        result
    }
    async fn dispatch(
        &mut self,
        statement: &Statement,
        parameters: &[ScalarValue],
    ) -> Result<Outcome> {
        let done = |command, rows| Ok(Outcome::Done { command, rows });
        match statement.kind() {
            StatementKind::Query => {
                let plan = bind_parameters(self.plan(statement, false).await?, parameters)?;
                Ok(Outcome::Rows { command: "SELECT", stream: self.run_plan(plan).await? })
            }
            kind @ (StatementKind::Insert | StatementKind::Update | StatementKind::Delete) => {
                let written = self.write_rows(statement, parameters).await?;
                let command = match kind {
                    StatementKind::Insert => "INSERT",
                    StatementKind::Update => "UPDATE",
                    _ => "DELETE",
                };
                match written.returned {
                    None => done(command, Some(written.rows)),
                    Some((schema, batches)) => {
                        Ok(Outcome::Rows { command, stream: stream_of(schema, batches) })
                    }
                }
            }
            StatementKind::Begin => {
                if self.in_transaction() {
                    let text = "a transaction is active: transactions do not nest";
                    return Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, text)
                        .with_hint("send COMMIT or ROLLBACK first, or use SAVEPOINT"));
                }
                let options = statement.txn_options(&self.txn_defaults)?;
                let txn = self.db.begin_tables(options)?;
                self.txn = TxnState::Active(Arc::new(SharedTxn::new(txn)));
                done("BEGIN", None)
            }
            StatementKind::Commit => match std::mem::replace(&mut self.txn, TxnState::Idle) {
                TxnState::Active(txn) => {
                    if let Some(txn) = txn.take() {
                        txn.commit()?;
                    }
                    done("COMMIT", None)
                }
                // As in PostgreSQL: the end of a failed transaction is a rollback.
                TxnState::Failed => done("ROLLBACK", None),
                TxnState::Idle => done("COMMIT", None),
            },
            StatementKind::Rollback => {
                if let TxnState::Active(txn) = std::mem::replace(&mut self.txn, TxnState::Idle) {
                    drop(txn.take());
                }
                done("ROLLBACK", None)
            }
            StatementKind::Savepoint => self.use_savepoint(statement),
            StatementKind::Setting => {
                statement.check_setting()?;
                if let Some(options) = statement.default_txn_options()? {
                    self.txn_defaults = options;
                }
                if statement.resets_all() {
                    self.txn_defaults = perigee::TxnOptions::new();
                }
                done(if statement.is_reset() { "RESET" } else { "SET" }, None)
            }
            StatementKind::Files => {
                if !self.files {
                    let hint = "files are allowed in `perigee sql`, not for clients of the server";
                    return Err(SqlError::unsupported(statement.name(), hint));
                }
                self.run_on_files(statement).await
            }
            StatementKind::Schema => {
                if self.in_transaction() {
                    let text = format!("{} cannot run in a transaction", statement.name());
                    return Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, text)
                        .with_hint("run it before BEGIN or after COMMIT"));
                }
                let command = self.change_schema(statement).await?;
                done(command, None)
            }
            StatementKind::Unsupported => Err(statement.refusal()),
        }
    }
    fn use_savepoint(&mut self, statement: &Statement) -> Result<Outcome> {
        let TxnState::Active(txn) = &self.txn else {
            let text = format!("{} needs a transaction", statement.name());
            return Err(SqlError::new(SqlState::NOT_IN_PREREQUISITE_STATE, text)
                .with_hint("send BEGIN first"));
        };
        let command = txn.with(|txn| statement.apply_savepoint(txn))?;
        Ok(Outcome::Done { command, rows: None })
    }
    /// Changes rows in the transaction, or in one of its own, which is repeated after a conflict.
    async fn write_rows(
        &mut self,
        statement: &Statement,
        parameters: &[ScalarValue],
    ) -> Result<WrittenRows> {
        if let TxnState::Active(txn) = &self.txn {
            let txn = Arc::clone(txn);
            return self.write_rows_in(&txn, statement, parameters).await;
        }
        let mut attempt = 1;
        loop {
            let txn = Arc::new(SharedTxn::new(self.db.begin_tables(self.txn_defaults.clone())?));
            let written = self.write_rows_in(&txn, statement, parameters).await;
            let committed = written.and_then(|rows| {
                txn.take().map_or(Ok(0), |txn| txn.commit())?;
                Ok(rows)
            });
            match committed {
                Err(e)
                    if e.state() == SqlState::SERIALIZATION_FAILURE
                        && attempt < CONFLICT_ATTEMPTS_MAX =>
                {
                    tokio::time::sleep(Duration::from_millis(1 << attempt.min(6))).await;
                    attempt += 1;
                }
                result => return result,
            }
        }
    }
    async fn write_rows_in(
        &self,
        txn: &Arc<SharedTxn>,
        statement: &Statement,
        parameters: &[ScalarValue],
    ) -> Result<WrittenRows> {
        self.read_state.set(ReadState::Txn(Arc::clone(txn)));
        let plan = RowPlan::new(&self.context, statement).await?.with_parameters(parameters)?;
        row_statements::write_rows(self, txn, statement, &plan).await
    }
}
