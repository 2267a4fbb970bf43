//! Labels that metrics get from the objects they are about: `metrics.customLabels`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crds::validation::is_qualified_name;
use kit::config::ConfigError;
use serde::Deserialize;

use super::Notice;
use crate::metrics::{self, Owner};

/// So many in all, and so many of one kind of object: Kueue's bounds.
const MOST: usize = 20;
const MOST_OF_KIND: usize = 6;
/// So many values may be told apart.
const MOST_VALUES: usize = 16;
const FIELD: &str = "metrics.customLabels";

/// `metrics.customLabels[]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CustomLabel {
    /// `name`: after `custom_`.
    pub name: String,
    /// `sourceLabelKey`: of a label of the object; the name where there is neither.
    pub source_label_key: String,
    /// `sourceAnnotationKey`: of an annotation of the object.
    pub source_annotation_key: String,
    /// `sourceKind`.
    pub source_kind: SourceKind,
    /// `trackedValues`: others are shown as one; none is all.
    pub tracked_values: Vec<String>,
}

/// `metrics.customLabels[].sourceKind`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum SourceKind {
    /// Metrics of ClusterQueues.
    #[default]
    ClusterQueue,
    /// Metrics of LocalQueues.
    LocalQueue,
    /// Metrics of Cohorts.
    Cohort,
    /// What Workloads say, by which Kueue splits some metrics of queues, and none is split here.
    Workload,
}

impl SourceKind {
    fn owner(self) -> Option<Owner> {
        match self {
            Self::ClusterQueue => Some(Owner::ClusterQueue),
            Self::LocalQueue => Some(Owner::LocalQueue),
            Self::Cohort => Some(Owner::Cohort),
            Self::Workload => None,
        }
    }
}

impl CustomLabel {
    /// Where its value is, with the field that says so.
    fn key(&self) -> (&'static str, &str) {
        match (self.source_annotation_key.as_str(), self.source_label_key.as_str()) {
            ("", "") => (".name", &self.name),
            ("", key) => (".sourceLabelKey", key),
            (key, _) => (".sourceAnnotationKey", key),
        }
    }

    /// What metrics are told; `None` where there are none that could have it.
    pub(super) fn shown(&self) -> Option<metrics::CustomLabel> {
        let key = self.key().1.to_owned();
        let of_annotation = !self.source_annotation_key.is_empty();
        Some(metrics::CustomLabel {
            name: format!("custom_{}", self.name),
            owner: self.source_kind.owner()?,
            source: if of_annotation {
                metrics::Source::Annotation(key)
            } else {
                metrics::Source::Label(key)
            },
            tracked: self.tracked_values.iter().cloned().collect(),
        })
    }

    /// The field that is wrong, and how; of what is wrong as a whole, none.
    fn wrong(&self) -> Option<(&'static str, String)> {
        let mut letters = self.name.chars();
        let is_name = letters.next().is_some_and(|first| first.is_ascii_alphabetic())
            && letters.all(|one| one.is_ascii_alphanumeric() || one == '_');
        if !is_name {
            return Some((".name", "it must be letters, digits and _, a letter first".to_owned()));
        }
        if !self.source_label_key.is_empty() && !self.source_annotation_key.is_empty() {
            return Some(("", "there can be either sourceLabelKey or sourceAnnotationKey".to_owned()));
        }
        let (field, key) = self.key();
        if !is_qualified_name(key) {
            return Some((field, format!("{key} cannot be the key of a label or an annotation")));
        }
        let values: BTreeSet<&String> = self.tracked_values.iter().collect();
        if values.len() > MOST_VALUES || values.len() < self.tracked_values.len() {
            return Some((".trackedValues", format!("there may be {MOST_VALUES}, each of them once")));
        }
        None
    }
}

/// What is wrong with the list, or cannot be done of it.
pub(super) fn check(labels: &[CustomLabel], path: &Path) -> Result<Vec<Notice>, ConfigError> {
    let refuse = |field: &str, reason: String| Err(ConfigError::invalid(path, field, reason));
    if labels.len() > MOST {
        return refuse(FIELD, format!("there may be {MOST}"));
    }
    let (mut names, mut of_kind) = (BTreeSet::new(), BTreeMap::<_, usize>::new());
    let mut notices = Vec::new();
    for (index, label) in labels.iter().enumerate() {
        if let Some((field, reason)) = label.wrong() {
            return refuse(&format!("{FIELD}[{index}]{field}"), reason);
        }
        if !names.insert(&label.name) {
            return refuse(&format!("{FIELD}[{index}].name"), format!("there is a {} already", label.name));
        }
        let count = of_kind.entry(label.source_kind).or_default();
        *count += 1;
        if *count > MOST_OF_KIND {
            let kind = label.source_kind;
            return refuse(FIELD, format!("there may be {MOST_OF_KIND} with sourceKind {kind:?}"));
        }
        if label.source_kind.owner().is_none() {
            let words = "it is not supported: no metric is split by what Workloads say".to_owned();
            let field = format!("{FIELD}[{index}].sourceKind");
            notices.push(Notice { field, words, unsupported: true });
        }
    }
    Ok(notices)
}

#[cfg(test)]
mod tests {
    use super::super::Configuration;
    use super::*;

    fn read(labels: &str) -> Result<Configuration, String> {
        let text =
            format!("metrics:\n  customLabels: {labels}\nfeatureGates: {{ CustomMetricLabels: true }}");
        Configuration::parse(Path::new("f"), &text).map_err(|error| error.to_string())
    }

    #[test]
    fn labels_are_read_and_wrong_ones_refused() {
        let config = read(
            "[{ name: team }, { name: tier, sourceAnnotationKey: example.com/tier, sourceKind: LocalQueue, trackedValues: [gold] }]",
        )
        .unwrap();
        let shown = config.shown_metrics().custom;
        assert_eq!(shown.len(), 2);
        assert_eq!((shown[0].name.as_str(), shown[0].owner), ("custom_team", Owner::ClusterQueue));
        assert_eq!(shown[0].source, metrics::Source::Label("team".to_owned()));
        assert_eq!(shown[1].source, metrics::Source::Annotation("example.com/tier".to_owned()));
        let of_workloads = read("[{ name: user, sourceKind: Workload, trackedValues: [a] }]").unwrap();
        assert!(of_workloads.shown_metrics().custom.is_empty());
        assert_eq!(of_workloads.notices[0].field, "metrics.customLabels[0].sourceKind");
        for (labels, field) in [
            ("[{ name: 1a }]", "metrics.customLabels[0].name"),
            ("[{ name: a }, { name: a }]", "metrics.customLabels[1].name"),
            ("[{ name: a, sourceLabelKey: 'no key' }]", "metrics.customLabels[0].sourceLabelKey"),
            ("[{ name: a, sourceLabelKey: b, sourceAnnotationKey: c }]", "metrics.customLabels[0]: "),
            ("[{ name: a, trackedValues: [x, x] }]", "metrics.customLabels[0].trackedValues"),
            ("[{ name: a, sourceKind: Pod }]", "Pod"),
            (
                "[{ name: a }, { name: b }, { name: c }, { name: d }, { name: e }, { name: f }, { name: g }]",
                "ClusterQueue",
            ),
        ] {
            let error = read(labels).unwrap_err();
            assert!(error.contains(field), "{labels}: {error}");
        }
    }

    #[test]
    fn without_its_gate_there_are_none() {
        let text = "metrics:\n  customLabels: [{ name: team }]\n";
        let config = Configuration::parse(Path::new("f"), text).unwrap();
        assert!(config.shown_metrics().custom.is_empty());
        assert!(config.notices.iter().any(|one| one.field == "metrics.customLabels"), "{:?}", config.notices);
    }
}
