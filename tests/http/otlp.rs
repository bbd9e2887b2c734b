//! A minimal receiver of OTLP/HTTP, which decodes with OpenTelemetry's own types.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpListener,
    thread,
};

use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    metrics::v1::{Metric, metric::Data, number_data_point::Value},
};
use prost::Message as _;
use xpu_tests::program::until;

use crate::job::Demo;

/// The metrics of the first message that has all of these.
fn received(listener: &TcpListener, wanted: &[&str]) -> Vec<Metric> {
    loop {
        let (stream, _) = listener.accept().expect("it is sent");
        let mut reader = BufReader::new(&stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).expect("a head") > 0, "{head}");
        }
        assert!(head.starts_with("POST /v1/metrics HTTP/1.1"), "{head}");
        let head = head.to_ascii_lowercase();
        assert!(head.contains("content-type: application/x-protobuf"), "{head}");
        let length =
            head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()).expect("a length");
        let mut body = vec![0; length.parse().expect("a number")];
        reader.read_exact(&mut body).expect("a body");
        (&stream)
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .expect("an answer");
        let request = ExportMetricsServiceRequest::decode(&body[..]).expect("a message");
        let resource = request.resource_metrics.into_iter().next().expect("one resource");
        assert!(resource.resource.is_some_and(|resource| {
            resource.attributes.iter().any(|attribute| attribute.key == "service.name")
        }));
        let metrics: Vec<_> = resource.scope_metrics.into_iter().flat_map(|scope| scope.metrics).collect();
        if wanted.iter().all(|name| metrics.iter().any(|metric| metric.name == *name)) {
            return metrics;
        }
    }
}

#[test]
fn the_same_metrics_go_to_an_opentelemetry_collector() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let wanted = ["xpu_top_gemm_duration", "xpu_top_steps", "xpu_top_gemm_rate", "xpu_top_bus_bandwidth"];
    let receiver = thread::spawn(move || received(&listener, &wanted));
    let demo = Demo::start("--ranks 2 --nodes 1", &[("XPU_TOP_OTLP", &url), ("XPU_TOP_OTLP_INTERVAL", "1")]);
    until("the metrics", || receiver.is_finished().then_some(()));
    let metrics = receiver.join().expect("no panic");
    let of = |name: &str| metrics.iter().find(|metric| metric.name == name).expect(name);
    let Some(Data::Sum(steps)) = &of("xpu_top_steps").data else { panic!("a counter") };
    assert!(steps.is_monotonic && steps.data_points.len() == 2);
    for point in &steps.data_points {
        assert!(matches!(point.value, Some(Value::AsDouble(steps)) if steps >= 1.0), "{point:?}");
        let names: Vec<_> = point.attributes.iter().map(|attribute| attribute.key.as_str()).collect();
        assert_eq!(names, ["job_name", "rank", "host"]);
    }
    let Some(Data::Histogram(times)) = &of("xpu_top_gemm_duration").data else { panic!("a histogram") };
    assert_eq!(of("xpu_top_gemm_duration").unit, "s");
    for point in &times.data_points {
        assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
        assert_eq!(point.bucket_counts.iter().sum::<u64>(), point.count);
    }
    let Some(Data::Gauge(rates)) = &of("xpu_top_gemm_rate").data else { panic!("a gauge") };
    assert_eq!(rates.data_points.len(), 2);
    drop(demo);
}
