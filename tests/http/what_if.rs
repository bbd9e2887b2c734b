//! `/api/v1/jobs/{job}/what-if` and its metrics, for a job with a slow data loader.

use xpu_tests::program::until;

use crate::{job::Demo, page::Listening};

#[test]
fn a_collector_estimates_what_a_slow_rank_costs() {
    let demo = Demo::start("--ranks 2 --nodes 1 --slow-host 1:60ms", &[("XPU_TOP_WHAT_IF_EVERY", "2")]);
    let client = demo.client(1);
    let document = until("an estimate", || {
        let answer = client.get("/api/v1/jobs/demo/what-if");
        let document = (answer.status == 200).then(|| answer.json())?;
        document["estimate"].is_object().then_some(document)
    });
    assert_eq!(document["estimate"]["losses"][1]["ranks"][0], 1, "{document:#}");
    // Page 5 of the web page has the sum.
    // Waiting for the estimate may have used up the rate of requests.
    let mut events = until("a stream of events", || Listening::of(&client, "/api/v1/events", false).ok());
    let sum =
        until("an event with the sum", || events.next().data["what_if_sum"].as_str().map(str::to_owned));
    assert!(sum.contains(" GPU-hours in ") && sum.contains("ranks ") && sum.contains("(rank 1 "), "{sum}");
    let metrics = client.get("/metrics").body;
    let lost = "xpu_top_what_if_lost_gpu_seconds_total{job_name=\"demo\",cause=\"ranks\"}";
    assert!(metrics.lines().any(|line| line.starts_with(lost) && !line.ends_with(" 0.0")), "{metrics}");
}
