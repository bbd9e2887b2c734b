//! Two users of one host: nothing that one user creates, offers or requests affects the other user's job.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod scene;

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
};

use scene::{CODE, SECRET, Scene, link, readable};
use serde_json::Value;
use xpu_tests::program::{Outcome, Program, run, until};

const STEPS: u32 = 300;

/// The program does the same as without xpu-top.
#[track_caller]
fn is_unharmed(watched: &Outcome, plain: &Outcome) {
    assert_eq!(watched.stdout, plain.stdout, "{watched:?}");
    assert_eq!(watched.status.code(), Some(CODE), "{watched:?}");
}

/// The stranger received no answer.
#[track_caller]
fn heard_nothing(stranger: Program) {
    let heard = stranger.end().stdout;
    assert_eq!(heard.trim(), "here", "a stranger got an answer");
}

/// `run` with its defaults, after a stranger has already created the place: a directory, a link, or a file.
#[test]
fn a_directory_taken_by_another_user_is_not_used() {
    let Some(scene) = Scene::with_all_parts() else { return };
    let plain = run(&mut scene.program(STEPS));
    assert_eq!(plain.status.code(), Some(CODE), "{plain:?}");
    scene.squat(&scene.usual());
    let stranger = scene.rude(&scene.socket_in(&scene.usual()), "takes_over");
    let ours = || scene.xpu_top(&["run", "--", scene.path("parts/keeps_in_step").to_str().unwrap(), "2000"]);
    let first = Program::start(&mut ours());
    // A second rank and a viewer find the same place.
    let status = until("the job to be seen", || {
        let said = run(&mut scene.xpu_top(&["status", "--json", "--now"]));
        let status: Value = serde_json::from_str(&said.stdout).ok()?;
        (status["ranks"][0]["step"].as_u64()? > 10).then_some(status)
    });
    assert_eq!(status["job"], SECRET);
    let spare = fs::metadata(scene.spare()).unwrap();
    assert_eq!(spare.permissions().mode() & 0o777, 0o700);
    let said = run(&mut scene.xpu_top(&["doctor", "--json"])).stdout;
    let document: Value = serde_json::from_str(&said).unwrap();
    let check = document["checks"].as_array().unwrap().iter().find(|check| check["name"] == "runtime dir");
    let found = check.unwrap()["found"].as_str().unwrap();
    let because = format!("{} is not used: it belongs to user {}", scene.usual().display(), scene.stranger);
    assert!(found.starts_with(scene.spare().to_str().unwrap()) && found.contains(&because), "{found}");
    first.signal("INT");
    let said = first.end().stderr;
    let reported: Vec<_> = said.lines().filter(|line| line.starts_with("xpu-top run: ")).collect();
    let line = format!("xpu-top run: {because}; {} is used instead", scene.spare().display());
    assert_eq!(reported, [line], "one line: {said}");
    let second = run(&mut scene.xpu_top(&[
        "run",
        "--",
        scene.path("parts/keeps_in_step").to_str().unwrap(),
        &STEPS.to_string(),
    ]));
    is_unharmed(&second, &plain);
    assert!(!Path::new(&format!("{}.2", scene.usual().display())).exists(), "one place is enough");
    heard_nothing(stranger);
}

/// The named place belongs to another user: the job starts without xpu-top, and gets no path.
#[test]
fn a_named_directory_of_another_user_is_refused() {
    let Some(scene) = Scene::with_all_parts() else { return };
    let plain = run(&mut scene.program(STEPS));
    let theirs = scene.path("theirs");
    let stranger = scene.rude(&scene.socket_in(&theirs), "takes_over");
    for named in [theirs.clone(), {
        link(&scene, &theirs, &scene.path("link"));
        scene.path("link")
    }] {
        let mut ours = scene.xpu_top(&["run", "--"]);
        ours.arg(scene.path("parts/keeps_in_step")).arg(STEPS.to_string());
        let watched = run(ours.env("XPU_TOP_RUNTIME_DIR", &named));
        is_unharmed(&watched, &plain);
        let said = &watched.stderr;
        assert!(said.contains("the job starts without xpu-top") && said.lines().count() == 1, "{said}");
        assert!(said.contains(named.to_str().unwrap()) && said.contains("mode 0700"), "{said}");
    }
    heard_nothing(stranger);
}

/// The hook alone, as a launcher on another host may start it, with only environment variables.
#[test]
fn a_hook_sends_nothing_to_another_users_socket() {
    let Some(scene) = Scene::new() else { return };
    let plain = run(&mut scene.program(STEPS));
    let open = scene.path("open");
    scene.squat(&open);
    chown(&open, Some(scene.victim), Some(scene.victim)).unwrap();
    scene.squat(&scene.usual());
    for manner in ["takes_over", "no_peer"] {
        // Named places: the stranger's directory, and a directory of the victim's that is open to all.
        // Unnamed: the hook's default place.
        for (folder, is_named) in [(scene.path("theirs"), true), (open.clone(), true), (scene.usual(), false)]
        {
            let socket = scene.socket_in(&folder);
            let stranger = scene.rude(&socket, manner);
            let mut ours = scene.watched(STEPS);
            if is_named {
                ours.env("XPU_TOP_SOCKET", &socket);
            }
            let watched = run(&mut ours);
            is_unharmed(&watched, &plain);
            assert_eq!(watched.stderr, plain.stderr);
            heard_nothing(stranger);
            let _ = fs::remove_file(&socket);
        }
    }
}

/// Modes and owners are correct, but another user's process listens there. The kernel reveals this.
#[test]
fn a_listener_is_identified_by_the_kernel_and_not_by_the_file() {
    let Some(scene) = Scene::new() else { return };
    let plain = run(&mut scene.program(STEPS));
    let folder = scene.path("folder");
    scene.squat(&folder);
    let socket = scene.socket_in(&folder);
    let stranger = scene.rude(&socket, "takes_over");
    for path in [&folder, &socket] {
        chown(path, Some(scene.victim), Some(scene.victim)).unwrap();
    }
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    let watched = run(scene.watched(STEPS).env("XPU_TOP_SOCKET", &socket));
    is_unharmed(&watched, &plain);
    heard_nothing(stranger);
}

/// What a running job has in its folders and in its process.
#[test]
fn another_user_reads_nothing_of_a_job() {
    let Some(scene) = Scene::with_all_parts() else { return };
    let mut ours = scene.xpu_top(&["run", "--"]);
    ours.arg(scene.path("parts/keeps_in_step")).arg("100000");
    let job = Program::start(&mut ours);
    until("the job to be seen", || {
        let said = run(&mut scene.xpu_top(&["status", "--json", "--now"]));
        let status: Value = serde_json::from_str(&said.stdout).ok()?;
        (status["ranks"][0]["step"].as_u64()? > 0).then_some(())
    });
    let usual = scene.usual();
    let process = PathBuf::from(format!("/proc/{}", job.pid()));
    let of = |name: &str| usual.join(format!("collector-{}.{name}", scene.base));
    let ledger = fs::read_dir(process.join("fd")).unwrap().flatten().map(|entry| entry.path());
    let ledger =
        ledger.filter(|path| fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("/memfd:")));
    let mut secrets: Vec<_> = ledger.collect();
    assert!(!secrets.is_empty(), "a rank has a ledger");
    secrets.extend([
        usual.clone(),
        of("log"),
        of("lock"),
        usual.join(format!("expected-{}", scene.base)),
        scene.path("mine/.config/xpu-top/key"),
        process.join("environ"),
        process.join("fd"),
        process.join("maps"),
    ]);
    for secret in &secrets {
        assert!(secret.exists(), "{}", secret.display());
    }
    assert_eq!(readable(&scene, &secrets), [].into());
    // Whatever the file modes are, the collector greets no other user.
    let knock = || {
        let mut command = scene.stranger(scene.path("parts/rude_collector"));
        Program::start(command.arg(of("sock")).arg("knocks"))
    };
    let shut = knock().end().stdout;
    assert!(shut.starts_with("heard nothing: Permission denied"), "{shut}");
    fs::set_permissions(&usual, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(of("sock"), fs::Permissions::from_mode(0o777)).unwrap();
    let opened = knock().end().stdout;
    assert!(opened.starts_with("heard 0 bytes") || opened.contains("reset"), "{opened}");
}
