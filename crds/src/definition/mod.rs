//! CustomResourceDefinitions, made of the types in [`crate::api`].

mod build;
mod trireme;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

/// Every definition Trireme ships, in name order.
pub fn all() -> Vec<CustomResourceDefinition> {
    let mut all = trireme::all();
    all.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    all
}
