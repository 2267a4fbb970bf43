//! From views of API objects to what grouping and the engine need.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crds::api::trireme::v1alpha1::{GpuHealth, GpuLinkKind};
use crds::names::{kueue, trireme, volcano};
use crds::view;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use model::resources::{self, ResourceList, ResourceName};
use placement_engine::{
    Device, DeviceChoice, Event, Hold, HostPort, Link, NodeInfo, PodInfo, PodPhase, PodRules, PodUid,
    Unsupported,
};

use super::grant::Grant;
use super::{GangOwner, Key, PodRecord, Together, WorkloadRecord};

pub(super) fn key_of(metadata: &ObjectMeta) -> Key {
    let text = |text: &Option<String>| Arc::from(text.as_deref().unwrap_or_default());
    (text(&metadata.namespace), text(&metadata.name))
}

pub(super) fn created_ms(metadata: &ObjectMeta) -> i64 {
    metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_millisecond())
}

/// The uid of the owner that controls the object.
pub(super) fn controller_of(metadata: &ObjectMeta) -> Option<Arc<str>> {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str().into())
}

/// What the engine needs of a Node. Amounts that cannot be read count as none.
pub fn node_info(node: &view::Node) -> NodeInfo {
    let allocatable = node.status.allocatable.iter().filter_map(|(name, written)| {
        let amount = name.amount(&written.quantity().ok()?)?;
        Some((name.clone(), amount))
    });
    NodeInfo {
        name: key_of(&node.metadata).1,
        labels: node.metadata.labels.clone().unwrap_or_default(),
        taints: node.spec.taints.clone(),
        unschedulable: node.spec.unschedulable,
        ready: node.is_ready(),
        allocatable: allocatable.collect(),
    }
}

/// What the engine needs of a GpuNode.
pub fn device_events(node: &view::GpuNodeDevices) -> Event {
    let devices = node.status.devices.iter().map(|device| Device {
        index: device.index,
        healthy: device.health == GpuHealth::Healthy,
        links: device
            .links
            .iter()
            .map(|link| Link { to: link.to, weight: weight(link.kind, link.count) })
            .collect(),
    });
    Event::DevicesApplied { node: key_of(&node.metadata).1, devices: devices.collect() }
}

/// Any NVLink beats any path over the bus; among those fewer bridges are better (`nvidia-smi topo -m`).
fn weight(kind: GpuLinkKind, count: u32) -> u32 {
    match kind {
        GpuLinkKind::NvLink => count.saturating_mul(100),
        GpuLinkKind::Pix => 50,
        GpuLinkKind::Pxb => 40,
        GpuLinkKind::Phb => 30,
        GpuLinkKind::Node => 20,
        GpuLinkKind::Sys => 10,
    }
}

pub(super) fn pod_record(pod: &view::Pod, schedulers: &BTreeSet<String>) -> PodRecord {
    let meta = &pod.metadata;
    let (namespace, name) = key_of(meta);
    let empty = BTreeMap::new();
    let labels = meta.labels.as_ref().unwrap_or(&empty);
    let annotations = meta.annotations.as_ref().unwrap_or(&empty);
    let group = [volcano::GROUP_NAME, volcano::VOLCANO_GROUP_NAME]
        .iter()
        .find_map(|key| annotations.get(*key).filter(|name| !name.is_empty()))
        .map(|name| (namespace.clone(), Arc::from(name.as_str())));
    let workload_name =
        annotations.get(kueue::WORKLOAD).map(|name| (namespace.clone(), Arc::from(name.as_str())));
    let workload_version = annotations.get(trireme::WORKLOAD_VERSION).and_then(|text| text.parse().ok());
    let released = [kueue::PODSET, kueue::CLUSTER_QUEUE_NAME];
    let marked = workload_name.is_some()
        || workload_version.is_some()
        || released.iter().any(|label| labels.contains_key(*label));
    let pod_sets =
        [kueue::PODSET, "training.kubeflow.org/replica-type", "jobset.sigs.k8s.io/replicatedjob-name"];
    PodRecord {
        info: pod_info(pod, namespace, name, annotations),
        resource_version: meta.resource_version.clone().unwrap_or_default(),
        conditions: pod.status.conditions.clone(),
        running: pod.status.phase == "Running",
        ours: schedulers.contains(&pod.spec.scheduler_name),
        created_ms: created_ms(meta),
        group,
        owner: controller_of(meta),
        workload_name,
        workload_version: workload_version.unwrap_or(0),
        marked,
        pod_sets: pod_sets.iter().filter_map(|key| labels.get(*key)).cloned().collect(),
    }
}

fn pod_info(
    pod: &view::Pod,
    namespace: Arc<str>,
    name: Arc<str>,
    annotations: &BTreeMap<String, String>,
) -> PodInfo {
    let spec = &pod.spec;
    let (requests, problem) = match spec.pod_resources().effective_requests() {
        Ok(requests) => (requests, None),
        Err(error) => (ResourceList::new(), Some(Hold::Invalid { problem: format!("spec: {error}").into() })),
    };
    let phase = phase(pod);
    PodInfo {
        uid: PodUid::new(pod.metadata.uid.clone().unwrap_or_default()),
        namespace,
        name,
        gang: None,
        node: (!spec.node_name.is_empty()).then(|| Arc::from(spec.node_name.as_str())),
        phase,
        gated: !spec.scheduling_gates.is_empty(),
        deleting: pod.metadata.deletion_timestamp.is_some(),
        has_controller: controller_of(&pod.metadata).is_some(),
        priority: spec.priority.unwrap_or(0),
        requests,
        rules: rules(spec),
        devices_asked: devices_asked(spec),
        devices: annotations.get(trireme::DEVICES).map(|text| read_devices(text)).unwrap_or_default(),
        hold: problem
            .or_else(|| unsupported(spec).or_else(|| other_group(pod, annotations)).map(Hold::Unsupported)),
        rejection: (phase == PodPhase::Rejected).then(|| rejection(&pod.status)),
        role: annotations.get(volcano::TASK_SPEC).map(|role| Arc::from(role.as_str())),
    }
}

/// `Failed` by the kubelet's admission means that the pod never ran there. Its message says so (`rejectPod` in
/// `pkg/kubelet/kubelet.go`), and nearly always its reason (`pkg/kubelet/lifecycle/predicate.go`,
/// `pkg/kubelet/cm/admission/errors.go`). One that was ended before it had a node did not run either.
fn phase(pod: &view::Pod) -> PodPhase {
    let rejections = [
        crds::reasons::pod::UNEXPECTED_ADMISSION_ERROR,
        "TopologyAffinityError",
        "SMTAlignmentError",
        "NodeAffinity",
        "NodeName",
        "NodePorts",
        "TaintToleration",
        "InvalidNodeInfo",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "PodOSNotSupported",
    ];
    let reason = pod.status.reason.as_str();
    let rejected = || {
        pod.spec.node_name.is_empty()
            || reason.starts_with("OutOf")
            || rejections.contains(&reason)
            || pod.status.message.starts_with("Pod was rejected")
    };
    match pod.status.phase.as_str() {
        "Succeeded" => PodPhase::Succeeded,
        "Failed" if rejected() => PodPhase::Rejected,
        "Failed" => PodPhase::Failed,
        _ => PodPhase::Active,
    }
}

fn rejection(status: &view::PodStatus) -> Arc<str> {
    let texts = [status.reason.as_str(), status.message.as_str()];
    let texts: Vec<&str> = texts.into_iter().filter(|text| !text.is_empty()).collect();
    texts.join(": ").into()
}

/// A gang of an API that is not read: taken for a single pod, its gang would start in parts.
fn other_group(pod: &view::Pod, annotations: &BTreeMap<String, String>) -> Option<Unsupported> {
    let named = |text: Option<&String>| text.is_some_and(|text| !text.is_empty());
    if named(annotations.get(volcano::GROUP_NAME)) || named(annotations.get(volcano::VOLCANO_GROUP_NAME)) {
        return None;
    }
    if !pod.spec.scheduling_group.pod_group_name.is_empty() {
        return Some(Unsupported::SchedulingGroup);
    }
    let labels = pod.metadata.labels.as_ref();
    if named(labels.and_then(|labels| labels.get(crds::names::coscheduling::POD_GROUP))) {
        return Some(Unsupported::CoschedulingGroup);
    }
    named(annotations.get(crds::names::kai::POD_GROUP_NAME)).then_some(Unsupported::KaiGroup)
}

fn rules(spec: &view::PodSpec) -> PodRules {
    // An init container's port is free again when the others start, unless it is a sidecar (kube-scheduler's rule).
    let sidecars = spec.init_containers.iter().filter(|container| container.restart_policy == "Always");
    let containers = spec.containers.iter().chain(sidecars);
    let mut host_ports: Vec<HostPort> = containers
        .flat_map(|container| &container.ports)
        .filter(|port| port.host_port != 0)
        .map(|port| HostPort {
            protocol: if port.protocol.is_empty() { "TCP".to_owned() } else { port.protocol.clone() },
            ip: port.host_ip.clone(),
            port: port.host_port,
        })
        .collect();
    host_ports.sort();
    host_ports.dedup();
    PodRules {
        node_selector: spec.node_selector.clone(),
        node_affinity: spec.affinity.node_affinity.required.clone(),
        tolerations: spec.tolerations.clone(),
        host_ports,
    }
}

fn unsupported(spec: &view::PodSpec) -> Option<Unsupported> {
    if !spec.resource_claims.is_empty() {
        return Some(Unsupported::ResourceClaims);
    }
    if !spec.affinity.pod_affinity.required.is_empty() {
        return Some(Unsupported::PodAffinity);
    }
    if !spec.affinity.pod_anti_affinity.required.is_empty() {
        return Some(Unsupported::PodAntiAffinity);
    }
    let claims =
        |volume: &view::Volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some();
    if spec.volumes.iter().any(claims) {
        return Some(Unsupported::PersistentVolumeClaim);
    }
    // An unknown policy may be as strict: fail closed.
    let strict =
        |constraint: &view::TopologySpreadConstraint| constraint.when_unsatisfiable != "ScheduleAnyway";
    spec.topology_spread_constraints.iter().any(strict).then_some(Unsupported::TopologySpread)
}

fn devices_asked(spec: &view::PodSpec) -> BTreeMap<String, ResourceList> {
    let gpu = ResourceName::from(crds::names::nvidia::GPU);
    let asked = spec.containers.iter().filter_map(|container| {
        let amount = *container.resources.effective().ok()?.get(&gpu)?;
        (amount > 0).then(|| (container.name.clone(), [(gpu.clone(), amount)].into()))
    });
    asked.collect()
}

/// The annotation `trireme.dev/devices`; what cannot be read names no devices.
fn read_devices(text: &str) -> DeviceChoice {
    serde_json::from_str(text).unwrap_or_default()
}

pub(super) fn workload_record(workload: &view::WorkloadPlacement) -> WorkloadRecord {
    let meta = &workload.metadata;
    let owners = meta.owner_references.as_deref().unwrap_or_default();
    let controllers: Vec<Arc<str>> = owners
        .iter()
        .filter(|owner| owner.controller == Some(true))
        .map(|owner| owner.uid.as_str().into())
        .collect();
    let owners = match controllers.is_empty() {
        true => owners.iter().map(|owner| owner.uid.as_str().into()).collect(),
        false => controllers,
    };
    let admission = workload.status.admission.as_ref();
    let assigned = |name: &str| {
        admission.and_then(|admission| admission.pod_set_assignments.iter().find(|one| one.name == name))
    };
    let grants = workload.spec.pod_sets.iter().map(|set| {
        let assigned = assigned(&set.name);
        let count = assigned.and_then(|one| one.count).unwrap_or(set.count);
        let places = assigned.and_then(|one| one.topology_assignment.as_ref());
        Grant {
            pod_set: set.name.clone(),
            count,
            // What was granted stays written when the slice of an elastic job shrinks.
            together: places.map_or(count, |places| places.pods().min(count)).min(set.count),
            usage: assigned.and_then(|one| resources::amounts(&one.resource_usage).ok()).unwrap_or_default(),
        }
    });
    WorkloadRecord {
        key: key_of(meta),
        version: meta.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX),
        owners,
        created_ms: created_ms(meta),
        admitted: workload.has(crds::reasons::workload::ADMITTED)
            && admission.is_some()
            && !workload.has(crds::reasons::workload::FINISHED),
        finished: workload.has(crds::reasons::workload::FINISHED),
        grants: grants.collect(),
        starts: match meta.annotations.as_ref().and_then(|all| all.get(trireme::GANG)).map(String::as_str) {
            Some(trireme::GANG_OF_POD_SET) => Together::PodSet,
            Some(trireme::GANG_OF_POD) => Together::Nothing,
            _ => Together::All,
        },
    }
}

pub(super) fn workload_owner(key: &Key, uid: &str) -> GangOwner {
    GangOwner {
        group: kueue::GROUP.to_owned(),
        version: "v1beta2".to_owned(),
        kind: "Workload".to_owned(),
        key: key.clone(),
        uid: uid.to_owned(),
        disagreement: None,
    }
}

pub(super) fn group_owner(key: &Key, uid: &str) -> GangOwner {
    GangOwner {
        group: volcano::GROUP.to_owned(),
        version: "v1beta1".to_owned(),
        kind: "PodGroup".to_owned(),
        key: key.clone(),
        uid: uid.to_owned(),
        disagreement: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(body: serde_json::Value) -> view::Pod {
        serde_json::from_value(body).unwrap()
    }

    /// They are let go when others have ended.
    #[test]
    fn pods_that_were_given_no_places_do_not_start_with_the_others() {
        let places = serde_json::json!({ "levels": ["kubernetes.io/hostname"], "slices": [
            { "domainCount": 1, "valuesPerLevel": [], "podCounts": { "universal": 2 } },
            { "domainCount": 2, "valuesPerLevel": [], "podCounts": { "individual": [1, 1] } },
        ]});
        for (places, together) in [(places, 4), (serde_json::Value::Null, 5)] {
            let workload = serde_json::json!({
                "metadata": { "name": "w", "namespace": "default" },
                "spec": { "podSets": [{ "name": "main", "count": 6 }] },
                "status": { "admission": { "podSetAssignments": [
                    { "name": "main", "count": 5, "topologyAssignment": places },
                ]}},
            });
            let record = workload_record(&serde_json::from_value(workload).unwrap());
            assert_eq!((record.grants[0].count, record.grants[0].together), (5, together));
        }
    }

    /// It stays whole with the pods that it has left.
    #[test]
    fn of_a_slice_that_shrank_as_many_pods_start_together_as_it_has_now() {
        for (count, together) in [(4, 4), (3, 3), (6, 4)] {
            let workload = serde_json::json!({
                "metadata": { "name": "w", "namespace": "default" },
                "spec": { "podSets": [{ "name": "main", "count": count }] },
                "status": { "admission": { "podSetAssignments": [{ "name": "main", "count": 4 }] } },
            });
            let record = workload_record(&serde_json::from_value(workload).unwrap());
            assert_eq!((record.grants[0].count, record.grants[0].together), (4, together));
        }
    }

    #[test]
    fn phases() {
        for (phase_text, reason, message, expected) in [
            ("Pending", "", "", PodPhase::Active),
            ("Running", "", "", PodPhase::Active),
            ("Unknown", "NodeLost", "", PodPhase::Active),
            ("Succeeded", "", "", PodPhase::Succeeded),
            ("Failed", "", "", PodPhase::Failed),
            ("Failed", "Evicted", "The node was low on resource: memory.", PodPhase::Failed),
            (
                "Failed",
                "Evicted",
                "Pod was rejected: The node had condition: [DiskPressure].",
                PodPhase::Rejected,
            ),
            ("Failed", "NodeShutdown", "Pod was rejected: the node is shutting down", PodPhase::Rejected),
            ("Failed", "OutOfcpu", "", PodPhase::Rejected),
            ("Failed", "OutOfnvidia.com/gpu", "", PodPhase::Rejected),
            ("Failed", "UnexpectedAdmissionError", "", PodPhase::Rejected),
            ("Failed", "TopologyAffinityError", "", PodPhase::Rejected),
        ] {
            let status = serde_json::json!({ "phase": phase_text, "reason": reason, "message": message });
            let pod = pod(serde_json::json!({ "spec": { "nodeName": "node-1" }, "status": status }));
            assert_eq!(phase(&pod), expected, "{status}");
        }
        // Its replacement must be planned like a first member, not join those that stand (seed 713903).
        let ended_unbound = pod(serde_json::json!({ "status": { "phase": "Failed" } }));
        assert_eq!(phase(&ended_unbound), PodPhase::Rejected);
    }

    #[test]
    fn a_host_port_of_an_init_container_is_free_again_when_it_ends() {
        let ports = |port: u16| serde_json::json!([{ "containerPort": port, "hostPort": port }]);
        let pod = pod(serde_json::json!({ "spec": {
            "initContainers": [{ "name": "i", "ports": ports(1) }, { "name": "s", "restartPolicy": "Always", "ports": ports(2) }],
            "containers": [{ "name": "c", "ports": ports(3) }] } }));
        let claimed: Vec<u16> = rules(&pod.spec).host_ports.iter().map(|port| port.port).collect();
        assert_eq!(claimed, [2, 3]);
    }
}
