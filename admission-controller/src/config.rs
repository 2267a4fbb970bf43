//! The configuration: Kueue's `Configuration` file, by the same names.

mod fields;

mod times;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;

use crds::names::trireme;
use crds::validation::Gates;
use kit::config::{self, ConfigError};
use kit::http::Listen;
use model::ResourceName;
use model::duration::GoDuration;
use model::planted::Planted;
use model::quantity::Quantity;
use model::selector::LabelSelector;
use quota_engine::input::Weight;
use quota_engine::topology::Rules;
use quota_engine::{AdmissionFairSharing, FairSharing, Settings, TopologySettings, Undeclared};
use serde::Deserialize;
use serde_json::Value;

use crate::jobs::{JobKind, TABLE};
use crate::pods::{self, OWNERS, PodOwner};
pub use fields::Notice;
pub use times::{
    ObjectRetentionPolicies, RequeuingStrategy, RequeuingTimestamp, WaitForPodsReady, WorkloadRetention,
};

/// What the program is started with.
#[derive(Clone)]
pub struct Config {
    /// The configuration file's content.
    pub file: Configuration,
    /// How webhooks and conversion are reached.
    pub webhooks: Webhooks,
    /// How health, metrics and state are reached; `None`: beside the webhooks.
    pub admin: Option<Listen>,
    /// Whether other replicas may run: then the one with the lease writes.
    pub leader_election: bool,
    /// A bug on purpose, for testing the tests.
    pub planted: Planted,
}

/// How webhooks and conversion are reached.
#[derive(Clone)]
pub enum Webhooks {
    /// So.
    Listen(Listen),
    /// Over TLS on this address, with certificates of our own: kept in a Secret that the replicas share, and made known to
    /// the API server by the leader.
    OwnCertificates(SocketAddr),
}

impl Default for Config {
    fn default() -> Self {
        Self {
            file: Configuration::default(),
            webhooks: Webhooks::Listen(Listen::InProcess),
            admin: None,
            leader_election: true,
            planted: Planted::NONE,
        }
    }
}

/// What an administrator chooses. In a file: YAML, as Kueue reads it. What has no effect here is in [`notices`](Self::notices);
/// what Kueue does not know either is refused by name.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Configuration {
    /// `apiVersion`: one of Kueue's two, or absent.
    pub api_version: Option<String>,
    /// `kind`: `Configuration` or absent.
    pub kind: Option<String>,
    /// Namespace of the lease and of the Service.
    pub namespace: String,
    /// Whether jobs without the queue-name label are managed too (in `managedJobsNamespaceSelector`'s absence: all but
    /// `kube-system` and the own namespace).
    pub manage_jobs_without_queue_name: bool,
    /// `managedJobsNamespaceSelector`: of which namespaces jobs are managed, with or without the label.
    pub managed_jobs_namespace_selector: Option<LabelSelector>,
    /// Which kinds of jobs are managed.
    pub integrations: Integrations,
    /// Which resources are counted.
    pub resources: Resources,
    /// `featureGates`.
    pub feature_gates: FeatureGates,
    /// `fairSharing`: whether and how what is lent is shared out fairly.
    pub fair_sharing: Option<FairSharingConfig>,
    /// `admissionFairSharing`: whether LocalQueues take turns by what they have used.
    pub admission_fair_sharing: Option<AdmissionFairSharingConfig>,
    /// `waitForPodsReady`: how long pods may take to be ready.
    pub wait_for_pods_ready: Option<WaitForPodsReady>,
    /// `objectRetentionPolicies`: how long what has ended is kept.
    pub object_retention_policies: ObjectRetentionPolicies,
    /// The scheduler that jobs without a wish of their own are given to. Empty leaves them as they are.
    pub scheduler_name: String,
    /// Where webhooks listen.
    pub webhook: Webhook,
    /// `metrics`.
    pub metrics: Metrics,
    /// `leaderElection`: whether other replicas may run, and the lease that they share.
    pub leader_election: LeaderElection,
    /// `takeOver`, of this program alone: the Kueue whose place it takes.
    pub take_over: Option<TakeOver>,
    /// What the file says that is not done as it says; told at start.
    #[serde(skip)]
    pub notices: Vec<Notice>,
}

/// `integrations`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Integrations {
    /// Kinds by Kueue's names, such as `kubeflow.org/pytorchjob`.
    pub frameworks: Vec<String>,
}

/// `resources`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Resources {
    /// Resources whose names begin so are not counted.
    pub exclude_resource_prefixes: Vec<String>,
    /// What happens to resources that a ClusterQueue has no quota for.
    pub quota_check_strategy: QuotaCheckStrategy,
    /// Resources that count as others, at most one entry for each input.
    pub transformations: Vec<Transformation>,
}

/// `resources.transformations[]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Transformation {
    /// What pods ask for.
    pub input: ResourceName,
    /// Whether that still counts.
    #[serde(default)]
    pub strategy: Strategy,
    /// A resource of the same pod: the input is multiplied by how much of it is asked for.
    pub multiply_by: Option<ResourceName>,
    /// What counts for each unit of the input. Less than nothing is an allowance.
    #[serde(default)]
    pub outputs: BTreeMap<ResourceName, Quantity>,
}

/// `resources.transformations[].strategy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Strategy {
    /// The input counts as well.
    #[default]
    Retain,
    /// Only the outputs count.
    Replace,
}

/// `resources.quotaCheckStrategy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum QuotaCheckStrategy {
    /// Who asks for them is not admitted.
    #[default]
    BlockUndeclared,
    /// They are not counted.
    IgnoreUndeclared,
}

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
    fn rules(&self) -> AdmissionFairSharing {
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
    fn wrong_weight(&self) -> Option<&ResourceName> {
        let wrong = self.resource_weights.iter().find(|(_, weight)| !weight.is_finite() || **weight < 0.0);
        wrong.map(|(resource, _)| resource)
    }
}

impl FairSharingConfig {
    /// `None` for a list that is none of the three.
    fn strategies(&self) -> Option<FairSharing> {
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

/// `featureGates`: those of Kueue's that something here depends on, and the others, which have no effect.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct FeatureGates {
    /// `PartialAdmission`.
    pub partial_admission: bool,
    /// `MultiKueueOrchestratedPreemption`: without it, preemption gates are not looked at.
    pub multi_kueue_orchestrated_preemption: bool,
    /// `PrioritySortingWithinCohort`.
    pub priority_sorting_within_cohort: bool,
    /// `RecomputeAssignmentUponPreemptionTargetsOverlap`.
    pub recompute_assignment_upon_preemption_targets_overlap: bool,
    /// `FlavorFungibilityPreserveScanProgress`.
    pub flavor_fungibility_preserve_scan_progress: bool,
    /// `AdmissionFairSharing`.
    pub admission_fair_sharing: bool,
    /// `TopologyAwareScheduling`: without it, topologies and what is asked of them are not looked at.
    pub topology_aware_scheduling: bool,
    /// `TASProfileMixed`.
    #[serde(rename = "TASProfileMixed")]
    pub tas_profile_mixed: bool,
    /// `TASBalancedPlacement`.
    #[serde(rename = "TASBalancedPlacement")]
    pub tas_balanced_placement: bool,
    /// `TASRespectNodeAffinityPreferred`.
    #[serde(rename = "TASRespectNodeAffinityPreferred")]
    pub tas_respect_node_affinity_preferred: bool,
    /// `ElasticJobsViaWorkloadSlicesWithTAS`.
    #[serde(rename = "ElasticJobsViaWorkloadSlicesWithTAS")]
    pub elastic_jobs_with_tas: bool,
    /// `TASRecomputeAssignmentWithinSchedulingCycle`.
    #[serde(rename = "TASRecomputeAssignmentWithinSchedulingCycle")]
    pub tas_recompute: bool,
    /// `TASFailedNodeReplacement`: without it, nothing is done about nodes that fail.
    #[serde(rename = "TASFailedNodeReplacement")]
    pub tas_failed_node_replacement: bool,
    /// `TASFailedNodeReplacementFailFast`.
    #[serde(rename = "TASFailedNodeReplacementFailFast")]
    pub tas_fail_fast: bool,
    /// `TASReplaceNodeOnPodTermination`: a node that is not ready has failed as soon as the pods on it end.
    #[serde(rename = "TASReplaceNodeOnPodTermination")]
    pub tas_replace_on_pod_termination: bool,
    /// `SkipReassignmentForPodOwnedWorkloads`.
    pub skip_reassignment_for_pod_owned_workloads: bool,
    /// `ReclaimablePods`: quota of pods that have ended is given back before the job ends.
    pub reclaimable_pods: bool,
    /// `VisibilityOnDemand`: whether `visibility.kueue.x-k8s.io` is served.
    pub visibility_on_demand: bool,
    /// Any other; those that change a rule of validation are in [`Gates`].
    #[serde(flatten)]
    pub others: BTreeMap<String, bool>,
}

impl FeatureGates {
    /// What the engine goes by in placement.
    fn topology(&self) -> TopologySettings {
        TopologySettings {
            enabled: self.topology_aware_scheduling,
            rules: Rules {
                mixed_profile: self.tas_profile_mixed,
                balanced: self.tas_balanced_placement,
                preferred_affinity: self.tas_respect_node_affinity_preferred,
                elastic: self.elastic_jobs_with_tas,
            },
            recompute: self.tas_recompute,
            fail_fast: self.tas_fail_fast,
            keep_single_pods: self.skip_reassignment_for_pod_owned_workloads,
        }
    }
}

impl Default for FeatureGates {
    fn default() -> Self {
        let kueues = Settings::default();
        let placement = kueues.topology;
        Self {
            topology_aware_scheduling: placement.enabled,
            tas_profile_mixed: placement.rules.mixed_profile,
            tas_balanced_placement: placement.rules.balanced,
            tas_respect_node_affinity_preferred: placement.rules.preferred_affinity,
            elastic_jobs_with_tas: placement.rules.elastic,
            tas_recompute: placement.recompute,
            tas_failed_node_replacement: true,
            tas_fail_fast: placement.fail_fast,
            tas_replace_on_pod_termination: true,
            skip_reassignment_for_pod_owned_workloads: placement.keep_single_pods,
            partial_admission: kueues.partial_admission,
            multi_kueue_orchestrated_preemption: kueues.preemption_gates,
            recompute_assignment_upon_preemption_targets_overlap: kueues.recompute_overlapping_targets,
            flavor_fungibility_preserve_scan_progress: kueues.preserve_scan_progress,
            priority_sorting_within_cohort: kueues.priority_sorting,
            admission_fair_sharing: true,
            reclaimable_pods: true,
            visibility_on_demand: true,
            others: BTreeMap::new(),
        }
    }
}

/// `webhook`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Webhook {
    /// The port of webhooks and conversion.
    pub port: u16,
}

/// `metrics`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Metrics {
    /// `enableClusterQueueResources`: quotas and their use by flavor and resource.
    pub enable_cluster_queue_resources: bool,
}

/// `leaderElection`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LeaderElection {
    /// Whether other replicas may run: then the one that holds the lease writes.
    pub leader_elect: bool,
    /// The name of the lease. Whoever has the same one never acts at the same time.
    pub resource_name: String,
    /// The namespace of the lease; empty: [`Configuration::namespace`].
    pub resource_namespace: String,
}

/// `takeOver`: which Kueue, by the defaults of its chart and of its manifests.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TakeOver {
    /// The namespace that it runs in, with its Lease and its Services.
    pub namespace: String,
    /// What the names of its Services and webhook configurations begin with.
    pub name: String,
    /// Its Lease: `leaderElection.resourceName` of its configuration.
    pub lease: String,
}

impl Default for TakeOver {
    fn default() -> Self {
        Self {
            namespace: "kueue-system".to_owned(),
            name: "kueue".to_owned(),
            lease: "c1f6bfd2.kueue.x-k8s.io".to_owned(),
        }
    }
}

impl Default for LeaderElection {
    fn default() -> Self {
        Self { leader_elect: true, resource_name: crate::LEASE.to_owned(), resource_namespace: String::new() }
    }
}

impl Default for Webhook {
    fn default() -> Self {
        Self { port: 9443 }
    }
}

impl Default for Integrations {
    fn default() -> Self {
        Self { frameworks: frameworks().into_iter().map(str::to_owned).collect() }
    }
}

impl Default for Configuration {
    fn default() -> Self {
        Self {
            api_version: None,
            kind: None,
            namespace: trireme::NAMESPACE.to_owned(),
            manage_jobs_without_queue_name: false,
            managed_jobs_namespace_selector: None,
            integrations: Integrations::default(),
            resources: Resources::default(),
            feature_gates: FeatureGates::default(),
            fair_sharing: None,
            admission_fair_sharing: None,
            wait_for_pods_ready: None,
            object_retention_policies: ObjectRetentionPolicies::default(),
            scheduler_name: trireme::SCHEDULER_NAME.to_owned(),
            webhook: Webhook::default(),
            metrics: Metrics::default(),
            leader_election: LeaderElection::default(),
            take_over: None,
            notices: Vec::new(),
        }
    }
}

impl Configuration {
    /// Reads a file.
    ///
    /// # Errors
    /// Each names the file, the field and the reason.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        Self::of(path, config::read(path)?)
    }

    /// Reads a file's text; `path` is for the messages.
    ///
    /// # Errors
    /// See [`Configuration::read`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        Self::of(path, config::parse(path, text)?)
    }

    fn of(path: &Path, mut file: Value) -> Result<Self, ConfigError> {
        let notices = fields::sift(path, &mut file)?;
        // JSON is YAML: what is left is decoded with the same messages.
        let mut configuration: Self = config::parse(path, &file.to_string())?;
        configuration.notices = notices;
        configuration.check(path)
    }

    fn check(mut self, path: &Path) -> Result<Self, ConfigError> {
        if self.kind.as_deref().is_some_and(|kind| kind != "Configuration") {
            return Err(ConfigError::invalid(path, "kind", "it must be Configuration"));
        }
        if self.namespace.is_empty() {
            return Err(ConfigError::invalid(path, "namespace", "it must not be empty"));
        }
        if let Some(field) = self.negative_time() {
            return Err(ConfigError::invalid(path, field, "it must not be negative"));
        }
        if self.fair_sharing.as_ref().is_some_and(|fair| fair.strategies().is_none()) {
            let reason = "it must be one of LessThanOrEqualToFinalShare and LessThanInitialShare, or both in this order";
            return Err(ConfigError::invalid(path, "fairSharing.preemptionStrategies", reason));
        }
        if let Some(resource) = self.admission_fair_sharing.as_ref().and_then(|fair| fair.wrong_weight()) {
            let field = format!("admissionFairSharing.resourceWeights[{resource}]");
            return Err(ConfigError::invalid(path, &field, "it must not be below 0"));
        }
        self.check_frameworks(path)?;
        self.notice_gates();
        let mut inputs = BTreeSet::new();
        for (index, one) in self.resources.transformations.iter().enumerate() {
            if !inputs.insert(&one.input) {
                let field = format!("resources.transformations[{index}].input");
                let reason = format!("{} has a transformation already", one.input);
                return Err(ConfigError::invalid(path, &field, reason));
            }
        }
        Ok(self)
    }

    /// Kueue's kinds that are not managed here are named and left out; others are refused.
    fn check_frameworks(&mut self, path: &Path) -> Result<(), ConfigError> {
        let known = frameworks();
        for (index, name) in self.integrations.frameworks.iter().enumerate() {
            let field = format!("integrations.frameworks[{index}]");
            if known.contains(&name.as_str()) {
                continue;
            }
            if !KUEUES_FRAMEWORKS.contains(&name.as_str()) {
                let reason = format!("{name:?} is no kind of Kueue's; managed are {}", known.join(", "));
                return Err(ConfigError::invalid(path, &field, reason));
            }
            let words = format!("{name} is not managed");
            self.notices.push(Notice { field, words, unsupported: true });
        }
        self.integrations.frameworks.retain(|name| known.contains(&name.as_str()));
        Ok(())
    }

    /// Gates that nothing here depends on.
    fn notice_gates(&mut self) {
        let others = self
            .feature_gates
            .others
            .keys()
            .filter(|name| !times::is_gate(name) && !Gates::default().set(name, true));
        let notice = |name: &String| Notice {
            field: format!("featureGates.{name}"),
            words: "it has no effect here: nothing depends on it".to_owned(),
            unsupported: false,
        };
        self.notices.extend(others.map(notice));
    }

    /// Namespace and name of the lease: Kueue's, where its place is taken.
    pub fn lease(&self) -> (&str, &str) {
        if let Some(kueue) = &self.take_over {
            return (&kueue.namespace, &kueue.lease);
        }
        let LeaderElection { resource_name, resource_namespace, .. } = &self.leader_election;
        let namespace = if resource_namespace.is_empty() { &self.namespace } else { resource_namespace };
        (namespace, resource_name)
    }

    /// What of it the engine goes by.
    pub fn settings(&self) -> Settings {
        let gates = &self.feature_gates;
        Settings {
            undeclared: match self.resources.quota_check_strategy {
                QuotaCheckStrategy::BlockUndeclared => Undeclared::Block,
                QuotaCheckStrategy::IgnoreUndeclared => Undeclared::Ignore,
            },
            partial_admission: gates.partial_admission,
            preemption_gates: gates.multi_kueue_orchestrated_preemption,
            priority_sorting: gates.priority_sorting_within_cohort,
            recompute_overlapping_targets: gates.recompute_assignment_upon_preemption_targets_overlap,
            preserve_scan_progress: gates.flavor_fungibility_preserve_scan_progress,
            block_admission: self.pods_ready().is_some_and(|one| one.block_admission),
            fair_sharing: self.fair_sharing(),
            admission_fair_sharing: self
                .admission_fair_sharing
                .as_ref()
                .filter(|_| gates.admission_fair_sharing)
                .map(AdmissionFairSharingConfig::rules),
            topology: gates.topology(),
        }
    }

    /// How what is lent is shared out; `None` where it is not shared out fairly.
    fn fair_sharing(&self) -> Option<FairSharing> {
        let fair = self.fair_sharing.as_ref()?;
        let old = self.is_v1beta1();
        if fair.enable.unwrap_or(!old) { fair.strategies() } else { None }
    }

    /// Whether the file is of the older version, which has other defaults.
    fn is_v1beta1(&self) -> bool {
        self.api_version.as_deref().is_some_and(|version| version.ends_with("/v1beta1"))
    }

    /// The gates that change a rule of validation.
    pub fn gates(&self) -> Gates {
        let mut gates = Gates {
            partial_admission: self.feature_gates.partial_admission,
            topology: self.feature_gates.topology_aware_scheduling,
            ..Gates::default()
        };
        for (name, open) in &self.feature_gates.others {
            gates.set(name, *open);
        }
        gates
    }

    /// The kinds of jobs that are managed.
    pub fn kinds(&self) -> impl Iterator<Item = &'static JobKind> {
        let wanted: BTreeSet<String> = self.integrations.frameworks.iter().cloned().collect();
        TABLE.iter().filter(move |kind| wanted.contains(kind.framework))
    }

    /// The kinds that are managed through their pods.
    pub fn pod_owners(&self) -> impl Iterator<Item = &'static PodOwner> {
        OWNERS.iter().filter(|owner| self.has_framework(owner.kind.framework))
    }

    /// Whether plain pods are managed.
    pub fn manages_pods(&self) -> bool {
        self.has_framework(pods::FRAMEWORK)
    }

    /// Whether any pods are managed: those of Deployments are, even where plain ones are not.
    pub fn watches_pods(&self) -> bool {
        self.manages_pods() || self.pod_owners().next().is_some()
    }

    fn has_framework(&self, name: &str) -> bool {
        self.integrations.frameworks.iter().any(|one| one == name)
    }

    /// Whether a job with this queue name in this namespace is managed.
    pub fn manages(&self, namespace: &str, queue: Option<&str>) -> bool {
        queue.is_some()
            || (self.manage_jobs_without_queue_name
                && namespace != "kube-system"
                && namespace != self.namespace)
    }
}

/// The kinds that Kueue has an integration for, by its names.
const KUEUES_FRAMEWORKS: [&str; 18] = [
    "batch/job",
    "deployment",
    "jobset.x-k8s.io/jobset",
    "kubeflow.org/jaxjob",
    "kubeflow.org/mpijob",
    "kubeflow.org/paddlejob",
    "kubeflow.org/pytorchjob",
    "kubeflow.org/tfjob",
    "kubeflow.org/xgboostjob",
    "leaderworkerset.x-k8s.io/leaderworkerset",
    "pod",
    "ray.io/raycluster",
    "ray.io/rayjob",
    "ray.io/rayservice",
    "sparkoperator.k8s.io/sparkapplication",
    "statefulset",
    "trainer.kubeflow.org/trainjob",
    "workload.codeflare.dev/appwrapper",
];

/// The names of all kinds in the table, each once.
fn frameworks() -> Vec<&'static str> {
    let mut names: Vec<_> = TABLE.iter().map(|kind| kind.framework).collect();
    names.dedup();
    names.push(pods::FRAMEWORK);
    names.extend(OWNERS.iter().map(|owner| owner.kind.framework));
    names
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn kueues_names_are_understood_and_unknown_ones_refused_by_name() {
        let path = Path::new("config.yaml");
        let config = Configuration::parse(
            path,
            "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nmanageJobsWithoutQueueName: true\n\
             integrations:\n  frameworks: [\"batch/job\"]\nresources:\n  quotaCheckStrategy: IgnoreUndeclared\n",
        )
        .unwrap();
        assert!(config.manages("team-a", None) && !config.manages("kube-system", None));
        assert_eq!(config.kinds().map(|kind| kind.kind).collect::<Vec<_>>(), ["Job"]);
        let kueues = "health:\n  healthProbeBindAddress: :8081\nmetrics:\n  bindAddress: :8443\nleaderElection:\n  \
             leaderElect: false\n  resourceName: c1f6bfd2.kueue.x-k8s.io\nclientConnection:\n  qps: 50\nwebhook:\n  \
             port: 9443\n  certDir: /tmp\nintegrations:\n  frameworks: [batch/job, sparkoperator.k8s.io/sparkapplication]\n\
             featureGates:\n  PartialAdmission: false\n  ReclaimablePods: false\n  SanitizePodSets: true\n";
        let config = Configuration::parse(path, kueues).unwrap();
        assert!(!config.settings().partial_admission && !config.feature_gates.reclaimable_pods);
        assert!(!config.leader_election.leader_elect);
        assert_eq!(config.lease(), ("trireme-system", "c1f6bfd2.kueue.x-k8s.io"));
        assert_eq!(config.kinds().map(|kind| kind.kind).collect::<Vec<_>>(), ["Job"]);
        let mut named: Vec<&str> = config.notices.iter().map(|one| one.field.as_str()).collect();
        named.sort_unstable();
        assert_eq!(
            named,
            [
                "clientConnection.qps",
                "featureGates.SanitizePodSets",
                "health.healthProbeBindAddress",
                "integrations.frameworks[1]",
                "metrics.bindAddress",
                "webhook.certDir",
            ]
        );
        let gates = "featureGates:\n  PartialAdmission: false\n  ElasticJobsViaWorkloadSlices: false\n";
        let config = Configuration::parse(path, gates).unwrap();
        assert!(!config.gates().partial_admission && !config.gates().elastic_jobs && config.gates().topology);
        assert!(config.notices.is_empty());
        for (text, words) in [
            ("waitForPodReady: {}", "waitForPodReady"),
            ("integrations:\n  frameworks: [batch/cronjob]", "integrations.frameworks[0]"),
            ("kind: Deployment", "kind"),
            (
                "fairSharing:\n  preemptionStrategies: [LessThanInitialShare, LessThanOrEqualToFinalShare]",
                "fairSharing.preemptionStrategies",
            ),
            ("namespace: \"\"", "namespace"),
            ("resources:\n  quotaCheckStrategy: Sometimes", "Sometimes"),
            (
                "resources:\n  transformations: [{ input: a }, { input: a }]",
                "resources.transformations[1].input",
            ),
            ("resources:\n  transformations: [{ input: a, strategy: Double }]", "Double"),
            ("resources:\n  transformations: [{ input: a, outputs: { b: much } }]", "much"),
        ] {
            let error = Configuration::parse(path, text).unwrap_err().to_string();
            assert!(error.contains(words), "{text:?} gives {error:?}");
        }
    }
}
