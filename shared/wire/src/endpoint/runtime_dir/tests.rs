use std::{
    collections::BTreeSet,
    os::unix::fs::{PermissionsExt as _, symlink},
    process::id,
    thread,
};

use super::*;

/// A folder in place of `/tmp`, with no variables set.
struct Host {
    places: Places,
}

impl Host {
    fn new(name: &str) -> Self {
        let shared = env::temp_dir().join(format!("xpu-top-places-{}-{name}", id()));
        fs::create_dir(&shared).unwrap();
        mode(&shared, 0o1777);
        Self { places: Places { user: user_id(), named: None, session: None, shared } }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.places.shared.join(name)
    }

    fn usual(&self) -> PathBuf {
        self.places.usual().0
    }

    fn spare(&self, number: u32) -> PathBuf {
        self.path(&format!("xpu-top-{}.{number}", user_id()))
    }

    fn looked(&self) -> PathBuf {
        self.places.look().dir.0
    }

    fn claimed(&self) -> PathBuf {
        self.places.claim().unwrap().dir.0
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.places.shared);
    }
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A directory like one that another user created first. Only root can change an owner, so this changes the
/// mode.
fn squat(path: &Path) {
    fs::create_dir(path).unwrap();
    mode(path, 0o777);
    if user_id() == 0 {
        mode(path, 0o755);
        std::os::unix::fs::chown(path, Some(65_534), Some(65_534)).unwrap();
    }
}

#[test]
fn a_socket_path_that_would_be_cut_is_refused() {
    let deep = RuntimeDir::at(format!("/tmp/{}", "d".repeat(100)));
    assert!(matches!(deep.socket(BasePort::DEFAULT), Err(RuntimeDirError::TooLong { .. })));
}

#[test]
fn a_directory_others_can_write_to_is_refused() {
    let host = Host::new("writable");
    let dir = RuntimeDir::at(host.path("run"));
    assert!(matches!(dir.check(), Err(RuntimeDirError::Unusable { .. })));
    assert!(!dir.path().exists(), "a look makes nothing");
    dir.prepare().unwrap();
    assert_eq!(fs::metadata(dir.path()).unwrap().mode() & 0o777, 0o700);
    dir.check().unwrap();
    mode(dir.path(), 0o777);
    for refused in [dir.prepare(), dir.check()] {
        assert!(matches!(refused, Err(RuntimeDirError::NotOurs { why: Foreign::Writable(0o777), .. })));
    }
}

#[test]
fn the_usual_directory_is_created_by_its_first_user() {
    let host = Host::new("usual");
    assert_eq!(host.looked(), host.usual());
    assert!(!host.usual().exists());
    assert_eq!((host.claimed(), host.looked()), (host.usual(), host.usual()));
}

#[test]
fn a_second_directory_is_used_and_found_if_the_usual_one_is_taken() {
    for (name, taken) in [
        ("directory", squat as fn(&Path)),
        ("link", |path| symlink("/", path).unwrap()),
        ("dangling", |path| symlink("/nowhere", path).unwrap()),
        ("file", |path| fs::write(path, "").unwrap()),
    ] {
        let host = Host::new(name);
        taken(&host.usual());
        assert_eq!(host.looked(), host.usual(), "{name}: nothing is made by who only looks");
        let claimed = host.places.claim().unwrap();
        assert_eq!(claimed.dir.0, host.spare(1), "{name}");
        assert!(
            matches!(&claimed.passed_over[..], [RuntimeDirError::NotOurs { path, .. }] if *path == host.usual())
        );
        assert_eq!(fs::metadata(host.spare(1)).unwrap().mode() & 0o777, 0o700);
        assert_eq!((host.looked(), host.claimed()), (host.spare(1), host.spare(1)), "{name}");
        assert_eq!(host.places.look().passed_over.len(), 1);
    }
}

#[test]
fn taken_names_are_skipped() {
    let host = Host::new("more");
    squat(&host.usual());
    squat(&host.spare(1));
    symlink("/", host.spare(2)).unwrap();
    // It belongs to the user, but all users can read it.
    fs::create_dir(host.spare(3)).unwrap();
    mode(&host.spare(3), 0o755);
    assert_eq!((host.claimed(), host.looked()), (host.spare(4), host.spare(4)));
}

#[test]
fn a_directory_that_becomes_free_does_not_affect_users_of_another() {
    let host = Host::new("free");
    squat(&host.usual());
    assert_eq!(host.claimed(), host.spare(1));
    fs::remove_dir(host.usual()).unwrap();
    assert_eq!((host.looked(), host.claimed()), (host.spare(1), host.spare(1)));
    assert!(!host.usual().exists());
}

#[test]
fn advice_is_given_if_all_directory_names_are_taken() {
    let host = Host::new("all");
    squat(&host.usual());
    for number in 1..=SPARE {
        squat(&host.spare(number));
    }
    let refused = host.places.claim().unwrap_err().to_string();
    assert!(refused.contains("XPU_TOP_RUNTIME_DIR"), "{refused}");
    assert_eq!(host.looked(), host.usual(), "which is refused by who looks closer");
    assert!(host.places.look().dir.prepare().is_err());
}

#[test]
fn ranks_that_start_at_once_agree() {
    for round in 0..20 {
        let host = Host::new(&format!("race{round}"));
        squat(&host.usual());
        let claimed: BTreeSet<_> = thread::scope(|scope| {
            let ranks: Vec<_> = (0..8).map(|_| scope.spawn(|| host.claimed())).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        });
        assert_eq!(claimed, BTreeSet::from([host.spare(1)]));
    }
}

#[test]
fn a_named_directory_is_used_or_refused() {
    let mut host = Host::new("named");
    let named = host.path("named");
    squat(&named);
    host.places.named = Some(named.clone());
    assert_eq!(host.looked(), named);
    assert!(matches!(host.places.claim(), Err(RuntimeDirError::NotOurs { path, .. }) if path == named));
    fs::remove_dir(&named).unwrap();
    assert_eq!(host.claimed(), named);
}

#[test]
fn the_session_directory_of_another_user_is_skipped() {
    let mut host = Host::new("session");
    let session = host.path("session");
    host.places.session = Some(session.clone());
    assert_eq!((host.looked(), host.places.look().passed_over.len()), (host.usual(), 0), "it is not there");
    squat(&session);
    assert_eq!((host.looked(), host.places.look().passed_over.len()), (host.usual(), 1));
    fs::remove_dir(&session).unwrap();
    fs::create_dir(&session).unwrap();
    mode(&session, 0o700);
    assert_eq!((host.looked(), host.claimed()), (session.join("xpu-top"), session.join("xpu-top")));
    // Root created it with the user's environment, or another user created it in a shared session.
    fs::remove_dir(session.join("xpu-top")).unwrap();
    mode(&session, 0o1777);
    assert_eq!(host.looked(), session.join("xpu-top"), "sticky: nobody takes it away");
    squat(&session.join("xpu-top"));
    assert_eq!((host.looked(), host.claimed()), (host.usual(), host.usual()));
}
