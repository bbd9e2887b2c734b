//! A relay's own state.

use serde::{Deserialize, Serialize};

use crate::{
    endpoint::{BasePort, Endpoint},
    id::HostName,
    link::Link,
    unit::Moment,
};

/// The hosts behind a relay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelaySnapshot {
    /// The relay's version.
    #[serde(deserialize_with = "crate::text::line")]
    pub version: String,
    pub started: Moment,
    pub base: BasePort,
    pub hosts: Vec<RelayedHost>,
}

/// One host, and the state of its connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayedHost {
    pub endpoint: Endpoint,
    pub link: Link,
    /// The host's name as its collector gives it, once that is known.
    pub called: Option<HostName>,
}
