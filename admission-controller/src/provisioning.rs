//! The admission check that asks an autoscaler for nodes (`kueue.x-k8s.io/provisioning-request`; Kueue's
//! `pkg/controller/admissionchecks/provisioning`): a ProvisioningRequest for each attempt, and what its state makes of the check.

use std::collections::{BTreeMap, BTreeSet};

use crds::names::kueue;
use crds::reasons::workload as tokens;
use crds::validation::same_template;
use crds::view::admission_check::AdmissionCheck;
use crds::view::flavor::ResourceFlavor;
use crds::view::provisioning::{ProvisioningRequest, ProvisioningRequestConfig};
use crds::view::workload::{AdmissionCheckState, CheckState, PodSet, Workload};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sha1::{Digest, Sha1};

use crate::requeue;
use crate::status::whole_second;
use crate::words::truncated;

/// The longest prefix of a name whose rest is cut off for a hash: 253 characters with a dash and five digits.
const MAX_PREFIX: usize = 247;
/// `retryStrategy` where nothing is said, as the API's defaults.
const LIMIT: i32 = 3;
const BASE_SECONDS: i32 = 60;
const MAX_SECONDS: i32 = 1800;

/// On the pods, so that the autoscaler knows whose nodes they may take.
pub(crate) const CONSUME: &str = "autoscaling.x-k8s.io/consume-provisioning-request";
/// On the pods: the class of the request.
pub(crate) const CLASS: &str = "autoscaling.x-k8s.io/provisioning-class-name";

/// Whether a check is one of this kind.
pub fn is_ours(check: &AdmissionCheck) -> bool {
    check.spec.controller_name == kueue::PROVISIONING_REQUEST_CONTROLLER
}

/// The name of its settings, or what is wrong with how it names them.
///
/// # Errors
/// In words.
pub fn config_name(check: &AdmissionCheck) -> Result<&str, String> {
    match &check.spec.parameters {
        None => Err(format!("it has no parameters; name a {} in them", kueue::PROVISIONING_CONFIG)),
        Some(one) if one.api_group != kueue::GROUP || one.kind != kueue::PROVISIONING_CONFIG => Err(format!(
            "its parameters are {} of {}; they must be a {} of {}",
            one.kind,
            one.api_group,
            kueue::PROVISIONING_CONFIG,
            kueue::GROUP
        )),
        Some(one) => Ok(&one.name),
    }
}

fn limited(full: String) -> String {
    if full.len() <= MAX_PREFIX {
        return full;
    }
    let hex: String = Sha1::digest(&full).iter().take(3).map(|byte| format!("{byte:02x}")).collect();
    let mut end = MAX_PREFIX;
    while !full.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}-{}", &full[..end], &hex[..5])
}

/// The name of the request of this attempt.
pub fn request_name(workload: &str, check: &str, attempt: i32) -> String {
    limited(format!("{workload}-{check}-{attempt}"))
}

/// The name of the pod template of a pod set.
pub fn template_name(request: &str, pod_set: &str) -> String {
    limited(format!("ppt-{request}-{pod_set}"))
}

/// Which attempt a request is, by its name; `None` where it is none for this check. A name that was too long does not tell its number:
/// it is looked for among the first `most`, and the first thousand.
pub fn attempt(request: &str, workload: &str, check: &str, most: i32) -> Option<i32> {
    let prefix = format!("{workload}-{check}-");
    let digits = request.strip_prefix(prefix.as_str());
    let digits = digits.filter(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()));
    if let Some(attempt) = digits.and_then(|digits| digits.parse().ok()) {
        return Some(attempt);
    }
    let is_too_long = |attempt: &i32| prefix.len() + attempt.to_string().len() > MAX_PREFIX;
    let most = most.min(1_000);
    if !is_too_long(&most) {
        return None;
    }
    let mut shortened = (1..=most).filter(is_too_long);
    shortened.find(|attempt| request_name(workload, check, *attempt) == request)
}

fn uses(set: &PodSet, resources: &[String]) -> bool {
    let pod = &set.template.spec.resources;
    let mut containers = pod.init_containers.iter().chain(&pod.containers);
    containers.any(|one| {
        let mut named = one.resources.requests.keys().chain(one.resources.limits.keys());
        named.any(|name| resources.iter().any(|wanted| wanted == name.as_str()))
    })
}

/// Pod sets for which nodes are to be asked for, with how many pods were granted.
fn wanted<'a>(view: &'a Workload, config: &ProvisioningRequestConfig) -> Vec<(&'a PodSet, i64)> {
    let managed = &config.spec.managed_resources;
    let granted = |set: &PodSet| {
        let count = set.count.unwrap_or(1);
        let sets = view.status.admission.iter().flat_map(|one| &one.pod_set_assignments);
        let held = sets.filter(|one| one.name == set.name).find_map(|one| one.count);
        if count > 0 { held.unwrap_or(count) } else { 0 }
    };
    let sets = view.spec.pod_sets.iter().filter(|set| managed.is_empty() || uses(set, managed));
    sets.map(|set| (set, granted(set))).filter(|(_, count)| *count > 0).collect()
}

/// Whether any nodes are to be asked for.
pub fn is_needed(view: &Workload, config: &ProvisioningRequestConfig) -> bool {
    !wanted(view, config).is_empty()
}

/// Those of the settings, and those that the job's annotations put in their place or add.
fn parameters(view: &Workload, config: &ProvisioningRequestConfig) -> BTreeMap<String, String> {
    let mut parameters = config.spec.parameters.clone();
    for (key, value) in view.metadata.annotations.iter().flatten() {
        if let Some(name) = key.strip_prefix(kueue::PROVISIONING_PREFIX) {
            parameters.insert(name.to_owned(), value.clone());
        }
    }
    parameters
}

/// The last of a workload's requests that is for this check as its settings are now.
pub fn current<'a>(
    view: &Workload,
    check: &str,
    config: &ProvisioningRequestConfig,
    requests: &[&'a ProvisioningRequest],
) -> Option<(&'a ProvisioningRequest, i32)> {
    let name = view.metadata.name.as_deref().unwrap_or_default();
    // What its own annotations ask for is read when a request is made, and does not make another one of it.
    let annotations = view.metadata.annotations.as_ref();
    let is_its_own = |key: &str| {
        annotations.is_some_and(|all| all.contains_key(&format!("{}{key}", kueue::PROVISIONING_PREFIX)))
    };
    let is_synced = |request: &&&'a ProvisioningRequest| {
        let there = &request.spec.parameters;
        let mut wanted = config.spec.parameters.iter();
        request.spec.provisioning_class_name == config.spec.provisioning_class_name
            && wanted.all(|(key, value)| there.get(key) == Some(value) || is_its_own(key))
    };
    let limit = config.spec.retry_strategy.backoff_limit_count.unwrap_or(LIMIT);
    // The limit may have been lowered since.
    let state = view.status.admission_checks.iter().find(|state| state.name == check);
    let most = limit.max(state.and_then(|state| state.retry_count).unwrap_or(0)).saturating_add(1);
    let numbered = |request: &&'a ProvisioningRequest| {
        Some((*request, attempt(request.metadata.name.as_deref()?, name, check, most)?))
    };
    let found = requests.iter().filter(is_synced).filter_map(numbered).max_by_key(|(_, attempt)| *attempt);
    found.filter(|_| is_needed(view, config))
}

fn says<'a>(request: &'a ProvisioningRequest, kind: &str) -> Option<&'a str> {
    let condition = request.status.conditions.iter().find(|one| one.type_ == kind && one.status == "True")?;
    Some(&condition.message)
}

/// The state of a check, as its settings and its request have it now.
pub fn answer(
    seen: &AdmissionCheckState,
    view: &Workload,
    config: Option<&ProvisioningRequestConfig>,
    request: Option<(&ProvisioningRequest, i32)>,
    now: Timestamp,
) -> AdmissionCheckState {
    let mut state = seen.clone();
    match (config, request) {
        (None, _) => become_(&mut state, CheckState::Pending, "its settings do not exist"),
        (Some(config), _) if !is_needed(view, config) => {
            if state.state != CheckState::Ready {
                become_(&mut state, CheckState::Ready, "no nodes have to be asked for");
                state.pod_set_updates.clear();
            }
        }
        (Some(_), None) => {}
        (Some(config), Some((request, attempt))) => {
            follow(&mut state, view, config, request, attempt);
        }
    }
    state.message = truncated(state.message);
    if state.state != seen.state {
        state.last_transition_time = Some(whole_second(now));
    }
    state
}

fn become_(state: &mut AdmissionCheckState, next: CheckState, message: &str) {
    state.state = next;
    message.clone_into(&mut state.message);
}

fn follow(
    state: &mut AdmissionCheckState,
    view: &Workload,
    config: &ProvisioningRequestConfig,
    request: &ProvisioningRequest,
    attempt: i32,
) {
    let admitted = view.holds(tokens::ADMITTED);
    if let Some(message) = says(request, "Failed") {
        fail(state, config, attempt, "retried after a failure", message);
    } else if let Some(message) = says(request, "CapacityRevoked") {
        if view.spec.active.unwrap_or(true) && !view.holds(tokens::FINISHED) {
            become_(state, CheckState::Rejected, message);
        }
    } else if let Some(message) = says(request, "BookingExpired") {
        if !admitted {
            fail(state, config, attempt, "retried after the booking expired", message);
        }
    } else if let Some(message) = says(request, "Provisioned") {
        if state.state != CheckState::Ready {
            become_(state, CheckState::Ready, message);
            state.pod_set_updates = updates(view, config, request);
        }
    } else if says(request, "Accepted").is_some() {
        let estimate = request.status.conditions.iter().find(|one| one.type_ == "Provisioned");
        if let Some(estimate) = estimate {
            become_(state, CheckState::Pending, &estimate.message);
        }
    } else {
        become_(state, CheckState::Pending, "");
    }
}

fn fail(
    state: &mut AdmissionCheckState,
    config: &ProvisioningRequestConfig,
    attempt: i32,
    words: &str,
    message: &str,
) {
    let strategy = &config.spec.retry_strategy;
    if attempt > strategy.backoff_limit_count.unwrap_or(LIMIT) {
        return become_(state, CheckState::Rejected, message);
    }
    state.message = format!("{words}: {message}");
    let retries = state.retry_count.unwrap_or(0);
    // An older attempt was answered already.
    if attempt > retries {
        let seconds = |written: Option<i32>, default: i32| {
            SignedDuration::from_secs(i64::from(written.unwrap_or(default)))
        };
        let base = seconds(strategy.backoff_base_seconds, BASE_SECONDS);
        let longest = seconds(strategy.backoff_max_seconds, MAX_SECONDS);
        let wait = requeue::backoff(base, longest, retries.saturating_add(1));
        state.state = CheckState::Retry;
        state.requeue_after_seconds = Some(wait.as_secs().clamp(0, i64::from(i32::MAX)));
    }
}

fn updates(view: &Workload, config: &ProvisioningRequestConfig, request: &ProvisioningRequest) -> Vec<Value> {
    let name = request.metadata.name.as_deref().unwrap_or_default();
    let details = &request.status.provisioning_class_details;
    let wanted = &config.spec.pod_set_updates.node_selector;
    let selector: BTreeMap<&str, &str> = wanted
        .iter()
        .filter_map(|one| {
            Some((one.key.as_str(), details.get(&one.value_from_provisioning_class_detail)?.as_str()))
        })
        .collect();
    let of_template =
        |template: &str| view.spec.pod_sets.iter().find(|set| template_name(name, &set.name) == template);
    let sets = request.spec.pod_sets.iter().filter_map(|one| of_template(&one.pod_template_ref.name));
    sets.map(|set| {
        let annotations = json!({ CONSUME: name, CLASS: request.spec.provisioning_class_name });
        let mut update = json!({ "name": set.name, "annotations": annotations });
        if !selector.is_empty() {
            update["nodeSelector"] = json!(selector);
        }
        update
    })
    .collect()
}

/// The attempt that is to be made now; `None` while there is nothing to ask for.
pub fn next_attempt(
    state: &AdmissionCheckState,
    view: &Workload,
    config: &ProvisioningRequestConfig,
    request: Option<(&ProvisioningRequest, i32)>,
) -> Option<i32> {
    if state.state == CheckState::Ready || !is_needed(view, config) {
        return None;
    }
    let Some((request, attempt)) = request else {
        return Some(state.retry_count.unwrap_or(0).saturating_add(1));
    };
    let expired = says(request, "BookingExpired").is_some() && !view.holds(tokens::ADMITTED);
    let over = says(request, "Failed").is_some() || expired;
    (over && state.state == CheckState::Pending).then(|| attempt.saturating_add(1))
}

/// A request with the pod templates that it names.
#[derive(Clone, Debug, PartialEq)]
pub struct Submission {
    /// PodTemplates, owned by the Workload until the request is there.
    pub templates: Vec<Value>,
    /// The ProvisioningRequest.
    pub request: Value,
}

/// What to ask for, of a Workload whose spec is `spec` as it was written.
pub fn submission(
    view: &Workload,
    spec: &Value,
    config: &ProvisioningRequestConfig,
    request: &str,
    flavors: &BTreeMap<String, ResourceFlavor>,
) -> Submission {
    let namespace = &view.metadata.namespace;
    let owner = json!([{
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "name": view.metadata.name, "uid": view.metadata.uid,
        "controller": true, "blockOwnerDeletion": true,
    }]);
    let metadata = |name: &str| {
        json!({
            "name": name, "namespace": namespace, "ownerReferences": owner,
            "labels": { kueue::MANAGED: "true" },
        })
    };
    let template_of = |set: &PodSet| {
        let sets = spec["podSets"].as_array().into_iter().flatten();
        let mut sets = sets.filter(|one| one["name"] == set.name.as_str());
        sets.next().map(|one| one["template"].clone()).unwrap_or_default()
    };
    let mut merged: Vec<(&PodSet, Value, i64)> = Vec::new();
    for (set, count) in wanted(view, config) {
        let template = template_of(set);
        let policy = config.spec.pod_set_merge_policy.as_deref();
        match merged.iter_mut().find(|(_, other, _)| are_alike(policy, other, &template)) {
            Some((_, _, sum)) => *sum = sum.saturating_add(count),
            None => merged.push((set, template, count)),
        }
    }
    let pod_sets: Vec<Value> = merged
        .iter()
        .map(|(set, _, count)| {
            json!({ "podTemplateRef": { "name": template_name(request, &set.name) }, "count": count })
        })
        .collect();
    let templates = merged.iter().map(|(set, template, _)| {
        json!({
            "apiVersion": "v1", "kind": "PodTemplate",
            "metadata": metadata(&template_name(request, &set.name)),
            "template": placed(template.clone(), view, &set.name, flavors),
        })
    });
    Submission {
        templates: templates.collect(),
        request: json!({
            "apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest",
            "metadata": metadata(request),
            "spec": {
                "provisioningClassName": config.spec.provisioning_class_name,
                "parameters": parameters(view, config),
                "podSets": pod_sets,
            },
        }),
    }
}

/// Whether two pod sets are asked for as one: by what their templates mean, however they are written.
fn are_alike(policy: Option<&str>, a: &Value, b: &Value) -> bool {
    match policy {
        Some("IdenticalPodTemplates") => same_template(a, b),
        Some("IdenticalWorkloadSchedulingRequirements") => same_template(&for_nodes(a), &for_nodes(b)),
        _ => false,
    }
}

/// Of a pod template what decides which nodes its pods need.
fn for_nodes(template: &Value) -> Value {
    let spec = &template["spec"];
    let mut kept = json!({});
    for list in ["containers", "initContainers"] {
        let containers = spec[list].as_array().into_iter().flatten();
        let asked = |one: &Value| json!({ "resources": { "requests": one["resources"]["requests"] } });
        kept[list] = containers.map(asked).collect();
    }
    for field in ["resources", "nodeSelector", "tolerations", "affinity", "resourceClaims"] {
        kept[field] = spec[field].clone();
    }
    json!({ "spec": kept })
}

/// A pod template as its pods will be: on nodes of the flavors that were granted, and asking for what they are limited to
/// where they say nothing else.
fn placed(
    mut template: Value,
    view: &Workload,
    set: &str,
    flavors: &BTreeMap<String, ResourceFlavor>,
) -> Value {
    let held = view.status.admission.iter().flat_map(|one| &one.pod_set_assignments);
    let names: BTreeSet<&String> =
        held.filter(|one| one.name == set).flat_map(|one| one.flavors.values()).collect();
    for flavor in names.into_iter().filter_map(|name| flavors.get(name)) {
        for (key, value) in &flavor.spec.node_labels {
            template["spec"]["nodeSelector"][key] = json!(value);
        }
        for toleration in &flavor.spec.tolerations {
            let list = &mut template["spec"]["tolerations"];
            if list.is_null() {
                *list = json!([]);
            }
            if let Value::Array(list) = list {
                let toleration = json!(toleration);
                if !list.contains(&toleration) {
                    list.push(toleration);
                }
            }
        }
    }
    let Some(spec) = template.get_mut("spec") else { return template };
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        containers.into_iter().flatten().for_each(ask_for_limits);
    }
    ask_for_limits(spec);
    template
}

/// Lets a container, or a pod as a whole, ask for what it is limited to where it says nothing else.
fn ask_for_limits(one: &mut Value) {
    let limits = one.pointer("/resources/limits").and_then(Value::as_object).cloned().unwrap_or_default();
    for (resource, limit) in limits {
        let request = &mut one["resources"]["requests"][&resource];
        if request.is_null() {
            *request = limit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_attempt_and_are_never_too_long() {
        let name = request_name("job-llama-1a2b3", "nodes", 12);
        assert_eq!(name, "job-llama-1a2b3-nodes-12");
        assert_eq!(attempt(&name, "job-llama-1a2b3", "nodes", 4), Some(12));
        for other in ["job-llama-1a2b3-nodes-", "job-llama-1a2b3-nodes-x", "job-llama-1a2b3-others-1"] {
            assert_eq!(attempt(other, "job-llama-1a2b3", "nodes", 4), None, "{other}");
        }
        // From names that fit with some numbers to those that fit with none.
        for workload in (235..=253).map(|length| "x".repeat(length)) {
            for number in [1, 9, 10, 99, 100] {
                let name = request_name(&workload, "nodes", number);
                assert!(name.len() <= 253, "{name}");
                assert_eq!(attempt(&name, &workload, "nodes", 100), Some(number), "{name}");
            }
        }
        let long = template_name(&request_name(&"x".repeat(250), "nodes", 1), "main");
        assert!(long.len() <= 253, "{}", long.len());
    }

    #[test]
    fn pod_sets_are_asked_for_as_one_by_the_policy_alone() {
        let template = |image: &str, cpu: &str| {
            let resources = json!({ "requests": { "cpu": cpu } });
            json!({ "spec": { "containers": [{ "image": image, "resources": resources }] } })
        };
        let (a, other_image, larger) = (template("a", "1"), template("b", "1"), template("a", "2"));
        for (policy, other, wanted) in [
            (None, &a, false),
            (Some("IdenticalPodTemplates"), &a, true),
            (Some("IdenticalPodTemplates"), &other_image, false),
            (Some("IdenticalWorkloadSchedulingRequirements"), &other_image, true),
            (Some("IdenticalWorkloadSchedulingRequirements"), &larger, false),
        ] {
            assert_eq!(are_alike(policy, &a, other), wanted, "{policy:?}");
        }
    }

    #[test]
    fn what_means_the_same_is_asked_for_as_one() {
        let template = |memory: &str, more: Value| {
            let container = json!({ "resources": { "requests": { "memory": memory } } });
            let mut spec = json!({ "containers": [container] });
            spec.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
            json!({ "spec": spec })
        };
        let plain = template("1Gi", json!({}));
        for (other, wanted) in [
            (template("1024Mi", json!({})), true),
            (template("1025Mi", json!({})), false),
            (template("1Gi", json!({ "nodeSelector": {}, "tolerations": [], "affinity": null })), true),
            (template("1Gi", json!({ "nodeSelector": { "gpu": "a100" } })), false),
            (template("1Gi", json!({ "resources": { "limits": { "cpu": "4" } } })), false),
            (template("1Gi", json!({ "initContainers": [{}] })), false),
        ] {
            for policy in ["IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"] {
                assert_eq!(are_alike(Some(policy), &plain, &other), wanted, "{policy}: {other}");
            }
        }
    }

    #[test]
    fn nodes_are_asked_for_what_containers_and_the_pod_as_a_whole_are_limited_to() {
        let limited =
            |requests: Value| json!({ "requests": requests, "limits": { "cpu": "4", "memory": "1Gi" } });
        let template = json!({ "spec": {
            "containers": [{ "resources": limited(json!({ "cpu": "1" })) }, {}],
            "initContainers": [{ "resources": limited(Value::Null) }],
            "resources": { "limits": { "cpu": "4" } },
        }});
        let asked = placed(template, &Workload::default(), "main", &BTreeMap::new());
        let all = json!({ "cpu": "4", "memory": "1Gi" });
        assert_eq!(
            asked["spec"],
            json!({
                "containers": [{ "resources": limited(json!({ "cpu": "1", "memory": "1Gi" })) }, {}],
                "initContainers": [{ "resources": limited(all) }],
                "resources": { "requests": { "cpu": "4" }, "limits": { "cpu": "4" } },
            })
        );
        let without = json!({ "spec": { "containers": [] } });
        assert_eq!(placed(without.clone(), &Workload::default(), "main", &BTreeMap::new()), without);
    }
}
