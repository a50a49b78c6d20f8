//! Names of symbols.

use std::fmt;

/// A symbol as its source spells it, such as `BTCUSDT` or `KRW-WAVES`: 1 to 23 characters of `[A-Za-z0-9._:/-]`. Kept inline, so that a
/// tick needs no allocation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbol {
    bytes: [u8; Symbol::MAX],
    len: u8,
}

/// Why a text is no symbol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no symbol: 1 to 23 characters of A-Z, a-z, 0-9, '.', '_', ':', '/', '-'")]
pub struct SymbolError {
    /// The text, cut.
    pub text: String,
}

impl Symbol {
    /// The longest name in bytes.
    pub const MAX: usize = 23;

    /// Checks a name.
    ///
    /// # Errors
    /// [`SymbolError`].
    pub fn parse(text: &str) -> Result<Symbol, SymbolError> {
        Symbol::from_bytes(text.as_bytes())
            .ok_or_else(|| SymbolError { text: text.chars().take(Symbol::MAX + 1).collect() })
    }

    /// The same from bytes; `None` when they are no symbol.
    pub fn from_bytes(name: &[u8]) -> Option<Symbol> {
        let allowed =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'/' | b'-');
        if name.is_empty() || name.len() > Symbol::MAX || !name.iter().all(allowed) {
            return None;
        }
        let mut bytes = [0; Symbol::MAX];
        bytes[..name.len()].copy_from_slice(name);
        Some(Symbol { bytes, len: name.len() as u8 })
    }

    /// Its bytes: the key of its messages.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).expect("it is ASCII, as checked when it was made")
    }
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Symbol({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_are_symbols() {
        for name in ["A", "BTCUSDT", "KRW-WAVES", "XBT/USD", "a.b_c:d", "ABCDEFGHIJKLMNOPQRSTUVW"] {
            assert_eq!(Symbol::parse(name).unwrap().as_str(), name);
        }
        for wrong in ["", "ABCDEFGHIJKLMNOPQRSTUVWX", "A B", "호가", "A\0"] {
            assert!(Symbol::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
