//! Which of Kueue's feature gates need others, and which cannot be moved (`pkg/features/kube_features.go`).

use std::path::Path;

use kit::config::ConfigError;
use serde_json::Value;

const TOPOLOGY: &str = "TopologyAwareScheduling";
const REPLACEMENT: &str = "TASFailedNodeReplacement";
const DRA: &str = "KueueDRAIntegration";

/// Gates, whether they are open by default, and those that must be open, too, where they are. All that others need are open by
/// default.
const DEPENDENT: &[(&str, bool, &[&str])] = &[
    ("ElasticJobsViaWorkloadSlicesWithTAS", false, &["ElasticJobsViaWorkloadSlices", TOPOLOGY]),
    ("FlavorFungibilityPreserveScanProgress", true, &["FlavorFungibility"]),
    ("KueueDRAIntegrationConsumableCapacity", false, &[DRA]),
    ("KueueDRAIntegrationExtendedResource", true, &[DRA]),
    ("KueueDRAIntegrationPartitionableDevices", true, &[DRA]),
    ("TASBalancedPlacement", false, &[TOPOLOGY]),
    (REPLACEMENT, true, &[TOPOLOGY]),
    ("TASFailedNodeReplacementFailFast", true, &[TOPOLOGY, REPLACEMENT]),
    ("TASHandleOverlappingFlavors", true, &[TOPOLOGY]),
    ("TASMultiLayerTopology", true, &[TOPOLOGY]),
    ("TASProfileMixed", true, &[TOPOLOGY]),
    ("TASRecomputeAssignmentWithinSchedulingCycle", true, &[TOPOLOGY]),
    ("TASReplaceNodeDueToNotReadyOverFixedTime", false, &[TOPOLOGY, REPLACEMENT]),
    ("TASReplaceNodeOnNodeTaints", true, &[TOPOLOGY]),
    ("TASReplaceNodeOnPodTermination", true, &[TOPOLOGY, REPLACEMENT]),
    ("TASRespectNodeAffinityPreferred", false, &[TOPOLOGY]),
    ("UnadmittedWorkloadsExplicitStatus", false, &["UnadmittedWorkloadsObservability"]),
];

/// Gates that are open for good.
const LOCKED: [&str; 2] = ["ManagedJobsNamespaceSelectorAlwaysRespected", "TLSOptions"];

/// The gates that are open by default and cannot be where this one is closed.
pub fn closed_with(gate: &str) -> impl Iterator<Item = &'static str> {
    let needing = DEPENDENT.iter().filter(move |(_, open, needed)| *open && needed.contains(&gate));
    needing.map(|(dependent, ..)| *dependent)
}

/// Refuses gates as Kueue does not start with them.
pub(super) fn check(path: &Path, file: &Value) -> Result<(), ConfigError> {
    let is_open = |gate: &str, default: bool| file["featureGates"][gate].as_bool().unwrap_or(default);
    let refuse =
        |gate: &str, reason: String| Err(ConfigError::invalid(path, &format!("featureGates.{gate}"), reason));
    if let Some(locked) = LOCKED.iter().find(|gate| !is_open(gate, true)) {
        return refuse(locked, "it is true and cannot be changed".to_owned());
    }
    for (gate, default, needed) in DEPENDENT {
        let closed = needed.iter().find(|needed| !is_open(needed, true));
        if let Some(closed) = closed.filter(|_| is_open(gate, *default)) {
            let reason = format!("it is true and depends on {closed}, which is false: say false here, too");
            return refuse(gate, reason);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Configuration;
    use super::*;

    fn read(gates: &str) -> Result<Configuration, String> {
        let file = format!("featureGates: {{ {gates} }}");
        Configuration::parse(Path::new("f"), &file).map_err(|error| error.to_string())
    }

    #[test]
    fn a_gate_is_not_open_without_those_it_depends_on() {
        for (gates, field, names) in [
            ("TopologyAwareScheduling: false", "featureGates.TASFailedNodeReplacement: ", TOPOLOGY),
            (
                "TASFailedNodeReplacement: false",
                "featureGates.TASFailedNodeReplacementFailFast: ",
                REPLACEMENT,
            ),
            (
                "UnadmittedWorkloadsObservability: false, UnadmittedWorkloadsExplicitStatus: true",
                "featureGates.UnadmittedWorkloadsExplicitStatus: ",
                "UnadmittedWorkloadsObservability",
            ),
            ("TLSOptions: false", "featureGates.TLSOptions: ", ""),
        ] {
            let error = read(gates).unwrap_err();
            assert!(error.contains(field) && error.contains(names), "{gates}: {error}");
        }
        for gates in ["UnadmittedWorkloadsObservability: false", "ElasticJobsViaWorkloadSlices: false"] {
            assert_eq!(read(gates).map(|_| ()), Ok(()), "{gates}");
        }
    }

    #[test]
    fn a_gate_is_closed_with_all_that_need_it() {
        for (_, _, needed) in DEPENDENT {
            for gate in *needed {
                let closed: Vec<String> =
                    closed_with(gate).chain([*gate]).map(|one| format!("{one}: false")).collect();
                assert_eq!(read(&closed.join(", ")).map(|_| ()), Ok(()), "{gate}");
            }
        }
    }
}
