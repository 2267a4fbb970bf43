//! What the API shows of the story: one look, and questions about it.

use std::collections::{BTreeMap, BTreeSet};

use kube::api::{Api, ListParams, LogParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::Value;

/// One look at the API: every object of the kinds the story is about.
#[derive(Debug, Default)]
pub(super) struct Seen {
    workloads: Vec<DynamicObject>,
    jobs: Vec<DynamicObject>,
    pods: Vec<DynamicObject>,
    plans: Vec<DynamicObject>,
    nodes: Vec<DynamicObject>,
    gpu_nodes: Vec<DynamicObject>,
}

/// What a running pod was told of its GPUs.
#[derive(Debug)]
pub(super) struct Told {
    /// Namespace and name.
    pub(super) pod: String,
    /// The node it runs on.
    pub(super) node: String,
    /// How many GPUs its containers may use together.
    pub(super) limit: i64,
    /// The GPUs in its environment.
    pub(super) devices: Vec<String>,
}

/// Where a job is on its way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// The QuotaReserved condition: status, reason, message.
    pub(super) quota: Option<(bool, String, String)>,
    /// The reason of the Evicted condition, while it is true.
    pub(super) evicted: Option<String>,
    /// The Preempted condition's reason and message, while it is true.
    pub(super) preempted: Option<(String, String)>,
    /// What it was granted, as `8 nvidia.com/gpu of gpu-a100`.
    pub(super) granted: Vec<String>,
    /// Whether layer 1 let it go.
    pub(super) admitted: bool,
    /// How the Workload finished.
    pub(super) finished: Option<String>,
    /// How many pods exist, are bound, are running.
    pub(super) pods: (usize, usize, usize),
    /// The nodes its pods are bound to.
    pub(super) nodes: BTreeSet<String>,
    /// The phase of its plan.
    pub(super) plan: Option<String>,
    /// Why its pods are not bound.
    pub(super) unscheduled: Option<String>,
}

impl Seen {
    /// Looks.
    pub(super) async fn look(client: &kube::Client) -> Result<Self, kube::Error> {
        Ok(Self {
            workloads: list(client, "kueue.x-k8s.io", "v1beta2", "Workload").await?,
            jobs: list(client, "kubeflow.org", "v1", "PyTorchJob").await?,
            pods: list(client, "", "v1", "Pod").await?,
            plans: list(client, "trireme.dev", "v1alpha1", "GangPlacement").await?,
            nodes: list(client, "", "v1", "Node").await?,
            gpu_nodes: list(client, "trireme.dev", "v1alpha1", "GpuNode").await?,
        })
    }

    /// How many GPUs the nodes advertise, and their product.
    pub(super) fn gpus(&self) -> (i64, String) {
        let amount = |node: &DynamicObject| {
            text(&node.data, "/status/allocatable/nvidia.com~1gpu").parse::<i64>().unwrap_or_default()
        };
        let product =
            self.nodes.iter().find_map(|node| node.metadata.labels.as_ref()?.get("nvidia.com/gpu.product"));
        (self.nodes.iter().map(amount).sum(), product.cloned().unwrap_or_default())
    }

    /// Where the job of this name is.
    pub(super) fn standing(&self, namespace: &str, job: &str) -> Standing {
        let mut standing = Standing::default();
        let Some(owner) = self.jobs.iter().find(|one| is_named(one, namespace, job)) else { return standing };
        let owner_uid = owner.metadata.uid.clone().unwrap_or_default();
        if let Some(workload) = self.workloads.iter().find(|one| is_owned_by(one, &owner_uid)) {
            let condition = |kind: &str| condition(&workload.data, kind);
            standing.quota = condition("QuotaReserved")
                .map(|(status, reason, message)| (status, reason.into(), message.into()));
            standing.granted = granted(&workload.data);
            standing.admitted = condition("Admitted").is_some_and(|(status, ..)| status);
            standing.evicted =
                condition("Evicted").filter(|(status, ..)| *status).map(|(_, reason, _)| reason.into());
            standing.preempted = condition("Preempted")
                .filter(|(status, ..)| *status)
                .map(|(_, reason, message)| (reason.into(), message.into()));
            standing.finished =
                condition("Finished").filter(|(status, ..)| *status).map(|(_, reason, _)| reason.into());
        }
        for pod in self.pods.iter().filter(|pod| is_owned_by(pod, &owner_uid)) {
            if pod.metadata.deletion_timestamp.is_some() {
                continue;
            }
            standing.pods.0 += 1;
            let node = text(&pod.data, "/spec/nodeName");
            if node.is_empty() {
                standing.unscheduled =
                    condition(&pod.data, "PodScheduled").map(|(_, _, message)| message.to_owned());
            } else {
                standing.pods.1 += 1;
                standing.nodes.insert(node.to_owned());
            }
            standing.pods.2 += usize::from(text(&pod.data, "/status/phase") == "Running");
        }
        let plan = self.plans.iter().find(|plan| self.plans_for(plan, &owner_uid));
        standing.plan = plan.map(|plan| match text(&plan.data, "/status/phase") {
            "" => "Decided".to_owned(),
            phase => phase.to_owned(),
        });
        standing
    }

    /// Whether a plan places a pod of this job.
    fn plans_for(&self, plan: &DynamicObject, owner_uid: &str) -> bool {
        let planned: BTreeSet<&str> = plan
            .data
            .pointer("/spec/members")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|member| member["uid"].as_str())
            .collect();
        self.pods.iter().any(|pod| {
            is_owned_by(pod, owner_uid)
                && pod.metadata.uid.as_deref().is_some_and(|uid| planned.contains(uid))
        })
    }

    /// The UUIDs of the GPUs of every node, as its `GpuNode` lists them.
    pub(super) fn uuids(&self) -> BTreeMap<String, BTreeSet<String>> {
        let uuids = |node: &DynamicObject| {
            let devices = node.data.pointer("/status/devices").and_then(Value::as_array);
            devices.into_iter().flatten().map(|device| text(device, "/uuid").to_owned()).collect()
        };
        let named = |node: &DynamicObject| (node.metadata.name.clone().unwrap_or_default(), uuids(node));
        self.gpu_nodes.iter().map(named).collect()
    }

    /// What every running pod was told of its GPUs, as `kubectl logs` shows its environment.
    pub(super) async fn told_devices(&self, client: &kube::Client) -> Result<Vec<Told>, kube::Error> {
        let mut told = Vec::new();
        for pod in self.pods.iter().filter(|pod| text(&pod.data, "/status/phase") == "Running") {
            let (namespace, name) = (pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref());
            let (Some(namespace), Some(name)) = (namespace, name) else { continue };
            let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client.clone(), namespace);
            let environment = pods.logs(name, &LogParams::default()).await?;
            let devices = environment.lines().find_map(|line| line.strip_prefix("NVIDIA_VISIBLE_DEVICES="));
            let devices =
                devices.unwrap_or_default().split(',').filter(|id| !id.is_empty()).map(str::to_owned);
            told.push(Told {
                pod: format!("{namespace}/{name}"),
                node: text(&pod.data, "/spec/nodeName").to_owned(),
                limit: gpu_limit(&pod.data),
                devices: devices.collect(),
            });
        }
        Ok(told)
    }
}

async fn list(
    client: &kube::Client,
    group: &str,
    version: &str,
    kind: &str,
) -> Result<Vec<DynamicObject>, kube::Error> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Ok(Api::<DynamicObject>::all_with(client.clone(), &resource).list(&ListParams::default()).await?.items)
}

/// What a Workload's admission gives it, a line for every resource of every pod set.
fn granted(workload: &Value) -> Vec<String> {
    let pod_sets = workload.pointer("/status/admission/podSetAssignments").and_then(Value::as_array);
    let lines = pod_sets.into_iter().flatten().flat_map(|pod_set| {
        let flavors = pod_set["flavors"].as_object().into_iter().flatten();
        flavors.map(|(resource, flavor)| {
            let amount = pod_set["resourceUsage"][resource].as_str().unwrap_or("?");
            format!("{amount} {resource} of {}", flavor.as_str().unwrap_or("?"))
        })
    });
    lines.collect()
}

/// How many GPUs the containers of a pod may use together.
fn gpu_limit(pod: &Value) -> i64 {
    let containers = pod.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten();
    let limit = |container: &Value| text(container, "/resources/limits/nvidia.com~1gpu").parse::<i64>().ok();
    containers.filter_map(limit).sum()
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn is_named(object: &DynamicObject, namespace: &str, name: &str) -> bool {
    object.metadata.namespace.as_deref() == Some(namespace) && object.metadata.name.as_deref() == Some(name)
}

fn is_owned_by(object: &DynamicObject, uid: &str) -> bool {
    object.metadata.owner_references.iter().flatten().any(|owner| owner.uid == uid)
}

/// Status, reason and message of a condition.
fn condition<'a>(object: &'a Value, kind: &str) -> Option<(bool, &'a str, &'a str)> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    let found = conditions.iter().find(|condition| condition["type"] == kind)?;
    Some((found["status"] == "True", text(found, "/reason"), text(found, "/message")))
}
