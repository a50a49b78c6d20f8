//! A request of the WebSocket API: `{"id":…,"method":"…","params":{…}}`.

use std::borrow::Cow;

use super::Id;
use crate::error::ApiError;
use crate::json::{JsonError, Reader, Value};
use crate::params::Params;

/// The longest id, as written: it is echoed, so it must not be a way to make the server send much.
const MAX_ID: usize = 256;

/// A request, borrowed from its message.
pub(super) struct Request<'a> {
    /// As written, with its JSON type.
    pub id: Id,
    pub method: Cow<'a, str>,
    pub params: Params<'a>,
}

impl<'a> Request<'a> {
    /// Reads a message; an error comes with the id to answer to.
    pub fn read(text: &'a str) -> Result<Request<'a>, (Id, ApiError)> {
        let mut id: Option<&'a str> = None;
        let mut method = None;
        let mut params = Params::new();
        let mut wrong: Option<ApiError> = None;
        let mut reader = Reader::new(text);
        let whole = reader
            .object(|name, reader| {
                match name.as_ref() {
                    "id" => id = Some(reader.raw()?),
                    "method" => match reader.value()? {
                        Value::Text(text) => method = Some(text),
                        _ => wrong = Some(ApiError::mandatory("method")),
                    },
                    "params" => read_params(reader, &mut params, &mut wrong)?,
                    _ => {
                        reader.raw()?;
                        wrong.get_or_insert_with(|| ApiError::new(-1103, "An unknown parameter was sent."));
                    }
                }
                Ok(())
            })
            .and_then(|()| reader.end());
        let null = || Id::new("null");
        if whole.is_err() {
            return Err((null(), ApiError::new(-1135, "Invalid JSON Request")));
        }
        let echo = match id {
            // Text, a number or null; never an array or object.
            Some(id) if id.len() <= MAX_ID && !id.starts_with(['{', '[', 't', 'f']) => Id::new(id),
            Some(_) => {
                return Err((
                    null(),
                    ApiError::new(
                        -1100,
                        "Illegal characters found in parameter 'id'; legal range is '^[a-zA-Z0-9-_]{1,36}$'.",
                    ),
                ));
            }
            None => null(),
        };
        match (wrong, method) {
            (Some(error), _) => Err((echo, error)),
            (None, Some(method)) => Ok(Request { id: echo, method, params }),
            (None, None) => Err((echo, ApiError::mandatory("method"))),
        }
    }
}

fn read_params<'a>(
    reader: &mut Reader<'a>,
    params: &mut Params<'a>,
    wrong: &mut Option<ApiError>,
) -> Result<(), JsonError> {
    if !reader.is_object() {
        if reader.value()? != Value::Null {
            *wrong = Some(ApiError::new(-1135, "JSON sent for parameter 'params' is not valid"));
        }
        return Ok(());
    }
    reader.object(|name, reader| {
        let value = match reader.value()? {
            Value::Text(text) => text,
            Value::Number(text) | Value::Raw(text) => Cow::Borrowed(text),
            Value::Bool(true) => Cow::Borrowed("true"),
            Value::Bool(false) => Cow::Borrowed("false"),
            Value::Null => return Ok(()),
        };
        if let Err(error) = params.add(name, value) {
            wrong.get_or_insert(error);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_keep_their_type() {
        for id in ["1", "\"1\"", "null", "-7", "1.50", "\"e2a85d9f-07a5\"", "\"q\\\"q\""] {
            let text = format!(r#"{{"id":{id},"method":"ping"}}"#);
            let Ok(request) = Request::read(&text) else { panic!("{text}") };
            assert_eq!(request.id.as_str(), id);
            assert_eq!(request.method, "ping");
        }
        assert_eq!(Request::read(r#"{"method":"ping"}"#).ok().unwrap().id.as_str(), "null");
    }

    #[test]
    fn bad_requests_are_answered_with_what_is_known() {
        let long = format!(r#"{{"id":"{}","method":"ping"}}"#, "a".repeat(300));
        for (text, id, code) in [
            ("", "null", -1135),
            ("[]", "null", -1135),
            ("{", "null", -1135),
            ("{}", "null", -1102),
            (r#"{"id":3}"#, "3", -1102),
            (r#"{"id":3,"method":5}"#, "3", -1102),
            (r#"{"id":[1],"method":"ping"}"#, "null", -1100),
            (r#"{"id":true,"method":"ping"}"#, "null", -1100),
            (&long, "null", -1100),
            (r#"{"id":3,"method":"ping","params":[]}"#, "3", -1135),
            (r#"{"id":3,"method":"ping","params":5}"#, "3", -1135),
            (r#"{"id":3,"method":"ping","params":{"a":1,"a":2}}"#, "3", -1101),
            (r#"{"id":3,"method":"ping","extra":1}"#, "3", -1103),
            (r#"{"id":3,"method":"ping"} x"#, "null", -1135),
        ] {
            match Request::read(text) {
                Err((got, error)) => assert_eq!((got.as_str(), error.code), (id, code), "{text}"),
                Ok(_) => panic!("{text}"),
            }
        }
    }

    #[test]
    fn parameters_are_shown_as_json_prints_them() {
        let text = r#"{"id":1,"method":"m","params":{"n":1.50,"s":"1.50","b":true,"l":["A","B"],"z":null}}"#;
        let request = Request::read(text).ok().unwrap();
        let pairs: Vec<(&str, &str)> = request.params.iter().collect();
        assert_eq!(pairs, [("n", "1.50"), ("s", "1.50"), ("b", "true"), ("l", r#"["A","B"]"#)]);
    }

    #[test]
    fn any_text_is_read_or_refused() {
        let seed = r#"{"id":"e2a85d9f","method":"order.place","params":{"symbol":"BTCUSDT","price":45000.10,"x":["a",{"b":null}]}}"#;
        let mut state = 0x853c_49e6_748f_ea9b_u64;
        let mut next = move |n: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % n as u64) as usize
        };
        let pool: Vec<char> = "{}[]\",:\\u0019.eE+-tfnl \n\u{0}é😀".chars().collect();
        let mut read = 0;
        for _ in 0..50_000 {
            let mut text: Vec<char> = seed.chars().collect();
            for _ in 0..next(5) {
                let at = next(text.len().max(1));
                if text.is_empty() {
                    break;
                }
                match next(4) {
                    0 => text[at] = pool[next(pool.len())],
                    1 => drop(text.remove(at)),
                    2 => text.insert(at, pool[next(pool.len())]),
                    _ => text.truncate(at.max(1)),
                }
            }
            let text: String = text.into_iter().collect();
            match Request::read(&text) {
                Ok(request) => {
                    read += 1;
                    // What is echoed is JSON by itself.
                    assert!(serde_json::from_str::<serde_json::Value>(request.id.as_str()).is_ok(), "{text}");
                }
                Err((id, error)) => {
                    assert!(serde_json::from_str::<serde_json::Value>(id.as_str()).is_ok(), "{text}");
                    assert!(matches!(error.code, -1135 | -1103 | -1102 | -1101 | -1100), "{text}: {error:?}");
                }
            }
        }
        assert!(read > 1_000, "{read}");
    }
}
