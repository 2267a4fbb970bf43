//! Jobs that have no Workload, and why, when somebody asks.

use serde_json::{Value, json};

use super::Controller;
use super::store::{Object, StoredJob};
use super::world::Unit;
use crate::pods::prebuilt;
use crate::reconcile::Job;

const NOT_MANAGED: &str = "it is not managed: it names no queue, is part of another object, is left to another controller, its \
                           kind is switched off, or its namespace is not selected";
const RUNS: &str = "it runs without quota, and has to be suspended first; if it stays like that, it does not keep what is written to \
                    suspend it";

impl Controller {
    /// What is known of the jobs of this name, whatever their kinds. `told` are the events that the job got on that account.
    pub(super) fn without_workload(&self, namespace: &str, name: &str) -> Vec<Value> {
        let jobs = self.world.jobs_called(namespace, name).into_iter();
        let known = jobs.map(|stored| {
            let (kind, message) = match stored {
                StoredJob::Whole(job) => (job.kind, self.why_without_workload(job)),
                StoredJob::Bare(job) => (job.kind, NOT_MANAGED.to_owned()),
            };
            let told = self.told.get(&Unit::Job(stored.uid())).into_iter().flatten();
            let told = told.map(|(reason, (message, _))| json!({ "reason": reason, "message": message }));
            json!({ "kind": kind.kind, "name": name, "message": message, "told": told.collect::<Vec<_>>() })
        });
        known.collect()
    }

    fn why_without_workload(&self, job: &Job) -> String {
        let view = &job.view;
        let awaited = prebuilt(&job.object).filter(|_| self.prebuilt_of(&job.object).is_none());
        if view.finished.is_some() {
            "it has ended without one".to_owned()
        } else if job.object.metadata.deletion_timestamp.is_some() {
            "it is being deleted".to_owned()
        } else if let Some(words) = &view.on_hold {
            words.clone()
        } else if let Some(name) = awaited {
            format!("it waits for Workload {name}, which it names and which does not exist; create that")
        } else if !view.suspended {
            RUNS.to_owned()
        } else if view.active {
            "its pods from before have to end first".to_owned()
        } else {
            match &view.pod_sets {
                Err(_) if job.object.awaits_child(job.kind) => {
                    "its own controller has to say first which pods it will have".to_owned()
                }
                Err(words) => words.clone(),
                Ok(_) => "its Workload is being made; what keeps it from that was told the job as an event"
                    .to_owned(),
            }
        }
    }
}
