//! What annotations of pod templates ask of the topology: Kueue's `pkg/controller/jobframework/tas_validation.go`, with its field
//! paths and kinds of errors.

use std::collections::BTreeMap;

use crds::names::kueue;
use crds::validation::{ErrorKind, FieldError, is_qualified_name};
use serde::Deserialize;
use serde_json::{Value, json};

use super::rules::{Subject, forbidden, invalid, required};
use crate::compose::annotations_of;
use crate::jobs::table::PodSets;
use crate::jobs::{JobPodSet, Ranks, field, is_true, templates};
use crate::topology::request;

type Annotations = BTreeMap<String, String>;

const REQUIRED: &str = kueue::PODSET_REQUIRED_TOPOLOGY;
const PREFERRED: &str = kueue::PODSET_PREFERRED_TOPOLOGY;
const UNCONSTRAINED: &str = kueue::PODSET_UNCONSTRAINED_TOPOLOGY;
const SLICE_LEVEL: &str = kueue::PODSET_SLICE_REQUIRED_TOPOLOGY;
const SLICE_SIZE: &str = kueue::PODSET_SLICE_SIZE;
const LAYERS: &str = kueue::PODSET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS;
const GROUP: &str = kueue::PODSET_GROUP_NAME;
/// Most layers of slices within slices.
const MAX_LAYERS: usize = 3;

/// One of them, as written: what is missing is wrong by itself, not the whole list.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Layer {
    topology: String,
    size: i32,
}

/// Whether all of it can be read. Where not, it is not known what pod sets there will be, and so nothing is said of their sizes.
pub(super) fn is_read(annotations: &Annotations, has_layers: bool) -> bool {
    request(annotations, &Ranks::default(), has_layers).is_ok()
}

/// The rules for all pod sets of a job; without `sets`, for its templates, as its pods cannot be counted.
pub(super) fn of_job(job: &Subject<'_>, sets: Option<&[JobPodSet]>, has_layers: bool) -> Vec<FieldError> {
    let Some(sets) = sets else {
        let of_place = |place: String| {
            let annotations = annotations_of(job.object.at(&place)?);
            Some(of_template(&metadata_path(job, &place), &annotations, None, has_layers))
        };
        return templates(job.kind, job.object).into_iter().filter_map(of_place).flatten().collect();
    };
    let of_set = |set: &JobPodSet| {
        let annotations = annotations_of(set.template_in(job.object)?);
        Some((metadata_path(job, &set.template), annotations, set.count))
    };
    let members: Vec<_> = sets.iter().filter_map(of_set).collect();
    if let (PodSets::Single { .. }, [(path, annotations, count)]) = (&job.kind.pod_sets, &members[..]) {
        return of_single(job, path, annotations, *count, has_layers);
    }
    let are_read = members.iter().all(|(_, annotations, _)| is_read(annotations, has_layers));
    let of_member = |(path, annotations, count): &(String, Annotations, i64)| {
        of_template(path, annotations, Some(*count).filter(|_| are_read), has_layers)
    };
    let mut errors: Vec<FieldError> = members.iter().flat_map(of_member).collect();
    if job.kind.groups && are_read {
        errors.extend(groups(&members));
    }
    errors
}

/// The rules for a job of one template. How many pods there are counts only where the rest is in order.
fn of_single(
    job: &Subject<'_>,
    path: &str,
    annotations: &Annotations,
    count: i64,
    has_layers: bool,
) -> Vec<FieldError> {
    let errors = of_template(path, annotations, None, has_layers);
    if !errors.is_empty() {
        return errors;
    }
    if job.elastic
        && let Some(key) = [REQUIRED, PREFERRED].into_iter().find(|key| annotations.contains_key(*key))
    {
        return vec![forbidden(
            format!("{path}.annotations.{key}"),
            "an elastic job cannot be kept to a domain",
        )];
    }
    of_template(path, annotations, Some(count), has_layers)
}

/// The path of a template's metadata. A role is a key of a map.
fn metadata_path(job: &Subject<'_>, template: &str) -> String {
    if let PodSets::Roles { at, template: rest, .. } = &job.kind.pod_sets
        && let Some(role) = template.strip_prefix(at).and_then(|tail| tail.strip_suffix(rest))
    {
        return format!("{}[{}].{}.metadata", field(at), role.trim_start_matches('/'), field(rest));
    }
    format!("{}.metadata", job.kind.field(template))
}

/// The rules for one template; `count`: how many pods are made of it, where that is known.
pub(super) fn of_template(
    path: &str,
    annotations: &Annotations,
    count: Option<i64>,
    has_layers: bool,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let all = format!("{path}.annotations");
    let at = |key: &str| format!("{all}[{key}]");
    let has = |key: &str| annotations.contains_key(key);
    if [REQUIRED, PREFERRED, UNCONSTRAINED].into_iter().filter(|key| has(key)).count() > 1 {
        errors.push(contradiction(
            all.clone(),
            format!("only one of {REQUIRED}, {PREFERRED} and {UNCONSTRAINED} can be there"),
        ));
    }
    for key in [REQUIRED, PREFERRED, SLICE_LEVEL] {
        if let Some(level) = annotations.get(key).filter(|level| !is_qualified_name(level)) {
            errors.push(invalid(at(key), level, "it must be the key of a node label"));
        }
    }
    if let Some(name) = annotations.get(GROUP) {
        if !name.starts_with('+') && name.parse::<u64>().is_ok() {
            errors.push(invalid(at(GROUP), name, "it must not be a number"));
        }
        for other in [SLICE_SIZE, SLICE_LEVEL].into_iter().filter(|key| has(key)) {
            errors.push(forbidden(at(GROUP), format!("it does not go with {other}")));
        }
        if !has(REQUIRED) && !has(PREFERRED) {
            errors.push(forbidden(at(GROUP), format!("it goes with {REQUIRED} or {PREFERRED}")));
        }
    }
    if let Some(text) = annotations.get(UNCONSTRAINED).filter(|text| is_true(text).is_none()) {
        errors.push(invalid(at(UNCONSTRAINED), text, "it must be true or false"));
    }
    if let Some(text) = annotations.get(SLICE_SIZE) {
        match text.parse::<i32>() {
            Err(_) => errors.push(invalid(at(SLICE_SIZE), text, "it must be a whole number")),
            Ok(..1) => errors.push(invalid(at(SLICE_SIZE), text, "it must be 1 or more")),
            Ok(size) => {
                let over = count.filter(|count| i64::from(size) > *count);
                errors.extend(over.map(|count| {
                    invalid(at(SLICE_SIZE), text, format!("there are {count} pods; it must not be more"))
                }));
            }
        }
    }
    match (has(SLICE_LEVEL), has(SLICE_SIZE)) {
        (true, false) => errors.push(required(at(SLICE_SIZE), format!("it goes with {SLICE_LEVEL}"))),
        (false, true) => errors.push(forbidden(at(SLICE_SIZE), format!("it goes with {SLICE_LEVEL}"))),
        _ => {}
    }
    if let Some(text) = annotations.get(LAYERS) {
        errors.extend(layers(&all, text, annotations, count, has_layers));
    }
    errors
}

fn layers(
    all: &str,
    text: &str,
    annotations: &Annotations,
    count: Option<i64>,
    has_layers: bool,
) -> Vec<FieldError> {
    let here = format!("{all}[{LAYERS}]");
    if !has_layers {
        return vec![forbidden(here, "the feature gate TASMultiLayerTopology is off")];
    }
    let mut errors = Vec::new();
    for other in [SLICE_LEVEL, SLICE_SIZE].into_iter().filter(|key| annotations.contains_key(*key)) {
        errors.push(forbidden(here.clone(), format!("it does not go with {other}")));
    }
    if annotations.contains_key(GROUP) {
        errors.push(forbidden(format!("{all}[{GROUP}]"), format!("it does not go with {LAYERS}")));
    }
    let layers = match serde_json::from_str::<Option<Vec<Layer>>>(text) {
        Ok(layers) => layers.unwrap_or_default(),
        Err(error) => {
            errors.push(invalid(here, text, format!("it must be a list of levels and sizes: {error}")));
            return errors;
        }
    };
    if layers.is_empty() || layers.len() > MAX_LAYERS {
        errors.push(invalid(here, text, format!("it must have 1 to {MAX_LAYERS} entries")));
        return errors;
    }
    let number = |at: String, size: i32, detail: String| FieldError {
        value: Some(json!(size)),
        ..invalid(at, "", detail)
    };
    for (index, layer) in layers.iter().enumerate() {
        let (topology, size) = (format!("{here}[{index}].topology"), format!("{here}[{index}].size"));
        if !is_qualified_name(&layer.topology) {
            errors.push(invalid(topology.clone(), &layer.topology, "it must be the key of a node label"));
        }
        if layer.size < 1 {
            errors.push(number(size.clone(), layer.size, "it must be 1 or more".to_owned()));
        }
        if layers[..index].iter().any(|above| above.topology == layer.topology) {
            let value = Some(Value::from(layer.topology.as_str()));
            let detail = String::new();
            errors.push(FieldError { field: topology, kind: ErrorKind::Duplicate, value, detail });
        }
        let above = index.checked_sub(1).map(|above| layers[above].size);
        if let Some(above) = above.filter(|above| layer.size > 0 && above % layer.size != 0) {
            errors.push(number(size, layer.size, format!("it must divide the {above} of the layer above")));
        }
    }
    if let Some(count) = count.filter(|count| i64::from(layers[0].size) > *count) {
        errors.push(number(here, layers[0].size, format!("there are {count} pods; it must not be more")));
    }
    errors
}

/// Pod sets that are placed together are two, one of them of a single pod, and they ask for the same.
pub(super) fn groups(members: &[(String, Annotations, i64)]) -> Vec<FieldError> {
    let mut by_name: BTreeMap<&str, Vec<&(String, Annotations, i64)>> = BTreeMap::new();
    for member in members {
        let bound = member.1.contains_key(REQUIRED) || member.1.contains_key(PREFERRED);
        if let Some(name) = member.1.get(GROUP).filter(|_| bound) {
            by_name.entry(name).or_default().push(member);
        }
    }
    let mut errors = Vec::new();
    for (name, members) in by_name {
        let at = |path: &str| format!("{path}.annotations[{GROUP}]");
        let [one, other] = members[..] else {
            errors.extend(members.iter().map(|(path, ..)| {
                let detail = format!("a group is of exactly 2 pod sets, and this one of {}", members.len());
                invalid(at(path), name, detail)
            }));
            continue;
        };
        if one.2 != 1 && other.2 != 1 {
            let detail = "one of the two pod sets must have a single pod";
            errors.extend([one, other].map(|(path, ..)| invalid(at(path), name, detail)));
        }
        let wish = |member: &(String, Annotations, i64)| {
            let wish = |key: &str| member.1.get(key).cloned();
            (wish(REQUIRED), wish(PREFERRED).filter(|_| !member.1.contains_key(REQUIRED)))
        };
        if wish(one) != wish(other) {
            let detail = format!("both pod sets must have the same {REQUIRED} or {PREFERRED}");
            errors.extend(
                [one, other].map(|(path, ..)| contradiction(format!("{path}.annotations"), detail.clone())),
            );
        }
    }
    errors
}

/// What cannot be, without a value to show.
fn contradiction(at: String, detail: String) -> FieldError {
    FieldError { value: None, ..invalid(at, "", detail) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(pairs: &[(&str, &str)]) -> Annotations {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn said(errors: &[FieldError]) -> Vec<String> {
        errors
            .iter()
            .map(|error| format!("{:?} {}", error.kind, error.field.replace("kueue.x-k8s.io/podset-", "")))
            .collect()
    }

    #[test]
    fn a_template_asks_for_one_thing_that_can_be() {
        let layers = |text: &str| annotations(&[(LAYERS, text)]);
        for (given, wanted) in [
            (annotations(&[]), &[][..]),
            (annotations(&[(REQUIRED, "cloud.com/rack")]), &[]),
            (annotations(&[(REQUIRED, "rack"), (UNCONSTRAINED, "true")]), &["Invalid m.annotations"]),
            (annotations(&[(PREFERRED, "a rack")]), &["Invalid m.annotations[preferred-topology]"]),
            (annotations(&[(UNCONSTRAINED, "maybe")]), &["Invalid m.annotations[unconstrained-topology]"]),
            (annotations(&[(SLICE_LEVEL, "rack")]), &["Required m.annotations[slice-size]"]),
            (annotations(&[(SLICE_SIZE, "2")]), &["Forbidden m.annotations[slice-size]"]),
            (
                annotations(&[(SLICE_LEVEL, "rack"), (SLICE_SIZE, "0")]),
                &["Invalid m.annotations[slice-size]"],
            ),
            (
                annotations(&[(SLICE_LEVEL, "rack"), (SLICE_SIZE, "5")]),
                &["Invalid m.annotations[slice-size]"],
            ),
            (annotations(&[(SLICE_LEVEL, "rack"), (SLICE_SIZE, "4")]), &[]),
            (annotations(&[(REQUIRED, "rack"), (GROUP, "7")]), &["Invalid m.annotations[group-name]"]),
            (annotations(&[(GROUP, "g")]), &["Forbidden m.annotations[group-name]"]),
            (layers(r#"[{"topology":"block","size":4},{"topology":"rack","size":2}]"#), &[]),
            (layers("[]"), &["Invalid m.annotations[slice-required-topology-constraints]"]),
            (layers("x"), &["Invalid m.annotations[slice-required-topology-constraints]"]),
            (
                layers(r#"[{"topology":"rack","size":4},{"topology":"rack","size":3}]"#),
                &[
                    "Duplicate m.annotations[slice-required-topology-constraints][1].topology",
                    "Invalid m.annotations[slice-required-topology-constraints][1].size",
                ],
            ),
            (
                layers(r#"[{"topology":"rack","size":8}]"#),
                &["Invalid m.annotations[slice-required-topology-constraints]"],
            ),
        ] {
            assert_eq!(said(&of_template("m", &given, Some(4), true)), wanted, "{given:?}");
        }
        let gate_off = of_template("m", &layers("[]"), None, false);
        assert_eq!(said(&gate_off), ["Forbidden m.annotations[slice-required-topology-constraints]"]);
    }

    #[test]
    fn a_group_is_a_leader_and_its_workers() {
        let member = |path: &str, level: &str, count: i64| {
            (path.to_owned(), annotations(&[(REQUIRED, level), (GROUP, "g")]), count)
        };
        let at = |path: &str| format!("Invalid {path}.annotations[group-name]");
        assert!(groups(&[member("a", "rack", 1), member("b", "rack", 4)]).is_empty());
        assert_eq!(said(&groups(&[member("a", "rack", 1)])), [at("a")]);
        assert_eq!(said(&groups(&[member("a", "rack", 2), member("b", "rack", 4)])), [at("a"), at("b")]);
        let differ = groups(&[member("a", "rack", 1), member("b", "block", 4)]);
        assert_eq!(said(&differ), ["Invalid a.annotations", "Invalid b.annotations"]);
    }
}
