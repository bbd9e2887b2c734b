use std::{io::Read as _, os::unix::fs::symlink, process};

use flate2::read::GzDecoder;
use xpu_wire::endpoint::user_id;

use super::*;

/// A place in a folder of its own, where this process would write.
fn place(folder: &tempfile::TempDir) -> Place {
    let plain = folder.path().join("t_7.json");
    Place { log_file: "/t.json".to_owned(), seen: plain.clone(), plain, owner: user_id() }
}

const WHOLE: &str = "{\"traceEvents\": [], \"traceName\": \"a\"\n}\n";

#[test]
fn a_trace_is_complete_with_its_last_key() {
    let folder = tempfile::tempdir().unwrap();
    let place = place(&folder);
    assert!(place.open().is_none() && !place.is_begun());
    fs::write(before_it_is_whole(&place.plain), "{").unwrap();
    assert!(place.open().is_none() && place.is_begun());
    for cut in [0, 1, 20, WHOLE.len() - 2] {
        fs::write(&place.plain, &WHOLE[..cut]).unwrap();
        assert!(place.open().is_none(), "{cut}");
    }
    fs::write(&place.plain, WHOLE).unwrap();
    assert!(place.open().is_some());
    place.remove();
    assert!(!place.is_begun(), "nothing is left behind");
}

#[test]
fn links_and_files_of_other_users_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut place = place(&folder);
    let other = folder.path().join("other");
    fs::write(&other, WHOLE).unwrap();
    symlink(&other, &place.plain).unwrap();
    assert!(place.open().is_none());
    place.remove();
    assert!(other.exists() && !place.is_begun());
    fs::write(&place.plain, WHOLE).unwrap();
    place.owner = user_id() + 1;
    assert!(place.open().is_none());
}

#[test]
fn a_trace_is_written_where_kineto_may_write() {
    let place = Place::of(process::id(), 7, user_id(), "x");
    assert_eq!((place.log_file.as_str(), place.plain.as_path()), ("/tmp/x.json", Path::new("/tmp/x_7.json")));
    assert_eq!(place.seen, Path::new(&format!("/proc/{}/root/tmp/x_7.json", process::id())));
}

#[test]
fn the_parts_form_the_trace_and_each_can_be_fetched_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    // Incompressible bytes, so that there are several parts.
    let mut state = 1_u64;
    let text: Vec<u8> = (0..3 << 20)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect();
    fs::write(&path, &text).unwrap();
    let file = File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    for _ in 0..2 {
        let (mut heard, bell) = io::pipe().unwrap();
        let mut reading = Reading::begin(&file, bell).unwrap();
        let (mut packed, mut part) = (Vec::new(), 0);
        let end = loop {
            let Some(piece) = reading.part(part) else {
                assert!(reading.wanted);
                heard.read_exact(&mut [0]).unwrap();
                continue;
            };
            assert!(piece.bytes.0.len() <= KinetoPart::BYTES);
            let again = reading.part(part).unwrap();
            assert_eq!(again.bytes, piece.bytes, "it may have been lost");
            packed.extend(piece.bytes.0);
            part += 1;
            if let Some(end) = piece.end {
                break end;
            }
        };
        assert!(part > 2 && reading.has_ended());
        assert!(
            reading.part(part + 1).is_none() && reading.part(0).is_none(),
            "what is not next is not there"
        );
        assert_eq!((end.bytes, end.wrong), (text.len() as u64, None));
        let mut unpacked = Vec::new();
        GzDecoder::new(&packed[..]).read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked, text);
    }
}
