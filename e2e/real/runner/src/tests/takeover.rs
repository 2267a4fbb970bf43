//! Kueue stops, our program works on, stops, Kueue comes back: nobody whose workload runs notices.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::{Applier, condition, get, install_definitions, send, wait, yaml_files};
use crate::kueue::{self, Kueue, LEASE};
use crate::process::{Process, free_port};
use crate::registry::{Outcome, Test, need};
use crate::service::{endpoints, own_address};
use crate::world::World;
use control_plane::ControlPlane;

const JOBS: &str = "/apis/batch/v1/namespaces/team/jobs";
const PODS: &str = "/api/v1/namespaces/team/pods";
const WORKLOADS: &str = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/kueue-mutating-webhook-configuration";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/workloads.kueue.x-k8s.io";
/// Jobs at the beginning, each of one pod; so many have quota.
const WORKLOADS_AT_FIRST: usize = 200;
const QUOTA: usize = 160;
/// Pods that are said to run.
const RUNNING: usize = 20;
/// Jobs that end in each phase.
const ENDING: usize = 10;

pub(crate) fn all() -> Vec<Test> {
    let stand_in =
        Test::new("takeover/a_stand_in_of_kueue_stops_and_comes_back", |world: Arc<World>| async move {
            need!(possible(&world));
            let mut site = Site::start(&world, "takeover", world.repository.join("crds/generated")).await?;
            let kueue = Kueue::stand_in(&site.plane, QUOTA);
            site.there_and_back(kueue).await?;
            Ok(Outcome::Passed)
        });
    let manager = Test::new("takeover/kueue_itself_stops_and_comes_back", |world: Arc<World>| async move {
        need!(possible(&world));
        let binary =
            need!(std::env::var_os("KUEUE_MANAGER").context("KUEUE_MANAGER names no manager of Kueue"));
        // Kueue's own definitions, where they are to be had.
        let definitions = world.shared("conformance/crds/kueue");
        let definitions = definitions.unwrap_or_else(|_| world.repository.join("crds/generated"));
        let mut site = Site::start(&world, "takeover-kueue", definitions).await?;
        let kueue = Kueue::manager(Path::new(&binary), &site.work, &site.plane);
        site.there_and_back(kueue).await?;
        Ok(Outcome::Passed)
    });
    vec![stand_in.alone(), manager.alone()]
}

fn possible(world: &World) -> Result<()> {
    for name in ["etcd", "kube-apiserver", "kube-controller-manager", "admission-controller"] {
        world.tools.get(name)?;
    }
    own_address().map(|_| ())
}

/// An API server as Kueue's chart leaves it, and our program beside.
struct Site {
    plane: ControlPlane,
    work: PathBuf,
    binary: PathBuf,
    config: PathBuf,
    ours: Option<Process>,
}

impl Site {
    async fn start(world: &World, name: &str, definitions: PathBuf) -> Result<Self> {
        let work = world.work.join(name);
        std::fs::create_dir_all(&work)?;
        // One folder of process ids, whoever ends the run.
        std::os::unix::fs::symlink(world.work.join("pids"), work.join("pids"))?;
        let plane = ControlPlane::start(&work, &world.tools).await?;
        let files: Vec<PathBuf> = yaml_files(&definitions)?;
        let kueues = files.into_iter().filter(|file| file.display().to_string().contains("kueue.x-k8s.io_"));
        let installed = install_definitions(&plane.client, &kueues.collect::<Vec<_>>()).await?;
        ensure!(installed.values().all(Result::is_ok), "{installed:?}");
        let port = free_port()?;
        let config = work.join("ours.yaml");
        std::fs::write(&config, json!({"webhook": {"port": port}, "takeOver": {}}).to_string())?;
        let binary = world.tools.get("admission-controller")?.to_owned();
        let site = Self { plane, work, binary, config, ours: None };
        site.install(port).await?;
        Ok(site)
    }

    /// Both programs' Services, the way to ours, and what sends requests to Kueue.
    async fn install(&self, port: u16) -> Result<()> {
        let applier = Applier::new(self.plane.client.clone()).await?;
        let service = |namespace: &str, name: &str| {
            json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": namespace}, "spec": {"ports": [{"name": "https", "port": 443}]}})
        };
        let behind = endpoints("trireme-system", "admission-controller", "ours", own_address()?, port);
        for name in ["team", kueue::NAMESPACE, "trireme-system"] {
            applier
                .must(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
                .await?;
        }
        let ours = service("trireme-system", "admission-controller");
        for object in [service(kueue::NAMESPACE, kueue::SERVICE), ours].iter().chain(&behind) {
            applier.must(object).await?;
        }
        // Kueue's definitions have Kueue convert.
        let conversion = json!({"spec": {"conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": kueue::NAMESPACE, "name": kueue::SERVICE, "path": "/convert"}}}}}});
        send(&self.plane.client, "PATCH", DEFINITION, &conversion).await.map(|_| ())
    }

    /// A flavor and two queues, as an administrator makes them while Kueue runs.
    async fn make_queues(&self) -> Result<()> {
        let applier = Applier::new(self.plane.client.clone()).await?;
        let kueue = |kind: &str, name: &str, spec: Value| {
            json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind,
            "metadata": {"name": name}, "spec": spec})
        };
        let mut local = kueue("LocalQueue", "team", json!({"clusterQueue": "team"}));
        local["metadata"]["namespace"] = json!("team");
        let quota = json!({"name": "cpu", "nominalQuota": format!("{}m", QUOTA * 100)});
        for object in [
            kueue("ResourceFlavor", "default", json!({"nodeLabels": {"pool": "default"}})),
            kueue(
                "ClusterQueue",
                "team",
                json!({"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"],
                "flavors": [{"name": "default", "resources": [quota]}]}]}),
            ),
            local,
        ] {
            applier.must(&object).await?;
        }
        Ok(())
    }

    async fn get(&self, path: &str) -> Result<Value> {
        get(&self.plane.client, path).await
    }

    async fn list(&self, path: &str) -> Result<Vec<Value>> {
        Ok(self.get(path).await?["items"].as_array().cloned().unwrap_or_default())
    }

    fn start_ours(&mut self) -> Result<()> {
        let mut command = Command::new(&self.binary);
        command
            .args(["--admin-address", &format!("127.0.0.1:{}", free_port()?)])
            .arg("--config")
            .arg(&self.config);
        command.arg("--kubeconfig").arg(self.work.join("control-plane/admission-controller.kubeconfig"));
        command.env("POD_NAME", "ours");
        self.ours = Some(Process::start(&self.work, "ours", &mut command)?);
        Ok(())
    }

    async fn hand_back(&self) -> Result<()> {
        let mut command = tokio::process::Command::new(&self.binary);
        command.arg("--config").arg(&self.config).arg("--hand-back");
        command.arg("--kubeconfig").arg(self.work.join("control-plane/admission-controller.kubeconfig"));
        crate::registry::output(&mut command).await.map(|_| ())
    }

    async fn there_and_back(&mut self, mut kueue: Kueue) -> Result<()> {
        let outcome = self.over_and_back(&mut kueue).await;
        outcome.with_context(|| kueue.log_end())
    }

    async fn over_and_back(&mut self, kueue: &mut Kueue) -> Result<()> {
        kueue.start().await?;
        self.make_queues().await?;
        for number in 0..WORKLOADS_AT_FIRST {
            send(&self.plane.client, "POST", JOBS, &job(&format!("job-{number:03}"))).await?;
        }
        self.admitted(QUOTA).await.context("Kueue admits")?;
        self.run_some().await?;
        if !kueue.serves() {
            self.configure_kueues_webhook().await?;
        }
        let first = self.seen().await?;
        let asked_before = self.asked_about().await?;

        self.start_ours()?;
        kueue.stop().await?;
        self.taken().await?;
        // Or the pods of the next replica would wait for a webhook that is not there.
        let spared =
            json!({"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["trireme-system"]});
        let spares =
            |one: &Value| one["matchExpressions"].as_array().is_some_and(|all| all.contains(&spared));
        let asked = self.asked_about().await?;
        ensure!(!asked.is_empty() && asked.iter().all(spares), "{asked:?}");
        self.unharmed(&first).await.context("after our program has taken over")?;
        let ended = self.end_some().await?;
        self.admitted(QUOTA + ENDING).await.context("our program goes on where Kueue stopped")?;
        self.finished(&ended).await?;
        // Kueue's own webhook, answered here: a job that is not suspended is suspended.
        let mut late = job("late");
        late["spec"]["suspend"] = json!(false);
        let late = send(&self.plane.client, "POST", JOBS, &late).await?;
        ensure!(late["spec"]["suspend"] == true, "{}", late["spec"]);
        self.get("/apis/kueue.x-k8s.io/v1beta1/namespaces/team/workloads?limit=1")
            .await
            .context("v1beta1, converted here")?;
        self.unharmed(&first).await.context("while our program works")?;
        let second = self.seen().await?;
        let is_new = |uid: &&String| !first.workloads.contains_key(*uid);
        let admitted_here = second.workloads.keys().find(is_new).context("our program has admitted some")?;
        ensure!(!self.kueue_could_withdraw(admitted_here).await?, "before it is given back");

        kueue.start().await?;
        self.hand_back().await?;
        self.ours.take().context("it runs")?.stop().await?;
        wait("Kueue to hold its Lease", Duration::from_secs(40), async || {
            Ok(holder(&self.get(LEASE).await?) == "kueue")
        })
        .await?;
        let ended = self.end_some().await?;
        self.admitted(QUOTA + 2 * ENDING).await.context("Kueue goes on where our program stopped")?;
        self.finished(&ended).await?;
        self.unharmed(&second).await.context("after Kueue came back")?;
        ensure!(
            self.kueue_could_withdraw(admitted_here).await?,
            "the admission that our program wrote would stay for ever"
        );
        let hooks = self.get(MUTATING).await?;
        let service = &hooks["webhooks"][0]["clientConfig"]["service"];
        ensure!(service["name"] == kueue::SERVICE && service["namespace"] == kueue::NAMESPACE, "{hooks}");
        let asked = self.asked_about().await?;
        ensure!(asked == asked_before, "{asked:?}, before {asked_before:?}");
        let conversion = &self.get(DEFINITION).await?["spec"]["conversion"]["webhook"]["clientConfig"];
        ensure!(conversion["service"]["name"] == kueue::SERVICE, "{conversion}");
        kueue.stop().await
    }

    /// Whether the admission of the Workload with this uid would go if Kueue applied a status without quota. Nothing is written.
    async fn kueue_could_withdraw(&self, uid: &str) -> Result<bool> {
        let workloads = self.list(WORKLOADS).await?;
        let found = workloads.into_iter().find(|one| one["metadata"]["uid"] == uid);
        let workload = found.context("it is there")?;
        let name = workload["metadata"]["name"].as_str().context("a name")?;
        let mut conditions = workload["status"]["conditions"].clone();
        for one in conditions.as_array_mut().into_iter().flatten() {
            one["status"] = json!("False");
        }
        let status = json!({"conditions": conditions});
        let applied = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"name": name, "namespace": "team"}, "status": status});
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta2", "Workload"));
        let api: Api<DynamicObject> = Api::namespaced_with(self.plane.client.clone(), "team", &resource);
        let params = PatchParams::apply("kueue-admission").force().dry_run();
        let after = api.patch_status(name, &params, &Patch::Apply(&applied)).await?;
        Ok(after.data["status"]["admission"].is_null())
    }

    /// The namespaces that Kueue's webhooks select.
    async fn asked_about(&self) -> Result<Vec<Value>> {
        let hooks = self.get(MUTATING).await?;
        let hooks = hooks["webhooks"].as_array().into_iter().flatten();
        Ok(hooks.map(|hook| hook["namespaceSelector"].clone()).collect())
    }

    /// So many workloads were ever admitted.
    async fn admitted(&self, count: usize) -> Result<()> {
        wait(&format!("{count} workloads to be admitted"), Duration::from_secs(60), async || {
            let workloads = self.list(WORKLOADS).await?;
            let jobs = self.list(JOBS).await?;
            let started = jobs.iter().filter(|job| job["spec"]["suspend"] == false).count();
            Ok(workloads.iter().filter(|one| holds(one, "Admitted")).count() == count && started == count)
        })
        .await
    }

    /// Pods are made for what was admitted, and some of them are said to run, as their kubelets would.
    async fn run_some(&self) -> Result<()> {
        wait("a pod for each admitted workload", Duration::from_secs(60), async || {
            Ok(self.list(PODS).await?.len() == QUOTA)
        })
        .await?;
        let pods = self.list(PODS).await?;
        for pod in pods.iter().rev().take(RUNNING) {
            self.set_pod(
                pod,
                json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}),
            )
            .await?;
        }
        wait("their jobs to say so", Duration::from_secs(30), async || {
            let ready = self.list(JOBS).await?.iter().filter(|job| job["status"]["ready"] == 1).count();
            Ok(ready == RUNNING)
        })
        .await
    }

    async fn set_pod(&self, pod: &Value, status: Value) -> Result<()> {
        let path = format!("{PODS}/{}/status", pod["metadata"]["name"].as_str().context("a name")?);
        send(&self.plane.client, "PATCH", &path, &json!({"status": status})).await.map(|_| ())
    }

    /// Ends the pods of ten jobs; returns the jobs' names. Which jobs have pods is whoever's choice who admitted them.
    async fn end_some(&self) -> Result<Vec<String>> {
        let mut ended = Vec::new();
        let pods = self.list(PODS).await?;
        for pod in pods.iter().filter(|pod| pod["status"]["phase"] != "Succeeded").take(ENDING) {
            let job = pod["metadata"]["labels"]["job-name"].as_str().context("the pod of a job")?;
            ended.push(job.to_owned());
            self.set_pod(pod, json!({"phase": "Succeeded"})).await?;
        }
        ensure!(ended.len() == ENDING, "{ended:?}");
        Ok(ended)
    }

    async fn finished(&self, jobs: &[String]) -> Result<()> {
        wait("the workloads of jobs that ended to be Finished", Duration::from_secs(30), async || {
            let workloads = self.list(WORKLOADS).await?;
            let of = |job: &String| {
                workloads.iter().find(|one| one["metadata"]["ownerReferences"][0]["name"] == **job)
            };
            Ok(jobs.iter().all(|job| of(job).is_some_and(|one| holds(one, "Finished"))))
        })
        .await
    }

    /// Kueue's webhook for Jobs: whom it calls is not there any more.
    async fn configure_kueues_webhook(&self) -> Result<()> {
        let webhook = json!({"name": "mjob.kb.io", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            "clientConfig": {"service": {"namespace": kueue::NAMESPACE, "name": kueue::SERVICE, "path": "/mutate-batch-v1-job"}},
            "rules": [{"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}]});
        let applier = Applier::new(self.plane.client.clone()).await?;
        let object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "kueue-mutating-webhook-configuration"}, "webhooks": [webhook]});
        applier.must(&object).await.map(|_| ())
    }

    /// Waits until our program holds the Lease and is asked instead of Kueue.
    async fn taken(&mut self) -> Result<()> {
        let (plane, ours) = (&self.plane, &mut self.ours);
        let taken = wait("our program to take over", Duration::from_secs(40), async || {
            ours.as_mut().context("it runs")?.alive()?;
            let called =
                get(&plane.client, MUTATING).await?["webhooks"][0]["clientConfig"]["service"]["name"].clone();
            Ok(holder(&get(&plane.client, LEASE).await?) == "ours" && called == "admission-controller")
        });
        taken.await.with_context(|| self.ours.as_ref().map_or_else(String::new, |ours| ours.log_end(20)))
    }

    /// The status of every admitted workload (its admission, and its conditions but for sentences), since when each of the others
    /// waits, and the uid of every pod.
    async fn seen(&self) -> Result<Seen> {
        let (mut workloads, mut waiting) = (BTreeMap::new(), BTreeMap::new());
        let all = self.list(WORKLOADS).await?;
        for one in all.iter().filter(|one| !holds(one, "Admitted")) {
            let uid = one["metadata"]["uid"].as_str().context("a uid")?;
            let said = condition(one, "QuotaReserved");
            waiting.insert(uid.to_owned(), said.map(|said| said["lastTransitionTime"].clone()));
        }
        for one in all.iter().filter(|one| holds(one, "Admitted")) {
            let mut conditions = one["status"]["conditions"].as_array().cloned().unwrap_or_default();
            // Whether pods are ready the stand-in does not tell, as Kueue would.
            conditions.retain(|condition| condition["type"] != "PodsReady");
            let fields = ["type", "status", "reason", "lastTransitionTime"];
            let told = |condition: &Value| fields.map(|field| condition[field].clone());
            let mut conditions: Vec<_> = conditions.iter().map(told).map(|told| json!(told)).collect();
            conditions.sort_by_key(Value::to_string);
            let uid = one["metadata"]["uid"].as_str().context("a uid")?;
            workloads.insert(uid.to_owned(), (one["status"]["admission"].clone(), conditions));
        }
        let pods = self.list(PODS).await?;
        let pods = pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        let pods = pods.filter_map(|pod| pod["metadata"]["uid"].as_str().map(str::to_owned)).collect();
        Ok(Seen { workloads, waiting, pods })
    }

    /// No eviction, no pod less, and the same statuses, but for those that have ended since.
    async fn unharmed(&self, before: &Seen) -> Result<()> {
        // Whatever a program does to what it finds, it does at once.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let evicted: Vec<_> = self
            .list(WORKLOADS)
            .await?
            .into_iter()
            .filter(|one| condition(one, "Evicted").is_some())
            .collect();
        ensure!(
            evicted.is_empty(),
            "{} workloads were evicted, the first: {}",
            evicted.len(),
            evicted[0]["status"]
        );
        let now = self.seen().await?;
        let lost: Vec<_> = before.pods.iter().filter(|uid| !now.pods.contains(uid)).collect();
        ensure!(lost.is_empty(), "{} pods are gone", lost.len());
        for (uid, status) in &before.workloads {
            let after = now.workloads.get(uid).with_context(|| format!("{uid} is no longer admitted"))?;
            let ended = after.1.iter().any(|condition| condition[0] == "Finished");
            let same = after.0 == status.0 && status.1.iter().all(|condition| after.1.contains(condition));
            ensure!(
                same && (ended || after.1.len() == status.1.len()),
                "{uid}: before {status:?}, now {after:?}"
            );
        }
        // Who waits may be told another reason, or one at all; it has waited all the time.
        for (uid, since) in before.waiting.iter().filter(|(_, since)| since.is_some()) {
            let after = now.waiting.get(uid);
            ensure!(
                after.is_some_and(|after| after == since) || now.workloads.contains_key(uid),
                "{uid} waited since {since:?}, now {after:?}"
            );
        }
        Ok(())
    }
}

struct Seen {
    workloads: BTreeMap<String, (Value, Vec<Value>)>,
    waiting: BTreeMap<String, Option<Value>>,
    pods: Vec<String>,
}

fn holds(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|found| found["status"] == "True")
}

/// Who holds a Lease: `kueue`, `ours`, or nobody.
fn holder(lease: &Value) -> &'static str {
    match lease["spec"]["holderIdentity"].as_str().unwrap_or_default() {
        "" => "",
        holder if holder.starts_with("ours_") => "ours",
        _ => "kueue",
    }
}

fn job(name: &str) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "team"}},
        "spec": {"suspend": true, "parallelism": 1, "completions": 1, "template": {"spec": {"restartPolicy": "Never",
            "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "100m"}}}]}}}})
}
