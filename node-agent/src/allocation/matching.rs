//! Finding the pod a call is for. The kubelet does not say, and may call before the agent has seen the pod; so a call is
//! matched by resource, count and the pods bound here that still lack devices. What is promised is the multiset of device
//! groups per node and shape: which of two equal containers gets which group does not matter.

use std::collections::{BTreeMap, BTreeSet};

/// A pod bound to this node that a scheduler chose devices for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingPod {
    /// Namespace and name: how PodResources names it.
    pub name: (String, String),
    /// UID.
    pub uid: String,
    /// Creation, in seconds since the Unix epoch.
    pub created: i64,
    /// Containers in the order in which the kubelet starts them: init containers first.
    pub containers: Vec<String>,
    /// The value of `trireme.dev/devices`.
    pub chosen: BTreeMap<String, BTreeMap<String, Vec<u32>>>,
}

/// Devices that a scheduler chose for a container that has none yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wish {
    /// The pod's UID.
    pub pod: String,
    /// The container.
    pub container: String,
    /// GPU indices.
    pub indices: BTreeSet<u32>,
}

/// Reads the annotation `trireme.dev/devices`: `{"worker": {"nvidia.com/gpu": [0, 1]}}`.
///
/// # Errors
/// Says what is wrong with it; the pod then gets the agent's own choice.
pub fn parse_devices_annotation(text: &str) -> Result<BTreeMap<String, BTreeMap<String, Vec<u32>>>, String> {
    serde_json::from_str(text).map_err(|error| {
        format!("the annotation trireme.dev/devices is not of the form {{container: {{resource: [index]}}}}: {error}")
    })
}

/// What is wished for of one resource, in the order in which the kubelet is likely to ask: older pods first, then by UID,
/// then by container. `held` says which containers (namespace, pod, container) have devices already.
pub fn wishes(pods: &[PendingPod], resource: &str, held: &dyn Fn(&PendingPod, &str) -> bool) -> Vec<Wish> {
    let mut ordered: Vec<&PendingPod> = pods.iter().collect();
    ordered.sort_by(|a, b| (a.created, &a.uid).cmp(&(b.created, &b.uid)));
    let mut wishes = Vec::new();
    for pod in ordered {
        for container in &pod.containers {
            let chosen = pod.chosen.get(container).and_then(|resources| resources.get(resource));
            let Some(indices) = chosen.filter(|list| !list.is_empty()) else { continue };
            if !held(pod, container) {
                wishes.push(Wish {
                    pod: pod.uid.clone(),
                    container: container.clone(),
                    indices: indices.iter().copied().collect(),
                });
            }
        }
    }
    wishes
}

/// The first wish that a call for `size` of `available` with `must_include` can be for.
pub fn choose<'a>(
    wishes: &'a [Wish],
    available: &BTreeSet<u32>,
    must_include: &BTreeSet<u32>,
    size: usize,
) -> Option<&'a Wish> {
    wishes.iter().find(|wish| {
        wish.indices.len() == size
            && wish.indices.is_subset(available)
            && must_include.is_subset(&wish.indices)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: &str = "nvidia.com/gpu";

    fn pod(name: &str, created: i64, chosen: &[(&str, &[u32])]) -> PendingPod {
        PendingPod {
            name: ("ns".to_owned(), name.to_owned()),
            uid: format!("uid-{name}"),
            created,
            containers: chosen.iter().map(|(container, _)| (*container).to_owned()).collect(),
            chosen: chosen
                .iter()
                .map(|(container, list)| {
                    ((*container).to_owned(), BTreeMap::from([(GPU.to_owned(), list.to_vec())]))
                })
                .collect(),
        }
    }

    fn set(indices: &[u32]) -> BTreeSet<u32> {
        indices.iter().copied().collect()
    }

    #[test]
    fn wishes_come_in_the_kubelets_order_without_what_is_held() {
        let pods =
            [pod("young", 20, &[("main", &[6])]), pod("old", 10, &[("init", &[0]), ("main", &[1, 2])])];
        let listed = |held: &dyn Fn(&PendingPod, &str) -> bool| {
            let wishes = wishes(&pods, GPU, held);
            wishes.iter().map(|wish| (wish.pod.clone(), wish.container.clone())).collect::<Vec<_>>()
        };
        let entry = |pod: &str, container: &str| (format!("uid-{pod}"), container.to_owned());
        assert_eq!(
            listed(&|_, _| false),
            [entry("old", "init"), entry("old", "main"), entry("young", "main")]
        );
        let held = |pod: &PendingPod, container: &str| pod.name.1 == "old" && container == "init";
        assert_eq!(listed(&held), [entry("old", "main"), entry("young", "main")]);
        assert_eq!(wishes(&pods, "example.com/fpga", &|_, _| false), []);
    }

    #[test]
    fn a_call_is_for_the_first_wish_it_can_be_for() {
        let pods = [
            pod("a", 1, &[("main", &[0, 1])]),
            pod("b", 2, &[("main", &[2])]),
            pod("c", 3, &[("main", &[4, 5])]),
        ];
        let wishes = wishes(&pods, GPU, &|_, _| false);
        let ask = |available: &[u32], must: &[u32], size| {
            choose(&wishes, &set(available), &set(must), size).map(|wish| wish.pod.as_str())
        };
        let all = [0, 1, 2, 3, 4, 5];
        assert_eq!(ask(&all, &[], 2), Some("uid-a"));
        assert_eq!(ask(&all, &[], 1), Some("uid-b"));
        assert_eq!(ask(&all, &[4], 2), Some("uid-c"), "what must be included decides");
        assert_eq!(
            ask(&[1, 2, 3, 4, 5], &[], 2),
            Some("uid-c"),
            "a wish that is not available is passed over"
        );
        assert_eq!(ask(&all, &[], 3), None, "no wish of this size");
        assert_eq!(ask(&[0, 1, 3], &[3], 2), None);
    }

    #[test]
    fn equal_calls_consume_the_same_multiset_in_any_order() {
        let pods =
            [pod("a", 1, &[("m", &[0, 1])]), pod("b", 1, &[("m", &[2, 3])]), pod("c", 1, &[("m", &[6, 7])])];
        let mut available = set(&[0, 1, 2, 3, 4, 5, 6, 7]);
        let mut given = BTreeSet::new();
        for _ in 0..3 {
            let open = wishes(&pods, GPU, &|_, _| false);
            let wish = choose(&open, &available, &BTreeSet::new(), 2).unwrap();
            available = available.difference(&wish.indices).copied().collect();
            assert!(given.insert(wish.indices.clone()));
        }
        assert_eq!(given, BTreeSet::from([set(&[0, 1]), set(&[2, 3]), set(&[6, 7])]));
    }

    #[test]
    fn the_annotation() {
        let parsed = parse_devices_annotation(r#"{"worker": {"nvidia.com/gpu": [3, 1]}}"#).unwrap();
        assert_eq!(parsed["worker"][GPU], [3, 1]);
        for wrong in ["", "[]", r#"{"worker": [1]}"#, r#"{"worker": {"nvidia.com/gpu": [-1]}}"#] {
            assert!(parse_devices_annotation(wrong).unwrap_err().contains("trireme.dev/devices"), "{wrong}");
        }
    }
}
