//! The table of job kinds.

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
    /// Where its pods are described.
    pub pod_sets: PodSets,
    /// Whether pods run and so quota is in use.
    pub active: Active,
    /// Where it says which pods have ended and will not run again.
    pub ended: Ended,
    /// Where it says that all its pods are ready or have succeeded.
    pub ready: Ready,
    /// Types of conditions that end the job when True, and whether well.
    pub finished: &'static [(&'static str, bool)],
    /// Where the job itself, before its templates, names a PriorityClass.
    pub priority_class: &'static [&'static str],
    /// Whether templates may change in the write that suspends the job. Kubernetes lets those of a batch Job change
    /// only after `status.startTime` was reset.
    pub restores_at_stop: bool,
    /// A status field that must be gone before the templates of a suspended job may change. Kubernetes takes it away by
    /// itself since 1.35; before that somebody has to.
    pub started_at: Option<&'static str>,
    /// What makes the pods of one set appear only when those of another run or have ended; any will do. Who waited for all
    /// of them before starting any would wait for ever, so each pod set is a gang of its own then.
    pub stages: &'static [Stages],
    /// Booleans that must not be true, and why.
    pub refused: &'static [(&'static str, &'static str)],
    /// Whether somebody else may make its Workload.
    pub prebuilt: bool,
    /// Whether it may ask for being resized while it runs.
    pub elastic: bool,
}

/// Tells a kind from all others: its framework and its version.
pub type KindId = (&'static str, &'static str);

impl JobKind {
    /// What tells it from all others.
    pub fn id(&self) -> KindId {
        (self.framework, self.version)
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
    },
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
    /// While this text is at this place.
    Says {
        /// The place.
        at: &'static str,
        /// The text.
        value: &'static str,
    },
}

/// A kind of Kubeflow's training operator: roles under one field, one way to suspend, to count and to end.
const fn kubeflow(
    framework: &'static str,
    kind: &'static str,
    plural: &'static str,
    at: &'static str,
    roles: &'static [&'static str],
) -> JobKind {
    JobKind {
        framework,
        group: "kubeflow.org",
        version: "v1",
        kind,
        plural,
        suspend: "/spec/runPolicy/suspend",
        pod_sets: PodSets::Roles { at, roles, template: "/template", replicas: "/replicas" },
        active: Active::Each { at: "/status/replicaStatuses", field: "/active" },
        ended: Ended::Unknown,
        ready: Ready::Condition("Running"),
        finished: &[("Succeeded", true), ("Failed", false)],
        priority_class: &["/spec/runPolicy/schedulingPolicy/priorityClass"],
        restores_at_stop: true,
        started_at: None,
        stages: &[],
        refused: &[],
        prebuilt: true,
        elastic: false,
    }
}

const MPI_JOB: JobKind = JobKind {
    prebuilt: false,
    stages: &[Stages::Says { at: "/spec/launcherCreationPolicy", value: "WaitForWorkersReady" }],
    ..kubeflow("kubeflow.org/mpijob", "MPIJob", "mpijobs", "/spec/mpiReplicaSpecs", &["Launcher", "Worker"])
};

/// A kind that has no suspend field: it is named, and managed through its pods (see `crate::pods`).
const fn of_pods(
    framework: &'static str,
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
) -> JobKind {
    JobKind {
        framework,
        group,
        version: "v1",
        kind,
        plural,
        suspend: "",
        pod_sets: PodSets::Roles { at: "", roles: &[], template: "", replicas: "" },
        active: Active::Count(""),
        ended: Ended::Unknown,
        ready: Ready::Condition("Ready"),
        finished: &[],
        priority_class: &[],
        restores_at_stop: false,
        started_at: None,
        stages: &[],
        refused: &[],
        prebuilt: false,
        elastic: false,
    }
}

/// Plain pods.
pub(crate) static POD: JobKind = JobKind { prebuilt: true, ..of_pods("pod", "", "Pod", "pods") };
/// Deployments.
pub(crate) static DEPLOYMENT: JobKind = of_pods("deployment", "apps", "Deployment", "deployments");
/// StatefulSets.
pub(crate) static STATEFUL_SET: JobKind = of_pods("statefulset", "apps", "StatefulSet", "statefulsets");
/// LeaderWorkerSets.
pub(crate) static LEADER_WORKER_SET: JobKind = of_pods(
    "leaderworkerset.x-k8s.io/leaderworkerset",
    "leaderworkerset.x-k8s.io",
    "LeaderWorkerSet",
    "leaderworkersets",
);

/// Every kind that is managed. Adding a kind is adding an entry here and a case to `tests/kinds.rs`.
pub static TABLE: &[JobKind] = &[
    JobKind {
        framework: "batch/job",
        group: "batch",
        version: "v1",
        kind: "Job",
        plural: "jobs",
        suspend: "/spec/suspend",
        pod_sets: PodSets::Single {
            template: "/spec/template",
            parallelism: "/spec/parallelism",
            completions: "/spec/completions",
        },
        active: Active::Count("/status/active"),
        ended: Ended::Pods {
            succeeded: "/status/succeeded",
            mode: "/spec/completionMode",
            indexes: &["/status/completedIndexes", "/status/failedIndexes"],
        },
        ready: Ready::Pods {
            counts: &["/status/ready", "/status/succeeded"],
            names: &["/status/uncountedTerminatedPods/succeeded"],
        },
        finished: &[("Complete", true), ("Failed", false)],
        priority_class: &[],
        restores_at_stop: false,
        started_at: Some("/status/startTime"),
        stages: &[],
        refused: &[],
        prebuilt: true,
        elastic: true,
    },
    JobKind {
        framework: "jobset.x-k8s.io/jobset",
        group: "jobset.x-k8s.io",
        version: "v1alpha2",
        kind: "JobSet",
        plural: "jobsets",
        suspend: "/spec/suspend",
        pod_sets: PodSets::Jobs {
            at: "/spec/replicatedJobs",
            name: "/name",
            replicas: "/replicas",
            template: "/template/spec/template",
            parallelism: "/template/spec/parallelism",
            completions: "/template/spec/completions",
        },
        active: Active::Each { at: "/status/replicatedJobsStatus", field: "/active" },
        ended: Ended::Jobs { at: "/status/replicatedJobsStatus", name: "/name", succeeded: "/succeeded" },
        ready: Ready::Jobs { at: "/status/replicatedJobsStatus", counts: &["/ready", "/succeeded"] },
        finished: &[("Completed", true), ("Failed", false)],
        priority_class: &[],
        restores_at_stop: false,
        started_at: None,
        stages: &[
            Stages::Says { at: "/spec/startupPolicy/startupPolicyOrder", value: "InOrder" },
            Stages::AnyHas { at: "/spec/replicatedJobs", field: "/dependsOn" },
        ],
        refused: &[],
        prebuilt: true,
        elastic: false,
    },
    kubeflow(
        "kubeflow.org/pytorchjob",
        "PyTorchJob",
        "pytorchjobs",
        "/spec/pytorchReplicaSpecs",
        &["Master", "Worker"],
    ),
    kubeflow(
        "kubeflow.org/tfjob",
        "TFJob",
        "tfjobs",
        "/spec/tfReplicaSpecs",
        &["Chief", "Master", "PS", "Worker", "Evaluator"],
    ),
    kubeflow(
        "kubeflow.org/xgboostjob",
        "XGBoostJob",
        "xgboostjobs",
        "/spec/xgbReplicaSpecs",
        &["Master", "Worker"],
    ),
    kubeflow(
        "kubeflow.org/paddlejob",
        "PaddleJob",
        "paddlejobs",
        "/spec/paddleReplicaSpecs",
        &["Master", "Worker"],
    ),
    JobKind {
        prebuilt: false,
        ..kubeflow("kubeflow.org/jaxjob", "JAXJob", "jaxjobs", "/spec/jaxReplicaSpecs", &["Worker"])
    },
    // One CRD name, two versions: a cluster has that of the MPI operator or that of the training operator.
    JobKind { version: "v2beta1", prebuilt: true, ..MPI_JOB },
    MPI_JOB,
    JobKind {
        framework: "ray.io/raycluster",
        group: "ray.io",
        version: "v1",
        kind: "RayCluster",
        plural: "rayclusters",
        suspend: "/spec/suspend",
        pod_sets: PodSets::HeadAndGroups {
            head: "/spec/headGroupSpec/template",
            at: "/spec/workerGroupSpecs",
            name: "/groupName",
            replicas: "/replicas",
            pods_each: "/numOfHosts",
            template: "/template",
        },
        active: Active::Says { at: "/status/state", value: "ready" },
        ended: Ended::Unknown,
        ready: Ready::Says { at: "/status/state", value: "ready" },
        // It is there until somebody deletes it.
        finished: &[],
        priority_class: &[],
        restores_at_stop: true,
        started_at: None,
        stages: &[],
        refused: &[(
            "/spec/enableInTreeAutoscaling",
            "quota is granted for a number of pods that does not change; set minReplicas, maxReplicas and replicas alike without it",
        )],
        prebuilt: true,
        elastic: true,
    },
];

/// The entry for an owner reference's `apiVersion` and `kind`, of whatever version.
pub fn of_owner(api_version: &str, kind: &str) -> Option<&'static JobKind> {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let same = |one: &&JobKind| one.group == group && one.kind == kind;
    TABLE.iter().filter(same).find(|one| one.api_version() == api_version).or_else(|| TABLE.iter().find(same))
}

/// Whether objects of this kind may be managed, in whatever way: what they own is managed with them.
pub fn is_known(api_version: &str, kind: &str) -> bool {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    of_owner(api_version, kind).is_some() || crate::pods::of_kind(group, kind).is_some()
}
