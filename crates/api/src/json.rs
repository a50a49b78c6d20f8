//! JSON by hand where it is hot: a strict reader that borrows from the message, and writers without a formatter.
//!
//! `serde_json` serves the cold paths. Here every order of the WebSocket API passes, so nothing is allocated unless a string has escapes.

use std::borrow::Cow;

/// Deepest nesting that [`Reader::skip_value`] follows: beyond it a message is refused, so that no input can exhaust the stack.
const MAX_DEPTH: u32 = 32;

/// Why a text is not JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid JSON at byte {0}")]
pub struct JsonError(pub usize);

/// A value, borrowed from the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A string, unescaped.
    Text(Cow<'a, str>),
    /// A number, as written.
    Number(&'a str),
    /// `true` or `false`.
    Bool(bool),
    /// `null`.
    Null,
    /// An array or object, as written (and checked).
    Raw(&'a str),
}

/// A cursor over a JSON text.
pub struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    /// Starts at the beginning.
    pub fn new(text: &'a str) -> Reader<'a> {
        Reader { text, at: 0 }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn fail<T>(&self) -> Result<T, JsonError> {
        Err(JsonError(self.at))
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    /// Steps over `byte` (after white space) when it comes next.
    pub fn take(&mut self, byte: u8) -> bool {
        self.space();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Steps over `byte`, which must come next.
    pub fn expect(&mut self, byte: u8) -> Result<(), JsonError> {
        if self.take(byte) { Ok(()) } else { self.fail() }
    }

    /// Only white space may be left.
    pub fn end(&mut self) -> Result<(), JsonError> {
        self.space();
        if self.at == self.text.len() { Ok(()) } else { self.fail() }
    }

    /// Whether an object comes next.
    pub fn is_object(&mut self) -> bool {
        self.space();
        self.peek() == Some(b'{')
    }

    /// Reads an object and gives each member to `member`, which must read the value.
    pub fn object(
        &mut self,
        mut member: impl FnMut(Cow<'a, str>, &mut Reader<'a>) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        self.expect(b'{')?;
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            self.space();
            let name = self.string()?;
            self.expect(b':')?;
            member(name, self)?;
            if self.take(b'}') {
                return Ok(());
            }
            self.expect(b',')?;
        }
    }

    /// Reads a string, unescaped; borrowed when it has no escapes.
    pub fn string(&mut self) -> Result<Cow<'a, str>, JsonError> {
        if self.peek() != Some(b'"') {
            return self.fail();
        }
        self.at += 1;
        let start = self.at;
        loop {
            match self.peek() {
                Some(b'"') => {
                    let text = &self.text[start..self.at];
                    self.at += 1;
                    return Ok(Cow::Borrowed(text));
                }
                Some(b'\\') => return self.escaped(start).map(Cow::Owned),
                Some(0..=0x1f) | None => return self.fail(),
                Some(_) => self.at += 1,
            }
        }
    }

    fn escaped(&mut self, start: usize) -> Result<String, JsonError> {
        let mut out = String::from(&self.text[start..self.at]);
        loop {
            let from = self.at;
            while !matches!(self.peek(), Some(b'"' | b'\\' | 0..=0x1f) | None) {
                self.at += 1;
            }
            out.push_str(&self.text[from..self.at]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.at += 1;
                    let c = match self.peek() {
                        Some(b @ (b'"' | b'\\' | b'/')) => b as char,
                        Some(b'b') => '\u{8}',
                        Some(b'f') => '\u{c}',
                        Some(b'n') => '\n',
                        Some(b'r') => '\r',
                        Some(b't') => '\t',
                        Some(b'u') => {
                            out.push(self.unicode()?);
                            continue;
                        }
                        _ => return self.fail(),
                    };
                    self.at += 1;
                    out.push(c);
                }
                _ => return self.fail(),
            }
        }
    }

    /// At the `u` of `\u`: reads one code point, of two escapes where it is a surrogate pair.
    fn unicode(&mut self) -> Result<char, JsonError> {
        let high = self.hex4()?;
        if !(0xd800..0xe000).contains(&high) {
            return char::from_u32(high).ok_or(JsonError(self.at));
        }
        if high >= 0xdc00 || !self.text[self.at..].starts_with("\\u") {
            return self.fail();
        }
        self.at += 1;
        let low = self.hex4()?;
        if !(0xdc00..0xe000).contains(&low) {
            return self.fail();
        }
        char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)).ok_or(JsonError(self.at))
    }

    fn hex4(&mut self) -> Result<u32, JsonError> {
        self.at += 1;
        let digits = self.text.as_bytes().get(self.at..self.at + 4).ok_or(JsonError(self.at))?;
        let mut value = 0;
        for &b in digits {
            value = value * 16 + (b as char).to_digit(16).ok_or(JsonError(self.at))?;
        }
        self.at += 4;
        Ok(value)
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        self.at - start
    }

    fn number(&mut self) -> Result<&'a str, JsonError> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let zero = self.peek() == Some(b'0');
        let whole = self.digits();
        if whole == 0 || (zero && whole > 1) {
            return self.fail();
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if self.digits() == 0 {
                return self.fail();
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if self.digits() == 0 {
                return self.fail();
            }
        }
        Ok(&self.text[start..self.at])
    }

    fn word(&mut self, word: &str) -> Result<(), JsonError> {
        if self.text[self.at..].starts_with(word) {
            self.at += word.len();
            return Ok(());
        }
        self.fail()
    }

    /// Reads any value.
    pub fn value(&mut self) -> Result<Value<'a>, JsonError> {
        self.space();
        match self.peek() {
            Some(b'"') => self.string().map(Value::Text),
            Some(b'-' | b'0'..=b'9') => self.number().map(Value::Number),
            Some(b't') => self.word("true").map(|()| Value::Bool(true)),
            Some(b'f') => self.word("false").map(|()| Value::Bool(false)),
            Some(b'n') => self.word("null").map(|()| Value::Null),
            Some(b'[' | b'{') => self.raw().map(Value::Raw),
            _ => self.fail(),
        }
    }

    /// Reads any value and gives its text, checked, as written.
    pub fn raw(&mut self) -> Result<&'a str, JsonError> {
        self.space();
        let start = self.at;
        self.skip_value(0)?;
        Ok(&self.text[start..self.at])
    }

    fn skip_value(&mut self, depth: u32) -> Result<(), JsonError> {
        if depth > MAX_DEPTH {
            return self.fail();
        }
        self.space();
        match self.peek() {
            Some(b'[') => {
                self.at += 1;
                if self.take(b']') {
                    return Ok(());
                }
                loop {
                    self.skip_value(depth + 1)?;
                    if self.take(b']') {
                        return Ok(());
                    }
                    self.expect(b',')?;
                }
            }
            Some(b'{') => self.object(|_, r| r.skip_value(depth + 1)),
            _ => self.value().map(drop),
        }
    }
}

/// Reads `["A","B"]`; at most `max` entries.
pub fn string_array(text: &str, max: usize) -> Result<Vec<Cow<'_, str>>, JsonError> {
    let mut reader = Reader::new(text);
    let mut out = Vec::new();
    reader.expect(b'[')?;
    if !reader.take(b']') {
        loop {
            reader.space();
            out.push(reader.string()?);
            if out.len() > max {
                return reader.fail();
            }
            if reader.take(b']') {
                break;
            }
            reader.expect(b',')?;
        }
    }
    reader.end()?;
    Ok(out)
}

/// Writes a string with its quotes, escaped.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut from = 0;
    for (at, b) in text.bytes().enumerate() {
        if b >= 0x20 && b != b'"' && b != b'\\' {
            continue;
        }
        out.extend_from_slice(&text.as_bytes()[from..at]);
        from = at + 1;
        match b {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => {
                let hex = b"0123456789abcdef";
                out.extend_from_slice(b"\\u00");
                out.push(hex[usize::from(b >> 4)]);
                out.push(hex[usize::from(b & 15)]);
            }
        }
    }
    out.extend_from_slice(&text.as_bytes()[from..]);
    out.push(b'"');
}

/// Writes an integer.
pub fn write_int(out: &mut Vec<u8>, value: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Writes units of 10⁻⁸ as a quoted decimal with eight places, as Binance does.
pub fn write_units(out: &mut Vec<u8>, units: i64) {
    out.push(b'"');
    hoga_core::money::write_units(out, units);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> Result<Value<'_>, JsonError> {
        let mut reader = Reader::new(text);
        let value = reader.value()?;
        reader.end()?;
        Ok(value)
    }

    #[test]
    fn reads_values() {
        for (text, value) in [
            ("\"a\"", Value::Text("a".into())),
            (r#" "a\"\\\/\b\f\n\r\té😀ü" "#, Value::Text("a\"\\/\u{8}\u{c}\n\r\té😀ü".into())),
            ("-12.5e+3", Value::Number("-12.5e+3")),
            ("0", Value::Number("0")),
            ("true", Value::Bool(true)),
            ("null", Value::Null),
            (r#"[1,{"a":[]}]"#, Value::Raw(r#"[1,{"a":[]}]"#)),
        ] {
            assert_eq!(whole(text).unwrap(), value, "{text}");
        }
    }

    #[test]
    fn refuses_what_is_not_json() {
        let deep = "[".repeat(100_000);
        for text in [
            "",
            "{",
            "}",
            "[1,]",
            "{\"a\"}",
            "{\"a\":}",
            "{a:1}",
            "01",
            "-",
            "1.",
            ".5",
            "1e",
            "+1",
            "tru",
            "nul",
            "\"",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\ud800\"",
            "\"\\ud800\\u0041\"",
            "\"\\udc00\"",
            "\"\n\"",
            "1 2",
            "'a'",
            "[1 2]",
            "NaN",
            &deep,
        ] {
            assert!(whole(text).is_err(), "{}", &text[..text.len().min(20)]);
        }
    }

    #[test]
    fn agrees_with_serde_json_on_random_texts() {
        // A small grammar-biased generator: mutations of valid texts reach far more branches than random bytes.
        let seeds = [
            r#"{"id":1,"method":"order.place","params":{"a":"bc","d":[1,2.5e-3,null,true]}}"#,
            r#"["A","B"]"#,
        ];
        let mut state = 0x9e37_79b9_u64;
        let mut next = move |n: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % n as u64) as usize
        };
        for round in 0..20_000 {
            let mut text = seeds[round % 2].as_bytes().to_vec();
            for _ in 0..=next(3) {
                let at = next(text.len());
                match next(3) {
                    0 => text[at] = b"{}[]\",:\\u0129.eE+-tfn ab"[next(24)],
                    1 => drop(text.remove(at)),
                    _ => text.insert(at, b"{}[]\",:\\u0129.eE+-tfn ab"[next(24)]),
                }
            }
            let text = String::from_utf8(text).unwrap();
            let ours = whole(&text).is_ok();
            let theirs = serde_json::from_str::<serde_json::Value>(&text).is_ok();
            assert_eq!(ours, theirs, "{text}");
        }
    }

    #[test]
    fn writes_what_it_reads() {
        for text in ["", "plain", "a\"b\\c\n\r\t\u{1}\u{1f}é😀"] {
            let mut out = Vec::new();
            write_string(&mut out, text);
            let out = String::from_utf8(out).unwrap();
            assert_eq!(whole(&out).unwrap(), Value::Text(text.into()));
        }
        let mut out = Vec::new();
        write_units(&mut out, 150_000_000);
        write_int(&mut out, -7_i64);
        assert_eq!(out, b"\"1.50000000\"-7");
    }

    #[test]
    fn reads_string_arrays() {
        assert_eq!(string_array(r#"["A", "B"]"#, 2).unwrap(), ["A", "B"]);
        assert_eq!(string_array("[]", 2).unwrap().len(), 0);
        for bad in ["", "A", "[A]", "[\"A\"", "[\"A\",]", "[1]", r#"["A","B","C"]"#, r#"["A"] x"#] {
            assert!(string_array(bad, 2).is_err(), "{bad}");
        }
    }
}
