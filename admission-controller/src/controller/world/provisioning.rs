//! What is known of requests for nodes.

use std::collections::{BTreeMap, BTreeSet};

use crds::view::admission_check::AdmissionCheck;
use crds::view::provisioning::{ProvisioningRequest, ProvisioningRequestConfig};
use crds::view::workload::Workload;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kit::watch::Change;
use quota_engine::{CheckName, Uid};

use super::{Delta, Store, Unit, World, controller_of};
use crate::{input, provisioning};

/// Requests with their settings.
#[derive(Default)]
pub(super) struct Provisioning {
    configs: Store<ProvisioningRequestConfig>,
    requests: Store<ProvisioningRequest>,
    by_workload: BTreeMap<Uid, BTreeSet<Uid>>,
    /// Whether the API server has the kind.
    are_served: bool,
}

impl Provisioning {
    pub(super) fn is_synced(&self) -> bool {
        self.configs.is_synced() && self.requests.is_synced()
    }
}

impl World {
    pub(super) fn take_provisioning_config(&mut self, change: Change<ProvisioningRequestConfig>) {
        if !self.provisioning.configs.take(change).is_empty() {
            self.asking_checks_dirty();
        }
    }

    fn asking_checks_dirty(&mut self) {
        let ours = self.checks.iter().filter(|check| provisioning::is_ours(check));
        let names: Vec<CheckName> =
            ours.map(|check| check.metadata.name.as_deref().unwrap_or_default().into()).collect();
        for name in names {
            self.users_of_check_dirty(&name);
            self.dirty.insert(Unit::Check(name));
        }
    }

    pub(super) fn take_provisioning_request(&mut self, change: Change<ProvisioningRequest>) {
        if let Change::Synced { as_of } = &change
            && std::mem::replace(&mut self.provisioning.are_served, as_of.is_some()) != as_of.is_some()
        {
            self.asking_checks_dirty();
        }
        for delta in self.provisioning.requests.take(change) {
            self.provisioning_request_changed(delta);
        }
    }

    /// Takes the answer to a creation.
    pub(in crate::controller) fn take_request_answer(&mut self, view: ProvisioningRequest) {
        if let Some(uid) = self.provisioning.requests.upsert(view) {
            self.provisioning_request_changed(Delta::Upsert(uid));
        }
    }

    /// It was deleted: from now on it is one that goes, though a finalizer may hold it, and the watch may tell of that late.
    pub(in crate::controller) fn request_deleted(&mut self, uid: &Uid, now: Timestamp) {
        if let Some(view) = self.provisioning.requests.get_mut(uid) {
            view.metadata.deletion_timestamp = Some(Time(now));
        }
    }

    fn provisioning_request_changed(&mut self, delta: Delta<ProvisioningRequest>) {
        let (uid, owner, gone) = match &delta {
            Delta::Upsert(uid) => {
                let Some(view) = self.provisioning.requests.get(uid) else { return };
                (uid.clone(), controller_of(&view.metadata).cloned(), false)
            }
            Delta::Gone(view) => (input::uid(&view.metadata), controller_of(&view.metadata).cloned(), true),
        };
        let Some(owner) = owner.filter(|owner| owner.kind == "Workload") else { return };
        let owner = Uid::from(owner.uid.as_str());
        let known = self.provisioning.by_workload.entry(owner.clone()).or_default();
        if gone {
            known.remove(&uid);
        } else {
            known.insert(uid);
        }
        if known.is_empty() {
            self.provisioning.by_workload.remove(&owner);
        }
        self.dirty.extend(self.unit_of_workload(&owner));
    }

    /// Whether nodes can be asked for at all.
    pub(in crate::controller) fn serves_requests(&self) -> bool {
        self.provisioning.are_served
    }

    /// The requests that were made for a Workload, by uid, without those that go.
    pub(in crate::controller) fn requests_of(&self, workload: &Workload) -> Vec<&ProvisioningRequest> {
        let uids = self.provisioning.by_workload.get(&input::uid(&workload.metadata));
        let requests = uids.into_iter().flatten().filter_map(|uid| self.provisioning.requests.get(uid));
        let stays = |request: &&ProvisioningRequest| {
            let (metadata, namespace) = (&request.metadata, &workload.metadata.namespace);
            metadata.deletion_timestamp.is_none() && metadata.namespace == *namespace
        };
        requests.filter(stays).collect()
    }

    /// The settings of a check that asks for nodes.
    pub(in crate::controller) fn provisioning_config(
        &self,
        check: &AdmissionCheck,
    ) -> Result<&ProvisioningRequestConfig, String> {
        let name = provisioning::config_name(check)?;
        let mut configs = self.provisioning.configs.iter();
        let found = configs.find(|config| config.metadata.name.as_deref() == Some(name));
        found.ok_or_else(|| format!("ProvisioningRequestConfig {name} does not exist; create it"))
    }

    /// Workloads with quota that have to pass a check are looked at.
    pub(super) fn users_of_check_dirty(&mut self, name: &CheckName) {
        self.workloads_dirty(|kept| kept.cluster_queue().is_some() && kept.has_check(name.as_str()));
    }
}
