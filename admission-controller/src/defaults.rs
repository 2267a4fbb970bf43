//! What the API server adds to a pod when it is created, counted before it is: defaults of the namespace's LimitRanges and
//! the overhead of the pod's RuntimeClass. Without it a job would get less quota than its pods then ask for.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crds::view::limits::{LimitRange, RuntimeClass};
use model::ResourceName;
use model::pod::PodResources;
use model::quantity::Written;

type Amounts = BTreeMap<ResourceName, Written>;

/// Defaults by namespace and by RuntimeClass.
#[derive(Debug, Default)]
pub struct PodDefaults {
    containers: BTreeMap<String, Vec<(Amounts, Amounts)>>,
    overheads: BTreeMap<String, Amounts>,
}

impl PodDefaults {
    /// Replaces those of all LimitRanges. The order is the API server's: by name, and the first default counts.
    pub fn set_ranges<'a>(&mut self, ranges: impl Iterator<Item = &'a LimitRange>) {
        let mut ranges: Vec<&LimitRange> = ranges.collect();
        ranges.sort_by_key(|range| &range.metadata.name);
        self.containers.clear();
        for range in ranges {
            let namespace = range.metadata.namespace.clone().unwrap_or_default();
            for item in range.spec.limits.iter().filter(|item| item.kind == "Container") {
                let both = (item.default.clone(), item.default_request.clone());
                self.containers.entry(namespace.clone()).or_default().push(both);
            }
        }
    }

    /// Replaces those of all RuntimeClasses.
    pub fn set_classes<'a>(&mut self, classes: impl Iterator<Item = &'a RuntimeClass>) {
        let entry = |class: &RuntimeClass| {
            (class.metadata.name.clone().unwrap_or_default(), class.overhead.pod_fixed.clone())
        };
        self.overheads = classes.map(entry).filter(|(_, overhead)| !overhead.is_empty()).collect();
    }

    /// What a pod of this template will ask for in this namespace.
    pub fn applied<'a>(
        &self,
        namespace: &str,
        runtime_class: Option<&str>,
        written: &'a PodResources,
    ) -> Cow<'a, PodResources> {
        let overhead = runtime_class.and_then(|name| self.overheads.get(name));
        let overhead = overhead.filter(|_| written.overhead.is_empty());
        let ranges = self.containers.get(namespace);
        if overhead.is_none() && ranges.is_none() {
            return Cow::Borrowed(written);
        }
        let mut pod = written.clone();
        if let Some(overhead) = overhead {
            pod.overhead.clone_from(overhead);
        }
        for container in pod.init_containers.iter_mut().chain(&mut pod.containers) {
            let resources = &mut container.resources;
            // A limit stands in for a request before any LimitRange is asked.
            fill(&mut resources.requests, &resources.limits);
            for (limits, requests) in ranges.into_iter().flatten() {
                fill(&mut resources.limits, limits);
                fill(&mut resources.requests, requests);
            }
        }
        Cow::Owned(pod)
    }
}

fn fill(amounts: &mut Amounts, defaults: &Amounts) {
    for (resource, amount) in defaults {
        amounts.entry(resource.clone()).or_insert_with(|| amount.clone());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn defaults_and_overhead_are_counted_where_nothing_is_written() {
        let range = json!({ "metadata": { "name": "r", "namespace": "team" }, "spec": { "limits": [
            { "type": "Container", "default": { "cpu": "4" }, "defaultRequest": { "cpu": "3" } },
            { "type": "Pod", "max": { "cpu": "9" } },
        ]}});
        let class = json!({ "metadata": { "name": "kata" }, "overhead": { "podFixed": { "cpu": "250m" } } });
        let mut defaults = PodDefaults::default();
        defaults.set_ranges([serde_json::from_value(range).unwrap()].iter());
        defaults.set_classes([serde_json::from_value(class).unwrap()].iter());
        let container = |resources: Value| json!({ "containers": [{ "resources": resources }] });
        for (namespace, class, pod, cpu) in [
            ("team", None, container(json!({})), Some(3000)),
            ("team", None, container(json!({ "requests": { "cpu": 1 } })), Some(1000)),
            ("team", None, container(json!({ "limits": { "cpu": 2 } })), Some(2000)),
            ("team", Some("kata"), container(json!({})), Some(3250)),
            ("other", Some("kata"), container(json!({ "limits": { "cpu": 2 } })), Some(2250)),
            ("other", Some("unknown"), container(json!({})), None),
        ] {
            let written: PodResources = serde_json::from_value(pod.clone()).unwrap();
            let requests = defaults.applied(namespace, class, &written).effective_requests().unwrap();
            let given = requests.get(ResourceName::CPU).copied();
            assert_eq!(given, cpu, "{namespace} {class:?} {pod}");
        }
    }
}
