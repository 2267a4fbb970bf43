//! The table of job kinds.
//!
//! A new kind is an entry here and a case in `tests/kinds.rs`; `docs/kinds.md` (Adding a kind) lists what the chart and the
//! documentation need. What each field of an entry means is said at [`JobKind`].

use crds::names::kueue;

use super::group_of;
pub use super::shape::{
    Active, Added, Child, ChildSays, DeclaredSet, Ended, Finished, Follows, JobKind, KindId, OnHold, PodSets,
    Ready, SetName, Stages, Submitter, WhenDeleted,
};
use crate::config::for_ever;

/// What an entry is without its own.
pub(crate) const BASE: JobKind = JobKind {
    framework: "",
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    suspend: "/spec/suspend",
    elsewhere: None,
    child: None,
    pod_sets: PodSets::Roles { at: "", roles: &[], template: "", replicas: "" },
    called: None,
    added: Added::Templates,
    active: Active::Count(""),
    when_deleted: WhenDeleted::Nothing,
    ended: Ended::Unknown,
    ready: Ready::Condition("Ready"),
    finished: Finished::Conditions(&[]),
    on_hold: None,
    own_labels: &[],
    priority_class: &[],
    restores_at_stop: true,
    started_at: None,
    stages: &[],
    refused: &[],
    demanded: &[],
    follows: None,
    groups: true,
    rechecked: true,
    prebuilt: true,
    has_slices: false,
};

/// What Kubernetes labels the pods of a Job with, and selects them by. Kueue leaves all but the first out of Workloads.
const JOB_LABELS: &[(&str, bool)] = &[
    ("batch.kubernetes.io/job-name", true),
    ("job-name", false),
    ("batch.kubernetes.io/controller-uid", false),
    ("controller-uid", false),
];

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
        kind,
        plural,
        suspend: "/spec/runPolicy/suspend",
        pod_sets: PodSets::Roles { at, roles, template: "/template", replicas: "/replicas" },
        active: Active::Each { at: "/status/replicaStatuses", field: "/active" },
        ready: Ready::Condition("Running"),
        finished: Finished::Conditions(&[("Succeeded", true), ("Failed", false)]),
        priority_class: &["/spec/runPolicy/schedulingPolicy/priorityClass"],
        groups: false,
        rechecked: false,
        ..BASE
    }
}

const MPI_JOB: JobKind = JobKind {
    prebuilt: false,
    groups: true,
    rechecked: true,
    follows: Some(Follows {
        says: Some("/spec/runLauncherAsWorker"),
        leader: "/spec/mpiReplicaSpecs/Launcher/template",
        workers: "/spec/mpiReplicaSpecs/Worker/template",
        grouped: "/spec/mpiReplicaSpecs/Launcher/template",
    }),
    stages: &[Stages::Says { at: "/spec/launcherCreationPolicy", value: "WaitForWorkersReady" }],
    ..kubeflow("kubeflow.org/mpijob", "MPIJob", "mpijobs", "/spec/mpiReplicaSpecs", &["Launcher", "Worker"])
};

const NO_AUTOSCALING: &str = "quota is granted for a number of pods that does not change; set minReplicas, maxReplicas and replicas alike without it";

/// A kind of KubeRay's: it is there until somebody deletes it.
const RAY: JobKind = JobKind { group: "ray.io", has_slices: true, ..BASE };

/// Its cluster, which an autoscaler may resize.
const fn cluster_named(at: &'static str) -> Option<Child> {
    Some(Child { group: "ray.io", kind: "RayCluster", says: ChildSays::Counts(at) })
}

/// A Ray cluster described at this place.
macro_rules! ray_cluster {
    ($at:literal, $submitter:expr) => {
        PodSets::HeadAndGroups {
            head: concat!($at, "/headGroupSpec/template"),
            at: concat!($at, "/workerGroupSpecs"),
            name: "/groupName",
            replicas: "/replicas",
            pods_each: "/numOfHosts",
            template: "/template",
            submitter: $submitter,
        }
    };
}

/// Templates of Jobs at this place, as a JobSet has them.
const fn replicated_jobs(at: &'static str) -> PodSets {
    PodSets::Jobs {
        at,
        name: "/name",
        replicas: "/replicas",
        template: "/template/spec/template",
        parallelism: "/template/spec/parallelism",
        completions: "/template/spec/completions",
    }
}

/// A kind that has no suspend field: it is named, and managed through its pods (see `crate::pods`).
const fn of_pods(
    framework: &'static str,
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
) -> JobKind {
    JobKind { framework, group, kind, plural, suspend: "", prebuilt: false, ..BASE }
}

/// Plain pods.
pub(crate) static POD: JobKind = JobKind { prebuilt: true, ..of_pods("pod", "", "Pod", "pods") };
/// Deployments.
pub(crate) static DEPLOYMENT: JobKind = of_pods("deployment", "apps", "Deployment", "deployments");
/// StatefulSets.
pub(crate) static STATEFUL_SET: JobKind = of_pods("statefulset", "apps", "StatefulSet", "statefulsets");
/// LeaderWorkerSets.
pub(crate) static LEADER_WORKER_SET: JobKind = JobKind {
    follows: Some(Follows {
        says: None,
        leader: "/spec/leaderWorkerTemplate/leaderTemplate",
        workers: "/spec/leaderWorkerTemplate/workerTemplate",
        grouped: "/spec/leaderWorkerTemplate/workerTemplate",
    }),
    ..of_pods(
        "leaderworkerset.x-k8s.io/leaderworkerset",
        "leaderworkerset.x-k8s.io",
        "LeaderWorkerSet",
        "leaderworkersets",
    )
};

/// Every kind that is managed. Adding a kind is adding an entry here and a case to `tests/kinds.rs`.
pub static TABLE: &[JobKind] = &[
    JobKind {
        framework: "batch/job",
        group: "batch",
        kind: "Job",
        plural: "jobs",
        pod_sets: PodSets::Single {
            template: "/spec/template",
            parallelism: "/spec/parallelism",
            completions: "/spec/completions",
            fewer: Some((kueue::JOB_MIN_PARALLELISM, kueue::JOB_COMPLETIONS_EQUAL_PARALLELISM)),
        },
        active: Active::Count("/status/active"),
        when_deleted: WhenDeleted::Counts,
        ended: Ended::Pods {
            succeeded: "/status/succeeded",
            mode: "/spec/completionMode",
            indexes: &["/status/completedIndexes", "/status/failedIndexes"],
        },
        ready: Ready::Pods {
            counts: &["/status/ready", "/status/succeeded"],
            names: &["/status/uncountedTerminatedPods/succeeded"],
        },
        finished: Finished::Conditions(&[("Complete", true), ("Failed", false)]),
        own_labels: JOB_LABELS,
        restores_at_stop: false,
        started_at: Some("/status/startTime"),
        has_slices: true,
        ..BASE
    },
    JobKind {
        framework: "jobset.x-k8s.io/jobset",
        group: "jobset.x-k8s.io",
        version: "v1alpha2",
        kind: "JobSet",
        plural: "jobsets",
        pod_sets: replicated_jobs("/spec/replicatedJobs"),
        active: Active::Each { at: "/status/replicatedJobsStatus", field: "/active" },
        ended: Ended::Jobs { at: "/status/replicatedJobsStatus", name: "/name", succeeded: "/succeeded" },
        ready: Ready::Jobs { at: "/status/replicatedJobsStatus", counts: &["/ready", "/succeeded"] },
        finished: Finished::Conditions(&[("Completed", true), ("Failed", false)]),
        restores_at_stop: false,
        stages: &[
            Stages::Says { at: "/spec/startupPolicy/startupPolicyOrder", value: "InOrder" },
            Stages::AnyHas { at: "/spec/replicatedJobs", field: "/dependsOn" },
        ],
        ..BASE
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
        framework: "ray.io/rayjob",
        kind: "RayJob",
        plural: "rayjobs",
        child: cluster_named("/status/rayClusterName"),
        elsewhere: Some("/spec/clusterSelector"),
        pod_sets: ray_cluster!(
            "/spec/rayClusterSpec",
            Some(Submitter { mode: "/spec/submissionMode", template: "/spec/submitterPodTemplate" })
        ),
        active: Active::SaysNot { at: "/status/jobDeploymentStatus", values: &["Suspended"] },
        ready: Ready::Says { at: "/status/rayClusterStatus/state", value: "ready" },
        finished: Finished::Says {
            at: "/status/jobDeploymentStatus",
            ends: &["Complete", "Failed"],
            well: ("/status/jobStatus", "SUCCEEDED"),
            message: "/status/message",
            not_while: None,
        },
        on_hold: Some(OnHold {
            at: "/status/jobDeploymentStatus",
            value: "ValidationFailed",
            message: "/status/message",
        }),
        refused: &[("/spec/rayClusterSpec/enableInTreeAutoscaling", NO_AUTOSCALING)],
        demanded: &[("/spec/shutdownAfterJobFinishes", "a cluster that stays keeps its quota")],
        // The submitter comes when the cluster runs.
        stages: &[Stages::Says { at: "/spec/submissionMode", value: "K8sJobMode" }],
        ..RAY
    },
    JobKind {
        framework: "ray.io/rayservice",
        kind: "RayService",
        plural: "rayservices",
        child: cluster_named("/status/activeServiceStatus/rayClusterName"),
        suspend: "/spec/rayClusterConfig/suspend",
        pod_sets: ray_cluster!("/spec/rayClusterConfig", None),
        // After the field of its Go type.
        called: Some(("/spec/rayClusterConfig", "/spec/rayClusterSpec")),
        active: Active::Condition("Ready"),
        refused: &[("/spec/rayClusterConfig/enableInTreeAutoscaling", NO_AUTOSCALING)],
        ..RAY
    },
    JobKind {
        framework: "ray.io/raycluster",
        kind: "RayCluster",
        plural: "rayclusters",
        pod_sets: ray_cluster!("/spec", None),
        active: Active::Says { at: "/status/state", value: "ready" },
        ready: Ready::Says { at: "/status/state", value: "ready" },
        refused: &[("/spec/enableInTreeAutoscaling", NO_AUTOSCALING)],
        ..RAY
    },
    JobKind {
        framework: "trainer.kubeflow.org/trainjob",
        group: "trainer.kubeflow.org",
        version: "v1alpha1",
        kind: "TrainJob",
        plural: "trainjobs",
        child: Some(Child { group: "jobset.x-k8s.io", kind: "JobSet", says: ChildSays::All }),
        pod_sets: replicated_jobs("/child/replicatedJobs"),
        added: Added::RuntimePatches,
        active: Active::Each { at: "/status/jobsStatus", field: "/active" },
        ended: Ended::Jobs { at: "/status/jobsStatus", name: "/name", succeeded: "/succeeded" },
        ready: Ready::Jobs { at: "/status/jobsStatus", counts: &["/ready", "/succeeded"] },
        finished: Finished::Conditions(&[("Complete", true), ("Failed", false)]),
        restores_at_stop: false,
        stages: &[
            Stages::Says { at: "/child/startupPolicy/startupPolicyOrder", value: "InOrder" },
            Stages::AnyHas { at: "/child/replicatedJobs", field: "/dependsOn" },
        ],
        ..BASE
    },
    JobKind {
        framework: "workload.codeflare.dev/appwrapper",
        group: "workload.codeflare.dev",
        version: "v1beta2",
        kind: "AppWrapper",
        plural: "appwrappers",
        pod_sets: PodSets::Components { at: "/spec/components", template: "/template", pod_sets: "/podSets" },
        added: Added::PodSetInfos,
        rechecked: false,
        active: Active::Condition("QuotaReserved"),
        when_deleted: WhenDeleted::Stops,
        ready: Ready::Condition("PodsReady"),
        finished: Finished::Says {
            at: "/status/phase",
            ends: &["Succeeded", "Failed"],
            well: ("/status/phase", "Succeeded"),
            message: "/status/message",
            not_while: Some("ResourcesDeployed"),
        },
        // What it holds may do so.
        stages: &[Stages::Always],
        ..BASE
    },
];

/// What is known of a kind of the table that is not managed itself: its name, so that its objects are seen, and left alone.
pub(crate) fn seen(kind: &JobKind) -> &'static JobKind {
    let JobKind { framework, group, version, kind, plural, .. } = *kind;
    Box::leak(Box::new(JobKind { framework, group, version, kind, plural, suspend: "", ..BASE }))
}

/// A kind of which no more is known than its kind, version and group. The name of its resource is made of the kind, as
/// Kubernetes' own clients do.
pub(crate) fn external([kind, version, group]: [&str; 3]) -> &'static JobKind {
    let named = kube::core::GroupVersionKind::gvk(group, version, kind);
    let plural = kube::core::ApiResource::from_gvk(&named).plural;
    Box::leak(Box::new(JobKind {
        framework: for_ever(&format!("{kind}.{version}.{group}")),
        group: for_ever(group),
        version: for_ever(version),
        kind: for_ever(kind),
        plural: for_ever(&plural),
        suspend: "",
        ..BASE
    }))
}

/// The entry for an owner reference's `apiVersion` and `kind`, of whatever version.
pub(crate) fn of_owner(api_version: &str, kind: &str) -> Option<&'static JobKind> {
    let group = group_of(api_version);
    let same = |one: &&JobKind| one.is(group, kind);
    TABLE.iter().filter(same).find(|one| one.api_version() == api_version).or_else(|| TABLE.iter().find(same))
}
