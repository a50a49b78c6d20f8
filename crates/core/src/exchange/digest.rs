//! A hash over the whole logical state.

use super::Exchange;
use crate::book::table::mix;

/// Hashes a stream of bytes to 128 bits; the result does not depend on how the stream is cut.
struct Hasher {
    lanes: [u64; 2],
    length: u64,
}

const KEYS: [u64; 4] =
    [0x9E37_79B9_7F4A_7C15, 0xD6E8_FEB8_6659_FD93, 0xA076_1D64_78BD_642F, 0xE703_7ED1_A0B4_28DB];

impl Hasher {
    fn block(&mut self, block: &[u8; 16]) {
        let [a, b] = [0, 8].map(|at| {
            let mut word = [0; 8];
            word.copy_from_slice(&block[at..at + 8]);
            u64::from_le_bytes(word)
        });
        self.lanes[0] = mix(self.lanes[0] ^ a ^ KEYS[0], b ^ KEYS[1]);
        self.lanes[1] = mix(self.lanes[1] ^ b ^ KEYS[2], a ^ KEYS[3]).rotate_left(23) ^ a;
    }
}

impl Hasher {
    /// The hash, after the last bytes, which are fewer than a block.
    fn finish(mut self, rest: &[u8]) -> u128 {
        let mut last = [0; 16];
        last[..rest.len()].copy_from_slice(rest);
        self.block(&last);
        let length = self.length;
        let [a, b] = self.lanes.map(|lane| mix(lane ^ length, KEYS[0]));
        u128::from(a) << 64 | u128::from(b)
    }
}

impl Exchange {
    /// A hash over the whole logical state: equal for equal states, however they came about. It does not depend on where things lie in
    /// memory. Costs as much as a snapshot.
    pub fn digest(&self) -> u128 {
        let mut hasher = Hasher { lanes: [KEYS[1], KEYS[2]], length: 0 };
        let mut rest: Vec<u8> = Vec::new();
        self.encode_parts(&mut |part| {
            hasher.length += part.len() as u64;
            rest.append(part);
            let mut blocks = rest.chunks_exact(16);
            for block in &mut blocks {
                let mut copy = [0; 16];
                copy.copy_from_slice(block);
                hasher.block(&copy);
            }
            let tail = blocks.remainder().len();
            let done = rest.len() - tail;
            rest.drain(..done);
        });
        hasher.finish(&rest)
    }

    /// The digest of the state that a snapshot holds, from the snapshot's bytes alone: equal states have equal bytes. For whoever writes a
    /// snapshot and must not hold up its owner for a second encoding.
    pub fn digest_of(snapshot: &[u8]) -> u128 {
        let mut hasher = Hasher { lanes: [KEYS[1], KEYS[2]], length: snapshot.len() as u64 };
        let (blocks, rest) = snapshot.as_chunks::<16>();
        blocks.iter().for_each(|block| hasher.block(block));
        hasher.finish(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Body, Command, RULES_VERSION};
    use crate::ids::{Seq, Timestamp};

    #[test]
    fn a_snapshots_bytes_give_the_digest_of_its_state() {
        let (mut exchange, mut events) = (Exchange::new(), Vec::new());
        for seq in 1..=40 {
            let mut bytes = Vec::new();
            exchange.encode_snapshot(&mut bytes);
            assert_eq!(Exchange::digest_of(&bytes), exchange.digest(), "{} bytes", bytes.len());
            let (rules, body) = (RULES_VERSION, Body::CreateAccount);
            let command = Command { seq: Seq(seq), time: Timestamp(1), rules, deadline: Timestamp(0), body };
            exchange.apply(&command, &mut events).unwrap();
        }
    }
}
