//! The controller of an estate's admission checks. It answers sooner or later, and not always what one would like.

use std::collections::{BTreeSet, hash_map::DefaultHasher};
use std::hash::{Hash, Hasher};

use cluster_sim::{GroupResource, Store};
use serde_json::{Value, json};

use super::provider;
use super::world::{at, condition, holds, items, text, uid};
use crate::objects;

/// The name by which checks ask for this controller.
pub(super) const CONTROLLER: &str = "fuzz.trireme.dev/checks";

/// Who it writes as: the API treats it no better than the programs.
pub(super) const WRITER: &str = "check-controller";

/// The longest that it thinks about an answer, in milliseconds.
const LONGEST_THOUGHT: u64 = 45_000;

/// The controller.
pub(super) struct Checks {
    client: kube::Client,
    store: Store,
    /// The checks that do not work at the moment.
    asleep: BTreeSet<String>,
}

impl Checks {
    pub(super) fn new(client: kube::Client, store: Store) -> Self {
        Self { client, store, asleep: BTreeSet::new() }
    }

    /// Lets a check stop working, or work again.
    pub(super) fn sleeps(&mut self, check: String, asleep: bool) {
        if asleep {
            self.asleep.insert(check);
        } else {
            self.asleep.remove(&check);
        }
    }

    /// Lets all of them work again.
    pub(super) fn wake_all(&mut self) {
        self.asleep.clear();
    }

    /// Looks at everything that waits for an answer. Once all is calm, every answer is yes.
    pub(super) async fn round(&self, now: i64, calm: bool) {
        if !self.asleep.contains(provider::CHECK) {
            provider::round(&self.client, &self.store, now, calm).await;
        }
        let checks = self.store.list(&resource("admissionchecks"), None);
        for check in checks.iter().map(|one| one.value()).filter(|one| is_ours(one)) {
            let awake = !self.asleep.contains(text(check, "/metadata/name"));
            if condition(check, "Active").is_none() || holds(check, "Active") != awake {
                self.say_whether_active(check, awake, now).await;
            }
        }
        let ours: BTreeSet<String> = checks
            .iter()
            .filter(|one| is_ours(one.value()))
            .map(|one| text(one.value(), "/metadata/name").to_owned())
            .filter(|name| !self.asleep.contains(name))
            .collect();
        for workload in self.store.list(&resource("workloads"), None) {
            let workload = workload.value();
            if holds(workload, "QuotaReserved") && !holds(workload, "Finished") {
                self.answer(workload, &ours, now, calm).await;
            }
        }
    }

    /// Answers what it has thought about for long enough, all in one write. If that is refused there will be another round.
    async fn answer(&self, workload: &Value, ours: &BTreeSet<String>, now: i64, calm: bool) {
        let mut states: Vec<Value> = items(workload, "/status/admissionChecks").cloned().collect();
        let mut answered = false;
        for state in &mut states {
            if state["state"] != "Pending" || !ours.contains(text(state, "/name")) {
                continue;
            }
            let since = text(state, "/lastTransitionTime").parse::<jiff::Timestamp>();
            // By a clock that may have been ahead.
            let since = since.map_or(0, jiff::Timestamp::as_millisecond).min(now);
            let (thought, answer) = mind(workload, state);
            if since.saturating_add_unsigned(thought) > now {
                continue;
            }
            answered = true;
            state["state"] = json!(if calm { "Ready" } else { answer });
            state["message"] = json!("the fuzzer has its reasons");
            state["lastTransitionTime"] = json!(stamp(now));
        }
        if answered {
            let version = at(workload, "/metadata/resourceVersion");
            let body = json!({
                "metadata": { "resourceVersion": version }, "status": { "admissionChecks": states },
            });
            let _ = objects::patch_status(&self.client, workload, &body).await;
        }
    }

    async fn say_whether_active(&self, check: &Value, awake: bool, now: i64) {
        let condition = json!({
            "type": "Active", "status": if awake { "True" } else { "False" }, "reason": "Fuzzed", "message": "",
            "lastTransitionTime": stamp(now),
        });
        let body = json!({ "status": { "conditions": [condition] } });
        let _ = objects::patch_status(&self.client, check, &body).await;
    }
}

fn is_ours(check: &Value) -> bool {
    text(check, "/spec/controllerName") == CONTROLLER
}

/// How long it thinks, and what it will say: always the same about the same question.
fn mind(workload: &Value, state: &Value) -> (u64, &'static str) {
    let mut hasher = DefaultHasher::new();
    (uid(workload), text(state, "/name"), text(state, "/lastTransitionTime")).hash(&mut hasher);
    let drawn = hasher.finish();
    let answer = match drawn / LONGEST_THOUGHT % 20 {
        0 => "Rejected",
        1..=4 => "Retry",
        _ => "Ready",
    };
    (drawn % LONGEST_THOUGHT, answer)
}

pub(super) fn stamp(now: i64) -> String {
    jiff::Timestamp::from_second(now / 1000).map(|at| at.to_string()).unwrap_or_default()
}

fn resource(plural: &str) -> GroupResource {
    GroupResource::new("kueue.x-k8s.io", plural)
}
