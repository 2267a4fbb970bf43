//! How each write of the core is sent, and what its end means.

use std::collections::BTreeMap;
use std::sync::Arc;

use crds::api::trireme::v1alpha1::GangPlacement;
use crds::names::trireme;
use crds::view;
use futures::FutureExt;
use kit::Context;
use kit::patch::{self, Subresource, Target, WriteError, Written};
use kit::writes::{Attempt, Failure, Priority};
use kube::api::Api;
use serde_json::json;

use crate::core::{Answer, Outcome, Write};

/// The priority of a write.
pub(crate) fn priority(write: &Write) -> Priority {
    match write {
        Write::Bind { .. } | Write::ReadPod { .. } | Write::DeletePod { .. } => Priority::Urgent,
        Write::CreatePlan { .. } | Write::ReadPlan { .. } | Write::ReportPlan { .. } => Priority::Normal,
        Write::DeletePlan { .. } | Write::PodStatus { .. } | Write::GroupStatus { .. } => Priority::Status,
    }
}

/// One attempt to send, as often as it is called.
pub(crate) fn send(
    ctx: &Context,
    write: Write,
) -> (Priority, impl FnMut() -> Attempt<Answer> + Send + 'static) {
    let client = ctx.clients.write.clone();
    let (priority, write) = (priority(&write), Arc::new(write));
    (priority, move || attempt(client.clone(), write.clone()).boxed())
}

async fn attempt(client: kube::Client, write: Arc<Write>) -> Result<Answer, WriteError> {
    let done =
        |written: Written| Answer::Done { uid: written.uid, resource_version: written.resource_version };
    let nothing = |()| Answer::Done { uid: String::new(), resource_version: String::new() };
    match write.as_ref() {
        Write::CreatePlan { plan, object, .. } => {
            let api = Api::<GangPlacement>::namespaced(client, &plan.0);
            patch::create(&api, object).await.map(done)
        }
        Write::ReadPlan { plan, object, .. } => {
            let api = Api::<view::GangPlacement>::namespaced(client, &plan.0);
            let name = object.metadata.name.as_deref().unwrap_or_default();
            Ok(Answer::Plan(Box::new(api.get(name).await?)))
        }
        Write::Bind { pod, key, resource_version, node, devices } => {
            let api = Api::<view::Pod>::namespaced(client, &key.0);
            let target = Target::new(key.1.as_ref(), pod.as_str()).at(resource_version.as_str());
            let mut annotations = BTreeMap::new();
            if !devices.is_empty() {
                annotations.insert(trireme::DEVICES.to_owned(), json!(devices).to_string());
            }
            patch::bind(&api, &target, node, &annotations).await.map(nothing)
        }
        Write::ReadPod { key, .. } => {
            let api = Api::<view::Pod>::namespaced(client, &key.0);
            Ok(Answer::Pod(Box::new(api.get(&key.1).await?)))
        }
        Write::ReportPlan { object: (key, uid), phase, .. } => {
            let api = Api::<view::GangPlacement>::namespaced(client, &key.0);
            // Without a resourceVersion: the outcome follows from the pods, whatever else changed about the object, and is
            // written again until it is there.
            let target = Target::new(key.1.as_ref(), uid.as_str());
            let body = json!({ "status": { "phase": phase } });
            patch::merge(&api, &target, body, Subresource::Status).await.map(done)
        }
        Write::DeletePlan { key, uid } => {
            let api = Api::<view::GangPlacement>::namespaced(client, &key.0);
            patch::delete(&api, &Target::new(key.1.as_ref(), uid.as_str()), None).await.map(nothing)
        }
        Write::DeletePod { pod, key, .. } => {
            let api = Api::<view::Pod>::namespaced(client, &key.0);
            patch::delete(&api, &Target::new(key.1.as_ref(), pod.as_str()), None).await.map(nothing)
        }
        Write::PodStatus { pod, key, resource_version, conditions } => {
            let api = Api::<view::Pod>::namespaced(client, &key.0);
            let target = Target::new(key.1.as_ref(), pod.as_str()).at(resource_version.as_str());
            let body = json!({ "status": { "conditions": conditions } });
            patch::merge(&api, &target, body, Subresource::Status).await.map(done)
        }
        // Volcano's definition has no status subresource.
        Write::GroupStatus { key, uid, resource_version, status } => {
            let api = Api::<view::PodGroup>::namespaced(client, &key.0);
            let target = Target::new(key.1.as_ref(), uid.as_str()).at(resource_version.as_str());
            patch::merge(&api, &target, json!({ "status": status }), Subresource::Main).await.map(done)
        }
    }
}

/// What the end of a write means to the core.
pub(crate) fn outcome_of(result: Result<Answer, Failure>, attempts: u32) -> Outcome {
    let failure = match result {
        Ok(answer) => return Outcome::Answered(answer),
        Err(failure) => failure,
    };
    match failure {
        Failure::Error(WriteError::Gone) => Outcome::Gone,
        Failure::Error(WriteError::Conflict(_)) => Outcome::Conflict,
        Failure::Error(WriteError::Refused(status)) => Outcome::Refused(status.message.clone()),
        Failure::Error(WriteError::Unavailable { .. }) => Outcome::Unknown,
        Failure::NotLeading | Failure::Stopping if attempts > 0 => Outcome::Unknown,
        Failure::NotLeading | Failure::Stopping | Failure::Shed => Outcome::NotSent,
    }
}
