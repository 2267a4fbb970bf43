//! The Node object: made when the kubelet starts, written when something about it changed, never otherwise.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::resources::ResourceName;
use serde_json::{Map, Value, json};

use super::admit::NodeFacts;
use super::devices::{Amounts, Millis};
use super::pod_status::rfc3339;
use super::{Inner, lock};
use crate::{ApiError, GroupResource, Part};

/// Changes that come within this time are one write: a plugin that restarts makes two at least.
const COALESCE: Duration = Duration::from_millis(100);
/// How long to wait after a refused write.
const RETRY: Duration = Duration::from_secs(1);

pub(super) fn nodes() -> GroupResource {
    GroupResource::core("nodes")
}

/// Keeps the Node object as it should be.
pub(super) async fn keep(kubelet: Arc<Inner>) {
    let mut written = write(&kubelet).await;
    loop {
        let expiry = kubelet.disk().devices.next_expiry();
        let changed = kubelet.node_changed.notified();
        if written.is_err() {
            tokio::time::sleep(RETRY).await;
        } else {
            tokio::select! {
                biased;
                () = changed => {}
                () = until(&kubelet, expiry) => {}
            }
            tokio::time::sleep(COALESCE).await;
        }
        written = write(&kubelet).await;
    }
}

async fn until(kubelet: &Inner, expiry: Option<Millis>) {
    match expiry.map(|at| u64::try_from(at.saturating_sub(kubelet.now())).unwrap_or(0)) {
        Some(left) => tokio::time::sleep(Duration::from_millis(left)).await,
        None => std::future::pending().await,
    }
}

/// One write if anything differs.
async fn write(kubelet: &Inner) -> Result<(), ApiError> {
    let (spec, now) = (&kubelet.spec, kubelet.now());
    let node = match kubelet.store.get(&nodes(), "", &spec.name) {
        Some(node) => node,
        None => {
            let devices = kubelet.disk().devices.amounts(now);
            let mut node = object(kubelet);
            node["status"] = status(kubelet, &Value::Null, &devices, *lock(&kubelet.ready), now);
            kubelet.store.create(&nodes(), node).await?
        }
    };
    let devices = kubelet.disk().devices.amounts(now);
    let ready = *lock(&kubelet.ready);
    let wanted = status(kubelet, &node.value()["status"], &devices, ready, now);
    if node.value()["status"] == wanted {
        return Ok(());
    }
    let change = |value: &mut Value| {
        value["status"] = status(kubelet, &value["status"], &devices, ready, now);
        Ok(())
    };
    kubelet.store.update(&nodes(), "", &spec.name, Part::Status, change).await.map(|_| ())
}

fn object(kubelet: &Inner) -> Value {
    let spec = &kubelet.spec;
    let mut labels = BTreeMap::from([
        ("kubernetes.io/hostname", spec.name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
    ]);
    labels.extend(spec.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())));
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": spec.name, "labels": labels },
        "spec": { "providerID": format!("sim://{}", spec.name) },
    })
}

fn status(
    kubelet: &Inner,
    old: &Value,
    devices: &BTreeMap<ResourceName, Amounts>,
    ready: bool,
    now: Millis,
) -> Value {
    let spec = &kubelet.spec;
    let base = [
        (ResourceName::CPU, spec.cpu_millis),
        (ResourceName::MEMORY, spec.memory_bytes),
        (ResourceName::PODS, spec.pods),
    ];
    let all = |of: fn(&Amounts) -> usize, key: &str| -> Value {
        // Extended resources that somebody else put there are somebody else's.
        let mut amounts = old[key].as_object().cloned().unwrap_or_default();
        for (name, amount) in base {
            let quantity = ResourceName::new(name).quantity(amount);
            amounts.insert(name.into(), quantity.to_string().into());
        }
        for (name, amount) in devices {
            amounts.insert(name.as_str().into(), of(amount).to_string().into());
        }
        Value::Object(amounts)
    };
    let mut status = old.as_object().cloned().unwrap_or_default();
    status.insert("capacity".into(), all(|amounts| amounts.capacity, "capacity"));
    status.insert("allocatable".into(), all(|amounts| amounts.allocatable, "allocatable"));
    status.insert("conditions".into(), conditions(&old["conditions"], ready, now));
    let addresses = json!([
        { "type": "InternalIP", "address": spec.host_ip() },
        { "type": "Hostname", "address": spec.name },
    ]);
    status.insert("addresses".into(), addresses);
    status.insert("nodeInfo".into(), info(spec));
    Value::Object(status)
}

fn info(spec: &super::NodeSpec) -> Value {
    json!({
        "architecture": "amd64",
        "bootID": "",
        "containerRuntimeVersion": "sim://1",
        "kernelVersion": "sim",
        "kubeProxyVersion": "",
        "kubeletVersion": "v1.36.3",
        "machineID": spec.name,
        "operatingSystem": "linux",
        "osImage": "sim",
        "systemUUID": spec.name,
    })
}

/// Heartbeat times are those of the last transition: a quiet node writes nothing.
fn conditions(old: &Value, ready: bool, now: Millis) -> Value {
    const OWNED: [&str; 4] = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"];
    let old = old.as_array().map(Vec::as_slice).unwrap_or_default();
    let ready = if ready {
        ("True", "KubeletReady", "kubelet is posting ready status")
    } else {
        ("False", "KubeletNotReady", "the node was made not ready")
    };
    let wanted = [
        (
            "MemoryPressure",
            ("False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ),
        ("DiskPressure", ("False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure")),
        ("PIDPressure", ("False", "KubeletHasSufficientPID", "kubelet has sufficient PID available")),
        ("Ready", ready),
    ];
    let mut merged: Vec<Value> = wanted
        .into_iter()
        .map(|(kind, (status, reason, message))| {
            let before = old.iter().find(|one| one["type"] == kind && one["status"] == status);
            let since =
                before.map_or_else(|| Value::from(rfc3339(now)), |one| one["lastTransitionTime"].clone());
            json!({
                "type": kind, "status": status, "reason": reason, "message": message,
                "lastTransitionTime": since, "lastHeartbeatTime": since,
            })
        })
        .collect();
    let foreign = old.iter().filter(|one| one["type"].as_str().is_none_or(|kind| !OWNED.contains(&kind)));
    merged.extend(foreign.cloned());
    merged.into()
}

/// The node as admission sees it: labels and taints as they are now, amounts as the kubelet itself counts them.
pub(super) fn facts(kubelet: &Inner) -> NodeFacts {
    let spec = &kubelet.spec;
    let node = kubelet.store.get(&nodes(), "", &spec.name);
    let empty = Value::Object(Map::new());
    let value = node.as_ref().map_or(&empty, |node| node.value());
    let strings = |value: &Value| -> BTreeMap<String, String> {
        let entries = value.as_object().into_iter().flatten();
        entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
    };
    let taints = value["spec"]["taints"].as_array().into_iter().flatten();
    let taints = taints.filter_map(|taint| serde::Deserialize::deserialize(taint).ok()).collect();
    let mut allocatable: model::resources::ResourceList = strings(&value["status"]["allocatable"])
        .into_iter()
        .filter_map(|(name, amount)| {
            let name = ResourceName::new(name);
            Some((name.clone(), name.amount(&amount.parse().ok()?)?))
        })
        .collect();
    let own = [
        (ResourceName::CPU, spec.cpu_millis),
        (ResourceName::MEMORY, spec.memory_bytes),
        (ResourceName::PODS, spec.pods),
    ];
    allocatable.extend(own.map(|(name, amount)| (ResourceName::new(name), amount)));
    let devices = kubelet.disk().devices.amounts(kubelet.now());
    let counted = devices.into_iter();
    allocatable.extend(counted.map(|(name, of)| (name, i64::try_from(of.allocatable).unwrap_or(i64::MAX))));
    NodeFacts { name: spec.name.clone(), labels: strings(&value["metadata"]["labels"]), taints, allocatable }
}
