//! The web page's files, and the stream of events that it shows.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    time::{Duration, Instant},
};

use flate2::read::GzDecoder;
use serde_json::{Value, json};
use xpu_tests::{
    host::{BASE, Host},
    program::{Program, until},
};

use crate::{
    client::Client,
    job::{Demo, client_of},
};

const TRAINS: &str = "
while True:
    ok(gemm_ex(512, 512, 512))
    step()
    time.sleep(0.02)";

/// One event of a stream.
#[derive(Debug)]
pub(crate) struct Event {
    name: String,
    pub(crate) data: Value,
}

/// Reads the events of a stream one by one; `gzip` requests compression.
pub(crate) struct Listening(Box<dyn std::io::BufRead>);

impl Listening {
    fn to(client: &Client, gzip: bool) -> Self {
        Self::of(client, "/api/v1/events", gzip).expect("a stream of events")
    }

    pub(crate) fn of(client: &Client, path: &str, gzip: bool) -> Result<Self, String> {
        let mut stream = client.connect();
        let token = client
            .token
            .as_ref()
            .map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
        let accepts = if gzip { "Accept-Encoding: gzip\r\n" } else { "" };
        // HTTP/1.0, so that the body is not chunked.
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {}\r\n{token}{accepts}\r\n", client.address)
            .expect("it is sent");
        let mut reader = BufReader::new(stream);
        let head = head(&mut reader);
        let is_stream = head.starts_with("HTTP/1.0 200") && head.contains("content-type: text/event-stream");
        if !is_stream || head.contains("content-encoding: gzip") != gzip {
            return Err(head);
        }
        Ok(Self(if gzip { Box::new(BufReader::new(GzDecoder::new(reader))) } else { Box::new(reader) }))
    }

    pub(crate) fn next(&mut self) -> Event {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).expect("a line") > 0, "the stream has ended: {lines:?}");
            if line == "\n" {
                break;
            }
            lines.push(line.trim_end().to_owned());
        }
        let field = |name: &str| {
            let found = lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            found.unwrap_or_else(|| panic!("no {name}: {lines:?}")).to_owned()
        };
        assert!(field("id").parse::<u64>().is_ok_and(|at| at > 1_700_000_000_000), "{lines:?}");
        Event { name: field("event"), data: serde_json::from_str(&field("data")).expect("a document") }
    }
}

fn head(reader: &mut BufReader<TcpStream>) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).is_ok_and(|read| read > 0) {}
    head
}

#[test]
fn a_page_and_its_events_are_served() {
    let demo = Demo::start("--ranks 2 --nodes 1", &[]);
    let client = demo.client(1);
    files(&client);
    let mut plain = Listening::to(&client, false);
    let mut compressed = Listening::to(&client, true);
    let names = |value: &Value| value.as_object().map(|of| of.keys().cloned().collect::<Vec<_>>());
    let document = client.get("/api/v1/jobs/demo").json();
    let first = plain.next();
    assert_eq!(first.name, "status");
    let mut there = first.data.clone();
    for more in ["bound_sentence", "what_if_sentences", "what_if_sum"] {
        assert!(there.as_object_mut().expect("an object").remove(more).is_some());
    }
    assert_eq!(names(&there), names(&document), "as `status --json`");
    let step = |event: &Event| event.data["steps"]["min"].as_u64();
    let began = Instant::now();
    let (mut last, mut came) = (step(&first), 0);
    until("events to tell of later steps", || {
        let event = plain.next();
        came += 1;
        let later = step(&event) > last;
        last = step(&event);
        later.then_some(())
    });
    let seconds = began.elapsed().as_secs_f64();
    assert!(f64::from(came) <= seconds + 2.0, "{came} events in {seconds} s: one a second");
    // All listeners get the same document in the same second.
    let steps: Vec<_> = (0..4).map(|_| step(&plain.next())).collect();
    let theirs: Vec<_> = (0..8).map(|_| step(&compressed.next())).collect();
    assert!(steps.iter().all(|step| theirs.contains(step)), "{steps:?} {theirs:?}");
    assert!(Listening::of(&client, "/api/v1/events?job=demo", false).is_ok());
    let unknown = Listening::of(&client, "/api/v1/events?job=another", false);
    assert!(unknown.is_err_and(|head| head.starts_with("HTTP/1.0 404")));
    let points = client.get("/api/v1/steps").json()["points"].clone();
    let points = points.as_array().expect("points");
    assert!(
        points.len() > 1 && points.iter().all(|point| point["median_ms"].as_f64() > Some(0.0)),
        "{points:?}"
    );
}

/// A browser gets nothing from other hosts, and files contain no data.
fn files(client: &Client) {
    let page = client.get("/");
    assert!(page.status == 200 && page.head.contains("content-type: text/html"), "{page:?}");
    let policy = "content-security-policy: default-src 'self'; object-src 'none'; base-uri 'none'";
    for header in
        [policy, "x-content-type-options: nosniff", "cache-control: no-store", "referrer-policy: no-referrer"]
    {
        assert!(page.head.contains(header), "{header}: {page:?}");
        assert!(client.get("/api/v1/jobs").head.contains(header), "{header}");
    }
    let named = page.body.split('"').filter(|text| text.starts_with("/web/"));
    let mut files = 0;
    for path in named {
        let file = client.get(path);
        assert!(file.status == 200 && !file.body.is_empty(), "{path}: {file:?}");
        files += 1;
    }
    assert!(files > 4, "{files}: {page:?}");
    assert!(client.get("/web/main.js").head.contains("content-type: text/javascript"));
    for path in ["/web/", "/web/none.js", "/web/../openapi.json", "/web/%2e%2e/src/http.rs"] {
        assert_eq!(client.get(path).status, 404, "{path}");
    }
}

#[test]
fn files_need_no_token_and_events_do() {
    let host = Host::new();
    let client = client_of(&host);
    let _rank = host.rank_of(
        0,
        1,
        "
while True:
    ok(gemm_ex(512, 512, 512))
    step()
    time.sleep(0.02)",
    );
    until("the job to train", || host.status()["steps"]["max"].as_u64().filter(|&step| step > 3));
    let stranger = Client { token: None, ..client.clone() };
    for path in ["/", "/web/main.js", "/web/vendor/uPlot.esm.js"] {
        assert_eq!(stranger.get(path).status, 200, "{path}");
    }
    for path in ["/api", "/api/v1/events", "/api/v1/steps", "/web", "/webs/main.js", "/openapi.json"] {
        assert_eq!(stranger.get(path).status, 401, "{path}");
    }
    let mut listening = Listening::to(&client, true);
    assert_eq!(listening.next().name, "status");
    // Too many requests without a token do not affect clients with a token.
    for path in ["/", "/healthz"] {
        let mut refused = (0..1000).map(|_| stranger.once("GET", path, None).status);
        assert_eq!(refused.find(|&status| status != 200), Some(429), "{path}");
        assert_eq!(client.once("GET", "/api/v1/jobs", None).status, 200, "{path}");
    }
}

#[test]
fn serve_prints_the_address_of_a_page_for_many_hosts() {
    let host = Host::new();
    let _ranks = [0, 1].map(|rank| host.rank(rank, TRAINS));
    let mut command = host.xpu_top("serve --job train --base-port");
    let hosts = format!("{},no host", host.address);
    command.args([BASE, "--hosts", &hosts, "--key-file"]).arg(host.key());
    // These variables are for collectors; `serve` ignores them.
    command.env("XPU_TOP_NO_HTTP", "1").env("XPU_TOP_TOKEN_FILE", "/nonexistent");
    let serve = Program::start(&mut command);
    let client = served(&serve);
    assert!(client.get("/").body.contains("/web/main.js"));
    until("both ranks", || {
        (client.get("/api/v1/jobs/train").json()["ranks"].as_array()?.len() == 2).then_some(())
    });
    assert!(serve.said().contains("xpu-top: --hosts: `no host` is not a host name"), "{}", serve.said());
    let refused = host.ask("serve --ssh");
    assert!(!refused.status.success() && refused.stderr.contains("through ssh"), "{refused:?}");
}

/// A client of the page that this program serves.
fn served(serve: &Program) -> Client {
    let line = until("an address", || {
        serve.wrote().lines().find(|line| line.starts_with("http:")).map(str::to_owned)
    });
    let (address, token) = line.split_once("/?job=train#token=").expect("an address with a token");
    let address =
        address.strip_prefix("http://").and_then(|address| address.parse().ok()).expect("an address");
    until("it to listen", || TcpStream::connect(address).ok());
    Client { address, token: Some(token.trim().to_owned()) }
}

/// The page shows one moment of the recording until it is moved or played, no matter when it is opened. It
/// refuses actions that need a running job.
#[test]
fn serve_shows_a_recording_as_it_was() {
    let host = Host::new();
    let file = host.place.path("two.xpurec");
    let ranks = [0, 1].map(|rank| host.rank(rank, TRAINS));
    until("both ranks", || (host.status()["coverage"]["ranks_seen"] == 2).then_some(()));
    let recorded = host.ask(&format!("record --for 6s -o {}", file.display()));
    assert!(recorded.status.success(), "{recorded:?}");
    drop(ranks);
    let mut command = host.xpu_top("serve --job train --key-file");
    let serve = Program::start(command.arg(host.key()).arg(&file).args(["--at", "-1s"]));
    let client = served(&serve);
    let mut events = Listening::to(&client, false);
    let (first, second) = (events.next().data, events.next().data);
    assert!(first["recorded_at"].as_f64() > Some(1.7e9) && first == second, "{first} {second}");
    assert_eq!(
        (&first["ranks"][1]["state"], &first["coverage"]["hosts_unreachable"]),
        (&json!("ok"), &json!([]))
    );
    assert!(client.get("/api/v1/steps").json()["points"].as_array().is_some_and(|points| !points.is_empty()));
    assert!(
        client.get("/api/v1/ranks?rank=1").json()["ranks"][0]["gemms"]
            .as_array()
            .is_some_and(|gemms| !gemms.is_empty())
    );
    for (path, body) in
        [("hook", json!({"on": false})), ("capture", json!({"steps": 3})), ("stacks", json!({}))]
    {
        let refused = client.post(&format!("/api/v1/{path}"), &body);
        assert!(refused.status == 409 && refused.body.contains("recording"), "{path}: {refused:?}");
    }
    assert_eq!(client.post("/api/v1/replay", &json!({"speed": 1000})).status, 400);
    let refused = client_of(&host).get("/api/v1/replay");
    assert!(refused.status == 409 && refused.body.contains("running job"), "{refused:?}");

    let replay = |wish| client.post("/api/v1/replay", &wish).json();
    let furthest = || client.get("/api/v1/jobs/train").json()["steps"]["max"].as_u64();
    let (shown, step) = (client.get("/api/v1/replay").json(), furthest());
    assert_eq!((&shown["at"], &shown["is_playing"]), (&first["recorded_at"], &json!(false)));
    let earlier = replay(json!({"by": -2}));
    assert!(
        (earlier["at"].as_f64().unwrap() - shown["at"].as_f64().unwrap() + 2.0).abs() < 1e-3,
        "{earlier}"
    );
    assert!(furthest() < step, "it went back");
    until("an event of that moment", || (events.next().data["recorded_at"] == earlier["at"]).then_some(()));
    let begin = replay(json!({"at": 0, "speed": 64, "is_playing": true}));
    assert_eq!((&begin["at"], &begin["is_playing"]), (&begin["begin"], &json!(true)));
    let end = until("the end", || {
        let now = client.get("/api/v1/replay").json();
        (now["is_playing"] == false).then_some(now)
    });
    assert_eq!(end["at"], end["end"]);
    assert!(furthest() > step, "it played beyond the moment of --at");

    let refused = host.xpu_top("serve --at +1h").arg(&file).output().expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(64) && said.contains("the recording is from"), "{said}");
}

#[test]
fn a_collector_without_a_job_streams_an_empty_state_to_a_bounded_number_of_listeners() {
    let host = Host::new();
    let client = client_of(&host);
    let mut first = Listening::to(&client, false);
    let event = first.next();
    assert_eq!(
        (event.name.as_str(), &event.data["error"]),
        ("problem", &Value::from("no job is known here"))
    );
    // All from one address.
    let many: Vec<_> = (0..80).map(|_| Listening::of(&client, "/api/v1/events", false)).collect();
    let open = many.iter().filter(|listening| listening.is_ok()).count();
    assert!((30..=48).contains(&open), "{open}");
    drop(many);
    until("a place to be free", || {
        let mut stream = client.connect();
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        write!(stream, "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.ends_with("ok\n").then_some(())
    });
}
