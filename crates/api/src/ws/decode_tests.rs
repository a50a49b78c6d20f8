use proptest::prelude::*;

use super::*;
use crate::ws::client::{write_fragment, write_frame};
use crate::ws::{Frame, Opcode};

const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

#[derive(Clone, Debug, PartialEq, Eq)]
enum Owned {
    Text(String),
    Binary(Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<(u16, String)>),
}

impl From<Message<'_>> for Owned {
    fn from(message: Message<'_>) -> Owned {
        match message {
            Message::Text(text) => Owned::Text(text.to_owned()),
            Message::Binary(bytes) => Owned::Binary(bytes.to_vec()),
            Message::Ping(bytes) => Owned::Ping(bytes.to_vec()),
            Message::Pong(bytes) => Owned::Pong(bytes.to_vec()),
            Message::Close(close) => Owned::Close(close.map(|(code, reason)| (code.0, reason.to_owned()))),
        }
    }
}

/// Reads `wire` in pieces that end at `cuts`.
fn read_cut(role: Role, max: usize, wire: &[u8], cuts: &[usize]) -> Result<Vec<Owned>, CloseCode> {
    let mut decoder = Decoder::new(role, max);
    let mut messages = Vec::new();
    let mut start = 0;
    for end in cuts.iter().copied().chain([wire.len()]) {
        let mut piece = wire[start.min(end)..end].to_vec();
        start = end;
        decoder
            .feed(&mut piece, |message| {
                messages.push(Owned::from(message));
                Ok(())
            })
            .map_err(|close| close.code)?;
        assert!(decoder.held_bytes() <= (2 * max).max(KEEP), "{} bytes held", decoder.held_bytes());
    }
    Ok(messages)
}

fn read(wire: &[u8]) -> Result<Vec<Owned>, CloseCode> {
    let whole = read_cut(Role::Server, 70_000, wire, &[]);
    let bytewise: Vec<usize> = (1..wire.len()).collect();
    if wire.len() < 5000 {
        assert_eq!(read_cut(Role::Server, 70_000, wire, &bytewise), whole);
    }
    whole
}

fn frame(fin: bool, opcode: Opcode, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write_fragment(&mut out, fin, opcode, payload, MASK);
    out
}

#[test]
fn reads_the_examples_of_the_rfc() {
    // §5.7, those that a server reads.
    let masked_hello = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
    assert_eq!(read(&masked_hello), Ok(vec![Owned::Text("Hello".into())]));
    let masked_pong = [0x8a, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
    assert_eq!(read(&masked_pong), Ok(vec![Owned::Pong(b"Hello".to_vec())]));
    // And those that a client reads.
    let client = |wire: &[u8]| read_cut(Role::Client, 70_000, wire, &[]);
    assert_eq!(client(&[0x81, 5, 0x48, 0x65, 0x6c, 0x6c, 0x6f]), Ok(vec![Owned::Text("Hello".into())]));
    assert_eq!(
        client(&[0x01, 3, 0x48, 0x65, 0x6c, 0x80, 2, 0x6c, 0x6f]),
        Ok(vec![Owned::Text("Hello".into())])
    );
    assert_eq!(client(&[0x89, 5, 0x48, 0x65, 0x6c, 0x6c, 0x6f]), Ok(vec![Owned::Ping(b"Hello".to_vec())]));
    for len in [256, 65_536] {
        let payload = vec![7; len];
        assert_eq!(client(Frame::binary(&payload).bytes()), Ok(vec![Owned::Binary(payload)]));
    }
}

#[test]
fn control_frames_come_between_fragments() {
    let mut wire = frame(false, Opcode::Text, "日本".as_bytes());
    wire.extend(frame(true, Opcode::Ping, b"now"));
    wire.extend(frame(false, Opcode::Continuation, b""));
    wire.extend(frame(true, Opcode::Continuation, "語".as_bytes()));
    wire.extend(frame(true, Opcode::Text, b""));
    wire.extend(frame(true, Opcode::Close, b"\x03\xe8bye"));
    assert_eq!(
        read(&wire),
        Ok(vec![
            Owned::Ping(b"now".to_vec()),
            Owned::Text("日本語".into()),
            Owned::Text(String::new()),
            Owned::Close(Some((1000, "bye".into()))),
        ])
    );
}

#[test]
fn text_may_be_cut_inside_a_character_but_must_be_utf8() {
    let text = "κόσμε".as_bytes();
    for cut in 0..=text.len() {
        let mut wire = frame(false, Opcode::Text, &text[..cut]);
        wire.extend(frame(true, Opcode::Continuation, &text[cut..]));
        assert_eq!(read(&wire), Ok(vec![Owned::Text("κόσμε".into())]));
    }
    let incomplete = frame(true, Opcode::Text, &text[..3]);
    assert_eq!(read(&incomplete), Err(CloseCode::INVALID_DATA));
    // Refused at the wrong byte already, although the message goes on.
    let early = frame(false, Opcode::Text, b"ok \xf4\x90");
    assert_eq!(read(&early), Err(CloseCode::INVALID_DATA));
}

#[test]
fn what_breaks_the_protocol_gets_its_close_code() {
    let mut unmasked = Frame::text(b"x").bytes().to_vec();
    unmasked.extend([0; 10]);
    let with_first = |first: u8| {
        let mut wire = frame(true, Opcode::Text, b"x");
        wire[0] = first;
        wire
    };
    let mut two_starts = frame(false, Opcode::Text, b"a");
    two_starts.extend(frame(true, Opcode::Text, b"b"));
    let cases: Vec<(&str, Vec<u8>, CloseCode)> = vec![
        ("unmasked", unmasked, CloseCode::PROTOCOL),
        ("rsv1 without compression", with_first(0xC1), CloseCode::PROTOCOL),
        ("rsv3", with_first(0x91), CloseCode::PROTOCOL),
        ("reserved opcode", with_first(0x83), CloseCode::PROTOCOL),
        ("reserved control opcode", with_first(0x8B), CloseCode::PROTOCOL),
        ("fragmented ping", frame(false, Opcode::Ping, b""), CloseCode::PROTOCOL),
        ("long ping", frame(true, Opcode::Ping, &[0; 126]), CloseCode::PROTOCOL),
        ("continuation of nothing", frame(true, Opcode::Continuation, b""), CloseCode::PROTOCOL),
        ("a message in a message", two_starts, CloseCode::PROTOCOL),
        ("two-byte length for 5", vec![0x81, 0xFE, 0, 5, 1, 2, 3, 4], CloseCode::PROTOCOL),
        (
            "eight-byte length for 5",
            vec![0x81, 0xFF, 0, 0, 0, 0, 0, 0, 0, 5, 1, 2, 3, 4],
            CloseCode::PROTOCOL,
        ),
        ("length over 2^63", vec![0x82, 0xFF, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4], CloseCode::PROTOCOL),
        ("huge", vec![0x82, 0xFF, 0, 0, 1, 0, 0, 0, 0, 0, 1, 2, 3, 4], CloseCode::TOO_BIG),
        ("close of one byte", frame(true, Opcode::Close, b"\x03"), CloseCode::PROTOCOL),
        ("close with bad text", frame(true, Opcode::Close, b"\x03\xe8\xff"), CloseCode::INVALID_DATA),
    ];
    for (name, wire, code) in cases {
        assert_eq!(read(&wire), Err(code), "{name}");
    }
    for (code, allowed) in [
        (999, false),
        (1000, true),
        (1004, false),
        (1005, false),
        (1006, false),
        (1011, true),
        (1015, false),
        (2999, false),
        (3000, true),
        (5000, false),
    ] {
        let wire = frame(true, Opcode::Close, &u16::to_be_bytes(code));
        assert_eq!(read(&wire).is_ok(), allowed, "{code}");
    }
}

#[test]
fn fragments_add_up_to_the_limit_and_no_further() {
    let mut wire = frame(false, Opcode::Binary, &[1; 600]);
    wire.extend(frame(false, Opcode::Continuation, &[2; 400]));
    let fits = [wire.clone(), frame(true, Opcode::Continuation, b"")].concat();
    assert_eq!(read_cut(Role::Server, 1000, &fits, &[]).unwrap().len(), 1);
    let over = [wire, frame(true, Opcode::Continuation, b"x")].concat();
    assert_eq!(read_cut(Role::Server, 1000, &over, &[]), Err(CloseCode::TOO_BIG));
}

#[test]
fn a_large_message_leaves_no_buffer_behind() {
    let mut decoder = Decoder::new(Role::Server, 1 << 20);
    let mut wire = frame(false, Opcode::Binary, &[0; 200_000]);
    wire.extend(frame(true, Opcode::Continuation, &[0; 200_000]));
    decoder.feed(&mut wire, |_| Ok(())).unwrap();
    assert!(decoder.held_bytes() <= KEEP && !decoder.is_mid_message());
}

fn messages() -> impl Strategy<Value = Vec<Owned>> {
    let one = prop_oneof![
        "\\PC{0,200}".prop_map(Owned::Text),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(Owned::Binary),
        prop::collection::vec(any::<u8>(), 0..126).prop_map(Owned::Ping),
        prop::collection::vec(any::<u8>(), 0..126).prop_map(Owned::Pong),
    ];
    prop::collection::vec(one, 0..8)
}

/// Writes messages as a client would, data in fragments as `sizes` says, with a ping in between.
fn write(messages: &[Owned], sizes: &[usize]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut sizes = sizes.iter().cycle();
    for message in messages {
        let (opcode, mut rest) = match message {
            Owned::Text(text) => (Opcode::Text, text.as_bytes()),
            Owned::Binary(bytes) => (Opcode::Binary, &bytes[..]),
            Owned::Ping(bytes) => {
                write_frame(&mut out, Opcode::Ping, bytes, MASK);
                continue;
            }
            Owned::Pong(bytes) => {
                write_frame(&mut out, Opcode::Pong, bytes, MASK);
                continue;
            }
            Owned::Close(_) => continue,
        };
        let mut opcode = opcode;
        loop {
            let take = sizes.next().map_or(rest.len(), |size| rest.len().min(*size));
            let (part, tail) = rest.split_at(take);
            rest = tail;
            write_fragment(&mut out, rest.is_empty(), opcode, part, MASK);
            opcode = Opcode::Continuation;
            if rest.is_empty() {
                break;
            }
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_fragmentation_and_any_cut_gives_the_messages(
        sent in messages(),
        sizes in prop::collection::vec(1_usize..400, 1..5),
        cuts in prop::collection::vec(0.0..1.0, 0..12),
    ) {
        let wire = write(&sent, &sizes);
        let mut cuts: Vec<usize> = cuts.iter().map(|at: &f64| (at * wire.len() as f64) as usize).collect();
        cuts.sort_unstable();
        prop_assert_eq!(read_cut(Role::Server, 10_000, &wire, &cuts), Ok(sent));
    }

    #[test]
    fn any_bytes_are_read_without_a_panic_within_bounds(
        wire in prop::collection::vec(any::<u8>(), 0..600),
        cuts in prop::collection::vec(0_usize..600, 0..6),
        max in 0_usize..500,
        client in any::<bool>(),
    ) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|at| at.min(wire.len())).collect();
        cuts.sort_unstable();
        let role = if client { Role::Client } else { Role::Server };
        let cut = read_cut(role, max, &wire, &cuts);
        // The outcome does not depend on how the bytes arrived.
        prop_assert_eq!(cut, read_cut(role, max, &wire, &[]));
    }

    #[test]
    fn damaged_frames_are_read_without_a_panic(
        sent in messages(),
        at in any::<prop::sample::Index>(),
        to in any::<u8>(),
    ) {
        let mut wire = write(&sent, &[50]);
        if !wire.is_empty() {
            let at = at.index(wire.len());
            wire[at] = to;
        }
        let bytewise: Vec<usize> = (1..wire.len()).collect();
        prop_assert_eq!(
            read_cut(Role::Server, 1000, &wire, &[]),
            read_cut(Role::Server, 1000, &wire, &bytewise)
        );
    }
}
