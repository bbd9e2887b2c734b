//! The bound of a whole job, as the status reports it: ranks under the hook on the simulated GPU, with a real
//! collector.

use std::fs;

use serde_json::Value;
use xpu_tests::{
    host::Host,
    program::{Program, until},
};

/// These shares add up to 100 % of the time.
const SHARES: [&str; 4] = ["gemms_pct", "transfers_pct", "waiting_pct", "other_pct"];
const PARTS: [&str; 5] =
    ["data_loading_pct", "garbage_collection_pct", "copies_pct", "synchronizing_pct", "unexplained_pct"];

struct Job {
    host: Host,
    _rank: Program,
}

impl Job {
    fn start(files: &[(&str, &str)], script: &str) -> Self {
        let host = Host::with_visible_gpus();
        for (name, text) in files {
            let path = host.place.path(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a fresh folder");
            fs::write(path, text).expect("a fresh folder");
        }
        let rank = host.rank_of(0, 1, &format!("sys.path.insert(0, os.environ['RENDEZVOUS'])\n{script}"));
        Self { host, _rank: rank }
    }

    /// Waits until the status shows a bound that satisfies `sought`.
    fn bound(&self, sought: impl Fn(&Value) -> bool) -> Value {
        let bound = until("what it is bound by", || {
            Some(self.host.status()["bound"].take()).filter(|bound| bound.is_object() && sought(bound))
        });
        let sum =
            |names: &[&str]| -> f64 { names.iter().map(|name| bound[name].as_f64().unwrap_or(0.0)).sum() };
        assert!((sum(&SHARES) - 100.0).abs() < 0.1, "{bound}");
        assert!((sum(&PARTS) - bound["other_pct"].as_f64().expect("a share")).abs() < 0.1, "{bound}");
        bound
    }
}

fn share(bound: &Value, name: &str) -> f64 {
    bound[name].as_f64().unwrap_or_else(|| panic!("{name}: {bound}"))
}

const DATA: &str = "
import time


def collate_fn():
    time.sleep(0.06)
";

/// A data loader at the same path as PyTorch's.
const LOADER: &str = "
from data import collate_fn


class DataLoader:
    def __iter__(self):
        return self

    def __next__(self):
        return collate_fn()
";

#[test]
fn a_job_that_waits_for_data_is_reported_with_the_function() {
    let files = [("data.py", DATA), ("torch/utils/data/dataloader.py", LOADER)];
    let job = Job::start(
        &files,
        "
from torch.utils.data.dataloader import DataLoader
def train():
    for _ in DataLoader():
        for _ in range(8): ok(gemm_ex(1024, 1024, 1024))
        step()
train()",
    );
    let bound = job.bound(|bound| bound["main_thread"].is_object());
    assert_eq!(bound["by"], "data_loading", "{bound}");
    assert!(share(&bound, "data_loading_pct") > 50.0, "{bound}");
    let main = &bound["main_thread"];
    assert_eq!(
        (&main["rank"], &main["function"], &main["line"]),
        (&0.into(), &"collate_fn".into(), &6.into())
    );
    assert!(main["file"].as_str().is_some_and(|file| file.ends_with("/data.py")), "{main}");
    assert!(share(main, "pct") > 50.0, "{main}");
    let text = job.host.ask("status --now").stdout;
    assert!(
        text.contains("bound by data loading: GEMMs ")
            && text.contains("rank 0 is in collate_fn (data.py:6) in "),
        "{text}"
    );
}

/// After each wait for the GPU, the GPU is idle until the next launch.
#[test]
fn calls_that_synchronize_are_reported_by_what_the_gpu_is_idle_after_them() {
    let job = Job::start(
        &[],
        "
def train():
    while True:
        for _ in range(20):
            ok(gemm_ex(4096, 4096, 4096))
            sync()
            time.sleep(0.002)
        step()
train()",
    );
    let bound = job.bound(|bound| bound["synchronizing_pct"].as_f64().is_some_and(|share| share > 5.0));
    let blocked = share(&bound, "host_waits_pct");
    assert!(share(&bound, "synchronizing_pct") <= blocked + 1.0, "{bound}");
}

/// GEMMs take most of the time. The GPU is idle while the loader works, because each step waits for the GPU first.
#[test]
fn a_loader_of_a_third_of_the_time_is_not_called_synchronizing() {
    let files = [("data.py", DATA), ("torch/utils/data/dataloader.py", LOADER)];
    let job = Job::start(
        &files,
        "
from torch.utils.data.dataloader import DataLoader
def work(times):
    for _ in range(times): ok(gemm_ex(4096, 4096, 4096))
    sync()
def train():
    work(1)
    begin = time.monotonic()
    work(20)
    times = max(1, int(20 * 0.12 / (time.monotonic() - begin)))
    for _ in DataLoader():
        work(times)
        step()
train()",
    );
    let bound = job.bound(|bound| bound["data_loading_pct"].as_f64().is_some_and(|share| share > 15.0));
    assert!(share(&bound, "data_loading_pct") > share(&bound, "synchronizing_pct"), "{bound}");
    assert_eq!(bound["by"], "gemms", "{bound}");
    // The main thread mostly waits for the GPU, which is no news.
    let text = job.host.ask("status --now").stdout;
    assert!(text.contains("bound by GEMMs: ") && !text.contains("rank 0 is in "), "{text}");
}
