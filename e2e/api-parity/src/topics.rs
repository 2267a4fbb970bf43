//! One module per topic; each ends up in [`all`].

mod binding;
mod concurrency;
mod crd_schema;
mod crd_versions;
mod deletion;
mod discovery;
mod jobs;
mod kinds;
mod lists;
mod namespaces;
mod nodes;
mod objects;
mod patches;
mod pods;
mod quantities;
mod shapes;
mod typed;
mod watches;
mod webhooks;

use crate::Case;

pub(crate) fn all() -> Vec<Case> {
    [
        objects::CASES,
        concurrency::CASES,
        patches::CASES,
        deletion::CASES,
        deletion::COLLECTED,
        namespaces::CASES,
        namespaces::LIFECYCLE,
        lists::CASES,
        watches::CASES,
        pods::CASES,
        quantities::CASES,
        binding::CASES,
        binding::DISRUPTION,
        jobs::CASES,
        jobs::CONTROLLED,
        nodes::CONTROLLED,
        crd_schema::CASES,
        crd_versions::CASES,
        kinds::CASES,
        discovery::CASES,
        webhooks::CASES,
        typed::CASES,
    ]
    .concat()
}
