//! `Workload`.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::{
    ConversionError, Version, child, children, rename,
    topology::{self, TopologyError},
};
use crate::names::kueue::{
    GROUP, POD_PRIORITY_CLASS_SOURCE, WORKLOAD_PRIORITY_CLASS, WORKLOAD_PRIORITY_CLASS_SOURCE,
};

const TOPOLOGY: &str = "topologyAssignment";

pub(super) fn convert(object: &mut Map<String, Value>, to: Version) -> Result<(), ConversionError> {
    if let Some(spec) = child(object, &["spec"]) {
        match to {
            Version::V1Beta2 => to_priority_class_ref(spec),
            Version::V1Beta1 => {
                from_priority_class_ref(spec);
                drop_newer_fields(spec);
            }
        }
    }
    if let Some(status) = child(object, &["status"]) {
        let names = ["accumulatedPastExexcutionTimeSeconds", "accumulatedPastExecutionTimeSeconds"];
        match to {
            Version::V1Beta2 => rename(status, names[0], names[1]),
            Version::V1Beta1 => {
                rename(status, names[1], names[0]);
                status.remove("preemptionGates");
            }
        }
    }
    if let Some(admission) = child(object, &["status", "admission"]) {
        convert_topology(admission, to)?;
    }
    Ok(())
}

/// Kinds of classes: v1beta1's token, and v1beta2's group and kind.
const CLASSES: [(&str, &str, &str); 2] = [
    (WORKLOAD_PRIORITY_CLASS_SOURCE, GROUP, WORKLOAD_PRIORITY_CLASS),
    (POD_PRIORITY_CLASS_SOURCE, "scheduling.k8s.io", "PriorityClass"),
];

/// v1beta1 names a class and says in a token of its own which kind it is; without the token it is a name for people, and without
/// the name still a kind.
fn to_priority_class_ref(spec: &mut Map<String, Value>) {
    let name = spec.remove("priorityClassName").filter(is_name);
    let source = spec.remove("priorityClassSource").unwrap_or_default();
    if let Some((_, group, kind)) = CLASSES.iter().find(|(token, ..)| source == *token) {
        let mut class = Map::new();
        class.insert("group".into(), (*group).into());
        class.insert("kind".into(), (*kind).into());
        class.extend(name.map(|name| ("name".into(), name)));
        spec.insert("priorityClassRef".into(), class.into());
    }
}

fn from_priority_class_ref(spec: &mut Map<String, Value>) {
    let Some(Value::Object(mut class)) = spec.remove("priorityClassRef") else { return };
    let known = CLASSES.iter().find(|(_, group, kind)| {
        [class.get("group"), class.get("kind")].map(|text| text.and_then(Value::as_str))
            == [Some(*group), Some(*kind)]
    });
    if let Some((token, ..)) = known {
        spec.insert("priorityClassSource".into(), (*token).into());
        spec.extend(class.remove("name").filter(is_name).map(|name| ("priorityClassName".into(), name)));
    }
}

fn is_name(value: &Value) -> bool {
    value.as_str().is_some_and(|name| !name.is_empty())
}

/// What v1beta1 has no word for.
fn drop_newer_fields(spec: &mut Map<String, Value>) {
    spec.remove("preemptionGates");
    for pod_set in children(spec, "podSets") {
        if let Some(request) = child(pod_set, &["topologyRequest"]) {
            request.remove("podsetSliceRequiredTopologyConstraints");
        }
    }
}

fn convert_topology(admission: &mut Map<String, Value>, to: Version) -> Result<(), ConversionError> {
    for (index, assignment) in children(admission, "podSetAssignments").enumerate() {
        let Some(value @ Value::Object(_)) = assignment.get_mut(TOPOLOGY) else { continue };
        let converted = match to {
            Version::V1Beta2 => decode(value).and_then(|domains| Ok(json!(topology::pack(&domains)?))),
            Version::V1Beta1 => decode(value).and_then(|packed| Ok(json!(topology::unpack(&packed)?))),
        };
        *value = converted.map_err(|error| ConversionError::Topology { index, error })?;
    }
    Ok(())
}

/// Of a list without entries Go writes null, or nothing.
fn decode<T: DeserializeOwned>(value: &mut Value) -> Result<T, TopologyError> {
    let mut written = value.take();
    if let Some(fields) = written.as_object_mut() {
        fields.retain(|_, field| !field.is_null());
    }
    serde_json::from_value(written).map_err(|error| TopologyError::Malformed(error.to_string()))
}
