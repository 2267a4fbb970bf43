//! What a pod asks for, all in all.
//!
//! Rules: `k8s.io/component-helpers/resource` (`PodRequests`), KEP-753 (sidecars), KEP-2837 (pod-level resources),
//! KEP-688 (overhead).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::quantity::Written;
use crate::resources::{self, AmountError, ResourceList, ResourceName, capped};

/// The parts of a pod's spec that say what it asks for; shaped so that a view can flatten it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodResources {
    /// Run one after another before the containers; those with `restartPolicy: Always` keep running beside them.
    #[serde(deserialize_with = "crate::null_as_default")]
    pub init_containers: Vec<ContainerResources>,
    /// Run together.
    #[serde(deserialize_with = "crate::null_as_default")]
    pub containers: Vec<ContainerResources>,
    /// What the runtime class adds to each pod.
    #[serde(deserialize_with = "crate::null_as_default")]
    pub overhead: BTreeMap<ResourceName, Written>,
    /// Budget of the pod as a whole: replaces the containers' sum for cpu, memory and huge pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Requirements>,
}

/// What one container asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerResources {
    /// The container's name.
    pub name: String,
    /// `Always` makes an init container a sidecar.
    #[serde(deserialize_with = "crate::null_as_default")]
    pub restart_policy: String,
    /// Its requests and limits.
    #[serde(deserialize_with = "crate::null_as_default")]
    pub resources: Requirements,
}

/// Requests and limits as written.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Requirements {
    /// What is set aside.
    #[serde(deserialize_with = "crate::null_as_default")]
    pub requests: BTreeMap<ResourceName, Written>,
    /// What must not be exceeded; a limit without a request is a request.
    #[serde(deserialize_with = "crate::null_as_default")]
    pub limits: BTreeMap<ResourceName, Written>,
}

impl Requirements {
    /// Requests, with limits standing in for requests that were not written.
    ///
    /// # Errors
    /// A negative, malformed or too large number, or a request that its limit does not allow: the API server refuses
    /// such pods, but not always the job that describes them.
    pub fn effective(&self) -> Result<ResourceList, AmountError> {
        let mut numbers = Numbers::default();
        let exact = numbers.of_container(self);
        let amounts = numbers.rounded(exact);
        numbers.error.map_or(Ok(amounts), Err)
    }
}

impl ContainerResources {
    /// Whether it is a sidecar: an init container that keeps running.
    pub fn is_sidecar(&self) -> bool {
        self.restart_policy == "Always"
    }
}

/// What a pod asks for, with what is wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The sum of the numbers as they are: negative ones lessen it, it stops at 64 bits.
    pub requests: ResourceList,
    /// The first number that no pod may ask for; one that means nothing before one that is only too large.
    pub error: Option<AmountError>,
}

impl PodResources {
    /// What one pod of this shape needs on a node, in base units. `pods` itself is not counted.
    ///
    /// # Errors
    /// A negative, malformed or too large number anywhere in the spec, or a request that its limit does not allow: the API
    /// server refuses such pods, but not always the job that describes them.
    pub fn effective_requests(&self) -> Result<ResourceList, AmountError> {
        let Tally { requests, error } = self.tally();
        error.map_or(Ok(requests), Err)
    }

    /// The same where some number cannot be meant: what there is to say of the others, and what is wrong.
    pub fn tally(&self) -> Tally {
        let mut numbers = Numbers::default();
        let mut running = Exact::new();
        for container in &self.containers {
            let asked = numbers.of_container(&container.resources);
            numbers.add(&mut running, &asked);
        }
        let mut sidecars = Exact::new();
        let mut starting = Exact::new();
        for container in &self.init_containers {
            let mut needed = numbers.of_container(&container.resources);
            if container.is_sidecar() {
                numbers.add(&mut running, &needed);
                numbers.add(&mut sidecars, &needed);
            }
            // Of other resources as much is needed as when the last sidecar came that asks for them.
            for (resource, amount) in &mut needed {
                let beside = sidecars.get(resource).copied().unwrap_or(0);
                *amount = if container.is_sidecar() { beside } else { amount.saturating_add(beside) };
            }
            resources::raise_to(&mut starting, &needed);
        }
        resources::raise_to(&mut running, &starting);
        if let Some(budget) = &self.resources {
            numbers.apply_budget(budget, &mut running);
        }
        let overhead = numbers.read(&self.overhead);
        numbers.add(&mut running, &overhead);
        Tally { requests: numbers.rounded(running), error: numbers.error }
    }
}

/// Amounts in billionths of a unit: containers are summed before anything is rounded.
type Exact = BTreeMap<ResourceName, i128>;

/// Reads and adds numbers; remembers the first that is wrong.
#[derive(Default)]
struct Numbers {
    error: Option<AmountError>,
}

impl Numbers {
    /// A number that means nothing is worse than one that is only too large.
    fn note(&mut self, error: AmountError) {
        if self.error.as_ref().is_none_or(|known| known.is_overflow() && !error.is_overflow()) {
            self.error = Some(error);
        }
    }

    fn read(&mut self, written: &BTreeMap<ResourceName, Written>) -> Exact {
        let mut list = Exact::new();
        for (resource, written) in written {
            let (_, error) = resources::read(resource, written);
            self.error = self.error.take().or(error);
            list.insert(resource.clone(), written.quantity().map_or(0, |quantity| quantity.nanos()));
        }
        list
    }

    /// Requests, with limits standing in for requests that were not written.
    fn of_container(&mut self, written: &Requirements) -> Exact {
        let mut amounts = self.read(&written.limits);
        amounts.extend(self.read(&written.requests));
        for (resource, limit) in &written.limits {
            let (Some(Ok(request)), Ok(limit)) =
                (written.requests.get(resource).map(Written::quantity), limit.quantity())
            else {
                continue;
            };
            if request > limit || (resource.is_extended() && request != limit) {
                self.note(AmountError::Limit { resource: resource.clone(), request, limit });
            }
        }
        amounts
    }

    fn add(&self, total: &mut Exact, more: &Exact) {
        for (resource, amount) in more {
            let sum = total.entry(resource.clone()).or_insert(0);
            *sum = sum.saturating_add(*amount);
        }
    }

    /// In base units; what begins one counts whole.
    fn rounded(&mut self, exact: Exact) -> ResourceList {
        let mut rounded = ResourceList::new();
        for (resource, nanos) in exact {
            let amount = resource.base_units(nanos);
            if amount.is_none() {
                self.note(AmountError::Sum { resource: resource.clone() });
            }
            rounded.insert(resource, amount.unwrap_or_else(|| capped(nanos < 0)));
        }
        rounded
    }

    /// A pod-level request replaces the containers' sum; a pod-level limit stands in only where nothing was requested.
    fn apply_budget(&mut self, budget: &Requirements, total: &mut Exact) {
        let budgeted = |name: &ResourceName| {
            matches!(name.as_str(), ResourceName::CPU | ResourceName::MEMORY)
                || name.as_str().starts_with("hugepages-")
        };
        for (resource, amount) in self.read(&budget.limits) {
            if budgeted(&resource) {
                total.entry(resource).or_insert(amount);
            }
        }
        for (resource, amount) in self.read(&budget.requests) {
            if budgeted(&resource) {
                total.insert(resource, amount);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(json: &str) -> Result<Vec<(String, i64)>, AmountError> {
        let pod: PodResources = serde_json::from_str(json).unwrap();
        Ok(pod.effective_requests()?.into_iter().map(|(name, amount)| (name.to_string(), amount)).collect())
    }

    #[test]
    fn effective_requests() {
        for (what, json, expected) in [
            ("nothing", "{}", vec![]),
            (
                "containers are summed, a limit stands in for a missing request",
                r#"{"containers":[{"name":"a","resources":{"requests":{"cpu":"500m"},"limits":{"cpu":2,"nvidia.com/gpu":1}}},
                    {"name":"b","resources":{"limits":{"nvidia.com/gpu":"2"}}}]}"#,
                vec![("cpu", 500), ("nvidia.com/gpu", 3)],
            ),
            (
                "parts are summed before they are rounded",
                r#"{"containers":[{"resources":{"requests":{"memory":"1.1Gi","cpu":"100500u"}}},
                    {"resources":{"requests":{"memory":"1.1Gi","cpu":"100500u"}}}]}"#,
                vec![("cpu", 201), ("memory", 2_362_232_013)],
            ),
            (
                "the largest init container counts, not their sum",
                r#"{"initContainers":[{"resources":{"requests":{"memory":"3"}}},{"resources":{"requests":{"memory":"5"}}}],
                    "containers":[{"resources":{"requests":{"memory":"4"}}}]}"#,
                vec![("memory", 5)],
            ),
            (
                "a sidecar runs beside the containers and beside later init containers",
                r#"{"initContainers":[{"resources":{"requests":{"memory":"9"}}},
                    {"restartPolicy":"Always","resources":{"requests":{"memory":"2"}}},
                    {"resources":{"requests":{"memory":"8"}}}],
                    "containers":[{"resources":{"requests":{"memory":"4"}}}]}"#,
                vec![("memory", 10)],
            ),
            (
                "overhead is added on top",
                r#"{"overhead":{"cpu":"250m"},"containers":[{"resources":{"requests":{"cpu":"1"}}}]}"#,
                vec![("cpu", 1250)],
            ),
            (
                "a pod-level request replaces the sum, but never that of devices",
                r#"{"resources":{"requests":{"cpu":"4","nvidia.com/gpu":"9"},"limits":{"memory":"7"}},
                    "containers":[{"resources":{"requests":{"cpu":"1","nvidia.com/gpu":"2"}}}]}"#,
                vec![("cpu", 4000), ("memory", 7), ("nvidia.com/gpu", 2)],
            ),
        ] {
            let expected: Vec<_> =
                expected.into_iter().map(|(name, amount)| (name.to_owned(), amount)).collect();
            assert_eq!(requests(json).unwrap(), expected, "{what}");
        }
    }

    #[test]
    fn numbers_no_computation_can_use_are_errors() {
        for json in [
            r#"{"containers":[{"resources":{"requests":{"cpu":"-1"}}}]}"#,
            r#"{"containers":[{"resources":{"requests":{"cpu":"much"}}}]}"#,
            r#"{"containers":[{"resources":{"requests":{"memory":"8Ei"}}},{"resources":{"requests":{"memory":"8Ei"}}}]}"#,
            r#"{"overhead":{"memory":"-1"}}"#,
            r#"{"containers":[{"resources":{"requests":{"cpu":"2"},"limits":{"cpu":"1"}}}]}"#,
            r#"{"containers":[{"resources":{"requests":{"nvidia.com/gpu":"1"},"limits":{"nvidia.com/gpu":"2"}}}]}"#,
        ] {
            assert!(requests(json).is_err(), "{json}");
        }
    }

    #[test]
    fn what_is_wrong_does_not_hide_the_rest() {
        let pod: PodResources = serde_json::from_str(
            r#"{"containers":[{"resources":{"requests":{"cpu":"-10m","memory":"3"}}},{"resources":{"requests":{"cpu":"30m"}}}]}"#,
        )
        .unwrap();
        let Tally { requests, error } = pod.tally();
        assert_eq!((requests[ResourceName::CPU], requests[ResourceName::MEMORY]), (20, 3));
        assert!(matches!(error, Some(AmountError::Negative { .. })));
    }
}
