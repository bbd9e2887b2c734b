//! Captures and recordings.

use std::time::Duration;

use xpu_client::{
    capture::{Extent, Outcome, Progress},
    kineto,
    screen_capture::CaptureState,
};
use xpu_simulation::Simulation;
use xpu_tests::Lab;
use xpu_tui::{
    action::{Action, Effect},
    file_loader::{Label, ListedFile, Listing, Loaded, Order, Summary, What},
    recorder::{RecorderState as Recording, Written},
    update::update,
};
use xpu_wire::{id::Step, unit::Moment};

use crate::{SIZES, SMALL, USUAL, golden_at};

fn listed(lab: &Lab, name: &str, minutes: u64, bytes: u64, label: Result<What, &str>) -> ListedFile {
    let written = Moment(lab.now().0 - minutes * 60_000_000_000);
    let label = label
        .map(|what| Label { what, job: "llama-70b".to_owned(), closed: !name.contains("cut"), damage: 0 })
        .map_err(str::to_owned);
    ListedFile { path: name.into(), bytes, written, label }
}

fn listing(lab: &Lab) -> Listing {
    let capture = |first, ranks, missing| {
        Ok(What::Capture {
            of: Extent::Steps { first: Step(first), last: Step(first + 2) },
            ranks,
            missing,
            stalled: false,
        })
    };
    let recording = |minutes| {
        let from = Moment(1_800_000_000_000_000_000);
        Ok(What::Recording { from, to: from.after(Duration::from_mins(minutes)), hosts: 8, ranks: 64 })
    };
    let files = vec![
        listed(lab, "xpu-top-llama-70b-20270115T083327Z.xpucap", 2, 3_812_345, capture(16_712, 64, 0)),
        listed(lab, "xpu-top-llama-70b-20270115T080000Z.xpucap", 35, 3_700_000, capture(1_204, 63, 1)),
        listed(lab, "night-cut.xpurec", 600, 812_000_000, recording(540)),
        listed(lab, "night.xpurec", 1_900, 1_312_000_000, recording(719)),
        listed(
            lab,
            "half.xpucap",
            3_000,
            12,
            Err(
                "it has no complete block of frames: the recorder ended within a second, or the file is damaged; record again",
            ),
        ),
    ];
    Listing { looked: lab.now(), files, left_out: 0, failure: None }
}

fn with_files() -> Lab {
    let mut lab = Lab::new(Simulation::new(7, 8, 8));
    lab.keys("8");
    assert_eq!(lab.effects().last(), Some(&Effect::Files(Order::List)));
    let listing = listing(&lab);
    update(lab.app(), Action::Loaded(Loaded::Listed(listing)));
    lab
}

fn summary() -> Summary {
    Summary {
        about: vec![
            "llama-70b: 64 ranks, steps 16712-16714, 55,296 operations, 0 dropped, 0 without GPU times"
                .to_owned(),
            "clocks agree within 0.012 ms by 768 collectives; GPU times are within 0.003 ms of the host's"
                .to_owned(),
            "compute is GEMMs, graphs and kernels requested by name: other kernels and copies are in the gap"
                .to_owned(),
        ],
        shares: vec![("compute", 0.71), ("exposed communication", 0.14), ("memory", 0.0), ("gap", 0.15)],
        step_ms: Some(102.4),
        tops: vec![
            (
                "57344x1024x8192 TN bf16".to_owned(),
                "1,536 times, 656.2 TFLOPS, 17.2 % of the time".to_owned(),
            ),
            ("8192x1024x28672 TN bf16".to_owned(), "1,536 times, 638.0 TFLOPS, 8.8 % of the time".to_owned()),
            ("rank 37".to_owned(), "last to 762 of 768 collectives, costs 22.4 ms a step".to_owned()),
        ],
        is_capture: true,
    }
}

#[test]
fn traces_by_pytorchs_profiler_have_a_key_and_show_their_progress() {
    let mut lab = with_files();
    lab.screen(132, 40).hides("Kineto");
    lab.keys("K");
    assert_eq!(lab.effects().last(), Some(&Effect::Kineto));
    let line = "64 of 64 ranks will trace steps 812 to 813, in some 3 s".to_owned();
    update(lab.app(), Action::Traced(kineto::Standing::UnderWay(line)));
    lab.screen(132, 40).shows("64 of 64 ranks will trace steps 812 to 813").shows("K cancels");
    lab.keys("1").screen(132, 40).shows("KINETO");
    let outcome = kineto::Outcome {
        folder: "t.kineto".into(),
        complaints: vec!["rank 3: its process has ended".to_owned()],
        summary: "63 of 64 ranks gave a trace of steps 812 to 813: t.kineto (1.2 MiB)".to_owned(),
        is_whole: false,
    };
    update(lab.app(), Action::Traced(kineto::Standing::Done(outcome)));
    lab.screen(132, 40).shows("63 of 64 ranks gave a trace").hides("KINETO");
    lab.keys("8").screen(132, 40).shows("rank 3: its process has ended");
    lab.keys("?").screen(132, 60).shows("trace 2 steps of all ranks");
}

#[test]
fn files_of_the_folder_are_listed_and_a_broken_file_has_its_reason() {
    let mut lab = with_files();
    let screen = lab.screen(132, 40);
    screen
        .shows("● capture")
        .shows("steps 16,712 to 16,714, 64 ranks")
        .shows("✖ broken")
        .shows("it has no complete block");
    screen.shows("▲ cut short").shows("5 files");
    lab.screen(80, 24).shows("70b-20270115T083327Z.xpucap");
    golden_at("captures-list", USUAL, &mut lab);
    lab.keys("G").screen(80, 24).shows("▌✖ broken");
    // If the file cannot be written, the screen reports it, and requests nothing.
    let before = lab.effects().len();
    lab.keys("e").screen(132, 40).shows("✖ half.xpucap: it has no complete block");
    lab.keys("kH").screen(132, 40).shows("night.xpurec is a recording");
    assert_eq!(lab.effects().len(), before);
}

#[test]
fn an_opened_file_lists_its_commands() {
    let mut lab = with_files();
    lab.keys("<Enter>").screen(132, 40).shows("reading it");
    let name = "xpu-top-llama-70b-20270115T083327Z.xpucap";
    assert_eq!(lab.effects().last(), Some(&Effect::Files(Order::Open(name.into()))));
    update(lab.app(), Action::Loaded(Loaded::Opened(name.into(), Ok(Box::new(summary())))));
    let screen = lab.screen(132, 40);
    screen.shows("compute 71.0 %").shows("exposed communication 14.0 %").shows("rank 37");
    screen.shows(&format!("xpu-top --replay {name}")).shows(&format!("xpu-top report {name}"));
    for size in SIZES {
        golden_at("captures", size, &mut lab);
    }
    lab.keys("eH");
    let asked: Vec<_> = lab.effects().iter().rev().take(2).rev().cloned().collect();
    assert_eq!(asked, [Effect::Files(Order::Export(name.into())), Effect::Files(Order::Page(name.into()))]);
    // The first Esc closes the file, and the next leaves the page.
    lab.keys("<Esc>").screen(132, 40).hides("compute 71.0 %").shows("In this folder");
    lab.keys("<Esc>").screen(132, 40).hides("In this folder");
}

#[test]
fn a_fresh_file_without_an_end_is_shown_as_being_written() {
    let mut lab = with_files();
    let mut listing = listing(&lab);
    listing.files[2].written = lab.now();
    update(lab.app(), Action::Loaded(Loaded::Listed(listing)));
    lab.screen(132, 40).shows("◌ writing").hides("cut short");
}

#[test]
fn an_incomplete_file_shows_the_reason() {
    let mut lab = with_files();
    lab.keys("G<Enter>");
    update(
        lab.app(),
        Action::Loaded(Loaded::Opened(
            "half.xpucap".into(),
            Err("it has no complete block of frames".to_owned()),
        )),
    );
    lab.screen(132, 40).shows("✖ it has no complete block of frames");
    golden_at("captures-broken", SMALL, &mut lab);
    // Data that arrive after the file was closed do not open it again.
    lab.keys("<Esc>");
    update(lab.app(), Action::Loaded(Loaded::Opened("half.xpucap".into(), Ok(Box::new(summary())))));
    lab.screen(132, 40).hides("compute");
}

#[test]
fn a_capture_in_progress_has_its_bar_and_its_file() {
    let mut lab = with_files();
    let of = Extent::Steps { first: Step(16_712), last: Step(16_714) };
    let progress = Progress { of, ranks: 64, agreed: 64, whole: 40 };
    update(lab.app(), Action::Captured(CaptureState::UnderWay(progress)));
    let file = Written {
        path: "xpu-top-llama-70b-20270115T083000Z.xpurec".into(),
        bytes: 12_400_000,
        frames: 4_812,
    };
    let kept = Some((Moment(lab.now().0 - 540_000_000_000), 9_000_000));
    update(lab.app(), Action::Recorded(Recording { file: Some(file), kept, failure: None }));
    let screen = lab.screen(132, 40);
    screen
        .shows("▰▰▰▰▰▰▰▰▰▰▱▱▱▱▱▱ steps 16,712 to 16,714")
        .shows("40 of 64 arrived")
        .shows("4,812 frames; r stops it");
    screen.shows("the last 9 m in 8.6 MiB");
    golden_at("captures-under-way", USUAL, &mut lab);
    let done = Outcome {
        path: "c.xpucap".into(),
        complaints: vec!["rank 3: it is past those steps".to_owned()],
        summary: "steps 16,712 to 16,714 of 63 of 64 ranks".to_owned(),
        bytes: 3_000_000,
        whole: 63,
        done: 63,
        ranks: 64,
    };
    update(lab.app(), Action::Captured(CaptureState::Done(done)));
    lab.screen(132, 40).shows("▲ c.xpucap: steps 16,712").shows("rank 3: it is past those steps");
    // The result is shown above the keys, and does not replace them.
    let screen = lab.screen(80, 24).text();
    let lines: Vec<_> = screen.lines().rev().take(2).collect();
    let [footer, above] = lines[..] else { panic!("{screen}") };
    assert!(footer.contains("7 find 8 file 9 host"), "{footer}");
    assert!(above.contains("● c.xpucap: steps 16,712 to 16,714 of 63 of 64 ranks"), "{above}");
}

/// A replay of last month does not change the ages of the files in the list.
#[test]
fn the_age_of_files_does_not_depend_on_the_shown_time() {
    let mut lab = with_files();
    let shown = lab.screen(132, 40).text();
    let mut listing = listing(&lab);
    let later = Duration::from_hours(24 * 54);
    listing.looked = listing.looked.after(later);
    for file in &mut listing.files {
        file.written = file.written.after(later);
    }
    update(lab.app(), Action::Loaded(Loaded::Listed(listing)));
    assert_eq!(lab.screen(132, 40).text(), shown);
}

#[test]
fn empty_and_unread_folders_are_distinguished() {
    let mut lab = Lab::new(Simulation::new(7, 1, 8));
    lab.keys("8").screen(80, 24).shows("reading the folder");
    golden_at("captures-reading", SMALL, &mut lab);
    update(lab.app(), Action::Loaded(Loaded::Listed(Listing::default())));
    lab.screen(80, 24).shows("No captures or recordings here");
    golden_at("captures-none", SMALL, &mut lab);
    let failure = Some("this folder cannot be read: Permission denied (os error 13)".to_owned());
    update(lab.app(), Action::Loaded(Loaded::Listed(Listing { failure, ..Listing::default() })));
    lab.screen(80, 24).shows("✖ this folder cannot be read");
    golden_at("captures-unreadable", SMALL, &mut lab);
}

#[test]
fn the_folder_is_reread_while_its_page_is_shown() {
    let mut lab = with_files();
    let lists =
        |lab: &Lab| lab.effects().iter().filter(|effect| **effect == Effect::Files(Order::List)).count();
    let mut lab = lab_run(&mut lab, 9);
    assert_eq!(lists(&lab), 4);
    lab.keys("1");
    let lab = lab_run(&mut lab, 9);
    assert_eq!(lists(&lab), 4);
}

fn lab_run(lab: &mut Lab, seconds: u64) -> Lab {
    std::mem::replace(lab, Lab::at_rest(Simulation::new(7, 1, 1), xpu_tui::palette::Depth::True)).run(seconds)
}
