//! The charts on a real API server, and the programs run as they say.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};

use super::KUEUE;
use super::story::{
    agent, appears_later, cluster_queue, converted, delete, excluded, gang, job, no_queue, podgroup,
    suspended, too_large, visible, wrong_queue,
};
use super::upgrade::harms_nobody;
use crate::cluster::{condition, wait};
use crate::helm::{PROGRAMS, SYSTEM, Site};
use crate::registry::{Outcome, Test, need};
use crate::service::own_address;
use crate::world::World;

const ADMISSION: &str = "admission-controller";
const GANG: &str = "gang-scheduler";
const AGENT: &str = "node-agent";

/// The server of the charts, started by the first test that needs it and ended by the last.
type Shared = Arc<Mutex<Option<Site>>>;

/// Every test of this file; they build on each other in this order, and each can be run alone.
pub(super) fn all() -> Vec<Test> {
    let mut tests = Vec::new();
    let shared = Shared::default();
    macro_rules! on_a_server {
        ($($name:literal => $run:ident),* $(,)?) => {$({
            let shared = shared.clone();
            tests.push(Test::new(concat!("charts/installed/", $name), move |world| {
                let shared = shared.clone();
                async move {
                    need!(possible(&world));
                    let mut slot = started(&shared, &world).await?;
                    $run(slot.as_mut().context("it was just started")?).await?;
                    Ok(Outcome::Passed)
                }
            }).alone());
        })*};
    }
    on_a_server! {
        "definitions_are_established" => established,
        "definitions_and_objects_survive_their_release" => survive,
        "an_unknown_key_leaves_nothing" => refused,
        "every_value_is_accepted_by_the_server" => every_value,
        "replicas_may_be_0" => no_replicas,
        "every_program_has_its_role" => roles,
        "people_have_the_rights_that_kueue_gives_them" => people,
        "programs_start_by_the_charts_arguments" => start,
        "the_authority_is_the_same_everywhere" => same_authority,
        "jobs_are_suspended_and_given_their_scheduler" => suspended,
        "a_kind_of_job_that_appears_later_is_managed" => appears_later,
        "jobs_without_a_queue_are_left_alone" => no_queue,
        "excluded_namespaces_are_left_alone" => excluded,
        "a_wrong_clusterqueue_is_refused" => wrong_queue,
        "v1beta1_is_converted" => converted,
        "who_waits_is_told_by_the_visibility_api" => visible,
        "a_gang_is_admitted_and_bound" => gang,
        "a_podgroup_is_bound" => podgroup,
        "a_pod_that_does_not_fit_is_told_so" => too_large,
        "the_agent_tells_of_its_gpus" => agent,
        "an_upgrade_is_carried_out_and_keeps_the_authority" => upgrade,
        "an_upgrade_harms_nobody_who_runs_or_waits" => harms_nobody,
        "a_rollback_keeps_the_authority" => rollback,
        "nothing_was_forbidden" => nothing_forbidden,
        "no_right_is_given_for_nothing" => all_used,
        "accounts_may_do_nothing_else" => nothing_else,
        "uninstalling_takes_everything_of_the_release" => uninstall,
    }
    let last = "charts/installed/uninstalling_leaves_definitions_and_objects";
    tests.push(
        Test::new(last, move |world| {
            let shared = shared.clone();
            async move {
                need!(possible(&world));
                let mut slot = started(&shared, &world).await?;
                leaves(slot.as_mut().context("it was just started")?).await?;
                // Nobody needs the server any more.
                *slot = None;
                Ok(Outcome::Passed)
            }
        })
        .alone(),
    );
    tests
}

async fn started<'a>(shared: &'a Shared, world: &World) -> Result<MutexGuard<'a, Option<Site>>> {
    let mut slot = shared.lock().await;
    if slot.is_none() {
        *slot = Some(Site::start(world).await?);
    }
    Ok(slot)
}

fn possible(world: &World) -> Result<()> {
    let kubernetes = ["etcd", "kube-apiserver", "kube-controller-manager", "helm"];
    for name in kubernetes.into_iter().chain(PROGRAMS.map(|(name, _)| name)) {
        world.tools.get(name)?;
    }
    own_address()?;
    Ok(())
}

async fn definitions(site: &Site) -> Result<Vec<Value>> {
    let all = site.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").await?;
    Ok(all["items"].as_array().cloned().unwrap_or_default())
}

async fn established(site: &mut Site) -> Result<()> {
    site.definitions().await?;
    wait("15 definitions to be established", Duration::from_secs(30), async || {
        let all = definitions(site).await?;
        let established =
            |one: &Value| condition(one, "Established").is_some_and(|found| found["status"] == "True");
        Ok(all.len() == 15 && all.iter().all(established))
    })
    .await
}

async fn survive(site: &mut Site) -> Result<()> {
    established(site).await?;
    let flavor =
        json!({"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "kept"}, "spec": {}});
    site.applier().await?.must(&flavor).await?;
    site.helm(&["uninstall", "trireme-crds"]).await?;
    let left = definitions(site).await?;
    let leaving = left.iter().filter(|one| !one["metadata"]["deletionTimestamp"].is_null()).count();
    ensure!(left.len() == 15 && leaving == 0, "{} are left, {leaving} are leaving", left.len());
    site.get("/apis/kueue.x-k8s.io/v1beta2/resourceflavors/kept").await.context("its objects")?;
    // The next release takes them over.
    site.definitions().await?;
    Ok(())
}

async fn refused(site: &mut Site) -> Result<()> {
    match site.release(&["--set", "gangScheduler.replicaz=3"]).await {
        Ok(_) => anyhow::bail!("it was taken"),
        Err(error) => ensure!(format!("{error:#}").contains("replicaz"), "{error:#}"),
    }
    let releases = site.helm(&["list", "-n", SYSTEM, "-q"]).await?;
    ensure!(releases.trim().is_empty(), "{releases}");
    Ok(())
}

async fn every_value(site: &mut Site) -> Result<()> {
    site.definitions().await?;
    let program = json!({"nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}], "priorityClassName": "",
        "resources": {"limits": {"memory": "1Gi", "cpu": 2}}, "logFilter": "debug"});
    let with = |more: Value| {
        let mut all = program.clone();
        for (key, value) in more.as_object().into_iter().flatten() {
            all[key] = value.clone();
        }
        all
    };
    // Without metrics.podMonitor: the Prometheus operator is not here.
    let values = json!({
        "nameOverride": "other", "imagePullSecrets": [{"name": "pull"}], "commonLabels": {"team": "ml"},
        "image": {"registry": "r.example", "repository": "x", "tag": "t", "pullPolicy": "Always"},
        "admissionController": with(json!({"podDisruptionBudget": false, "config": {"webhook": {"port": 9000}},
            "webhooks": {"failurePolicy": "Ignore", "timeoutSeconds": 3, "excludedNamespaces": ["kube-system", "quiet"]}})),
        "gangScheduler": with(json!({"config": {"leaseName": "own-lease", "schedulerNames": ["trireme"]}})),
        "nodeAgent": with(json!({"driver": "fake:4xL40S", "config": {"flags": {"migStrategy": "none"}},
            "kubeletDir": "/data/kubelet", "driverRoot": "/run/nvidia/driver", "nvmlLibrary": "/usr/lib/libnvidia-ml.so.1",
            "runtimeClassName": "nvidia", "cdiFolder": "/var/run/cdi"})),
    });
    site.release(&["--set-json", &values.to_string()]).await?;
    let hooks =
        site.get("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/trireme-admission-controller").await?;
    ensure!(hooks["webhooks"][0]["failurePolicy"] == "Ignore", "{hooks}");
    // As most people have it.
    site.release(&[]).await?;
    Ok(())
}

async fn no_replicas(site: &mut Site) -> Result<()> {
    site.definitions().await?;
    let said = site.release(&[]).await?;
    ensure!(!said.contains("The custom resources are missing"), "the notes see the definitions: {said}");
    for (name, _) in PROGRAMS.iter().filter(|(_, kind)| *kind == "deployments") {
        let workload = site.get(&format!("/apis/apps/v1/namespaces/{SYSTEM}/deployments/{name}")).await?;
        ensure!(workload["spec"]["replicas"] == 0, "{name}: {}", workload["spec"]);
    }
    let pods = site.get(&format!("/api/v1/namespaces/{SYSTEM}/pods")).await?;
    ensure!(pods["items"].as_array().is_some_and(Vec::is_empty), "{pods}");
    Ok(())
}

async fn roles(site: &mut Site) -> Result<()> {
    site.release(&[]).await?;
    for (name, _) in PROGRAMS {
        ensure!(site.rights(name).await?.len() > 5, "{name} has no rights");
        let bound = site
            .get(&format!("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/trireme-{name}"))
            .await?;
        ensure!(
            bound["subjects"][0]["name"] == name && bound["subjects"][0]["namespace"] == SYSTEM,
            "{bound}"
        );
    }
    Ok(())
}

/// Who is bound to which ClusterRole in these tests.
const PEOPLE: [(&str, &str); 5] = [
    ("viewer", "view"),
    ("editor", "edit"),
    ("owner", "admin"),
    ("scientist", "kueue-batch-user-role"),
    ("platform", "kueue-batch-admin-role"),
];

async fn people(site: &mut Site) -> Result<()> {
    site.release(&[]).await?;
    let applier = site.applier().await?;
    for (name, role) in PEOPLE {
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}]});
        applier.must(&binding).await?;
    }
    let kueue = "kueue.x-k8s.io";
    let everybody: &[&str] = &["viewer", "editor", "owner", "scientist", "platform"];
    let submitters: &[&str] = &["scientist", "platform"];
    let cases: [(&str, (&str, &str), &[&str]); 12] = [
        ("watch", (kueue, "workloads"), everybody),
        ("get", (kueue, "workloads/status"), everybody),
        ("patch", (kueue, "workloads/status"), &[]),
        ("list", (kueue, "localqueues"), everybody),
        ("delete", (kueue, "workloads"), &["platform"]),
        ("list", (kueue, "clusterqueues"), &["owner", "platform"]),
        ("list", (kueue, "topologies"), &["owner", "platform"]),
        ("create", (kueue, "cohorts"), &["platform"]),
        ("list", ("kubeflow.org", "pytorchjobs"), everybody),
        ("create", ("kubeflow.org", "pytorchjobs"), submitters),
        ("get", ("visibility.kueue.x-k8s.io", "localqueues/pendingworkloads"), everybody),
        (
            "get",
            ("visibility.kueue.x-k8s.io", "clusterqueues/pendingworkloads"),
            &["viewer", "editor", "owner", "platform"],
        ),
    ];
    // A controller of Kubernetes gathers the roles.
    for (verb, kind, who) in cases {
        wait(&format!("who may {verb} {kind:?} to be {who:?}"), Duration::from_secs(30), async || {
            for (user, _) in PEOPLE {
                if site.user_may(user, verb, kind, "team").await? != who.contains(&user) {
                    return Ok(false);
                }
            }
            Ok(true)
        })
        .await?;
    }
    Ok(())
}

async fn start(site: &mut Site) -> Result<()> {
    site.programs().await
}

async fn same_authority(site: &mut Site) -> Result<()> {
    site.programs().await?;
    let bundles = site.bundles().await?;
    let different: BTreeSet<_> = bundles.values().collect();
    ensure!(different.len() == 1 && !different.contains(&None), "{bundles:?}");
    Ok(())
}

async fn timeout_of_webhooks(site: &Site) -> Result<Value> {
    let path =
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/trireme-admission-controller";
    Ok(site.get(path).await?["webhooks"][0]["timeoutSeconds"].clone())
}

async fn upgrade(site: &mut Site) -> Result<()> {
    site.programs().await?;
    let before = site.bundles().await?;
    site.definitions().await?;
    site.release(&["--set", "admissionController.webhooks.timeoutSeconds=7"]).await?;
    ensure!(timeout_of_webhooks(site).await? == 7, "the upgrade was carried out");
    ensure!(site.bundles().await? == before, "the authority is where it was");
    suspended(site).await
}

async fn rollback(site: &mut Site) -> Result<()> {
    site.release(&[]).await?;
    upgrade(site).await?;
    let before = site.bundles().await?;
    site.helm(&["rollback", "trireme", "-n", SYSTEM]).await?;
    ensure!(timeout_of_webhooks(site).await? == 10, "the rollback was carried out");
    ensure!(site.bundles().await? == before, "the authority is where it was");
    suspended(site).await
}

async fn nothing_forbidden(site: &mut Site) -> Result<()> {
    site.programs().await?;
    let requests = site.plane.requests()?;
    for (program, _) in PROGRAMS {
        let own = requests.iter().filter(|request| request.by == program).count();
        ensure!(own > 5, "{program} has sent {own} requests");
    }
    let refused: Vec<_> = requests.iter().filter(|request| request.code == 403).take(5).collect();
    ensure!(refused.is_empty(), "{refused:?}");
    for (program, log) in site.logs()? {
        let lines: Vec<_> =
            log.lines().filter(|line| line.to_lowercase().contains("forbidden")).take(5).collect();
        ensure!(lines.is_empty(), "{program}: {}", lines.join("\n"));
    }
    Ok(())
}

/// Rights whose need does not show in these tests: who has them, a resource with its verbs, and why.
const UNSEEN: &[(&str, &str, &[&str], &str)] = &[
    (ADMISSION, "jobsets", &["get", "list", "watch", "patch", "delete"], "JobSet is not installed here"),
    (ADMISSION, "tfjobs", &["get", "watch", "patch", "delete"], "TFJob is not installed here"),
    (ADMISSION, "xgboostjobs", &["get", "watch", "patch", "delete"], "XGBoostJob is not installed here"),
    (ADMISSION, "paddlejobs", &["get", "watch", "patch", "delete"], "PaddleJob is not installed here"),
    (ADMISSION, "jaxjobs", &["get", "watch", "patch", "delete"], "JAXJob is not installed here"),
    (ADMISSION, "mpijobs", &["get", "watch", "patch", "delete"], "MPIJob is not installed here"),
    (ADMISSION, "rayclusters", &["get", "watch", "patch", "delete"], "RayCluster is not installed here"),
    (ADMISSION, "rayjobs", &["get", "watch", "patch", "delete"], "RayJob is not installed here"),
    (ADMISSION, "rayservices", &["get", "watch", "patch", "delete"], "RayService is not installed here"),
    (ADMISSION, "trainjobs", &["get", "watch", "patch", "delete"], "TrainJob is not installed here"),
    (ADMISSION, "appwrappers", &["get", "watch", "patch", "delete"], "AppWrapper is not installed here"),
    (
        ADMISSION,
        "leaderworkersets",
        &["get", "watch", "patch", "delete"],
        "LeaderWorkerSet is not installed here",
    ),
    (ADMISSION, "nodes", &["list", "watch"], "no flavor has a topology"),
    (ADMISSION, "topologies", &["patch"], "no flavor has a topology"),
    (ADMISSION, "pods", &["get", "patch", "delete"], "no pods are submitted by themselves"),
    (ADMISSION, "pods/status", &["patch"], "no pods are submitted by themselves"),
    (ADMISSION, "deployments", &["get", "list", "watch"], "no Deployment is submitted"),
    (ADMISSION, "statefulsets", &["get"], "read again after a conflict"),
    (ADMISSION, "podtemplates", &["get", "create", "patch", "delete"], "nodes are not asked for"),
    (ADMISSION, "provisioningrequests", &["get", "watch", "create", "delete"], "nodes are not asked for"),
    (ADMISSION, "admissionchecks", &["patch"], "no ClusterQueue has checks"),
    (ADMISSION, "admissionchecks/status", &["patch"], "no ClusterQueue has checks"),
    (ADMISSION, "jobs", &["get", "delete"], "read again after a conflict; none is kept too long"),
    (ADMISSION, "jobs/status", &["patch"], "no Job is evicted"),
    (ADMISSION, "pytorchjobs", &["get", "patch", "delete"], "the one here waits for ever"),
    (
        ADMISSION,
        "workloads",
        &["get", "delete"],
        "read after a conflict; a job that changed is described anew",
    ),
    (ADMISSION, "cohorts/status", &["patch"], "fair sharing is off"),
    (ADMISSION, "secrets", &["patch"], "certificates are renewed after weeks"),
    (ADMISSION, "events", &["patch"], "an event that repeats is counted"),
    (GANG, "events", &["patch"], "an event that repeats is counted"),
    (GANG, "pods", &["get", "delete"], "read after a conflict; a gang that cannot be kept is undone"),
    (GANG, "gangplacements", &["get"], "read after a write without an answer"),
    (AGENT, "events", &["create", "patch"], "the GPUs are well"),
];

/// An admission plugin that is off here asks for it, where an owner has blockOwnerDeletion.
const OF_OWNERS: &str = "/finalizers";

/// The tests before it have shown the way of a job: what no program has used by then needs a reason.
async fn all_used(site: &mut Site) -> Result<()> {
    appears_later(site).await?;
    gang(site).await?;
    podgroup(site).await?;
    too_large(site).await?;
    agent(site).await?;
    let requests = site.plane.requests()?;
    for (program, _) in PROGRAMS {
        let mut unused = site.rights(program).await?;
        for request in requests.iter().filter(|request| request.by == program) {
            unused.remove(&request.right());
        }
        unused.retain(|(_, resource, verb)| {
            !resource.ends_with(OF_OWNERS)
                && !UNSEEN.iter().any(|(who, unseen, verbs, _)| {
                    *who == program && resource == unseen && verbs.contains(&verb.as_str())
                })
        });
        ensure!(unused.is_empty(), "{program} has rights that it does not use: {unused:?}");
    }
    Ok(())
}

async fn nothing_else(site: &mut Site) -> Result<()> {
    site.programs().await?;
    for (program, _) in PROGRAMS {
        for (verb, kind) in [
            ("list", ("", "secrets")),
            ("get", ("", "secrets")),
            ("create", ("", "pods")),
            ("create", ("", "pods/exec")),
            ("create", ("", "serviceaccounts/token")),
            ("patch", ("rbac.authorization.k8s.io", "clusterroles")),
            ("impersonate", ("", "users")),
            ("delete", ("apiextensions.k8s.io", "customresourcedefinitions")),
        ] {
            for namespace in ["team", SYSTEM] {
                ensure!(!site.may(program, verb, kind, namespace).await?, "{program} may {verb} {kind:?}");
            }
        }
    }
    for (program, verb, kind) in [
        (ADMISSION, "create", ("", "pods/eviction")),
        (ADMISSION, "create", ("", "pods/binding")),
        (GANG, "patch", ("batch", "jobs")),
        (GANG, "patch", ("kueue.x-k8s.io", "workloads/status")),
        (AGENT, "delete", ("", "pods")),
        (AGENT, "patch", ("", "nodes/status")),
    ] {
        ensure!(!site.may(program, verb, kind, "team").await?, "{program} may {verb} {kind:?}");
    }
    ensure!(site.may(GANG, "delete", ("", "pods"), "team").await?, "the question can be answered by yes");
    Ok(())
}

async fn uninstall(site: &mut Site) -> Result<()> {
    site.programs().await?;
    site.stop().await?;
    site.helm(&["uninstall", "trireme", "-n", SYSTEM]).await?;
    for path in [
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
        "/apis/apiregistration.k8s.io/v1/apiservices",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "/apis/rbac.authorization.k8s.io/v1/roles",
        "/apis/rbac.authorization.k8s.io/v1/rolebindings",
        "/api/v1/serviceaccounts",
        "/api/v1/configmaps",
        "/api/v1/services",
        "/apis/policy/v1/poddisruptionbudgets",
        "/apis/apps/v1/deployments",
        "/apis/apps/v1/daemonsets",
    ] {
        let left = site.get(&format!("{path}?labelSelector=app.kubernetes.io/instance=trireme")).await?;
        ensure!(left["items"].as_array().is_some_and(Vec::is_empty), "left at {path}: {left}");
    }
    // With the webhooks gone nobody waits for programs that are not there.
    let made = site.applier().await?.must(&job("after", Some("training"), 1, 1)).await?;
    ensure!(made.data["spec"]["suspend"] != true, "{}", made.data["spec"]);
    delete(site, "/apis/batch/v1/namespaces/team/jobs/after").await
}

async fn leaves(site: &mut Site) -> Result<()> {
    site.programs().await?;
    let applier = site.applier().await?;
    let local = json!({"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": "stays", "namespace": "team"},
        "spec": {"clusterQueue": "stays"}});
    for object in [cluster_queue("stays", "1"), local, job("stays", Some("stays"), 1, 2)] {
        applier.must(&object).await?;
    }
    let workloads = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads";
    let own = |all: &Value| -> Option<String> {
        let job = |one: &&Value| one["metadata"]["ownerReferences"][0]["name"] == "stays";
        Some(all["items"].as_array()?.iter().find(job)?["metadata"]["uid"].as_str()?.to_owned())
    };
    wait("a Workload", Duration::from_secs(30), async || Ok(own(&site.get(workloads).await?).is_some()))
        .await?;
    let before = own(&site.get(workloads).await?);
    site.stop().await?;
    site.helm(&["uninstall", "trireme", "-n", SYSTEM]).await?;
    site.helm(&["uninstall", "trireme-crds"]).await?;
    ensure!(definitions(site).await?.len() >= 15, "the definitions stay");
    site.get("/apis/kueue.x-k8s.io/v1beta2/clusterqueues/stays").await.context("the ClusterQueue")?;
    site.get("/apis/kueue.x-k8s.io/v1beta2/namespaces/team/localqueues/stays")
        .await
        .context("the LocalQueue")?;
    ensure!(own(&site.get(workloads).await?) == before, "the Workload is the one it was");
    let job = site.get("/apis/batch/v1/namespaces/team/jobs/stays").await?;
    ensure!(job["spec"]["suspend"] == true, "the job waits as it did: {}", job["spec"]);
    Ok(())
}
