//! Sends the metrics to an OpenTelemetry collector (OTLP, http/protobuf), on a separate thread.

use std::{thread, time::Duration};

use prost::Message as _;
use xpu_wire::{endpoint::host_name, unit::Moment};

use super::app::App;
use crate::metrics;

/// Time limit of one transfer.
const PATIENCE: Duration = Duration::from_secs(10);

/// OTLP's path for metrics, if the URL has none.
const PATH: &str = "/v1/metrics";

/// Where metrics are sent, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    url: String,
    every: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum PushError {
    #[error(
        "metrics cannot be sent to the URL {0}: write http://HOST:4318; for TLS, let an OpenTelemetry collector on this host forward them"
    )]
    Url(String),
}

impl Push {
    pub fn to(url: &str, every: Duration) -> Result<Self, PushError> {
        let wrong = || PushError::Url(url.to_owned());
        let rest = url.strip_prefix("http://").ok_or_else(wrong)?;
        let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        if host.is_empty() || url.parse::<axum::http::Uri>().is_err() {
            return Err(wrong());
        }
        let path = if matches!(path, "" | "/") { PATH } else { path };
        Ok(Self { url: format!("http://{host}{path}"), every })
    }
}

/// Sends the metrics at intervals, as long as the process lives.
pub(super) fn run(app: &App) {
    let Some(push) = app.config.push.clone() else { return };
    let agent: ureq::Agent =
        ureq::Agent::config_builder().timeout_global(Some(PATIENCE)).max_redirects(0).build().into();
    let since = Moment::now();
    let mut failing = false;
    loop {
        let exposition = app.exposition();
        let request = metrics::request(&exposition, host_name().as_str(), since, Moment::now());
        let sent = agent
            .post(&push.url)
            .header("Content-Type", "application/x-protobuf")
            .send(&request.encode_to_vec()[..]);
        // Only the begin and the end of an outage are logged, so a receiver that is down for a night takes
        // one line.
        match &sent {
            Ok(_) if failing => tracing::info!("{} accepts metrics again", push.url),
            Err(error) if !failing => {
                tracing::warn!(
                    "{} does not accept metrics: {error}; trying again every {:?}",
                    push.url,
                    push.every
                );
            }
            _ => {}
        }
        failing = sent.is_err();
        thread::sleep(push.every);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_path_is_that_of_otlp() {
        let to = |url| Push::to(url, PATIENCE).map(|push| push.url).ok();
        assert_eq!(to("http://otel:4318").as_deref(), Some("http://otel:4318/v1/metrics"));
        assert_eq!(to("http://otel:4318/").as_deref(), Some("http://otel:4318/v1/metrics"));
        assert_eq!(to("http://otel/x/y").as_deref(), Some("http://otel/x/y"));
        for wrong in ["otel:4318", "https://otel", "http://", "http://a b/"] {
            assert_eq!(to(wrong), None, "{wrong}");
        }
    }
}
