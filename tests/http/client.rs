//! A raw HTTP client: a test can send what no library would.

use std::{
    fmt::Write as _,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use serde_json::Value;
use xpu_tests::program::until;

/// A collector's HTTP port, and the token for it.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    pub(crate) token: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Client {
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect_timeout(&self.address, Duration::from_secs(5)).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_mins(1))).expect("a time");
        stream
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, None)
    }

    /// The text of `/metrics`.
    pub(crate) fn page(&self) -> String {
        let answer = self.get("/metrics");
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, Some(&body.to_string()))
    }

    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<&str>) -> Answer {
        self.send(&self.request(method, path, body))
    }

    /// As [`Self::ask`], but also returns a 429.
    pub(crate) fn once(&self, method: &str, path: &str, body: Option<&str>) -> Answer {
        self.exchange(&self.request(method, path, body))
    }

    fn request(&self, method: &str, path: &str, body: Option<&str>) -> String {
        let mut request =
            format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", self.address);
        if let Some(token) = &self.token {
            let _ = write!(request, "Authorization: Bearer {token}\r\n");
        }
        if let Some(body) = body {
            let length = body.len();
            let _ = write!(request, "Content-Type: application/json\r\nContent-Length: {length}\r\n");
        }
        format!("{request}\r\n{}", body.unwrap_or_default())
    }

    /// Sends these bytes, and sends them again while the server answers 429. Returns the whole answer.
    pub(crate) fn send(&self, request: &str) -> Answer {
        until("the server to take a request", || {
            Some(self.exchange(request)).filter(|answer| answer.status != 429)
        })
    }

    fn exchange(&self, request: &str) -> Answer {
        let mut stream = self.connect();
        // The server may refuse early, without reading the whole request.
        let _ = stream.write_all(request.as_bytes());
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let text = String::from_utf8_lossy(&bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        let body = if chunked { unchunked(body) } else { body.to_owned() };
        Answer { status, head: head.to_owned(), body }
    }
}

fn unchunked(mut rest: &str) -> String {
    let mut whole = String::new();
    while let Some((length, after)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap_or(0);
        if length == 0 {
            break;
        }
        whole += &after[..length];
        rest = after[length..].trim_start_matches("\r\n");
    }
    whole
}
