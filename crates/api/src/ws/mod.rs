//! The server side of the WebSocket protocol (RFC 6455), written for fan-out.
//!
//! A frame from server to client carries no mask (§5.1), so the bytes on the wire are the same for every client: a message is encoded
//! once, header included, and shared by all queues ([`Frame`]). Everything that waits for a client leaves in one write. There is no
//! compression (permessage-deflate is declined by leaving it out of the answer, RFC 7692 §5.1): it would cost memory per client and make the frames differ.
//!
//! **Bounds**, all in [`Config`]: the size of an incoming message, incoming messages a second, frames and bytes that wait for a client.
//! A client over a bound is closed with a code that says why; none of them makes the server wait.
//!
//! - [`accept`] answers the opening handshake, [`serve`] runs the connection after hyper's upgrade.
//! - [`Outbound`] is the handle with which any thread sends to one client.
//! - [`decode::Decoder`] reads frames, for both roles; [`client`] is the other end, for load generators and tests.

pub mod client;
mod close;
mod connection;
pub mod decode;
mod frame;
mod handshake;
mod outbound;
#[cfg(test)]
pub(crate) mod testing;

pub use close::{Close, CloseCode};
pub use connection::{Closed, Config, Ending, Handler, Incoming, run, serve};
pub use frame::{Frame, Opcode};
pub use handshake::{HandshakeError, accept, accept_key, is_upgrade};
pub use outbound::{Counters, Delivery, Limits, Outbound, Wakers};
