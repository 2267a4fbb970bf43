//! `Workload`, compared with what it was.

use std::collections::BTreeMap;

use model::Quantity;

use super::{
    ErrorKind, FieldError, Findings, Gates,
    workload::{admission_required, gates_of, is_elastic, is_reserved, lacks_admission, object, reclaimable},
};
use crate::{
    api::kueue::v1beta2::{Admission, CheckState, PodSet, Workload, WorkloadStatus},
    names::kueue::ADMISSION_GATED_BY,
};

/// What is wrong with a change of a Workload, of its spec or its status.
pub fn workload_update(old: &Workload, new: &Workload, gates: Gates) -> Vec<FieldError> {
    let mut findings = Findings::default();
    object(new, gates, &mut findings);
    if is_reserved(old) {
        pod_sets(old, new, gates, &mut findings);
    }
    if gates.admission_gated_by {
        gates_only_go(old, new, &mut findings);
    }
    let nothing = WorkloadStatus::default();
    let old_status = old.status.as_ref().unwrap_or(&nothing);
    if let Some(status) = &new.status {
        if !lacks_admission(old_status) {
            admission_required(status, &mut findings);
        }
        let elastic = is_elastic(new, gates);
        // The job was resized first; what was given back is brought in line with it afterwards.
        let unchanged = |name: &str, count: i32| elastic && given_back(old_status, name) == Some(count);
        reclaimable(status, &new.spec.pod_sets, &unchanged, &mut findings);
    }
    let status = new.status.as_ref().unwrap_or(&nothing);
    if is_reserved(old) && is_reserved(new) {
        if old.spec.queue_name != new.spec.queue_name {
            findings.invalid("spec.queueName", "cannot be changed while quota is reserved");
        }
        reclaimable_only_grow(old, old_status, new, status, gates, &mut findings);
    }
    admission(old_status.admission.as_ref(), status.admission.as_ref(), &mut findings);
    pod_set_updates(old_status, status, &mut findings);
    findings.0
}

/// Pod sets are fixed; with elastic jobs their counts may shrink.
fn pod_sets(old: &Workload, new: &Workload, gates: Gates, findings: &mut Findings) {
    let (old, new) = (&old.spec.pod_sets, &new.spec.pod_sets);
    if old.len() != new.len() {
        findings.invalid("spec.podSets", "cannot be added or removed while quota is reserved");
        return;
    }
    for (index, (old, new)) in old.iter().zip(new).enumerate() {
        let shrinks = gates.elastic_jobs && new.count < old.count;
        let resized = PodSet { count: if shrinks { new.count } else { old.count }, ..old.clone() };
        if resized != *new {
            findings.invalid(format!("spec.podSets.{index}"), "cannot be changed while quota is reserved");
        }
    }
}

/// Nobody is held back by a gate that was not there at creation.
fn gates_only_go(old: &Workload, new: &Workload, findings: &mut Findings) {
    let before = gates_of(old);
    if let Some(added) = gates_of(new).into_iter().find(|gate| !before.contains(gate)) {
        let field = format!("metadata.annotations[{ADMISSION_GATED_BY}]");
        findings.add(field, ErrorKind::Forbidden, format!("{added} cannot be added after creation"));
    }
}

fn given_back(status: &WorkloadStatus, pod_set: &str) -> Option<i32> {
    status.reclaimable_pods.iter().find(|given| given.name == pod_set).map(|given| given.count)
}

/// Quota that was given back may be in use elsewhere. An elastic job that shrank below what was admitted starts to count anew.
fn reclaimable_only_grow(
    old: &Workload,
    old_status: &WorkloadStatus,
    new: &Workload,
    status: &WorkloadStatus,
    gates: Gates,
    findings: &mut Findings,
) {
    let count = |workload: &Workload, name: &str| {
        workload.spec.pod_sets.iter().find(|pod_set| pod_set.name == name).map(|pod_set| pod_set.count)
    };
    let admitted = |name: &str| {
        let assignments = old_status.admission.iter().flat_map(|admission| &admission.pod_set_assignments);
        assignments.filter(|assignment| assignment.name == name).find_map(|assignment| assignment.count)
    };
    for before in &old_status.reclaimable_pods {
        let name = &before.name;
        let now = count(new, name);
        let shrank = is_elastic(new, gates) && (now < admitted(name) || now < count(old, name));
        let field = format!("status.reclaimablePods[{name}]");
        match given_back(status, name) {
            _ if shrank => {}
            None => findings.add(field, ErrorKind::Required, "cannot be taken back while quota is reserved"),
            Some(given) if given < before.count => {
                let detail = format!("cannot go from {} to {given} while quota is reserved", before.count);
                findings.invalid(format!("{field}.count"), detail);
            }
            Some(_) => {}
        }
    }
}

/// Quota is granted and withdrawn, not changed; where the pods go may still be decided.
fn admission(old: Option<&Admission>, new: Option<&Admission>, findings: &mut Findings) {
    if let (Some(old), Some(new)) = (old, new)
        && grant(old) != grant(new)
    {
        findings.invalid("status.admission", "can be set or unset, not changed");
    }
}

/// An admission without its topology, and its amounts as such: "1" and "1000m" are the same.
fn grant(admission: &Admission) -> (Admission, Vec<BTreeMap<String, Option<Quantity>>>) {
    let mut admission = admission.clone();
    let amounts = admission.pod_set_assignments.iter_mut().map(|assignment| {
        assignment.topology_assignment = None;
        assignment.delayed_topology_request = None;
        let usage = std::mem::take(&mut assignment.resource_usage);
        usage.into_iter().map(|(resource, amount)| (resource, amount.0.parse().ok())).collect()
    });
    let amounts = amounts.collect();
    (admission, amounts)
}

/// The pods are started with what a check added when it got ready.
fn pod_set_updates(old: &WorkloadStatus, new: &WorkloadStatus, findings: &mut Findings) {
    for (index, check) in new.admission_checks.iter().enumerate() {
        let before = old.admission_checks.iter().find(|before| before.name == check.name);
        if let Some(before) = before
            && before.state == CheckState::Ready
            && check.state == CheckState::Ready
            && before.pod_set_updates != check.pod_set_updates
        {
            let field = format!("status.admissionChecks[{index}].podSetUpdates");
            findings.invalid(field, "cannot be changed while the check is Ready");
        }
    }
}
