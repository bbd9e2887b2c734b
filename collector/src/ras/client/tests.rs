//! Tests the client against real listeners: NCCL's RAS, and other programs that may have its port.

use std::{
    io::{BufRead as _, BufReader},
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use xpu_wire::id::Pid;

use super::*;
use crate::ras::answer::tests::OF_2_28;

/// Short limits, so that tests do not wait long for listeners that do not answer.
const LIMITS: Limits = Limits {
    line: Duration::from_millis(300),
    document: Duration::from_millis(500),
    all: Duration::from_secs(20),
};

/// How a listener treats a connection, by the connection's number.
type Serve = fn(TcpStream, usize);

fn ask_one_that(serves: Serve) -> (Result<Vec<Pid>, Unanswered>, usize) {
    ask_one_that_while(serves, || false)
}

fn ask_one_that_while(
    serves: Serve,
    is_creating: impl Fn() -> bool,
) -> (Result<Vec<Pid>, Unanswered>, usize) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = RasAddress::from(&*listener.local_addr().unwrap().to_string());
    let taken = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&taken);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let number = counter.fetch_add(1, SeqCst);
            thread::spawn(move || serves(stream.unwrap(), number));
        }
    });
    let asked = ask(&address, |answer| answer.is_of(&[Pid(4001)]), is_creating, LIMITS);
    (asked.map(|_| vec![Pid(4001)]), taken.load(SeqCst))
}

/// Acts as NCCL's RAS, with this answer to `STATUS`.
fn ras(stream: TcpStream, document: &str) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut to = stream;
    let mut is_json = false;
    while let Some(Ok(line)) = lines.next() {
        let line = line.to_lowercase();
        let said = match line.as_str() {
            "status" if is_json => {
                let _ = to.write_all(document.as_bytes());
                return;
            }
            "set format json" => {
                is_json = true;
                "OK\n"
            }
            _ if line.starts_with("client protocol ") => "SERVER PROTOCOL 2\n",
            _ => "ERROR: Unknown command\n",
        };
        let _ = to.write_all(said.as_bytes());
    }
}

#[test]
fn ras_answers() {
    assert_eq!(ask_one_that(|stream, _| ras(stream, OF_2_28)), (Ok(vec![Pid(4001)]), 1));
}

#[test]
fn another_job_behind_the_port_is_skipped() {
    fn of_two(stream: TcpStream, number: usize) {
        let other = OF_2_28.replace("400", "500");
        ras(stream, if number < 3 { &other } else { OF_2_28 });
    }
    assert_eq!(ask_one_that(of_two), (Ok(vec![Pid(4001)]), 4));
    let (asked, connections) = ask_one_that(|stream, _| ras(stream, &OF_2_28.replace("400", "500")));
    assert_eq!((asked, connections), (Err(Unanswered::OtherJob), CONNECTIONS));
}

#[test]
fn ras_is_not_queried_while_a_communicator_is_created() {
    let asked = ask_one_that_while(|stream, _| ras(stream, OF_2_28), || true);
    assert_eq!(asked, (Err(Unanswered::Creating), 1), "it would have answered");
    // Answers about the job only after an answer about another job.
    let looks = AtomicUsize::new(0);
    let begins = || looks.fetch_add(1, SeqCst) > 0;
    let asked = ask_one_that_while(|stream, _| ras(stream, &OF_2_28.replace("400", "500")), begins);
    assert_eq!(asked, (Err(Unanswered::Creating), 2));
}

#[test]
fn a_stopped_process_behind_the_port_is_skipped() {
    fn stopped_first(stream: TcpStream, number: usize) {
        if number == 0 {
            // Reads until the client gives up.
            let _ = BufReader::new(stream).lines().count();
        } else {
            ras(stream, OF_2_28);
        }
    }
    assert_eq!(ask_one_that(stopped_first), (Ok(vec![Pid(4001)]), 2));
}

#[test]
fn the_status_of_an_older_nccl_is_not_queried() {
    fn old(stream: TcpStream, _: usize) {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let mut to = stream;
        assert_eq!(lines.next().unwrap().unwrap(), "CLIENT PROTOCOL 2");
        to.write_all(b"SERVER PROTOCOL 2\n").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "SET FORMAT json");
        to.write_all(b"ERROR: Unknown command SET FORMAT json\n").unwrap();
        assert!(lines.next().is_none_or(|line| line.is_err()), "a question that may crash it");
    }
    assert_eq!(ask_one_that(old), (Err(Unanswered::NoJson), 1));
}

#[test]
fn a_listener_other_than_ras_does_no_harm() {
    let http: Serve = |mut stream, _| {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    };
    assert_eq!(ask_one_that(http).0, Err(Unanswered::Foreign));
    let endless_line: Serve = |mut stream, _| while stream.write_all(&[b'x'; 4096]).is_ok() {};
    assert_eq!(ask_one_that(endless_line).0, Err(Unanswered::Foreign));
    let closes: Serve = |stream, _| drop(stream);
    assert_eq!(ask_one_that(closes).0, Err(Unanswered::Silent));
    let drips: Serve = |mut stream, _| {
        while stream.write_all(b"S").is_ok() {
            thread::sleep(Duration::from_millis(50));
        }
    };
    let begun = Instant::now();
    assert_eq!(ask_one_that(drips).0, Err(Unanswered::Silent));
    assert!(begun.elapsed() < LIMITS.all, "each connection ends in time");
    let nobody = RasAddress::from("127.0.0.1:1");
    assert_eq!(ask(&nobody, |_| true, || false, LIMITS).map(drop), Err(Unanswered::NotListening));
}

#[test]
fn endless_and_invalid_documents_are_dropped() {
    let endless: Serve = |stream, _| {
        let mut to = stream.try_clone().unwrap();
        ras(stream, "{");
        while to.write_all(&[b' '; 1 << 13]).is_ok() {}
    };
    assert_eq!(ask_one_that(endless).0, Err(Unanswered::TooLong));
    let cut: Serve = |stream, _| {
        let kept = stream.try_clone().unwrap();
        ras(stream, &OF_2_28[..400]);
        let _ = BufReader::new(kept).lines().count();
    };
    assert_eq!(ask_one_that(cut).0, Err(Unanswered::Late));
    let none: Serve = |stream, _| ras(stream, "No communicator data collected!\n");
    assert!(matches!(ask_one_that(none).0, Err(Unanswered::Unreadable(_))));
}
