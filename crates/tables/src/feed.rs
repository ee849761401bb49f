//! [`RowFeed`]: the changes of the rows of a table, decoded from the change feed of the engine.

use crate::binding::Binding;
use crate::error::{Error, Result};
use crate::key::PrimaryKey;
use crate::row::Row;
use crate::row_format::{WriteKind, read_header};
use crate::row_reads::{decode_row, malformed_row};
use crate::table::Table;
use crate::table_state::{ROWS, SCHEMA_KEY, TableState};
use perigee::changes::{
    ChangeFeed, ChangeKind, ChangeOperation, FamilyChange, FamilyChangeKind, FeedEvent,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// What happened to a row or table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RowEvent<R, K> {
    /// A row was inserted; there was none with its key.
    Insert(R),
    /// A row was replaced.
    Update(R),
    /// A row was inserted or replaced: a put to a table without indexes does not look for an older
    /// row.
    Put(R),
    /// The row with this key was deleted. Expired rows are not reported.
    Delete(K),
    /// Rows were added by a bulk load, or changed by a transaction larger than memory
    /// ([`perigee::TxnOptions::spill_bytes`]): they are not in the log; read them from the table.
    Loaded,
    /// Columns or indexes were changed.
    SchemaChanged,
    /// The table was dropped.
    Dropped,
}

/// A change of a row or table, from a [`RowFeed`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowChange<R, K> {
    /// Sequence number of the operation.
    pub sequence: u64,
    /// When the row expires, in milliseconds since 1970; `None`: never.
    pub expires_at_ms: Option<u64>,
    /// What happened.
    pub event: RowEvent<R, K>,
}

/// The changes of a table in commit order; see [`Table::changes`].
pub struct RowFeed<R: Row> {
    feed: ChangeFeed,
    state: Arc<TableState>,
    binding: Arc<Binding>,
    /// Changes of the commit at the position of `feed` that were not returned yet.
    pending: VecDeque<RowChange<R, R::Key>>,
    position: u64,
    /// The error of a commit that could not be decoded.
    failed: Option<Error>,
}

/// Prints the table and the position.
impl<R: Row> std::fmt::Debug for RowFeed<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RowFeed({:?}, position {})", self.state, self.position)
    }
}

impl<R: Row> Table<R> {
    /// Opens a feed of the changes committed after sequence number `since` (0: from the beginning),
    /// including future ones. Only durable commits are reported. As
    /// [`History::changes`](perigee::History::changes) it reads the retained log.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// let mut feed = users.changes(db.history().latest_seq())?;
    /// users.insert(&vec![Value::U32(1)])?;
    /// users.delete([Value::U32(1)])?;
    /// let mut events = Vec::new();
    /// while let Some(change) = feed.next_change()? {
    ///     events.push(change.event);
    /// }
    /// let key = vec![Value::U32(1)];
    /// assert_eq!(events, [RowEvent::Insert(key.clone()), RowEvent::Delete(key)]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `Engine` with `NotFound` if the log does not reach back to `since`.
    pub fn changes(&self, since: u64) -> Result<RowFeed<R>> {
        let feed = self.state.db.history().changes(since)?;
        Ok(RowFeed {
            position: feed.position(),
            feed,
            state: Arc::clone(&self.state),
            binding: self.state.binding(),
            pending: VecDeque::new(),
            failed: None,
        })
    }
}

impl<R: Row> RowFeed<R> {
    /// Returns the sequence number of the last commit whose changes were all returned:
    /// [`Table::changes`] with this number continues after it.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// users.insert(&vec![Value::U32(1)])?;
    /// let mut feed = users.changes(0)?;
    /// while feed.next_change()?.is_some() {}
    /// assert_eq!(feed.position(), db.history().latest_seq());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn position(&self) -> u64 {
        self.position
    }
    /// Returns the next change, or `None` if there is none yet. Does not block.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// let mut feed = users.changes(db.history().latest_seq())?;
    /// assert!(feed.next_change()?.is_none());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`ChangeFeed::next_change`]; `Corruption` if a row cannot be decoded;
    /// `SchemaMismatch` if the row type does not fit the schema any more. After one of the latter
    /// two all calls return it again: open another feed at [`RowFeed::position`].
    pub fn next_change(&mut self) -> Result<Option<RowChange<R, R::Key>>> {
        self.check_not_failed()?;
        while self.pending.is_empty() {
            let event = self.feed.next_change().map_err(|e| self.state.engine_error(e))?;
            let Some(event) = event else { return Ok(None) };
            self.decode(&event)?;
        }
        Ok(self.take_pending())
    }
    /// Returns the next change; waits for it for at most `timeout`. Returns `None` after the
    /// timeout.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # use std::time::Duration;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// let mut feed = users.changes(db.history().latest_seq())?;
    /// users.insert(&vec![Value::U32(1)])?;
    /// assert!(feed.wait(Duration::from_secs(60))?.is_some());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`RowFeed::next_change`].
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<RowChange<R, R::Key>>> {
        self.check_not_failed()?;
        while self.pending.is_empty() {
            let event = self.feed.wait(timeout).map_err(|e| self.state.engine_error(e))?;
            let Some(event) = event else { return Ok(None) };
            self.decode(&event)?;
        }
        Ok(self.take_pending())
    }

    fn take_pending(&mut self) -> Option<RowChange<R, R::Key>> {
        let change = self.pending.pop_front();
        if self.pending.is_empty() {
            self.position = self.feed.position();
        }
        change
    }
    /// Adds the changes of an event to `pending`: all of them, or after an error none.
    fn decode(&mut self, event: &FeedEvent) -> Result<()> {
        let decoded = self.decode_event(event);
        if let Err(e) = &decoded {
            self.pending.clear();
            self.failed = Some(e.clone());
        }
        decoded
    }
    fn check_not_failed(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }
    fn decode_event(&mut self, event: &FeedEvent) -> Result<()> {
        match event {
            FeedEvent::Commit(commit) => {
                let family = self.state.family.id();
                for operation in commit.operations().filter(|op| op.family == family) {
                    self.decode_operation(&operation)?;
                }
            }
            FeedEvent::Family(change) => self.decode_family_change(change),
            _ => {}
        }
        if self.pending.is_empty() {
            self.position = self.feed.position();
        }
        Ok(())
    }
    fn decode_family_change(&mut self, change: &FamilyChange) {
        let event = match &change.kind {
            FamilyChangeKind::Loaded => RowEvent::Loaded,
            FamilyChangeKind::Dropped { .. } => RowEvent::Dropped,
            _ => return,
        };
        if change.family == self.state.family.id() {
            let sequence = change.sequence;
            self.pending.push_back(RowChange { sequence, expires_at_ms: None, event });
        }
    }
    fn decode_operation(&mut self, operation: &ChangeOperation<'_>) -> Result<()> {
        let (event, expires_at_ms) = match operation.kind {
            ChangeKind::Put { key, value, expires_at_ms } if key.first() == Some(&ROWS) => {
                let row = decode_row(&self.state, &mut self.binding, key, value)?;
                let event = match read_header(value) {
                    Ok((_, WriteKind::Insert, _)) => RowEvent::Insert(row),
                    Ok((_, WriteKind::Update, _)) => RowEvent::Update(row),
                    _ => RowEvent::Put(row),
                };
                (event, expires_at_ms)
            }
            ChangeKind::Delete { key } if key.first() == Some(&ROWS) => {
                let decoded = R::Key::read_key(&key[1..], &self.binding.key);
                let decoded =
                    decoded.map_err(|e| malformed_row(&self.state, &self.binding, key, e))?;
                (RowEvent::Delete(decoded), None)
            }
            ChangeKind::Put { key, .. } if key == SCHEMA_KEY => (RowEvent::SchemaChanged, None),
            _ => return Ok(()),
        };
        let sequence = operation.sequence;
        self.pending.push_back(RowChange { sequence, expires_at_ms, event });
        Ok(())
    }
}
