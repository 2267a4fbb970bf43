//! What a workload asks of quota: what its pods ask for, without what is excluded, transformed as the administrator says
//! (`resources` of Kueue's Configuration; KEP-2937).

use std::collections::{BTreeMap, BTreeSet};

use crds::validation::Gates;
use model::ResourceName;
use model::quantity::Quantity;
use model::resources::ResourceList;

use crate::config::{Configuration, Strategy, Transformation};
use crate::input::QueueOrder;
use crate::lifetime::Retention;
use crate::ready::PodsReady;

/// What the resource claims of a pod count as (Kueue's KEP-2941). Nothing here resolves claims yet, so a Workload that has one is
/// inadmissible; this is what its quota will be asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Devices {
    /// Resources by which the devices of its claims are counted.
    pub counted: ResourceList,
    /// Extended resources that the cluster serves by claims: those are counted instead.
    pub replaced: BTreeSet<ResourceName>,
}

impl Devices {
    /// Changes what a pod asks of quota.
    pub fn count_in(&self, asked: &mut ResourceList) {
        asked.retain(|resource, _| !self.replaced.contains(resource));
        for (resource, amount) in &self.counted {
            let sum = asked.entry(resource.clone()).or_insert(0);
            *sum = sum.saturating_add(*amount).max(0);
        }
    }
}

/// What of pods counts, and as what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    excluded: Vec<String>,
    transformations: BTreeMap<ResourceName, Transformation>,
    ignores_reclaimable: bool,
    keeps_single_pods: bool,
    names_queues: bool,
    gates: Gates,
    order: QueueOrder,
    pods_ready: Option<PodsReady>,
    retention: Retention,
}

impl Rules {
    /// The rules of this configuration.
    pub fn of(config: &Configuration) -> Self {
        let transformations = config.resources.transformations.iter();
        Self {
            excluded: config.resources.exclude_resource_prefixes.clone(),
            transformations: transformations.map(|one| (one.input.clone(), one.clone())).collect(),
            ignores_reclaimable: !config.feature_gates.reclaimable_pods,
            keeps_single_pods: config.feature_gates.skip_reassignment_for_pod_owned_workloads,
            names_queues: config.feature_gates.assign_queue_labels_for_pods,
            gates: config.gates(),
            order: QueueOrder {
                priority_sorting: config.feature_gates.priority_sorting_within_cohort,
                unready_to_the_back: config.pods_ready().is_none_or(|one| one.to_the_back),
            },
            pods_ready: config.pods_ready(),
            retention: config.retention(),
        }
    }

    /// The gates that change what a job is described as, or which Workloads are sound.
    pub fn gates(&self) -> Gates {
        self.gates
    }

    /// Whether a Workload may take the place of another slice of the same job (feature gate `ElasticJobsViaWorkloadSlices`).
    pub fn has_elastic_jobs(&self) -> bool {
        self.gates.elastic_jobs
    }

    /// Whether an annotation may raise a workload's priority (feature gate `PriorityBoost`).
    pub fn boosts_priorities(&self) -> bool {
        self.gates.priority_boost
    }

    /// Whether an annotation may hold a workload back (feature gate `AdmissionGatedBy`).
    pub fn has_admission_gates(&self) -> bool {
        self.gates.admission_gated_by
    }

    /// Whether policies of ClusterQueues, and an annotation that restricts a workload to some flavors, mean something (feature gate
    /// `ConcurrentAdmission`).
    pub fn has_concurrent_admission(&self) -> bool {
        self.gates.concurrent_admission
    }

    /// What orders workloads of one priority.
    pub fn order(&self) -> QueueOrder {
        self.order
    }

    /// Whether and how pods have to get ready in time.
    pub fn pods_ready(&self) -> Option<&PodsReady> {
        self.pods_ready.as_ref()
    }

    /// How long what has ended is kept.
    pub fn retention(&self) -> Retention {
        self.retention
    }

    /// Whether a workload that is one pod, which ends when it is evicted, is not queued again (feature gate
    /// `SkipReassignmentForPodOwnedWorkloads`).
    pub fn keeps_single_pods(&self) -> bool {
        self.keeps_single_pods
    }

    /// Whether pods that have ended are counted all the same (feature gate `ReclaimablePods` is off).
    pub fn ignores_reclaimable(&self) -> bool {
        self.ignores_reclaimable
    }

    /// Whether admitted pods are labelled with the queues they came through (feature gate `AssignQueueLabelsForPods`).
    pub fn names_queues(&self) -> bool {
        self.names_queues
    }

    /// What one pod asks of quota that asks so much of a node. Nothing of it is negative.
    pub fn per_pod(&self, mut asked: ResourceList) -> ResourceList {
        asked.retain(|resource, _| !self.excludes(resource));
        let mut counted = self.transformed(asked);
        counted.values_mut().for_each(|amount| *amount = (*amount).max(0));
        counted
    }

    fn excludes(&self, resource: &ResourceName) -> bool {
        self.excluded.iter().any(|prefix| resource.as_str().starts_with(prefix.as_str()))
    }

    /// Outputs may be negative, for an allowance against other outputs of the same name; but what all of them make together
    /// never lessens what was asked for by that name.
    fn transformed(&self, asked: ResourceList) -> ResourceList {
        if !asked.keys().any(|resource| self.transformations.contains_key(resource)) {
            return asked;
        }
        let mut counted = ResourceList::new();
        let mut made: BTreeMap<ResourceName, Decimal> = BTreeMap::new();
        for (resource, amount) in &asked {
            let Some(rule) = self.transformations.get(resource) else {
                counted.insert(resource.clone(), *amount);
                continue;
            };
            let mut value = Decimal::of(resource, *amount);
            if let Some((by, times)) = rule.multiply_by.as_ref().and_then(|by| asked.get_key_value(by)) {
                value = value.times(Decimal::of(by, *times));
            }
            for (output, factor) in &rule.outputs {
                let sum = made.entry(output.clone()).or_default();
                *sum = sum.plus(value.times(Decimal::from(factor)));
            }
            if rule.strategy == Strategy::Retain {
                counted.insert(resource.clone(), *amount);
            }
        }
        for (resource, value) in made {
            let more = value.amount(&resource).max(0);
            let sum = counted.entry(resource).or_insert(0);
            *sum = sum.saturating_add(more);
        }
        counted
    }
}

/// A decimal number, exact as far as 38 digits go: beyond that it loses its finest digits, and what is too large for them
/// stays as large as can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Decimal {
    digits: i128,
    /// How many of the digits are behind the point.
    scale: u32,
}

impl Decimal {
    fn new(mut digits: i128, mut scale: u32) -> Self {
        while scale > 0 && digits % 10 == 0 {
            digits /= 10;
            scale -= 1;
        }
        Self { digits, scale }
    }

    /// An amount in base units, as the quantity that it stands for.
    fn of(resource: &ResourceName, amount: i64) -> Self {
        Self::new(i128::from(amount), scale_of(resource))
    }

    fn times(self, other: Self) -> Self {
        let (mut a, mut b) = (self, other);
        loop {
            if let Some(digits) = a.digits.checked_mul(b.digits) {
                return Self::new(digits, a.scale + b.scale);
            }
            let finer = if a.scale >= b.scale { &mut a } else { &mut b };
            if finer.scale == 0 {
                return Self::largest(a.digits.signum() * b.digits.signum());
            }
            *finer = finer.rounded();
        }
    }

    fn plus(self, other: Self) -> Self {
        let (mut coarse, mut fine) = if self.scale <= other.scale { (self, other) } else { (other, self) };
        while coarse.scale < fine.scale {
            match coarse.digits.checked_mul(10) {
                Some(digits) => coarse = Self { digits, scale: coarse.scale + 1 },
                None => fine = fine.rounded(),
            }
        }
        match coarse.digits.checked_add(fine.digits) {
            Some(digits) => Self::new(digits, fine.scale),
            None => Self::largest(coarse.digits.signum()),
        }
    }

    fn largest(sign: i128) -> Self {
        Self { digits: if sign < 0 { i128::MIN } else { i128::MAX }, scale: 0 }
    }

    /// Without its finest digit, away from zero.
    fn rounded(self) -> Self {
        let (kept, lost) = (self.digits / 10, self.digits % 10);
        Self { digits: kept + lost.signum(), scale: self.scale - 1 }
    }

    /// In base units of this resource, rounded away from zero, within 64 bits.
    fn amount(self, resource: &ResourceName) -> i64 {
        let mut base = self;
        while base.scale > scale_of(resource) {
            base = base.rounded();
        }
        let missing = scale_of(resource) - base.scale;
        let digits = base.digits.saturating_mul(10i128.pow(missing));
        let limit = if digits < 0 { i64::MIN } else { i64::MAX };
        i64::try_from(digits).unwrap_or(limit)
    }
}

impl From<&Quantity> for Decimal {
    fn from(quantity: &Quantity) -> Self {
        Self::new(quantity.nanos(), 9)
    }
}

/// Digits behind the point in base units: `cpu` is counted in thousandths.
fn scale_of(resource: &ResourceName) -> u32 {
    if resource.as_str() == ResourceName::CPU { 3 } else { 0 }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn rules(resources: &str) -> Rules {
        let text = format!("resources:\n{resources}");
        Rules::of(&Configuration::parse(Path::new("config.yaml"), &text).unwrap())
    }

    fn counted(rules: &Rules, asked: &[(&str, i64)]) -> Vec<(String, i64)> {
        let asked = asked.iter().map(|(name, amount)| (ResourceName::from(*name), *amount)).collect();
        rules.per_pod(asked).into_iter().map(|(name, amount)| (name.to_string(), amount)).collect()
    }

    #[test]
    fn what_is_excluded_and_what_is_negative_does_not_count() {
        let rules = rules("  excludeResourcePrefixes: [example.com/net]");
        let asked = [("cpu", -5), ("example.com/network", 3), ("example.com/gpu", 1)];
        assert_eq!(counted(&rules, &asked), [("cpu".into(), 0), ("example.com/gpu".into(), 1)]);
    }

    #[test]
    fn devices_of_claims_count_instead_of_what_they_replace() {
        let devices = Devices {
            counted: [("x/a100".into(), 2), ("cpu".into(), 500)].into(),
            replaced: ["x/gpu".into()].into(),
        };
        let mut asked = ResourceList::from([("cpu".into(), 1000), ("x/gpu".into(), 2)]);
        devices.count_in(&mut asked);
        assert_eq!(asked, ResourceList::from([("cpu".into(), 1500), ("x/a100".into(), 2)]));
    }

    #[test]
    fn inputs_become_outputs() {
        let rules = rules(
            "  transformations:\n  - { input: x/mem, strategy: Replace, multiplyBy: cpu, outputs: { x/sum: 300m } }\n  \
             - { input: x/gpu, outputs: { x/sum: -1, cpu: 250m } }\n",
        );
        for (what, asked, expected) in [
            ("nothing to transform", vec![("cpu", 500)], vec![("cpu", 500)]),
            // 3 x 0.5 x 0.3 = 0.45, which is begun and so counts whole.
            (
                "replaced, multiplied, rounded once",
                vec![("cpu", 500), ("x/mem", 3)],
                vec![("cpu", 500), ("x/sum", 1)],
            ),
            // 100 x 0.5 x 0.3 - 2 = 13
            (
                "an allowance lessens other outputs",
                vec![("cpu", 500), ("x/gpu", 2), ("x/mem", 100)],
                vec![("cpu", 1000), ("x/gpu", 2), ("x/sum", 13)],
            ),
            (
                "but nothing that was asked for",
                vec![("x/gpu", 2), ("x/sum", 7)],
                vec![("cpu", 500), ("x/gpu", 2), ("x/sum", 7)],
            ),
            ("without the multiplier it is one", vec![("x/mem", 10)], vec![("x/sum", 3)]),
        ] {
            let expected: Vec<_> =
                expected.into_iter().map(|(name, amount)| (name.to_owned(), amount)).collect();
            assert_eq!(counted(&rules, &asked), expected, "{what}");
        }
    }

    #[test]
    fn numbers_beyond_all_digits_stay_large() {
        let rules = rules(
            "  transformations:\n  - { input: x/a, strategy: Replace, multiplyBy: x/b, outputs: { x/c: 987654321123456789n } }",
        );
        let huge = counted(&rules, &[("x/a", i64::MAX), ("x/b", i64::MAX)]);
        assert_eq!(huge[1], ("x/c".to_owned(), i64::MAX));
    }
}
