//! `Workload`, by itself.

use std::collections::{BTreeMap, BTreeSet};

use model::Quantity;
use serde_json::{Map, Value};

use super::{
    ErrorKind, FieldError, Findings, Gates,
    metadata::{label_keys, labels, tolerations},
    syntax::is_domain_path,
};
use crate::{
    api::kueue::v1beta2::{PodSet, PodSetAssignment, PodSetUpdate, Workload, WorkloadStatus},
    names::kueue::{ADMISSION_GATED_BY, ELASTIC_JOB, PRIORITY_BOOST},
    reasons,
};

/// The quota layer counts pods under this name itself.
const PODS: &str = "pods";

/// What is wrong with a new Workload.
pub fn workload(workload: &Workload, gates: Gates) -> Vec<FieldError> {
    let mut findings = Findings::default();
    object(workload, gates, &mut findings);
    if let Some(status) = &workload.status {
        reclaimable(status, &workload.spec.pod_sets, &|_, _| false, &mut findings);
        admission_required(status, &mut findings);
    }
    findings.0
}

/// The rules that look at nothing but the object and hold at every update.
pub(super) fn object(workload: &Workload, gates: Gates, findings: &mut Findings) {
    let pod_sets = &workload.spec.pod_sets;
    annotations(workload, gates, findings);
    let partial = pod_sets.iter().filter(|pod_set| pod_set.min_count.is_some()).count();
    if partial > 1 {
        findings.invalid("spec.podSets", format!("{partial} pod sets have minCount, at most one can"));
    }
    if partial > 0 && is_elastic(workload, gates) {
        findings.invalid("spec.podSets", "minCount does not go with an elastic job");
    }
    for (index, pod_set) in pod_sets.iter().enumerate() {
        self::pod_set(pod_set, &format!("spec.podSets[{index}]"), gates, findings);
    }
    let Some(status) = &workload.status else { return };
    let names: BTreeSet<&str> = pod_sets.iter().map(|pod_set| pod_set.name.as_str()).collect();
    for (index, check) in status.admission_checks.iter().enumerate() {
        let field = format!("status.admissionChecks[{index}].podSetUpdates");
        pod_set_updates(&check.pod_set_updates, &names, &field, findings);
    }
    for (index, assignment) in status.admission.iter().flat_map(|a| &a.pod_set_assignments).enumerate() {
        self::assignment(
            assignment,
            &names,
            &format!("status.admission.podSetAssignments[{index}]"),
            findings,
        );
    }
}

/// Whether the job may be resized while it runs.
pub(super) fn is_elastic(workload: &Workload, gates: Gates) -> bool {
    gates.elastic_jobs && annotation(workload, ELASTIC_JOB) == Some("true")
}

/// Whether the Workload holds quota.
pub(super) fn is_reserved(workload: &Workload) -> bool {
    workload.status.as_ref().is_some_and(|status| {
        let reserved = reasons::workload::QUOTA_RESERVED;
        status.conditions.iter().any(|c| c.type_ == reserved && c.status == "True")
    })
}

fn annotation<'a>(workload: &'a Workload, key: &str) -> Option<&'a str> {
    workload.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The gates of an annotation; spaces around them do not count.
pub(super) fn gates_of(workload: &Workload) -> Vec<&str> {
    annotation(workload, ADMISSION_GATED_BY)
        .into_iter()
        .flat_map(|list| list.split(',').map(str::trim))
        .collect()
}

fn annotations(workload: &Workload, gates: Gates, findings: &mut Findings) {
    if gates.admission_gated_by {
        let list = gates_of(workload);
        let field = format!("metadata.annotations[{ADMISSION_GATED_BY}]");
        if let Some(bad) = list.iter().find(|gate| !is_domain_path(gate)) {
            findings.invalid(field, format!("{bad:?} is not a controller, such as example.com/controller"));
        } else if list.iter().collect::<BTreeSet<_>>().len() < list.len() {
            findings.invalid(field, "names a controller twice");
        }
    }
    if gates.priority_boost
        && let Some(boost) = annotation(workload, PRIORITY_BOOST)
        && boost.parse::<i32>().is_err()
    {
        let field = format!("metadata.annotations[{PRIORITY_BOOST}]");
        findings.invalid(field, format!("{boost:?} is not a whole number of 32 bits"));
    }
}

fn pod_set(pod_set: &PodSet, field: &str, gates: Gates, findings: &mut Findings) {
    let template = &pod_set.template.0;
    let field_of_template = format!("{field}.template");
    if gates.pod_set_metadata {
        let map = |key: &str| -> BTreeMap<String, String> {
            let texts = template["metadata"][key].as_object().into_iter().flatten();
            texts.map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned())).collect()
        };
        labels(&map("labels"), &format!("{field_of_template}.metadata.labels"), findings);
        let annotations = map("annotations");
        label_keys(annotations.keys(), &format!("{field_of_template}.metadata.annotations"), findings);
    }
    let field_of_spec = format!("{field_of_template}.spec");
    for list in ["initContainers", "containers"] {
        for (index, container) in template["spec"][list].as_array().into_iter().flatten().enumerate() {
            let field = format!("{field_of_spec}.{list}[{index}].resources");
            resources(container["resources"].as_object(), &field, gates, findings);
        }
    }
    resources(
        template["spec"]["resources"].as_object(),
        &format!("{field_of_spec}.resources"),
        gates,
        findings,
    );
    let slice_size = pod_set.topology_request.as_ref().and_then(|request| request.pod_set_slice_size);
    if gates.slice_size && slice_size.is_some_and(|size| size < 1) {
        findings.invalid(format!("{field}.topologyRequest.podSetSliceSize"), "must be at least 1");
    }
}

fn resources(resources: Option<&Map<String, Value>>, field: &str, gates: Gates, findings: &mut Findings) {
    for list in ["requests", "limits"] {
        for (name, value) in resources.and_then(|r| r.get(list)?.as_object()).into_iter().flatten() {
            let field = format!("{field}.{list}[{name}]");
            if name == PODS {
                findings.invalid(&field, "is counted by the quota layer itself and cannot be asked for");
            }
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            match text.parse::<Quantity>() {
                Ok(amount) if gates.non_negative_resources && amount.is_negative() => {
                    findings.invalid(field, format!("{text} is negative"));
                }
                Ok(_) => {}
                Err(error) => findings.invalid(field, format!("{text:?} is not a quantity: {error}")),
            }
        }
    }
}

fn pod_set_updates(updates: &[PodSetUpdate], names: &BTreeSet<&str>, field: &str, findings: &mut Findings) {
    for (index, update) in updates.iter().enumerate() {
        let field = format!("{field}[{index}]");
        if !names.contains(update.name.as_str()) {
            let detail = format!("{:?} is not a pod set", update.name);
            findings.add(format!("{field}.name"), ErrorKind::NotSupported, detail);
        }
        labels(&update.labels, &format!("{field}.labels"), findings);
        label_keys(update.annotations.keys(), &format!("{field}.annotations"), findings);
        labels(&update.node_selector, &format!("{field}.nodeSelector"), findings);
        tolerations(&update.tolerations, &format!("{field}.tolerations"), findings);
    }
}

fn assignment(assignment: &PodSetAssignment, names: &BTreeSet<&str>, field: &str, findings: &mut Findings) {
    if !names.contains(assignment.name.as_str()) {
        let detail = format!("{:?} is not a pod set", assignment.name);
        findings.add(format!("{field}.name"), ErrorKind::NotFound, detail);
    }
    let Some(count) = assignment.count.map(i64::from).filter(|count| *count > 0) else { return };
    for (name, quantity) in &assignment.resource_usage {
        let field = format!("{field}.resourceUsage[{name}]");
        let amount = quantity.0.parse::<Quantity>().ok().and_then(|q| match name.as_str() {
            "cpu" => q.milli_value(),
            _ => Some(q.value()),
        });
        match amount {
            Some(amount) if amount % count == 0 => {}
            Some(_) => {
                findings.invalid(field, format!("{} cannot be shared among {count} equal pods", quantity.0))
            }
            None => findings.invalid(field, format!("{:?} is not a quantity, or too large", quantity.0)),
        }
    }
}

/// Pods given back are pods there were. `tolerated` says which pod sets and counts are let pass.
pub(super) fn reclaimable(
    status: &WorkloadStatus,
    pod_sets: &[PodSet],
    tolerated: &dyn Fn(&str, i32) -> bool,
    findings: &mut Findings,
) {
    for given in &status.reclaimable_pods {
        let field = format!("status.reclaimablePods[{}]", given.name);
        match pod_sets.iter().find(|pod_set| pod_set.name == given.name) {
            None => {
                let detail = format!("{:?} is not a pod set", given.name);
                findings.add(format!("{field}.name"), ErrorKind::NotSupported, detail);
            }
            Some(pod_set) if given.count > pod_set.count && !tolerated(&given.name, given.count) => {
                findings
                    .invalid(format!("{field}.count"), format!("{} of {} pods", given.count, pod_set.count));
            }
            Some(_) => {}
        }
    }
}

/// Who holds quota says which.
pub(super) fn admission_required(status: &WorkloadStatus, findings: &mut Findings) {
    if lacks_admission(status) {
        findings.add("status.admission", ErrorKind::Required, "condition QuotaReserved is True");
    }
}

pub(super) fn lacks_admission(status: &WorkloadStatus) -> bool {
    let reserved = reasons::workload::QUOTA_RESERVED;
    status.admission.is_none() && status.conditions.iter().any(|c| c.type_ == reserved && c.status == "True")
}
