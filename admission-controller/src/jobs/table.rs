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
    /// Numbers of pods that run; any above 0 means that quota is in use.
    pub active: Active,
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
}

/// Where a kind says how many pods run.
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
}

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
        finished: &[("Complete", true), ("Failed", false)],
        priority_class: &[],
        restores_at_stop: false,
        started_at: Some("/status/startTime"),
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
        finished: &[("Completed", true), ("Failed", false)],
        priority_class: &[],
        restores_at_stop: false,
        started_at: None,
    },
    JobKind {
        framework: "kubeflow.org/pytorchjob",
        group: "kubeflow.org",
        version: "v1",
        kind: "PyTorchJob",
        plural: "pytorchjobs",
        suspend: "/spec/runPolicy/suspend",
        pod_sets: PodSets::Roles {
            at: "/spec/pytorchReplicaSpecs",
            roles: &["Master", "Worker"],
            template: "/template",
            replicas: "/replicas",
        },
        active: Active::Each { at: "/status/replicaStatuses", field: "/active" },
        finished: &[("Succeeded", true), ("Failed", false)],
        priority_class: &["/spec/runPolicy/schedulingPolicy/priorityClass"],
        restores_at_stop: true,
        started_at: None,
    },
];

/// The entry for an owner reference's `apiVersion` and `kind`.
pub fn of_owner(api_version: &str, kind: &str) -> Option<&'static JobKind> {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    TABLE.iter().find(|one| one.group == group && one.kind == kind)
}
