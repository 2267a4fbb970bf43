//! Why a ClusterQueue admits nothing, and which checks stand between quota and admission.

use std::collections::{BTreeMap, BTreeSet};

use model::planted::Bug;

use crate::engine::Engine;
use crate::input::{Admission, CheckController, CheckRule, ClusterQueue, StopPolicy};
use crate::names::{CheckName, FlavorName};
use crate::reason::Inactive;
use crate::tree::NodeId;
use crate::workloads::WorkloadId;

/// The flavors of a queue, and of each of its checks. Where a check is listed twice the last word counts.
struct Checks<'a> {
    all: BTreeSet<&'a FlavorName>,
    by_name: BTreeMap<&'a CheckName, BTreeSet<&'a FlavorName>>,
}

impl<'a> Checks<'a> {
    fn of(spec: &'a ClusterQueue) -> Self {
        let flavors = spec.groups.iter().flat_map(|group| &group.flavors);
        let all: BTreeSet<&FlavorName> = flavors.map(|quotas| &quotas.flavor).collect();
        let of_rule = |rule: &'a CheckRule| match rule.on_flavors.is_empty() {
            true => all.clone(),
            false => rule.on_flavors.iter().collect(),
        };
        let by_name = spec.admission_checks.iter().map(|rule| (&rule.check, of_rule(rule))).collect();
        Self { all, by_name }
    }
}

impl Engine {
    /// The first reason that holds, in Kueue's order.
    pub(crate) fn why_inactive(&self, queue: NodeId) -> Option<Inactive> {
        let queue = &self.queues[queue];
        let spec = queue.spec.as_ref()?;
        if spec.terminating {
            return Some(Inactive::Terminating);
        }
        if spec.stop != StopPolicy::None && !self.planted.is(Bug::AdmitWhenStopped) {
            return Some(Inactive::Stopped);
        }
        let flavors = spec.groups.iter().flat_map(|group| &group.flavors).map(|one| &one.flavor);
        let missing: BTreeSet<&FlavorName> =
            flavors.filter(|flavor| !self.flavors.contains_key(*flavor)).collect();
        if !missing.is_empty() {
            return Some(Inactive::FlavorNotFound(missing.into_iter().cloned().collect()));
        }
        if let Some(inactive) = self.why_checks_forbid(spec) {
            return Some(inactive);
        }
        let flavors = spec.groups.iter().flat_map(|group| &group.flavors).map(|one| &one.flavor);
        let without: BTreeMap<FlavorName, String> = flavors
            .filter_map(|flavor| Some((flavor.clone(), self.flavors.get(flavor)?.topology.clone()?)))
            .filter(|(flavor, _)| !self.grounds.has_index(flavor))
            .collect();
        if !without.is_empty() {
            return Some(Inactive::TopologyNotFound(without));
        }
        if let (true, Some(cohort)) = (self.tree.in_cycle(queue.node), &spec.cohort) {
            return Some(Inactive::CohortCycle(cohort.clone()));
        }
        (!spec.defects.is_empty()).then(|| Inactive::Defects(spec.defects.clone()))
    }

    fn why_checks_forbid(&self, spec: &ClusterQueue) -> Option<Inactive> {
        let checks = Checks::of(spec);
        let names = |wanted: &dyn Fn(&CheckName) -> bool| -> Option<Vec<CheckName>> {
            let found: Vec<CheckName> =
                checks.by_name.keys().filter(|name| wanted(name)).map(|name| (*name).clone()).collect();
            (!found.is_empty()).then_some(found)
        };
        let known = |name: &CheckName| self.checks.get(name);
        if let Some(missing) = names(&|name| known(name).is_none()) {
            return Some(Inactive::CheckNotFound(missing));
        }
        if let Some(inactive) = names(&|name| known(name).is_some_and(|check| !check.active)) {
            return Some(Inactive::CheckInactive(inactive));
        }
        let answered_by = |name: &CheckName, by| known(name).is_some_and(|check| check.controller == by);
        let elsewhere = names(&|name| answered_by(name, CheckController::MultiKueue))?;
        if elsewhere.len() > 1 {
            return Some(Inactive::MultipleMultiKueue(elsewhere));
        }
        if let Some(partly) = names(&|name| {
            answered_by(name, CheckController::MultiKueue) && checks.by_name[name] != checks.all
        }) {
            return Some(Inactive::MultiKueuePerFlavor(partly));
        }
        // MultiKueue is not supported: nobody answers its check, whatever that says.
        Some(match names(&|name| answered_by(name, CheckController::ProvisioningRequest)) {
            Some(provisions) => {
                Inactive::MultiKueueWithProvisioning(elsewhere.into_iter().chain(provisions).collect())
            }
            None => Inactive::CheckInactive(elsewhere),
        })
    }

    /// Whether a workload that gets this has passed every check that asks for one of its flavors.
    pub(crate) fn passes_checks(&self, who: WorkloadId, queue: NodeId, admission: &Admission) -> bool {
        let spec = self.queues[queue].spec.as_ref();
        let (Some(spec), Some(record)) = (spec, self.workloads.get(who)) else { return true };
        if spec.admission_checks.is_empty() {
            return true;
        }
        let given: BTreeSet<&FlavorName> =
            admission.pod_sets.iter().flat_map(|set| set.flavors.values()).collect();
        let checks = Checks::of(spec).by_name;
        let mut asked = checks.iter().filter(|(_, flavors)| !given.is_disjoint(flavors));
        asked.all(|(name, _)| record.workload.seldom.passed.contains(*name))
    }

    /// The flavors of a queue for which nodes are asked of an autoscaler once a workload has quota.
    pub(crate) fn provisioned(&self, queue: NodeId) -> BTreeSet<FlavorName> {
        let spec = self.queues[queue].spec.as_ref();
        let provisions = |name: &CheckName| {
            let controller = self.checks.get(name).map(|check| check.controller);
            controller == Some(CheckController::ProvisioningRequest)
        };
        let checks = spec.map(|spec| Checks::of(spec).by_name).unwrap_or_default();
        let flavors =
            checks.into_iter().filter(|(name, _)| provisions(name)).flat_map(|(_, flavors)| flavors);
        flavors.cloned().collect()
    }
}
