//! The program without its input and output, one interleaving at a time.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crds::api::trireme::v1alpha1::GangPhase;
use crds::view;
use gang_scheduler::Config;
use gang_scheduler::core::{Answer, Core, Outcome, Write, WriteId};
use gang_scheduler::grouping::Index;
use placement_engine::PodUid;
use serde_json::{Value, json};

const GPU: &str = "nvidia.com/gpu";

/// A core that leads, and the time.
struct World {
    core: Core,
    now: i64,
    version: u64,
    refuse_plans: bool,
    /// How far the wall clock is ahead of the steady one, in milliseconds.
    ahead: i64,
}

impl World {
    fn new(nodes: &[(&str, u32)]) -> Self {
        let mut world =
            Self { core: Core::new(&Config::default()), now: 0, version: 0, refuse_plans: false, ahead: 0 };
        for (name, gpus) in nodes {
            world.node(name, *gpus, json!({}));
        }
        world.core.lead(0);
        world
    }

    fn read<T: serde::de::DeserializeOwned>(&mut self, mut body: Value) -> T {
        self.version += 1;
        body["metadata"]["resourceVersion"] = json!(self.version.to_string());
        serde_json::from_value(body).unwrap()
    }

    fn node(&mut self, name: &str, gpus: u32, spec: Value) {
        let node = self.read(json!({ "metadata": { "name": name }, "spec": spec, "status": {
            "allocatable": { "cpu": "64", "pods": "110", GPU: gpus.to_string() },
            "conditions": [{ "type": "Ready", "status": "True" }] } }));
        self.core.node_applied(self.now, &node);
    }

    /// A pod of one GPU; `change` is merged into it.
    fn pod(&mut self, name: &str, change: Value) {
        let pod = self.pod_view(name, &change);
        self.core.pod_applied(self.now, &pod);
    }

    fn pod_view(&mut self, name: &str, change: &Value) -> view::Pod {
        let mut body = json!({
            "metadata": { "name": name, "namespace": "default", "uid": format!("uid-{name}") },
            "spec": { "schedulerName": "trireme", "containers": [
                { "name": "main", "resources": { "limits": { GPU: "1" } } }] },
        });
        merge(&mut body, change);
        self.read(body)
    }

    fn member(&mut self, group: &str, name: &str, change: Value) {
        let mut body = json!({ "metadata": { "annotations": { "scheduling.k8s.io/group-name": group } } });
        merge(&mut body, &change);
        self.pod(name, body);
    }

    fn group(&mut self, name: &str, spec: Value) {
        let body = json!({ "metadata": { "name": name, "namespace": "default", "uid": format!("uid-{name}") },
            "spec": spec });
        let group: view::PodGroup = self.read(body);
        self.core.group_applied(self.now, group);
    }

    /// A Workload of the job with this uid, admitted for so many pods, or not admitted.
    fn workload(&mut self, job: &str, pods: u32, admitted: bool) {
        let workload = self.workload_view(job, pods, admitted);
        self.core.workload_applied(self.now, &workload);
    }

    fn workload_view(&mut self, job: &str, pods: u32, admitted: bool) -> view::WorkloadPlacement {
        let body = self.workload_body(job, pods, admitted);
        self.read(body)
    }

    fn workload_body(&self, job: &str, pods: u32, admitted: bool) -> Value {
        let mut body = json!({
            "metadata": { "name": format!("job-{job}"), "namespace": "default", "uid": format!("uid-workload-{job}"),
                "ownerReferences": owner(job) },
            "spec": { "podSets": [{ "name": "main", "count": pods }] },
        });
        if admitted {
            body["status"] = json!({ "conditions": [{ "type": "Admitted", "status": "True" }],
                "admission": { "podSetAssignments": [{ "name": "main", "count": pods, "resourceUsage": { GPU: pods } }] } });
        }
        body
    }

    /// An earlier leader has planned both pods of PodGroup `g` onto these nodes.
    fn find_plan(&mut self, nodes: [&str; 2]) {
        let plan = self.read(json!({ "apiVersion": "trireme.dev/v1alpha1", "kind": "GangPlacement",
            "metadata": { "name": "g-1", "namespace": "default", "uid": "uid-plan" },
            "spec": { "gang": { "group": "scheduling.volcano.sh", "kind": "PodGroup", "name": "g", "uid": "uid-g" },
                "minMember": 2, "nodes": nodes, "members": [
                    { "name": "p-0", "uid": "uid-p-0", "node": 0 }, { "name": "p-1", "uid": "uid-p-1", "node": 1 }] } }));
        self.core.placement_applied(&plan);
    }

    /// Lets so many seconds pass, settles after each, and gives what is to be written.
    fn settle(&mut self, seconds: i64) -> Vec<(WriteId, Write)> {
        let mut writes = Vec::new();
        for _ in 0..=seconds {
            self.core.settle(self.now, self.now + self.ahead);
            for (id, write) in self.core.take_writes() {
                match (&write, self.refuse_plans) {
                    (Write::CreatePlan { .. }, true) => {
                        self.core.wrote(self.now, &id, Outcome::Refused("over quota".into()));
                    }
                    (Write::PodStatus { .. } | Write::GroupStatus { .. }, _) => self.done(&id),
                    _ => {}
                }
                writes.push((id, write));
            }
            self.now += 1_000;
        }
        writes
    }

    fn done(&mut self, id: &WriteId) {
        let answer = Answer::Done { uid: format!("uid-{id:?}"), resource_version: "99".into() };
        self.core.wrote(self.now, id, Outcome::Answered(answer));
    }
}

fn owner(job: &str) -> Value {
    json!([{ "apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": format!("uid-{job}"), "controller": true }])
}

fn merge(into: &mut Value, change: &Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change.clone(),
    }
}

fn binds(writes: &[(WriteId, Write)]) -> Vec<(String, String)> {
    let binds = writes.iter().filter_map(|(_, write)| match write {
        Write::Bind { key, node, .. } => Some((key.1.to_string(), node.to_string())),
        _ => None,
    });
    binds.collect()
}

/// Reason and message of the last condition written for a pod.
fn said(writes: &[(WriteId, Write)], pod: &str) -> (String, String) {
    let conditions = writes.iter().rev().find_map(|(_, write)| match write {
        Write::PodStatus { key, conditions, .. } if key.1.as_ref() == pod => Some(conditions),
        _ => None,
    });
    let condition =
        conditions.unwrap_or_else(|| panic!("nothing said of {pod}: {writes:#?}")).last().unwrap();
    (condition["reason"].as_str().unwrap().to_owned(), condition["message"].as_str().unwrap().to_owned())
}

/// The last status written for a PodGroup.
fn status(writes: &[(WriteId, Write)]) -> Value {
    let statuses = writes.iter().rev().filter_map(|(_, write)| match write {
        Write::GroupStatus { status, .. } => Some(status.clone()),
        _ => None,
    });
    statuses.into_iter().next().unwrap_or_else(|| panic!("no status: {writes:#?}"))
}

fn creations(writes: &[(WriteId, Write)]) -> Vec<WriteId> {
    let plans = writes.iter().filter(|(_, write)| matches!(write, Write::CreatePlan { .. }));
    plans.map(|(id, _)| id.clone()).collect()
}

/// Whether this is written as the outcome of a plan.
fn tells(writes: &[(WriteId, Write)], outcome: GangPhase) -> bool {
    writes.iter().any(|(_, write)| matches!(write, Write::ReportPlan { phase, .. } if *phase == outcome))
}

#[test]
fn conditions_bear_the_time_that_people_read_on_their_clocks() {
    let mut world = World::new(&[("a", 8)]);
    world.ahead = 24 * 3_600_000;
    world.group("g", json!({ "minMember": 3 }));
    world.member("g", "p", json!({}));
    let writes = world.settle(15);
    let of_pods = writes.iter().find_map(|(_, write)| match write {
        Write::PodStatus { conditions, .. } => conditions.last().cloned(),
        _ => None,
    });
    let of_groups = status(&writes)["conditions"][0].clone();
    for condition in [of_pods.unwrap(), of_groups] {
        let since = condition["lastTransitionTime"].as_str().unwrap();
        assert!(since.starts_with("1970-01-02T00:00:"), "{condition}");
    }
}

#[test]
fn every_member_of_a_pod_group_needs_its_own_admission() {
    let mut world = World::new(&[("a", 8)]);
    world.workload("one", 1, true);
    world.workload("two", 1, false);
    world.group("g", json!({ "minMember": 1 }));
    for job in ["one", "two"] {
        world.member("g", job, json!({ "metadata": { "ownerReferences": owner(job) } }));
    }
    let marked = json!({ "metadata": { "labels": { "kueue.x-k8s.io/podset": "main" } } });
    world.member("g", "three", marked);
    let writes = world.settle(15);
    assert_eq!(binds(&writes), [("one".to_owned(), "a".to_owned())]);
    assert_eq!(said(&writes, "two").0, "WorkloadNotAdmitted");
    assert_eq!(said(&writes, "three").0, "WorkloadNotFound");
}

#[test]
fn the_larger_minimum_holds_and_the_pod_group_says_so() {
    for (minimum, granted, reason) in [(1, 3, "WorkloadNeedsMore"), (3, 2, "PodGroupNeedsMore")] {
        let mut world = World::new(&[("a", 8)]);
        world.workload("j", granted, true);
        world.group("g", json!({ "minMember": minimum }));
        for index in 0..2 {
            let change = json!({ "metadata": { "ownerReferences": owner("j") } });
            world.member("g", &format!("p-{index}"), change);
        }
        let writes = world.settle(15);
        assert_eq!(binds(&writes), [], "two of three");
        assert_eq!(said(&writes, "p-0"), ("NotEnoughTasks".to_owned(), "2 of 3 pods exist".to_owned()));
        let conditions = status(&writes)["conditions"].clone();
        let found = conditions.as_array().unwrap().iter().find(|one| one["type"] == "MinMemberDisagrees");
        let found = found.unwrap_or_else(|| panic!("{conditions}"));
        assert_eq!((found["status"].as_str(), found["reason"].as_str()), (Some("True"), Some(reason)));
    }
}

#[test]
fn gangs_that_are_not_read_are_not_taken_for_single_pods() {
    for (what, change) in [
        ("coscheduling", json!({ "metadata": { "labels": { "scheduling.x-k8s.io/pod-group": "g" } } })),
        ("KAI", json!({ "metadata": { "annotations": { "pod-group-name": "g" } } })),
        ("native", json!({ "spec": { "schedulingGroup": { "podGroupName": "g" } } })),
    ] {
        let mut world = World::new(&[("a", 8)]);
        world.pod("p", change);
        let writes = world.settle(15);
        assert_eq!(binds(&writes), [], "{what}");
        assert_eq!(said(&writes, "p").0, "UnsupportedFeature", "{what}");
    }
}

#[test]
fn what_a_pod_group_asks_for_is_not_ignored() {
    for (spec, reason) in [
        (
            json!({ "minMember": 1, "networkTopology": { "highestTierAllowed": 1 } }),
            Some("UnsupportedFeature"),
        ),
        (json!({ "minMember": 1, "networkTopology": { "mode": "soft" } }), None),
        (json!({ "minMember": 1, "subGroupPolicy": [{ "name": "s" }] }), Some("UnsupportedFeature")),
        (json!({ "minMember": -1 }), Some("InvalidPod")),
        (json!({ "minMember": 1, "minTaskMember": { "ps": -1 } }), Some("InvalidPod")),
        (json!({ "minMember": 1, "minTaskMember": { "ps": 1 } }), Some("NotEnoughPodsOfTask")),
        (json!({ "minMember": 1, "minTaskMember": { "worker": 1 } }), None),
        (json!({}), None),
        (json!(null), None),
    ] {
        let mut world = World::new(&[("a", 8)]);
        world.group("g", spec.clone());
        world.member(
            "g",
            "p",
            json!({ "metadata": { "annotations": { "volcano.sh/task-spec": "worker" } } }),
        );
        let writes = world.settle(15);
        match reason {
            Some(reason) => assert_eq!(said(&writes, "p").0, reason, "{spec}"),
            None => assert_eq!(binds(&writes).len(), 1, "{spec}"),
        }
    }
}

#[test]
fn groups_are_ordered_by_their_priority_class() {
    let mut world = World::new(&[("a", 1)]);
    world.core.priority_class(0, "high", Some(100));
    world.group("low", json!({ "minMember": 1 }));
    world.group("urgent", json!({ "minMember": 1, "priorityClassName": "high" }));
    world.member("low", "a", json!({ "spec": { "priority": 50 } }));
    world.member("urgent", "b", json!({}));
    assert_eq!(binds(&world.settle(1)), [("b".to_owned(), "a".to_owned())]);

    let mut world = World::new(&[("a", 1)]);
    world.group("low", json!({ "minMember": 1 }));
    world.group("late", json!({ "minMember": 1, "priorityClassName": "high" }));
    world.member("low", "a", json!({ "spec": { "priority": 50 } }));
    world.member("late", "b", json!({}));
    world.core.priority_class(0, "high", Some(100));
    assert_eq!(
        binds(&world.settle(1)),
        [("b".to_owned(), "a".to_owned())],
        "the class comes after the group"
    );
}

#[test]
fn counts_are_of_pods_by_phase() {
    let mut world = World::new(&[("a", 8)]);
    world.group("g", json!({ "minMember": 1 }));
    world.member("g", "p", json!({ "spec": { "nodeName": "a" } }));
    world.member("g", "q", json!({ "spec": { "nodeName": "a" }, "status": { "phase": "Running" } }));
    world.member("g", "r", json!({ "spec": { "nodeName": "a" }, "status": { "phase": "Failed" } }));
    let status_then = status(&world.settle(15));
    assert_eq!((&status_then["running"], &status_then["failed"]), (&json!(1), &json!(1)));
    assert_eq!(status_then["phase"], "Running");
    world.member("g", "p", json!({ "spec": { "nodeName": "a" }, "status": { "phase": "Running" } }));
    assert_eq!(status(&world.settle(15))["running"], json!(2));
}

#[test]
fn nothing_is_bound_when_the_plan_became_impossible_while_it_was_written() {
    let gone = |world: &mut World| world.core.node_deleted(world.now, "a");
    let cordoned = |world: &mut World| world.node("a", 2, json!({ "unschedulable": true }));
    let deleted = |world: &mut World| world.core.pod_deleted(world.now, &PodUid::new("uid-p-1"));
    for (what, change) in [
        ("node gone", &gone as &dyn Fn(&mut World)),
        ("node cordoned", &cordoned),
        ("a member deleted", &deleted),
    ] {
        let mut world = World::new(&[("a", 2)]);
        world.group("g", json!({ "minMember": 2 }));
        for name in ["p-0", "p-1"] {
            world.member("g", name, json!({}));
        }
        let writes = world.settle(0);
        let plan = creations(&writes);
        assert_eq!(plan.len(), 1, "{what}: {writes:#?}");
        change(&mut world);
        world.done(&plan[0]);
        let writes = world.settle(3);
        assert_eq!(binds(&writes), [], "{what}");
        assert!(tells(&writes, GangPhase::Undone), "{what}: {writes:#?}");
        world.node("b", 2, json!({}));
        world.member("g", "p-1", json!({}));
        let writes = world.settle(1);
        assert_eq!(creations(&writes).len(), 1, "{what}: decided anew: {writes:#?}");
    }
}

/// A finalizer keeps the members that were deleted before their binds came through.
#[test]
fn a_plan_whose_members_are_to_go_is_undone() {
    let mut world = World::new(&[("a", 2)]);
    world.group("g", json!({ "minMember": 2 }));
    let names = ["p-0", "p-1"];
    names.iter().for_each(|name| world.member("g", name, json!({})));
    let plan = creations(&world.settle(0));
    world.done(&plan[0]);
    let sent = world.settle(0);
    assert_eq!(binds(&sent).len(), 2);
    let leaving =
        json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x/y"] } });
    names.iter().for_each(|name| world.member("g", name, leaving.clone()));
    for (id, _) in sent.iter().filter(|(_, write)| matches!(write, Write::Bind { .. })) {
        world.core.wrote(world.now, id, Outcome::Refused("it is being deleted".into()));
    }
    let writes = world.settle(3);
    assert!(tells(&writes, GangPhase::Undone), "{writes:#?}");
}

#[test]
fn a_found_plan_that_is_no_longer_possible_is_not_begun() {
    let mut world = World::new(&[("a", 2), ("b", 2)]);
    world.core.stand_down(0);
    world.group("g", json!({ "minMember": 2 }));
    for name in ["p-0", "p-1"] {
        world.member("g", name, json!({}));
    }
    world.find_plan(["a", "gone"]);
    world.core.lead(0);
    let writes = world.settle(0);
    assert_eq!(binds(&writes), [], "half of a plan: {writes:#?}");
    assert_eq!(creations(&writes).len(), 1, "decided anew");
}

/// The first of two pods ran and ended its job while nobody led; the second had no node yet.
#[test]
fn a_found_plan_of_a_finished_workload_comes_to_an_end() {
    let mut world = World::new(&[("a", 2)]);
    world.core.stand_down(0);
    let mut finished = world.workload_body("j", 2, true);
    let conditions = finished["status"]["conditions"].as_array_mut().unwrap();
    conditions.push(json!({ "type": "Finished", "status": "True" }));
    let finished = world.read(finished);
    world.core.workload_applied(0, &finished);
    let owned = json!({ "metadata": { "ownerReferences": owner("j") } });
    let mut ended = owned.clone();
    merge(&mut ended, &json!({ "spec": { "nodeName": "a" }, "status": { "phase": "Succeeded" } }));
    world.pod("p-0", ended);
    world.pod("p-1", owned);
    let plan = world.read(json!({ "apiVersion": "trireme.dev/v1alpha1", "kind": "GangPlacement",
        "metadata": { "name": "job-j-1", "namespace": "default", "uid": "uid-plan" },
        "spec": { "gang": { "group": "kueue.x-k8s.io", "kind": "Workload", "name": "job-j", "uid": "uid-workload-j" },
            "minMember": 2, "nodes": ["a"], "members": [
                { "name": "p-0", "uid": "uid-p-0", "node": 0 }, { "name": "p-1", "uid": "uid-p-1", "node": 0 }] } }));
    world.core.placement_applied(&plan);
    world.core.lead(0);
    let writes = world.settle(3);
    assert_eq!(binds(&writes), [], "nobody needs it: {writes:#?}");
    assert!(tells(&writes, GangPhase::Bound), "{writes:#?}");
}

/// Of two pods one ran and failed; the other was deleted before it was bound, and a finalizer keeps it.
#[test]
fn a_plan_of_which_nobody_runs_any_more_is_undone() {
    let mut world = World::new(&[("a", 2)]);
    world.core.stand_down(0);
    world.group("g", json!({ "minMember": 2 }));
    world.member("g", "p-0", json!({ "spec": { "nodeName": "a" }, "status": { "phase": "Failed" } }));
    let leaving = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x/y"] });
    world.member("g", "p-1", json!({ "metadata": leaving }));
    world.find_plan(["a", "a"]);
    world.core.lead(0);
    let writes = world.settle(3);
    assert!(tells(&writes, GangPhase::Undone), "{writes:#?}");
}

#[test]
fn a_pod_that_goes_while_it_is_bound_is_nobody_s_fault() {
    let mut world = World::new(&[("a", 1)]);
    world.pod("p", json!({}));
    let writes = world.settle(0);
    world.core.wrote(world.now, &writes[0].0, Outcome::Conflict);
    let read = world.core.take_writes();
    assert!(matches!(read[0].1, Write::ReadPod { .. }));
    let pod = world.read(json!({ "metadata": { "name": "p", "namespace": "default", "uid": "uid-p",
        "deletionTimestamp": "2026-01-01T00:00:00Z" }, "spec": { "schedulerName": "trireme", "containers": [] } }));
    world.core.wrote(world.now, &read[0].0, Outcome::Answered(Answer::Pod(Box::new(pod))));
    world.pod("q", json!({}));
    assert_eq!(binds(&world.settle(0)), [("q".to_owned(), "a".to_owned())]);
}

#[test]
fn a_pod_that_goes_before_it_had_a_node_or_stands_behind_a_gate_uses_nothing_of_the_grant() {
    let mut world = World::new(&[("a", 8)]);
    world.workload("j", 1, true);
    let owned = json!({ "metadata": { "ownerReferences": owner("j") } });
    let mut leaving = owned.clone();
    merge(
        &mut leaving,
        &json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x/y"] } }),
    );
    world.pod("a", leaving);
    let mut gated = owned.clone();
    merge(&mut gated, &json!({ "spec": { "schedulingGates": [{ "name": "kueue.x-k8s.io/elastic-job" }] } }));
    world.pod("aa", gated);
    world.pod("b", owned);
    assert_eq!(binds(&world.settle(0)), [("b".to_owned(), "a".to_owned())]);
}

#[test]
fn what_the_server_says_of_a_refused_plan_or_bind_is_told() {
    let mut world = World::new(&[("a", 2)]);
    world.group("g", json!({ "minMember": 2 }));
    for name in ["p-0", "p-1"] {
        world.member("g", name, json!({}));
    }
    world.refuse_plans = true;
    let writes = world.settle(60);
    assert!(creations(&writes).len() < 8, "with pauses in between");
    assert_eq!(
        said(&writes, "p-0"),
        (
            "SchedulerError".to_owned(),
            "the gang's GangPlacement could not be written (over quota); the next try follows shortly"
                .to_owned()
        )
    );
    world.refuse_plans = false;
    assert_eq!(creations(&world.settle(60)).len(), 1);
}

#[test]
fn a_pod_costs_its_own_news_and_not_its_gang_s() {
    let mut index = Index::new(Config::default().scheduler_names, model::planted::Planted::NONE);
    let mut world = World::new(&[]);
    index.workload_applied(&world.workload_view("j", 199, true));
    let mut events = 0;
    for number in 0..200 {
        let owned = json!({ "metadata": { "ownerReferences": owner("j") } });
        events += index.pod_applied(&world.pod_view(&format!("p-{number}"), &owned)).len();
    }
    assert_eq!(events, 200);
    // The gang's rules, and the one pod that is beyond the grant.
    assert_eq!(index.settle().len(), 2);
    assert_eq!(index.settle().len(), 0);
}

#[test]
fn a_job_s_pods_are_held_to_its_present_workload() {
    let mut world = World::new(&[("a", 8)]);
    for name in ["p-0", "p-1"] {
        world.pod(name, json!({ "metadata": { "ownerReferences": owner("j") } }));
    }
    // An old Workload of the same job, for one pod, and its successor, for two.
    let mut old = world.workload_body("j", 1, true);
    merge(&mut old, &json!({ "metadata": { "uid": "uid-old", "name": "old" } }));
    old["status"]["conditions"] =
        json!([{ "type": "Admitted", "status": "True" }, { "type": "Finished", "status": "True" }]);
    let old = world.read(old);
    world.core.workload_applied(0, &old);
    world.workload("j", 2, true);
    world.core.workload_applied(0, &old);
    let writes = world.settle(0);
    assert_eq!(creations(&writes).len(), 1, "both are within the new grant: {writes:#?}");
}

#[test]
fn a_pod_belongs_to_no_version_of_its_workload_that_is_older_than_its_start() {
    for uid in ["uid-workload-j", "uid-anew"] {
        let mut world = World::new(&[("a", 8)]);
        world.workload("j", 1, true);
        // The job was made larger and admitted again; the news of its Workload are late.
        let now = world.version + 10;
        let annotations = json!({ "trireme.dev/workload-version": now.to_string() });
        let metadata = json!({ "ownerReferences": owner("j"), "annotations": annotations });
        for name in ["p-0", "p-1"] {
            world.pod(name, json!({ "metadata": metadata }));
        }
        let writes = world.settle(15);
        assert!(binds(&writes).is_empty() && creations(&writes).is_empty(), "{writes:#?}");
        assert_eq!(said(&writes, "p-0").0, "WorkloadNotFound");
        world.version = now;
        let mut larger = world.workload_body("j", 2, true);
        larger["metadata"]["uid"] = json!(uid);
        let larger = world.read(larger);
        world.core.workload_applied(world.now, &larger);
        let writes = world.settle(0);
        assert_eq!(creations(&writes).len(), 1, "{uid}: both start together: {writes:#?}");
    }
}

#[test]
fn a_pod_group_s_events_are_about_reasons_and_not_about_numbers() {
    let mut world = World::new(&[("a", 1)]);
    world.group("g", json!({ "minMember": 2 }));
    world.member("g", "p-0", json!({}));
    let events = |world: &mut World| {
        let notices = world.core.take_notices().into_iter();
        let notices = notices.filter(|notice| notice.about.1 == "PodGroup");
        notices.map(|notice| (notice.reason, notice.message)).collect::<Vec<_>>()
    };
    let writes = world.settle(15);
    assert_eq!(
        events(&mut world),
        [(
            "Unschedulable".to_owned(),
            "0 of 1 pods have a node, at least 2 must: 1 of 2 pods exist".to_owned()
        )]
    );
    let group = json!({ "metadata": { "name": "g", "namespace": "default", "uid": "uid-g" },
        "spec": { "minMember": 2 }, "status": status(&writes) });
    let group = world.read(group);
    world.core.group_applied(world.now, group);
    world.member("g", "p-1", json!({}));
    let writes = world.settle(15);
    assert_eq!(events(&mut world).len(), 1, "another reason");
    assert_eq!(status(&writes)["conditions"][0]["reason"], "NotEnoughResources");
    assert_eq!(world.core.take_tally().unschedulable, 1 + 2);
    assert_eq!(world.core.engine().waiting().unschedulable, 2);
}

#[test]
fn a_large_gang_s_conditions_are_rewritten_less_often() {
    let mut world = World::new(&[("a", 8)]);
    world.group("g", json!({ "minMember": 300 }));
    for index in 0..200 {
        world.member("g", &format!("p-{index}"), json!({}));
    }
    let told = |writes: &[(WriteId, Write)]| {
        writes.iter().filter(|(_, write)| matches!(write, Write::PodStatus { .. })).count()
    };
    assert_eq!(told(&world.settle(5)), 200);
    world.member("g", "p-200", json!({}));
    assert_eq!(told(&world.settle(12)), 0, "201 writes take their 20 seconds");
    assert_eq!(told(&world.settle(12)), 201);
}

#[test]
fn a_deleted_pod_group_holds_its_pods_and_a_new_one_takes_them() {
    let mut world = World::new(&[("a", 8)]);
    world.group("g", json!({ "minMember": 3 }));
    for name in ["p-0", "p-1"] {
        world.member("g", name, json!({}));
    }
    assert_eq!(said(&world.settle(15), "p-0").0, "NotEnoughTasks");
    world.core.group_deleted(world.now, &("default".into(), "g".into()), "uid-g");
    assert_eq!(said(&world.settle(15), "p-0").0, "PodGroupNotFound");
    let group = json!({ "metadata": { "name": "g", "namespace": "default", "uid": "uid-new" }, "spec": { "minMember": 2 } });
    let group = world.read(group);
    world.core.group_applied(world.now, group);
    assert_eq!(creations(&world.settle(0)).len(), 1);
}

#[test]
fn a_pod_group_deleted_while_its_gang_is_bound_does_not_make_it_undone() {
    let mut world = World::new(&[("a", 8)]);
    world.group("g", json!({ "minMember": 2 }));
    for name in ["p-0", "p-1"] {
        world.member("g", name, json!({}));
    }
    let plan = creations(&world.settle(0));
    world.done(&plan[0]);
    let writes = world.settle(0);
    assert_eq!(binds(&writes).len(), 2);
    world.core.group_deleted(world.now, &("default".into(), "g".into()), "uid-g");
    for (id, _) in &writes {
        world.done(id);
    }
    let phases: Vec<_> = world
        .settle(1)
        .into_iter()
        .filter_map(|(_, write)| match write {
            Write::ReportPlan { phase, .. } => Some(phase),
            _ => None,
        })
        .collect();
    assert_eq!(phases, [GangPhase::Bound]);
}

#[test]
fn members_that_come_late_are_bound_one_by_one_and_a_namesake_is_another_pod() {
    let mut world = World::new(&[("a", 8)]);
    world.group("g", json!({ "minMember": 2 }));
    for name in ["p-0", "p-1"] {
        world.member("g", name, json!({}));
    }
    let plan = creations(&world.settle(0));
    world.done(&plan[0]);
    for (id, _) in world.settle(0) {
        world.done(&id);
    }
    world.member("g", "p-2", json!({}));
    let writes = world.settle(1);
    assert_eq!((binds(&writes).len(), creations(&writes).len()), (1, 0), "no plan for one");
    for (id, _) in &writes {
        world.done(id);
    }
    // Deleted and created anew under the same name.
    world.core.pod_deleted(world.now, &PodUid::new("uid-p-0"));
    world.member("g", "p-0", json!({ "metadata": { "uid": "uid-again" } }));
    let writes = world.settle(1);
    let bound: Vec<_> = writes
        .iter()
        .filter_map(|(_, write)| match write {
            Write::Bind { pod, .. } => Some(pod.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(bound, ["uid-again"]);
}
