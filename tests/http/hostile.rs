//! Attacks by unauthorised clients: nothing leaks, the job is not affected, and authorised clients are
//! answered.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use xpu_tests::{host::Host, program::until};

use crate::job::client_of;

const TRAINS: &str = "
while True:
    ok(gemm_ex(512, 512, 512))
    step()
    time.sleep(0.02)";

fn step(host: &Host) -> Option<u64> {
    host.status()["steps"]["max"].as_u64()
}

#[test]
fn strangers_get_no_data_and_the_job_continues() {
    let host = Host::new();
    let client = client_of(&host);
    let rank = host.rank_of(0, 1, TRAINS);
    until("the job to train", || step(&host).filter(|&step| step > 3));
    assert!(client.get("/metrics").body.contains("xpu_top_steps_total"));

    let stranger = crate::client::Client { token: None, ..client.clone() };
    let liar = crate::client::Client { token: Some("0".repeat(64)), ..client.clone() };
    for path in [
        "/metrics",
        "/api",
        "/api/v1/jobs",
        "/api/v1/events",
        "/webx",
        "/api/v1/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//",
        "/metrics/..",
    ] {
        for asker in [&stranger, &liar] {
            let answer = asker.get(path);
            assert_eq!(answer.status, 401, "{path}: {answer:?}");
            assert!(answer.json()["next"].as_str().is_some_and(|next| next.contains("keygen --token")));
            assert!(
                !answer.body.contains("train") && answer.head.contains("www-authenticate: Bearer"),
                "{answer:?}"
            );
        }
    }
    assert_eq!(stranger.get("/healthz").body, "ok\n");
    // With the token such paths return nothing either.
    for path in ["/api/v1/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/metrics/%2e%2e", "/metrics\0"] {
        let answer = client.get(path);
        assert!(matches!(answer.status, 400 | 404), "{path}: {answer:?}");
        assert!(!answer.body.contains("root:"), "{path}");
    }
    assert_eq!(client.ask("DELETE", "/metrics", None).status, 405);

    for garbage in ["\u{0}\u{1}\u{2}garbage\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n"] {
        assert!(matches!(client.send(garbage).status, 0 | 400 | 505), "{garbage:?}");
    }
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    assert!(matches!(client.send(&long).status, 0 | 400 | 431), "a head of a megabyte");
    let lines = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(1000));
    assert!(matches!(client.send(&lines).status, 0 | 400 | 431), "a thousand lines");
    a_gigabyte(&client);
    let mut slow = client.connect();
    slow.write_all(b"GET /metrics HTTP/1.1\r\nHost:").expect("it begins");
    let mut refused = (0..1000).map(|_| stranger.once("GET", "/metrics", None).status);
    assert_eq!(refused.find(|&status| status != 401), Some(429), "a thousand in a row are too many");
    let mine = client.once("GET", "/metrics", None);
    assert_eq!(mine.status, 200, "strangers take nothing from authorised clients");

    many_connections(&client);
    until("authorised clients to be answered again, and others refused", || {
        let answer = client.get("/metrics");
        let refusals =
            |line: &str| line.strip_prefix("xpu_top_http_connections_refused_total ").map(str::to_owned);
        let reported = answer.body.lines().find_map(refusals).filter(|count| count != "0" && count != "0.0");
        reported.filter(|_| answer.status == 200)
    });
    assert!(
        matches!(slow.read(&mut [0; 1]), Ok(0) | Err(_)),
        "a client that does not end its head is not awaited"
    );
    let before = step(&host).expect("it trains");
    until("the job to go on", || step(&host).filter(|&step| step > before));
    assert!(!host.collector_log().contains("panicked"), "{}", host.collector_log());
    drop(rank);
}

/// As many connections as one user can open, repeatedly.
#[test]
fn silent_connections_do_not_block_others() {
    let host = Host::new();
    let client = client_of(&host);
    let rank = host.rank_of(0, 1, TRAINS);
    until("the job to train", || step(&host).filter(|&step| step > 3));
    let connect = |count| (0..count).filter_map(|_| TcpStream::connect(client.address).ok());
    let mut silent: Vec<TcpStream> = connect(300).collect();
    assert!(silent.len() > 144, "{}", silent.len());
    for asked in 0..70 {
        silent.extend(connect(3));
        assert_eq!(client.once("GET", "/healthz", None).status, 200, "request {asked}");
    }
    drop((silent, rank));
}

/// A body of one gigabyte is announced, and sent until the server closes the connection.
fn a_gigabyte(client: &crate::client::Client) {
    let token = client.token.as_deref().unwrap_or_default();
    let head = format!(
        "POST /api/v1/hook HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
    );
    for length in ["Content-Length: 1073741824\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n40000000\r\n"] {
        let mut stream = client.connect();
        stream.write_all(format!("{head}{length}").as_bytes()).expect("a head is taken");
        let block = vec![b'['; 1 << 16];
        let sent = (0..(1 << 30) / block.len()).take_while(|_| stream.write_all(&block).is_ok()).count();
        assert!(sent < 1024, "{} MiB were taken", sent / 16);
    }
}

/// Two thousand connections that send nothing, as many at a time as this machine allows.
fn many_connections(client: &crate::client::Client) {
    let open: Vec<TcpStream> = (0..800).filter_map(|_| TcpStream::connect(client.address).ok()).collect();
    assert!(open.len() > 100, "{}", open.len());
    let mut last = open.last().expect("one").try_clone().expect("a descriptor");
    assert!(matches!(last.read(&mut [0; 1]), Ok(0) | Err(_)), "it is closed unheard");
    drop(open);
    for _ in 0..1200 {
        drop(TcpStream::connect(client.address));
    }
}
