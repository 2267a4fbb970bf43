//! Definitions of `scheduling.volcano.sh`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use super::build::{Definition, Version};
use crate::api::volcano::v1beta1::{PodGroup, Queue};

pub(super) fn all() -> Vec<CustomResourceDefinition> {
    vec![
        Definition::of::<PodGroup>("podgroup", &["pg", "podgroup-v1beta1"])
            .version(
                Version::stored::<PodGroup>()
                    .no_subresources()
                    .column("STATUS", "string", ".status.phase")
                    .column("minMember", "integer", ".spec.minMember")
                    .column("RUNNINGS", "integer", ".status.running")
                    .column("AGE", "date", ".metadata.creationTimestamp")
                    .wide_column("QUEUE", "string", ".spec.queue"),
            )
            .finish(),
        Definition::of::<Queue>("queue", &["q", "queue-v1beta1"])
            .version(Version::stored::<Queue>().status().column("PARENT", "string", ".spec.parent"))
            .finish(),
    ]
}
