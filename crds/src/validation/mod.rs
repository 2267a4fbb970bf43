//! What schemas and their CEL rules cannot say: the rules of admission-controller's validating webhooks.
//!
//! Pure functions from an object (and, for an update, the one before) to what is wrong with it. Field paths and kinds of errors are
//! those of Kueue's webhooks (`pkg/webhooks`); the sentences are ours.

mod cluster_queue;
mod metadata;
mod quota;
mod resource_flavor;
mod syntax;
mod workload;
mod workload_update;

use std::fmt;

pub use cluster_queue::{cluster_queue, cluster_queue_update, cohort};
pub use resource_flavor::resource_flavor;
pub use workload::workload;
pub use workload_update::workload_update;

/// One thing that is wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Where, as a path from the root of the object.
    pub field: String,
    /// What kind of wrong.
    pub kind: ErrorKind,
    /// What is wrong and what would be right.
    pub detail: String,
}

/// Kinds of wrong, as `apimachinery`'s `field.ErrorType` has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The value cannot be.
    Invalid,
    /// There must be a value.
    Required,
    /// The value is none of the possible ones.
    NotSupported,
    /// The value is there twice.
    Duplicate,
    /// There must be no such value, or not now.
    Forbidden,
    /// There are too many values.
    TooMany,
    /// What the value names does not exist.
    NotFound,
}

impl ErrorKind {
    /// The words `apimachinery` prints.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "Invalid value",
            Self::Required => "Required value",
            Self::NotSupported => "Unsupported value",
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
            Self::TooMany => "Too many",
            Self::NotFound => "Not found",
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.field, self.kind.as_str(), self.detail)
    }
}

/// Kueue's feature gates that change a rule, with their names and defaults (`pkg/features/kube_features.go`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gates {
    /// `AdmissionGatedBy`: the annotation means something.
    pub admission_gated_by: bool,
    /// `ConcurrentAdmission`: ClusterQueues may have a policy for it.
    pub concurrent_admission: bool,
    /// `ElasticJobsViaWorkloadSlices`: jobs may be resized.
    pub elastic_jobs: bool,
    /// `PriorityBoost`: the annotation means something.
    pub priority_boost: bool,
    /// `RejectUpdatesToCQWithInvalidOnFlavors`: wrong `onFlavors` that are there already are no longer tolerated.
    pub reject_invalid_on_flavors: bool,
    /// `WorkloadValidateResourcesAreNonNegative`.
    pub non_negative_resources: bool,
    /// `WorkloadValidationForPodSetMetadata`.
    pub pod_set_metadata: bool,
    /// `TASValidateWorkloadSliceSize`.
    pub slice_size: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Self {
            admission_gated_by: true,
            concurrent_admission: false,
            elastic_jobs: true,
            priority_boost: false,
            reject_invalid_on_flavors: false,
            non_negative_resources: true,
            pod_set_metadata: true,
            slice_size: true,
        }
    }
}

/// What was found so far.
#[derive(Default)]
struct Findings(Vec<FieldError>);

impl Findings {
    fn add(&mut self, field: impl Into<String>, kind: ErrorKind, detail: impl Into<String>) {
        self.0.push(FieldError { field: field.into(), kind, detail: detail.into() });
    }

    fn invalid(&mut self, field: impl Into<String>, detail: impl Into<String>) {
        self.add(field, ErrorKind::Invalid, detail);
    }
}
