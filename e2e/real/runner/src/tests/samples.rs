//! Kueue's own samples, applied as its documentation says: first the queues, then each job.

use std::sync::Arc;
use std::time::Duration;

use admission_controller::jobs::TABLE;
use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::cluster::{condition, documents, get, send, wait};
use crate::registry::{Outcome, Test, need};
use crate::stack::{self, is};
use crate::world::{Running, World};

const FOLDER: &str = "manifests/kueue";
const WORKLOADS: &str = "/apis/kueue.x-k8s.io/v1beta2/workloads";
/// Where the samples are.
const NAMESPACES: [&str; 2] = ["default", "kueue-test"];
const SOON: Duration = Duration::from_secs(20);

/// What comes of a sample.
#[derive(Clone, Copy)]
enum Comes {
    /// So many Workloads are admitted, with all their pods.
    Admitted(usize),
    /// One is, with fewer pods than it would have.
    Shrunk,
    /// It waits, and `QuotaReserved` says these words.
    Waits(&'static str),
}

use Comes::{Admitted, Shrunk, Waits};

/// What an administrator sets up, and what users submit then.
struct Setup {
    files: &'static [&'static str],
    /// Nodes in racks, where the flavor has a topology.
    nodes: bool,
    /// A LocalQueue that the samples name and none of the files has, with its ClusterQueue.
    queue: Option<(&'static str, &'static str)>,
    samples: &'static [(&'static str, Comes)],
}

static SETUPS: &[Setup] = &[
    Setup {
        files: &["getting-started/quick-start-setup.yaml"],
        nodes: false,
        queue: None,
        samples: &[("getting-started/quick-start-job.yaml", Admitted(1))],
    },
    Setup {
        files: &["admin/single-clusterqueue-setup.yaml"],
        nodes: false,
        queue: None,
        samples: &[
            ("jobs/sample-job.yaml", Admitted(1)),
            ("jobs/sample-job-partial-admission.yaml", Shrunk),
            ("jobs/sample-jobset.yaml", Admitted(1)),
            ("jobs/sample-pytorchjob.yaml", Admitted(1)),
            ("jobs/sample-tfjob.yaml", Admitted(1)),
            ("jobs/sample-paddlejob.yaml", Admitted(1)),
            ("jobs/sample-jaxjob.yaml", Admitted(1)),
            ("jobs/sample-mpijob.yaml", Admitted(1)),
            ("jobs/ray-cluster-sample.yaml", Admitted(1)),
            ("jobs/sample-scalable-job.yaml", Admitted(1)),
            ("jobs/ray-job-sample.yaml", Admitted(1)),
            ("jobs/ray-job-autoscaling-sample.yaml", Admitted(1)),
            ("jobs/ray-service-sample.yaml", Admitted(1)),
            ("pods-kueue/kueue-pod.yaml", Admitted(1)),
            ("pods-kueue/kueue-pod-group.yaml", Admitted(1)),
            ("serving-workloads/sample-deployment.yaml", Admitted(3)),
            ("serving-workloads/sample-statefulset.yaml", Admitted(1)),
            ("serving-workloads/sample-leaderworkerset.yaml", Admitted(2)),
            ("appwrapper/deployment-sample.yaml", Admitted(1)),
            ("appwrapper/pytorch-sample.yaml", Admitted(1)),
            ("appwrapper/leaderworkerset-sample.yaml", Admitted(1)),
        ],
    },
    Setup {
        files: &["admission-fs/admission-fair-sharing-setup.yaml"],
        nodes: false,
        queue: None,
        samples: &[
            ("admission-fs/lq-a-simple-job.yaml", Admitted(1)),
            ("admission-fs/lq-b-simple-job.yaml", Admitted(1)),
        ],
    },
    Setup {
        files: &["tas/sample-gpu-queues.yaml"],
        nodes: true,
        queue: None,
        samples: &[
            ("tas/sample-job-required.yaml", Admitted(1)),
            ("tas/sample-job-preferred.yaml", Admitted(1)),
            ("tas/sample-job-unconstrained.yaml", Admitted(1)),
            ("serving-workloads/sample-leaderworkerset-tas.yaml", Admitted(2)),
        ],
    },
    Setup {
        files: &["tas/sample-gpu-queues.yaml"],
        nodes: true,
        queue: Some(("user-queue", "tas-cluster-queue")),
        samples: &[
            ("jobs/sample-jobset-tas-required.yaml", Admitted(1)),
            ("jobs/sample-jobset-tas-sliced.yaml", Admitted(1)),
            ("jobs/sample-jobset-tas-combined.yaml", Admitted(1)),
        ],
    },
    Setup {
        files: &[],
        nodes: false,
        queue: None,
        samples: &[("serving-workloads/sample-hami.yaml", Waits("gpumem"))],
    },
    Setup {
        files: &["dra/sample-dra-queues.yaml"],
        nodes: false,
        queue: None,
        samples: &[
            ("dra/sample-dra-rct-job.yaml", Waits("resourceClaims")),
            ("dra/sample-dra-extended-resource-job.yaml", Admitted(1)),
        ],
    },
    Setup {
        files: &["admin/shared-quota-setup.yaml"],
        nodes: false,
        queue: None,
        samples: &[("admin/shared-quota-sample-job.yaml", Admitted(1))],
    },
];

pub(crate) fn all() -> Vec<Test> {
    let test = |setup: &'static Setup, (file, comes): &'static (&str, Comes)| {
        Test::new(format!("samples/{file}"), move |world| check(world, setup, file, *comes)).alone()
    };
    SETUPS.iter().flat_map(|setup| setup.samples.iter().map(move |sample| test(setup, sample))).collect()
}

async fn check(world: Arc<World>, setup: &Setup, file: &str, comes: Comes) -> Result<Outcome> {
    need!(world.running());
    need!(world.shared(FOLDER));
    need!(world.tools.get(stack::ADMISSION));
    need!(world.tools.get("kube-controller-manager"));
    need!(stack::address(&world));
    need!(served(&world, file));
    stack::start_admission(&world, stack::ADMISSION).await?;
    let (mut there, mut submitted) = (Vec::new(), Vec::new());
    let outcome = async {
        set_up(&world, setup, &mut there).await?;
        let admitted = submit(&world, file, comes, &mut submitted).await?;
        begins(&world, setup, comes, &submitted, &admitted).await
    };
    let outcome = outcome.await;
    let cleared = clear(&world, submitted).await;
    clear(&world, there).await?;
    outcome.and(cleared.context("it goes"))?;
    Ok(Outcome::Passed)
}

/// Whether this version of Kubernetes, with the definitions there are, has every kind of a sample.
fn served(world: &World, file: &str) -> Result<()> {
    for document in documents(&world.shared(FOLDER)?.join(file))? {
        let word = |field: &str| document[field].as_str().unwrap_or_default();
        let (version, kind) = (word("apiVersion"), word("kind"));
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        ensure!(
            world.running()?.applier.knows(group, version, kind),
            "{group}/{version} {kind} is not served here"
        );
    }
    Ok(())
}

async fn set_up(world: &World, setup: &Setup, there: &mut Vec<DynamicObject>) -> Result<()> {
    let applier = &world.running()?.applier;
    if setup.nodes {
        for number in 0..4 {
            there.push(applier.must(&node(number)).await?);
        }
    }
    for file in setup.files {
        for document in documents(&world.shared(FOLDER)?.join(file))? {
            there.push(applier.must(&document).await?);
        }
    }
    if let Some((name, cluster_queue)) = setup.queue {
        let queue = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
            "metadata": {"name": name, "namespace": "default"}, "spec": {"clusterQueue": cluster_queue}});
        there.push(applier.must(&queue).await?);
    }
    Ok(())
}

/// The Workloads that are admitted then.
async fn submit(
    world: &World,
    file: &str,
    comes: Comes,
    submitted: &mut Vec<DynamicObject>,
) -> Result<Vec<Value>> {
    let applier = &world.running()?.applier;
    for document in documents(&world.shared(FOLDER)?.join(file))? {
        submitted.push(applier.must(&document).await?);
    }
    let mut last = Vec::new();
    let waited = wait("what is to come of it", SOON, async || {
        world.programs().await?.alive()?;
        last = workloads(world).await?;
        let admitted = |one: &Value| is(one, "Admitted", "True");
        let says = |one: &Value, words: &str| {
            condition(one, "QuotaReserved")
                .is_some_and(|found| found["message"].as_str().is_some_and(|text| text.contains(words)))
        };
        Ok(match comes {
            Admitted(count) => last.len() == count && last.iter().all(admitted),
            Shrunk => last.len() == 1 && last.iter().all(admitted),
            Waits(words) => last.len() == 1 && last.iter().all(|one| !admitted(one) && says(one, words)),
        })
    });
    let seen = waited.await;
    let told =
        last.iter().map(|one| format!("\n  {}: {}", one["metadata"]["name"], one["status"]["conditions"]));
    seen.with_context(|| format!("{} workloads:{}", last.len(), told.collect::<String>()))?;
    last.retain(|one| is(one, "Admitted", "True"));
    Ok(last)
}

/// What was admitted is not held back any more, has the pods that it is to have, and with a topology their places.
async fn begins(
    world: &World,
    setup: &Setup,
    comes: Comes,
    submitted: &[DynamicObject],
    admitted: &[Value],
) -> Result<()> {
    if admitted.is_empty() {
        return Ok(());
    }
    let applier = &world.running()?.applier;
    wait("what was submitted to be let go", SOON, async || {
        for object in submitted {
            if is_suspended(&applier.read(object).await?) {
                return Ok(false);
            }
        }
        Ok(!pods(world).await?.iter().any(is_held))
    })
    .await?;
    for workload in admitted {
        let sets = workload["spec"]["podSets"].as_array().into_iter().flatten();
        let given = workload["status"]["admission"]["podSetAssignments"].as_array().into_iter().flatten();
        for (set, given) in sets.zip(given) {
            let (asked, got) = (set["count"].as_i64(), given["count"].as_i64());
            let is_wanted = if matches!(comes, Shrunk) { got < asked } else { got == asked };
            ensure!(got.is_some() && is_wanted, "{got:?} of {asked:?} pods");
            ensure!(given["topologyAssignment"].is_object() == setup.nodes, "its places: {given}");
        }
    }
    if setup.nodes { go_to_their_nodes(world, admitted).await } else { Ok(()) }
}

/// Whether a job is suspended, where its kind says that.
fn is_suspended(object: &DynamicObject) -> bool {
    let types = object.types.clone().unwrap_or_default();
    let group = types.api_version.split_once('/').map_or("", |(group, _)| group);
    let kind = TABLE.iter().find(|kind| kind.is(group, &types.kind) && !kind.suspend.is_empty());
    kind.is_some_and(|kind| object.data.pointer(kind.suspend) == Some(&json!(true)))
}

/// Whether a pod is behind one of Kueue's gates.
fn is_held(pod: &Value) -> bool {
    let gates = pod["spec"]["schedulingGates"].as_array().into_iter().flatten();
    gates.filter_map(|gate| gate["name"].as_str()).any(|name| name.starts_with("kueue.x-k8s.io/"))
}

async fn pods(world: &World) -> Result<Vec<Value>> {
    of_samples(get(&world.running()?.plane.client, "/api/v1/pods").await?)
}

/// Those of a list that are where the samples are.
fn of_samples(list: Value) -> Result<Vec<Value>> {
    let all = list["items"].as_array().context("a list")?;
    let is_there = |one: &&Value| NAMESPACES.iter().any(|name| one["metadata"]["namespace"] == **name);
    Ok(all.iter().filter(is_there).cloned().collect())
}

/// The pods that Kubernetes' own controller makes of Jobs are each sent to a node, and those that have to be together to one rack.
async fn go_to_their_nodes(world: &World, admitted: &[Value]) -> Result<()> {
    let of_job = |one: &&Value| {
        let owners = one["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        owners.into_iter().any(|owner| owner["apiVersion"] == "batch/v1" && owner["kind"] == "Job")
    };
    let Some(workload) = admitted.iter().find(of_job) else { return Ok(()) };
    let wanted = workload["spec"]["podSets"][0]["count"].as_u64().context("a count")?;
    let mut hosts = Vec::new();
    let sent = wait("its pods to be sent to nodes", SOON, async || {
        let pods = pods(world).await?;
        let host =
            |pod: &Value| pod["spec"]["nodeSelector"]["kubernetes.io/hostname"].as_str().map(str::to_owned);
        hosts = pods.iter().filter(|pod| !is_held(pod)).filter_map(host).collect();
        Ok(hosts.len() as u64 == wanted)
    });
    sent.await.with_context(|| format!("{hosts:?} of {wanted}"))?;
    let mut racks: Vec<String> = hosts.iter().filter_map(|host| rack_of(host)).collect();
    racks.sort();
    racks.dedup();
    let request = &workload["spec"]["podSets"][0]["topologyRequest"];
    let together = request["required"] == "cloud.provider.com/topology-rack";
    ensure!(!racks.is_empty() && (!together || racks.len() == 1), "{request}: {hosts:?}");
    Ok(())
}

async fn workloads(world: &World) -> Result<Vec<Value>> {
    of_samples(get(&world.running()?.plane.client, WORKLOADS).await?)
}

/// Deletes what was made, the last first, and waits until it and its Workloads are gone.
async fn clear(world: &World, mut objects: Vec<DynamicObject>) -> Result<()> {
    let Running { applier, plane, .. } = world.running()?;
    objects.retain(|object| object.types.as_ref().is_some_and(|types| types.kind != "Namespace"));
    for object in objects.iter().rev() {
        applier.delete(object).await.with_context(|| object.name_any())?;
        // Pods of a group are held until others take their places, or their Workload goes.
        if let Some(group) = object.labels().get("kueue.x-k8s.io/pod-group-name") {
            let path = format!("/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads/{group}");
            // It goes with the first of them.
            let _gone = send(&plane.client, "DELETE", &path, &json!({})).await;
        }
    }
    for object in objects.iter().rev() {
        applier.gone(object).await?;
    }
    let left = wait("no Workload to be left", SOON, async || Ok(workloads(world).await?.is_empty())).await;
    let told = workloads(world).await?.iter().map(|one| one["metadata"].to_string()).collect::<String>();
    left.context(told)
}

/// The rack of a node.
fn rack_of(host: &str) -> Option<String> {
    let number: usize = host.strip_prefix("rack-node-")?.parse().ok()?;
    Some(format!("r{}", number / 2))
}

/// A node with eight GPUs, two in each rack. Kubernetes' controller remembers when one of that name was heard of last.
fn node(number: usize) -> Value {
    let name = format!("rack-node-{number}");
    let now = kit::Clock::System.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let ready = json!({"type": "Ready", "status": "True", "reason": "E2E", "message": "",
        "lastHeartbeatTime": now, "lastTransitionTime": now});
    let holds = json!({"cpu": "16", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "8"});
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "cloud.provider.com/node-group": "tas-group",
            "cloud.provider.com/topology-block": "b0", "cloud.provider.com/topology-rack": rack_of(&name)}},
        "status": {"allocatable": holds, "capacity": holds, "conditions": [ready]}})
}
