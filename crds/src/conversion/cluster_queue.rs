//! `ClusterQueue` and `Cohort`.

use serde_json::{Map, Value, json};

use super::{ConversionError, Version, child, rename};

pub(super) fn convert(object: &mut Map<String, Value>, to: Version) -> Result<(), ConversionError> {
    if let Some(spec) = child(object, &["spec"]) {
        match to {
            Version::V1Beta2 => {
                rename(spec, "cohort", "cohortName");
                move_admission_checks(spec);
                new_fungibility_names(spec);
            }
            Version::V1Beta1 => {
                rename(spec, "cohortName", "cohort");
                spec.remove("concurrentAdmissionPolicy");
            }
        }
    }
    if let Some(status) = child(object, &["status"]) {
        status.remove("pendingWorkloadsStatus");
    }
    convert_cohort(object, to)
}

/// The versions of Cohort differ in what a queue has consumed: only LocalQueues consume.
pub(super) fn convert_cohort(object: &mut Map<String, Value>, _: Version) -> Result<(), ConversionError> {
    if let Some(fair_sharing) = child(object, &["status", "fairSharing"]) {
        fair_sharing.remove("admissionFairSharingStatus");
    }
    Ok(())
}

/// v1beta2 has one list of checks: a plain name is a check on all flavors. Where v1beta1 has both lists, which its rules forbid,
/// the plain one counts. An empty list is no list.
fn move_admission_checks(spec: &mut Map<String, Value>) {
    let plain = spec.remove("admissionChecks");
    let strategy = spec.remove("admissionChecksStrategy");
    let checks = match (plain, strategy) {
        (Some(Value::Array(names)), _) if !names.is_empty() => {
            names.into_iter().map(|name| json!({ "name": name })).collect()
        }
        (_, Some(Value::Object(mut strategy))) => match strategy.remove("admissionChecks") {
            Some(Value::Array(checks)) => checks,
            _ => Vec::new(),
        },
        _ => Vec::new(),
    };
    if !checks.is_empty() {
        spec.insert("admissionChecksStrategy".into(), json!({ "admissionChecks": checks }));
    }
}

fn new_fungibility_names(spec: &mut Map<String, Value>) {
    let Some(fungibility) = child(spec, &["flavorFungibility"]) else { return };
    for (field, old) in [("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")] {
        if let Some(value) = fungibility.get_mut(field)
            && value == old
        {
            *value = "MayStopSearch".into();
        }
    }
}
