//! The protocol between Kineto and a daemon. Each message is one datagram: a header of 40 bytes and a
//! payload, in the machine's byte order.
//!
//! Kineto trusts the answer: a size that differs from the payload's makes it loop endlessly. So only this
//! module builds replies.

/// Size of the payload (8 bytes) and its type (32 bytes, ending with NUL).
pub(super) const HEADER: usize = 40;

const KIND: usize = 32;

/// Largest number of processes in a request. Kineto sends its own and its ancestors, 11 at most; a newer
/// version may send more.
const MOST_PIDS: usize = 64;

/// The largest message: longer ones are invalid.
pub(super) const LARGEST: usize = HEADER + REQUEST + 4 * MOST_PIDS;

/// Length of a request before its processes, and of a context.
const REQUEST: usize = 16;
const CONTEXT: usize = 16;

/// The bit of a request that accepts a configuration for tracing activities: no trace is in progress.
const ACTIVITIES: i32 = 2;

/// A client's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// A poll.
    Request {
        /// Whether the client accepts a trace.
        accepts: bool,
        job: i64,
        /// The client's process id in its own namespace, then its ancestors'.
        pids: Vec<i32>,
    },
    /// A registration, which only older versions of Kineto send.
    Context { device: i32, pid: i32, job: i64 },
}

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    #[error("its header is incomplete")]
    Short,
    #[error("its header states {stated} bytes, but {found} arrived")]
    Size { stated: u64, found: usize },
    #[error("it is neither a request nor a context")]
    Kind,
    #[error("it names no process, more than {MOST_PIDS}, or a different number than it states")]
    Pids,
}

impl Message {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let (header, payload) = bytes.split_at_checked(HEADER).ok_or(Malformed::Short)?;
        let stated = u64::from_ne_bytes(*header.first_chunk().ok_or(Malformed::Short)?);
        if stated != payload.len() as u64 {
            return Err(Malformed::Size { stated, found: payload.len() });
        }
        let kind = header[8..].split(|&byte| byte == 0).next().unwrap_or_default();
        match kind {
            b"req" => request(payload),
            b"ctxt" => context(payload),
            _ => Err(Malformed::Kind),
        }
    }
}

fn request(payload: &[u8]) -> Result<Message, Malformed> {
    let (fixed, pids) = payload.split_at_checked(REQUEST).ok_or(Malformed::Pids)?;
    let count = usize::try_from(number(fixed, 4)).unwrap_or(0);
    if !(1..=MOST_PIDS).contains(&count) || pids.len() != 4 * count {
        return Err(Malformed::Pids);
    }
    Ok(Message::Request {
        accepts: number(fixed, 0) & ACTIVITIES != 0,
        job: long(fixed, 8),
        pids: pids.as_chunks().0.iter().map(|bytes| i32::from_ne_bytes(*bytes)).collect(),
    })
}

fn context(payload: &[u8]) -> Result<Message, Malformed> {
    if payload.len() != CONTEXT {
        return Err(Malformed::Size { stated: CONTEXT as u64, found: payload.len() });
    }
    Ok(Message::Context { device: number(payload, 0), pid: number(payload, 4), job: long(payload, 8) })
}

/// The number in the four bytes at `at`. The caller has checked the length.
fn number(bytes: &[u8], at: usize) -> i32 {
    bytes[at..].first_chunk().copied().map_or(0, i32::from_ne_bytes)
}

fn long(bytes: &[u8], at: usize) -> i64 {
    bytes[at..].first_chunk().copied().map_or(0, i64::from_ne_bytes)
}

/// The answer to a poll: a configuration, or nothing.
pub(super) fn answer(config: &str) -> Vec<u8> {
    whole(b"req", config.as_bytes())
}

/// The answer to a registration: the number of clients.
pub(super) fn instances(count: i32) -> Vec<u8> {
    whole(b"ctxt", &count.to_ne_bytes())
}

fn whole(kind: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + payload.len());
    bytes.extend((payload.len() as u64).to_ne_bytes());
    bytes.extend(kind);
    bytes.resize(HEADER, 0);
    bytes.extend(payload);
    debug_assert!(kind.len() < KIND, "its NUL is part of it");
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn asks(kind: i32, pids: &[i32]) -> Vec<u8> {
        let mut payload = Vec::new();
        payload.extend(kind.to_ne_bytes());
        payload.extend((pids.len() as i32).to_ne_bytes());
        payload.extend(7_i64.to_ne_bytes());
        payload.extend(pids.iter().flat_map(|pid| pid.to_ne_bytes()));
        whole(b"req", &payload)
    }

    #[test]
    fn a_request_is_what_kineto_sends() {
        // This is the request of PyTorch 2.11 for a process with four ancestors.
        let bytes = asks(3, &[70, 60, 50, 40, 30, 20]);
        assert_eq!(bytes.len(), 80);
        let pids = vec![70, 60, 50, 40, 30, 20];
        let idle = Message::Request { accepts: true, job: 7, pids };
        assert_eq!(Message::parse(&bytes), Ok(idle));
        for (kind, accepts) in [(0, false), (1, false), (2, true), (3, true)] {
            let Ok(Message::Request { accepts: found, .. }) = Message::parse(&asks(kind, &[1])) else {
                panic!("{kind}");
            };
            assert_eq!(found, accepts, "{kind}");
        }
    }

    #[test]
    fn a_registered_context_is_counted() {
        let mut payload = [0; 16];
        payload[0] = 3;
        payload[4] = 9;
        let bytes = whole(b"ctxt", &payload);
        assert_eq!(Message::parse(&bytes), Ok(Message::Context { device: 3, pid: 9, job: 0 }));
        assert_eq!(instances(2)[HEADER..], 2_i32.to_ne_bytes());
        assert!(Message::parse(&whole(b"ctxt", &payload[..15])).is_err());
    }

    #[test]
    fn an_answer_begins_with_its_size() {
        for config in ["", "A=1\n"] {
            let bytes = answer(config);
            assert_eq!(bytes[..8], (config.len() as u64).to_ne_bytes());
            assert_eq!((&bytes[8..12], bytes.len()), (&b"req\0"[..], HEADER + config.len()));
        }
    }

    #[test]
    fn wrong_sizes_are_refused() {
        let good = asks(2, &[1, 2]);
        for end in 0..good.len() {
            assert!(Message::parse(&good[..end]).is_err(), "cut at {end}");
        }
        let mut long = good.clone();
        long.push(0);
        assert_eq!(Message::parse(&long), Err(Malformed::Size { stated: 24, found: 25 }));
        let mut huge = good.clone();
        huge[..8].copy_from_slice(&(1_u64 << 50).to_ne_bytes());
        assert!(matches!(Message::parse(&huge), Err(Malformed::Size { .. })));
        for count in [0, -1, 1, 3, 65, i32::MAX, i32::MIN] {
            let mut bytes = good.clone();
            bytes[HEADER + 4..HEADER + 8].copy_from_slice(&count.to_ne_bytes());
            assert_eq!(Message::parse(&bytes), Err(Malformed::Pids), "{count}");
        }
        assert_eq!(Message::parse(&asks(2, &[])), Err(Malformed::Pids));
        assert_eq!(Message::parse(&asks(2, &[1; MOST_PIDS + 1])), Err(Malformed::Pids));
        assert_eq!(asks(2, &[1; MOST_PIDS]).len(), LARGEST);
        let mut endless = good.clone();
        endless[8..HEADER].fill(b'r');
        assert_eq!(Message::parse(&endless), Err(Malformed::Kind));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn any_bytes_are_refused_or_decoded(bytes in prop::collection::vec(any::<u8>(), 0..LARGEST + 9)) {
            let _ = Message::parse(&bytes);
        }

        #[test]
        fn any_payload_behind_a_good_header_is_refused_or_decoded(
            kind in prop::sample::select(vec![&b"req"[..], b"ctxt"]),
            payload in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let _ = Message::parse(&whole(kind, &payload));
        }

        #[test]
        fn a_request_is_read_as_it_was_written(kind in any::<i32>(), pids in prop::collection::vec(any::<i32>(), 1..=MOST_PIDS)) {
            let read = Message::parse(&asks(kind, &pids));
            prop_assert_eq!(read, Ok(Message::Request { accepts: kind & 2 != 0, job: 7, pids }));
        }
    }
}
