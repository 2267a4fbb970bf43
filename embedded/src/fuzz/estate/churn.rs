//! Administrators at work: whatever the estate is made of is changed, taken away and put back.

use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};

use super::{
    CHECKS, Estate, Pool, check, checks_strategy, cohort_name, preemption, resource_groups, taint, topology,
};
use crate::fuzz::scenario::{Act, CALM_AFTER, Queue, instant};

/// How many changes an estate sees at most.
const CHANGES: usize = 12;

/// A change of a part of the estate: nothing where there is no such part.
type Change = fn(&mut Rng, &Estate) -> Vec<Act>;

const CHANGES_OF: &[Change] = &[
    new_quota,
    new_quota,
    another_cohort,
    another_parent,
    quota_of_cohort,
    cohort_away,
    queue_away,
    local_queue_away,
    held,
    flavor_away,
    taint_changes,
    other_rules,
    another_weight,
    other_checks,
    check_sleeps,
    check_away,
    topology_away,
];

/// What administrators do, by time. What they take away they put back after a while.
pub(in crate::fuzz) fn churn(rng: &mut Rng, estate: &Estate) -> Vec<(Duration, Act)> {
    let mut story = Vec::new();
    let count = if estate.traits.churn { rng.usize(2..=CHANGES) } else { 0 };
    for _ in 0..count {
        let mut at = instant(rng, CALM_AFTER.mul_f64(0.8));
        for act in CHANGES_OF[rng.usize(..CHANGES_OF.len())](rng, estate) {
            story.push((at, act));
            at += Duration::from_secs(rng.u64(1..=120));
        }
    }
    story
}

fn a_queue<'a>(rng: &mut Rng, estate: &'a Estate) -> &'a Queue {
    &estate.queues[rng.usize(..estate.queues.len())]
}

fn a_cohort<'a>(rng: &mut Rng, estate: &'a Estate) -> Option<&'a Value> {
    let count = estate.cohorts.len();
    (count > 0).then(|| &estate.cohorts[rng.usize(..count)])
}

fn a_pool<'a>(rng: &mut Rng, estate: &'a Estate) -> &'a Pool {
    &estate.pools[rng.usize(..estate.pools.len())]
}

fn patch(object: &Value, spec: Value) -> Act {
    Act::Patch { object: object.clone(), patch: json!({ "spec": spec }) }
}

fn away_and_back(object: &Value) -> Vec<Act> {
    vec![Act::Delete(object.clone()), Act::Apply(object.clone())]
}

fn new_quota(rng: &mut Rng, estate: &Estate) -> Vec<Act> {
    let queue = &a_queue(rng, estate).cluster_queue;
    let in_cohort = queue["spec"].get("cohortName").is_some();
    let sharers = rng.i64(1..=6);
    let groups = resource_groups(rng, estate.traits, &estate.pools, sharers, in_cohort);
    vec![patch(queue, json!({ "resourceGroups": groups }))]
}

fn quota_of_cohort(rng: &mut Rng, estate: &Estate) -> Vec<Act> {
    let Some(cohort) = a_cohort(rng, estate) else { return Vec::new() };
    let has_parent = cohort["spec"].get("parentName").is_some();
    let groups = resource_groups(rng, estate.traits, &estate.pools, 4, has_parent);
    vec![patch(cohort, json!({ "resourceGroups": groups }))]
}

fn another_cohort(rng: &mut Rng, estate: &Estate) -> Vec<Act> {
    let queue = &a_queue(rng, estate).cluster_queue;
    // Limits are of members only, so who has any stays one.
    let names = ["flat".to_owned(), cohort_name(0), cohort_name(1), "elsewhere".to_owned()];
    vec![patch(queue, json!({ "cohortName": names[rng.usize(..names.len())] }))]
}

/// Sometimes below one of its own: a circle, which lasts until the next change.
fn another_parent(rng: &mut Rng, estate: &Estate) -> Vec<Act> {
    let Some(cohort) = a_cohort(rng, estate) else { return Vec::new() };
    let parent = cohort_name(rng.usize(..estate.cohorts.len()));
    let was = cohort["spec"]["parentName"].clone();
    if was.is_null() {
        return vec![patch(cohort, json!({ "parentName": parent })), Act::Replace(cohort.clone())];
    }
    vec![patch(cohort, json!({ "parentName": parent })), patch(cohort, json!({ "parentName": was }))]
}

fn cohort_away(rng: &mut Rng, estate: &Estate) -> Vec<Act> {
    a_cohort(rng, estate).map(away_and_back).unwrap_or_default()
}

fn queue_away(rng: &mut Rng, estate: &Estate) -> Vec<Act> {
    away_and_back(&a_queue(rng, estate).cluster_queue)
}

fn local_queue_away(rng: &mut Rng, estate: &Estate) -> Vec<Act> {
    away_and_back(&a_queue(rng, estate).local_queues[0])
}

fn held(rng: &mut Rng, estate: &Estate) -> Vec<Act> {
    let policy = ["Hold", "HoldAndDrain"][rng.usize(..2)];
    let queue = a_queue(rng, estate);
    let object = if rng.bool() { &queue.cluster_queue } else { &queue.local_queues[0] };
    vec![
        patch(object, json!({ "stopPolicy": policy })),
        patch(object, json!({ "stopPolicy": if rng.u8(..4) > 0 { "None" } else { policy } })),
    ]
}

fn flavor_away(rng: &mut Rng, estate: &Estate) -> Vec<Act> {
    away_and_back(&a_pool(rng, estate).flavor)
}

fn taint_changes(rng: &mut Rng, estate: &Estate) -> Vec<Act> {
    let pool = a_pool(rng, estate);
    let taints = if rng.bool() { json!([taint(&pool.name)]) } else { json!([]) };
    let before = pool.flavor["spec"].get("nodeTaints").cloned().unwrap_or_else(|| json!([]));
    vec![
        patch(&pool.flavor, json!({ "nodeTaints": taints })),
        patch(&pool.flavor, json!({ "nodeTaints": before })),
    ]
}

fn other_rules(rng: &mut Rng, estate: &Estate) -> Vec<Act> {
    let queue = &a_queue(rng, estate).cluster_queue;
    let mut rules = preemption(rng, queue["spec"].get("cohortName").is_some());
    // What is not said stays in a merge patch.
    if rules.get("borrowWithinCohort").is_none() {
        rules["borrowWithinCohort"] = Value::Null;
    }
    vec![patch(queue, json!({ "preemption": rules }))]
}

fn another_weight(rng: &mut Rng, estate: &Estate) -> Vec<Act> {
    let weight = ["0", "250m", "1", "3"][rng.usize(..4)];
    let object = match a_cohort(rng, estate) {
        Some(cohort) if rng.bool() => cohort,
        _ => &a_queue(rng, estate).cluster_queue,
    };
    vec![patch(object, json!({ "fairSharing": { "weight": weight } }))]
}

fn other_checks(rng: &mut Rng, estate: &Estate) -> Vec<Act> {
    if !estate.traits.checks {
        return Vec::new();
    }
    let none = json!({ "admissionChecks": [] });
    let queue = &a_queue(rng, estate).cluster_queue;
    let rules = if rng.u8(..3) == 0 { none } else { checks_strategy(rng, &queue["spec"]["resourceGroups"]) };
    vec![patch(queue, json!({ "admissionChecksStrategy": rules }))]
}

fn check_sleeps(rng: &mut Rng, estate: &Estate) -> Vec<Act> {
    if !estate.traits.checks {
        return Vec::new();
    }
    let check = CHECKS[rng.usize(..CHECKS.len())].to_owned();
    vec![Act::CheckSleeps { check: check.clone(), asleep: true }, Act::CheckSleeps { check, asleep: false }]
}

fn check_away(rng: &mut Rng, estate: &Estate) -> Vec<Act> {
    if !estate.traits.checks {
        return Vec::new();
    }
    away_and_back(&check(CHECKS[rng.usize(..CHECKS.len())]))
}

fn topology_away(_: &mut Rng, estate: &Estate) -> Vec<Act> {
    if !estate.traits.topology {
        return Vec::new();
    }
    away_and_back(&topology())
}
