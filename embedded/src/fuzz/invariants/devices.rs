//! Layer 3: who holds which device, seen at the machines rather than through the API.

use std::collections::{BTreeMap, BTreeSet};

use crate::fuzz::world::{GRACE, Key};

/// What a running container was given, and what it was told.
#[derive(Clone, Debug)]
pub struct Holding {
    /// The pod.
    pub pod: Key,
    /// When the container started, in milliseconds of virtual time.
    pub started: i64,
    /// The devices that the kubelet gave it.
    pub given: BTreeSet<String>,
    /// The devices named in its environment.
    pub told: BTreeSet<String>,
}

/// The rule that is broken by the containers that run now, with what was seen. `ill` has the devices that are broken,
/// and since when.
pub(super) fn broken_rule(
    holdings: &[Holding],
    ill: &BTreeMap<String, i64>,
) -> Option<(&'static str, String)> {
    let mut holders: BTreeMap<&str, &Key> = BTreeMap::new();
    for holding in holdings {
        if holding.given != holding.told {
            let what = format!("{:?} holds {:?} and was told {:?}", holding.pod, holding.given, holding.told);
            return Some(("containers are told of the devices they hold", what));
        }
        for device in &holding.given {
            if let Some(other) = holders.insert(device, &holding.pod) {
                let what = format!("{device} is held by {other:?} and {:?}", holding.pod);
                return Some(("no device is held twice", what));
            }
            // The kubelet needs a moment to learn of it.
            if ill.get(device).is_some_and(|since| since + GRACE < holding.started) {
                let what = format!("{device} was broken long before {:?} was given it", holding.pod);
                return Some(("no unhealthy device is handed out", what));
            }
        }
    }
    None
}
