//! The nodes as columns of integers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::resources::{ResourceList, ResourceName};

use crate::devices::{self, Device, DeviceChoice};
use crate::event::NodeInfo;
use crate::ids::{NodeIndex, ResourceIndex};
use crate::reason::NodeReason;
use crate::shape::{HostPort, Shape, is_extended};

/// More than any node has, in base units. Amounts are cut to it, and what nodes have to half of it, so that a number a
/// user made up fits nowhere and two thousand of them on one node still do not overflow a sum.
pub(crate) const AMOUNT_LIMIT: i64 = 1 << 52;

/// All nodes. `allocatable[resource][node]` and `used[resource][node]` are in base units.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nodes {
    by_name: BTreeMap<Arc<str>, NodeIndex>,
    rows: Vec<Row>,
    unused: Vec<NodeIndex>,
    names: Vec<ResourceName>,
    by_resource: BTreeMap<ResourceName, ResourceIndex>,
    allocatable: Vec<Vec<i64>>,
    used: Vec<Vec<i64>>,
    /// Sum of `allocatable` over all nodes.
    total: Vec<i128>,
    version: u64,
}

#[derive(Clone, Debug, Default)]
struct Row {
    info: NodeInfo,
    /// The node object exists. A row without one stands for pods bound to a node not (or no longer) there.
    present: bool,
    version: u64,
    pods: usize,
    /// Claimed host ports, with how many claim them.
    ports: BTreeMap<HostPort, usize>,
    devices: Vec<Device>,
    /// Devices known to be in use, with how many use them.
    devices_used: BTreeMap<u32, usize>,
    accelerated: bool,
}

impl Nodes {
    /// The row of this name, made if there is none.
    pub(crate) fn row_of(&mut self, name: &Arc<str>) -> NodeIndex {
        if let Some(&index) = self.by_name.get(name) {
            return index;
        }
        let row = Row { info: NodeInfo { name: name.clone(), ..NodeInfo::default() }, ..Row::default() };
        let index = match self.unused.pop() {
            Some(index) => {
                self.rows[index.0] = row;
                index
            }
            None => {
                self.rows.push(row);
                for column in self.allocatable.iter_mut().chain(&mut self.used) {
                    column.push(0);
                }
                NodeIndex(self.rows.len() - 1)
            }
        };
        self.touch(index);
        self.by_name.insert(name.clone(), index);
        index
    }

    /// Takes over a node object. `false`: nothing that matters changed.
    pub(crate) fn apply(&mut self, info: NodeInfo) -> bool {
        let index = self.row_of(&info.name);
        if self.rows[index.0].present && self.rows[index.0].info == info {
            return false;
        }
        self.set_allocatable(index, &info.allocatable);
        let row = &mut self.rows[index.0];
        row.accelerated = info.allocatable.iter().any(|(name, amount)| *amount > 0 && is_extended(name));
        row.info = info;
        row.present = true;
        self.touch(index);
        true
    }

    /// The node object is gone.
    pub(crate) fn delete(&mut self, name: &str) {
        let Some(&index) = self.by_name.get(name) else { return };
        self.set_allocatable(index, &ResourceList::new());
        let row = &mut self.rows[index.0];
        row.present = false;
        row.info = NodeInfo { name: row.info.name.clone(), ..NodeInfo::default() };
        self.touch(index);
        self.drop_if_unused(index);
    }

    /// Takes over the devices of a node.
    pub(crate) fn set_devices(&mut self, name: &Arc<str>, devices: Vec<Device>) {
        let index = self.row_of(name);
        self.rows[index.0].devices = devices;
        self.drop_if_unused(index);
    }

    /// Adds a pod's demands, ports and devices to a node.
    pub(crate) fn add(&mut self, index: NodeIndex, load: &Load) {
        for &(resource, amount) in &load.demands {
            let used = &mut self.used[resource.0][index.0];
            *used = used.saturating_add(amount);
        }
        let row = &mut self.rows[index.0];
        row.pods += 1;
        for port in &load.ports {
            *row.ports.entry(port.clone()).or_default() += 1;
        }
        for device in devices::named(&load.devices) {
            *row.devices_used.entry(device).or_default() += 1;
        }
    }

    /// Takes a pod's demands, ports and devices from a node.
    pub(crate) fn remove(&mut self, index: NodeIndex, load: &Load) {
        for &(resource, amount) in &load.demands {
            let used = &mut self.used[resource.0][index.0];
            *used = used.saturating_sub(amount);
        }
        let row = &mut self.rows[index.0];
        row.pods -= 1;
        for port in &load.ports {
            release(&mut row.ports, port);
        }
        for device in devices::named(&load.devices) {
            release(&mut row.devices_used, &device);
        }
        self.drop_if_unused(index);
    }

    /// Adds `count` pods of a shape for a trial; the same with a negative count takes them away again.
    pub(crate) fn shift(&mut self, index: NodeIndex, shape: &Shape, count: i64) {
        for &(resource, amount) in &shape.demands {
            let used = &mut self.used[resource.0][index.0];
            *used = used.saturating_add(amount.saturating_mul(count));
        }
        let row = &mut self.rows[index.0];
        for port in &shape.rules.host_ports {
            if count > 0 {
                *row.ports.entry(port.clone()).or_default() += 1;
            } else {
                release(&mut row.ports, port);
            }
        }
    }

    /// How many more pods of the shape the free capacity takes, ports included.
    pub(crate) fn slots(&self, index: NodeIndex, shape: &Shape) -> i64 {
        let mut slots = i64::MAX;
        for &(resource, amount) in &shape.demands {
            slots = slots.min(self.free(index, resource).max(0) / amount);
        }
        if !shape.rules.host_ports.is_empty() {
            slots = slots.min(i64::from(!self.port_taken(index, shape)));
        }
        slots
    }

    /// Why the free capacity takes no further pod of the shape.
    pub(crate) fn capacity_reason(&self, index: NodeIndex, shape: &Shape) -> Option<NodeReason> {
        if self.port_taken(index, shape) {
            return Some(NodeReason::HostPort);
        }
        let lacking = shape
            .demands
            .iter()
            .filter(|(resource, amount)| self.free(index, *resource) < *amount)
            .map(|(resource, _)| self.resource(*resource));
        lacking.min_by_key(|name| (name.as_str() != ResourceName::PODS, *name)).map(|name| {
            if name.as_str() == ResourceName::PODS {
                NodeReason::TooManyPods
            } else {
                NodeReason::Insufficient(name.clone())
            }
        })
    }

    fn port_taken(&self, index: NodeIndex, shape: &Shape) -> bool {
        let taken = &self.rows[index.0].ports;
        shape.rules.host_ports.iter().any(|port| taken.keys().any(|other| other.conflicts(port)))
    }

    /// What is left of a resource; negative when others over-committed it.
    pub(crate) fn free(&self, index: NodeIndex, resource: ResourceIndex) -> i64 {
        self.allocatable[resource.0][index.0].saturating_sub(self.used[resource.0][index.0])
    }

    pub(crate) fn total(&self, resource: ResourceIndex) -> i128 {
        self.total[resource.0]
    }

    pub(crate) fn resource(&self, resource: ResourceIndex) -> &ResourceName {
        &self.names[resource.0]
    }

    /// Whether the node has resources outside Kubernetes' own.
    pub(crate) fn accelerated(&self, index: NodeIndex) -> bool {
        self.rows[index.0].accelerated
    }

    /// Grows with every change of the node object.
    pub(crate) fn version(&self, index: NodeIndex) -> u64 {
        self.rows[index.0].version
    }

    pub(crate) fn info(&self, index: NodeIndex) -> &NodeInfo {
        &self.rows[index.0].info
    }

    pub(crate) fn name(&self, index: NodeIndex) -> &Arc<str> {
        &self.rows[index.0].info.name
    }

    /// The nodes whose object exists, by name.
    pub(crate) fn present(&self) -> impl Iterator<Item = NodeIndex> + '_ {
        self.by_name.values().copied().filter(|index| self.rows[index.0].present)
    }

    /// The row of a node whose object exists.
    pub(crate) fn find_present(&self, name: &str) -> Option<NodeIndex> {
        self.by_name.get(name).copied().filter(|index| self.rows[index.0].present)
    }

    /// Devices of the node that are free, for these containers.
    pub(crate) fn choose_devices(
        &self,
        index: NodeIndex,

        asked: &BTreeMap<String, ResourceList>,
    ) -> DeviceChoice {
        let row = &self.rows[index.0];
        let used: BTreeSet<u32> = row.devices_used.keys().copied().collect();
        devices::choose(&row.devices, &used, asked)
    }

    /// Requests as column and amount, without zeros, with one pod.
    pub(crate) fn demands(&mut self, requests: &ResourceList) -> Vec<(ResourceIndex, i64)> {
        let pods = self.column(&ResourceName::from(ResourceName::PODS));
        let mut demands: Vec<_> = requests
            .iter()
            .filter(|(name, amount)| **amount > 0 && name.as_str() != ResourceName::PODS)
            .map(|(name, amount)| (self.column(name), (*amount).min(AMOUNT_LIMIT)))
            .collect();
        demands.push((pods, 1));
        demands
    }

    fn column(&mut self, name: &ResourceName) -> ResourceIndex {
        if let Some(&index) = self.by_resource.get(name) {
            return index;
        }
        let index = ResourceIndex(self.names.len());
        self.names.push(name.clone());
        self.by_resource.insert(name.clone(), index);
        self.allocatable.push(vec![0; self.rows.len()]);
        self.used.push(vec![0; self.rows.len()]);
        self.total.push(0);
        index
    }

    fn set_allocatable(&mut self, index: NodeIndex, allocatable: &ResourceList) {
        for name in allocatable.keys() {
            self.column(name);
        }
        for (resource, name) in self.names.iter().enumerate() {
            let new = allocatable.get(name).copied().unwrap_or(0).clamp(0, AMOUNT_LIMIT / 2);
            let old = std::mem::replace(&mut self.allocatable[resource][index.0], new);
            self.total[resource] += i128::from(new) - i128::from(old);
        }
    }

    fn touch(&mut self, index: NodeIndex) {
        self.version += 1;
        self.rows[index.0].version = self.version;
    }

    fn drop_if_unused(&mut self, index: NodeIndex) {
        let row = &self.rows[index.0];
        if !row.present && row.pods == 0 && row.devices.is_empty() {
            self.by_name.remove(&row.info.name);
            self.unused.push(index);
        }
    }

    /// The sums by name, for a recount: node, resource, used.
    pub(crate) fn usage(&self) -> BTreeMap<(Arc<str>, ResourceName), i64> {
        let mut usage = BTreeMap::new();
        for &index in self.by_name.values() {
            for (resource, name) in self.names.iter().enumerate() {
                let used = self.used[resource][index.0];
                if used != 0 {
                    usage.insert((self.name(index).clone(), name.clone()), used);
                }
            }
        }
        usage
    }
}

/// What a pod takes from the node it is on.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Load {
    pub(crate) demands: Vec<(ResourceIndex, i64)>,
    pub(crate) ports: Vec<HostPort>,
    pub(crate) devices: DeviceChoice,
}

fn release<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}
