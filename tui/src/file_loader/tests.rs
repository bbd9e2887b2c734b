use std::{env, process};

use xpu_client::capture::Extent;
use xpu_recording::{Header, Packer, Writer};
use xpu_simulation::Simulation;
use xpu_wire::{
    frame::{Body, CaptureAccount, CaptureOrder, CapturePart, CaptureSheet, Frame, StepMark},
    id::{Rank, Step},
    unit::Nanoseconds,
};

use super::*;

/// A temporary folder, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("xpu-top-file-loader-{}-{name}", process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        fs::write(self.0.join(name), bytes).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn written(frames: &[Frame]) -> Vec<u8> {
    let header =
        Header { job: "llama-70b".to_owned(), hosts: vec!["gpu-001".to_owned()], ..Header::default() };
    let mut writer = Writer::begin(Vec::new(), &header).unwrap();
    let mut packer = Packer::default();
    for frame in frames {
        let full = packer.push(frame.now, frame).unwrap();
        if let Some(block) = &full {
            writer.write(block).unwrap();
        }
    }
    for block in &packer.rest().unwrap() {
        writer.write(block).unwrap();
    }
    writer.finish().unwrap().0
}

fn recording() -> Vec<u8> {
    let simulation = Simulation::new(1, 1, 4);
    let frames: Vec<_> = (1..40).flat_map(|second| simulation.digests(second)).collect();
    written(&frames)
}

/// Two steps of one rank, in which nothing was launched.
fn capture() -> Vec<u8> {
    let job = xpu_wire::id::JobName::from("llama-70b");
    let order = CaptureOrder {
        number: 7,
        first: Step(41),
        steps: 2,
        limit: Nanoseconds(1),
        before: 0,
        activity: false,
        functions: false,
    };
    let sheet = |closed| {
        Body::CaptureSheet(CaptureSheet {
            order,
            job: job.clone(),
            ranks: vec![Rank(0)],
            closed,
            missing: Vec::new(),
            stall: None,
        })
    };
    let mark = |completed: u64| StepMark { completed: Step(completed), at: Moment(completed * 20_000_000) };
    let account = CaptureAccount { marks: vec![mark(40), mark(41), mark(42)], ..CaptureAccount::default() };
    let part = Body::CapturePart(CapturePart {
        number: 7,
        job: job.clone(),
        rank: Rank(0),
        part: 0,
        parts: 1,
        account: Some(account),
        since: Moment(800_000_000),
        labels: Vec::new(),
        operations: Vec::new(),
    });
    let bodies = [sheet(false), part, sheet(true)];
    let frame = |body| Frame { host: "gpu-001".into(), number: 1, now: Moment(9), lost: 0, body };
    written(&bodies.map(frame))
}

fn listed(reader: &mut FolderReader) -> Vec<(String, Result<Label, String>)> {
    let Loaded::Listed(listing) = reader.follow(Order::List) else { panic!("no list") };
    let mut files: Vec<_> =
        listing.files.into_iter().map(|file| (file.path.display().to_string(), file.label)).collect();
    files.sort_by(|one, other| one.0.cmp(&other.0));
    files
}

#[test]
fn each_file_has_its_kind_or_the_reason_why_it_cannot_be_read() {
    let folder = Folder::new("list");
    folder.put("night.xpurec", &recording());
    folder.put("steps.xpucap", &capture());
    folder.put("c.xpu", &capture());
    folder.put("cut.xpurec", &recording()[..600]);
    folder.put("empty.xpucap", b"");
    folder.put("notes.txt", b"none of ours");
    folder.put("weights.bin", b"neither is this, though it ends as a capture may");
    folder.put("renamed.xpucap", b"but this says it is one");
    let mut reader = FolderReader::new(folder.0.clone());
    let files = listed(&mut reader);
    let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        ["c.xpu", "cut.xpurec", "empty.xpucap", "night.xpurec", "renamed.xpucap", "steps.xpucap"]
    );
    let label = |name: &str| files.iter().find(|file| file.0 == name).unwrap().1.clone();
    assert!(matches!(label("night.xpurec").unwrap().what, What::Recording { ranks: 4, hosts: 1, .. }));
    let steps = label("steps.xpucap").unwrap();
    assert_eq!(
        steps.what,
        What::Capture {
            of: Extent::Steps { first: Step(41), last: Step(42) },
            ranks: 1,
            missing: 0,
            stalled: false
        }
    );
    assert!(steps.closed && steps.job == "llama-70b");
    assert!(label("cut.xpurec").is_err() || !label("cut.xpurec").unwrap().closed);
    assert!(label("empty.xpucap").unwrap_err().contains("it is empty"));
    assert!(label("renamed.xpucap").unwrap_err().contains("not a recording of xpu-top"));
    // A changed file is read again.
    folder.put("empty.xpucap", &capture());
    assert!(listed(&mut reader)[2].1.is_ok());
}

#[test]
fn a_missing_folder_is_reported() {
    let mut reader = FolderReader::new(PathBuf::from("/nowhere/at/all"));
    let Loaded::Listed(listing) = reader.follow(Order::List) else { panic!("no list") };
    assert!(listing.failure.is_some_and(|why| why.contains("cannot be read")));
}

#[test]
fn a_file_is_summarized() {
    let folder = Folder::new("open");
    folder.put("night.xpurec", &recording());
    folder.put("steps.xpucap", &capture());
    folder.put("empty.xpucap", b"");
    let mut reader = FolderReader::new(folder.0.clone());
    let mut open = |name: &str| match reader.follow(Order::Open(name.into())) {
        Loaded::Opened(_, summary) => summary,
        other => panic!("{other:?}"),
    };
    let steps = open("steps.xpucap").unwrap();
    assert!(steps.is_capture && steps.about[0].contains("1 rank, steps 41-42"), "{steps:?}");
    assert!((steps.step_ms.unwrap() - 20.0).abs() < 1e-6 && steps.shares.len() == 4, "{steps:?}");
    let night = open("night.xpurec").unwrap();
    assert!(!night.is_capture && night.about[0].contains("38 s"), "{night:?}");
    assert!(open("empty.xpucap").unwrap_err().contains("it is empty"));
    assert!(open("gone.xpucap").is_err());
}

#[test]
fn a_timeline_and_a_page_are_written_beside_the_file_and_never_over_another() {
    let folder = Folder::new("write");
    folder.put("steps.xpucap", &capture());
    let mut reader = FolderReader::new(folder.0.clone());
    let mut order = |order| match reader.follow(order) {
        Loaded::Written(saved) => saved,
        other => panic!("{other:?}"),
    };
    assert_eq!(order(Order::Export("steps.xpucap".into())), Ok("steps.pftrace".into()));
    assert_eq!(order(Order::Page("steps.xpucap".into())), Ok("steps.html".into()));
    let page = fs::read_to_string(folder.0.join("steps.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("llama-70b"));
    assert!(order(Order::Page("steps.xpucap".into())).unwrap_err().contains("steps.html: it exists"));
    assert!(order(Order::Export("gone.xpucap".into())).is_err());
}

#[test]
fn a_folder_of_traces_is_listed_by_its_manifest() {
    let folder = Folder::new("traces");
    fs::create_dir_all(folder.0.join("a.kineto")).unwrap();
    fs::create_dir_all(folder.0.join("b.other")).unwrap();
    let listed = || {
        let Loaded::Listed(listing) = FolderReader::new(folder.0.clone()).follow(Order::List) else {
            panic!()
        };
        listing.files
    };
    let under_way = listed().remove(0).label.unwrap();
    assert_eq!((under_way.what, under_way.closed), (What::Traces { of: None, ranks: 0, missing: 0 }, false));
    let manifest = r#"{"job":"llama","window":{"first_step":8,"last_step":9,"optimizer_calls_per_step":1},
        "ranks":[{"file":"rank-0000.json.gz"},{"file":null}]}"#;
    fs::write(folder.0.join("a.kineto/manifest.json"), manifest).unwrap();
    let [file] = &listed()[..] else { panic!("one folder") };
    let what = What::Traces { of: Some("steps 8 to 9".to_owned()), ranks: 2, missing: 1 };
    let label = file.label.as_ref().unwrap();
    assert_eq!((&label.what, &*label.job, file.bytes), (&what, "llama", manifest.len() as u64));
    fs::write(folder.0.join("a.kineto/manifest.json"), "{").unwrap();
    assert!(listed()[0].label.as_ref().unwrap_err().contains("manifest.json"));
    let opened = FolderReader::new(folder.0.clone()).follow(Order::Open("a.kineto".into()));
    assert!(matches!(opened, Loaded::Opened(_, Err(why)) if why.contains("perfetto")));
}
