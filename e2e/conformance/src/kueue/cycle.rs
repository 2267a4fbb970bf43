//! One scheduling cycle with the API server's part in it: what is decided is written by the program's own composers, and what
//! is told of it is told by the program.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use admission_controller::config::{Configuration, Notice, closed_with};
use admission_controller::{input, news, status, topology, words};
use crds::view::workload::Workload;
use jiff::Timestamp;
use kit::events::Severity;
use model::Quantity;
use quota_engine::{ClusterQueueName, Decision, Evict, NewReason, Outcome, PendingReason, Uid};
use serde_json::{Map, Value, json};

use super::world::{World, forget_nulls, key_of};

/// Who waits, by ClusterQueue: the keys of those who are looked at, and of those who are not.
type Waiting = BTreeMap<String, Vec<String>>;

/// Kueue's configuration file with the gates as a case has them. Whether it matters that one cannot be as the case has it, see
/// [`fixed_gates`], the outcome tells.
pub(crate) fn file(tc: &Value, mut file: Value) -> Configuration {
    // A cycle of the scheduler is all there is: nobody watches whether pods get ready.
    file["featureGates"]["DisableWaitForPodsReady"] = json!(true);
    for (gate, open) in with_dependents(&tc["featureGates"]) {
        file["featureGates"][gate] = open;
    }
    Configuration::parse(Path::new("case"), &file.to_string()).unwrap_or_else(|error| panic!("{error}"))
}

/// Gates as a case has them, and closed with a closed one what cannot be open without it.
pub(crate) fn with_dependents(written: &Value) -> Map<String, Value> {
    let written = written.as_object().cloned().unwrap_or_default();
    let closed = written.iter().filter(|(_, open)| **open == false);
    let dependents = closed.flat_map(|(gate, _)| closed_with(gate));
    let mut gates: Map<String, Value> = dependents.map(|gate| (gate.to_owned(), json!(false))).collect();
    gates.extend(written);
    gates
}

/// The gates that cannot be as a case has them, in words.
pub(crate) fn fixed_gates(tc: &Value) -> Vec<String> {
    let is_fixed = |notice: &&Notice| notice.unsupported && notice.field.starts_with("featureGates.");
    let notices = gates(tc).notices;
    notices.iter().filter(is_fixed).map(|notice| format!("{}: {}", notice.field, notice.words)).collect()
}

/// The same, with nothing but gates.
pub(crate) fn gates(tc: &Value) -> Configuration {
    file(tc, json!({}))
}

/// The same for a case that says whether sharing is fair.
pub(crate) fn configuration(tc: &Value) -> Configuration {
    let mut file = json!({ "apiVersion": "config.kueue.x-k8s.io/v1beta2" });
    if tc["enableFairSharing"] == true {
        file["fairSharing"] = json!({});
    }
    self::file(tc, file)
}

/// A world whose Workloads are kept as the API server would.
pub(crate) struct Cycle {
    pub(crate) world: World,
    now: Timestamp,
    objects: BTreeMap<Uid, Value>,
    order: Vec<Uid>,
    /// Namespace/name, type and reason of each event.
    events: Vec<(String, &'static str, String)>,
    /// What comes of writes of Workloads, where they fail.
    pub(crate) writes_fail: Option<Outcome>,
    /// Whether somebody else changes a Workload before it is written for the first time.
    pub(crate) modified_before_write: bool,
}

impl Cycle {
    pub(crate) fn new(world: World, now: &str) -> Self {
        let now = now.parse().unwrap_or_else(|error| panic!("{now}: {error}"));
        let (objects, order, events) = Default::default();
        Self { world, now, objects, order, events, writes_fail: None, modified_before_write: false }
    }

    pub(crate) fn workloads(&mut self, workloads: &Value) {
        self.world.workloads(workloads);
        for object in workloads.as_array().into_iter().flatten() {
            let view: Workload = self.world.stored(object);
            let uid = input::uid(&view.metadata);
            let mut object = object.clone();
            forget_nulls(&mut object);
            self.objects.insert(uid.clone(), object);
            self.order.push(uid);
        }
    }

    /// One cycle, and the writes that follow from it.
    pub(crate) fn run(&mut self) {
        let heads = self.world.heads();
        let decisions = self.world.cycle(self.now.as_millisecond());
        self.carry_out(decisions, &heads);
        let decisions = self.world.engine.take_decisions();
        self.carry_out(decisions, &heads);
        let consequences = self.world.engine.tell();
        self.carry_out(consequences, &heads);
        self.world.engine.audit().unwrap();
    }

    /// Everything is seen again, as somebody else has left it.
    pub(crate) fn seen_again(&mut self) {
        let objects: Vec<Value> = self.order.iter().map(|uid| self.objects[uid].clone()).collect();
        self.world.workloads(&Value::Array(objects));
    }

    fn carry_out(&mut self, mut decisions: Vec<Decision>, heads: &[Uid]) {
        // Who found nothing is told so when a cycle ends.
        decisions.sort_by_key(|decision| matches!(decision, Decision::SetUnplaced(_)));
        for decision in decisions {
            match decision {
                Decision::Reserve(reserve) => {
                    let view = self.view(&reserve.workload);
                    let body = if self.world.lists_checks(&view, &reserve.admission) {
                        let checks = &view.status.admission_checks;
                        status::reserved(&view, &reserve.admission, checks, false, self.now)
                    } else {
                        // What is to be checked Kueue lists in another write, and whether that is an admission it says there.
                        status::reservation(&view, &reserve.admission, self.now)
                    };
                    let outcome = self.write(&reserve.workload, &view, body, None, None);
                    self.world.engine.written(reserve.id, outcome);
                }
                Decision::Evict(evict) => {
                    let view = self.view(&evict.victim);
                    let message = message(&evict);
                    let body = status::evicted(&view, evict.reason, &message, None, self.now);
                    let outcome = self.write(&evict.victim, &view, body, evict.preemptor.as_ref(), None);
                    self.world.engine.written(evict.id, outcome);
                }
                Decision::Replace(slice) => {
                    let Some(by) = self.world.engine.replaced_by(&slice).cloned() else { continue };
                    let (view, by) = (self.view(&slice), self.view(&by));
                    self.write(&slice, &view, status::replaced(&view, &by, self.now), None, None);
                }
                Decision::SetUnplaced(unplaced) => {
                    let view = self.view(&unplaced.workload);
                    let news = news::unplaced(&view, &unplaced.reason);
                    self.events.push((name_of(&view), "Warning", news.reason.into_owned()));
                }
                // Told by the controller of Workloads, not in a cycle.
                Decision::Withdraw(_) => {}
            }
        }
        let mut reasons = self.world.engine.take_reasons(usize::MAX);
        // Kueue tells of heads in the order in which they had their turns.
        reasons.sort_by_key(|new| (!heads.contains(&new.workload), self.turn(&new.workload)));
        let mut turns = BTreeSet::new();
        for new in reasons {
            let is_head = heads.contains(&new.workload);
            let told_by_a_cycle = match &*new.reason {
                // Of queues that do not run a cycle has no heads: Kueue tells their workloads elsewhere.
                PendingReason::ClusterQueueInactive(..) => false,
                // Nor is one told of which another like it, tried before, has shown that it does not fit.
                PendingReason::NoFit(_) => is_head,
                // Who stands in no queue here has its turn there, if nobody is before it.
                _ => is_head || self.would_be_head(&new, heads, &mut turns),
            };
            if told_by_a_cycle {
                self.write_reason(&new);
            }
        }
    }

    /// Whether it is before the head of its queue, and before others like it: `turns` has the queues in which one was.
    fn would_be_head(&self, new: &NewReason, heads: &[Uid], turns: &mut BTreeSet<ClusterQueueName>) -> bool {
        let Some(queue) = &new.cluster_queue else { return false };
        let of_queue = |head: &&Uid| {
            self.world.engine.explain(head).is_some_and(|head| head.cluster_queue.as_ref() == Some(queue))
        };
        let is_behind = heads.iter().filter(of_queue).any(|head| self.turn(head) < self.turn(&new.workload));
        !is_behind && turns.insert(queue.clone())
    }

    /// By what Kueue orders a queue.
    fn turn(&self, uid: &Uid) -> (Reverse<i64>, String) {
        let object = &self.objects[uid];
        let created = object["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned();
        (Reverse(object["spec"]["priority"].as_i64().unwrap_or(0)), created)
    }

    fn write_reason(&mut self, new: &NewReason) {
        let uid = &new.workload;
        let requests = self.world.engine.requests_of(uid);
        let body = |view: &Workload, now| status::pending(view, &new.reason, &requests, false, now);
        let view = self.view(uid);
        if let Some(first) = body(&view, self.now)
            && self.write(uid, &view, first, None, Some(&new.reason)) == Outcome::Unsettled
        {
            // The reason is kept until the object says it, and written on what is seen next.
            let view = self.view(uid);
            let again = body(&view, self.now).unwrap();
            self.write(uid, &view, again, None, Some(&new.reason));
        }
    }

    /// The admissions that were not there before, or have changed since.
    pub(crate) fn judge_new_assignments(&self, tc: &Value) -> Result<(), String> {
        let before: Map<String, Value> = tc["workloads"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|one| settled(one))
            .map(|one| (key_of(one), Value::Null))
            .collect();
        let given: Map<String, Value> = self
            .objects
            .values()
            .filter(|one| !one["status"]["admission"].is_null() && !before.contains_key(&key_of(one)))
            .map(|one| (key_of(one), one["status"]["admission"].clone()))
            .collect();
        let (mut wanted, mut given) = (tc["wantNewAssignments"].clone(), Value::Object(given));
        plain_places(&mut wanted);
        plain_places(&mut given);
        differences("assignments", &wanted, &given)
    }

    /// Compares the events in any order.
    pub(crate) fn judge_events_unordered(&mut self, tc: &Value) -> Result<(), String> {
        let mut wanted = wanted_events(tc);
        wanted.sort();
        self.events.sort();
        (wanted == self.events)
            .then_some(())
            .ok_or_else(|| format!("events {:?}, wanted {wanted:?}", self.events))
    }

    /// Compares the events in their order; none are wanted where the case names none.
    pub(crate) fn judge_events_strictly(&self, tc: &Value) -> Result<(), String> {
        let wanted = wanted_events(tc);
        (wanted == self.events)
            .then_some(())
            .ok_or_else(|| format!("events {:?}, wanted {wanted:?}", self.events))
    }

    /// The flavor from which a Workload's first pod set has a resource.
    pub(crate) fn flavor_of(&self, key: &str, resource: &str) -> Option<String> {
        let object = self.objects.values().find(|object| key_of(object) == key)?;
        let set = object.pointer("/status/admission/podSetAssignments/0")?;
        set["flavors"][resource].as_str().map(str::to_owned)
    }

    fn view(&mut self, uid: &Uid) -> Workload {
        self.world.stored(&self.objects[uid].clone())
    }

    fn write(
        &mut self,
        uid: &Uid,
        before: &Workload,
        body: Value,
        preemptor: Option<&Uid>,
        reason: Option<&PendingReason>,
    ) -> Outcome {
        if let Some(outcome) = &self.writes_fail {
            return outcome.clone();
        }
        if std::mem::take(&mut self.modified_before_write) {
            return Outcome::Unsettled;
        }
        let object = self.objects.get_mut(uid).unwrap();
        merge(object, &body);
        let after = self.view(uid);
        let preemptor = preemptor.map(|uid| self.view(uid));
        for one in news::written(Some(before), &after, preemptor.as_ref(), reason) {
            let severity = match one.severity {
                Severity::Normal => "Normal",
                Severity::Warning => "Warning",
            };
            self.events.push((name_of(one.about), severity, one.reason.into_owned()));
        }
        Outcome::Written(input::version(&after.metadata))
    }

    /// Compares the Workloads and the events.
    pub(crate) fn judge_written(&mut self, tc: &Value) -> Result<(), String> {
        self.judge_workloads(tc)?;
        self.judge_events(tc)
    }

    /// Compares everything that a case expects of its one cycle.
    pub(crate) fn judge(&mut self, tc: &Value) -> Result<(), String> {
        self.judge_assignments(tc)?;
        self.judge_workloads(tc)?;
        self.judge_waiting(tc)?;
        self.judge_events(tc)?;
        let counts = self.world.engine.take_cycle_counts();
        for (queue, wanted) in tc["wantSkippedPreemptions"].as_object().into_iter().flatten() {
            let counted = u64::from(counts.preemption_skips.contains(&queue.as_str().into()));
            if *wanted != counted {
                return Err(format!("{queue}: {counted} preemptions skipped, wanted {wanted}"));
            }
        }
        for (queue, results) in tc["wantPreemptionTargetRecomputations"].as_object().into_iter().flatten() {
            for (result, wanted) in results.as_object().into_iter().flatten() {
                let of = counts.recomputations.iter();
                let counted: u64 = of
                    .filter(|((of, one), _)| of.as_str() == queue && one.token() == result)
                    .map(|(_, count)| *count)
                    .sum();
                if *wanted != counted {
                    return Err(format!("{queue}: {counted} recomputations {result}, wanted {wanted}"));
                }
            }
        }
        Ok(())
    }

    pub(crate) fn judge_assignments(&self, tc: &Value) -> Result<(), String> {
        let mut given = Map::new();
        for object in self.objects.values().filter(|one| !one["status"]["admission"].is_null()) {
            given.insert(key_of(object), object["status"]["admission"].clone());
        }
        differences("assignments", &tc["wantAssignments"], &Value::Object(given))
    }

    pub(crate) fn judge_workloads(&self, tc: &Value) -> Result<(), String> {
        let by_key = |objects: Vec<&Value>| -> Value {
            objects.into_iter().map(|one| (key_of(one), comparable(one))).collect::<Map<_, _>>().into()
        };
        let wanted = by_key(tc["wantWorkloads"].as_array().into_iter().flatten().collect());
        let given = by_key(self.order.iter().map(|uid| &self.objects[uid]).collect());
        differences("workloads", &wanted, &given)
    }

    pub(crate) fn judge_waiting(&mut self, tc: &Value) -> Result<(), String> {
        let (mut active, mut inadmissible) = (Waiting::new(), Waiting::new());
        for queue in self.world.engine.cluster_queues() {
            let (left, parked) = self.world.engine.waiting_in(&queue.name);
            let keys = |uids: Vec<Uid>| -> Vec<String> {
                let mut keys: Vec<String> = uids.iter().map(|uid| self.world.key(uid)).collect();
                keys.sort();
                keys
            };
            active.insert(queue.name.as_str().to_owned(), keys(left));
            inadmissible.insert(queue.name.as_str().to_owned(), keys(parked));
        }
        let sorted = |field: &str| -> Value {
            let queues = tc[field].as_object().into_iter().flatten();
            queues
                .map(|(queue, keys)| {
                    let mut keys: Vec<String> = serde_json::from_value(keys.clone()).unwrap();
                    keys.sort();
                    (queue.clone(), json!(keys))
                })
                .collect::<Map<_, _>>()
                .into()
        };
        differences("left", &sorted("wantLeft"), &json!(active))?;
        differences("inadmissible", &sorted("wantInadmissibleLeft"), &json!(inadmissible))
    }

    fn judge_events(&self, tc: &Value) -> Result<(), String> {
        let wanted = wanted_events(tc);
        if wanted.is_empty() || wanted == self.events {
            return Ok(());
        }
        Err(format!("events {:?}, wanted {wanted:?}", self.events))
    }
}

/// Who needs nothing: admitted, its places known and none of its nodes failed.
fn settled(workload: &Value) -> bool {
    let status = &workload["status"];
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let admitted = conditions.into_iter().any(|one| one["type"] == "Admitted" && one["status"] == "True");
    admitted && status["unhealthyNodes"].as_array().is_none_or(Vec::is_empty)
}

fn wanted_events(tc: &Value) -> Vec<(String, &'static str, String)> {
    let wanted = tc["wantEvents"].as_array().into_iter().flatten();
    wanted
        .map(|one| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let key = format!("{}/{}", text(&one["Key"]["Namespace"]), text(&one["Key"]["Name"]));
            let severity = if one["EventType"] == "Warning" { "Warning" } else { "Normal" };
            (key, severity, text(&one["Reason"]))
        })
        .collect()
}

/// Compressed assignments, anywhere in it, written out.
pub(crate) fn plain_places(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if let Some(places) = map.get_mut("topologyAssignment").filter(|one| !one.is_null()) {
                let read = serde_json::from_value(places.clone()).unwrap_or_else(|error| panic!("{error}"));
                let plain = topology::read(&read).unwrap_or_else(|error| panic!("{error}"));
                let domains =
                    plain.domains.iter().map(|one| json!({ "values": one.values, "pods": one.pods }));
                let levels: Vec<&str> = plain.levels.iter().map(|level| &**level).collect();
                *places = json!({ "levels": levels, "domains": domains.collect::<Vec<_>>() });
            }
            map.values_mut().for_each(plain_places);
        }
        Value::Array(items) => items.iter_mut().for_each(plain_places),
        _ => {}
    }
}

fn name_of(view: &Workload) -> String {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    format!("{}/{}", text(&view.metadata.namespace), text(&view.metadata.name))
}

fn message(evict: &Evict) -> String {
    let preemptor = evict.preemptor.as_ref().map(ToString::to_string);
    let preemptor = preemptor.as_deref().map(|uid| (uid, "UNKNOWN"));
    words::eviction(evict.reason, preemptor, (&evict.preemptor_path, &evict.victim_path))
}

/// RFC 7386.
fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (field, value) in patch {
        if value.is_null() {
            object.as_object_mut().unwrap().remove(field);
        } else {
            merge(&mut object[field], value);
        }
    }
}

/// The object without what is not compared: what messages say, versions, creation, what is empty, the order of conditions.
pub(crate) fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    plain_places(&mut object);
    for field in ["resourceVersion", "creationTimestamp"] {
        object["metadata"].as_object_mut().unwrap().remove(field);
    }
    if let Some(conditions) = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut) {
        conditions.iter_mut().for_each(only_whether_it_speaks);
        conditions.sort_by_key(|one| one["type"].as_str().unwrap_or_default().to_owned());
    }
    let checks = object.pointer_mut("/status/admissionChecks").and_then(Value::as_array_mut);
    checks.into_iter().flatten().for_each(only_whether_it_speaks);
    object
}

/// Sentences are not compared: where there is one, one has to be.
fn only_whether_it_speaks(said: &mut Value) {
    if said["message"].as_str().is_some_and(|words| !words.is_empty()) {
        said["message"] = json!("some words");
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.values().all(is_empty),
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Where two values differ; what is empty is as good as absent.
pub(crate) fn differences(what: &str, wanted: &Value, given: &Value) -> Result<(), String> {
    let mut found = Vec::new();
    compare(what, wanted, given, &mut found);
    if found.is_empty() { Ok(()) } else { Err(found.join("\n  ")) }
}

fn compare(path: &str, wanted: &Value, given: &Value, found: &mut Vec<String>) {
    // The API wants a message of every condition: a table without one does not compare it.
    if is_empty(wanted) && (is_empty(given) || path.ends_with(".message")) {
        return;
    }
    match (wanted, given) {
        (Value::Object(one), Value::Object(other)) => {
            let fields: std::collections::BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            for field in fields {
                compare(&format!("{path}.{field}"), &wanted[field], &given[field], found);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (wanted, given)) in one.iter().zip(other).enumerate() {
                compare(&format!("{path}[{index}]"), wanted, given, found);
            }
        }
        _ if wanted == given => {}
        _ if path.contains(".resourceUsage.") && same_amount(wanted, given) => {}
        _ => found.push(format!("{path} is {given}, wanted {wanted}")),
    }
}

/// Whether two quantities are equal, in whatever notation.
fn same_amount(a: &Value, b: &Value) -> bool {
    let amount = |value: &Value| value.as_str()?.parse::<Quantity>().ok();
    amount(a).is_some_and(|a| Some(a) == amount(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_compared_by_value() {
        let used = |memory: &str| json!({ "resourceUsage": { "memory": memory } });
        assert!(differences("admission", &used("1G"), &used("1000000000")).is_ok());
        assert!(differences("admission", &used("1G"), &used("1Gi")).is_err());
        let flavor = |name: &str| json!({ "flavors": { "memory": name } });
        assert!(differences("admission", &flavor("1k"), &flavor("1000")).is_err());
    }

    #[test]
    fn a_message_that_is_wanted_has_to_be_there() {
        let says = |words: &str| {
            let condition = json!({ "type": "QuotaReserved", "message": words });
            comparable(&json!({ "metadata": {}, "status": { "conditions": [condition] } }))
        };
        for (wanted, given, is_alike) in
            [("theirs", "ours", true), ("theirs", "", false), ("", "ours", true), ("", "", true)]
        {
            let found = differences("w", &says(wanted), &says(given));
            assert_eq!(found.is_ok(), is_alike, "{wanted:?} {given:?}: {found:?}");
        }
    }
}
