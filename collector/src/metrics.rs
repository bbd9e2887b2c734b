//! The state of jobs as metrics: one model for both the Prometheus page and OTLP.
//!
//! Label sets are bounded: a rank has a few series for each element type, and for each combination of
//! communicator name, operation and size bucket. Shapes have series only on request ([`shapes`]). Kinds
//! beyond the limit are counted under `other`, and a metric has their number.

mod buckets;
mod catalogue;
mod compat;
mod job;
pub(crate) mod machine;
mod otlp;
mod own;
mod page;
mod rank;
mod recent;
mod shapes;
mod tally;
mod what_if;

use std::{collections::HashMap, sync::Arc};

use xpu_model::{
    finding::{self, Price},
    peak::Peaks,
};
use xpu_wire::unit::Moment;

pub(crate) use buckets::Spread;
pub(crate) use catalogue::Metric;
pub(crate) use compat::{Dump, Pod};
pub(crate) use otlp::request;
pub(crate) use own::Own;
pub(crate) use page::{CONTENT_TYPE, text};
pub(crate) use tally::Tally;

use crate::{follow::Known, what_if::WhatIfs};

/// Longest text of a label, in characters: users choose the names of jobs, hosts and communicators.
const LABEL: usize = 64;

/// Largest number of ranks on one page. Prometheus reads a relay's page of this size in a few seconds.
const RANKS: usize = 16_384;

/// Options of the pages, in addition to the native metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pages {
    /// Whether the page also has xpu-timer's gauges.
    pub compat: bool,
    /// Whether the page also has a gauge family for each shape, as in the first xpu-timer.
    pub per_shape: bool,
    /// GPU peaks that override the data sheets.
    pub peaks: Peaks,
    /// The price of a GPU hour.
    pub price: Option<Price>,
}

/// A label and its value.
pub(crate) type Label = (&'static str, Arc<str>);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Gauge(f64),
    /// An integer gauge, for readers that accept no other.
    Whole(i64),
    Counter(f64),
    Histogram(Spread),
}

/// One metric and all its series.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Family {
    pub metric: Metric,
    pub series: Vec<(Vec<Label>, Value)>,
}

/// All metrics at one moment.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    families: Vec<Family>,
    /// The index of each metric's family.
    places: HashMap<String, usize>,
}

impl Exposition {
    pub(crate) fn of(known: &Known, own: &Own, what_ifs: &WhatIfs, pod: &Pod, now: Moment) -> Self {
        let mut exposition = Self::default();
        let mut left = RANKS;
        let there = known.there(now);
        for job in known.jobs().iter() {
            let findings = known.findings(job, there);
            let is_stuck = finding::is_stuck(job, &findings);
            job::expose(&mut exposition, job, &findings, is_stuck, there);
            if let Some(of_job) = what_ifs.of(job.name()) {
                let labels = [("job_name", label(job.name().as_str()))];
                what_if::expose(&mut exposition, &labels, &of_job, known.pages().price, now);
            }
            for (rank, view) in job.ranks().take(left) {
                let tally = known.tally(job.name(), rank);
                rank::expose(&mut exposition, job, rank, view, tally, &findings, there);
                if known.pages().compat {
                    let levels = tally.and_then(Tally::levels);
                    compat::expose(&mut exposition, pod, job, rank, view, levels, is_stuck, own.dump(), now);
                }
                if let Some(shapes) = tally.and_then(Tally::shapes) {
                    shapes::expose(&mut exposition, job, rank, view.host().as_str(), shapes, now);
                }
            }
            left = left.saturating_sub(job.ranks().len());
        }
        own.expose(&mut exposition, known, now);
        exposition
    }

    pub(crate) fn put(&mut self, metric: Metric, labels: &[Label], value: Value) {
        let series = (labels.to_vec(), value);
        if let Some(&place) = self.places.get(metric.stem.as_ref()) {
            self.families[place].series.push(series);
        } else {
            self.places.insert(metric.stem.clone().into_owned(), self.families.len());
            self.families.push(Family { metric, series: vec![series] });
        }
    }

    /// Whether this series exists already.
    pub(crate) fn has(&self, metric: &Metric, labels: &[Label]) -> bool {
        let family = self.places.get(metric.stem.as_ref()).map(|&place| &self.families[place]);
        family.is_some_and(|family| family.series.iter().any(|(known, _)| known == labels))
    }

    /// Adds a gauge. Adds nothing for an unknown value, because unknown is not zero.
    pub(crate) fn gauge(&mut self, metric: Metric, labels: &[Label], value: impl Into<Option<f64>>) {
        if let Some(value) = value.into() {
            self.put(metric, labels, Value::Gauge(value));
        }
    }

    pub(crate) fn counter(&mut self, metric: Metric, labels: &[Label], value: impl Into<Option<f64>>) {
        if let Some(value) = value.into() {
            self.put(metric, labels, Value::Counter(value));
        }
    }

    pub(crate) fn families(&self) -> &[Family] {
        &self.families
    }
}

/// A text as a label value.
pub(crate) fn label(text: &str) -> Arc<str> {
    if text.chars().count() <= LABEL && !text.chars().any(char::is_control) {
        return text.into();
    }
    text.chars().filter(|c| !c.is_control()).take(LABEL).collect::<String>().into()
}

/// These labels, with some more.
pub(crate) fn with(labels: &[Label], more: &[(&'static str, &str)]) -> Vec<Label> {
    labels.iter().cloned().chain(more.iter().map(|(name, text)| (*name, label(text)))).collect()
}

#[cfg(test)]
mod tests;
