//! Conditions, as `apimachinery` wants them (`ValidateConditions`).

use std::collections::BTreeSet;

use super::{Findings, Path, metadata::label_key, syntax::is_condition_reason};
use crate::api::Condition;

const STATUSES: [&str; 3] = ["False", "True", "Unknown"];
/// Bytes of a reason at most.
const MAX_REASON: usize = 1 << 10;
/// Bytes of a message at most.
const MAX_MESSAGE: usize = 32 << 10;
/// The first second of the year 1: how Go writes that there is no time.
const NO_TIME: i64 = -62_135_596_800;

pub(super) fn conditions(list: &[Condition], at: &Path<'_>, findings: &mut Findings) {
    let mut types = BTreeSet::new();
    for (index, condition) in list.iter().enumerate() {
        let at = at.index(index);
        if !types.insert(&condition.type_) {
            let detail = "there is one condition of a type";
            findings.duplicate(&at.field("type"), condition.type_.as_str(), detail);
        }
        self::condition(condition, &at, findings);
    }
}

fn condition(condition: &Condition, at: &Path<'_>, findings: &mut Findings) {
    label_key(&condition.type_, &at.field("type"), findings);
    if !STATUSES.contains(&condition.status.as_str()) {
        findings.not_supported(&at.field("status"), condition.status.as_str(), STATUSES);
    }
    if let Some(generation) = condition.observed_generation.filter(|generation| *generation < 0) {
        findings.invalid(&at.field("observedGeneration"), generation, "must be 0 or more");
    }
    if condition.last_transition_time.0.as_second() == NO_TIME {
        findings.required(&at.field("lastTransitionTime"), "say since when it is so");
    }
    let (reason, at_reason) = (condition.reason.as_str(), at.field("reason"));
    if reason.is_empty() {
        findings.required(&at_reason, "say why in one word");
    } else if !is_condition_reason(reason) {
        let detail = "must be letters, digits, '_', ',' and ':', with a letter first and no punctuation last";
        findings.invalid(&at_reason, reason, detail);
    }
    if reason.len() > MAX_REASON {
        findings.too_long(&at_reason, MAX_REASON);
    }
    if condition.message.len() > MAX_MESSAGE {
        findings.too_long(&at.field("message"), MAX_MESSAGE);
    }
}
