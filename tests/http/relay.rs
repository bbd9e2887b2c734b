//! One Prometheus for many hosts: a relay's pages have everything that the relay receives.

use std::net::SocketAddr;

use xpu_tests::{
    host::{BASE, Host, TRAINS},
    program::until,
    relay,
};

use crate::{client::Client, job::client_of};

#[test]
fn relay_pages_show_the_hosts_behind_it_to_clients_with_the_key() {
    let host = Host::new();
    let _ranks = [0, 1].map(|rank| host.rank(rank, TRAINS));
    let base = BASE.parse().expect("a port");
    let _relay = relay::start(&host.place, &host.address, &host.address, base, Some(&host.key()));
    let known = client_of(&host);
    let client = Client { address: SocketAddr::new(known.address.ip(), relay::BASE), ..known };
    let stranger = Client { token: None, ..client.clone() };
    assert_eq!(stranger.get("/metrics").status, 401);
    until("both ranks on the relay's page", || {
        let page = client.page();
        let steps = page.lines().filter(|line| line.starts_with("xpu_top_steps_total{"));
        (steps.filter(|line| line.contains("host=\"sim\"")).count() == 2).then_some(())
    });
    let jobs = client.get("/api/v1/jobs");
    assert!(jobs.status == 200 && jobs.body.contains("\"train\""), "{jobs:?}");
}
