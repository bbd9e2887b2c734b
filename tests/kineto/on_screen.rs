//! Traces requested with a key of the screen.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use xpu_tests::pty::Terminal;

use super::Host;

/// The screen, on the page with captures and traces. New files go to a folder of their own.
fn watched(host: &Host) -> Terminal {
    let folder = host.place.path("here");
    fs::create_dir(&folder).unwrap();
    let mut command = host.asking("");
    command.current_dir(folder);
    let terminal = Terminal::start(command, 132, 40);
    terminal.shows("LIVE").shows("2 of 2").keys("8").shows("c captures");
    terminal
}

/// The folders with traces.
fn folders(host: &Host) -> Vec<PathBuf> {
    let all = fs::read_dir(host.place.path("here")).unwrap().map(|file| file.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|ending| ending == "kineto")).collect()
}

fn manifest(folder: &Path) -> Value {
    serde_json::from_slice(&fs::read(folder.join("manifest.json")).unwrap()).unwrap()
}

#[test]
fn a_key_traces_all_ranks_and_the_page_shows_the_progress() {
    let host = Host::new();
    let _ranks = host.job(["kineto = Kineto()\ntrain()"; 2]);
    let mut terminal = watched(&host);
    terminal.keys("K").shows("asking the ranks; K cancels").shows("2 of 2 ranks gave a trace of steps");
    let [folder] = &folders(&host)[..] else { panic!("{:?}", folders(&host)) };
    let manifest = manifest(folder);
    let (first, last) = (&manifest["window"]["first_step"], &manifest["window"]["last_step"]);
    assert_eq!(first.as_u64().unwrap() + 1, last.as_u64().unwrap(), "{manifest:#}");
    assert_eq!(manifest["same_steps"], true, "{manifest:#}");
    for rank in ["rank-0000.json.gz", "rank-0001.json.gz"] {
        assert!(folder.join(rank).metadata().unwrap().len() > 0, "{rank}");
    }
    let name = folder.file_name().unwrap().to_str().unwrap();
    terminal.shows(&name[..name.len() - ".kineto".len()]);
    terminal.keys("q");
    assert!(terminal.end().success());
}

#[test]
fn the_key_again_ends_the_traces() {
    let host = Host::new();
    let _ranks = host.job(["kineto = Kineto()\ntrain()"; 2]);
    let mut terminal = watched(&host);
    // The ranks have the request, and would trace in some seconds.
    terminal.keys("K").shows("asking the ranks; K cancels").hides("asking the ranks").shows("K cancels");
    terminal.keys("K").shows("no rank gave a trace").hides("K cancels");
    let [folder] = &folders(&host)[..] else { panic!("{:?}", folders(&host)) };
    let manifest = manifest(folder);
    for rank in manifest["ranks"].as_array().unwrap() {
        assert_ne!(rank["status"], "written", "{manifest:#}");
    }
    assert_eq!(fs::read_dir(folder).unwrap().count(), 1, "only the manifest is there");
    terminal.keys("q");
    assert!(terminal.end().success());
}
