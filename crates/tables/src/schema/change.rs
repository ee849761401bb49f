//! Changes of a stored schema: columns added, dropped and renamed, the default time to live. None
//! of them rewrites a row.

use crate::error::{Error, Result};
use crate::limits::{COLUMNS_MAX, LAYOUTS_MAX};
use crate::schema::stored::{StoredSchema, ttl_to_ms};
use crate::schema::{Column, check_name};
use std::time::Duration;

/// A change of the schema of a table; see [`crate::TableDb::alter_table`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SchemaChange {
    /// Adds a column, which must be nullable or have a default. Existing rows have the default, or
    /// else NULL.
    AddColumn(Column),
    /// Drops a column, which must not belong to the key or an index.
    DropColumn {
        /// The name of the column.
        name: String,
    },
    /// Renames a column.
    RenameColumn {
        /// The current name.
        from: String,
        /// The new name.
        to: String,
    },
    /// Sets the time to live of rows that are written from now on without one of their own.
    SetTtl(Option<Duration>),
}

impl StoredSchema {
    /// Applies a change. Does not increment the version.
    pub fn apply(&mut self, change: &SchemaChange) -> Result<()> {
        match change {
            SchemaChange::AddColumn(column) => self.add_column(column),
            SchemaChange::DropColumn { name } => self.drop_column(name),
            SchemaChange::RenameColumn { from, to } => self.rename_column(from, to),
            SchemaChange::SetTtl(ttl) => {
                self.ttl_ms = ttl.map(ttl_to_ms);
                Ok(())
            }
        }
    }
    pub fn add_column(&mut self, column: &Column) -> Result<()> {
        column.validate()?;
        let refuse = |text: &str| Err(Error::invalid(text).in_column(&column.name));
        if self.column_named(&column.name).is_some() {
            return refuse("there is a column of this name: choose another one");
        }
        if !column.nullable && column.default.is_none() {
            return refuse(
                "a new column must be nullable or have a default, because existing rows lack it",
            );
        }
        self.check_can_grow()?;
        self.push_column(column);
        self.push_layout();
        Ok(())
    }
    fn drop_column(&mut self, name: &str) -> Result<()> {
        let id = self.visible_column(name)?;
        if self.is_key_column(id) {
            let text =
                "a column of the primary key cannot be dropped: copy the rows to a new table";
            return Err(Error::invalid(text).in_column(name));
        }
        let used = self.indexes.iter().find(|i| i.columns.iter().any(|c| c.column == id));
        if let Some(index) = used {
            let text = "an index contains the column: drop the index first";
            return Err(Error::invalid(text).in_column(name).in_index(&index.name));
        }
        self.check_can_grow()?;
        self.columns.iter_mut().filter(|c| c.id == id).for_each(|c| c.dropped = true);
        self.push_layout();
        Ok(())
    }
    fn rename_column(&mut self, from: &str, to: &str) -> Result<()> {
        check_name(to, "a column")?;
        let id = self.visible_column(from)?;
        if self.column_named(to).is_some_and(|other| other.id != id) {
            let text = "there is a column of this name: choose another one";
            return Err(Error::invalid(text).in_column(to));
        }
        self.columns.iter_mut().filter(|c| c.id == id).for_each(|c| c.name = to.to_owned());
        Ok(())
    }
    fn visible_column(&self, name: &str) -> Result<crate::schema::stored::ColumnId> {
        let missing = || Error::invalid("there is no column of this name").in_column(name);
        self.column_named(name).map(|c| c.id).ok_or_else(missing)
    }
    fn check_can_grow(&self) -> Result<()> {
        let ids_end = self.next_column_id == u32::MAX;
        if ids_end || self.columns.len() >= COLUMNS_MAX || self.layouts.len() >= LAYOUTS_MAX {
            let text = "the schema was changed too often: copy the rows to a new table";
            return Err(Error::invalid(text));
        }
        Ok(())
    }
}
