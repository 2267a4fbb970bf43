//! Pod, as far as placement depends on it.

use std::collections::BTreeMap;

use model::node::{NodeSelector, Toleration};
use model::pod::{ContainerResources, PodResources, Requirements};
use model::quantity::Written;
use model::resources::ResourceName;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::meta::view;

view! {
    /// A Pod.
    pub struct Pod("Pod", "", "v1", "pods", NamespaceResourceScope) {
        /// What was wished.
        #[serde(deserialize_with = "model::null_as_default")]
        pub spec: PodSpec,
        /// What became of it.
        #[serde(deserialize_with = "model::null_as_default")]
        pub status: PodStatus,
    }
}

/// `spec` of a Pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The node it is bound to.
    #[serde(deserialize_with = "model::null_as_default")]
    pub node_name: String,
    /// Who is to place it.
    #[serde(deserialize_with = "model::null_as_default")]
    pub scheduler_name: String,
    /// Its priority, resolved from its class.
    pub priority: Option<i32>,
    /// Labels its node must have.
    #[serde(deserialize_with = "model::null_as_default")]
    pub node_selector: BTreeMap<String, String>,
    /// Its affinities.
    #[serde(deserialize_with = "model::null_as_default")]
    pub affinity: Affinity,
    /// Taints it ignores.
    #[serde(deserialize_with = "model::null_as_default")]
    pub tolerations: Vec<Toleration>,
    /// Closed gates; while there are any it must not be placed.
    #[serde(deserialize_with = "model::null_as_default")]
    pub scheduling_gates: Vec<IgnoredAny>,
    /// Its gang in Kubernetes' own API (KEP-4671).
    #[serde(deserialize_with = "model::null_as_default")]
    pub scheduling_group: SchedulingGroup,
    /// Claims of dynamic resource allocation.
    #[serde(deserialize_with = "model::null_as_default")]
    pub resource_claims: Vec<IgnoredAny>,
    /// Its volumes.
    #[serde(deserialize_with = "model::null_as_default")]
    pub volumes: Vec<Volume>,
    /// Its spread constraints.
    #[serde(deserialize_with = "model::null_as_default")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// Run before the containers.
    #[serde(deserialize_with = "model::null_as_default")]
    pub init_containers: Vec<Container>,
    /// Run together.
    #[serde(deserialize_with = "model::null_as_default")]
    pub containers: Vec<Container>,
    /// Added by the runtime class.
    #[serde(deserialize_with = "model::null_as_default")]
    pub overhead: BTreeMap<ResourceName, Written>,
    /// Budget of the pod as a whole.
    pub resources: Option<Requirements>,
}

/// `spec.schedulingGroup`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulingGroup {
    /// The `scheduling.k8s.io` PodGroup it is a member of.
    #[serde(deserialize_with = "model::null_as_default")]
    pub pod_group_name: String,
}

/// `spec.affinity`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    /// To nodes.
    #[serde(deserialize_with = "model::null_as_default")]
    pub node_affinity: NodeAffinity,
    /// To pods.
    #[serde(deserialize_with = "model::null_as_default")]
    pub pod_affinity: PodAffinity,
    /// Away from pods.
    #[serde(deserialize_with = "model::null_as_default")]
    pub pod_anti_affinity: PodAffinity,
}

/// `spec.affinity.nodeAffinity`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NodeAffinity {
    /// Which nodes it must run on.
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Option<NodeSelector>,
}

/// `spec.affinity.podAffinity` and `podAntiAffinity`: whether there are required terms.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PodAffinity {
    /// The required terms.
    #[serde(
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "model::null_as_default"
    )]
    pub required: Vec<IgnoredAny>,
}

/// A volume: whether it needs a claim.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Volume {
    /// Backed by a claim that exists.
    pub persistent_volume_claim: Option<IgnoredAny>,
    /// Backed by a claim made for the pod.
    pub ephemeral: Option<IgnoredAny>,
}

/// A spread constraint: whether it must hold.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologySpreadConstraint {
    /// `DoNotSchedule` or `ScheduleAnyway`.
    #[serde(deserialize_with = "model::null_as_default")]
    pub when_unsatisfiable: String,
}

/// A container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Its name.
    #[serde(deserialize_with = "model::null_as_default")]
    pub name: String,
    /// `Always` makes an init container a sidecar.
    #[serde(deserialize_with = "model::null_as_default")]
    pub restart_policy: String,
    /// Requests and limits.
    #[serde(deserialize_with = "model::null_as_default")]
    pub resources: Requirements,
    /// Its ports.
    #[serde(deserialize_with = "model::null_as_default")]
    pub ports: Vec<ContainerPort>,
}

/// A container's port.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPort {
    /// The node's port it claims; 0: none.
    #[serde(deserialize_with = "model::null_as_default")]
    pub host_port: u16,
    /// The node's address it claims it on.
    #[serde(rename = "hostIP", deserialize_with = "model::null_as_default")]
    pub host_ip: String,
    /// `TCP` if empty.
    #[serde(deserialize_with = "model::null_as_default")]
    pub protocol: String,
}

/// `status` of a Pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    #[serde(deserialize_with = "model::null_as_default")]
    pub phase: String,
    /// Why it is in that phase, when the kubelet says.
    #[serde(deserialize_with = "model::null_as_default")]
    pub reason: String,
    /// The same in words.
    #[serde(deserialize_with = "model::null_as_default")]
    pub message: String,
    /// Its conditions as they are: one is changed, the others are written back untouched.
    #[serde(deserialize_with = "model::null_as_default")]
    pub conditions: Vec<serde_json::Value>,
}

impl PodSpec {
    /// What it asks for, in the shape that sums it up.
    pub fn pod_resources(&self) -> PodResources {
        let container = |container: &Container| ContainerResources {
            name: container.name.clone(),
            restart_policy: container.restart_policy.clone(),
            resources: container.resources.clone(),
        };
        PodResources {
            init_containers: self.init_containers.iter().map(container).collect(),
            containers: self.containers.iter().map(container).collect(),
            overhead: self.overhead.clone(),
            resources: self.resources.clone(),
        }
    }
}
