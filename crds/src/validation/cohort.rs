//! `Cohort`.

use super::{
    FieldError, Findings, Path,
    quota::{Holder, fair_sharing, resource_groups},
};
use crate::api::kueue::v1beta2::Cohort;

/// What is wrong with a Cohort, new or changed.
pub fn cohort(cohort: &Cohort) -> Vec<FieldError> {
    let mut findings = Findings::default();
    let (spec, at) = (&cohort.spec, Path::root("spec"));
    fair_sharing(spec.fair_sharing.as_ref(), &at, &mut findings);
    let has_parent = spec.parent_name.as_ref().is_some_and(|name| !name.is_empty());
    // A cohort lends what its members do not use, too: its own is no bound.
    let holder = Holder { has_parent, parent: "parentName", lends_own_only: false };
    resource_groups(&spec.resource_groups, holder, &at.field("resourceGroups"), &mut findings);
    findings.into_errors()
}
