//! One module per topic; each ends up in [`all`].

mod binding;
mod concurrency;
mod deletion;
mod lists;
mod namespaces;
mod objects;
mod patches;
mod pods;
mod quantities;
mod shapes;
mod watches;

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
    ]
    .concat()
}
