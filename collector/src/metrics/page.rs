//! The page that Prometheus reads: `OpenMetrics` text.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text::encode},
    metrics::MetricType,
    registry::Registry,
};

use super::{Exposition, Family, Value, catalogue::Kind};

/// The content type of [`text`].
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Debug)]
struct Page(Vec<Family>);

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Family { metric, series } in &self.0 {
            let kind = match metric.kind {
                Kind::Gauge => MetricType::Gauge,
                Kind::Counter => MetricType::Counter,
                Kind::Histogram => MetricType::Histogram,
            };
            let unit = metric.unit.unit();
            let mut of_all = encoder.encode_descriptor(&metric.stem, metric.help, unit.as_ref(), kind)?;
            for (labels, value) in series {
                // An empty set of labels would leave empty braces.
                if labels.is_empty() {
                    write(&mut of_all, value)?;
                } else {
                    write(&mut of_all.encode_family(labels)?, value)?;
                }
            }
        }
        Ok(())
    }
}

fn write(one: &mut MetricEncoder<'_>, value: &Value) -> fmt::Result {
    match value {
        Value::Gauge(value) => one.encode_gauge(value),
        Value::Whole(value) => one.encode_gauge(value),
        Value::Counter(value) => one.encode_counter::<NoLabelSet, _, f64>(value, None),
        Value::Histogram(spread) => {
            let ends = spread.ends().chain([f64::INFINITY]);
            let buckets: Vec<_> = ends.zip(spread.counts().iter().copied()).collect();
            one.encode_histogram::<NoLabelSet>(spread.sum(), spread.count(), &buckets, None)
        }
    }
}

pub(crate) fn text(exposition: &Exposition) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Page(exposition.families().to_vec())));
    let mut text = String::new();
    // Writing to memory does not fail.
    let _ = encode(&mut text, &registry);
    text
}
