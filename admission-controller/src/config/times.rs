//! The parts of the configuration that are about time: `waitForPodsReady` and `objectRetentionPolicies`.

use jiff::SignedDuration;
use model::duration::GoDuration;
use serde::Deserialize;

use super::Configuration;
use crate::lifetime::Retention;
use crate::ready::PodsReady;

/// The gate of Kueue that switches `waitForPodsReady` off, which a file of v1beta2 cannot.
pub(super) const DISABLE_WAIT_FOR_PODS_READY: &str = "DisableWaitForPodsReady";
/// Kueue's default in v1beta2.
const TIMEOUT: SignedDuration = SignedDuration::from_mins(30);
/// Kueue's default in v1beta1.
const OLD_TIMEOUT: SignedDuration = SignedDuration::from_mins(5);
/// Kueue's default, in seconds.
const BACKOFF_BASE: i64 = 60;
/// Kueue's default, in seconds.
const BACKOFF_MAX: i64 = 3600;

/// Whether a gate of this name says something about times.
pub(super) fn is_gate(name: &str) -> bool {
    name == DISABLE_WAIT_FOR_PODS_READY
}

/// `waitForPodsReady`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct WaitForPodsReady {
    /// `enable`: of v1beta1, where it has to be true. In v1beta2 it is always on.
    pub enable: Option<bool>,
    /// `timeout`: from admission until all pods are ready.
    pub timeout: Option<GoDuration>,
    /// `blockAdmission`: nobody is admitted meanwhile.
    pub block_admission: Option<bool>,
    /// `requeuingStrategy`.
    pub requeuing_strategy: RequeuingStrategy,
    /// `recoveryTimeout`: from a failure until all pods are ready again; nothing is without limit.
    pub recovery_timeout: Option<GoDuration>,
}

/// `waitForPodsReady.requeuingStrategy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RequeuingStrategy {
    /// `timestamp`.
    pub timestamp: RequeuingTimestamp,
    /// `backoffLimitCount`: so many evictions, then the workload is deactivated; absent is any number.
    pub backoff_limit_count: Option<i32>,
    /// `backoffBaseSeconds`.
    pub backoff_base_seconds: Option<i32>,
    /// `backoffMaxSeconds`.
    pub backoff_max_seconds: Option<i32>,
}

/// `waitForPodsReady.requeuingStrategy.timestamp`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum RequeuingTimestamp {
    /// An evicted workload goes to the back of its queue.
    #[default]
    Eviction,
    /// It keeps its place.
    Creation,
}

/// `objectRetentionPolicies`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ObjectRetentionPolicies {
    /// `workloads`.
    pub workloads: WorkloadRetention,
}

/// `objectRetentionPolicies.workloads`; what is absent is for ever.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct WorkloadRetention {
    /// `afterFinished`: then the Workload is deleted.
    pub after_finished: Option<GoDuration>,
    /// `afterDeactivatedByKueue`: then the job is deleted.
    pub after_deactivated_by_kueue: Option<GoDuration>,
}

impl Configuration {
    /// Whether and how pods have to get ready in time.
    pub fn pods_ready(&self) -> Option<PodsReady> {
        if self.feature_gates.others.get(DISABLE_WAIT_FOR_PODS_READY) == Some(&true) {
            return None;
        }
        let old = self.is_v1beta1();
        let written = self.wait_for_pods_ready.clone().unwrap_or_default();
        if old && written.enable != Some(true) {
            return None;
        }
        let default = if old { OLD_TIMEOUT } else { TIMEOUT };
        let timeout = written.timeout.map(signed).filter(|time| !time.is_zero()).unwrap_or(default);
        let recovery = written.recovery_timeout.map_or(timeout, signed);
        let strategy = &written.requeuing_strategy;
        let seconds =
            |written: Option<i32>, default| SignedDuration::from_secs(written.map_or(default, i64::from));
        Some(PodsReady {
            timeout,
            recovery_timeout: (!recovery.is_zero()).then_some(recovery),
            block_admission: written.block_admission.unwrap_or(old),
            to_the_back: strategy.timestamp == RequeuingTimestamp::Eviction,
            limit: strategy.backoff_limit_count,
            base: seconds(strategy.backoff_base_seconds, BACKOFF_BASE),
            longest: seconds(strategy.backoff_max_seconds, BACKOFF_MAX),
        })
    }

    /// Whether pods have no time at all to get ready: in v1beta1 that is not the default.
    pub(super) fn has_no_timeout(&self) -> bool {
        let written = self.wait_for_pods_ready.as_ref().and_then(|written| written.timeout);
        self.is_v1beta1() && self.pods_ready().is_some() && written.is_some_and(|time| time.get().is_zero())
    }

    /// How long what has ended is kept.
    pub fn retention(&self) -> Retention {
        let written = &self.object_retention_policies.workloads;
        Retention {
            after_finished: written.after_finished.map(signed),
            after_deactivated: written.after_deactivated_by_kueue.map(signed),
        }
    }

    /// The first of the numbers about time that is negative, unless nobody waits for pods.
    pub(super) fn negative_time(&self) -> Option<&'static str> {
        self.pods_ready()?;
        let strategy = &self.wait_for_pods_ready.as_ref()?.requeuing_strategy;
        let counts = [
            ("waitForPodsReady.requeuingStrategy.backoffLimitCount", strategy.backoff_limit_count),
            ("waitForPodsReady.requeuingStrategy.backoffBaseSeconds", strategy.backoff_base_seconds),
            ("waitForPodsReady.requeuingStrategy.backoffMaxSeconds", strategy.backoff_max_seconds),
        ];
        let negative = counts.into_iter().find(|(_, count)| count.is_some_and(|count| count < 0));
        negative.map(|(field, _)| field)
    }
}

fn signed(time: GoDuration) -> SignedDuration {
    SignedDuration::try_from(time.get()).unwrap_or(SignedDuration::MAX)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(text: &str) -> Configuration {
        Configuration::parse(Path::new("config.yaml"), text).unwrap()
    }

    #[test]
    fn pods_have_to_be_ready_as_the_version_of_the_file_says() {
        let old = "apiVersion: config.kueue.x-k8s.io/v1beta1\nwaitForPodsReady:\n  ";
        let minutes = |text: &str| {
            let pods_ready = config(text).pods_ready()?;
            let recovery = pods_ready.recovery_timeout.map(|time| time.as_mins());
            Some((pods_ready.timeout.as_mins(), recovery, pods_ready.block_admission))
        };
        for (text, wanted) in [
            (String::new(), Some((30, Some(30), false))),
            ("waitForPodsReady:\n  timeout: 3m\n  blockAdmission: true".to_owned(), Some((3, Some(3), true))),
            ("waitForPodsReady:\n  recoveryTimeout: 0s".to_owned(), Some((30, None, false))),
            ("featureGates:\n  DisableWaitForPodsReady: true".to_owned(), None),
            ("apiVersion: config.kueue.x-k8s.io/v1beta1".to_owned(), None),
            (format!("{old}timeout: 3m"), None),
            (format!("{old}timeout: 0s"), None),
            ("waitForPodsReady:\n  timeout: 0s".to_owned(), Some((30, Some(30), false))),
            (format!("{old}enable: true"), Some((5, Some(5), true))),
            (format!("{old}enable: true\n  blockAdmission: false"), Some((5, Some(5), false))),
        ] {
            assert_eq!(minutes(&text), wanted, "{text}");
        }
        let strategy = "waitForPodsReady:\n  requeuingStrategy: { timestamp: Creation, backoffLimitCount: 2, backoffBaseSeconds: 10 }";
        let pods_ready = config(strategy).pods_ready().unwrap();
        assert!(!pods_ready.to_the_back && pods_ready.limit == Some(2));
        assert_eq!((pods_ready.base.as_secs(), pods_ready.longest.as_secs()), (10, 3600));
    }

    #[test]
    fn what_is_negative_is_refused_by_name() {
        for (text, field) in [
            ("waitForPodsReady: { timeout: -1s }", "-1s"),
            ("waitForPodsReady: { requeuingStrategy: { backoffLimitCount: -1 } }", "backoffLimitCount"),
            ("objectRetentionPolicies: { workloads: { afterFinished: -1m } }", "afterFinished"),
            ("waitForPodsReady: { timeout: soon }", "soon"),
            ("waitForPodsReady: { requeuingStrategy: { timestamp: Never } }", "Never"),
            (
                "apiVersion: config.kueue.x-k8s.io/v1beta1\nwaitForPodsReady: { enable: true, timeout: 0s }",
                "waitForPodsReady.timeout: ",
            ),
        ] {
            let error = Configuration::parse(Path::new("config.yaml"), text).unwrap_err().to_string();
            assert!(error.contains(field), "{text:?} gives {error:?}");
        }
    }
    /// Both programs would decide at once.
    #[test]
    fn kueues_place_is_taken_by_its_lease_alone() {
        let text = "leaderElection: { leaderElect: false }\n";
        assert!(Configuration::parse(Path::new("config.yaml"), text).is_ok());
        let error =
            Configuration::parse(Path::new("config.yaml"), &format!("{text}takeOver: {{}}\n")).unwrap_err();
        assert!(error.to_string().contains("leaderElection.leaderElect"), "{error}");
    }
}
