//! Definitions of `trireme.dev`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use super::build::{Definition, Version};
use crate::api::trireme::v1alpha1::{GangPlacement, GpuNode};

pub(super) fn all() -> Vec<CustomResourceDefinition> {
    vec![
        Definition::of::<GangPlacement>("gangplacement", &["gp"])
            .category("trireme")
            .version(
                Version::stored::<GangPlacement>()
                    .status()
                    .column("Gang", "string", ".spec.gang.name")
                    .column("Min", "integer", ".spec.minMember")
                    .column("Phase", "string", ".status.phase")
                    .column("Reason", "string", ".status.reason")
                    .column("Age", "date", ".metadata.creationTimestamp"),
            )
            .finish(),
        Definition::of::<GpuNode>("gpunode", &["gn"])
            .category("trireme")
            .version(
                Version::stored::<GpuNode>()
                    .status()
                    .column("Driver", "string", ".status.driverVersion")
                    .column("CUDA", "string", ".status.cudaVersion")
                    .column("Ready", "string", ".status.conditions[?(@.type=='Ready')].status")
                    .column("Age", "date", ".metadata.creationTimestamp"),
            )
            .finish(),
    ]
}
