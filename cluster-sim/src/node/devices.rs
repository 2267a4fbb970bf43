//! A kubelet's device manager: which devices there are, and who holds them. Pure: calls to plugins are made by the
//! caller, in the order [`DeviceManager::plan`] → GetPreferredAllocation → [`DeviceManager::choose`] → Allocate →
//! [`DeviceManager::keep`].
//!
//! Rules: `pkg/kubelet/cm/devicemanager` of Kubernetes.

use std::collections::{BTreeMap, BTreeSet};

use model::resources::ResourceName;
use proto::deviceplugin::{self, ContainerAllocateResponse};

use super::pod::PodUid;

/// Milliseconds since the Unix epoch.
pub(super) type Millis = i64;

/// One registration of a plugin for a resource. A later one replaces it, and then nothing it says counts any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Registration(u64);

/// Why devices could not be given; with the pod, it becomes an `UnexpectedAdmissionError`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DeviceError {
    /// The plugin is gone, or the kubelet restarted and the plugin has not come back yet.
    #[error("no healthy devices present; cannot allocate unhealthy devices {0}")]
    NoneHealthy(ResourceName),
    /// Others hold them.
    #[error("{resource}: {wanted} devices wanted, {free} free and healthy")]
    TooFew {
        /// The resource.
        resource: ResourceName,
        /// How many the container needs.
        wanted: usize,
        /// How many there are.
        free: usize,
    },
    /// A container that starts again, whose devices fell ill meanwhile.
    #[error("previously allocated devices are no longer healthy; cannot allocate unhealthy devices {0}")]
    HeldIsIll(ResourceName),
    /// The plugin refused or went away during the call.
    #[error("{resource}: the device plugin's {call} failed: {said}")]
    Plugin {
        /// The resource.
        resource: ResourceName,
        /// The name of the call.
        call: &'static str,
        /// The plugin's words.
        said: String,
    },
}

/// A device, as its plugin last described it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Device {
    healthy: bool,
    numa: Vec<i64>,
}

/// One resource and the plugin that serves it.
#[derive(Clone, Debug)]
struct Pool {
    registration: Registration,
    options: deviceplugin::DevicePluginOptions,
    /// Since when nobody serves it.
    ended: Option<Millis>,
    devices: BTreeMap<String, Device>,
}

/// What one container was given of one resource.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Given {
    /// The devices' ids.
    pub(super) ids: BTreeSet<String>,
    /// What the plugin answered to Allocate.
    pub(super) response: ContainerAllocateResponse,
}

/// A pod that holds devices.
#[derive(Clone, Debug, Default)]
struct Holder {
    containers: BTreeMap<String, BTreeMap<ResourceName, Given>>,
}

/// Capacity and allocatable of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amounts {
    /// All devices.
    pub(super) capacity: usize,
    /// The healthy ones.
    pub(super) allocatable: usize,
}

/// What is to be asked of the plugin before a container can have its devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Whom to ask.
    pub(super) registration: Registration,
    /// What to offer to GetPreferredAllocation, if the plugin serves it.
    pub(super) prefer: Option<Offer>,
    /// Free and healthy ids.
    free: BTreeSet<String>,
    /// Ids of the pod's finished init containers, which come first.
    again: BTreeSet<String>,
    /// How many the container needs.
    wanted: usize,
}

/// A question to GetPreferredAllocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    /// All ids that may be chosen.
    pub(super) available: Vec<String>,
    /// Those that are already decided.
    pub(super) must_include: Vec<String>,
    /// How many in all.
    pub(super) size: usize,
}

/// The device manager of one node. It survives a restart of the kubelet, as its checkpoint does.
#[derive(Clone, Debug, Default)]
pub(super) struct DeviceManager {
    pools: BTreeMap<ResourceName, Pool>,
    holders: BTreeMap<PodUid, Holder>,
    registrations: u64,
}

impl DeviceManager {
    /// A plugin registered. The newest one for a resource wins; its devices are unknown until its first list.
    pub(super) fn register(
        &mut self,
        resource: &ResourceName,
        options: deviceplugin::DevicePluginOptions,
    ) -> Registration {
        self.registrations += 1;
        let registration = Registration(self.registrations);
        let devices = self.pools.remove(resource).map(|pool| pool.devices).unwrap_or_default();
        self.pools.insert(resource.clone(), Pool { registration, options, ended: None, devices });
        registration
    }

    /// A plugin sent its complete list. Says whether capacity or allocatable changed by it.
    pub(super) fn list(
        &mut self,
        resource: &ResourceName,
        registration: Registration,
        listed: &[deviceplugin::Device],
    ) -> bool {
        let Some(pool) = self.pools.get_mut(resource).filter(|pool| pool.registration == registration) else {
            return false;
        };
        let devices: BTreeMap<_, _> = listed
            .iter()
            .map(|device| {
                let numa = device.topology.iter().flat_map(|t| &t.nodes).map(|node| node.id).collect();
                (device.id.clone(), Device { healthy: device.health == deviceplugin::HEALTHY, numa })
            })
            .collect();
        let before = amounts(&pool.devices);
        pool.devices = devices;
        before != amounts(&pool.devices)
    }

    /// A plugin's stream ended: all its devices are unhealthy from now on. Says whether this plugin still counted.
    pub(super) fn ended(&mut self, resource: &ResourceName, registration: Registration, now: Millis) -> bool {
        match self.pools.get_mut(resource) {
            Some(pool) if pool.registration == registration => {
                pool.ended.get_or_insert(now);
                for device in pool.devices.values_mut() {
                    device.healthy = false;
                }
                true
            }
            _ => false,
        }
    }

    /// The kubelet started again: what pods hold is known from the checkpoint, what devices exist is not.
    pub(super) fn restarted(&mut self, now: Millis) {
        for pool in self.pools.values_mut() {
            self.registrations += 1;
            pool.registration = Registration(self.registrations);
            pool.ended = Some(now);
            pool.devices.clear();
        }
    }

    /// Capacity and allocatable by resource. A resource whose plugin has been gone for the grace period stays, with 0.
    pub(super) fn amounts(&mut self, now: Millis) -> BTreeMap<ResourceName, Amounts> {
        for pool in self.pools.values_mut() {
            if pool.ended.is_some_and(|ended| now >= ended.saturating_add(grace())) {
                pool.devices.clear();
            }
        }
        self.pools.iter().map(|(resource, pool)| (resource.clone(), amounts(&pool.devices))).collect()
    }

    /// When the next grace period ends, if one is running.
    pub(super) fn next_expiry(&self) -> Option<Millis> {
        self.pools
            .values()
            .filter(|pool| !pool.devices.is_empty())
            .filter_map(|pool| pool.ended)
            .map(|ended| ended.saturating_add(grace()))
            .min()
    }

    /// What a container still needs of a resource. `None`: nothing, either because no plugin ever served it (a resource
    /// that others account for) or because the container holds it already.
    ///
    /// # Errors
    /// When it cannot be had.
    pub(super) fn plan(
        &self,
        pod: &PodUid,
        container: &str,
        resource: &ResourceName,
        wanted: usize,
        finished: &[&str],
    ) -> Result<Option<Plan>, DeviceError> {
        let Some(pool) = self.pools.get(resource) else { return Ok(None) };
        let healthy: BTreeSet<&String> =
            pool.devices.iter().filter(|(_, device)| device.healthy).map(|(id, _)| id).collect();
        if let Some(given) = self.given(pod, container).and_then(|given| given.get(resource)) {
            return match given.ids.iter().all(|id| healthy.contains(id)) {
                true => Ok(None),
                false => Err(DeviceError::HeldIsIll(resource.clone())),
            };
        }
        if healthy.is_empty() {
            return Err(DeviceError::NoneHealthy(resource.clone()));
        }
        let again: BTreeSet<String> = finished
            .iter()
            .filter_map(|init| self.given(pod, init)?.get(resource))
            .flat_map(|given| given.ids.iter().cloned())
            .filter(|id| healthy.contains(id) && !self.held_beside(pod, container, finished, resource, id))
            .collect();
        let free: BTreeSet<String> =
            healthy.into_iter().filter(|id| self.holder(resource, id).is_none()).cloned().collect();
        if again.len() + free.len() < wanted {
            let (resource, free) = (resource.clone(), again.len() + free.len());
            return Err(DeviceError::TooFew { resource, wanted, free });
        }
        let prefer = pool.options.get_preferred_allocation_available.then(|| Offer {
            available: again.union(&free).cloned().collect(),
            must_include: again.iter().take(wanted).cloned().collect(),
            size: wanted,
        });
        Ok(Some(Plan { registration: pool.registration, prefer, free, again, wanted }))
    }

    /// The devices for a plan, the plugin's preference first as far as it may be followed, then by id.
    pub(super) fn choose(&self, plan: &Plan, preferred: &[String]) -> BTreeSet<String> {
        let mut chosen: BTreeSet<String> = plan.again.iter().take(plan.wanted).cloned().collect();
        for id in preferred.iter().filter(|id| plan.free.contains(*id)).chain(&plan.free) {
            if chosen.len() >= plan.wanted {
                break;
            }
            chosen.insert(id.clone());
        }
        chosen
    }

    /// The container has its devices. Must follow [`DeviceManager::plan`] without another allocation between them.
    ///
    /// # Panics
    /// When another pod holds one of them: no device is ever given twice.
    pub(super) fn keep(&mut self, pod: &PodUid, container: &str, resource: &ResourceName, given: Given) {
        for id in &given.ids {
            if let Some(other) = self.holder(resource, id) {
                assert!(
                    other == pod,
                    "device {resource} {id} is held by pod {other} and was given to pod {pod}"
                );
            }
        }
        let holder = self.holders.entry(pod.clone()).or_default();
        holder.containers.entry(container.to_owned()).or_default().insert(resource.clone(), given);
    }

    /// The pod's containers have ended: what it held is free.
    pub(super) fn release(&mut self, pod: &PodUid) {
        self.holders.remove(pod);
    }

    /// What a container holds, by resource.
    pub(super) fn given(&self, pod: &PodUid, container: &str) -> Option<&BTreeMap<ResourceName, Given>> {
        self.holders.get(pod)?.containers.get(container)
    }

    /// Whether the plugin of this resource wants PreStartContainer.
    pub(super) fn wants_pre_start(&self, resource: &ResourceName) -> bool {
        self.pools.get(resource).is_some_and(|pool| pool.options.pre_start_required)
    }

    /// All devices of all resources with their NUMA nodes, the healthy ones only.
    pub(super) fn allocatable(&self) -> Vec<(ResourceName, String, Vec<i64>)> {
        let devices = self.pools.iter().flat_map(|(resource, pool)| {
            let healthy = pool.devices.iter().filter(|(_, device)| device.healthy);
            healthy.map(move |(id, device)| (resource.clone(), id.clone(), device.numa.clone()))
        });
        devices.collect()
    }

    /// The NUMA nodes of a device, empty when unknown.
    pub(super) fn numa(&self, resource: &ResourceName, id: &str) -> Vec<i64> {
        self.pools
            .get(resource)
            .and_then(|pool| pool.devices.get(id))
            .map(|device| device.numa.clone())
            .unwrap_or_default()
    }

    /// Who holds a device.
    pub(super) fn holder(&self, resource: &ResourceName, id: &str) -> Option<&PodUid> {
        let holds = |given: &BTreeMap<ResourceName, Given>| {
            given.get(resource).is_some_and(|given| given.ids.contains(id))
        };
        self.holders.iter().find(|(_, holder)| holder.containers.values().any(holds)).map(|(pod, _)| pod)
    }

    /// Whether a container of this pod that does not finish before `container` starts holds the device.
    fn held_beside(
        &self,
        pod: &PodUid,
        container: &str,
        finished: &[&str],
        resource: &ResourceName,
        id: &str,
    ) -> bool {
        self.holders.get(pod).into_iter().flat_map(|holder| &holder.containers).any(|(name, given)| {
            name != container
                && !finished.contains(&name.as_str())
                && given.get(resource).is_some_and(|given| given.ids.contains(id))
        })
    }
}

fn amounts(devices: &BTreeMap<String, Device>) -> Amounts {
    let allocatable = devices.values().filter(|device| device.healthy).count();
    Amounts { capacity: devices.len(), allocatable }
}

fn grace() -> Millis {
    Millis::try_from(deviceplugin::ENDPOINT_GRACE.as_millis()).unwrap_or(Millis::MAX)
}

#[cfg(test)]
mod tests;
