//! `Workload`, by itself.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    FieldError, Findings, Gates, Path,
    conditions::conditions,
    metadata,
    resources::resources,
    syntax::is_domain_path,
    workload_status::{admission, check_updates, is_reserved, reclaimable},
};
use crate::{
    api::kueue::v1beta2::{PodSet, PodSetTopologyRequest, Workload},
    names::kueue::{ADMISSION_GATED_BY, ELASTIC_JOB, PRIORITY_BOOST},
};

/// Longest name of a controller that gates admission: as of a Job's `managedBy`.
const MAX_GATE: usize = 63;

/// What is wrong with a new Workload.
pub fn workload(workload: &Workload, gates: Gates) -> Vec<FieldError> {
    let mut findings = Findings::default();
    object(workload, None, gates, &mut findings);
    findings.into_errors()
}

/// The rules that hold at every write. `old`: what it was, for mistakes that are tolerated where they were before.
pub(super) fn object(workload: &Workload, old: Option<&Workload>, gates: Gates, findings: &mut Findings) {
    pod_sets(workload, gates, findings);
    if let Some(status) = &workload.status {
        let at = Path::root("status");
        let names: BTreeSet<&str> = workload.spec.pod_sets.iter().map(|set| set.name.as_str()).collect();
        if is_reserved(workload) {
            let was_so = old.is_some_and(|old| {
                is_reserved(old) && old.status.as_ref().is_none_or(|status| status.admission.is_none())
            });
            admission(status, &names, was_so, &at.field("admission"), findings);
        }
        conditions(&status.conditions, &at.field("conditions"), findings);
        let before = old.filter(|_| is_elastic(workload, gates)).and_then(|old| old.status.as_ref());
        reclaimable(status, before, &workload.spec.pod_sets, &at.field("reclaimablePods"), findings);
        check_updates(&status.admission_checks, &names, &at.field("admissionChecks"), findings);
    }
    if gates.admission_gated_by {
        gated_by(workload, findings);
    }
    if gates.priority_boost
        && let Some(boost) = annotation(workload, PRIORITY_BOOST)
        && boost.parse::<i32>().is_err()
    {
        let annotations = Path::root("metadata.annotations");
        findings.invalid(&annotations.key(PRIORITY_BOOST), boost, "must be a whole number of 32 bits");
    }
}

fn pod_sets(workload: &Workload, gates: Gates, findings: &mut Findings) {
    let sets = &workload.spec.pod_sets;
    let at = Path::root("spec.podSets");
    for (index, set) in sets.iter().enumerate() {
        let at = at.index(index);
        template(&set.template.0, gates, &at.field("template"), findings);
        if let Some(request) = set.topology_request.as_ref().filter(|_| gates.slice_size) {
            slices(request, &at.field("topologyRequest"), findings);
        }
    }
    let partial = sets.iter().filter(|set: &&PodSet| set.min_count.is_some()).count();
    if partial > 1 {
        findings.invalid(&at, partial, "at most one pod set has minCount");
    }
    if partial > 0 && is_elastic(workload, gates) {
        findings.invalid(&at, partial, "minCount does not go with an elastic job");
    }
}

fn template(template: &Value, gates: Gates, at: &Path<'_>, findings: &mut Findings) {
    if gates.pod_set_metadata {
        let at = at.field("metadata");
        metadata::labels(texts(&template["metadata"]["labels"]), &at.field("labels"), findings);
        let annotations = texts(&template["metadata"]["annotations"]);
        metadata::annotations(annotations, &at.field("annotations"), findings);
    }
    let (spec, at) = (&template["spec"], at.field("spec"));
    for list in ["initContainers", "containers"] {
        let at = at.field(list);
        for (index, container) in spec[list].as_array().into_iter().flatten().enumerate() {
            resources(&container["resources"], gates, &at.index(index).field("resources"), findings);
        }
    }
    resources(&spec["resources"], gates, &at.field("resources"), findings);
}

fn texts(map: &Value) -> impl Iterator<Item = (&str, &str)> {
    let entries = map.as_object().into_iter().flatten();
    entries.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
}

/// A slice's size and its level go together, and there is something in every slice.
fn slices(request: &PodSetTopologyRequest, at: &Path<'_>, findings: &mut Findings) {
    const POSITIVE: &str = "must be 1 or more";
    let at_size = at.field("podSetSliceSize");
    match (&request.pod_set_slice_required_topology, request.pod_set_slice_size) {
        (Some(_), None) => findings.required(&at_size, "goes with podSetSliceRequiredTopology"),
        (Some(_), Some(size)) if size < 1 => findings.invalid(&at_size, size, POSITIVE),
        (None, Some(_)) => findings.forbidden(&at_size, "goes with podSetSliceRequiredTopology"),
        _ => {}
    }
    let layers = at.field("podsetSliceRequiredTopologyConstraints");
    for (index, layer) in request.pod_set_slice_required_topology_constraints.iter().enumerate() {
        if layer.size < 1 {
            findings.invalid(&layers.index(index).field("size"), layer.size, POSITIVE);
        }
    }
}

/// Whether the job may be resized while it runs.
pub(super) fn is_elastic(workload: &Workload, gates: Gates) -> bool {
    gates.elastic_jobs && annotation(workload, ELASTIC_JOB) == Some("true")
}

pub(super) fn annotation<'a>(workload: &'a Workload, key: &str) -> Option<&'a str> {
    workload.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The controllers that hold the Workload back; spaces around their names do not count.
pub(super) fn gates_of(workload: &Workload) -> impl Iterator<Item = &str> {
    let list = annotation(workload, ADMISSION_GATED_BY).filter(|list| !list.trim().is_empty());
    list.into_iter().flat_map(|list| list.split(',').map(str::trim))
}

fn gated_by(workload: &Workload, findings: &mut Findings) {
    let annotations = Path::root("metadata.annotations");
    let at = annotations.key(ADMISSION_GATED_BY);
    let mut seen = BTreeSet::new();
    let list = annotation(workload, ADMISSION_GATED_BY).unwrap_or_default();
    for gate in gates_of(workload) {
        if gate.is_empty() {
            findings.invalid(&at, list, "a name is empty");
            continue;
        }
        if !seen.insert(gate) {
            findings.invalid(&at, list, "a controller is named once");
            continue;
        }
        if !is_domain_path(gate) {
            findings.invalid(&at, gate, "must be a controller, such as example.com/controller");
        }
        if gate.len() > MAX_GATE {
            findings.too_long(&at, MAX_GATE);
        }
    }
}
