//! What annotations on a pod template ask of the topology, as `topologyRequest` of the pod set.
//!
//! Rules: Kueue `pkg/controller/jobframework/tas.go`.

use std::collections::BTreeMap;

use crds::api::kueue::v1beta2::{PodSetSliceTopologyConstraint, PodSetTopologyRequest};
use crds::names::kueue;

use crate::jobs::{Ranks, is_true};

/// Most layers of slices within slices.
const MAX_LAYERS: usize = 3;

/// The request of a pod set; `None` where neither annotations nor the order of its pods have anything to say. `has_layers`:
/// whether slices within slices are looked at (feature gate `TASMultiLayerTopology`).
///
/// # Errors
/// An annotation that cannot be read, in words for its owner.
pub fn request(
    annotations: &BTreeMap<String, String>,
    ranks: &Ranks<'_>,
    has_layers: bool,
) -> Result<Option<PodSetTopologyRequest>, String> {
    let text = |key: &str| annotations.get(key).cloned();
    let (required, preferred) =
        (text(kueue::PODSET_REQUIRED_TOPOLOGY), text(kueue::PODSET_PREFERRED_TOPOLOGY));
    let bound = required.is_some() || preferred.is_some();
    let unconstrained = match annotations.get(kueue::PODSET_UNCONSTRAINED_TOPOLOGY).filter(|_| !bound) {
        Some(written) => Some(truth(written)?),
        None => None,
    };
    let constraints = match annotations.get(kueue::PODSET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS) {
        Some(written) if has_layers => layers(written)?,
        _ => Vec::new(),
    };
    let slices = text(kueue::PODSET_SLICE_REQUIRED_TOPOLOGY)
        .zip(annotations.get(kueue::PODSET_SLICE_SIZE))
        .filter(|_| constraints.is_empty());
    let (slice_level, slice_size) = match slices {
        Some((level, size)) => (Some(level), Some(number(size)?)),
        None => (None, None),
    };
    // Layers that are not looked at are a wish all the same.
    let names_layers = annotations.contains_key(kueue::PODSET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS);
    let silent = !bound && unconstrained.is_none() && slice_level.is_none() && !names_layers;
    if silent && *ranks == Ranks::default() {
        return Ok(None);
    }
    let sub_group_count = ranks.sub_groups.map(|count| i32::try_from(count).unwrap_or(i32::MAX));
    Ok(Some(PodSetTopologyRequest {
        preferred: preferred.filter(|_| required.is_none()),
        required,
        unconstrained,
        pod_index_label: ranks.pod_index.map(str::to_owned),
        sub_group_index_label: ranks.sub_group.map(str::to_owned),
        sub_group_count,
        pod_set_group_name: text(kueue::PODSET_GROUP_NAME).filter(|_| bound),
        pod_set_slice_required_topology: slice_level,
        pod_set_slice_size: slice_size,
        pod_set_slice_required_topology_constraints: constraints,
    }))
}

fn truth(written: &str) -> Result<bool, String> {
    is_true(written).ok_or_else(|| {
        format!(
            "annotation {} is {written:?}; it must be true or false",
            kueue::PODSET_UNCONSTRAINED_TOPOLOGY
        )
    })
}

fn number(written: &str) -> Result<i32, String> {
    written.parse().map_err(|_| {
        format!("annotation {} is {written:?}, which is no whole number", kueue::PODSET_SLICE_SIZE)
    })
}

fn layers(written: &str) -> Result<Vec<PodSetSliceTopologyConstraint>, String> {
    let key = kueue::PODSET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS;
    let layers: Vec<PodSetSliceTopologyConstraint> = serde_json::from_str(written)
        .map_err(|error| format!("annotation {key} is no list of levels and sizes: {error}"))?;
    match layers.len() {
        1..=MAX_LAYERS => Ok(layers),
        length => Err(format!("annotation {key} has {length} entries; 1 to {MAX_LAYERS} are possible")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn annotations_become_a_request() {
        let indexed = Ranks { pod_index: Some("index"), ..Ranks::default() };
        for (annotations, ranks, expected) in [
            (json!({}), Ranks::default(), Value::Null),
            (json!({}), indexed.clone(), json!({ "podIndexLabel": "index" })),
            (
                json!({ "podset-required-topology": "rack", "podset-preferred-topology": "block" }),
                indexed,
                json!({ "required": "rack", "podIndexLabel": "index" }),
            ),
            (
                json!({ "podset-preferred-topology": "rack", "podset-group-name": "g" }),
                Ranks { pod_index: Some("index"), sub_group: Some("job"), sub_groups: Some(3) },
                json!({
                    "preferred": "rack", "podSetGroupName": "g", "podIndexLabel": "index",
                    "subGroupIndexLabel": "job", "subGroupCount": 3,
                }),
            ),
            (
                json!({ "podset-unconstrained-topology": "true", "podset-group-name": "g" }),
                Ranks::default(),
                json!({ "unconstrained": true }),
            ),
            (
                json!({ "podset-slice-required-topology": "rack", "podset-slice-size": "4" }),
                Ranks::default(),
                json!({ "podSetSliceRequiredTopology": "rack", "podSetSliceSize": 4 }),
            ),
            // A level without a size says nothing.
            (json!({ "podset-slice-required-topology": "rack" }), Ranks::default(), Value::Null),
            (
                json!({
                    "podset-required-topology": "block",
                    "podset-slice-required-topology-constraints":
                        r#"[{"topology":"rack","size":4},{"topology":"host","size":2}]"#,
                }),
                Ranks::default(),
                json!({ "required": "block", "podsetSliceRequiredTopologyConstraints": [
                    { "topology": "rack", "size": 4 }, { "topology": "host", "size": 2 },
                ]}),
            ),
        ] {
            let made = request(&prefixed(&annotations), &ranks, true).unwrap();
            assert_eq!(made.map_or(Value::Null, |made| json!(made)), expected, "{annotations}");
        }
    }

    #[test]
    fn layers_of_slices_are_behind_a_gate() {
        let annotations = prefixed(&json!({
            "podset-slice-required-topology": "rack", "podset-slice-size": "4",
            "podset-slice-required-topology-constraints": r#"[{"topology":"host","size":2}]"#,
        }));
        let made = |has_layers| request(&annotations, &Ranks::default(), has_layers).unwrap().unwrap();
        assert_eq!(made(false).pod_set_slice_size, Some(4));
        assert_eq!(made(false).pod_set_slice_required_topology_constraints.len(), 0);
        let bare = prefixed(&json!({ "podset-slice-required-topology-constraints": "what nobody reads" }));
        let bare = request(&bare, &Ranks::default(), false).unwrap();
        assert_eq!(bare.map(|bare| json!(bare)), Some(json!({})));
        assert_eq!(made(true).pod_set_slice_size, None);
        assert_eq!(made(true).pod_set_slice_required_topology_constraints.len(), 1);
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        for annotations in [
            json!({ "podset-unconstrained-topology": "perhaps" }),
            json!({ "podset-slice-required-topology": "rack", "podset-slice-size": "four" }),
            json!({ "podset-slice-required-topology-constraints": "rack" }),
            json!({ "podset-slice-required-topology-constraints": "[]" }),
        ] {
            let told = request(&prefixed(&annotations), &Ranks::default(), true).unwrap_err();
            assert!(told.contains("annotation kueue.x-k8s.io/podset-"), "{told}");
        }
    }

    fn prefixed(annotations: &Value) -> BTreeMap<String, String> {
        let all = annotations.as_object().unwrap().iter();
        all.map(|(key, value)| (format!("kueue.x-k8s.io/{key}"), value.as_str().unwrap().to_owned()))
            .collect()
    }
}
