//! Labels, annotations, finalizers and scheduling gates, by the project that defined them.
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
    /// On a pod: it is managed itself, not through an owner.
    pub const MANAGED: &str = "kueue.x-k8s.io/managed";
    /// On a pod and in pod templates: the pod set it belongs to.
    pub const PODSET: &str = "kueue.x-k8s.io/podset";
    /// On a pod: the ClusterQueue it was admitted by.
    pub const CLUSTER_QUEUE_NAME: &str = "kueue.x-k8s.io/cluster-queue-name";
    /// On a pod: the LocalQueue it came through.
    pub const LOCAL_QUEUE_NAME: &str = "kueue.x-k8s.io/local-queue-name";
    /// On a pod: the group of plain pods it belongs to.
    pub const POD_GROUP_NAME: &str = "kueue.x-k8s.io/pod-group-name";
    /// On a pod: its index within its group.
    pub const POD_GROUP_POD_INDEX: &str = "kueue.x-k8s.io/pod-group-pod-index";
    /// On objects a MultiKueue manager created on a worker: which manager.
    pub const MULTIKUEUE_ORIGIN: &str = "kueue.x-k8s.io/multikueue-origin";
    /// On a Workload variant: the Workload it is a variant of.
    pub const CONCURRENT_ADMISSION_PARENT: &str = "kueue.x-k8s.io/concurrent-admission-parent";

    // Annotations.

    /// On a pod template: topology level all pods must share.
    pub const PODSET_REQUIRED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-required-topology";
    /// On a pod template: topology level the pods should share.
    pub const PODSET_PREFERRED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-preferred-topology";
    /// On a pod template: place by topology without a constraint ("true").
    pub const PODSET_UNCONSTRAINED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-unconstrained-topology";
    /// On a pod template: topology level each slice must share.
    pub const PODSET_SLICE_REQUIRED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-slice-required-topology";
    /// On a pod template: pods in a slice.
    pub const PODSET_SLICE_SIZE: &str = "kueue.x-k8s.io/podset-slice-size";
    /// On a pod template: nested slice constraints, as JSON.
    pub const PODSET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS: &str =
        "kueue.x-k8s.io/podset-slice-required-topology-constraints";
    /// On a pod template: pod sets placed together.
    pub const PODSET_GROUP_NAME: &str = "kueue.x-k8s.io/podset-group-name";
    /// On a pod and on pod templates: the Workload it belongs to.
    pub const WORKLOAD: &str = "kueue.x-k8s.io/workload";
    /// On an elastic job's pods: the Workload slice they belong to.
    pub const WORKLOAD_SLICE_NAME: &str = "kueue.x-k8s.io/workload-slice-name";
    /// On a Workload slice: the slice it replaces, as namespace/name.
    pub const WORKLOAD_SLICE_REPLACEMENT_FOR: &str = "kueue.x-k8s.io/workload-slice-replacement-for";
    /// On a job: it may be resized while it runs ("true").
    pub const ELASTIC_JOB: &str = "kueue.x-k8s.io/elastic-job";
    /// On a batch Job: least parallelism it accepts.
    pub const JOB_MIN_PARALLELISM: &str = "kueue.x-k8s.io/job-min-parallelism";
    /// On a batch Job: completions follow parallelism ("true").
    pub const JOB_COMPLETIONS_EQUAL_PARALLELISM: &str = "kueue.x-k8s.io/job-completions-equal-parallelism";
    /// On a pod: how many pods its group has.
    pub const POD_GROUP_TOTAL_COUNT: &str = "kueue.x-k8s.io/pod-group-total-count";
    /// On a pod: the group may be admitted when one pod exists.
    pub const POD_GROUP_FAST_ADMISSION: &str = "kueue.x-k8s.io/pod-group-fast-admission";
    /// On a pod: the group serves and is never finished by success.
    pub const POD_GROUP_SERVING: &str = "kueue.x-k8s.io/pod-group-serving";
    /// On a pod: whether its failure lets the group retry ("false" ends it).
    pub const RETRIABLE_IN_GROUP: &str = "kueue.x-k8s.io/retriable-in-group";
    /// On a pod: hash of its shape, which decides its pod set.
    pub const ROLE_HASH: &str = "kueue.x-k8s.io/role-hash";
    /// On a Workload: it stands for a group of plain pods.
    pub const IS_GROUP_WORKLOAD: &str = "kueue.x-k8s.io/is-group-workload";
    /// On a pod: the kind that keeps it suspended.
    pub const POD_SUSPENDING_PARENT: &str = "kueue.x-k8s.io/pod-suspending-parent";
    /// On a job: comma-separated controllers that hold its admission back.
    pub const ADMISSION_GATED_BY: &str = "kueue.x-k8s.io/admission-gated-by";
    /// On a Workload: signed addition to its priority.
    pub const PRIORITY_BOOST: &str = "kueue.x-k8s.io/priority-boost";
    /// On a Workload: the only flavors it may be given, comma-separated.
    pub const WORKLOAD_ALLOWED_RESOURCE_FLAVORS: &str = "kueue.x-k8s.io/workload-allowed-resource-flavors";
    /// Prefix of annotations passed on to a ProvisioningRequest.
    pub const PROVISIONING_REQUEST_PREFIX: &str = "provreq.kueue.x-k8s.io/";

    // Scheduling gates.

    /// Gate of pods that wait for admission.
    pub const GATE_ADMISSION: &str = "kueue.x-k8s.io/admission";
    /// Gate of pods that wait for their topology domain.
    pub const GATE_TOPOLOGY: &str = "kueue.x-k8s.io/topology";
    /// Gate of pods of an elastic job's new slice.
    pub const GATE_ELASTIC_JOB: &str = "kueue.x-k8s.io/elastic-job";

    // Finalizers.

    /// Keeps ClusterQueues, flavors, checks, Topologies and Workloads while something uses them.
    pub const FINALIZER_RESOURCE_IN_USE: &str = "kueue.x-k8s.io/resource-in-use";
    /// Keeps managed plain pods until their Workload has seen how they ended.
    pub const FINALIZER_MANAGED: &str = "kueue.x-k8s.io/managed";

    // Names of things.

    /// LocalQueue that jobs without a queue name go to, where it exists.
    pub const DEFAULT_LOCAL_QUEUE: &str = "default";
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
    /// Scheduler name of Volcano, served for takeovers.
    pub const SCHEDULER_NAME: &str = "volcano";
    /// On a pod: its PodGroup (the name kube-batch gave it, still the one in use).
    pub const GROUP_NAME: &str = "scheduling.k8s.io/group-name";
    /// On a pod: its PodGroup (Volcano's own spelling).
    pub const VOLCANO_GROUP_NAME: &str = "scheduling.volcano.sh/group-name";
    /// On a pod or PodGroup: its Queue.
    pub const QUEUE_NAME: &str = "scheduling.volcano.sh/queue-name";
    /// On a pod: the task of the job it is a replica of.
    pub const TASK_SPEC: &str = "volcano.sh/task-spec";
    /// Queue of PodGroups that name none.
    pub const DEFAULT_QUEUE: &str = "default";
    /// The queue all others descend from.
    pub const ROOT_QUEUE: &str = "root";
}

/// `scheduling.x-k8s.io`, the coscheduling plugin.
pub mod coscheduling {
    /// Label on a pod: its PodGroup.
    pub const POD_GROUP: &str = "scheduling.x-k8s.io/pod-group";
}

/// `kai.scheduler` and `scheduling.run.ai`.
pub mod kai {
    /// The API group of PodGroup and Queue.
    pub const GROUP: &str = "scheduling.run.ai";
    /// Scheduler name of KAI, served for takeovers.
    pub const SCHEDULER_NAME: &str = "kai-scheduler";
    /// Label on a pod or its owner: its Queue.
    pub const QUEUE: &str = "kai.scheduler/queue";
    /// Annotation on a pod: its PodGroup.
    pub const POD_GROUP_NAME: &str = "pod-group-name";
    /// Label on a pod: its leaf pod set within the PodGroup.
    pub const SUBGROUP_NAME: &str = "kai.scheduler/subgroup-name";
    /// Label on nodes, queues and pods: the shard they belong to.
    pub const NODE_POOL: &str = "kai.scheduler/node-pool";
    /// Annotation on a batch Job: pods that must start together.
    pub const BATCH_MIN_MEMBER: &str = "kai.scheduler/batch-min-member";
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
    /// On a Binding and on the pod it binds: chosen devices, as JSON per container and resource.
    pub const DEVICES: &str = "trireme.dev/devices";
    /// On a GangPlacement: uid of the gang's owner.
    pub const GANG_UID: &str = "trireme.dev/gang-uid";
    /// Admission check that is Ready while gang-scheduler holds a place for the whole gang.
    pub const PLACEMENT_CHECK: &str = "trireme.dev/placement";
    /// On a simulated pod: how long it runs, as a Go duration ("30s").
    pub const SIM_RUN_FOR: &str = "sim.trireme.dev/run-for";
    /// On a simulated pod: exit code of its containers, in decimal.
    pub const SIM_EXIT_CODE: &str = "sim.trireme.dev/exit-code";
}

/// NVIDIA's device plugin and GPU feature discovery.
pub mod nvidia {
    /// Whole GPUs, as an extended resource.
    pub const GPU: &str = "nvidia.com/gpu";
    /// Label on a node: the MIG layout wanted.
    pub const MIG_CONFIG: &str = "nvidia.com/mig.config";
    /// Label on a node: how that layout is getting on.
    pub const MIG_CONFIG_STATE: &str = "nvidia.com/mig.config.state";
    /// Label on a node: product of its GPUs.
    pub const GPU_PRODUCT: &str = "nvidia.com/gpu.product";
    /// Label on a node: how many GPUs it has.
    pub const GPU_COUNT: &str = "nvidia.com/gpu.count";
    /// Label on a node: memory of a GPU in MiB.
    pub const GPU_MEMORY: &str = "nvidia.com/gpu.memory";
}
