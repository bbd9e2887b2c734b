use super::*;

#[test]
fn a_name_that_is_taken_is_told_without_a_number() {
    let taken = io::Error::from_raw_os_error(17);
    assert_eq!(why_not(Path::new("here.svg"), &taken), "here.svg exists: choose another name");
}
