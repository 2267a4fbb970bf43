//! `Workload`, compared with what it was.

use std::collections::{BTreeMap, BTreeSet};

use model::Quantity;

use super::{
    FieldError, Findings, Gates, Path,
    template::same_template,
    workload::{annotation, gates_of, is_elastic, object},
    workload_status::is_reserved,
};
use crate::{
    api::kueue::v1beta2::{Admission, CheckState, PodSet, PodSetUpdate, Workload, WorkloadStatus},
    names::kueue::{ADMISSION_GATED_BY, WORKLOAD_SLICE_REPLACEMENT_FOR},
};

/// What is wrong with a change of a Workload, of its spec or its status.
pub fn workload_update(old: &Workload, new: &Workload, gates: Gates) -> Vec<FieldError> {
    let mut findings = Findings::default();
    object(new, Some(old), gates, &mut findings);
    if is_reserved(old) {
        pod_sets(old, new, gates, &mut findings);
    }
    let nothing = WorkloadStatus::default();
    let [old_status, status] = [old, new].map(|workload| workload.status.as_ref().unwrap_or(&nothing));
    if is_reserved(old) && is_reserved(new) {
        let shrunk = shrunk(new, status, gates);
        reclaimable_only_grow(old_status, status, &shrunk, &mut findings);
    }
    if let (Some(old), Some(new)) = (&old_status.admission, &status.admission)
        && grant(old, gates) != grant(new, gates)
    {
        let detail = "quota is granted and withdrawn; in between it stays what it is";
        findings.invalid_whole(&Path::root("status.admission"), detail);
    }
    pod_set_updates(old_status, status, &mut findings);
    let is_replacement = gates.elastic_jobs && annotation(new, WORKLOAD_SLICE_REPLACEMENT_FOR).is_some();
    if !is_replacement {
        cluster_name(old_status, status, &mut findings);
    }
    if gates.admission_gated_by {
        gates_only_go(old, new, &mut findings);
    }
    findings.into_errors()
}

/// Pod sets are fixed; with elastic jobs their counts may shrink.
fn pod_sets(old: &Workload, new: &Workload, gates: Gates, findings: &mut Findings) {
    const DETAIL: &str = "stays what it was while quota is reserved";
    let at = Path::root("spec.podSets");
    let (old, new) = (&old.spec.pod_sets, &new.spec.pod_sets);
    if old.len() != new.len() {
        return findings.invalid_whole(&at, DETAIL);
    }
    for (index, (old, new)) in old.iter().zip(new).enumerate() {
        let may_shrink = gates.elastic_jobs && new.count < old.count;
        if !(old.count == new.count || may_shrink) || !same_pods(old, new) {
            // Not `[index]`: that is how Kueue writes it.
            findings.invalid_whole(&at.field(&index.to_string()), DETAIL);
        }
    }
}

/// But for how many there are.
fn same_pods(old: &PodSet, new: &PodSet) -> bool {
    old.name == new.name
        && old.min_count == new.min_count
        && old.topology_request == new.topology_request
        && same_template(&old.template.0, &new.template.0)
}

/// Nobody is held back by a gate that was not there at creation.
fn gates_only_go(old: &Workload, new: &Workload, findings: &mut Findings) {
    let given = |workload| annotation(workload, ADMISSION_GATED_BY).is_some_and(|list| !list.is_empty());
    let before: BTreeSet<&str> = gates_of(old).collect();
    if (given(new) && !given(old)) || gates_of(new).any(|gate| !before.contains(gate)) {
        let annotations = Path::root("metadata.annotations");
        findings.forbidden(&annotations.key(ADMISSION_GATED_BY), "gates are added at creation only");
    }
}

/// Pod sets of an elastic job that are smaller than admitted: of those, what was given back is counted anew.
fn shrunk<'a>(workload: &'a Workload, status: &'a WorkloadStatus, gates: Gates) -> BTreeSet<&'a str> {
    let Some(admission) = status.admission.as_ref().filter(|_| is_elastic(workload, gates)) else {
        return BTreeSet::new();
    };
    let sets = &workload.spec.pod_sets;
    let counts: BTreeMap<&str, i32> = sets.iter().map(|set| (set.name.as_str(), set.count)).collect();
    let assignments = admission.pod_set_assignments.iter();
    assignments
        .map(|assignment| (assignment.name.as_str(), assignment.count))
        .filter(|(name, admitted)| admitted.is_some_and(|n| n > counts.get(name).copied().unwrap_or(0)))
        .map(|(name, _)| name)
        .collect()
}

/// Quota that was given back may be in use elsewhere.
fn reclaimable_only_grow(
    old: &WorkloadStatus,
    new: &WorkloadStatus,
    shrunk: &BTreeSet<&str>,
    findings: &mut Findings,
) {
    let now: BTreeMap<&str, i32> =
        new.reclaimable_pods.iter().map(|given| (given.name.as_str(), given.count)).collect();
    let list = Path::root("status.reclaimablePods");
    for before in old.reclaimable_pods.iter().filter(|before| !shrunk.contains(before.name.as_str())) {
        let at = list.key(&before.name);
        match now.get(before.name.as_str()) {
            None => findings.required(&at, "what was given back is not taken back"),
            Some(given) if *given < before.count => {
                let detail = format!("must be at least {}, what was given back already", before.count);
                findings.invalid(&at.field("count"), *given, detail);
            }
            Some(_) => {}
        }
    }
}

/// A grant with its amounts as such: "1" and "1000m" are the same. Where the pods go is no part of it if that may be decided later.
fn grant(admission: &Admission, gates: Gates) -> (Admission, Vec<BTreeMap<String, Option<Quantity>>>) {
    let mut admission = admission.clone();
    forget_empty(&mut admission.cluster_queue);
    let amounts = admission.pod_set_assignments.iter_mut().map(|assignment| {
        if gates.topology {
            assignment.topology_assignment = None;
            assignment.delayed_topology_request = None;
        }
        let usage = std::mem::take(&mut assignment.resource_usage);
        usage.into_iter().map(|(resource, amount)| (resource, amount.0.parse().ok())).collect()
    });
    let amounts = amounts.collect();
    (admission, amounts)
}

/// The pods are started with what a check added when it got ready.
fn pod_set_updates(old: &WorkloadStatus, new: &WorkloadStatus, findings: &mut Findings) {
    let now: BTreeMap<&str, _> =
        new.admission_checks.iter().map(|check| (check.name.as_str(), check)).collect();
    let list = Path::root("status.admissionChecks");
    for (index, before) in old.admission_checks.iter().enumerate() {
        if let Some(check) = now.get(before.name.as_str())
            && [before.state, check.state] == [CheckState::Ready; 2]
            && said(&before.pod_set_updates) != said(&check.pod_set_updates)
        {
            let detail = "stays what it was while the check is Ready";
            findings.invalid_whole(&list.index(index).field("podSetUpdates"), detail);
        }
    }
}

/// What a check adds, without what a client may write or leave out.
fn said(updates: &[PodSetUpdate]) -> Vec<PodSetUpdate> {
    let mut updates = updates.to_vec();
    for toleration in updates.iter_mut().flat_map(|update| &mut update.tolerations) {
        forget_empty(&mut toleration.key);
        forget_empty(&mut toleration.operator);
        forget_empty(&mut toleration.value);
        forget_empty(&mut toleration.effect);
    }
    updates
}

/// Go's clients leave out a text that is empty: the two are the same.
fn forget_empty(text: &mut Option<String>) {
    if text.as_deref() == Some("") {
        *text = None;
    }
}

/// A worker cluster takes what it was offered.
fn cluster_name(old: &WorkloadStatus, new: &WorkloadStatus, findings: &mut Findings) {
    if let (None, Some(cluster)) = (&old.cluster_name, &new.cluster_name)
        && !old.nominated_cluster_names.contains(cluster)
    {
        let detail = "must be one of nominatedClusterNames";
        findings.invalid(&Path::root("status.clusterName"), cluster.as_str(), detail);
    }
}
