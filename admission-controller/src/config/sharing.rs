//! How what is lent is shared out, and how LocalQueues take turns.

use std::collections::BTreeMap;

use model::ResourceName;
use model::duration::GoDuration;
use quota_engine::input::Weight;
use quota_engine::{AdmissionFairSharing, FairSharing};
use serde::Deserialize;

/// `fairSharing`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct FairSharingConfig {
    /// `enable`: of v1beta1, where it has to be true. Since v1beta2 it is enough that `fairSharing` is there.
    pub enable: Option<bool>,
    /// `preemptionStrategies`: one, or both in this order; both where none is given.
    pub preemption_strategies: Vec<PreemptionStrategy>,
}

/// `fairSharing.preemptionStrategies[]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum PreemptionStrategy {
    /// The preemptor's share must not exceed what its victim's is without the victim.
    LessThanOrEqualToFinalShare,
    /// The preemptor's share must be smaller than its victim's is with the victim.
    LessThanInitialShare,
}

/// `admissionFairSharing`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AdmissionFairSharingConfig {
    /// `usageHalfLifeTime`: after so long half of what was used is forgotten; at 0, all at once.
    #[serde(default)]
    pub usage_half_life_time: GoDuration,
    /// `usageSamplingInterval`: how often LocalQueues are told what they have used.
    #[serde(default = "sampling_interval")]
    pub usage_sampling_interval: GoDuration,
    /// `resourceWeights`: how much a unit of a resource counts; 1 where there is none.
    #[serde(default)]
    pub resource_weights: BTreeMap<ResourceName, f64>,
}

fn sampling_interval() -> GoDuration {
    GoDuration::from_secs(300)
}

impl AdmissionFairSharingConfig {
    pub(super) fn rules(&self) -> AdmissionFairSharing {
        AdmissionFairSharing {
            half_life_ms: self.usage_half_life_time.millis(),
            // As by Kueue, an interval of 0 is none that was set.
            sampling_ms: match self.usage_sampling_interval.millis() {
                0 => sampling_interval().millis(),
                millis => millis,
            },
            weights: self
                .resource_weights
                .iter()
                .map(|(resource, weight)| (resource.clone(), Weight::from_number(*weight)))
                .collect(),
        }
    }

    /// The resource whose weight is no number to weigh with.
    pub(super) fn wrong_weight(&self) -> Option<&ResourceName> {
        let wrong = self.resource_weights.iter().find(|(_, weight)| !weight.is_finite() || **weight < 0.0);
        wrong.map(|(resource, _)| resource)
    }
}

impl FairSharingConfig {
    /// `None` for a list that is none of the three.
    pub(super) fn strategies(&self) -> Option<FairSharing> {
        use PreemptionStrategy::{LessThanInitialShare, LessThanOrEqualToFinalShare};
        match self.preemption_strategies.as_slice() {
            [] | [LessThanOrEqualToFinalShare, LessThanInitialShare] => {
                Some(FairSharing::FinalThenInitialShare)
            }
            [LessThanOrEqualToFinalShare] => Some(FairSharing::FinalShare),
            [LessThanInitialShare] => Some(FairSharing::InitialShare),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Configuration;
    use super::*;

    #[test]
    fn fair_sharing_is_on_as_the_version_of_the_file_says() {
        let old = "apiVersion: config.kueue.x-k8s.io/v1beta1\nfairSharing:\n";
        let new = "apiVersion: config.kueue.x-k8s.io/v1beta2\nfairSharing:\n";
        for (text, wanted) in [
            (String::new(), None),
            (format!("{old}  enable: true"), Some(FairSharing::FinalThenInitialShare)),
            (format!("{old}  preemptionStrategies: [LessThanInitialShare]"), None),
            (format!("{new}  preemptionStrategies: [LessThanInitialShare]"), Some(FairSharing::InitialShare)),
            (
                format!("{new}  preemptionStrategies: [LessThanOrEqualToFinalShare]"),
                Some(FairSharing::FinalShare),
            ),
            (
                format!("{new}  preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]"),
                Some(FairSharing::FinalThenInitialShare),
            ),
        ] {
            let config = Configuration::parse(Path::new("config.yaml"), &text).unwrap();
            assert_eq!(config.fair_sharing(), wanted, "{text}");
        }
    }
}
