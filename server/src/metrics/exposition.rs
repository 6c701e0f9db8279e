//! Writes one scrape: every metric of [`names::ALL`] in its order, with help, type and unit even when there is no
//! sample of it yet.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet, text};
use prometheus_client::registry::Registry;

use super::counters::Counters;
use super::names::{self, Definition, Kind};

/// A number that is looked up for a scrape.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value {
    /// Exact, however large.
    Whole(u64),
    Float(f64),
}

/// Samples looked up for a scrape, by metric.
#[derive(Debug, Default)]
pub(super) struct Samples(HashMap<&'static str, Vec<(Vec<String>, Value)>>);

impl Samples {
    /// Adds a sample; `labels` are the values of the definition's labels in their order.
    pub(super) fn whole(&mut self, definition: &'static Definition, labels: &[&str], value: u64) {
        self.add(definition, labels, Value::Whole(value));
    }

    /// As [`Samples::whole`].
    pub(super) fn float(&mut self, definition: &'static Definition, labels: &[&str], value: f64) {
        self.add(definition, labels, Value::Float(value));
    }

    fn add(&mut self, definition: &'static Definition, labels: &[&str], value: Value) {
        debug_assert_eq!(definition.labels.len(), labels.len(), "{}", definition.name);
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        self.0.entry(definition.name).or_default().push((labels, value));
    }
}

/// The text of one scrape.
///
/// # Errors
/// Never: writing to memory does not fail.
pub(super) fn render(counters: &Arc<Counters>, samples: Samples) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Exposition { counters: Arc::clone(counters), samples }));
    let mut text = String::new();
    text::encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Exposition {
    counters: Arc<Counters>,
    samples: Samples,
}

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let counted: HashMap<&str, &dyn EncodeMetric> = self
            .counters
            .metrics()
            .into_iter()
            .map(|(definition, metric)| (definition.name, metric))
            .collect();
        for definition in names::ALL {
            let unit = definition.unit.text();
            let help = format!("{}.", definition.help);
            let mut metric =
                encoder.encode_descriptor(definition.stem(), &help, unit.as_ref(), definition.kind.text())?;
            for (labels, value) in self.samples.0.get(definition.name).into_iter().flatten() {
                encode_sample(definition, &mut metric, labels, *value)?;
            }
            if let Some(counted) = counted.get(definition.name) {
                counted.encode(metric)?;
            }
        }
        Ok(())
    }
}

fn encode_sample(
    definition: &Definition,
    metric: &mut MetricEncoder<'_>,
    labels: &[String],
    value: Value,
) -> Result<(), fmt::Error> {
    let labels: Vec<(&str, &str)> =
        definition.labels.iter().copied().zip(labels.iter().map(String::as_str)).collect();
    if definition.kind == Kind::Info {
        return metric.encode_info(&labels);
    }
    if labels.is_empty() {
        return encode_value(definition, metric, value);
    }
    let labels = labels.as_slice();
    let mut family = metric.encode_family(&labels)?;
    encode_value(definition, &mut family, value)
}

fn encode_value(
    definition: &Definition,
    metric: &mut MetricEncoder<'_>,
    value: Value,
) -> Result<(), fmt::Error> {
    match (definition.kind, value) {
        (Kind::Counter, Value::Whole(value)) => metric.encode_counter::<NoLabelSet, _, u64>(&value, None),
        (Kind::Counter, Value::Float(value)) => metric.encode_counter::<NoLabelSet, _, u64>(&value, None),
        (_, Value::Whole(value)) => metric.encode_gauge(&value),
        (_, Value::Float(value)) => metric.encode_gauge(&value),
    }
}
