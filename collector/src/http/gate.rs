//! Checks of every request: rate, host name, token, time limit.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use tokio::time::timeout;
use xpu_wire::endpoint::host_name;

use super::{HttpConfig, acceptor::Peer, app::App, error::Problem, token::Token, web};

/// Requests a second on average, and in a burst.
const RATE: f64 = 50.0;
const BURST: f64 = 100.0;

/// Largest body of a request, in bytes. The longest is a list of ranks.
pub(super) const BODY: usize = 64 << 10;

/// Time limit to read and answer a request, longer than reading a host's stacks takes.
const ANSWER: Duration = Duration::from_secs(30);

/// The liveness check, which needs no token.
pub(super) const HEALTH: &str = "/healthz";
pub(super) const METRICS: &str = "/metrics";

/// The rate limit of requests.
#[derive(Debug)]
pub(super) struct Pace(Mutex<(f64, Instant)>);

impl Default for Pace {
    fn default() -> Self {
        Self(Mutex::new((BURST, Instant::now())))
    }
}

impl Pace {
    fn admits(&self, now: Instant) -> bool {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, since) = *kept;
        let left = (left + now.saturating_duration_since(since).as_secs_f64() * RATE).min(BURST);
        let passes = left >= 1.0;
        *kept = (if passes { left - 1.0 } else { left }, now);
        passes
    }
}

/// Separate rate limits, so that requests without permission do not use up those with permission.
#[derive(Debug, Default)]
pub(super) struct Paces {
    /// Requests with permission: they carry the token, or none is configured.
    permitted: Pace,
    /// The web page's files, which browsers load without the token.
    files: Pace,
    /// Other requests that need no token.
    open: Pace,
    refused: Pace,
}

impl Paces {
    fn of(&self, token: Option<&Token>, request: &Request, is_refused: bool) -> &Pace {
        match token {
            _ if is_refused => &self.refused,
            Some(token) if token.is_shown(request.headers()) => &self.permitted,
            _ if web::is_of_page(request.uri().path()) => &self.files,
            Some(_) => &self.open,
            None => &self.permitted,
        }
    }
}

pub(super) async fn pass(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let response = match refuse(&app, &request) {
        Some(problem) => {
            let mut response = problem.into_response();
            // Closing the connection frees its slot for others.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            response
        }
        None => match timeout(ANSWER, next.run(request)).await {
            Ok(response) => response,
            Err(_late) => too_late().into_response(),
        },
    };
    app.own.answered(response.status().as_u16());
    web::harden(response)
}

fn refuse(app: &App, request: &Request) -> Option<Problem> {
    let problem = rejection(&app.config, request);
    let pace = app.paces.of(app.config.token.as_ref(), request, problem.is_some());
    if pace.admits(Instant::now()) {
        return problem;
    }
    let error = format!("more than {RATE} requests a second");
    Some(Problem::new(StatusCode::TOO_MANY_REQUESTS, error, "try again in a second"))
}

fn rejection(config: &HttpConfig, request: &Request) -> Option<Problem> {
    // RFC 9112, section 3.2, forbids more than one Host header.
    if request.headers().get_all(header::HOST).iter().nth(1).is_some() {
        let next = "send one Host header";
        return Some(Problem::new(StatusCode::BAD_REQUEST, "more than one Host header", next));
    }
    let path = request.uri().path();
    match &config.token {
        Some(token) if !token.is_shown(request.headers()) => {
            let agent = || config.pages.compat && is_of_this_host(request);
            let is_open = path == HEALTH
                || web::is_of_page(path)
                || (path == METRICS && (config.open_metrics || agent()));
            (!is_open).then(no_token)
        }
        Some(_) => None,
        // Without a token, a web page in a user's browser could send requests in that user's name.
        None => (!names_this_host(request.headers())).then(|| {
            let next = "use an address or localhost: other names are refused (DNS rebinding)";
            Problem::new(StatusCode::FORBIDDEN, "wrong Host header", next)
        }),
    }
}

/// Whether the request comes from the ranks' own host. There, readers of xpu-timer's page cannot send a
/// token, and never needed one.
fn is_of_this_host(request: &Request) -> bool {
    let peer = request.extensions().get::<Peer>();
    peer.is_some_and(|Peer(address)| address.is_loopback()) && names_this_host(request.headers())
}

fn no_token() -> Problem {
    let next = "send `Authorization: Bearer TOKEN`; `xpu-top keygen --token` prints the token on a host with the key";
    Problem::new(StatusCode::UNAUTHORIZED, "missing or invalid bearer token", next)
}

fn too_late() -> Problem {
    let error = format!("the request took longer than {} s", ANSWER.as_secs());
    Problem::new(StatusCode::GATEWAY_TIMEOUT, error, "send the body faster, or request less")
}

/// Whether the request's host name can mean only this host.
fn names_this_host(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let Some(host) = hosts.next() else { return true };
    let Ok(host) = host.to_str() else { return false };
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _port)) => address,
        None => host.split_once(':').map_or(host, |(name, _port)| name),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case(host_name().as_str())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use xpu_net::key::Key;

    use super::*;
    use crate::{http::Token, metrics::Pages};

    /// The status of a refusal with a key, and with or without xpu-timer's page.
    fn refused(compat: bool, path: &str, peer: [u8; 4], hosts: &[&str]) -> Option<u16> {
        let config = HttpConfig {
            addresses: Vec::new(),
            token: Some(Token::of(&Key { public: [1; 32], secret: [2; 32] })),
            open_metrics: false,
            pages: Pages { compat, ..Pages::default() },
            captures: None,
            push: None,
            what_if_every: None,
        };
        let request = Request::builder().uri(path).extension(Peer(peer.into()));
        let request = hosts.iter().fold(request, |request, host| request.header(header::HOST, *host));
        let problem = rejection(&config, &request.body(Body::empty()).unwrap());
        problem.map(|problem| problem.into_response().status().as_u16())
    }

    #[test]
    fn with_a_key_only_xpu_timers_page_is_open_to_its_own_host() {
        let (here, there) = ([127, 0, 0, 1], [10, 0, 0, 7]);
        assert_eq!(refused(true, METRICS, here, &["127.0.0.1:18889"]), None);
        assert_eq!(refused(true, METRICS, there, &["127.0.0.1:18889"]), Some(401));
        assert_eq!(refused(true, METRICS, here, &["evil.example"]), Some(401));
        assert_eq!(refused(true, "/api/v1/jobs", here, &["127.0.0.1:18889"]), Some(401));
        assert_eq!(refused(false, METRICS, here, &["127.0.0.1:18889"]), Some(401));
    }

    #[test]
    fn a_second_host_header_is_refused() {
        let here = [127, 0, 0, 1];
        for hosts in [["localhost", "evil.example"], ["localhost", "localhost"]] {
            assert_eq!(refused(true, METRICS, here, &hosts), Some(400));
            assert_eq!(refused(true, HEALTH, here, &hosts), Some(400));
        }
    }

    #[test]
    fn a_burst_passes_and_then_a_fixed_rate() {
        let (pace, now) = (Pace::default(), Instant::now());
        let passed = (0..1000).filter(|_| pace.admits(now)).count();
        assert_eq!(passed, BURST as usize);
        let later = now + Duration::from_secs(1);
        assert_eq!((0..1000).filter(|_| pace.admits(later)).count(), RATE as usize);
    }

    #[test]
    fn requests_without_the_token_take_nothing_from_those_with_it() {
        let key = Key { public: [1; 32], secret: [2; 32] };
        let (token, text) = (Token::of(&key), Token::text_of(&key));
        let paces = Paces::default();
        let of = |token: Option<&Token>, path: &str, shown: Option<&str>, is_refused| {
            let mut request = Request::builder().uri(path);
            if let Some(shown) = shown {
                request = request.header(header::AUTHORIZATION, format!("Bearer {shown}"));
            }
            std::ptr::from_ref(paces.of(token, &request.body(Body::empty()).unwrap(), is_refused))
        };
        let (with, own) = (Some(&token), Some(text.as_str()));
        let permitted: *const Pace = &raw const paces.permitted;
        for path in ["/", "/web/main.js", HEALTH, METRICS, "/api/v1/jobs"] {
            assert_eq!(of(with, path, own, false), permitted, "{path}");
            for shown in [None, Some("another")] {
                assert_ne!(of(with, path, shown, false), permitted, "{path}");
            }
            assert_eq!(of(with, path, None, true), &raw const paces.refused, "{path}");
        }
        for (path, pace) in [("/web/main.js", &raw const paces.files), (HEALTH, &raw const paces.open)] {
            assert_eq!(of(with, path, None, false), pace, "{path}");
        }
        // Without a configured token everybody has permission.
        assert_eq!(of(None, HEALTH, None, false), permitted);
        assert_eq!(of(None, "/web/main.js", None, false), &raw const paces.files);
    }

    #[test]
    fn only_a_request_of_this_host_to_this_host_is_one_of_its_own() {
        let own = |peer: Option<[u8; 4]>, host: &str| {
            let mut request =
                Request::builder().header(header::HOST, host).body(axum::body::Body::empty()).unwrap();
            peer.map(|peer| request.extensions_mut().insert(Peer(peer.into())));
            is_of_this_host(&request)
        };
        assert!(own(Some([127, 0, 0, 1]), "127.0.0.1:18889"));
        assert!(!own(Some([10, 0, 0, 7]), "127.0.0.1") && !own(None, "127.0.0.1"));
        assert!(!own(Some([127, 0, 0, 1]), "evil.example"), "of a web page in somebody's browser");
    }

    #[test]
    fn a_name_that_another_host_could_have_is_not_local() {
        let meant = |host: &str| {
            names_this_host(&[(header::HOST, HeaderValue::from_str(host).unwrap())].into_iter().collect())
        };
        for host in ["localhost:18889", "127.0.0.1:18889", "10.1.2.3", "[::1]:18889", "LOCALHOST"] {
            assert!(meant(host), "{host}");
        }
        for host in ["evil.example", "evil.example:18889", "localhost.evil.example", ""] {
            assert!(!meant(host), "{host}");
        }
        assert!(names_this_host(&HeaderMap::new()), "HTTP/1.0 has none, and no browser");
    }
}
