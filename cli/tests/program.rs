//! The program's interface to shells and scripts: exit codes, and error messages.

// A failing helper fails its test.
#![allow(clippy::unwrap_used)]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Command, Output, id},
};

/// A separate home and runtime directory, so that the user's are not touched.
struct Home(PathBuf);

impl Home {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("xpu-top-home-{}-{name}", id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xpu-top"));
        for variable in
            ["XDG_CONFIG_HOME", "XPU_TOP_KEY_FILE", "XPU_TOP_JOB", "XPU_TOP_BASE_PORT", "SLURM_JOB_ID"]
        {
            command.env_remove(variable);
        }
        command.env("HOME", &self.0).env("XPU_TOP_RUNTIME_DIR", self.0.join("run"));
        command
    }

    fn xpu_top(&self, line: &str) -> (i32, String, String) {
        let Output { status, stdout, stderr } =
            self.command().args(line.split_whitespace()).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (status.code().unwrap(), text(stdout), text(stderr))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn usage_is_64_and_help_is_not_an_error() {
    let home = Home::new("usage");
    for line in [
        "--bogus",
        "run",
        "run --gpu-hour-price 2 -- true",
        "status --hosts a[1-",
        "status --job-hosts /nonexistent",
        "status --hosts a --job-hosts b",
        "status --base-port 65535",
        "status --job a/b",
        "demo --headless --slow 9:2",
        "demo --headless --ranks 0",
    ] {
        let (code, _, said) = home.xpu_top(line);
        assert_eq!(code, 64, "{line}: {said}");
        assert!(!said.is_empty(), "{line}");
    }
    let (code, help, _) = home.xpu_top("--help");
    assert!(code == 0 && help.contains("xpu-top run"));
}

#[test]
fn without_data_the_document_is_printed_and_the_code_is_3() {
    let home = Home::new("nobody");
    // Ports as low as these are free on a separate loopback address.
    let (code, document, said) = home.xpu_top("status --json --hosts 127.99.99.99:1");
    assert_eq!(code, 3, "{said}");
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["coverage"]["ranks_seen"], 0);
    assert!(said.contains("no collector listens on 127.99.99.99:3"), "{said}");
}

#[test]
fn an_invalid_line_of_the_hosts_file_is_reported_and_the_rest_is_used() {
    let home = Home::new("hosts");
    fs::write(home.0.join("hosts.txt"), "127.99.99.98:1\nnode[9-1]\n").unwrap();
    let (code, _, said) = home.xpu_top(&format!("status --job-hosts {}/hosts.txt", home.0.display()));
    assert_eq!(code, 3);
    assert!(said.contains("hosts.txt:2: the range `9-1` is descending; write 1-9"), "{said}");
    assert!(said.contains("no collector listens on 127.99.99.98:3"), "{said}");
}

#[test]
fn run_becomes_the_program_and_passes_on_its_exit_code() {
    let home = Home::new("run");
    let (code, said, _) = home.xpu_top("run --no-collector -- printenv XPU_TOP_JOB");
    // The program also starts without the hook next to it.
    assert!((code, said.as_str()) == (0, "printenv\n") || (code, said.as_str()) == (1, ""), "{code} {said}");
    let output = home.command().args(["run", "--no-collector", "--", "sh", "-c", "exit 7"]).output().unwrap();
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn a_missing_program_exits_with_127_as_in_a_shell() {
    let home = Home::new("missing");
    let (code, _, said) = home.xpu_top("run --no-collector -- no-such-program");
    assert_eq!(code, 127);
    assert!(said.contains("xpu-top run: cannot start 'no-such-program': not found in PATH; "), "{said}");
    assert_eq!(home.xpu_top("run --no-collector -- /etc").0, 126);
}

#[test]
fn a_key_is_made_once_and_for_its_owner() {
    let home = Home::new("keygen");
    let (code, path, _) = home.xpu_top("keygen");
    assert_eq!(code, 0);
    let path = PathBuf::from(path.trim());
    assert_eq!(path, home.0.join(".config/xpu-top/key"));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let before = fs::read(&path).unwrap();
    assert_ne!(home.xpu_top("keygen").0, 0);
    assert_eq!(fs::read(&path).unwrap(), before);
}

/// Whether the other parts are next to the program; without them, `run` watches nothing.
fn is_built_whole() -> bool {
    std::path::Path::new(env!("CARGO_BIN_EXE_xpu-top")).with_file_name("libxpu_hook.so").exists()
}

#[test]
fn run_warns_of_a_second_job_of_the_same_name() {
    let home = Home::new("same-name");
    if !is_built_whole() {
        return;
    }
    let mut first = home.command();
    let mut first =
        first.args(["run", "--no-collector", "--job", "loop", "--", "sleep", "60"]).spawn().unwrap();
    let announced = home.0.join(format!("run/expected-18889/{}", first.id()));
    let start = std::time::Instant::now();
    while !announced.exists() && start.elapsed().as_secs() < 10 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let warned = |line: &str| home.xpu_top(line).2.contains("job loop runs here already");
    assert!(warned("run --no-collector --job loop -- true"));
    assert!(!warned("run --no-collector --job other -- true"));
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(!warned("run --no-collector --job loop -- true"));
}

#[test]
fn run_warns_of_a_collector_without_the_key() {
    let home = Home::new("no-key");
    if !is_built_whole() {
        return;
    }
    fs::create_dir_all(home.0.join("run")).unwrap();
    fs::set_permissions(home.0.join("run"), fs::Permissions::from_mode(0o700)).unwrap();
    let _collector = std::os::unix::net::UnixListener::bind(home.0.join("run/collector-18889.sock")).unwrap();
    let lock = home.0.join("run/collector-18889.lock");
    fs::write(&lock, "no key\n").unwrap();
    let (code, _, said) = home.xpu_top("run -- true");
    assert!(code == 0 && said.lines().count() == 1 && said.contains("without a key"), "{said}");
    fs::write(&lock, "key\n").unwrap();
    assert_eq!(home.xpu_top("run -- true").2, "");
}

/// A variable that causes a warning, so that there is something to write.
const WARNED: (&str, &str) = ("XPU_TIMER_PORT", "1");

#[test]
fn an_unwritable_warning_does_not_prevent_the_start() {
    let home = Home::new("full");
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = home.command();
    command.env(WARNED.0, WARNED.1).args(["run", "--no-collector", "--", "sh", "-c", "exit 7"]);
    assert_eq!(command.stderr(full).status().unwrap().code(), Some(7));
}

#[test]
fn a_file_size_limit_does_not_prevent_the_start() {
    let home = Home::new("limited");
    // The program has the same signal action as without `run`.
    let script = "grep -E 'Sig(Ign|Blk)' /proc/self/status";
    let limited = format!("ulimit -f 0; exec \"$0\" run --no-collector -- {script}");
    let (xpu_top, alone) = (env!("CARGO_BIN_EXE_xpu-top"), Command::new("sh").args(["-c", script]).output());
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &limited, xpu_top])
        .envs(home.command().get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = shell.output().unwrap();
    assert_eq!((output.status.code(), output.stdout), (Some(0), alone.unwrap().stdout));
}

/// The collector that `run` starts for a job with this runtime directory, until it is dropped.
struct Collector<'a>(&'a Home);

impl Collector<'_> {
    fn process(&self) -> Option<i32> {
        let of = self.0.0.join("run");
        let is_it = |line: &[u8]| {
            let line = String::from_utf8_lossy(line);
            line.contains("xpu-collector") && line.contains(&*of.to_string_lossy())
        };
        let all = fs::read_dir("/proc").unwrap().flatten();
        all.filter(|entry| fs::read(entry.path().join("cmdline")).is_ok_and(|line| is_it(&line)))
            .find_map(|entry| entry.file_name().to_str()?.parse().ok())
    }
}

impl Drop for Collector<'_> {
    fn drop(&mut self) {
        if let Some(process) = self.process() {
            let _ = Command::new("kill").arg(process.to_string()).status();
        }
    }
}

/// The first of three ports, free just now, below those that the kernel gives to connections.
fn free_base() -> u16 {
    let free = |port: u16| std::net::TcpListener::bind(("0.0.0.0", port)).is_ok();
    (20_000..28_000)
        .step_by(3)
        .map(|port| port + (id() % 1_000) as u16 * 3)
        .find(|&base| (base..base + 3).all(free))
        .unwrap()
}

/// Runs a program under a collector of its own, with a pipe under number 9 and with SIGCHLD ignored.
#[test]
fn a_collector_holds_no_descriptor_of_the_job() {
    let home = Home::new("open");
    if !is_built_whole() {
        return;
    }
    let collector = Collector(&home);
    let mut shell = Command::new("sh");
    let script = "trap '' CHLD; exec \"$0\" run -- true 9>&1";
    shell.args(["-c", script, env!("CARGO_BIN_EXE_xpu-top")]);
    shell.envs(home.command().get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.env("XPU_TOP_BASE_PORT", free_base().to_string());
    let begun = std::time::Instant::now();
    let output = shell.output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr)), (Some(0), "".into()));
    assert!(begun.elapsed().as_secs() < 30, "the pipe was open for {:?}", begun.elapsed());
    assert!(collector.process().is_some(), "it serves");
}

#[test]
fn a_collector_estimates_at_the_interval_of_the_option_or_the_settings() {
    if !is_built_whole() {
        return;
    }
    let started_with = |name: &str, options: &str, variable: Option<&str>| {
        let home = Home::new(name);
        fs::create_dir_all(home.0.join(".config/xpu-top")).unwrap();
        fs::write(home.0.join(".config/xpu-top/config.toml"), "what_if_every = \"10m\"").unwrap();
        let collector = Collector(&home);
        let mut command = home.command();
        command.args(["run"]).args(options.split_whitespace()).args(["--", "true"]);
        command.env("XPU_TOP_BASE_PORT", free_base().to_string());
        if let Some(variable) = variable {
            command.env("XPU_TOP_WHAT_IF_EVERY", variable);
        }
        let output = command.output().unwrap();
        assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr)), (Some(0), "".into()));
        let line = fs::read(format!("/proc/{}/cmdline", collector.process().unwrap())).unwrap();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.split('\0').find_map(|one| one.strip_prefix("--what-if-every=").map(str::to_owned))
    };
    let every = |seconds: &str| Some(seconds.to_owned());
    assert_eq!(started_with("option", "--what-if-every 5m", Some("20")), every("300"));
    assert_eq!(started_with("settings", "", None), every("600"));
    // The collector reads the variable itself.
    assert_eq!(started_with("variable", "", Some("5m")), None);
}

/// The first process of a container becomes the parent of every orphan.
#[test]
fn a_program_that_waits_for_all_its_children_waits_for_no_collector() {
    let home = Home::new("children");
    if !is_built_whole() {
        return;
    }
    let collector = Collector(&home);
    let adopts = "import ctypes, os, sys; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])";
    let waits = "import os, sys\ntry: os.wait()\nexcept ChildProcessError: sys.exit(7)";
    let mut python = Command::new("python3");
    python.args(["-c", adopts, env!("CARGO_BIN_EXE_xpu-top"), "run", "--", "python3", "-c", waits]);
    python.envs(home.command().get_envs().filter_map(|(name, value)| Some((name, value?))));
    python.env("XPU_TOP_BASE_PORT", free_base().to_string());
    let mut python = python.spawn().unwrap();
    let begun = std::time::Instant::now();
    let ended = loop {
        if let Some(ended) = python.try_wait().unwrap() {
            break ended;
        }
        assert!(begun.elapsed().as_secs() < 30, "it waits for a child that is not its own");
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    assert_eq!(ended.code(), Some(7));
    assert!(collector.process().is_some(), "it serves");
}

#[test]
fn a_relative_runtime_directory_is_the_same_from_every_directory() {
    let home = Home::new("relative");
    if !is_built_whole() {
        return;
    }
    let mut command = home.command();
    command.args(["run", "--no-collector", "--", "printenv", "XPU_TOP_SOCKET"]);
    let output = command.env("XPU_TOP_RUNTIME_DIR", "sockets").current_dir(&home.0).output().unwrap();
    let socket = String::from_utf8(output.stdout).unwrap();
    assert_eq!(PathBuf::from(socket.trim()).parent(), Some(&*home.0.join("sockets")), "{socket}");
}
