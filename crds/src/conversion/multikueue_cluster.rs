//! `MultiKueueCluster`.

use serde_json::{Map, Value, json};

use super::{ConversionError, Version, child};

const KUBE_CONFIG: &str = "kubeConfig";
const PROFILE: &str = "clusterProfileRef";

pub(super) fn convert(object: &mut Map<String, Value>, to: Version) -> Result<(), ConversionError> {
    if let Some(spec) = child(object, &["spec"]) {
        match to {
            Version::V1Beta2 => to_source(spec),
            Version::V1Beta1 => from_source(spec),
        }
    }
    Ok(())
}

/// v1beta1 demands a kubeconfig even next to a profile: one without a location is none.
fn to_source(spec: &mut Map<String, Value>) {
    let profile = spec.remove(PROFILE).filter(Value::is_object);
    let kube_config = spec.remove(KUBE_CONFIG);
    let kube_config =
        kube_config.filter(|config| config["location"].as_str().is_some_and(|location| !location.is_empty()));
    let mut source = Map::new();
    source.extend(profile.map(|profile| (PROFILE.into(), profile)));
    source.extend(kube_config.map(|config| (KUBE_CONFIG.into(), config)));
    spec.insert("clusterSource".into(), source.into());
}

fn from_source(spec: &mut Map<String, Value>) {
    if let Some(Value::Object(source)) = spec.remove("clusterSource") {
        spec.extend(source);
    }
    spec.entry(KUBE_CONFIG).or_insert_with(|| json!({ "location": "" }));
}
