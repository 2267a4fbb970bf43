//! Kueue's own samples, applied as its documentation says: first the queues, then each job.

use std::sync::Arc;
use std::time::Duration;

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
    /// So many Workloads are admitted.
    Admitted(usize),
    /// It waits, and `QuotaReserved` says these words.
    Waits(&'static str),
}

use Comes::{Admitted, Waits};

/// What an administrator sets up, and what users submit then.
struct Setup {
    files: &'static [&'static str],
    /// Nodes in racks, where the flavor has a topology.
    nodes: bool,
    samples: &'static [(&'static str, Comes)],
}

static SETUPS: &[Setup] = &[
    Setup {
        files: &["getting-started/quick-start-setup.yaml"],
        nodes: false,
        samples: &[("getting-started/quick-start-job.yaml", Admitted(1))],
    },
    Setup {
        files: &["admin/single-clusterqueue-setup.yaml"],
        nodes: false,
        samples: &[
            ("jobs/sample-job.yaml", Admitted(1)),
            ("jobs/sample-job-partial-admission.yaml", Admitted(1)),
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
        samples: &[
            ("admission-fs/lq-a-simple-job.yaml", Admitted(1)),
            ("admission-fs/lq-b-simple-job.yaml", Admitted(1)),
        ],
    },
    Setup {
        files: &["tas/sample-gpu-queues.yaml"],
        nodes: true,
        samples: &[
            ("tas/sample-job-required.yaml", Admitted(1)),
            ("tas/sample-job-preferred.yaml", Admitted(1)),
            ("tas/sample-job-unconstrained.yaml", Admitted(1)),
            ("serving-workloads/sample-leaderworkerset-tas.yaml", Admitted(2)),
        ],
    },
    Setup { files: &[], nodes: false, samples: &[("serving-workloads/sample-hami.yaml", Waits("gpumem"))] },
    Setup {
        files: &["dra/sample-dra-queues.yaml"],
        nodes: false,
        samples: &[
            ("dra/sample-dra-rct-job.yaml", Waits("resourceClaims")),
            ("dra/sample-dra-extended-resource-job.yaml", Admitted(1)),
        ],
    },
    Setup {
        files: &["admin/shared-quota-setup.yaml"],
        nodes: false,
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
        submit(&world, file, comes, &mut submitted).await
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
    Ok(())
}

async fn submit(world: &World, file: &str, comes: Comes, submitted: &mut Vec<DynamicObject>) -> Result<()> {
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
            Waits(words) => last.len() == 1 && last.iter().all(|one| !admitted(one) && says(one, words)),
        })
    });
    let seen = waited.await;
    let told =
        last.iter().map(|one| format!("\n  {}: {}", one["metadata"]["name"], one["status"]["conditions"]));
    seen.with_context(|| format!("{} workloads:{}", last.len(), told.collect::<String>()))
}

async fn workloads(world: &World) -> Result<Vec<Value>> {
    let all = get(&world.running()?.plane.client, WORKLOADS).await?;
    let all = all["items"].as_array().into_iter().flatten();
    let of_samples = |one: &&Value| NAMESPACES.iter().any(|name| one["metadata"]["namespace"] == **name);
    Ok(all.filter(of_samples).cloned().collect())
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

/// A node with eight GPUs, two in each rack.
fn node(number: usize) -> Value {
    let name = format!("rack-node-{number}");
    let holds = json!({"cpu": "16", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "8"});
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "cloud.provider.com/node-group": "tas-group",
            "cloud.provider.com/topology-block": "b0", "cloud.provider.com/topology-rack": format!("r{}", number / 2)}},
        "status": {"allocatable": holds, "capacity": holds, "conditions": [{"type": "Ready", "status": "True"}]}})
}
