use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::object::{at, default_to, entry, items, object_mut, text};
use crate::resources::{Feature, Resource};

/// Sets what the server decides for a new object, and resets what its creator cannot set.
pub(crate) fn prepare_new(resource: &Resource, value: &mut Value) {
    let version = &resource.versions[resource.storage_version()];
    if version.status && !resource.has(Feature::StatusAtCreation) {
        object_mut(value).remove("status");
    }
    let id = &resource.id;
    if id.is("", "pods") {
        new_pod_status(value);
    } else if id.is("", "namespaces") {
        let name = text(value, &["metadata", "name"]).to_owned();
        let metadata = crate::object::metadata_mut(value);
        let labels = metadata.entry("labels").or_insert_with(|| json!({}));
        object_mut(labels).insert("kubernetes.io/metadata.name".into(), name.into());
        entry(value, "spec").insert("finalizers".into(), json!(["kubernetes"]));
        object_mut(value).insert("status".into(), json!({ "phase": "Active" }));
    } else if id.is("", "persistentvolumeclaims") || id.is("", "persistentvolumes") {
        object_mut(value).insert("status".into(), json!({ "phase": "Pending" }));
    } else if id.is("", "services") {
        give_address(value);
    } else if id.is("batch", "jobs") {
        generate_job_selector(value);
    }
}

/// Gives a Service an address from 10.96.0.0/12, derived from its uid: nothing listens there.
fn give_address(service: &mut Value) {
    let uid = text(service, &["metadata", "uid"]);
    let number = u32::from_str_radix(uid.get(..8).unwrap_or_default(), 16).unwrap_or(1) & 0x000f_ffff;
    let address = format!("10.{}.{}.{}", 96 + (number >> 16), (number >> 8) & 0xff, number & 0xff);
    let spec = entry(service, "spec");
    if spec.get("type").and_then(Value::as_str) == Some("ExternalName") {
        return;
    }
    default_to(spec, "clusterIP", address);
    let address = spec.get("clusterIP").cloned().unwrap_or_default();
    default_to(spec, "clusterIPs", json!([address]));
    default_to(spec, "ipFamilies", json!(["IPv4"]));
    default_to(spec, "ipFamilyPolicy", "SingleStack");
}

fn new_pod_status(pod: &mut Value) {
    let mut status = json!({ "phase": "Pending", "qosClass": quality_of_service(pod) });
    if !items(pod, &["spec", "schedulingGates"]).is_empty() {
        status["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null, "lastTransitionTime": null,
        }]);
    }
    object_mut(pod).insert("status".into(), status);
}

/// Gives a Job the selector and the pod labels by which its controller finds its pods, unless they are the user's.
fn generate_job_selector(job: &mut Value) {
    if at(job, &["spec", "manualSelector"]) == &Value::Bool(true) {
        return;
    }
    let uid = text(job, &["metadata", "uid"]).to_owned();
    let name = text(job, &["metadata", "name"]).to_owned();
    let spec = entry(job, "spec");
    if let Some(labels) = spec.get("selector").and_then(|s| s.get("matchLabels")).and_then(Value::as_object)
        && !labels.is_empty()
    {
        return;
    }
    spec.insert("selector".into(), json!({ "matchLabels": { "batch.kubernetes.io/controller-uid": uid } }));
    let template = spec.entry("template").or_insert_with(|| json!({}));
    let metadata = entry(template, "metadata");
    let labels = object_mut(metadata.entry("labels").or_insert_with(|| json!({})));
    for (key, value) in [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("job-name", &name),
    ] {
        labels.insert(key.into(), value.as_str().into());
    }
}

/// Sets the defaults of a built-in kind.
pub(crate) fn default(resource: &Resource, value: &mut Value) {
    let Some(builtin) = resource.builtin() else { return };
    match (builtin.group, builtin.kind) {
        ("", "Pod") => default_pod(value),
        ("", "Node") => default_node(value),
        ("", "Secret") => default_secret(value),
        ("", "Service") => default_service(value),
        ("batch", "Job") => default_job(entry(value, "spec")),
        ("batch", "CronJob") => {
            let spec = entry(value, "spec");
            default_to(spec, "concurrencyPolicy", "Allow");
            default_to(spec, "suspend", false);
            default_to(spec, "successfulJobsHistoryLimit", 3);
            default_to(spec, "failedJobsHistoryLimit", 1);
        }
        ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet") => {
            default_workload(builtin.kind, value)
        }
        ("scheduling.k8s.io", "PriorityClass") => {
            default_to(object_mut(value), "preemptionPolicy", "PreemptLowerPriority");
        }
        ("admissionregistration.k8s.io", _) => default_webhooks(builtin.kind, value),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => default_crd(value),
        _ => {}
    }
}

fn default_pod(pod: &mut Value) {
    let spec = entry(pod, "spec");
    default_pod_spec(spec);
    default_to(spec, "enableServiceLinks", true);
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let resources = entry(container, "resources");
            let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { continue };
            let requests = object_mut(resources.entry("requests").or_insert_with(|| json!({})));
            for (name, limit) in limits {
                requests.entry(name).or_insert(limit);
            }
        }
    }
}

/// What pods and pod templates have in common.
fn default_pod_spec(spec: &mut Map<String, Value>) {
    default_to(spec, "restartPolicy", "Always");
    default_to(spec, "dnsPolicy", "ClusterFirst");
    default_to(spec, "schedulerName", "default-scheduler");
    default_to(spec, "terminationGracePeriodSeconds", 30);
    default_to(spec, "securityContext", json!({}));
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            default_container(object_mut(container));
        }
    }
    for volume in spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
        let volume = object_mut(volume);
        for source in ["secret", "configMap", "projected", "downwardAPI"] {
            if let Some(source) = volume.get_mut(source) {
                default_to(object_mut(source), "defaultMode", 420);
            }
        }
        if let Some(path) = volume.get_mut("hostPath") {
            default_to(object_mut(path), "type", "");
        }
    }
}

fn default_container(container: &mut Map<String, Value>) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let last = image.rsplit('/').next().unwrap_or_default();
    let pinned = last.contains('@') || last.split_once(':').is_some_and(|(_, tag)| tag != "latest");
    default_to(container, "imagePullPolicy", if pinned { "IfNotPresent" } else { "Always" });
    default_to(container, "terminationMessagePath", "/dev/termination-log");
    default_to(container, "terminationMessagePolicy", "File");
    default_to(container, "resources", json!({}));
    for port in container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        default_to(object_mut(port), "protocol", "TCP");
    }
    for variable in container.get_mut("env").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(field) = variable.pointer_mut("/valueFrom/fieldRef") {
            default_to(object_mut(field), "apiVersion", "v1");
        }
    }
}

fn default_template(spec: &mut Map<String, Value>) {
    if let Some(template) = spec.get_mut("template") {
        default_pod_spec(entry(template, "spec"));
    }
}

fn default_node(node: &mut Value) {
    let Some(capacity) = node.pointer("/status/capacity").cloned() else { return };
    default_to(entry(node, "status"), "allocatable", capacity);
}

fn default_secret(secret: &mut Value) {
    let map = object_mut(secret);
    default_to(map, "type", "Opaque");
    if let Some(Value::Object(plain)) = map.remove("stringData") {
        let data = object_mut(map.entry("data").or_insert_with(|| json!({})));
        for (key, value) in plain {
            data.insert(key, STANDARD.encode(value.as_str().unwrap_or_default()).into());
        }
    }
}

fn default_service(service: &mut Value) {
    let spec = entry(service, "spec");
    default_to(spec, "type", "ClusterIP");
    default_to(spec, "sessionAffinity", "None");
    default_to(spec, "internalTrafficPolicy", "Cluster");
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let port = object_mut(port);
        default_to(port, "protocol", "TCP");
        let number = port.get("port").cloned().unwrap_or_default();
        default_to(port, "targetPort", number);
    }
}

fn default_job(spec: &mut Map<String, Value>) {
    let absent = |spec: &Map<String, Value>, key: &str| spec.get(key).is_none_or(Value::is_null);
    if absent(spec, "completions") && absent(spec, "parallelism") {
        spec.insert("completions".into(), 1.into());
    }
    default_to(spec, "parallelism", 1);
    let per_index = !absent(spec, "backoffLimitPerIndex");
    default_to(spec, "backoffLimit", if per_index { i64::from(i32::MAX) } else { 6 });
    default_to(spec, "completionMode", "NonIndexed");
    default_to(spec, "suspend", false);
    default_to(spec, "manualSelector", false);
    let policy = if absent(spec, "podFailurePolicy") { "TerminatingOrFailed" } else { "Failed" };
    default_to(spec, "podReplacementPolicy", policy);
    default_template(spec);
}

fn default_workload(kind: &str, value: &mut Value) {
    let spec = entry(value, "spec");
    if kind != "DaemonSet" {
        default_to(spec, "replicas", 1);
    }
    if kind != "ReplicaSet" {
        default_to(spec, "revisionHistoryLimit", 10);
    }
    match kind {
        "Deployment" => {
            default_to(spec, "progressDeadlineSeconds", 600);
            default_to(
                spec,
                "strategy",
                json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": "25%", "maxSurge": "25%" } }),
            );
        }
        "StatefulSet" => {
            default_to(spec, "podManagementPolicy", "OrderedReady");
            default_to(
                spec,
                "updateStrategy",
                json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } }),
            );
            default_to(
                spec,
                "persistentVolumeClaimRetentionPolicy",
                json!({ "whenDeleted": "Retain", "whenScaled": "Retain" }),
            );
        }
        "DaemonSet" => {
            let rolling = json!({ "maxSurge": 0, "maxUnavailable": 1 });
            default_to(spec, "updateStrategy", json!({ "type": "RollingUpdate", "rollingUpdate": rolling }));
        }
        _ => {}
    }
    default_template(spec);
}

fn default_webhooks(kind: &str, value: &mut Value) {
    for hook in value.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten() {
        let hook = object_mut(hook);
        default_to(hook, "failurePolicy", "Fail");
        default_to(hook, "matchPolicy", "Equivalent");
        default_to(hook, "namespaceSelector", json!({}));
        default_to(hook, "objectSelector", json!({}));
        default_to(hook, "timeoutSeconds", 10);
        if kind == "MutatingWebhookConfiguration" {
            default_to(hook, "reinvocationPolicy", "Never");
        }
        if let Some(service) = hook.get_mut("clientConfig").and_then(|c| c.get_mut("service")) {
            default_to(object_mut(service), "port", 443);
        }
        for rule in hook.get_mut("rules").and_then(Value::as_array_mut).into_iter().flatten() {
            default_to(object_mut(rule), "scope", "*");
        }
    }
}

fn default_crd(crd: &mut Value) {
    let spec = entry(crd, "spec");
    default_to(spec, "conversion", json!({ "strategy": "None" }));
    if let Some(names) = spec.get_mut("names") {
        let kind = text(names, &["kind"]).to_owned();
        let names = object_mut(names);
        default_to(names, "singular", kind.to_lowercase());
        default_to(names, "listKind", format!("{kind}List"));
    }
}

/// The QoS class that the requests and limits of a pod's containers make; limits have become requests where those were
/// absent.
fn quality_of_service(pod: &Value) -> &'static str {
    let containers =
        || items(pod, &["spec", "containers"]).iter().chain(items(pod, &["spec", "initContainers"]));
    let amount =
        |container: &Value, kind: &str, name: &str| at(container, &["resources", kind, name]).clone();
    let any = containers().any(|c| {
        ["cpu", "memory"]
            .iter()
            .any(|r| !amount(c, "requests", r).is_null() || !amount(c, "limits", r).is_null())
    });
    let exact = |c: &Value, name: &str| {
        let (request, limit) = (amount(c, "requests", name), amount(c, "limits", name));
        !limit.is_null() && (request.is_null() || request == limit)
    };
    if !any {
        "BestEffort"
    } else if containers().all(|c| exact(c, "cpu") && exact(c, "memory")) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}
