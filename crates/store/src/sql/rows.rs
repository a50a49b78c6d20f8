//! Rows on their way into a table: described once, gathered column by column, written by either database in one go.

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A whole number of 64 bits, never NULL.
    Int,
    /// A whole number of 64 bits, or NULL.
    MaybeInt,
    /// Text, never NULL.
    Text,
    /// Bytes, or NULL.
    MaybeBytes,
}

/// A table that a model writes: its columns in the order in which [`Rows`] are filled, and what happens when a row is there already.
#[derive(Debug)]
pub(crate) struct Table {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its columns.
    pub(crate) columns: &'static [(&'static str, Kind)],
    /// The conflict clause, in the SQL that both databases understand (`ON CONFLICT (key) DO UPDATE SET a = excluded.a`; columns of the
    /// row that is there are written with the table's name). Empty: a row that is there already is a fault. One batch must not have two
    /// rows of one key where this is not empty.
    pub(crate) conflict: &'static str,
}

/// The gathered values of one column.
pub(super) enum Data {
    Int(Vec<i64>),
    MaybeInt(Vec<Option<i64>>),
    /// All texts one after the other, and where each ends.
    Text(String, Vec<usize>),
    MaybeBytes(Vec<Option<Vec<u8>>>),
}

/// Rows of one table, gathered in columns. Fill each row from the first column to the last.
pub(crate) struct Rows {
    pub(super) table: &'static Table,
    pub(super) columns: Vec<Data>,
    at: usize,
    count: usize,
}

impl Rows {
    /// No rows yet.
    pub(crate) fn new(table: &'static Table) -> Rows {
        let column = |(_, kind): &(&str, Kind)| match kind {
            Kind::Int => Data::Int(Vec::new()),
            Kind::MaybeInt => Data::MaybeInt(Vec::new()),
            Kind::Text => Data::Text(String::new(), Vec::new()),
            Kind::MaybeBytes => Data::MaybeBytes(Vec::new()),
        };
        Rows { table, columns: table.columns.iter().map(column).collect(), at: 0, count: 0 }
    }

    /// Whole rows.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Lets the rows go and keeps the memory for the next ones.
    pub(crate) fn clear(&mut self) {
        for column in &mut self.columns {
            match column {
                Data::Int(values) => values.clear(),
                Data::MaybeInt(values) => values.clear(),
                Data::Text(text, ends) => {
                    text.clear();
                    ends.clear();
                }
                Data::MaybeBytes(values) => values.clear(),
            }
        }
        (self.at, self.count) = (0, 0);
    }

    /// The next column: a number. Unsigned ones go as their 64 bits.
    pub(crate) fn int(&mut self, value: i64) -> &mut Rows {
        match &mut self.columns[self.at] {
            Data::Int(values) => values.push(value),
            Data::MaybeInt(values) => values.push(Some(value)),
            _ => self.wrong_kind(),
        }
        self.moved()
    }

    /// The next column: several numbers, one column each.
    pub(crate) fn ints<const N: usize>(&mut self, values: [i64; N]) -> &mut Rows {
        for value in values {
            self.int(value);
        }
        self
    }

    /// The next column: a number or NULL.
    pub(crate) fn maybe_int(&mut self, value: Option<i64>) -> &mut Rows {
        match &mut self.columns[self.at] {
            Data::MaybeInt(values) => values.push(value),
            _ => self.wrong_kind(),
        }
        self.moved()
    }

    /// The next column: text.
    pub(crate) fn text(&mut self, value: &str) -> &mut Rows {
        match &mut self.columns[self.at] {
            Data::Text(text, ends) => {
                text.push_str(value);
                ends.push(text.len());
            }
            _ => self.wrong_kind(),
        }
        self.moved()
    }

    /// The next column: bytes or NULL.
    pub(crate) fn bytes(&mut self, value: Option<&[u8]>) -> &mut Rows {
        match &mut self.columns[self.at] {
            Data::MaybeBytes(values) => values.push(value.map(<[u8]>::to_vec)),
            _ => self.wrong_kind(),
        }
        self.moved()
    }

    fn moved(&mut self) -> &mut Rows {
        self.at += 1;
        if self.at == self.columns.len() {
            (self.at, self.count) = (0, self.count + 1);
        }
        self
    }

    /// A row filled with other kinds than its table's columns is an error in this crate, found by the first test that writes one.
    fn wrong_kind(&self) -> ! {
        let (name, kind) = self.table.columns[self.at];
        panic!("column {}.{name} is {kind:?}", self.table.name)
    }
}

/// Pieces of one text by where each ends.
pub(super) fn pieces<'a>(text: &'a str, ends: &'a [usize]) -> impl Iterator<Item = &'a str> {
    let starts = std::iter::once(0).chain(ends.iter().copied());
    starts.zip(ends).map(|(start, end)| &text[start..*end])
}

/// A parameter of a statement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    /// NULL.
    Null,
    /// A number.
    Int(i64),
    /// Text.
    Text(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
}

macro_rules! from_int {
    ($($int:ty),*) => { $(impl From<$int> for Value<'_> {
        fn from(value: $int) -> Self {
            // Unsigned 64-bit numbers are stored as their bits.
            Value::Int(value as i64)
        }
    })* };
}
from_int!(i64, u64, u32, u16, u8, usize);

impl<'a> From<&'a str> for Value<'a> {
    fn from(value: &'a str) -> Value<'a> {
        Value::Text(value)
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(value: &'a [u8]) -> Value<'a> {
        Value::Bytes(value)
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Value<'a> {
        value.map_or(Value::Null, Into::into)
    }
}

/// The parameters of a statement, as a slice.
macro_rules! values {
    ($($value:expr),* $(,)?) => { &[$($crate::sql::Value::from($value)),*] };
}
pub(crate) use values;

#[cfg(test)]
mod tests {
    use super::*;

    static TABLE: Table = Table {
        name: "t",
        columns: &[("a", Kind::Int), ("b", Kind::Text), ("c", Kind::MaybeInt)],
        conflict: "",
    };

    #[test]
    fn rows_are_filled_left_to_right_and_cleared() {
        let mut rows = Rows::new(&TABLE);
        rows.int(1).text("x").maybe_int(None);
        rows.int(2).text("").maybe_int(Some(3));
        assert_eq!(rows.len(), 2);
        let Data::Text(text, ends) = &rows.columns[1] else { panic!("text") };
        assert_eq!(pieces(text, ends).collect::<Vec<_>>(), ["x", ""]);
        rows.clear();
        assert!(rows.is_empty());
        rows.int(9).text("y").int(4);
        assert_eq!(rows.len(), 1);
    }

    #[test]
    #[should_panic(expected = "column t.b is Text")]
    fn a_wrong_kind_is_noticed() {
        Rows::new(&TABLE).int(1).int(2);
    }
}
