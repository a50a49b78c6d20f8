//! Reading rows column by column, with typed errors instead of panics for what should not be there.

use hoga_core::ids::Timestamp;
use rusqlite::Row;

use crate::error::StoreError;

enum Source<'a> {
    Sqlite(&'a Row<'a>),
    #[cfg(feature = "postgres")]
    Postgres(&'a postgres::Row),
}

/// The columns of one row, read from left to right.
pub(crate) struct Cells<'a> {
    row: Source<'a>,
    database: &'a str,
    at: usize,
}

impl<'a> Cells<'a> {
    pub(crate) fn sqlite(row: &'a Row<'a>, database: &'a str) -> Cells<'a> {
        Cells { row: Source::Sqlite(row), database, at: 0 }
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn postgres(row: &'a postgres::Row, database: &'a str) -> Cells<'a> {
        Cells { row: Source::Postgres(row), database, at: 0 }
    }

    fn fault(&self, source: Box<dyn std::error::Error + Send + Sync>) -> StoreError {
        StoreError::Database { database: self.database.to_owned(), doing: "reading a row", source }
    }

    /// The next column as a whole number, or NULL.
    pub(crate) fn maybe_int(&mut self) -> Result<Option<i64>, StoreError> {
        let at = self.at;
        self.at += 1;
        match self.row {
            Source::Sqlite(row) => row.get(at).map_err(|error| self.fault(error.into())),
            #[cfg(feature = "postgres")]
            Source::Postgres(row) => row.try_get(at).map_err(|error| self.fault(error.into())),
        }
    }

    /// The next column as a whole number.
    pub(crate) fn int(&mut self) -> Result<i64, StoreError> {
        let at = self.at;
        self.at += 1;
        match self.row {
            Source::Sqlite(row) => row.get(at).map_err(|error| self.fault(error.into())),
            #[cfg(feature = "postgres")]
            Source::Postgres(row) => row.try_get(at).map_err(|error| self.fault(error.into())),
        }
    }

    /// The next column as text.
    pub(crate) fn text(&mut self) -> Result<String, StoreError> {
        let at = self.at;
        self.at += 1;
        match self.row {
            Source::Sqlite(row) => row.get(at).map_err(|error| self.fault(error.into())),
            #[cfg(feature = "postgres")]
            Source::Postgres(row) => row.try_get(at).map_err(|error| self.fault(error.into())),
        }
    }

    /// The next column as bytes, or NULL.
    pub(crate) fn bytes(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        let at = self.at;
        self.at += 1;
        match self.row {
            Source::Sqlite(row) => row.get(at).map_err(|error| self.fault(error.into())),
            #[cfg(feature = "postgres")]
            Source::Postgres(row) => row.try_get(at).map_err(|error| self.fault(error.into())),
        }
    }

    /// The next column as a smaller whole number, or NULL.
    pub(crate) fn maybe_small<T: TryFrom<i64>>(
        &mut self,
        what: &'static str,
    ) -> Result<Option<T>, StoreError> {
        let Some(value) = self.maybe_int()? else { return Ok(None) };
        T::try_from(value).map(Some).map_err(|_| self.damaged(what, value))
    }

    /// The next column as a truth value, which both databases keep as a number.
    pub(crate) fn flag(&mut self) -> Result<bool, StoreError> {
        self.int().map(|value| value != 0)
    }

    /// The next column as a number that is stored as its 64 bits (the databases have only signed integers).
    pub(crate) fn unsigned(&mut self) -> Result<u64, StoreError> {
        self.int().map(|value| value as u64)
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
        StoreError::Damaged { database: self.database.to_owned(), what, value }
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
