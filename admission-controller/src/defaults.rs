//! What the API server adds to a pod when it is created, counted before it is: defaults of the namespace's LimitRanges and
//! the overhead of the pod's RuntimeClass. Without it a job would get less quota than its pods then ask for. And what it
//! refuses: see [`bounds`](crate::bounds).

use std::borrow::Cow;
use std::collections::BTreeMap;

use crds::view::limits::{LimitRange, LimitRangeItem, RuntimeClass};
use model::ResourceName;
use model::pod::{PodResources, Requirements};
use model::quantity::Written;

use crate::bounds::{self, Bounds, Violation};

type Amounts = BTreeMap<ResourceName, Written>;

/// What all LimitRanges of a namespace say of containers, or of pods.
#[derive(Debug, Default)]
struct Range {
    limits: Amounts,
    requests: Amounts,
    bounds: Bounds,
}

#[derive(Debug, Default)]
struct Ranges {
    container: Option<Range>,
    pod: Option<Range>,
}

/// Defaults and bounds by namespace, overhead by RuntimeClass.
#[derive(Debug, Default)]
pub struct PodDefaults {
    ranges: BTreeMap<String, Ranges>,
    overheads: BTreeMap<String, Amounts>,
}

impl Range {
    fn add(&mut self, item: &LimitRangeItem) {
        fill(&mut self.limits, &item.default);
        fill(&mut self.requests, &item.default_request);
        self.bounds.tighten(&item.max, &item.min);
    }

    /// Of devices and huge pages a limit is the request, and comes before every default: the API server takes no other pod.
    fn apply(&self, resources: &mut Requirements) {
        for (resource, limit) in
            resources.limits.iter().filter(|(resource, _)| resource.is_never_overcommitted())
        {
            resources.requests.entry(resource.clone()).or_insert_with(|| limit.clone());
        }
        fill(&mut resources.limits, &self.limits);
        fill(&mut resources.requests, &self.requests);
    }
}

impl PodDefaults {
    /// Replaces those of all LimitRanges. The order is the API server's: by name, and the first default counts.
    pub fn set_ranges<'a>(&mut self, ranges: impl Iterator<Item = &'a LimitRange>) {
        let mut ranges: Vec<&LimitRange> = ranges.collect();
        ranges.sort_by_key(|range| &range.metadata.name);
        self.ranges.clear();
        for range in ranges {
            let namespace = range.metadata.namespace.clone().unwrap_or_default();
            let known = self.ranges.entry(namespace).or_default();
            for item in &range.spec.limits {
                match item.kind.as_str() {
                    "Container" => known.container.get_or_insert_default().add(item),
                    "Pod" => known.pod.get_or_insert_default().add(item),
                    _ => {}
                }
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

    /// What a pod of this template will ask for in this namespace, in Kueue's order: a default request of a LimitRange
    /// comes before a limit that stands in for one. (The API server turns that round for a container that has a limit; so does this
    /// where the two must be equal.)
    pub fn applied<'a>(
        &self,
        namespace: &str,
        runtime_class: Option<&str>,
        written: &'a PodResources,
    ) -> Cow<'a, PodResources> {
        let overhead = runtime_class.and_then(|name| self.overheads.get(name));
        let overhead = overhead.filter(|_| written.overhead.is_empty());
        let ranges = self.ranges.get(namespace);
        if overhead.is_none() && ranges.is_none() && !all(written).any(lacks_requests) {
            return Cow::Borrowed(written);
        }
        let mut pod = written.clone();
        if let Some(overhead) = overhead {
            pod.overhead.clone_from(overhead);
        }
        if let Some(range) = ranges.and_then(|ranges| ranges.container.as_ref()) {
            let containers = pod.init_containers.iter_mut().chain(&mut pod.containers);
            containers.for_each(|container| range.apply(&mut container.resources));
        }
        if let (Some(range), Some(resources)) =
            (ranges.and_then(|ranges| ranges.pod.as_ref()), &mut pod.resources)
        {
            range.apply(resources);
        }
        let containers = pod.init_containers.iter_mut().chain(&mut pod.containers);
        for resources in containers.map(|container| &mut container.resources).chain(&mut pod.resources) {
            fill(&mut resources.requests, &resources.limits);
        }
        Cow::Owned(pod)
    }

    /// What of a pod that has its defaults will be refused in this namespace: requests above limits, and, where those are in
    /// order, what is outside its LimitRanges. `path` is the pod spec's.
    pub fn violations(&self, namespace: &str, pod: &PodResources, path: &str) -> Vec<Violation> {
        let mut found = bounds::above_limits(pod, path);
        if found.is_empty() {
            found = self.range_violations(namespace, pod, path);
        }
        found
    }

    /// What of a pod is outside the LimitRanges of this namespace.
    pub fn range_violations(&self, namespace: &str, pod: &PodResources, path: &str) -> Vec<Violation> {
        let Some(ranges) = self.ranges.get(namespace) else { return Vec::new() };
        let containers = ranges.container.iter().flat_map(|range| range.bounds.of_containers(pod, path));
        let pods = ranges.pod.iter().flat_map(|range| range.bounds.of_pod(pod, path));
        containers.chain(pods).collect()
    }
}

fn all(pod: &PodResources) -> impl Iterator<Item = &Requirements> {
    let containers = pod.init_containers.iter().chain(&pod.containers);
    containers.map(|container| &container.resources).chain(&pod.resources)
}

fn lacks_requests(resources: &Requirements) -> bool {
    resources.limits.keys().any(|resource| !resources.requests.contains_key(resource))
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
            { "type": "Container", "default": { "cpu": "4", "a.b/gpu": 0 },
              "defaultRequest": { "cpu": "3", "a.b/gpu": 0 } },
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
            ("team", None, container(json!({ "limits": { "cpu": 4 } })), Some(3000)),
            ("other", None, container(json!({ "limits": { "cpu": 2 } })), Some(2000)),
            ("team", Some("kata"), container(json!({})), Some(3250)),
            ("other", Some("kata"), container(json!({ "limits": { "cpu": 2 } })), Some(2250)),
            ("other", Some("unknown"), container(json!({})), None),
        ] {
            let written: PodResources = serde_json::from_value(pod.clone()).unwrap();
            let requests = defaults.applied(namespace, class, &written).effective_requests().unwrap();
            let given = requests.get(ResourceName::CPU).copied();
            assert_eq!(given, cpu, "{namespace} {class:?} {pod}");
        }
        let devices = container(json!({ "limits": { "a.b/gpu": 4 } }));
        let devices: PodResources = serde_json::from_value(devices).unwrap();
        let requests = defaults.applied("team", None, &devices).effective_requests().unwrap();
        assert_eq!(requests.get("a.b/gpu"), Some(&4), "nobody wrote that there are none");
    }
}
