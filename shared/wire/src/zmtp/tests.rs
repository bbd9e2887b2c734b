use proptest::{collection::vec, prelude::*};

use super::*;

const LARGEST: usize = 2_000;

/// A peer's greeting with its minor version, as libzmq sends it.
fn greeting(minor: u8) -> Vec<u8> {
    let mut bytes = greeting::OURS.to_vec();
    bytes[11] = minor;
    bytes
}

fn command(body: &[u8]) -> Vec<u8> {
    framed(Kind::Command, body)
}

fn message(body: &[u8]) -> Vec<u8> {
    framed(Kind::Message { more: false }, body)
}

fn part(body: &[u8]) -> Vec<u8> {
    framed(Kind::Message { more: true }, body)
}

fn framed(kind: Kind, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::write(kind, body, &mut bytes);
    bytes
}

fn property(name: &str, value: &[u8]) -> Vec<u8> {
    [&[name.len() as u8], name.as_bytes(), &(value.len() as u32).to_be_bytes(), value].concat()
}

fn ready(properties: &[Vec<u8>]) -> Vec<u8> {
    command(&[b"\x05READY", properties.concat().as_slice()].concat())
}

fn router() -> Vec<u8> {
    ready(&[property("Socket-Type", b"ROUTER"), property("Identity", b"")])
}

/// A dealer after greeting and READY of both sides; nothing is unsent.
fn connected() -> Dealer {
    let mut dealer = Dealer::new(LARGEST);
    dealer.receive(&greeting(1)).expect("a greeting");
    dealer.receive(&router()).expect("READY");
    assert!(dealer.is_ready());
    dealer.written(usize::MAX);
    dealer
}

fn after_greeting(bytes: &[u8]) -> Result<(), Error> {
    let mut dealer = Dealer::new(LARGEST);
    dealer.receive(&greeting(1))?;
    dealer.receive(bytes)
}

fn messages(dealer: &mut Dealer) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| dealer.message()).collect()
}

/// Memory held for what a peer sent, and for the answers.
fn footprint(dealer: &Dealer) -> usize {
    let reading = if let Reading::Body(_, body) = &dealer.reading { body.bytes.capacity() } else { 0 };
    let waiting: usize = dealer.inbox.iter().map(Vec::capacity).sum();
    reading + waiting + dealer.outbox.capacity() + dealer.early.capacity()
}

#[test]
fn greeting_and_ready_are_as_the_specification_has_them() {
    let mut dealer = Dealer::new(LARGEST);
    let mut expected = vec![0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 1];
    expected.extend(b"NULL");
    expected.resize(64, 0);
    assert_eq!(dealer.unsent(), expected);
    dealer.written(64);
    let (first, rest) = expected.split_at(10);
    dealer.receive(first).expect("libzmq's ten bytes");
    dealer.receive(rest).expect("and the rest");
    assert_eq!(dealer.unsent(), b"\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06DEALER");
    assert!(!dealer.is_ready());
}

#[test]
fn peers_of_either_version_and_of_each_fitting_type_are_ready() {
    for minor in [0, 1, 9] {
        for peer in ["ROUTER", "DEALER", "REP"] {
            let mut dealer = Dealer::new(LARGEST);
            dealer.receive(&greeting(minor)).expect("a greeting");
            let more = [property("X-Long", &[7; 9_000]), property("soCKet-tYPe", peer.as_bytes())];
            dealer.receive(&ready(&more)).expect("READY");
            assert!(dealer.is_ready(), "{peer}, 3.{minor}");
        }
    }
}

#[test]
fn a_peer_without_zmtp_is_reported() {
    let mut curve = greeting(1);
    curve[12..17].copy_from_slice(b"CURVE");
    let second = [&greeting(1)[..10], &[1, 5]].concat();
    for (bytes, error) in [
        (b"GET / HTTP/1.1\r\n".to_vec(), Error::Signature),
        ([&[0xfe], &greeting(1)[1..]].concat(), Error::Signature),
        (vec![0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0], Error::Signature),
        (second, Error::Version(1)),
        (curve, Error::Mechanism("CURVE".to_owned())),
    ] {
        assert_eq!(Dealer::new(LARGEST).receive(&bytes), Err(error));
    }
    for (bytes, error) in [
        (ready(&[property("Socket-Type", b"PU\nB")]), Error::SocketType("PU?B".to_owned())),
        (ready(&[property("Identity", b"me")]), Error::Command),
        (ready(&[property("Socket-Type", b"ROUTER")[..12].to_vec()]), Error::Command),
        (command(b"\x05ERROR\x0bnot allowed"), Error::Refused("not allowed".to_owned())),
        (command(b""), Error::Command),
        (command(b"\x09READY"), Error::Command),
        (command(b"\x04PING\0"), Error::Command),
        (message(b"too soon"), Error::Early),
        (vec![0x08], Error::Flags(8)),
        (vec![0x05], Error::Flags(5)),
        (vec![6, 0xff, 0, 0, 0, 0, 0, 0, 0], Error::TooLong { length: 0xff << 56, largest: LARGEST_COMMAND }),
    ] {
        assert_eq!(after_greeting(&bytes), Err(error));
    }
}

#[test]
fn an_error_is_repeated_and_nothing_more_is_read() {
    let mut dealer = connected();
    dealer.receive(&message(b"before")).expect("a message");
    let refused = Err(Error::Refused("enough".to_owned()));
    assert_eq!(dealer.receive(&command(b"\x05ERROR\x06enough")), refused);
    assert!(!dealer.is_ready());
    assert_eq!(dealer.receive(&message(b"after")), refused);
    dealer.send(b"to nobody");
    assert_eq!(dealer.unsent(), b"");
    assert_eq!(messages(&mut dealer), [b"before".to_vec()]);
}

#[test]
fn an_early_message_is_sent_after_ready() {
    let mut dealer = Dealer::new(LARGEST);
    dealer.send(b"soon");
    dealer.written(64);
    assert_eq!(dealer.unsent(), b"");
    dealer.receive(&greeting(1)).expect("a greeting");
    dealer.written(30);
    assert_eq!(dealer.unsent(), b"");
    dealer.receive(&router()).expect("READY");
    assert_eq!(dealer.unsent(), message(b"soon"));
}

#[test]
fn frames_are_short_up_to_255_bytes_and_long_beyond() {
    let mut dealer = connected();
    for (length, header) in [(0, vec![0, 0]), (255, vec![0, 255]), (256, vec![2, 0, 0, 0, 0, 0, 0, 1, 0])] {
        let body = vec![7; length];
        dealer.send(&body);
        assert_eq!(dealer.unsent(), [header, body.clone()].concat());
        let sent = dealer.unsent().to_vec();
        dealer.written(usize::MAX);
        dealer.receive(&sent).expect("its own frame");
        assert_eq!(dealer.message(), Some(body));
    }
    // A short length in a long frame.
    dealer.receive(&[2, 0, 0, 0, 0, 0, 0, 0, 1, b'x']).expect("a frame");
    assert_eq!(dealer.message(), Some(b"x".to_vec()));
}

#[test]
fn a_message_that_is_too_long_ends_the_connection_by_its_header() {
    let mut dealer = connected();
    dealer.receive(&message(&[1; LARGEST])).expect("the largest");
    let length = LARGEST as u64 + 1;
    let header = [&[2], &length.to_be_bytes()[..]].concat();
    assert_eq!(dealer.receive(&header), Err(Error::TooLong { length, largest: LARGEST }));
    let parts = [part(&[1; LARGEST]), part(b"x")].concat();
    assert_eq!(connected().receive(&parts), Err(Error::TooLong { length, largest: LARGEST }));
}

#[test]
fn messages_of_several_parts_are_dropped_and_counted() {
    let mut dealer = connected();
    let mixed =
        [message(b"one"), part(b""), part(b"of"), command(b"\x04PONG"), message(b"many"), message(b"two")];
    dealer.receive(&mixed.concat()).expect("messages");
    assert_eq!(messages(&mut dealer), [b"one".to_vec(), b"two".to_vec()]);
    assert_eq!(dealer.dropped(), 1);
}

#[test]
fn untaken_messages_are_dropped_and_counted() {
    let mut dealer = connected();
    for _ in 0..MESSAGES + 5 {
        dealer.receive(&message(b"")).expect("a message");
    }
    assert_eq!(dealer.dropped(), 5);
    assert_eq!(messages(&mut dealer).len(), MESSAGES);
    for _ in 0..MESSAGES_OF_LARGEST + 2 {
        dealer.receive(&message(&[1; LARGEST])).expect("a message");
    }
    assert_eq!(dealer.dropped(), 7);
    assert_eq!(messages(&mut dealer).len(), MESSAGES_OF_LARGEST);
    dealer.receive(&message(b"again")).expect("a message");
    assert_eq!(dealer.message(), Some(b"again".to_vec()));
}

#[test]
fn a_ping_is_answered_with_its_context() {
    let mut dealer = connected();
    dealer.receive(&command(b"\x04PING\0\x0aabc")).expect("PING");
    assert_eq!(dealer.unsent(), b"\x04\x08\x04PONGabc");
    dealer.written(usize::MAX);
    dealer.receive(&command(b"\x04PING\0\x0a")).expect("PING");
    assert_eq!(dealer.unsent(), b"\x04\x05\x04PONG");
    dealer.written(usize::MAX);
    dealer.receive(&command(&[b"\x04PING\0\x0a", &[b'x'; 99][..]].concat())).expect("PING");
    assert_eq!(dealer.unsent(), [b"\x04\x15\x04PONG", &[b'x'; 16][..]].concat());
}

#[test]
fn a_flood_of_pings_is_answered_by_the_first_and_the_last() {
    let mut dealer = connected();
    dealer.send(b"ahead");
    for number in 0..50_000_u32 {
        dealer.receive(&command(&[b"\x04PING\0\0", &number.to_be_bytes()[..]].concat())).expect("PING");
    }
    let first = [&message(b"ahead")[..], b"\x04\x09\x04PONG\0\0\0\0"].concat();
    assert_eq!(dealer.unsent(), first);
    assert!(footprint(&dealer) < 20_000, "{}", footprint(&dealer));
    dealer.written(first.len() - 1);
    assert_eq!(dealer.unsent(), b"\0");
    dealer.written(1);
    assert_eq!(dealer.unsent(), [b"\x04\x09\x04PONG", &49_999_u32.to_be_bytes()[..]].concat());
    dealer.written(usize::MAX);
    assert_eq!(dealer.unsent(), b"");
}

#[test]
fn unknown_commands_and_a_second_ready_are_ignored() {
    let mut dealer = connected();
    let passed = [command(b"\x04PONGabc"), command(b"\x09SUBSCRIBEtopic"), router(), message(b"x")];
    dealer.receive(&passed.concat()).expect("commands");
    assert!(dealer.is_ready());
    assert_eq!(messages(&mut dealer), [b"x".to_vec()]);
    assert_eq!(dealer.unsent(), b"");
}

#[test]
fn a_false_length_takes_no_memory() {
    let mut dealer = Dealer::new(1 << 40);
    dealer.receive(&[greeting(1), router()].concat()).expect("a handshake");
    dealer.written(usize::MAX);
    dealer.receive(&[2, 0, 0, 1, 0, 0, 0, 0, 0, 1, 2, 3]).expect("a header and three bytes");
    assert!(footprint(&dealer) < 20_000, "{}", footprint(&dealer));
}

#[test]
fn a_message_written_in_pieces_arrives_whole() {
    let mut dealer = connected();
    let (mut expected, mut seen) = (Vec::new(), Vec::new());
    for number in 0..200_usize {
        let body = vec![number as u8; number * 7];
        expected.extend(message(&body));
        dealer.send(&body);
        let count = dealer.unsent().len().min(number * 5);
        seen.extend_from_slice(&dealer.unsent()[..count]);
        dealer.written(count);
    }
    seen.extend_from_slice(dealer.unsent());
    dealer.written(usize::MAX);
    assert_eq!(seen, expected);
    assert!(footprint(&dealer) <= 16 * 1024, "{}", footprint(&dealer));
}

/// Frames as peers send them, and malformed ones.
fn peers_bytes() -> impl Strategy<Value = Vec<u8>> {
    let body = || prop_oneof![9 => vec(any::<u8>(), 0..40), 1 => vec(any::<u8>(), 250..1_500)];
    let piece = prop_oneof![
        8 => body().prop_map(|body| message(&body)),
        2 => body().prop_map(|body| part(&body)),
        2 => body().prop_map(|body| command(&[b"\x04PING\0\0", body.as_slice()].concat())),
        2 => body().prop_map(|body| command(&[b"\x05OTHER", body.as_slice()].concat())),
        1 => Just(router()),
        1 => body(),
    ];
    let start = prop_oneof![9 => Just([greeting(1), router()].concat()), 1 => Just(greeting(0)), 1 => body()];
    (start, vec(piece, 0..30)).prop_map(|(start, pieces)| [start, pieces.concat()].concat())
}

/// All observable state of a dealer.
#[derive(Debug, PartialEq)]
struct Seen {
    result: Result<(), Error>,
    messages: Vec<Vec<u8>>,
    dropped: u64,
    ready: bool,
    unsent: Vec<u8>,
}

/// The state after these bytes in pieces of these lengths, and the rest at once.
fn seen(bytes: &[u8], cuts: &[usize]) -> Seen {
    let (mut dealer, mut rest, mut result) = (Dealer::new(LARGEST), bytes, Ok(()));
    for cut in cuts {
        let (piece, after) = rest.split_at(rest.len().min(*cut));
        result = dealer.receive(piece);
        rest = after;
    }
    if result.is_ok() {
        result = dealer.receive(rest);
    }
    Seen {
        result,
        messages: messages(&mut dealer),
        dropped: dealer.dropped(),
        ready: dealer.is_ready(),
        unsent: dealer.unsent().to_vec(),
    }
}

proptest! {
    #[test]
    fn any_split_of_the_bytes_gives_the_same(bytes in peers_bytes(), cuts in vec(0..100_usize, 0..60)) {
        let whole = seen(&bytes, &[]);
        prop_assert_eq!(&seen(&bytes, &cuts), &whole);
        prop_assert_eq!(&seen(&bytes, &vec![1; bytes.len()]), &whole);
    }

    #[test]
    fn any_bytes_neither_panic_nor_take_memory(
        begun in any::<bool>(), bytes in vec(any::<u8>(), 0..4_000), cut in 1..300_usize,
    ) {
        let mut dealer = if begun { connected() } else { Dealer::new(LARGEST) };
        let mut came = 0;
        for piece in bytes.chunks(cut) {
            let _ = dealer.receive(piece);
            came += piece.len();
            prop_assert!(footprint(&dealer) <= 2 * came + 256);
        }
    }

    #[test]
    fn memory_is_bounded_for_any_input_and_any_reader(
        bytes in peers_bytes(), times in 1..20_usize, cut in 1..3_000_usize,
    ) {
        let mut dealer = Dealer::new(LARGEST);
        let bound = (MESSAGES_OF_LARGEST + 2) * LARGEST + LARGEST_COMMAND + 256;
        for piece in bytes.repeat(times).chunks(cut) {
            let _ = dealer.receive(piece);
            prop_assert!(footprint(&dealer) <= bound, "{}", footprint(&dealer));
            prop_assert!(dealer.inbox.len() <= MESSAGES);
        }
    }
}
