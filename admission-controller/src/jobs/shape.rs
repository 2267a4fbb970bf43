//! What is to be known of a kind of job, as data.

use super::{JobObject, field};

/// One kind of job. Paths are JSON pointers (RFC 6901) from the object's root.
#[derive(Debug)]
pub struct JobKind {
    /// The name in the configuration's `integrations.frameworks`, as Kueue spells it.
    pub framework: &'static str,
    /// API group; empty for the core group.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// The resource's name in URLs.
    pub plural: &'static str,
    /// The boolean that keeps the job from having pods; absent is false.
    pub suspend: &'static str,
    /// A field that, where it is not empty, says that the job uses what others run: it is not managed.
    pub elsewhere: Option<&'static str>,
    /// What its controller makes of it and says more of its pods: `/child` in paths is what is kept of that.
    pub child: Option<Child>,
    /// Where its pods are described.
    pub pod_sets: PodSets,
    /// A place, and what Kueue's webhooks call it, where that is another name than the field has.
    pub called: Option<(&'static str, &'static str)>,
    /// Where is written what an admission adds to its pods.
    pub added: Added,
    /// Whether pods run and so quota is in use.
    pub active: Active,
    /// What becomes of that in an object that is being deleted and held by a finalizer.
    pub when_deleted: WhenDeleted,
    /// Where it says which pods have ended and will not run again.
    pub ended: Ended,
    /// Where it says that all its pods are ready or have succeeded.
    pub ready: Ready,
    /// Where it says that it has ended, and how.
    pub finished: Finished,
    /// Where it says that it will not run as it is written, and so wants no quota.
    pub on_hold: Option<OnHold>,
    /// Labels of its pod templates that its own controller writes; and whether its Workload has them, too.
    pub own_labels: &'static [(&'static str, bool)],
    /// Where the job itself, before its templates, names a PriorityClass.
    pub priority_class: &'static [&'static str],
    /// Whether templates may change in the write that suspends the job. Kubernetes lets those of a batch Job change
    /// only after `status.startTime` was reset.
    pub restores_at_stop: bool,
    /// A status field that must be gone before the templates of a suspended job may change. Kubernetes takes it away by itself
    /// with the feature gate `MutableSchedulingDirectivesForSuspendedJobs`, which is open since 1.36; else somebody has to. With
    /// that gate templates may change when no pods are active any more.
    pub started_at: Option<&'static str>,
    /// What makes the pods of one set appear only when those of another run or have ended; any will do. Who waited for all
    /// of them before starting any would wait for ever, so each pod set is a gang of its own then.
    pub stages: &'static [Stages],
    /// Booleans that must not be true, and why.
    pub refused: &'static [(&'static str, &'static str)],
    /// Booleans that must be true, and why.
    pub demanded: &'static [(&'static str, &'static str)],
    /// Where pods of one set come before those of another in one ranking.
    pub follows: Option<Follows>,
    /// Whether what its pod sets say of being placed together is held against each other when it is written.
    pub groups: bool,
    /// Whether its labels and annotations are checked when it is changed, too. Kueue's common webhook (`BaseWebhook`) checks them
    /// at creation.
    pub rechecked: bool,
    /// Whether somebody else may make its Workload.
    pub prebuilt: bool,
    /// Whether it can be resized while it runs: by a second Workload while it grows.
    pub has_slices: bool,
}

/// What a job's controller does for an object that is being deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenDeleted {
    /// It leaves the status as it was: nothing is told by it any more.
    Nothing,
    /// It goes on counting its pods, and stops none.
    Counts,
    /// It stops its pods, and says when they are gone.
    Stops,
}

/// Tells a kind from all others: its framework and its version.
pub type KindId = (&'static str, &'static str);

impl JobKind {
    /// What tells it from all others.
    pub fn id(&self) -> KindId {
        (self.framework, self.version)
    }

    /// Whether it is of this group and kind, in whatever version.
    pub fn is(&self, group: &str, kind: &str) -> bool {
        (self.group, self.kind) == (group, kind)
    }

    /// What of it owner references, of whatever version, name.
    pub fn group_kind(&self) -> (&'static str, &'static str) {
        (self.group, self.kind)
    }

    /// The path of a field as Kueue's webhooks write it.
    pub fn field(&self, pointer: &str) -> String {
        match self.called.and_then(|(is, called)| Some((called, pointer.strip_prefix(is)?))) {
            Some((called, rest)) => field(&format!("{called}{rest}")),
            None => field(pointer),
        }
    }

    /// Whether its own controller writes this label of its pod templates.
    pub fn owns_label(&self, key: &str) -> bool {
        self.own_labels.iter().any(|(own, _)| *own == key)
    }

    /// Whether an object of this kind may be managed: not by those who make Workloads elsewhere, nor if it uses what others run.
    pub fn can_be_managed(&self, object: &JobObject) -> bool {
        !self.suspend.is_empty() && !object.runs_elsewhere(self)
    }

    /// `apiVersion` of its objects.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

impl PartialEq for JobKind {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

/// An object that the job's controller makes of it.
#[derive(Debug)]
pub struct Child {
    /// Its group.
    pub group: &'static str,
    /// Its kind.
    pub kind: &'static str,
    /// What it says of the job's pods.
    pub says: ChildSays,
}

/// What the object that a controller made of a job says of its pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildSays {
    /// All: `/child` is its `spec`, and before it is there nothing is known.
    All,
    /// How many there are of each group while the job is resized. Of several, the one with the name at this place counts.
    Counts(&'static str),
}

/// Where is written what an admission adds to pods.
#[derive(Debug)]
pub enum Added {
    /// In the pod templates themselves.
    Templates,
    /// Beside each description of pods: a list `podSetInfos` (AppWrapper).
    PodSetInfos,
    /// In `spec.runtimePatches`, under a manager's name of its own (TrainJob).
    RuntimePatches,
}

impl Added {
    /// Whether pod templates are the job's own, so that its owner can correct them there.
    pub fn is_to_templates(&self) -> bool {
        matches!(self, Self::Templates)
    }
}

/// Where a kind says that it has ended.
#[derive(Debug)]
pub enum Finished {
    /// By conditions of these types when True, and whether well.
    Conditions(&'static [(&'static str, bool)]),
    /// By a text.
    Says {
        /// The place.
        at: &'static str,
        /// Texts that mean the end.
        ends: &'static [&'static str],
        /// Where which text means that it ended well.
        well: (&'static str, &'static str),
        /// Where it says more.
        message: &'static str,
        /// A condition that, while it is True, says that what ended badly is not gone yet.
        not_while: Option<&'static str>,
    },
}

/// How a kind says that it will not run as it is written.
#[derive(Debug)]
pub struct OnHold {
    /// The place.
    pub at: &'static str,
    /// The text that is there then.
    pub value: &'static str,
    /// Where it says why.
    pub message: &'static str,
}

/// How an object says that its pods come in stages.
#[derive(Debug)]
pub enum Stages {
    /// This text is at this place.
    Says {
        /// The place.
        at: &'static str,
        /// The text.
        value: &'static str,
    },
    /// Whatever it says.
    Always,
    /// An entry of this list has something in that list of its own.
    AnyHas {
        /// The list.
        at: &'static str,
        /// The list within the entry.
        field: &'static str,
    },
}

/// Where a kind describes its pods.
#[derive(Debug)]
pub enum PodSets {
    /// One template.
    Single {
        /// The pod template.
        template: &'static str,
        /// How many pods at once; absent is 1.
        parallelism: &'static str,
        /// How many pods in all, if fewer.
        completions: &'static str,
        /// Annotations with which fewer pods can be asked for: the least, and whether `completions` follows.
        fewer: Option<(&'static str, &'static str)>,
    },
    /// A map of roles in a fixed order; pod sets are called after the role, in lower case.
    Roles {
        /// The map.
        at: &'static str,
        /// Its keys, in the order of the pod sets.
        roles: &'static [&'static str],
        /// The pod template, from the role.
        template: &'static str,
        /// How many pods, from the role; absent is 1.
        replicas: &'static str,
    },
    /// A list of named templates of Jobs.
    Jobs {
        /// The list.
        at: &'static str,
        /// The name, from the entry.
        name: &'static str,
        /// How many Jobs, from the entry; absent is 1.
        replicas: &'static str,
        /// The pod template, from the entry.
        template: &'static str,
        /// Pods at once in each Job, from the entry; absent is 1.
        parallelism: &'static str,
        /// Pods in all in each Job, from the entry, if fewer.
        completions: &'static str,
    },
    /// One pod `head`, and a list of named groups.
    HeadAndGroups {
        /// The head's pod template.
        head: &'static str,
        /// The list.
        at: &'static str,
        /// The name, from the entry.
        name: &'static str,
        /// How many replicas, from the entry; absent is 1.
        replicas: &'static str,
        /// How many pods each replica has, from the entry; absent is 1.
        pods_each: &'static str,
        /// The pod template, from the entry.
        template: &'static str,
        /// The pod that submits what is to run, for kinds that have one.
        submitter: Option<Submitter>,
    },
    /// One after another, as they are declared.
    Declared(&'static [DeclaredSet]),
    /// A list of whole objects, each with a list of where in it pods are described; inferred for kinds of the tables.
    Components {
        /// The list.
        at: &'static str,
        /// The object, from the entry.
        template: &'static str,
        /// The list of descriptions, from the entry; each has a `path` and `replicas`.
        pod_sets: &'static str,
    },
}

/// A pod set, or one for each entry of a list.
#[derive(Debug)]
pub struct DeclaredSet {
    /// The list, in whose entries the other places are then.
    pub each: Option<&'static str>,
    /// Its name.
    pub name: SetName,
    /// Its pod template. A single one that is not there is a pod set that the job does not have.
    pub template: &'static str,
    /// Numbers that are multiplied; one that is not there is 1.
    pub count: &'static [&'static str],
}

/// The name of a declared pod set.
#[derive(Debug)]
pub enum SetName {
    /// This.
    Is(&'static str),
    /// The text at this place, in lower case.
    At(&'static str),
}

/// A leader that is the first of its workers, so that their ranks begin at 1.
#[derive(Debug)]
pub struct Follows {
    /// The boolean that says so; where none is named, a leader that is there does.
    pub says: Option<&'static str>,
    /// The leader's pod template.
    pub leader: &'static str,
    /// The workers'.
    pub workers: &'static str,
    /// The one of the two that says whether they are placed together as a group, which has a ranking of its own.
    pub grouped: &'static str,
}

/// The pod that submits a job to its cluster.
#[derive(Debug)]
pub struct Submitter {
    /// Where it says how it is submitted: `K8sJobMode` by a pod, `SidecarMode` beside the head.
    pub mode: &'static str,
    /// The pod template, if there is one.
    pub template: &'static str,
}

/// Where a kind says whether pods run: any number above 0.
#[derive(Debug)]
pub enum Active {
    /// At this place.
    Count(&'static str),
    /// At `field` of every value of the map or list.
    Each {
        /// The map or list.
        at: &'static str,
        /// The number.
        field: &'static str,
    },
    /// Pods run while this text is at this place.
    Says {
        /// The place.
        at: &'static str,
        /// The text.
        value: &'static str,
    },
    /// Pods run unless nothing or one of these texts is at this place.
    SaysNot {
        /// The place.
        at: &'static str,
        /// The texts.
        values: &'static [&'static str],
    },
    /// Pods run while the condition of this type is True.
    Condition(&'static str),
}

/// Where a kind says which of its pods have ended and will not run again.
#[derive(Debug)]
pub enum Ended {
    /// Nowhere.
    Unknown,
    /// One template's pods: how many succeeded; or, of indexed ones, which indexes are done with.
    Pods {
        /// How many succeeded.
        succeeded: &'static str,
        /// `Indexed`, or anything else.
        mode: &'static str,
        /// Lists of indexes such as `0,2-4`.
        indexes: &'static [&'static str],
    },
    /// Whole Jobs: a list of how many succeeded of each.
    Jobs {
        /// The list.
        at: &'static str,
        /// The name, from the entry.
        name: &'static str,
        /// How many Jobs, from the entry.
        succeeded: &'static str,
    },
}

/// Where a kind says that all its pods are ready or have succeeded.
#[derive(Debug)]
pub enum Ready {
    /// Of one template: these numbers, and as many as these lists have entries, make as many pods as run at once.
    Pods {
        /// The numbers.
        counts: &'static [&'static str],
        /// The lists.
        names: &'static [&'static str],
    },
    /// Of a list of named templates of Jobs: these numbers of all entries make as many Jobs as there are.
    Jobs {
        /// The list of statuses.
        at: &'static str,
        /// The numbers, from the entry.
        counts: &'static [&'static str],
    },
    /// When this condition is True.
    Condition(&'static str),
    /// It does not: while pods run.
    WhileActive,
    /// While this text is at this place.
    Says {
        /// The place.
        at: &'static str,
        /// The text.
        value: &'static str,
    },
}
