//! Names that the gateway makes: client ids of orders that came without one, API keys and secrets.

use std::cell::Cell;

use hoga_core::ids::ClientId;

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

thread_local! {
    /// State of a SplitMix64 generator, seeded by the system. Client ids must be unique, not secret.
    static STATE: Cell<u64> = Cell::new(getrandom::u64().unwrap_or_else(|_| std::process::id().into()));
}

fn next() -> u64 {
    STATE.with(|state| {
        let mut z = state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        state.set(z);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

/// A fresh client id of 22 characters, as Binance makes them.
pub fn client_id() -> ClientId {
    let mut text = [0_u8; 22];
    for half in text.chunks_mut(11) {
        let mut bits = next();
        for byte in half {
            *byte = ALPHABET[(bits % 62) as usize];
            bits /= 62;
        }
    }
    std::str::from_utf8(&text).ok().and_then(ClientId::new).unwrap_or_default()
}

/// A random text of 64 letters and digits from the system's generator: an API key or a secret. 62^64 > 2^380.
pub fn secret() -> Result<String, getrandom::Error> {
    let mut out = String::with_capacity(64);
    let mut bytes = [0_u8; 96];
    while out.len() < 64 {
        getrandom::fill(&mut bytes)?;
        // Bytes from 248 on are left out, so that no character is likelier than another.
        let fair = bytes.iter().filter(|b| **b < 248).map(|b| char::from(ALPHABET[usize::from(b % 62)]));
        out.extend(fair.take(64 - out.len()));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_well_formed_and_differ() {
        let mut seen = std::collections::HashSet::new();
        for _ in 0..10_000 {
            let id = client_id();
            assert_eq!(id.as_str().len(), 22);
            assert!(seen.insert(id));
        }
        let (one, two) = (secret().unwrap(), secret().unwrap());
        assert!(one.len() == 64 && one != two && crate::auth::is_key_format(&one));
    }
}
