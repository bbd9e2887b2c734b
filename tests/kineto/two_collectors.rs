//! Two collectors of one host: of two users, or of one user's jobs with different base ports. A program polls
//! either its own collector's folder, which `xpu-top run` sets, or the one shared name of the host.

use std::{
    fs, process,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use serde_json::Value;
use xpu_tests::program::{Outcome, Program, until};

use super::Host;

static MEETINGS: AtomicU32 = AtomicU32::new(0);

const TRAIN: &str = "kineto = Kineto()\ntrain()";

/// What `xpu-top run` leaves alone: the user has named Kineto's daemon, at the shared name.
const SET: [(&str, &str); 1] = [("KINETO_USE_DAEMON", "1")];

/// A collector that competes for one name with the other one of its test. The name is not dynolog's real one. The
/// second one is made once the first one serves, so that it finds other ports.
fn host(test: &str) -> Host {
    Host::with(Some(format!("xpu-top-{test}-{}", process::id())))
}

fn job(host: &Host, set: &[(&str, &str)], script: &str) -> [Program; 2] {
    // The ranks of an earlier job of this host met in another folder.
    let meet = host.place.path(&format!("meet-{}", MEETINGS.fetch_add(1, Relaxed)));
    fs::create_dir(&meet).unwrap();
    let set = [set, &[("RENDEZVOUS", meet.to_str().unwrap())]].concat();
    let ranks = [0, 1].map(|rank| host.run_where(rank, &set, &[], script));
    host.wait_for_steps();
    // An earlier job's ranks are still listed for a moment.
    until("these ranks", || {
        let status: Value = serde_json::from_str(&host.ask("status --json --now").stdout).ok()?;
        let of = |rank: usize| &status["ranks"][rank];
        (0..2)
            .all(|rank| of(rank)["pid"] == ranks[rank].pid() && of(rank)["step"].as_u64() > Some(3))
            .then_some(())
    });
    ranks
}

fn trace(host: &Host, name: &str) -> Outcome {
    host.ask(&format!("kineto --steps 2 -o {}", host.place.path(name).display()))
}

fn is_traced(host: &Host, name: &str) {
    let done = trace(host, name);
    assert_eq!(done.status.code(), Some(0), "{done:?}\n{}", host.log());
}

#[test]
fn jobs_of_two_collectors_are_traced_at_once() {
    let mut hosts = vec![host("both")];
    let mut ranks = vec![job(&hosts[0], &[], TRAIN)];
    hosts.push(host("both"));
    ranks.push(job(&hosts[1], &[], TRAIN));
    let requests: Vec<_> = hosts
        .iter()
        .map(|host| {
            let line = format!("kineto --steps 2 --start-in 8s -o {}", host.out().display());
            Program::start(&mut host.asking(&line))
        })
        .collect();
    for ((host, ranks), done) in hosts.iter().zip(&ranks).zip(requests) {
        let done = done.end();
        assert_eq!(done.status.code(), Some(0), "{done:?}\n{}", host.log());
        let manifest = host.manifest();
        for (rank, one) in manifest["ranks"].as_array().unwrap().iter().enumerate() {
            assert_eq!((&one["status"], &one["pid"]), (&"written".into(), &ranks[rank].pid().into()));
        }
    }
    // Their jobs do not need the shared name, so both leave it to others.
    let name = hosts[0].name.as_deref().unwrap();
    for host in &hosts {
        assert!(!host.log().contains(&format!("@{name}")), "{}", host.log());
    }
    let own = hosts[1].place.path("run").join(format!("kineto-{}", hosts[1].base));
    assert!(hosts[1].log().contains(&format!("Kineto is served at {}/dynolog", own.display())));
    assert!(fs::read_dir(own).unwrap().count() > 2, "the clients have sockets there");
}

/// If the user has set `KINETO_USE_DAEMON`, the job polls the shared name, as dynolog's users want it. Then only
/// the collector that has the name serves it.
#[test]
fn the_shared_name_serves_one_collector_and_then_the_other() {
    let first = host("shared");
    let others = job(&first, &SET, TRAIN);
    let second = host("shared");
    // Its Kineto prints what it was asked to do.
    let shows = "class Shows(Kineto):
    def take(self, config):
        print('asked', config.get('REQUEST_TRACE_ID'), flush=True)
        super().take(config)
kineto = Shows()
train()";
    let ranks = job(&second, &SET, shows);
    let refused = trace(&second, "refused");
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let own = second.place.path("run").join(format!("kineto-{}", second.base));
    let advice = format!(
        "ranks 0-1: another daemon has @{} on its host (dynolog, or another collector): end it, or start the job with KINETO_IPC_SOCKET_DIR={}, which",
        second.name.as_deref().unwrap(),
        own.display()
    );
    assert!(refused.stderr.contains(&advice), "{refused:?}\n{advice}");
    assert_eq!(second.log().matches("belongs to another daemon").count(), 1, "{}", second.log());

    // The first one is not disturbed, and asks nothing of the second one's ranks.
    is_traced(&first, "traced");
    assert!(ranks.iter().all(|rank| !rank.wrote().contains("asked")), "it is the first one's request");
    let advised = [("KINETO_USE_DAEMON", "1"), ("KINETO_IPC_SOCKET_DIR", own.to_str().unwrap())];
    drop(ranks);
    let ranks = job(&second, &advised, shows);
    is_traced(&second, "advised");
    drop(ranks);

    let ranks = job(&second, &SET, shows);
    let served =
        || second.log().matches(&format!("Kineto is served at @{}", second.name.as_deref().unwrap())).count();
    assert_eq!(served(), 0);
    drop(others);
    until("the name to be free", || (served() == 1).then_some(()));
    is_traced(&second, "after");
    assert!(ranks.iter().all(|rank| rank.wrote().contains("asked")));
}

/// A job within another collector's job, as in a shell that `xpu-top run` started.
#[test]
fn a_folder_of_an_outer_run_is_replaced() {
    let outer = host("nested");
    let _ranks = job(&outer, &[], TRAIN);
    let inner = host("nested");
    let folder = inner.place.path("run").join("kineto-1");
    let set = [("KINETO_USE_DAEMON", "1"), ("KINETO_IPC_SOCKET_DIR", folder.to_str().unwrap())];
    let _inner = job(&inner, &set, TRAIN);
    is_traced(&inner, "inner");
}

/// The ranks of a host start at the same time, and one of them starts the collector. A rank that polls the shared
/// name instead would be another daemon's.
#[test]
fn ranks_that_start_at_once_all_get_the_folder() {
    for _ in 0..8 {
        let host = host("at-once");
        let ranks: Vec<_> = (0..8)
            .map(|_| {
                let mut command = host.xpu_top();
                command.args(["run", "--key-file"]).arg(host.key());
                Program::start(command.args(["--", "sh", "-c", "echo $KINETO_IPC_SOCKET_DIR"]))
            })
            .collect();
        let own = host.place.path("run").join(format!("kineto-{}", host.base));
        for rank in ranks {
            let done = rank.end();
            assert_eq!(done.stdout.trim(), own.to_str().unwrap(), "{done:?}\n{}", host.log());
        }
    }
}
