//! CustomResourceDefinitions, made of the types in [`crate::api`].

mod build;
mod generated;
mod kueue;
mod trireme;
mod volcano;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

pub use generated::{file_name, to_yaml};

/// Every definition Trireme ships, in name order.
///
/// Kinds whose versions differ in more than bounds name admission-controller's conversion webhook, without a certificate
/// authority: its leader adds that.
pub fn all() -> Vec<CustomResourceDefinition> {
    let mut all: Vec<_> = [kueue::all(), trireme::all(), volcano::all()].concat();
    all.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    all
}

/// [`all`] without conversion webhooks: for a server on which only the stored versions are used, or nobody serves `/convert`.
pub fn all_unconverted() -> Vec<CustomResourceDefinition> {
    let mut all = all();
    all.iter_mut().for_each(|definition| definition.spec.conversion = None);
    all
}
