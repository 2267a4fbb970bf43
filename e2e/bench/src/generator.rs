//! Kueue's `generator.yaml`: which queues there are, and which workloads come when.

use std::path::Path;

use anyhow::{Context as _, Result};
use model::quantity::Quantity;
use serde::Deserialize;

/// The file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Generator {
    /// Nodes to make, level by level; without them nothing has a topology.
    pub(crate) topology: Option<Topology>,
    /// The flavor of those nodes.
    pub(crate) resource_flavor: Option<Flavor>,
    /// Classes of cohorts.
    pub(crate) cohorts: Vec<CohortSet>,
}

/// `topology`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Topology {
    pub(crate) name: String,
    /// From the widest to the narrowest.
    pub(crate) levels: Vec<Level>,
}

/// `topology.levels[]`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Level {
    pub(crate) name: String,
    /// How many within one of the level above.
    pub(crate) count: usize,
    pub(crate) node_label: String,
    /// Of each node; the last level has it.
    #[serde(default)]
    pub(crate) capacity: std::collections::BTreeMap<String, Quantity>,
}

/// `resourceFlavor`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Flavor {
    pub(crate) name: String,
    /// The key of the label by which its nodes are known; the value is the flavor's name.
    pub(crate) node_label: String,
    pub(crate) topology_name: String,
}

/// `cohorts[]`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct CohortSet {
    pub(crate) class_name: String,
    pub(crate) count: usize,
    pub(crate) queues_sets: Vec<QueueSet>,
}

/// `cohorts[].queuesSets[]`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct QueueSet {
    pub(crate) class_name: String,
    pub(crate) count: usize,
    pub(crate) nominal_quota: Quantity,
    pub(crate) borrowing_limit: Quantity,
    pub(crate) reclaim_within_cohort: String,
    pub(crate) within_cluster_queue: String,
    pub(crate) workloads_sets: Vec<WorkloadSet>,
}

/// `workloadsSets[]`: so often, at this interval, one of each of these.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct WorkloadSet {
    pub(crate) count: usize,
    pub(crate) creation_interval_ms: u64,
    pub(crate) workloads: Vec<WorkloadClass>,
}

/// `workloads[]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct WorkloadClass {
    pub(crate) class_name: String,
    pub(crate) runtime_ms: u64,
    pub(crate) priority: i32,
    /// Cores of one pod.
    pub(crate) request: Quantity,
    /// Absent is one.
    pub(crate) pod_count: Option<u32>,
    pub(crate) tas_constraint: Option<TasConstraint>,
    pub(crate) tas_level: Option<String>,
    /// Pods that must share a node, where the constraint is `balanced`.
    pub(crate) slice_size: Option<u32>,
}

/// `tasConstraint`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum TasConstraint {
    Required,
    Preferred,
    Balanced,
}

impl Generator {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        serde_saphyr::from_str(&text).with_context(|| format!("{} is no generator.yaml", path.display()))
    }

    /// The same with so many of each workload: 0.1 is a tenth, at least one of each.
    pub(crate) fn scaled(mut self, fraction: f64) -> Self {
        let sets = self.cohorts.iter_mut().flat_map(|cohort| &mut cohort.queues_sets);
        for set in sets.flat_map(|queues| &mut queues.workloads_sets) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts are small")]
            let scaled = (set.count as f64 * fraction).ceil() as usize;
            set.count = scaled.max(1);
        }
        self
    }
}
