//! Kinds that can be suspended.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{POOL, SOON, Site, name, on_a_site, possible, says, template, test};
use crate::cluster::wait;
use crate::registry::{Outcome, Test, need};
use crate::world::World;

/// How an object comes to its end.
enum End {
    /// By a status, after one with which it runs.
    Says { runs: fn() -> Value, ended: fn() -> Value },
    /// Its pods end, and its controller runs here.
    Pods,
    /// When somebody deletes it.
    Never { runs: fn() -> Value },
}

/// One kind.
struct Kind {
    /// Lower case, in the name of its test.
    name: &'static str,
    /// Empty where the API server has it by itself.
    definition: &'static str,
    /// `apiVersion`, kind, plural.
    types: (&'static str, &'static str, &'static str),
    suspend: &'static str,
    spec: fn() -> Value,
    pod_sets: &'static [(&'static str, i64)],
    /// Where the first pod set is told what the flavor adds.
    told: &'static str,
    end: End,
}

pub(super) fn all() -> Vec<Test> {
    KINDS
        .iter()
        .map(|kind| test(kind.name, kind.definition, async |site: &Site| kind.lives(site).await))
        .chain([Test::new(name(MPI_JOB_V1.name), mpi_job_v1).alone()])
        .collect()
}

/// The training operator's definition of MPIJobs has the name of the MPI operator's, which counts for other tests.
async fn mpi_job_v1(world: Arc<World>) -> Result<Outcome> {
    need!(possible(&world, MPI_JOB_V1.definition));
    let folder = need!(world.shared("conformance/crds/kubeflow-training-operator"));
    let definitions = [folder.join("kubeflow.org_mpijobs.yaml")];
    let world = Arc::new(world.beside(MPI_JOB_V1.name, &definitions).await?);
    let lives = async |site: &Site| MPI_JOB_V1.lives(site).await;
    let outcome = on_a_site(world.clone(), MPI_JOB_V1.name, MPI_JOB_V1.definition, &lives).await;
    world.end().await;
    outcome
}

impl Kind {
    async fn lives(&self, site: &Site) -> Result<()> {
        let (version, kind, plural) = self.types;
        let object =
            json!({"apiVersion": version, "kind": kind, "metadata": {"name": "one"}, "spec": (self.spec)()});
        let made = site.create(object, true).await?;
        ensure!(made.pointer(self.suspend) == Some(&json!(true)), "suspended at creation: {}", made["spec"]);
        if kind == "TrainJob" {
            site.create(job_set_of(&made), false).await?;
        }
        let workloads = site.waiting(1).await?;
        let sets = workloads[0]["spec"]["podSets"].as_array().context("pod sets")?;
        let named: Vec<_> = sets
            .iter()
            .map(|set| (set["name"].as_str().unwrap_or_default(), set["count"].as_i64()))
            .collect();
        let wanted: Vec<_> = self.pod_sets.iter().map(|(name, count)| (*name, Some(*count))).collect();
        ensure!(named == wanted, "pod sets {named:?}");

        site.admitted(1).await?;
        let path = format!("/apis/{version}/namespaces/{}/{plural}/one", site.name);
        wait("the job to be started", SOON, async || {
            Ok(site.get(&path).await?.pointer(self.suspend) == Some(&json!(false)))
        })
        .await?;
        let started = site.get(&path).await?;
        ensure!(started.pointer(self.told) == Some(&json!(POOL)), "{} in {}", self.told, started["spec"]);

        match &self.end {
            End::Pods => end_pods(site).await?,
            End::Says { runs, ended } => {
                status(site, &path, runs()).await?;
                status(site, &path, ended()).await?;
            }
            End::Never { runs } => status(site, &path, runs()).await?,
        }
        if !matches!(self.end, End::Never { .. }) {
            site.finished(1).await?;
        }
        site.goes(&path).await
    }
}

async fn status(site: &Site, path: &str, status: Value) -> Result<()> {
    site.patch(&format!("{path}/status"), &json!({"status": status})).await.map(|_| ())
}

/// The Job's pods have run.
async fn end_pods(site: &Site) -> Result<()> {
    wait("its pods", SOON, async || Ok(site.list("/api/v1", "pods").await?.len() == 2)).await?;
    for pod in site.list("/api/v1", "pods").await? {
        ensure!(pod["spec"]["nodeSelector"]["pool"] == POOL, "{}", pod["spec"]);
        let name = pod["metadata"]["name"].as_str().context("a name")?;
        status(site, &format!("/api/v1/namespaces/{}/pods/{name}", site.name), json!({"phase": "Succeeded"}))
            .await?;
    }
    Ok(())
}

/// The JobSet that the trainer makes of a TrainJob.
fn job_set_of(train_job: &Value) -> Value {
    let metadata = &train_job["metadata"];
    json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": "one", "ownerReferences": [{"apiVersion": train_job["apiVersion"], "kind": "TrainJob",
            "name": "one", "uid": metadata["uid"], "controller": true, "blockOwnerDeletion": true}]},
        "spec": {"suspend": true, "replicatedJobs": [replicated("node", 1, 2)]}})
}

fn replicated(name: &str, replicas: u32, pods: u32) -> Value {
    json!({"name": name, "replicas": replicas,
        "template": {"spec": {"parallelism": pods, "completions": pods, "template": template("main")}}})
}

fn jobs_status(name: &str) -> Value {
    json!([{"name": name, "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}])
}

/// A kind of Kubeflow's: one of each other role, two workers.
macro_rules! kubeflow {
    ($name:literal, $version:literal, $kind:literal, $at:literal, $container:literal, $roles:expr, $sets:expr, $told:literal) => {
        Kind {
            name: $name,
            definition: concat!($name, "s.kubeflow.org"),
            types: (concat!("kubeflow.org/", $version), $kind, concat!($name, "s")),
            suspend: "/spec/runPolicy/suspend",
            spec: || {
                let replicas = |role: &str| if role == "Worker" { 2 } else { 1 };
                let roles = $roles.map(|role: &str| {
                    (role.to_owned(), json!({"replicas": replicas(role), "template": template($container)}))
                });
                json!({$at: serde_json::Map::from_iter(roles)})
            },
            pod_sets: $sets,
            told: concat!("/spec/", $at, "/", $told, "/template/spec/nodeSelector/pool"),
            end: End::Says {
                runs: || json!({"conditions": [says("Running")], "replicaStatuses": {"Worker": {"active": 2}}}),
                ended: || json!({"conditions": [says("Succeeded")], "replicaStatuses": {"Worker": {"succeeded": 2}}}),
            },
        }
    };
}

fn ray_cluster() -> Value {
    json!({
        "headGroupSpec": {"rayStartParams": {}, "template": template("ray-head")},
        "workerGroupSpecs": [{"groupName": "small", "replicas": 2, "minReplicas": 2, "maxReplicas": 2,
            "rayStartParams": {}, "template": template("ray-worker")}],
    })
}

static MPI_JOB_V1: Kind = Kind {
    name: "mpijob-v1",
    ..kubeflow!(
        "mpijob",
        "v1",
        "MPIJob",
        "mpiReplicaSpecs",
        "mpi",
        ["Launcher", "Worker"],
        &[("launcher", 1), ("worker", 2)],
        "Launcher"
    )
};

static KINDS: &[Kind] = &[
    Kind {
        name: "job",
        definition: "",
        types: ("batch/v1", "Job", "jobs"),
        suspend: "/spec/suspend",
        spec: || json!({"parallelism": 2, "completions": 2, "template": template("main")}),
        pod_sets: &[("main", 2)],
        told: "/spec/template/spec/nodeSelector/pool",
        end: End::Pods,
    },
    Kind {
        name: "jobset",
        definition: "jobsets.jobset.x-k8s.io",
        types: ("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets"),
        suspend: "/spec/suspend",
        spec: || json!({"replicatedJobs": [replicated("driver", 1, 1), replicated("workers", 2, 2)]}),
        pod_sets: &[("driver", 1), ("workers", 4)],
        told: "/spec/replicatedJobs/0/template/spec/template/spec/nodeSelector/pool",
        end: End::Says {
            runs: || json!({"replicatedJobsStatus": jobs_status("driver")}),
            ended: || json!({"conditions": [says("Completed")]}),
        },
    },
    Kind {
        name: "trainjob",
        definition: "trainjobs.trainer.kubeflow.org",
        types: ("trainer.kubeflow.org/v1alpha1", "TrainJob", "trainjobs"),
        suspend: "/spec/suspend",
        spec: || json!({"runtimeRef": {"name": "torch-distributed"}}),
        pod_sets: &[("node", 2)],
        told: "/spec/runtimePatches/0/trainingRuntimeSpec/template/spec/replicatedJobs/0/template/spec/template/spec/nodeSelector/pool",
        end: End::Says {
            runs: || json!({"jobsStatus": jobs_status("node")}),
            ended: || json!({"conditions": [says("Complete")]}),
        },
    },
    kubeflow!(
        "pytorchjob",
        "v1",
        "PyTorchJob",
        "pytorchReplicaSpecs",
        "pytorch",
        ["Master", "Worker"],
        &[("master", 1), ("worker", 2)],
        "Master"
    ),
    kubeflow!(
        "tfjob",
        "v1",
        "TFJob",
        "tfReplicaSpecs",
        "tensorflow",
        ["Chief", "PS", "Worker", "Evaluator"],
        &[("chief", 1), ("ps", 1), ("worker", 2), ("evaluator", 1)],
        "Chief"
    ),
    kubeflow!(
        "xgboostjob",
        "v1",
        "XGBoostJob",
        "xgbReplicaSpecs",
        "xgboost",
        ["Master", "Worker"],
        &[("master", 1), ("worker", 2)],
        "Master"
    ),
    kubeflow!(
        "paddlejob",
        "v1",
        "PaddleJob",
        "paddleReplicaSpecs",
        "paddle",
        ["Master", "Worker"],
        &[("master", 1), ("worker", 2)],
        "Master"
    ),
    kubeflow!("jaxjob", "v1", "JAXJob", "jaxReplicaSpecs", "jax", ["Worker"], &[("worker", 2)], "Worker"),
    kubeflow!(
        "mpijob",
        "v2beta1",
        "MPIJob",
        "mpiReplicaSpecs",
        "mpi",
        ["Launcher", "Worker"],
        &[("launcher", 1), ("worker", 2)],
        "Launcher"
    ),
    Kind {
        name: "rayjob",
        definition: "rayjobs.ray.io",
        types: ("ray.io/v1", "RayJob", "rayjobs"),
        suspend: "/spec/suspend",
        spec: || json!({"entrypoint": "true", "shutdownAfterJobFinishes": true, "rayClusterSpec": ray_cluster()}),
        pod_sets: &[("head", 1), ("small", 2), ("submitter", 1)],
        told: "/spec/rayClusterSpec/headGroupSpec/template/spec/nodeSelector/pool",
        end: End::Says {
            runs: || json!({"jobDeploymentStatus": "Running", "rayClusterStatus": {"state": "ready"}}),
            ended: || json!({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}),
        },
    },
    Kind {
        name: "raycluster",
        definition: "rayclusters.ray.io",
        types: ("ray.io/v1", "RayCluster", "rayclusters"),
        suspend: "/spec/suspend",
        spec: ray_cluster,
        pod_sets: &[("head", 1), ("small", 2)],
        told: "/spec/headGroupSpec/template/spec/nodeSelector/pool",
        end: End::Never { runs: || json!({"state": "ready"}) },
    },
    Kind {
        name: "rayservice",
        definition: "rayservices.ray.io",
        types: ("ray.io/v1", "RayService", "rayservices"),
        suspend: "/spec/rayClusterConfig/suspend",
        spec: || json!({"serveConfigV2": "applications: []", "rayClusterConfig": ray_cluster()}),
        pod_sets: &[("head", 1), ("small", 2)],
        told: "/spec/rayClusterConfig/headGroupSpec/template/spec/nodeSelector/pool",
        end: End::Never { runs: || json!({"conditions": [says("Ready")]}) },
    },
    Kind {
        name: "appwrapper",
        definition: "appwrappers.workload.codeflare.dev",
        types: ("workload.codeflare.dev/v1beta2", "AppWrapper", "appwrappers"),
        suspend: "/spec/suspend",
        spec: || {
            json!({"components": [{"template": {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "inside"},
                "spec": {"parallelism": 2, "template": template("main")}}}]})
        },
        pod_sets: &[("one-0", 2)],
        told: "/spec/components/0/podSetInfos/0/nodeSelector/pool",
        end: End::Says {
            runs: || json!({"phase": "Running", "conditions": [says("QuotaReserved"), says("ResourcesDeployed")]}),
            ended: || json!({"phase": "Succeeded", "conditions": []}),
        },
    },
];
