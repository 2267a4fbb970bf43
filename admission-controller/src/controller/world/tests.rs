use quota_engine::Settings;
use serde_json::{Value, json};

use super::*;
use crate::jobs::TABLE;

struct Told {
    world: World,
    engine: Engine,
}

impl Told {
    fn job(&mut self, change: fn(JobObject) -> Change<JobObject>, version: u32, metadata: &Value) -> String {
        let mut object = json!({
            "metadata": {
                "name": "j", "namespace": "team", "uid": "u", "resourceVersion": version.to_string(),
                "annotations": { "a": "long words" }, "labels": { "b": "long words" },
            },
            "spec": { "template": { "spec": { "containers": [{ "name": "long words" }] } } },
            "status": { "active": 1, "uncountedTerminatedPods": { "succeeded": ["long words"] } },
        });
        set_all(&mut object["metadata"], metadata);
        let change = change(serde_json::from_value(object).unwrap());
        self.world.take(&mut self.engine, Seen::Job(&TABLE[0], change));
        self.kept()
    }

    fn workload(&mut self) {
        let workload = serde_json::from_value(json!({ "metadata": {
            "name": "w", "namespace": "team", "uid": "w", "resourceVersion": "7",
            "ownerReferences": [
                { "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true },
            ],
        }}));
        let change = Change::Applied(workload.unwrap());
        self.world.take(&mut self.engine, Seen::Workload(change));
    }

    fn kept(&self) -> String {
        format!("{:?}", self.world.stored_job(&Uid::from("u")))
    }

    fn is_to_be_read(&self) -> bool {
        self.world.job_to_read(&Uid::from("u")).is_some()
    }
}

fn set_all(at: &mut Value, patch: &Value) {
    for (key, value) in patch.as_object().unwrap() {
        at[key] = value.clone();
    }
}

fn told() -> Told {
    let world = World::new(&Configuration::default());
    Told { world, engine: Engine::new(Settings::default()) }
}

fn queued() -> Value {
    json!({ "labels": { "kueue.x-k8s.io/queue-name": "a" } })
}

#[test]
fn of_a_job_without_a_queue_it_is_kept_only_that_it_exists() {
    let mut told = told();
    let kept = told.job(Change::Applied, 1, &json!({}));
    assert!(kept.contains("Bare") && !kept.contains("long words"), "{kept}");
    assert!(told.world.job(&Uid::from("u")).is_none() && !told.is_to_be_read());

    let kept = told.job(Change::Applied, 2, &queued());
    assert!(kept.contains("long words"), "{kept}");
    assert_eq!(told.world.job(&Uid::from("u")).unwrap().view.queue.as_deref(), Some("a"));

    let kept = told.job(Change::Applied, 3, &json!({}));
    assert!(!kept.contains("long words"), "its label was taken away: {kept}");
    assert_eq!(told.job(Change::Deleted, 4, &json!({})), "None");
    assert!(told.world.kind_of_job.is_empty());
}

#[test]
fn a_job_whose_workload_comes_later_is_read_in_the_version_that_was_not_kept() {
    let mut told = told();
    told.job(Change::Applied, 3, &json!({}));
    told.workload();
    assert!(told.is_to_be_read());
    let object = json!({
        "metadata": { "name": "j", "namespace": "team", "uid": "u", "resourceVersion": "3" },
        "spec": { "suspend": true },
    });
    told.world.take_job_answer(&TABLE[0], serde_json::from_value(object).unwrap());
    assert!(told.world.job(&Uid::from("u")).unwrap().view.suspended && !told.is_to_be_read());

    // A new list names it in the same version, and the watch tells of it again: it stays.
    told.world.take(&mut told.engine, Seen::Job(&TABLE[0], Change::Restarted));
    told.job(Change::Applied, 3, &json!({}));
    told.world.take(&mut told.engine, Seen::Job(&TABLE[0], Change::Synced));
    assert!(told.world.job(&Uid::from("u")).unwrap().view.suspended);
    assert!(told.job(Change::Applied, 5, &json!({})).contains("long words"));
}

#[test]
fn a_part_of_a_job_is_not_kept_whatever_it_has() {
    let mut told = told();
    let mut part = queued();
    part["ownerReferences"] = json!([
        { "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": "s", "controller": true },
    ]);
    let kept = told.job(Change::Applied, 1, &part);
    told.workload();
    assert!(!kept.contains("long words") && !told.is_to_be_read(), "{kept}");
}

#[test]
fn where_jobs_need_no_queue_they_are_kept() {
    let manages = Configuration { manage_jobs_without_queue_name: true, ..Configuration::default() };
    let mut told = Told { world: World::new(&manages), ..told() };
    assert!(told.job(Change::Applied, 1, &json!({})).contains("long words"));
}
