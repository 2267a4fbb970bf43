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

/// What containers hold of one resource by the kubelet's word: namespace, pod and container, to GPU indices.
pub type Held = BTreeMap<(String, String, String), BTreeSet<u32>>;

/// The wishes for one resource that are still open, in the order in which the kubelet is likely to ask: older pods
/// first, then by UID, then by container; last those of containers that hold somebody else's.
///
/// The kubelet may have given one pod's choice to another that looked the same. Then the other's choice is the first
/// one's: so a wish is closed when any container holds just that, and stays open although its own container holds
/// devices, if those were somebody else's wish.
pub fn wishes(pods: &[PendingPod], resource: &str, held: &Held) -> Vec<Wish> {
    let mut ordered: Vec<&PendingPod> = pods.iter().collect();
    ordered.sort_by(|a, b| (a.created, &a.uid).cmp(&(b.created, &b.uid)));
    let mut all = Vec::new();
    for pod in ordered {
        for container in &pod.containers {
            let chosen = pod.chosen.get(container).and_then(|resources| resources.get(resource));
            let Some(indices) = chosen.filter(|list| !list.is_empty()) else { continue };
            let key = (pod.name.0.clone(), pod.name.1.clone(), container.clone());
            let wish = Wish {
                pod: pod.uid.clone(),
                container: container.clone(),
                indices: indices.iter().copied().collect(),
            };
            all.push((held.get(&key), wish));
        }
    }
    let fulfilled: BTreeSet<&BTreeSet<u32>> = held.values().collect();
    let is_wished = |set: &BTreeSet<u32>| all.iter().any(|(_, wish)| wish.indices == *set);
    let mut open: Vec<_> = all
        .iter()
        .filter(|(own, wish)| !fulfilled.contains(&wish.indices) && own.is_none_or(is_wished))
        .collect();
    open.sort_by_key(|(own, _)| own.is_some());
    open.into_iter().map(|(_, wish)| wish.clone()).collect()
}

/// The devices that open wishes still wait for, so that others are given different ones. A wish that cannot be fulfilled
/// any more reserves nothing.
pub fn awaited(wishes: &[Wish], available: &BTreeSet<u32>) -> BTreeSet<u32> {
    let possible = wishes.iter().filter(|wish| wish.indices.is_subset(available));
    possible.flat_map(|wish| wish.indices.iter().copied()).collect()
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
    use proptest::prelude::*;

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

    fn held(entries: &[(&str, &str, &[u32])]) -> Held {
        let key = |pod: &str, container: &str| ("ns".to_owned(), pod.to_owned(), container.to_owned());
        entries.iter().map(|(pod, container, list)| (key(pod, container), set(list))).collect()
    }

    fn none() -> Held {
        Held::new()
    }

    #[test]
    fn wishes_come_in_the_kubelets_order_without_what_is_fulfilled() {
        let pods =
            [pod("young", 20, &[("main", &[6])]), pod("old", 10, &[("init", &[0]), ("main", &[1, 2])])];
        let listed = |held: &Held| -> Vec<String> {
            let wishes = wishes(&pods, GPU, held);
            wishes.iter().map(|wish| format!("{}/{}", wish.pod, wish.container)).collect()
        };
        assert_eq!(listed(&none()), ["uid-old/init", "uid-old/main", "uid-young/main"]);
        assert_eq!(listed(&held(&[("old", "init", &[0])])), ["uid-old/main", "uid-young/main"], "fulfilled");
        let swapped = held(&[("old", "init", &[6])]);
        assert_eq!(
            listed(&swapped),
            ["uid-old/main", "uid-old/init"],
            "it holds the young one's, which has its"
        );
        assert_eq!(listed(&held(&[("old", "init", &[7])])), ["uid-old/main", "uid-young/main"], "given up");
        assert_eq!(wishes(&pods, "example.com/fpga", &none()), []);
    }

    #[test]
    fn a_call_is_for_the_first_wish_it_can_be_for() {
        let pods = [
            pod("a", 1, &[("main", &[0, 1])]),
            pod("b", 2, &[("main", &[2])]),
            pod("c", 3, &[("main", &[4, 5])]),
        ];
        let wishes = wishes(&pods, GPU, &none());
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
        assert_eq!(
            awaited(&wishes, &set(&[1, 2, 4, 5])),
            set(&[2, 4, 5]),
            "the first one cannot be fulfilled"
        );
    }

    proptest! {
        /// Whoever is admitted when: every group that was chosen is given, and to a container of its size.
        #[test]
        fn the_multiset_of_groups_is_kept(order in Just((0..6usize).collect::<Vec<_>>()).prop_shuffle()) {
            let groups: [&[u32]; 6] = [&[0, 5], &[1], &[2, 7], &[3, 4], &[6], &[8]];
            let pods: Vec<PendingPod> =
                groups.iter().enumerate().map(|(at, group)| pod(&format!("p{at}"), 1, &[("main", group)])).collect();
            let mut held = none();
            let mut available: BTreeSet<u32> = (0..10).collect();
            for at in order {
                let open = wishes(&pods, GPU, &held);
                let wish = choose(&open, &available, &BTreeSet::new(), groups[at].len()).unwrap();
                available = available.difference(&wish.indices).copied().collect();
                held.insert(("ns".to_owned(), format!("p{at}"), "main".to_owned()), wish.indices.clone());
            }
            let given: BTreeSet<_> = held.into_values().collect();
            prop_assert_eq!(given, groups.iter().map(|group| set(group)).collect::<BTreeSet<_>>());
        }
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
