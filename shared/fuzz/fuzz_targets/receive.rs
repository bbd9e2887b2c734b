//! Receives bytes from any peer, whether it speaks ZMTP or not. Nothing panics, pieces give the same result
//! as the whole, the number of answers is bounded, and a peer that receives the accepted messages accepts
//! them too.
//!
//! The first byte says whether the handshake is over, and how the rest is cut into pieces. The rest is sent
//! by the peer.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xpu_wire::zmtp::{Dealer, MESSAGES, MESSAGES_OF_LARGEST};

const LARGEST: usize = 1_000;

/// Greeting, READY and one PONG: the next PONG waits until that one is written.
const ANSWERS: usize = 64 + 30 + 23;

fuzz_target!(|input: &[u8]| {
    let [how, bytes @ ..] = input else { return };
    let begun = || {
        let mut dealer = Dealer::new(LARGEST);
        if how & 1 == 1 {
            dealer.receive(&handshake()).expect("a peer of its own kind");
            assert!(dealer.is_ready());
        }
        dealer
    };
    let (mut whole, mut pieces, mut served) = (begun(), begun(), begun());
    let result = whole.receive(bytes);
    let (mut piecewise, mut along, mut seen) = (Ok(()), Ok(()), Vec::new());
    let (mut rest, mut step) = (bytes, usize::from(*how));
    while !rest.is_empty() {
        step = step * 31 % 257;
        let (piece, after) = rest.split_at(rest.len().min(1 + step));
        piecewise = pieces.receive(piece);
        along = served.receive(piece);
        seen.extend(std::iter::from_fn(|| served.message()));
        served.written(step);
        rest = after;
    }
    assert_eq!(piecewise, result);
    assert_eq!(along, result);
    assert!(whole.unsent() == pieces.unsent() && whole.unsent().len() <= ANSWERS);
    assert_eq!(whole.is_ready(), pieces.is_ready());
    assert_eq!(whole.dropped(), pieces.dropped());
    let kept: Vec<Vec<u8>> = std::iter::from_fn(|| whole.message()).collect();
    assert!(kept.len() <= MESSAGES && kept.iter().map(Vec::len).sum::<usize>() <= LARGEST * MESSAGES_OF_LARGEST);
    assert!(std::iter::from_fn(|| pieces.message()).eq(kept.iter().cloned()));
    // After a dropped message, later ones have other positions.
    assert!(whole.dropped() > 0 || seen == kept);
    sent_alike(&seen);
});

/// The handshake that a DEALER sends.
fn handshake() -> Vec<u8> {
    let (mut one, mut other) = (Dealer::new(LARGEST), Dealer::new(LARGEST));
    other.receive(one.unsent()).expect("its own greeting");
    one.receive(other.unsent()).expect("its own greeting and READY");
    other.unsent().to_vec()
}

fn sent_alike(messages: &[Vec<u8>]) {
    let mut sender = Dealer::new(LARGEST);
    sender.receive(&handshake()).expect("a peer of its own kind");
    let mut receiver = Dealer::new(LARGEST);
    for message in messages {
        sender.send(message);
        receiver.receive(sender.unsent()).expect("what its own kind sends");
        sender.written(usize::MAX);
        assert_eq!(receiver.message().as_ref(), Some(message));
    }
}
