//! Where in the messages of any exchange the fields of a trade are.

use std::collections::BTreeMap;
use std::fmt;

use hoga_core::ids::Timestamp;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::exchange::{Found, ParseError, TimeUnit, scalar};
use crate::gateway::SourceTrade;

/// A place in a JSON message: names and list indices from 0, with dots between them (`data.price`, `data.0.p`). In a message with a list of
/// trades a path begins at the trade; one that begins with `$.` begins at the message. Names with a dot in them cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Path {
    text: String,
    from_message: bool,
    steps: Vec<String>,
}

/// A path that leads nowhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no path: names or list indices with dots between them, such as data.price or 0.p, are expected"
)]
pub struct PathError {
    /// The text.
    pub text: String,
}

impl Path {
    /// Reads a path; `$` alone is the message itself.
    ///
    /// # Errors
    /// [`PathError`].
    pub fn parse(text: &str) -> Result<Path, PathError> {
        let (from_message, rest) = match text.strip_prefix('$') {
            Some("") => (true, None),
            Some(rest) => {
                (true, Some(rest.strip_prefix('.').ok_or_else(|| PathError { text: text.into() })?))
            }
            None => (false, Some(text)),
        };
        let steps: Vec<String> =
            rest.map(|rest| rest.split('.').map(str::to_owned).collect()).unwrap_or_default();
        if steps.iter().any(String::is_empty) {
            return Err(PathError { text: text.into() });
        }
        Ok(Path { text: text.into(), from_message, steps })
    }

    /// The JSON at this place; `None` when there is none, or null.
    fn find<'a>(&self, from: &'a str) -> Result<Option<&'a str>, ParseError> {
        let mut at = from;
        for step in &self.steps {
            let found = Step(step).deserialize(&mut serde_json::Deserializer::from_str(at))?;
            match found {
                Some(found) => at = found.get(),
                None => return Ok(None),
            }
        }
        Ok(Some(at.trim()).filter(|found| *found != "null"))
    }
}

impl TryFrom<String> for Path {
    type Error = PathError;

    fn try_from(text: String) -> Result<Path, PathError> {
        Path::parse(&text)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// One step into a value: the member of that name, or the element of that index. Everything else is passed over.
struct Step<'p>(&'p str);

impl<'de> DeserializeSeed<'de> for Step<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// Nothing is inside a value that is no object and no list.
macro_rules! nothing_inside {
    ($($name:ident $type:ty),*) => {
        $(fn $name<E>(self, _: $type) -> Result<Self::Value, E> {
            Ok(None)
        })*
    };
}

impl<'de> Visitor<'de> for Step<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "something with {} in it", self.0)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(wanted) = map.next_key_seed(Named(self.0))? {
            if wanted {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let wanted = self.0.parse::<usize>().ok();
        let (mut found, mut at) = (None, 0);
        loop {
            if Some(at) == wanted {
                match list.next_element()? {
                    Some(value) => found = Some(value),
                    None => return Ok(None),
                }
            } else if list.next_element::<IgnoredAny>()?.is_none() {
                return Ok(found);
            }
            at += 1;
        }
    }

    nothing_inside!(visit_bool bool, visit_i64 i64, visit_u64 u64, visit_f64 f64, visit_str &str);

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

/// Whether a member has this name.
struct Named<'p>(&'p str);

impl<'de> DeserializeSeed<'de> for Named<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Named<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}

/// Which side took.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SideMapping {
    /// Where it is said.
    pub path: Path,
    /// The value that means that the taker sold, such as `sell`, `ASK`, `1` or `true`; every other means that the taker bought.
    pub sell: String,
}

/// Where the fields of a trade are. As TOML:
///
/// ```toml
/// symbol = "product_id"
/// price = "price"
/// qty = "size"
/// time = "time_ms"
/// time_unit = "ms"
/// id = "trade_id"
/// side = { path = "side", sell = "buy" }
/// only = { type = "match" }
/// ```
///
/// Numbers may be JSON numbers or texts, an exponent included.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mapping {
    /// The symbol: 1 to 23 characters of `[A-Za-z0-9._:/-]`.
    pub symbol: Path,
    /// The price in whole units of the quote asset.
    pub price: Path,
    /// The quantity in whole units of the base asset.
    pub qty: Path,
    /// When it happened.
    pub time: Path,
    /// What `time` counts: `s`, `ms`, `us` or `ns` since the Unix epoch.
    pub time_unit: TimeUnit,
    /// The trade's number, a whole one. Without, trades are numbered from 1 for each symbol, anew at each start.
    #[serde(default)]
    pub id: Option<Path>,
    /// Which side took. Without, every taker counts as a buyer.
    #[serde(default)]
    pub side: Option<SideMapping>,
    /// A list of trades in one message; without, the message is one trade.
    #[serde(default)]
    pub list: Option<Path>,
    /// What a message must have to be one of trades: values by path from the message. All other messages are passed over.
    #[serde(default)]
    pub only: BTreeMap<Path, String>,
}

impl Mapping {
    pub(super) fn trades(
        &self,
        message: &str,
        received: Timestamp,
        out: &mut Vec<SourceTrade>,
    ) -> Result<(), ParseError> {
        // All of it, so that what follows the last step is looked at too.
        serde_json::from_str::<IgnoredAny>(message)?;
        for (path, value) in &self.only {
            let found = path.find(message)?;
            if !found.is_some_and(|json| scalar(&path.text, json).is_ok_and(|text| text == value.as_str())) {
                return Ok(());
            }
        }
        let Some(list) = &self.list else {
            out.push(self.trade(message, message)?.trade(received)?);
            return Ok(());
        };
        let list = list.find(message)?.ok_or_else(|| ParseError::missing(&list.text))?;
        for trade in serde_json::from_str::<Vec<&RawValue>>(list)? {
            out.push(self.trade(message, trade.get())?.trade(received)?);
        }
        Ok(())
    }

    fn trade<'a>(&self, message: &'a str, trade: &'a str) -> Result<Found<'a>, ParseError> {
        let need = |path: &Path| {
            let json = path.find(if path.from_message { message } else { trade })?;
            scalar(&path.text, json.ok_or_else(|| ParseError::missing(&path.text))?)
        };
        Ok(Found {
            symbol: need(&self.symbol)?,
            price: need(&self.price)?,
            qty: need(&self.qty)?,
            time: need(&self.time)?,
            unit: self.time_unit,
            id: self.id.as_ref().map(need).transpose()?,
            sell: match &self.side {
                Some(side) => need(&side.path)? == side.sell.as_str(),
                None => false,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::exchange::{Format, Parser, trades};
    use super::*;
    use hoga_core::order::Side;
    use proptest::prelude::*;

    fn mapping(toml: &str) -> Mapping {
        toml::from_str(toml).unwrap()
    }

    fn simple() -> Mapping {
        mapping(
            "symbol = 's'\nprice = 'd.p'\nqty = 'd.q'\ntime = 'd.t.0'\ntime_unit = 'ns'\nid = 'd.id'\n\
             side = { path = 'd.side', sell = 'sell' }\nonly = { type = 'match' }",
        )
    }

    fn read(mapping: Mapping, message: &str) -> Result<Vec<SourceTrade>, ParseError> {
        let mut out = Vec::new();
        trades(&Format::Mapping(Box::new(mapping)), message.as_bytes(), Timestamp(5), &mut out)?;
        Ok(out)
    }

    #[test]
    fn a_message_that_is_one_trade() {
        let message = r#"{"type":"match","x":[1,{"d":3}],"s":"A\/B",
            "d":{"p":1.5e0,"q":"0.2","t":[1700000000123456789,2],"id":"77","side":"sell"}}"#;
        let trades = read(simple(), message).unwrap();
        let [SourceTrade { symbol, tick, received }] = trades[..] else { panic!("{trades:?}") };
        assert_eq!((symbol.as_str(), received.0, tick.time.0), ("A/B", 5, 1_700_000_000_123_456));
        assert_eq!((tick.id.0, tick.price.0, tick.qty.0), (77, 150_000_000, 20_000_000));
        assert_eq!((tick.quote.0, tick.taker_side), (30_000_000, Side::Sell));
        // Of something else.
        assert_eq!(read(simple(), r#"{"type":"heartbeat"}"#), Ok(vec![]));
        assert_eq!(read(simple(), "[1]"), Ok(vec![]));
        assert_eq!(read(simple(), "7"), Ok(vec![]));
    }

    #[test]
    fn a_message_with_a_list_of_trades_without_ids() {
        // Kraken's, by a mapping.
        let kraken = "symbol = '$.3'\nprice = '0'\nqty = '1'\ntime = '2'\ntime_unit = 's'\nlist = '1'\n\
                      side = { path = '3', sell = 's' }\nonly = { 2 = 'trade' }";
        let message = br#"[993,[["354.04","0.28245396","1618678150.826417","s","m",""],
            ["353.81","1.71754604","1618678150.827816","b","m",""]],"trade","XMR/USD"]"#;
        let mut by_name = (Parser::new(Format::Kraken), Vec::new());
        let mut by_mapping = (Parser::new(Format::Mapping(Box::new(mapping(kraken)))), Vec::new());
        for _ in 0..2 {
            assert_eq!(by_name.0.read(message, Timestamp(5), &mut by_name.1), Ok(2));
            assert_eq!(by_mapping.0.read(message, Timestamp(5), &mut by_mapping.1), Ok(2));
        }
        assert_eq!(by_name.1, by_mapping.1);
        assert!(by_name.1.iter().map(|trade| trade.tick.id.0).eq(1..=4));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let message = r#"{"type":"match","s":"A","d":{"p":null,"q":1,"t":[1]}}"#;
        assert_eq!(read(simple(), message), Err(ParseError::missing("d.p")));
        let message = r#"{"type":"match","s":{},"d":{"p":1,"q":1,"t":[1]}}"#;
        assert!(read(simple(), message).unwrap_err().to_string().starts_with("s of the trade is \"{}\""));
        let list = Mapping { list: Some(Path::parse("data").unwrap()), only: BTreeMap::new(), ..simple() };
        assert_eq!(read(list, "{}"), Err(ParseError::missing("data")));
        assert!(matches!(read(simple(), r#"{"type":"match"} more"#), Err(ParseError::Json(_))));
        for wrong in ["", ".", "a..b", "$a", "$."] {
            assert!(Path::parse(wrong).is_err(), "{wrong:?}");
        }
        assert!(toml::from_str::<Mapping>("symbol = 's'\nprize = 'p'").is_err());
        assert_eq!(toml::from_str::<BTreeMap<String, Format>>("a = 'upbit'").unwrap()["a"], Format::Upbit);
    }

    proptest! {
        #[test]
        fn damaged_messages_are_read_without_a_panic(at in 0..120_usize, byte in any::<u8>(), cut in 0..120_usize) {
            let message = br#"{"type":"match","s":"A","d":{"p":1.5e0,"q":"0.2","t":[1700000000123456789],"id":7}}"#;
            let mut damaged = message.to_vec();
            damaged.truncate(cut);
            if let Some(place) = damaged.get_mut(at) {
                *place = byte;
            }
            let _ = trades(&Format::Mapping(Box::new(simple())), &damaged, Timestamp(1), &mut Vec::new());
        }
    }
}
