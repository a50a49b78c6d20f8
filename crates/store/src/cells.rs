//! Reading rows column by column, with typed errors instead of panics for what should not be there.

use std::path::Path;

use hoga_core::ids::Timestamp;
use rusqlite::types::FromSql;
use rusqlite::{Params, Row, Statement};

use crate::error::{InFile, StoreError};

/// The columns of one row, read from left to right.
pub(crate) struct Cells<'a> {
    row: &'a Row<'a>,
    path: &'a Path,
    at: usize,
}

impl<'a> Cells<'a> {
    pub(crate) fn new(row: &'a Row<'a>, path: &'a Path) -> Cells<'a> {
        Cells { row, path, at: 0 }
    }

    /// The next column.
    pub(crate) fn get<T: FromSql>(&mut self) -> Result<T, StoreError> {
        let value = self.row.get(self.at).doing(self.path, "reading a row")?;
        self.at += 1;
        Ok(value)
    }

    /// The next column as a whole number.
    pub(crate) fn int(&mut self) -> Result<i64, StoreError> {
        self.get()
    }

    /// The next column as a number that is stored as its 64 bits (SQLite has only signed integers).
    pub(crate) fn unsigned(&mut self) -> Result<u64, StoreError> {
        self.get::<i64>().map(|value| value as u64)
    }

    /// The next column as a smaller whole number.
    pub(crate) fn small<T: TryFrom<i64>>(&mut self, what: &'static str) -> Result<T, StoreError> {
        let value = self.int()?;
        T::try_from(value).map_err(|_| self.damaged(what, value))
    }

    /// The next column as a code of an enumeration.
    pub(crate) fn code<T>(&mut self, what: &'static str, of: fn(u8) -> Option<T>) -> Result<T, StoreError> {
        let value = self.int()?;
        u8::try_from(value).ok().and_then(of).ok_or_else(|| self.damaged(what, value))
    }

    /// The next column as a time.
    pub(crate) fn time(&mut self) -> Result<Timestamp, StoreError> {
        self.int().map(Timestamp)
    }

    /// The error for a value that means nothing.
    pub(crate) fn damaged(&self, what: &'static str, value: i64) -> StoreError {
        StoreError::Damaged { file: self.path.to_path_buf(), what, value }
    }
}

/// Runs a query and turns each row into a value.
pub(crate) fn collect<T>(
    statement: &mut Statement<'_>,
    params: impl Params,
    path: &Path,
    mut value: impl FnMut(&mut Cells<'_>) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let mut rows = statement.query(params).doing(path, "running a query")?;
    let mut all = Vec::new();
    while let Some(row) = rows.next().doing(path, "reading a row")? {
        all.push(value(&mut Cells::new(row, path))?);
    }
    Ok(all)
}

/// The first row of a query, if there is one.
pub(crate) fn first<T>(
    statement: &mut Statement<'_>,
    params: impl Params,
    path: &Path,
    value: impl FnOnce(&mut Cells<'_>) -> Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    let mut rows = statement.query(params).doing(path, "running a query")?;
    match rows.next().doing(path, "reading a row")? {
        Some(row) => value(&mut Cells::new(row, path)).map(Some),
        None => Ok(None),
    }
}

/// The lowest number in `low..=high` for which `reached` holds, given that it holds for all numbers after such a one; `high + 1` when
/// there is none. This is how times are found: numbers are given in the order of time, so no index over times is needed.
pub(crate) fn lowest_where(
    mut low: u64,
    high: u64,
    mut reached: impl FnMut(u64) -> Result<bool, StoreError>,
) -> Result<u64, StoreError> {
    let mut past = high.saturating_add(1);
    while low < past {
        let middle = low + (past - low) / 2;
        if reached(middle)? {
            past = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok(low)
}
