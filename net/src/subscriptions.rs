//! The topics that a viewer subscribes to.

use std::{collections::BTreeSet, mem};

use xpu_wire::{frame::topic, id::JobName};

/// The topics that a socket is subscribed to.
#[derive(Debug, Default)]
pub struct Subscriptions {
    topics: BTreeSet<String>,
}

/// What has to change at a socket.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TopicChanges {
    pub subscribe: Vec<String>,
    pub unsubscribe: Vec<String>,
}

impl Subscriptions {
    /// Replaces the topics by `wanted`.
    pub fn change_to(&mut self, wanted: BTreeSet<String>) -> TopicChanges {
        let before = mem::replace(&mut self.topics, wanted);
        TopicChanges {
            subscribe: self.topics.difference(&before).cloned().collect(),
            unsubscribe: before.difference(&self.topics).cloned().collect(),
        }
    }
}

/// The topics with which every viewer follows a job.
pub fn of_job(job: &JobName) -> [String; 2] {
    [topic::overview(job), topic::events(job)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changed_is_subscribed_to_or_no_longer() {
        let mut subscriptions = Subscriptions::default();
        let mut change_to = |topics: &[&str]| {
            let changes = subscriptions.change_to(topics.iter().map(|&topic| topic.to_owned()).collect());
            (changes.subscribe.join(" "), changes.unsubscribe.join(" "))
        };
        assert_eq!(change_to(&["a", "b"]), ("a b".to_owned(), String::new()));
        assert_eq!(change_to(&["b", "c"]), ("c".to_owned(), "a".to_owned()));
        assert_eq!(change_to(&["b", "c"]), (String::new(), String::new()));
    }
}
