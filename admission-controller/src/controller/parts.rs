//! Jobs that are part of what is managed: they run when that is admitted.

use std::borrow::Cow;

use crds::reasons::event as reasons;
use kit::events::{Event, Regarding, Severity};
use kit::patch::{Subresource, Target};
use kit::writes::Priority;
use quota_engine::Uid;
use serde_json::json;

use super::Controller;
use super::pump::{About, Answer, Op};
use super::refused::Aim;
use super::send::Patch;
use super::world::Unit;
use crate::jobs::set;

impl Controller {
    /// Suspends a job that runs though it is part of one that is not admitted.
    pub(super) fn stop_part(&mut self, unit: &Unit, uid: &Uid) -> bool {
        let Some(part) = self.world.part_to_stop(uid) else { return false };
        let (kind, namespace, name) = (part.kind, part.namespace.clone(), part.name.clone());
        let versions = format!("part {}", part.version);
        let target = Target::new(name.clone(), uid.to_string()).at(part.version.to_string());
        if self.is_refused(unit, Aim::Other, &versions) {
            return false;
        }
        let api_version = match kind.group {
            "" => Cow::Borrowed(kind.version),
            group => Cow::Owned(format!("{group}/{}", kind.version)),
        };
        let regarding = Regarding {
            api_version,
            kind: kind.kind.into(),
            namespace: namespace.clone(),
            name: name.clone(),
            uid: uid.to_string(),
        };
        let note = "suspended until what it is part of is admitted".to_owned();
        let reason = reasons::SUSPENDED.into();
        self.events.publish(Event { regarding, severity: Severity::Normal, reason, note });
        let mut body = json!({});
        set(&mut body, kind.suspend, json!(true));
        let api = self.jobs_of(kind, &namespace);
        let about = About::Job { kind, namespace, name };
        // Until the answer is known, and where it is no, it is not tried again at once.
        let op = Op::new(about, versions);
        self.remember_refused(unit, &op, super::CONFLICT_DELAY);
        let patch = Patch { api, target, body, part: Subresource::Main };
        let answer = move |object| Answer::Job(kind, object);
        self.submit_patch(unit, Priority::Urgent, op, patch, answer);
        true
    }
}
