//! What a relay says of itself.

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

/// One host, and how the way to it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayedHost {
    pub endpoint: Endpoint,
    pub link: Link,
    /// What its collector calls the host, once it has said so.
    pub called: Option<HostName>,
}
