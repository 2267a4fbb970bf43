//! What users get wrong, one mistake a row: it is told where they look for it, nobody else is disturbed, and once it is
//! corrected everything goes on.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "bad_input/bench.rs"]
mod bench;

use bench::{Bench, cluster_queue, local_queue, mistake, template, training};
use serde_json::{Value, json};

const QUEUE_NAME: &str = "/metadata/labels/kueue.x-k8s.io~1queue-name";
const PRIORITY_CLASS: &str = "/metadata/labels/kueue.x-k8s.io~1priority-class";
const MAX_SECONDS: &str = "/metadata/labels/kueue.x-k8s.io~1max-exec-time-seconds";

fn kueue(kind: &str, name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": { "name": name }, "spec": spec })
}

#[tokio::test(start_paused = true)]
async fn mistakes_in_training_jobs() {
    const WORKER: &str = "/spec/pytorchReplicaSpecs/Worker";
    let field = |pointer: &str, value: Value| {
        let mut job = training("mine", "team");
        job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
        let pointer =
            if pointer.starts_with('/') { pointer.to_owned() } else { format!("{WORKER}/{pointer}") };
        mistake(vec![job]).set(&pointer, value)
    };
    let gpus = |amount: Value| field("template/spec/containers/0/resources/limits/nvidia.com~1gpu", amount);
    let cpu = |amount: Value| field("template/spec/containers/0/resources/requests/cpu", amount);
    let compose = "PyTorchJob mine: event ErrWorkloadCompose";
    let limit = "spec.podSets[0].template.spec.containers[0].resources.limits";
    let misconfigured = "QuotaReserved=False Misconfigured: pod set worker";
    let bounded = "QuotaReserved=False Misconfigured: spec.podSets[0].template.spec.containers[0]";
    let too_much = "QuotaReserved=False ExceedsMaxQuota: no flavor for pod set worker";
    let class = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass",
        "metadata": { "name": "vip" }, "value": 1,
    });
    let pod_class = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": "vip" }, "value": 1,
    });
    let mut important = training("mine", "team");
    important["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("vip");
    let mut urgent = training("mine", "team");
    urgent["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["priorityClassName"] = json!("vip");
    let mistakes = vec![
        gpus(json!("1.5")).says(&[misconfigured, "nvidia.com/gpu: 1500m is not a whole number"]),
        gpus(json!("-1")).says(&[compose, limit, "Invalid value: \"-1\": must be 0 or more"]),
        gpus(json!("abc")).says(&[compose, limit, "nvidia.com/gpu: Invalid value: \"abc\""]),
        gpus(json!("")).says(&[compose, limit, "nvidia.com/gpu: Invalid value: \"\""]),
        gpus(json!(true)).says(&[
            compose,
            limit,
            "nvidia.com/gpu",
            "must be of type integer,string: \"boolean\"",
        ]),
        gpus(json!("1e30")).says(&[too_much, "9223372036854775807 nvidia.com/gpu", "more than the 12"]),
        gpus(json!("9223372036854775807")).says(&[too_much, "9223372036854775807 nvidia.com/gpu"]),
        gpus(json!("100")).says(&[too_much, "200 nvidia.com/gpu", "more than the 12"]),
        gpus(json!("7")).says(&[too_much, "14 nvidia.com/gpu", "more than the 12"]),
        cpu(json!("9223372036854775807")).says(&[too_much, "9223372036854775807m cpu"]),
        cpu(json!("1Ki1")).says(&[compose, "requests.cpu: Invalid value: \"1Ki1\""]),
        field("template/spec/containers/0/resources/requests", json!({ "nvidia.com/gpu": "4" }))
            .says(&[bounded, "nvidia.com/gpu: the request is 4, the limit 1"]),
        field("template/spec/containers/0/resources/limits/cpu", json!("500m"))
            .says(&[bounded, "cpu: the request is 1, the limit 500m"]),
        field("template/spec/containers/0/resources/requests", json!(7)).says(&[
            compose,
            "containers[0].resources.requests",
            "must be of type object: \"integer\"",
        ]),
        field("template/spec/containers/0/resources/limits/pods", json!(1)).says(&[compose, "limits[pods]"]),
        field("template/spec/containers/0/name", json!("Not A Name")).says(&[
            "PyTorchJob mine: event FailedCreatePod",
            "spec.containers[0].name",
            "\"Not A Name\"",
        ]),
        field("template/spec/containers", json!([]))
            .says(&["PyTorchJob mine: event FailedCreatePod", "spec.containers: Required value"]),
        field("template/spec/containers", Value::Null)
            .says(&[compose, "template.spec.containers: Required value"]),
        field("template", Value::Null)
            .says(&[compose, "spec.pytorchReplicaSpecs.Worker.template is missing: pod set \"worker\""]),
        field("template/spec", json!("text")).anew().says(&[compose, "must be of type object: \"string\""]),
        field("template/spec/priorityClassName", json!("nobody"))
            .says(&["PyTorchJob mine: event FailedCreatePod", "no PriorityClass with name nobody"]),
        field("template/spec/nodeSelector", json!({ "gpu": "h900" })).anew().says(&[
            "Pod mine-worker-0: PodScheduled=False Unschedulable",
            "2 labels do not match the node selector",
        ]),
        field("template/spec/resourceClaims", json!([{ "name": "c", "resourceClaimName": "x" }]))
            .says(&[misconfigured, "resourceClaims are not supported"]),
        field("replicas", json!(-1)).says(&[
            "refused: 422",
            "Worker.replicas",
            "-1",
            "greater than or equal to 0",
        ]),
        field("replicas", json!(1_i64 << 31)).says(&[
            "refused: 422",
            "Worker.replicas",
            "2147483648",
            "32 bits",
        ]),
        field("replicas", json!("two")).says(&["refused: 422", "Worker.replicas", "must be of type integer"]),
        field("replicas", json!(i32::MAX)).says(&[too_much, "2147483647 nvidia.com/gpu", "more than the 12"]),
        field("/spec/pytorchReplicaSpecs", json!({})).says(&[compose, "the PyTorchJob describes no pods"]),
        field(QUEUE_NAME, json!("nobody")).says(&["Misconfigured: LocalQueue default/nobody does not exist"]),
        field(QUEUE_NAME, json!("Team_A")).says(&["refused: 403", "queue-name]: Invalid value: \"Team_A\""]),
        field(QUEUE_NAME, json!("q".repeat(64))).says(&[
            "refused: 422",
            "metadata.labels",
            "no more than 63 bytes",
        ]),
        field(PRIORITY_CLASS, json!("nobody")).says(&[
            "PyTorchJob mine: event WorkloadPriorityClassNotFound",
            "WorkloadPriorityClass nobody does not exist",
        ]),
        field(MAX_SECONDS, json!("soon")).says(&["refused: 403", "seconds]: Invalid value: \"soon\""]),
        field(MAX_SECONDS, json!("0"))
            .says(&["refused: 403", "max-exec-time-seconds]: Invalid value: \"0\": it must be 1 or more"]),
        mistake(vec![class, important]).without(0).says(&[
            "PyTorchJob mine: event WorkloadPriorityClassNotFound",
            "WorkloadPriorityClass vip does not exist",
        ]),
        mistake(vec![pod_class, urgent]).without(0).says(&[compose, "PriorityClass vip does not exist"]),
    ];
    Bench::new().await.make(mistakes).await;
}

#[tokio::test(start_paused = true)]
async fn mistakes_in_jobs_and_job_sets() {
    let job = |pointer: &str, value: Value| {
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": { "name": "mine", "namespace": "default", "labels": { "kueue.x-k8s.io/queue-name": "team" } },
            "spec": { "parallelism": 2, "completions": 2, "suspend": true, "template": template(1) },
        });
        mistake(vec![job]).set(pointer, value)
    };
    let entry = json!({
        "name": "workers", "replicas": 1,
        "template": { "spec": { "parallelism": 2, "completions": 2, "template": template(1) } },
    });
    let set = |pointer: &str, value: Value| {
        let set = json!({
            "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
            "metadata": { "name": "mine", "namespace": "default", "labels": { "kueue.x-k8s.io/queue-name": "team" } },
            "spec": { "suspend": true, "replicatedJobs": [entry] },
        });
        mistake(vec![set]).set(&format!("/spec/replicatedJobs{pointer}"), value)
    };
    let many: Vec<Value> = (0..19)
        .map(|number| {
            let mut one = entry.clone();
            one["name"] = json!(format!("w{number}"));
            one
        })
        .collect();
    let compose = "JobSet mine: event ErrWorkloadCompose";
    let gpus = "/spec/template/spec/containers/0/resources/limits/nvidia.com~1gpu";
    let mistakes = vec![
        job("/spec/parallelism", json!(-1)).says(&["refused: 422", "spec.parallelism: Invalid value: -1"]),
        job("/spec/completions", json!(-1)).says(&["refused: 422", "spec.completions: Invalid value: -1"]),
        job("/spec/parallelism", json!(1_i64 << 31)).says(&["refused: 400", "spec.parallelism: 2147483648"]),
        job("/spec/parallelism", json!("many")).says(&["refused: 400", "spec.parallelism: \"many\""]),
        job("/spec", json!({ "parallelism": i32::MAX, "suspend": true, "template": template(1) })).says(&[
            "ExceedsMaxQuota",
            "2147483647 nvidia.com/gpu",
            "more than the 12",
        ]),
        job(gpus, json!("1.5"))
            .says(&["refused: 422", "limits[nvidia.com/gpu]: Invalid value: \"1500m\": must be an integer"]),
        job(gpus, json!("-1")).says(&["refused: 422", "limits[nvidia.com/gpu]: Invalid value: \"-1\""]),
        job(gpus, json!("abc")).says(&["refused: 400", "abc"]),
        job(gpus, json!("100")).says(&["ExceedsMaxQuota", "200 nvidia.com/gpu", "more than the 12"]),
        job("/spec/template/spec/containers", json!([]))
            .says(&["refused: 422", "spec.containers: Required value"]),
        job("/spec/template/spec/priorityClassName", json!("nobody"))
            .says(&["Job mine: event ErrWorkloadCompose", "PriorityClass nobody does not exist"]),
        job(QUEUE_NAME, json!("nobody")).says(&["Misconfigured: LocalQueue default/nobody does not exist"]),
        set("/0/replicas", json!(i32::MAX)).says(&[
            compose,
            "spec.replicatedJobs[0]: 2147483647 times 2 pods are more than a Workload can count",
        ]),
        set("/0/replicas", json!(-1)).says(&["refused: 422", "spec.replicatedJobs[0].replicas", "-1"]),
        set("/0/template/spec/parallelism", json!("two"))
            .says(&[compose, "spec.replicatedJobs[0].template.spec.parallelism is \"two\""]),
        set("/0/template/spec/parallelism", json!(-1))
            .says(&[compose, "spec.replicatedJobs[0].template.spec.parallelism is -1"]),
        set("/0/name", json!("Upper Case"))
            .says(&[compose, "spec.podSets[0].name: Invalid value: \"Upper Case\""]),
        set("/0/template", Value::Null)
            .says(&["refused: 422", "spec.replicatedJobs[0].template: Required value"]),
        set("/0/template/spec/template", Value::Null).says(&[
            compose,
            "spec.replicatedJobs[0].template.spec.template is missing: pod set \"workers\"",
        ]),
        set("", json!([entry, entry])).says(&["refused: 422", "spec.replicatedJobs[1]: Duplicate value"]),
        set("", json!([])).says(&[compose, "the JobSet describes no pods"]),
        set("", json!(many)).says(&[compose, "more than 18 kinds of pods"]),
    ];
    Bench::new().await.make(mistakes).await;
}

#[tokio::test(start_paused = true)]
async fn mistakes_in_queues() {
    let meant = || vec![cluster_queue("mine", 2), local_queue("mine"), training("mine", "mine")];
    let queue = |pointer: &str, value: Value| mistake(meant()).set_in(0, &format!("/spec/{pointer}"), value);
    let shared = |pointer: &str, value: Value| {
        let mut meant = meant();
        meant[0]["spec"]["cohortName"] = json!("pool");
        mistake(meant).set_in(0, &format!("/spec/{pointer}"), value)
    };
    let quota = "resourceGroups/0/flavors/0/resources/0";
    let flavors = json!([
        meant()[0]["spec"]["resourceGroups"][0]["flavors"][0],
        meant()[0]["spec"]["resourceGroups"][0]["flavors"][0]
    ]);
    let field = "spec.resourceGroups[0].flavors[0].resources[0]";
    let nominal = |value: Value| queue(&format!("{quota}/nominalQuota"), value);
    let denied: &str = "refused: 403 admission webhook";
    let mistakes = vec![
        mistake(meant())
            .without(0)
            .says(&["LocalQueue mine: Active=False", "ClusterQueue mine does not exist"]),
        mistake(meant()).without(1).says(&["Misconfigured: LocalQueue default/mine does not exist"]),
        mistake(meant())
            .set_in(1, "/spec/clusterQueue", json!("nowhere"))
            .says(&["LocalQueue mine: Active=False", "ClusterQueue nowhere does not exist"]),
        mistake(meant())
            .set_in(1, "/spec/clusterQueue", json!("No Where"))
            .says(&["refused: 422", "spec.clusterQueue: Invalid value: \"No Where\""]),
        queue("resourceGroups/0/flavors/0/name", json!("h900"))
            .says(&["ClusterQueue mine: Active=False FlavorNotFound", "h900"]),
        nominal(json!("-1")).says(&[denied, field, "nominalQuota: Invalid value: \"-1\": must be 0 or more"]),
        nominal(json!("abc")).says(&["refused: 422", field, "nominalQuota: Invalid value: \"abc\""]),
        nominal(json!("")).says(&["refused: 422", field, "nominalQuota"]),
        nominal(Value::Null).says(&["refused: 422", "nominalQuota: Required value"]),
        queue(&format!("{quota}/borrowingLimit"), json!("4"))
            .says(&["borrowingLimit: Invalid value: \"4\": must be absent where cohortName is"]),
        queue(&format!("{quota}/lendingLimit"), json!("1"))
            .says(&["lendingLimit: Invalid value: \"1\": must be absent where cohortName is"]),
        shared(&format!("{quota}/lendingLimit"), json!("3")).says(&[
            denied,
            field,
            "lendingLimit: Invalid value: \"3\": must be at most nominalQuota, 2",
        ]),
        shared(&format!("{quota}/borrowingLimit"), json!("-1")).says(&[
            denied,
            field,
            "borrowingLimit: Invalid value: \"-1\": must be 0 or more",
        ]),
        queue("resourceGroups/0/flavors", flavors)
            .says(&["refused: 422", "spec.resourceGroups[0].flavors[1]: Duplicate value"]),
        queue("resourceGroups/0/coveredResources", json!(["nvidia.com/gpu", "nvidia.com/gpu"]))
            .says(&[denied, "spec.resourceGroups[0].coveredResources[1]: Duplicate value"]),
        queue("resourceGroups/0/coveredResources", json!(["nvidia.com/gpu"]))
            .says(&["NoMatchingFlavor", "the ClusterQueue has no quota for cpu"]),
        queue("resourceGroups/0/coveredResources", json!(["cpu", "nvidia.com/gpu"])).says(&[
            denied,
            field,
            "name: Invalid value: \"nvidia.com/gpu\": must be cpu",
        ]),
        queue("resourceGroups", json!([])).says(&["NoMatchingFlavor", "the ClusterQueue has no quota for"]),
        queue("preemption", json!({ "withinClusterQueue": "Sometimes" }))
            .says(&["refused: 422", "spec.preemption.withinClusterQueue: Unsupported value: \"Sometimes\""]),
        queue(
            "preemption",
            json!({ "reclaimWithinCohort": "Never", "borrowWithinCohort": { "policy": "LowerPriority" } }),
        )
        .says(&["refused", "spec.preemption", "borrowWithinCohort"]),
        queue("namespaceSelector", json!({ "matchLabels": { "team": "x" } }))
            .says(&["Misconfigured: ClusterQueue mine does not serve this namespace"]),
        queue("namespaceSelector", json!({ "matchExpressions": [{ "key": "a", "operator": "Is" }] }))
            .says(&[denied, "spec.namespaceSelector.matchExpressions[0].operator: Invalid value", "\"Is\""]),
        queue("namespaceSelector", json!({ "matchLabels": { "not a key!": "x" } })).says(&[
            denied,
            "spec.namespaceSelector",
            "not a key!",
        ]),
        queue("queueingStrategy", json!("LIFO"))
            .says(&["refused: 422", "spec.queueingStrategy: Unsupported value: \"LIFO\""]),
        queue("cohortName", json!("Not A Name"))
            .says(&["refused: 422", "spec.cohortName: Invalid value: \"Not A Name\""]),
        queue("stopPolicy", json!("Hold")).says(&["ClusterQueue mine: Active=False Stopped"]),
        queue("admissionChecksStrategy", json!({ "admissionChecks": [{ "name": "budget" }] }))
            .says(&["ClusterQueue mine: Active=False AdmissionCheck", "budget"]),
        queue("fairSharing", json!({ "weight": "-1" })).says(&["spec.fairSharing: Invalid value: \"-1\""]),
    ];
    Bench::new().await.make(mistakes).await;
}

#[tokio::test(start_paused = true)]
async fn mistakes_in_cohorts_and_flavors() {
    let meant = || {
        let mut queue = cluster_queue("mine", 2);
        queue["spec"]["cohortName"] = json!("lower");
        let lower = kueue("Cohort", "lower", json!({ "parentName": "upper" }));
        vec![kueue("Cohort", "upper", json!({})), lower, queue, local_queue("mine"), training("mine", "mine")]
    };
    let cohort = |at: usize, pointer: &str, value: Value| mistake(meant()).set_in(at, pointer, value);
    let quota = |limits: Value| {
        let mut quota = json!({ "name": "nvidia.com/gpu", "nominalQuota": "1" });
        quota.as_object_mut().unwrap().extend(limits.as_object().unwrap().clone());
        json!([{ "coveredResources": ["nvidia.com/gpu"], "flavors": [{ "name": "gpu", "resources": [quota] }] }])
    };
    let flavor = |pointer: &str, value: Value| {
        let mut queue = cluster_queue("mine", 2);
        queue["spec"]["resourceGroups"][0]["flavors"][0]["name"] = json!("odd");
        let meant = vec![
            kueue("ResourceFlavor", "odd", json!({})),
            queue,
            local_queue("mine"),
            training("mine", "mine"),
        ];
        mistake(meant).set_in(0, pointer, value)
    };
    let denied: &str = "refused: 403 admission webhook";
    let mistakes = vec![
        cohort(0, "/spec/parentName", json!("lower")).says(&["Cohort lower: event CohortCycle", "lower > upper > lower"]),
        cohort(0, "/spec/parentName", json!("lower")).says(&["ClusterQueue mine: Active=False CohortCycle", "lower"]),
        cohort(0, "/spec/parentName", json!("lower")).says(&["QuotaReserved=False Suspended: ClusterQueue mine admits nothing: its cohort lower is part of a cycle"]),
        cohort(0, "/spec/parentName", json!("upper")).says(&["Cohort upper: event CohortCycle", "upper > upper"]),
        cohort(0, "/spec/parentName", json!("No Name")).says(&["refused: 422", "spec.parentName: Invalid value: \"No Name\""]),
        cohort(1, "/spec/resourceGroups", quota(json!({ "nominalQuota": "-1" }))).says(&[denied, "nominalQuota: Invalid value: \"-1\": must be 0 or more"]),
        cohort(0, "/spec/resourceGroups", quota(json!({ "borrowingLimit": "1" }))).says(&[denied, "borrowingLimit: Invalid value: \"1\": must be absent where parentName is"]),
        cohort(0, "/spec/fairSharing", json!({ "weight": "-1" })).says(&[denied, "spec.fairSharing: Invalid value: \"-1\""]),
        flavor("/spec/nodeLabels", json!({ "not a key!": "x" })).says(&[denied, "spec.nodeLabels", "not a key!"]),
        flavor("/spec/nodeTaints", json!([{ "key": "a", "value": "b", "effect": "Sometimes" }])).says(&["refused", "spec.nodeTaints[0].effect", "Sometimes"]),
        flavor("/spec/nodeTaints", json!([{ "key": "a", "value": "b", "effect": "NoSchedule" }])).says(&["NoMatchingFlavor", "taint a=b:NoSchedule of flavor odd is not tolerated"]),
        flavor("/spec/tolerations", json!([{ "key": "a", "operator": "Like", "effect": "NoSchedule" }])).says(&["refused", "spec.tolerations[0].operator", "Like"]),
        flavor("/spec", json!({ "nodeLabels": { "a": "b" }, "topologyName": "racks" })).says(&["Active=False TopologyNotFound", "Topologies do not exist: racks (of flavor odd)"]),
    ];
    Bench::new().await.make(mistakes).await;
}

#[tokio::test(start_paused = true)]
async fn mistakes_in_gangs_without_a_workload() {
    let pod = |name: &str| {
        let mut pod = template(1);
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod["metadata"] = json!({
            "name": name, "namespace": "default", "annotations": { "scheduling.k8s.io/group-name": "mine" },
        });
        pod["spec"]["schedulerName"] = json!("trireme");
        pod
    };
    let meant = || {
        let group = json!({
            "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
            "metadata": { "name": "mine", "namespace": "default" }, "spec": { "minMember": 2 },
        });
        vec![group, pod("mine-a"), pod("mine-b")]
    };
    let group = |pointer: &str, value: Value| mistake(meant()).set_in(0, &format!("/spec/{pointer}"), value);
    let member = |pointer: &str, value: Value| mistake(meant()).set(&format!("/spec/{pointer}"), value);
    let of_group = "PodGroup mine: Unschedulable=True";
    let of_pod = "Pod mine-b: PodScheduled=False";
    let term = json!({ "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "cores", "operator": "Gt", "values": ["many"] }] }] });
    let apart = json!([{ "topologyKey": "kubernetes.io/hostname", "labelSelector": {} }]);
    let gpus = "containers/0/resources/limits/nvidia.com~1gpu";
    let mistakes = vec![
        group("minMember", json!(3)).says(&[of_group, "NotEnoughTasks", "2 of 3"]),
        group("minMember", json!(i32::MAX)).says(&[of_group, "NotEnoughTasks", "2 of 2147483647"]),
        group("minMember", json!(3)).says(&[of_pod, "2 of 3"]),
        group("minMember", json!(-1)).says(&[
            "refused: 422",
            "spec.minMember",
            "-1",
            "greater than or equal to 0",
        ]),
        group("minMember", json!(1_i64 << 31)).says(&["refused: 422", "spec.minMember", "2147483648"]),
        group("minMember", json!("two")).says(&["refused: 422", "spec.minMember", "must be of type integer"]),
        group("minResources", json!({ "nvidia.com/gpu": "much" }))
            .says(&["refused: 422", "spec.minResources.nvidia.com/gpu"]),
        mistake(meant()).without(0).says(&[of_pod, "PodGroupNotFound", "PodGroup mine"]),
        member(gpus, json!("9")).says(&[of_group, "NotEnoughResources", "nvidia.com/gpu"]),
        member(gpus, json!("1.5"))
            .says(&["refused: 422", "limits[nvidia.com/gpu]: Invalid value: \"1500m\": must be an integer"]),
        member("nodeSelector", json!({ "gpu": "h900" })).says(&[
            of_pod,
            "Unschedulable",
            "labels do not match the node selector",
        ]),
        member(
            "affinity",
            json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": term } }),
        )
        .says(&[of_pod, "Unschedulable", "labels do not match the required node affinity"]),
        member(
            "affinity",
            json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": apart } }),
        )
        .says(&[
            of_pod,
            "UnsupportedFeature",
            "podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution is not supported",
        ]),
        member("volumes", json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }]))
            .says(&[of_pod, "UnsupportedFeature", "spec.volumes[].persistentVolumeClaim is not supported"]),
        member("overhead", json!({ "memory": "9223372036854775807" })).says(&[
            of_pod,
            "Unschedulable",
            "memory (asks 4Pi or more, at most 512Gi left on a node)",
        ]),
        member("containers/0/resources/requests/memory", json!("9223372036854775807")).says(&[
            of_pod,
            "Unschedulable",
            "memory",
        ]),
    ];
    Bench::new().await.make(mistakes).await;
}
