//! Labels, annotations and finalizers, by the project that defined them.
//!
//! The names are contracts: users write them, other controllers read them. Sources: Kueue's `pkg/controller/constants`
//! and `apis/kueue`, Volcano's `apis/scheduling/v1beta1/labels.go`, KAI's `pkg/common/constants`, NVIDIA's device plugin.

/// `kueue.x-k8s.io`.
pub mod kueue {
    /// The API group.
    pub const GROUP: &str = "kueue.x-k8s.io";

    // Labels.

    /// On a job: the LocalQueue it is submitted to.
    pub const QUEUE_NAME: &str = "kueue.x-k8s.io/queue-name";
    /// On a job: the WorkloadPriorityClass of its Workload.
    pub const PRIORITY_CLASS: &str = "kueue.x-k8s.io/priority-class";
    /// On a Workload: uid of the job it wraps.
    pub const JOB_UID: &str = "kueue.x-k8s.io/job-uid";
    /// On a job: seconds its Workload may execute.
    pub const MAX_EXEC_TIME_SECONDS: &str = "kueue.x-k8s.io/max-exec-time-seconds";
    /// On a job (label, or annotation, which wins): a Workload somebody else made for it.
    pub const PREBUILT_WORKLOAD_NAME: &str = "kueue.x-k8s.io/prebuilt-workload-name";
    /// On a pod and in pod templates: the pod set it belongs to.
    pub const PODSET: &str = "kueue.x-k8s.io/podset";
    /// On a pod: the ClusterQueue it was admitted by.
    pub const CLUSTER_QUEUE_NAME: &str = "kueue.x-k8s.io/cluster-queue-name";
    /// On a pod: the LocalQueue it was admitted through.
    pub const LOCAL_QUEUE_NAME: &str = "kueue.x-k8s.io/local-queue-name";
    /// On a pod that is managed by itself (`true`); its finalizer has the same name.
    pub const MANAGED: &str = "kueue.x-k8s.io/managed";
    /// On a pod (label, or annotation, which wins): the group it is part of.
    pub const POD_GROUP_NAME: &str = "kueue.x-k8s.io/pod-group-name";
    /// On a pod: its rank in its group.
    pub const POD_GROUP_POD_INDEX: &str = "kueue.x-k8s.io/pod-group-pod-index";

    // Annotations.

    /// On a pod template: topology level all pods must share.
    pub const PODSET_REQUIRED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-required-topology";
    /// On a pod template: topology level the pods should share.
    pub const PODSET_PREFERRED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-preferred-topology";
    /// On a pod template: place by topology without a constraint ("true").
    pub const PODSET_UNCONSTRAINED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-unconstrained-topology";
    /// On a pod template: topology level each slice must share.
    pub const PODSET_SLICE_REQUIRED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-slice-required-topology";
    /// On a pod template: nested slice constraints, as JSON.
    pub const PODSET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS: &str =
        "kueue.x-k8s.io/podset-slice-required-topology-constraints";
    /// On a pod template: pods in a slice.
    pub const PODSET_SLICE_SIZE: &str = "kueue.x-k8s.io/podset-slice-size";
    /// On a pod template: by how much the index of a pod is higher than its rank.
    pub const POD_INDEX_OFFSET: &str = "kueue.x-k8s.io/pod-index-offset";
    /// On a pod template: pod sets placed together.
    pub const PODSET_GROUP_NAME: &str = "kueue.x-k8s.io/podset-group-name";
    /// On a pod and on pod templates: the Workload it belongs to.
    pub const WORKLOAD: &str = "kueue.x-k8s.io/workload";
    /// On a job: it may be resized while it runs ("true").
    pub const ELASTIC_JOB: &str = "kueue.x-k8s.io/elastic-job";
    /// On a batch Job: least parallelism it accepts.
    pub const JOB_MIN_PARALLELISM: &str = "kueue.x-k8s.io/job-min-parallelism";
    /// On a job: comma-separated controllers that hold its admission back.
    pub const ADMISSION_GATED_BY: &str = "kueue.x-k8s.io/admission-gated-by";
    /// On a Workload: comma-separated ResourceFlavors, of which alone it may be given any.
    pub const ALLOWED_RESOURCE_FLAVORS: &str = "kueue.x-k8s.io/workload-allowed-resource-flavors";
    /// On a Workload: signed addition to its priority.
    pub const PRIORITY_BOOST: &str = "kueue.x-k8s.io/priority-boost";

    /// On a pod of a group: how many pods the group has.
    pub const POD_GROUP_TOTAL_COUNT: &str = "kueue.x-k8s.io/pod-group-total-count";
    /// On a pod of a group: the first pod speaks for all of them (`true`).
    pub const POD_GROUP_FAST_ADMISSION: &str = "kueue.x-k8s.io/pod-group-fast-admission";
    /// On a pod of a group: it serves, so that its end is no end of the group (`true`).
    pub const POD_GROUP_SERVING: &str = "kueue.x-k8s.io/pod-group-serving";
    /// On a pod of a group: the label in which its rank is.
    pub const POD_GROUP_POD_INDEX_LABEL: &str = "kueue.x-k8s.io/pod-group-pod-index-label";
    /// On a pod of a group: a failed pod is not replaced (`false`).
    pub const RETRIABLE_IN_GROUP: &str = "kueue.x-k8s.io/retriable-in-group";
    /// On a pod: what tells pods of its shape from others of its group.
    pub const ROLE_HASH: &str = "kueue.x-k8s.io/role-hash";
    /// On a pod and in pod templates: the framework of the object above it that is managed through its pods.
    pub const POD_SUSPENDING_PARENT: &str = "kueue.x-k8s.io/pod-suspending-parent";
    /// On a batch Job: `completions` follows `parallelism` where fewer pods are admitted (`true`).
    pub const JOB_COMPLETIONS_EQUAL_PARALLELISM: &str = "kueue.x-k8s.io/job-completions-equal-parallelism";
    /// On a Workload that somebody other than its job's controller made: the job's group, version and kind.
    pub const JOB_OWNER_GVK: &str = "kueue.x-k8s.io/job-owner-gvk";
    /// On a Workload that somebody other than its job's controller made: the job's name.
    pub const JOB_OWNER_NAME: &str = "kueue.x-k8s.io/job-owner-name";
    /// On a Workload of a part of a job: which part.
    pub const COMPONENT_WORKLOAD_INDEX: &str = "kueue.x-k8s.io/component-workload-index";

    /// On a Workload of an elastic job: the Workload whose place it takes, as `namespace/name`.
    pub const WORKLOAD_SLICE_REPLACEMENT_FOR: &str = "kueue.x-k8s.io/workload-slice-replacement-for";

    /// On a Workload of an elastic job and on its pods: the name of the first slice, by which all of them are found.
    pub const WORKLOAD_SLICE_NAME: &str = "kueue.x-k8s.io/workload-slice-name";

    // Controllers of admission checks.

    /// Asks an autoscaler for nodes.
    pub const PROVISIONING_REQUEST_CONTROLLER: &str = "kueue.x-k8s.io/provisioning-request";
    /// Prefix of annotations on a job: the rest is a parameter of its ProvisioningRequests.
    pub const PROVISIONING_PREFIX: &str = "provreq.kueue.x-k8s.io/";
    /// Kind of the settings of a check that asks an autoscaler for nodes.
    pub const PROVISIONING_CONFIG: &str = "ProvisioningRequestConfig";
    /// Runs workloads in other clusters.
    pub const MULTI_KUEUE_CONTROLLER: &str = "kueue.x-k8s.io/multikueue";

    // Finalizers.

    /// Keeps ClusterQueues, flavors, checks, Topologies and Workloads while something uses them.
    pub const FINALIZER_RESOURCE_IN_USE: &str = "kueue.x-k8s.io/resource-in-use";

    // Scheduling gates.

    /// On a pod until it is admitted.
    pub const ADMISSION_GATE: &str = "kueue.x-k8s.io/admission";
    /// On a pod of an elastic job until a slice with room for it is admitted.
    pub const ELASTIC_GATE: &str = "kueue.x-k8s.io/elastic-job";
    /// On a pod until its topology domain is known.
    pub const TOPOLOGY_GATE: &str = "kueue.x-k8s.io/topology";

    // Names of things.
    /// The LocalQueue of whoever names none, where a namespace has one of this name.
    pub const DEFAULT_LOCAL_QUEUE: &str = "default";
    /// Annotation on a Workload of plain pods: `true` if they form a group, even of one.
    pub const IS_GROUP_WORKLOAD: &str = "kueue.x-k8s.io/is-group-workload";

    /// Name of the only pod set, when a Workload has one.
    pub const DEFAULT_PODSET: &str = "main";
    /// Kind of a `priorityClassRef` to Kueue's own class; its group is [`GROUP`].
    pub const WORKLOAD_PRIORITY_CLASS: &str = "WorkloadPriorityClass";
    /// v1beta1's `priorityClassSource` for WorkloadPriorityClasses.
    pub const WORKLOAD_PRIORITY_CLASS_SOURCE: &str = "kueue.x-k8s.io/workloadpriorityclass";
    /// v1beta1's `priorityClassSource` for Kubernetes' PriorityClasses.
    pub const POD_PRIORITY_CLASS_SOURCE: &str = "scheduling.k8s.io/priorityclass";
}

/// `volcano.sh`.
pub mod volcano {
    /// The API group of PodGroup and Queue.
    pub const GROUP: &str = "scheduling.volcano.sh";
    /// On a pod: its PodGroup (the name kube-batch gave it, still the one in use).
    pub const GROUP_NAME: &str = "scheduling.k8s.io/group-name";
    /// On a pod: its PodGroup (Volcano's own spelling).
    pub const VOLCANO_GROUP_NAME: &str = "scheduling.volcano.sh/group-name";
    /// On a pod: the task of the job it is a replica of.
    pub const TASK_SPEC: &str = "volcano.sh/task-spec";
}

/// `scheduling.x-k8s.io`, the coscheduling plugin.
pub mod coscheduling {
    /// Label on a pod: its PodGroup.
    pub const POD_GROUP: &str = "scheduling.x-k8s.io/pod-group";
}

/// `kai.scheduler` and `scheduling.run.ai`.
pub mod kai {
    /// Annotation on a pod: its PodGroup.
    pub const POD_GROUP_NAME: &str = "pod-group-name";
}

/// `trireme.dev`.
pub mod trireme {
    /// The API group of our own kinds.
    pub const GROUP: &str = "trireme.dev";
    /// Namespace the programs run in.
    pub const NAMESPACE: &str = "trireme-system";
    /// Scheduler name of gang-scheduler.
    pub const SCHEDULER_NAME: &str = "trireme";
    /// Service of admission-controller: webhooks and conversion.
    pub const ADMISSION_SERVICE: &str = "admission-controller";
    /// Path of CRD conversion on that service.
    pub const CONVERT_PATH: &str = "/convert";
    /// On what sends requests (webhook configurations, definitions, APIServices): where they went before this program took over,
    /// as JSON.
    pub const TAKEN_OVER: &str = "trireme.dev/taken-over";
    /// On the same: when they were sent there again.
    pub const HANDED_BACK: &str = "trireme.dev/handed-back";
    /// On a Binding and on the pod it binds: chosen devices, as JSON per container and resource.
    pub const DEVICES: &str = "trireme.dev/devices";
    /// Controller of the admission check that waits for the scheduler to hold places.
    pub const PLACEMENT_CONTROLLER: &str = "trireme.dev/placement";
    /// In what that check adds to pods: whose place they take, as the Workload's uid and the index of the pod set.
    pub const PLACE_KEY: &str = "trireme.dev/place-key";
    /// In what that check adds to pods: until when the place is held, in RFC 3339.
    pub const PLACE_EXPIRES: &str = "trireme.dev/place-expires";
    /// On a pod that an admission let start: the resourceVersion of its Workload then. Who knows an older one knows of another
    /// admission.
    pub const WORKLOAD_VERSION: &str = "trireme.dev/workload-version";
    /// On a Workload: what of it starts together. Absent is all of it.
    pub const GANG: &str = "trireme.dev/gang";
    /// Label on a pod whose job has no place to name a scheduler: ours, if its user chose none.
    pub const SCHEDULED_BY: &str = "trireme.dev/scheduled-by";
    /// Value of [`GANG`]: each pod set by itself.
    pub const GANG_OF_POD_SET: &str = "pod-set";
    /// Value of [`GANG`]: each pod by itself.
    pub const GANG_OF_POD: &str = "pod";
    /// On a GangPlacement: uid of the gang's owner.
    pub const GANG_UID: &str = "trireme.dev/gang-uid";
}

/// NVIDIA's device plugin and GPU feature discovery.
pub mod nvidia {
    /// Whole GPUs, as an extended resource.
    pub const GPU: &str = "nvidia.com/gpu";
}
