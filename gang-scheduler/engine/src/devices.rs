//! Which of a node's GPUs a container gets.

use std::collections::{BTreeMap, BTreeSet};

use model::resources::{ResourceList, ResourceName};

/// The resource whose units are the devices of a [`Device`] list: whole GPUs.
pub(crate) const DEVICE_RESOURCE: &str = "nvidia.com/gpu";

/// Per container and resource, the indices of the devices.
pub type DeviceChoice = BTreeMap<String, BTreeMap<ResourceName, Vec<u32>>>;

/// A device of a node, as its `GpuNode` lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Its index on the node.
    pub index: u32,
    /// Whether it may be handed out.
    pub healthy: bool,
    /// Its connections to other devices of the node.
    pub links: Vec<Link>,
}

/// A connection between two devices of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The other device's index.
    pub to: u32,
    /// How good it is; larger is better. Only the order matters.
    pub weight: u32,
}

/// The devices named in a choice.
pub(crate) fn named(choice: &DeviceChoice) -> impl Iterator<Item = u32> + '_ {
    choice.values().filter_map(|by_resource| by_resource.get(DEVICE_RESOURCE)).flatten().copied()
}

/// Chooses devices for each container that asks for any, out of those not in `used`.
///
/// Per container: the set grown from each free device by always taking the one best connected to those taken; among the
/// sets, the one with the best connections inside, then the one that cuts the fewest towards what stays free (so that
/// good sets stay whole), then the smallest indices. Containers that ask for most choose first.
///
/// Empty when the node's devices are not known, or too few of them are known to be free and healthy: then the node's
/// agent chooses.
pub(crate) fn choose(
    devices: &[Device],
    used: &BTreeSet<u32>,
    asked: &BTreeMap<String, ResourceList>,
) -> DeviceChoice {
    let mut free: BTreeSet<u32> = devices
        .iter()
        .filter(|device| device.healthy && !used.contains(&device.index))
        .map(|device| device.index)
        .collect();
    let mut containers: Vec<(usize, &String)> = asked
        .iter()
        .filter_map(|(name, list)| Some((usize::try_from(*list.get(DEVICE_RESOURCE)?).ok()?, name)))
        .filter(|(count, _)| *count > 0)
        .collect();
    containers.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    let links = Links::new(devices);
    let mut choice = DeviceChoice::new();
    for (count, name) in containers {
        let Some(set) = best_set(&links, &free, count) else { return DeviceChoice::new() };
        for index in &set {
            free.remove(index);
        }
        let by_resource = [(ResourceName::from(DEVICE_RESOURCE), set.into_iter().collect())].into();
        choice.insert(name.clone(), by_resource);
    }
    choice
}

struct Links(BTreeMap<(u32, u32), u64>);

impl Links {
    fn new(devices: &[Device]) -> Self {
        let pairs = devices.iter().flat_map(|device| {
            device.links.iter().map(|link| ((device.index, link.to), u64::from(link.weight)))
        });
        Self(pairs.collect())
    }

    fn weight(&self, from: u32, to: impl IntoIterator<Item = u32>) -> u64 {
        to.into_iter().map(|to| self.0.get(&(from, to)).copied().unwrap_or(0)).sum()
    }
}

fn best_set(links: &Links, free: &BTreeSet<u32>, count: usize) -> Option<BTreeSet<u32>> {
    if free.len() < count {
        return None;
    }
    let sets = free.iter().map(|&seed| {
        let mut set = BTreeSet::from([seed]);
        let mut inside = 0;
        while set.len() < count {
            let next = free.iter().filter(|index| !set.contains(index)).map(|&index| {
                let outside = free.iter().copied().filter(|other| !set.contains(other));
                (links.weight(index, set.iter().copied()), links.weight(index, outside), index)
            });
            let Some((gain, _, index)) =
                next.min_by_key(|&(gain, cut, index)| (std::cmp::Reverse(gain), cut, index))
            else {
                break;
            };
            inside += gain;
            set.insert(index);
        }
        let cut: u64 = set
            .iter()
            .map(|&index| links.weight(index, free.iter().copied().filter(|other| !set.contains(other))))
            .sum();
        (std::cmp::Reverse(inside), cut, set)
    });
    sets.min().map(|(_, _, set)| set)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Devices in pairs with a fast link inside a pair and a slow one between pairs.
    fn pairs(count: u32) -> Vec<Device> {
        (0..count)
            .map(|index| Device {
                index,
                healthy: true,
                links: (0..count)
                    .filter(|&to| to != index)
                    .map(|to| Link { to, weight: if to / 2 == index / 2 { 10 } else { 1 } })
                    .collect(),
            })
            .collect()
    }

    fn asked(count: i64) -> BTreeMap<String, ResourceList> {
        [("main".to_owned(), [(ResourceName::from(DEVICE_RESOURCE), count)].into())].into()
    }

    fn chosen(devices: &[Device], used: &[u32], count: i64) -> Vec<u32> {
        named(&choose(devices, &used.iter().copied().collect(), &asked(count))).collect()
    }

    #[test]
    fn tight_sets_are_taken_and_kept_whole() {
        let devices = pairs(4);
        assert_eq!(chosen(&devices, &[], 2), [0, 1]);
        assert_eq!(chosen(&devices, &[0], 2), [2, 3], "a whole pair beats two halves");
        assert_eq!(
            chosen(&devices, &[3], 1),
            [2],
            "one device is taken from the pair that is broken already"
        );
        assert_eq!(chosen(&devices, &[1, 2], 2), [0, 3]);
        assert_eq!(chosen(&devices, &[], 4), [0, 1, 2, 3]);
    }

    #[test]
    fn without_enough_known_devices_the_agent_chooses() {
        let mut devices = pairs(2);
        assert!(chosen(&devices, &[1], 2).is_empty());
        devices[0].healthy = false;
        assert!(chosen(&devices, &[], 2).is_empty());
        assert_eq!(chosen(&devices, &[], 1), [1]);
        assert!(chosen(&[], &[], 1).is_empty());
        assert!(choose(&devices, &BTreeSet::new(), &BTreeMap::new()).is_empty());
    }
}
