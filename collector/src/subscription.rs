//! Viewers' subscriptions. Frames without a subscriber are not sent.

use std::collections::BTreeSet;

/// Largest number of subscriptions that are distinguished. Beyond it, everything is published, so that no
/// viewer can cause a loss of data for others.
const DISTINGUISHED: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    prefixes: BTreeSet<Vec<u8>>,
    overflowed: bool,
}

impl Subscriptions {
    /// Takes what an XPUB receives: 1 or 0, then the prefix. Other messages are ignored.
    pub(crate) fn take(&mut self, message: &[u8]) {
        match message.split_first() {
            Some((1, prefix)) if self.prefixes.len() < DISTINGUISHED => {
                self.prefixes.insert(prefix.to_vec());
            }
            Some((1, _)) => self.overflowed = true,
            Some((0, prefix)) => {
                self.prefixes.remove(prefix);
            }
            _ => {}
        }
    }

    pub(crate) fn cover(&self, topic: &str) -> bool {
        let topic = topic.as_bytes();
        self.overflowed || (0..=topic.len()).any(|end| self.prefixes.contains(&topic[..end]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscription_covers_what_begins_with_it() {
        let mut subscriptions = Subscriptions::default();
        subscriptions.take(b"\x01job/r/1/");
        assert!(subscriptions.cover("job/r/1/"));
        assert!(!subscriptions.cover("job/r/10/"));
        assert!(!subscriptions.cover("job/o"));
        subscriptions.take(b"\x01");
        assert!(subscriptions.cover("anything"));
        subscriptions.take(b"\x00");
        subscriptions.take(b"\x00job/r/1/");
        assert!(!subscriptions.cover("job/r/1/"));
    }

    #[test]
    fn garbage_and_floods_lose_no_subscription() {
        let mut subscriptions = Subscriptions::default();
        subscriptions.take(b"");
        subscriptions.take(b"\xffhello");
        assert!(!subscriptions.cover("job/o"));
        for n in 0..=DISTINGUISHED as u32 {
            subscriptions.take(&[&[1_u8][..], &n.to_be_bytes()].concat());
        }
        assert!(subscriptions.cover("job/o"));
        assert_eq!(subscriptions.prefixes.len(), DISTINGUISHED);
    }
}
