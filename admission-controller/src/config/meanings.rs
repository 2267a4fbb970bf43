//! What Kueue's feature gates mean here, beyond those that have a field in `FeatureGates` or change a rule of
//! validation.

use crds::validation::Gates;

use super::times;

/// What a gate means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// It is gone by.
    Heeded,
    /// Things are always as with this gate open, or closed.
    Always(bool),
    /// It is gone by, but open it asks for what is not done, for this reason.
    Unsupported(&'static str),
    /// It stands for many gates at once.
    Many,
    /// What it is about does not exist here, or makes no difference that anybody could see.
    Nothing,
    /// Kueue has no such gate.
    Unknown,
}

/// Gates that are looked up where they count.
pub(super) const PREEMPT_WITHIN_NOMINAL: &str = "FairSharingPreemptWithinNominal";
pub(super) const NON_BORROWING_FIRST: &str = "FairSharingPrioritizeNonBorrowing";
pub(super) const QUOTA_CHECK_STRATEGY: &str = "QuotaCheckStrategy";
pub(super) const CUSTOM_LABELS: &str = "CustomMetricLabels";
const LOOKED_UP: [&str; 4] =
    [PREEMPT_WITHIN_NOMINAL, NON_BORROWING_FIRST, QUOTA_CHECK_STRATEGY, CUSTOM_LABELS];

/// Gates of which only one position can be had.
const ALWAYS: &[(&str, bool)] = &[
    ("CleanupProvisioningRequestsOnEviction", true),
    ("DeferRayServiceFinalizationForRedisCleanup", false),
    ("FailureRecoveryPolicy", false),
    ("FastQuotaReleaseInPodIntegration", false),
    ("FlavorFungibility", true),
    ("KueueDRAIntegration", false),
    ("KueueDRARejectWorkloadsWhenDRADisabled", true),
    ("LWSImmutableGroupSize", true),
    ("MultiKueue", false),
    ("PodIntegrationValidateGroupOwner", true),
    ("PrioritizePreemptorWorkloads", true),
    ("RemoveFinalizersWithStrictPatch", true),
    ("SchedulerLibraryIntegration", false),
    ("ShortWorkloadNames", false),
    ("SparkApplicationIntegration", false),
    ("UnadmittedWorkloadsObservability", true),
    ("ValidateRayAndSparkJobUpdates", true),
    ("WorkloadIdentifierAnnotations", true),
];

/// Gates that say how Kueue works, not what it does, and those of what is not supported at all.
const NOTHING: &[&str] = &[
    "KueueDRAIntegrationConsumableCapacity",
    "KueueDRAIntegrationExtendedResource",
    "KueueDRAIntegrationPartitionableDevices",
    "ManagedJobsNamespaceSelectorAlwaysRespected",
    "MultiKueueAdaptersForCustomJobs",
    "MultiKueueClusterProfile",
    "MultiKueueIncrementalDispatcherConfig",
    "MultiKueueIncrementalDispatcherRespectConfigOrder",
    "MultiKueueKubeConfigPathValidation",
    "MultiKueueManagerQuotaAutomation",
    "MultiKueueRemoteSpecSync",
    "SkipAncestorCheckForDeletedWorkloads",
    "TASAssignmentsEncodingByHostnamePrefix",
    "TASCacheNodeMatchResults",
    "TASCacheTopologyTree",
    "TASCachingRemainingResources",
    "TLSOptions",
    "VectorizedResourceRequests",
    "WorkloadRequestUseMergePatch",
];

/// What the gate of this name means.
pub(super) fn meaning(name: &str) -> Meaning {
    match name {
        "ConcurrentAdmission" => {
            return Meaning::Unsupported("a ClusterQueue with a concurrentAdmissionPolicy admits nothing");
        }
        // Those of Kubernetes, for all gates of one stage.
        "AllAlpha" | "AllBeta" => return Meaning::Many,
        _ => {}
    }
    if times::is_gate(name) || LOOKED_UP.contains(&name) || Gates::default().set(name, true) {
        return Meaning::Heeded;
    }
    match ALWAYS.iter().find(|(gate, _)| *gate == name) {
        Some((_, open)) => Meaning::Always(*open),
        None if NOTHING.contains(&name) => Meaning::Nothing,
        None => Meaning::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Configuration;
    use super::*;

    #[test]
    fn a_gate_in_a_position_that_cannot_be_had_is_told() {
        for (gate, words) in [
            ("AllAlpha: true", "name each gate"),
            ("AllBeta: false", "name each gate"),
            ("ConcurrentAdmission: true", "concurrentAdmissionPolicy"),
            ("CleanupProvisioningRequestsOnEviction: false", "it is true here"),
            ("FailureRecoveryPolicy: true", "it is false here"),
            ("FastQuotaReleaseInPodIntegration: true", "it is false here"),
            ("LWSImmutableGroupSize: false", "it is true here"),
            ("SchedulerLibraryIntegration: true", "it is false here"),
            ("ShortWorkloadNames: true", "it is false here"),
            ("SparkApplicationIntegration: true", "it is false here"),
            ("ValidateRayAndSparkJobUpdates: false", "it is true here"),
            ("ConcurrentAdmission: false", ""),
            ("FailureRecoveryPolicy: false", ""),
            ("LWSImmutableGroupSize: true", ""),
            ("ValidateRayAndSparkJobUpdates: true", ""),
        ] {
            let text = format!("featureGates: {{ {gate} }}");
            let file = Configuration::parse(Path::new("f"), &text).unwrap();
            let told: Vec<&str> = file.notices.iter().map(|one| one.words.as_str()).collect();
            match words {
                "" => assert!(told.is_empty(), "{gate}: {told:?}"),
                words => assert!(told.len() == 1 && told[0].contains(words), "{gate}: {told:?}"),
            }
            assert!(file.notices.iter().all(|one| one.unsupported), "{gate}");
        }
    }

    #[test]
    fn what_a_gate_means_is_documented() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/admission-controller.md");
        let text = std::fs::read_to_string(docs).unwrap();
        for (gate, open) in ALWAYS {
            assert!(text.contains(&format!("| `{gate}` | `{open}`")), "{gate}");
        }
        for gate in LOOKED_UP {
            assert!(text.contains(&format!("`featureGates.{gate}`")), "{gate}");
        }
        for gate in NOTHING {
            assert!(text.contains(&format!("`{gate}`")), "{gate}");
        }
    }
}
