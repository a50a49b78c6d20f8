//! Request parameters: from a query string, a form body or the `params` of the WebSocket API, read once each by name.
//!
//! A list remembers which parameters were read, so that a request with one that its endpoint does not know is refused (-1104), as
//! Binance does: a misspelt `stopPrice` must not become an order without a stop.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

use hoga_core::ids::ClientId;
use hoga_core::money::{ParseMoneyError, parse_units};

use crate::error::ApiError;

/// More than any endpoint takes; beyond it a request is refused unread.
pub const MAX_PARAMETERS: usize = 40;

/// The legal range of a decimal, in Binance's words.
const DECIMAL_RANGE: &str = "^([0-9]{1,20})(\\.[0-9]{1,20})?$";
/// The legal range of a whole number, in Binance's words.
const INTEGER_RANGE: &str = "^[0-9]{1,20}$";
/// The legal range of a client's id.
const CLIENT_ID_RANGE: &str = "^[.A-Z:/a-z0-9_-]{1,36}$";
/// The legal range of a symbol.
const SYMBOL_RANGE: &str = "^[A-Z0-9-_.]{1,20}$";

struct Param<'a> {
    name: Cow<'a, str>,
    value: Cow<'a, str>,
    /// Atomic only so that a call may wait on any thread; nobody races.
    read: AtomicBool,
}

/// The parameters of one request.
#[derive(Default)]
pub struct Params<'a> {
    list: Vec<Param<'a>>,
}

impl<'a> Params<'a> {
    /// An empty list with room for an order.
    pub fn new() -> Params<'a> {
        Params { list: Vec::with_capacity(16) }
    }

    /// From a query string and a form body. A parameter in both counts once, with the query's value (Binance, General Information on
    /// Endpoints); twice in one of them is refused.
    pub fn from_request(query: &'a str, form: &'a str) -> Result<Params<'a>, ApiError> {
        let mut params = Params::new();
        params.add_encoded(query, false)?;
        params.add_encoded(form, true)?;
        Ok(params)
    }

    fn add_encoded(&mut self, text: &'a str, keep_first: bool) -> Result<(), ApiError> {
        let before = self.list.len();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = percent_decode(name)?;
            let value = percent_decode(value)?;
            match self.list.iter().position(|p| p.name == name) {
                Some(at) if keep_first && at < before => {}
                Some(_) => return Err(ApiError::duplicate_values()),
                None => self.push(name, value)?,
            }
        }
        Ok(())
    }

    /// Adds one; names are unique.
    pub fn add(&mut self, name: Cow<'a, str>, value: Cow<'a, str>) -> Result<(), ApiError> {
        if self.list.iter().any(|p| p.name == name) {
            return Err(ApiError::duplicate_values());
        }
        self.push(name, value)
    }

    fn push(&mut self, name: Cow<'a, str>, value: Cow<'a, str>) -> Result<(), ApiError> {
        if self.list.len() >= MAX_PARAMETERS {
            return Err(ApiError::too_many_parameters(MAX_PARAMETERS, self.list.len() + 1));
        }
        self.list.push(Param { name, value, read: AtomicBool::new(false) });
        Ok(())
    }

    /// The same parameters, independent of the text that they were read from, without those that `keep` refuses. Nothing counts as read.
    pub fn into_owned(self, keep: impl Fn(&str) -> bool) -> Params<'static> {
        let own = |p: Param<'_>| Param {
            name: Cow::Owned(p.name.into_owned()),
            value: Cow::Owned(p.value.into_owned()),
            read: AtomicBool::new(false),
        };
        Params { list: self.list.into_iter().filter(|p| keep(&p.name)).map(own).collect() }
    }

    /// Names and values in the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.list.iter().map(|p| (p.name.as_ref(), p.value.as_ref()))
    }

    /// The value as it is, empty or not; marks it as read.
    pub fn raw(&self, name: &str) -> Option<&str> {
        let param = self.list.iter().find(|p| p.name == name)?;
        param.read.store(true, Ordering::Relaxed);
        Some(param.value.as_ref())
    }

    /// An optional value; -1105 when it is sent empty.
    pub fn optional(&self, name: &str) -> Result<Option<&str>, ApiError> {
        match self.raw(name) {
            Some("") => Err(ApiError::empty(name)),
            other => Ok(other),
        }
    }

    /// A mandatory value; -1102 when it is missing or empty.
    pub fn mandatory(&self, name: &str) -> Result<&str, ApiError> {
        match self.raw(name) {
            None | Some("") => Err(ApiError::mandatory(name)),
            Some(value) => Ok(value),
        }
    }

    /// Refuses a parameter that this combination does not take (-1106).
    pub fn refuse(&self, name: &str) -> Result<(), ApiError> {
        match self.raw(name) {
            Some(_) => Err(ApiError::not_required(name)),
            None => Ok(()),
        }
    }

    /// -1104 when something was sent that nothing has read.
    pub fn all_read(&self) -> Result<(), ApiError> {
        let read = self.list.iter().filter(|p| p.read.load(Ordering::Relaxed)).count();
        if read == self.list.len() { Ok(()) } else { Err(ApiError::unread(read, self.list.len())) }
    }

    /// A decimal in units of 10⁻⁸: digits with at most one point, nothing else (`1e-05`, `-1` and `.5` are illegal).
    pub fn decimal(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let Some(text) = self.optional(name)? else { return Ok(None) };
        if !is_decimal(text) {
            return Err(ApiError::illegal(name, DECIMAL_RANGE));
        }
        match parse_units(text) {
            Ok(units) => Ok(Some(units)),
            Err(ParseMoneyError::Malformed) => Err(ApiError::illegal(name, DECIMAL_RANGE)),
            Err(ParseMoneyError::OverPrecise) => Err(ApiError::too_precise(name)),
            Err(ParseMoneyError::OutOfRange) => Err(ApiError::overflowed(name)),
        }
    }

    /// A mandatory decimal.
    pub fn mandatory_decimal(&self, name: &str) -> Result<i64, ApiError> {
        self.mandatory(name)?;
        self.decimal(name)?.ok_or_else(|| ApiError::mandatory(name))
    }

    /// A whole number that is not negative.
    pub fn integer(&self, name: &str) -> Result<Option<u64>, ApiError> {
        let Some(text) = self.optional(name)? else { return Ok(None) };
        if text.len() > 20 || !text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(ApiError::illegal(name, INTEGER_RANGE));
        }
        text.parse().map(Some).map_err(|_| ApiError::overflowed(name))
    }

    /// A time in milliseconds, or in microseconds when it has that many digits; comes back in microseconds.
    pub fn time(&self, name: &str) -> Result<Option<i64>, ApiError> {
        self.integer(name)?
            .map(|value| to_micros(value).ok_or_else(|| ApiError::overflowed(name)))
            .transpose()
    }

    /// A client's id for an order.
    pub fn client_id(&self, name: &str) -> Result<Option<ClientId>, ApiError> {
        let Some(text) = self.optional(name)? else { return Ok(None) };
        ClientId::new(text).map(Some).ok_or_else(|| ApiError::illegal(name, CLIENT_ID_RANGE))
    }

    /// A symbol's text; whether it exists is the catalogue's business.
    pub fn symbol(&self) -> Result<&str, ApiError> {
        check_symbol(self.mandatory("symbol")?)
    }

    /// An optional symbol.
    pub fn optional_symbol(&self) -> Result<Option<&str>, ApiError> {
        self.optional("symbol")?.map(check_symbol).transpose()
    }

    /// `true` or `false`, in any case.
    pub fn boolean(&self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.optional(name)? {
            None => Ok(None),
            Some(text) if text.eq_ignore_ascii_case("true") => Ok(Some(true)),
            Some(text) if text.eq_ignore_ascii_case("false") => Ok(Some(false)),
            Some(_) => Err(ApiError::not_valid(name)),
        }
    }

    /// A page size: `default` when missing, never above `max`, and not zero.
    pub fn limit(&self, default: usize, max: usize) -> Result<usize, ApiError> {
        match self.integer("limit")? {
            None => Ok(default),
            Some(0) => Err(ApiError::not_valid("limit")),
            Some(n) => Ok(usize::try_from(n).unwrap_or(max).min(max)),
        }
    }
}

/// A time as Binance takes it: milliseconds or microseconds, told apart by size (microseconds of any date after 2001 have 15 digits or
/// more, milliseconds of any date before 5138 have 14 or fewer).
pub fn to_micros(value: u64) -> Option<i64> {
    let value = i64::try_from(value).ok()?;
    if value >= 100_000_000_000_000 { Some(value) } else { value.checked_mul(1000) }
}

fn check_symbol(text: &str) -> Result<&str, ApiError> {
    let legal = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.');
    if text.len() > 20 || !text.bytes().all(legal) {
        return Err(ApiError::illegal("symbol", SYMBOL_RANGE));
    }
    Ok(text)
}

fn is_decimal(text: &str) -> bool {
    let digits = |t: &str| (1..=20).contains(&t.len()) && t.bytes().all(|b| b.is_ascii_digit());
    match text.split_once('.') {
        Some((whole, places)) => digits(whole) && digits(places),
        None => digits(text),
    }
}

/// Decodes `%XX` and `+`; -1100 for an escape that is none or bytes that are not UTF-8.
pub fn percent_decode(text: &str) -> Result<Cow<'_, str>, ApiError> {
    if !text.bytes().any(|b| b == b'%' || b == b'+') {
        return Ok(Cow::Borrowed(text));
    }
    let illegal = || ApiError::new(-1100, "Illegal characters found in a parameter.");
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'+' => out.push(b' '),
            b'%' => {
                let digit = |i: usize| bytes.get(i).and_then(|b| (*b as char).to_digit(16));
                let (Some(high), Some(low)) = (digit(at + 1), digit(at + 2)) else { return Err(illegal()) };
                out.push((high * 16 + low) as u8);
                at += 2;
            }
            b => out.push(b),
        }
        at += 1;
    }
    String::from_utf8(out).map(Cow::Owned).map_err(|_| illegal())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_and_finds() {
        let params =
            Params::from_request("symbol=BTCUSDT&a=%5B%22x%22%5D&b=1+2", "c=3&symbol=ETHUSDT").unwrap();
        assert_eq!(params.symbol().unwrap(), "BTCUSDT");
        assert_eq!(params.raw("a"), Some("[\"x\"]"));
        assert_eq!(params.raw("b"), Some("1 2"));
        assert_eq!(
            params.all_read().unwrap_err().msg,
            "Not all sent parameters were read; read '3' parameter(s) but was sent '4'."
        );
        assert_eq!(params.integer("c").unwrap(), Some(3));
        params.all_read().unwrap();
    }

    #[test]
    fn refuses_bad_encodings_and_duplicates() {
        for (query, form, code) in [
            ("a=1&a=2", "", -1101),
            ("", "a=1&a=1", -1101),
            ("a=%", "", -1100),
            ("a=%4", "", -1100),
            ("a=%zz", "", -1100),
            ("a=%ff", "", -1100),
        ] {
            assert_eq!(Params::from_request(query, form).err().map(|e| e.code), Some(code), "{query} {form}");
        }
        let many: String = (0..MAX_PARAMETERS + 1).map(|i| format!("p{i}=1&")).collect();
        assert_eq!(Params::from_request(&many, "").err().map(|e| e.code), Some(-1101));
    }

    #[test]
    fn decimals_are_read_to_the_letter() {
        for (text, result) in [
            ("50000", Ok(5_000_000_000_000)),
            ("50000.12", Ok(5_000_012_000_000)),
            ("0.001", Ok(100_000)),
            ("50000.0", Ok(5_000_000_000_000)),
            ("0", Ok(0)),
            ("1e-05", Err(-1100)),
            ("-1", Err(-1100)),
            ("+1", Err(-1100)),
            (".5", Err(-1100)),
            ("1.", Err(-1100)),
            ("0x10", Err(-1100)),
            ("1,5", Err(-1100)),
            ("NaN", Err(-1100)),
            ("", Err(-1105)),
            ("0.000000001", Err(-1111)),
            ("1.0000000000", Ok(100_000_000)),
            ("92233720369", Err(-1108)),
            ("99999999999999999999", Err(-1108)),
            ("999999999999999999999", Err(-1100)),
        ] {
            let query = format!("q={}", text.replace('+', "%2B"));
            let params = Params::from_request(&query, "").unwrap();
            assert_eq!(params.decimal("q").map(|v| v.unwrap()).map_err(|e| e.code), result, "{text}");
        }
    }

    #[test]
    fn times_may_be_milliseconds_or_microseconds() {
        assert_eq!(to_micros(1_499_827_319_559), Some(1_499_827_319_559_000));
        assert_eq!(to_micros(1_499_827_319_559_123), Some(1_499_827_319_559_123));
        assert_eq!(to_micros(u64::MAX), None);
    }
}
