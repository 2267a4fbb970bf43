//! The pods of what is wrapped: whole objects, each with pods of its own.

use serde_json::{Value, json};

use super::read::{self, count};
use super::table::{self, PodSets};
use super::{JobKind, JobObject, JobPodSet};
use crate::pods;

/// The pod sets of all components, in order, called after the job and numbered through.
pub(super) fn pod_sets(kind: &JobKind, object: &JobObject) -> Result<Vec<JobPodSet>, String> {
    let PodSets::Components { at, template, pod_sets } = &kind.pod_sets else { return Ok(Vec::new()) };
    let name = object.metadata.name.as_deref().unwrap_or_default().to_lowercase();
    let mut sets: Vec<JobPodSet> = Vec::new();
    for index in 0..object.length(at) {
        let here = format!("{at}/{index}");
        let declared = format!("{here}{pod_sets}");
        let of_component = match object.length(&declared) {
            0 => inferred(object, &format!("{here}{template}"))?,
            length => (0..length)
                .map(|set| described(object, &here, &format!("{declared}/{set}")))
                .collect::<Result<_, _>>()?,
        };
        sets.extend(of_component);
    }
    for (index, set) in sets.iter_mut().enumerate() {
        set.name = format!("{name}-{index}");
        set.given = object.at(&set.template).map(without_identity);
    }
    Ok(sets)
}

/// Where the template is of a pod set that the component describes at `at`, as in `template.spec.tasks[0].template`.
pub(super) fn place(object: &JobObject, component: &str, at: &str) -> String {
    let path = object.text(&format!("{at}/path"));
    let path = path.replace('[', ".").replace(']', "");
    let pointer: String =
        path.split('.').filter(|part| !part.is_empty()).map(|part| format!("/{part}")).collect();
    format!("{component}{pointer}")
}

/// One that the component describes: where its template is, and how many pods there are.
fn described(object: &JobObject, component: &str, at: &str) -> Result<JobPodSet, String> {
    let count = count(object, &format!("{at}/replicas"))?.unwrap_or(1);
    Ok(JobPodSet { count, template: place(object, component, at), ..JobPodSet::default() })
}

/// Those of an object of a kind that the tables know.
fn inferred(object: &JobObject, at: &str) -> Result<Vec<JobPodSet>, String> {
    let text = |field: &str| object.text(&format!("{at}/{field}"));
    let (version, name) = (text("apiVersion"), text("kind"));
    let group = version.split_once('/').map_or("", |(group, _)| group);
    if (version, name) == ("v1", "Pod") {
        return Ok(vec![JobPodSet { count: 1, template: at.to_owned(), ..JobPodSet::default() }]);
    }
    if let Some(kind) = table::of_owner(version, name) {
        let wrapped = JobObject {
            spec: object.at(&format!("{at}/spec")).cloned().unwrap_or_default(),
            ..JobObject::default()
        };
        let mut sets = read::pod_sets(kind, &wrapped)?;
        sets.iter_mut().for_each(|set| set.template = format!("{at}{}", set.template));
        return Ok(sets);
    }
    if let Some(owner) = pods::of_kind(group, name).filter(|owner| !owner.is_per_replica()) {
        let count = count(object, &format!("{at}/spec/replicas"))?.unwrap_or(1);
        let template = format!("{at}{}", owner.templates[0]);
        return Ok(vec![JobPodSet { count, template, ..JobPodSet::default() }]);
    }
    Ok(Vec::new())
}

/// A pod template of what may be a whole pod.
fn without_identity(template: &Value) -> Value {
    let mut metadata = json!({});
    for field in ["labels", "annotations"] {
        if let Some(map) = template.pointer(&format!("/metadata/{field}")).filter(|map| map.is_object()) {
            metadata[field] = map.clone();
        }
    }
    json!({ "metadata": metadata, "spec": template.get("spec").cloned().unwrap_or_else(|| json!({})) })
}
