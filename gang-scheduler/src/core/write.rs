//! What the core wants written, and how that ended.

use std::sync::Arc;

use crds::api::trireme::v1alpha1::{GangPhase, GangPlacement};
use crds::view;
use placement_engine::{DeviceChoice, PodUid};
use serde_json::Value;

use crate::grouping::Key;

/// Something to be written (or, once, read).
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Make a plan durable.
    CreatePlan {
        /// The plan.
        plan: Key,
        /// Which of its objects this is.
        index: usize,
        /// The object.
        object: Box<GangPlacement>,
    },
    /// Bind a pod.
    Bind {
        /// The pod.
        pod: PodUid,
        /// Its namespace and name.
        key: Key,
        /// The version the decision rested on.
        resource_version: String,
        /// The node.
        node: Arc<str>,
        /// The devices chosen.
        devices: DeviceChoice,
    },
    /// Read a pod, to learn what became of a bind.
    ReadPod {
        /// The pod.
        pod: PodUid,
        /// Its namespace and name.
        key: Key,
    },
    /// Read a plan's object whose name is taken.
    ReadPlan {
        /// The plan.
        plan: Key,
        /// Which of its objects this is.
        index: usize,
        /// The object as it should be.
        object: Box<GangPlacement>,
    },
    /// Write a plan's outcome.
    ReportPlan {
        /// The plan.
        plan: Key,
        /// Which of its objects.
        index: usize,
        /// The object's namespace, name and uid.
        object: (Key, String),
        /// The outcome.
        phase: GangPhase,
    },
    /// Delete a plan whose members are gone.
    DeletePlan {
        /// Its namespace and name.
        key: Key,
        /// Its uid.
        uid: String,
    },
    /// Delete a pod of a gang that is undone.
    DeletePod {
        /// The pod.
        pod: PodUid,
        /// Its namespace and name.
        key: Key,
    },
    /// Write a pod's conditions.
    PodStatus {
        /// The pod.
        pod: PodUid,
        /// Its namespace and name.
        key: Key,
        /// The version the conditions were merged into.
        resource_version: String,
        /// All conditions.
        conditions: Vec<Value>,
    },
    /// Write a PodGroup's status.
    GroupStatus {
        /// The PodGroup's namespace and name.
        key: Key,
        /// Its uid.
        uid: String,
        /// The version the status was merged into.
        resource_version: String,
        /// What changes.
        status: Value,
    },
}

/// Tells writes apart: no two with one id are outstanding at once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriteId {
    term: u32,
    kind: &'static str,
    subject: String,
}

/// What a successful write answers.
#[derive(Clone, Debug)]
pub enum Answer {
    /// It is done; the object's new resourceVersion (empty when the answer has none) and uid.
    Done {
        /// The uid.
        uid: String,
        /// The resourceVersion.
        resource_version: String,
    },
    /// The pod as it is.
    Pod(Box<view::Pod>),
    /// The plan's object as it is.
    Plan(Box<view::GangPlacement>),
}

/// How a write ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// As wished.
    Answered(Answer),
    /// The object is gone, or is another one.
    Gone,
    /// The object has changed meanwhile, or the name is taken.
    Conflict,
    /// The server will say no however often it is asked.
    Refused(String),
    /// The server did not say; it may have been applied.
    Unknown,
    /// It was never sent.
    NotSent,
}

impl Write {
    /// What tells it from other writes.
    pub(super) fn id(&self, term: u32) -> WriteId {
        let named = |key: &Key| format!("{}/{}", key.0, key.1);
        let (kind, subject) = match self {
            Self::CreatePlan { plan, index, .. } => ("create-plan", format!("{}/{index}", named(plan))),
            Self::ReadPlan { plan, index, .. } => ("read-plan", format!("{}/{index}", named(plan))),
            Self::Bind { pod, .. } => ("bind", pod.to_string()),
            Self::ReadPod { pod, .. } => ("read", pod.to_string()),
            Self::ReportPlan { object, .. } => ("report-plan", object.1.clone()),
            Self::DeletePlan { uid, .. } => ("delete-plan", uid.clone()),
            Self::DeletePod { pod, .. } => ("delete-pod", pod.to_string()),
            Self::PodStatus { pod, .. } => ("pod-status", pod.to_string()),
            Self::GroupStatus { uid, .. } => ("group-status", uid.clone()),
        };
        WriteId { term, kind, subject }
    }
}
