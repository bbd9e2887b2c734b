//! The page's metrics in OTLP. The messages are built from OpenTelemetry's types, because its SDK takes
//! single measurements and cannot import an existing histogram.

use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value},
    metrics::v1::{
        AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
        ResourceMetrics, ScopeMetrics, Sum, metric::Data, number_data_point,
    },
    resource::v1::Resource,
};
use xpu_wire::{VERSION, unit::Moment};

use super::{Exposition, Family, Label, Value, catalogue::Kind};

/// The OTLP message. Its counters and histograms cover the time since `since`.
pub(crate) fn request(
    exposition: &Exposition,
    host: &str,
    since: Moment,
    now: Moment,
) -> ExportMetricsServiceRequest {
    let metrics = exposition.families().iter().map(|family| metric(family, since, now)).collect();
    let scope = InstrumentationScope {
        name: "xpu-top".to_owned(),
        version: VERSION.to_owned(),
        ..InstrumentationScope::default()
    };
    let attributes = vec![attribute("service.name", "xpu-top"), attribute("host.name", host)];
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource { attributes, ..Resource::default() }),
            scope_metrics: vec![ScopeMetrics { scope: Some(scope), metrics, schema_url: String::new() }],
            schema_url: String::new(),
        }],
    }
}

fn metric(family: &Family, since: Moment, now: Moment) -> Metric {
    let cumulative = AggregationTemporality::Cumulative as i32;
    let points = || family.series.iter().filter_map(|(labels, value)| number(labels, value, since, now));
    let data = match family.metric.kind {
        Kind::Gauge => Data::Gauge(Gauge { data_points: points().collect() }),
        Kind::Counter => Data::Sum(Sum {
            data_points: points().collect(),
            aggregation_temporality: cumulative,
            is_monotonic: true,
        }),
        Kind::Histogram => Data::Histogram(Histogram {
            data_points: family
                .series
                .iter()
                .filter_map(|(labels, value)| histogram(labels, value, since, now))
                .collect(),
            aggregation_temporality: cumulative,
        }),
    };
    Metric {
        // PromQL backends derive the name on the page from this name.
        name: family.metric.stem.clone().into_owned(),
        description: family.metric.help.to_owned(),
        unit: family.metric.unit.ucum().to_owned(),
        metadata: Vec::new(),
        data: Some(data),
    }
}

fn number(labels: &[Label], value: &Value, since: Moment, now: Moment) -> Option<NumberDataPoint> {
    let (value, since) = match value {
        Value::Gauge(value) => (*value, Moment(0)),
        Value::Whole(value) => (*value as f64, Moment(0)),
        Value::Counter(value) => (*value, since),
        Value::Histogram(_) => return None,
    };
    Some(NumberDataPoint {
        attributes: attributes(labels),
        start_time_unix_nano: since.0,
        time_unix_nano: now.0,
        value: Some(number_data_point::Value::AsDouble(value)),
        ..NumberDataPoint::default()
    })
}

fn histogram(labels: &[Label], value: &Value, since: Moment, now: Moment) -> Option<HistogramDataPoint> {
    let Value::Histogram(spread) = value else { return None };
    Some(HistogramDataPoint {
        attributes: attributes(labels),
        start_time_unix_nano: since.0,
        time_unix_nano: now.0,
        count: spread.count(),
        sum: Some(spread.sum()),
        bucket_counts: spread.counts().to_vec(),
        explicit_bounds: spread.ends().collect(),
        ..HistogramDataPoint::default()
    })
}

fn attributes(labels: &[Label]) -> Vec<KeyValue> {
    labels.iter().map(|(name, text)| attribute(name, text)).collect()
}

fn attribute(name: &str, text: &str) -> KeyValue {
    let value = AnyValue { value: Some(any_value::Value::StringValue(text.to_owned())) };
    KeyValue { key: name.to_owned(), value: Some(value), ..KeyValue::default() }
}
