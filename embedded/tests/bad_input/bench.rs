//! A running stack with people who do everything right, and one who makes a mistake.

use std::collections::BTreeSet;
use std::time::Duration;

use cluster_sim::GroupResource;
use embedded::fuzz::panics;
use embedded::objects;
use embedded::stack::{NodeConfig, Stack, StackConfig, Transport};
use kit::{Clock, Rng, Tasks};
use serde_json::{Map, Value, json};

/// The longest that anything takes in a quiet cluster: a retry or two.
const PATIENCE: u64 = 120;
/// Writes in a quiet minute: what is left of backing off. A circle writes hundreds.
const QUIET: usize = 12;

/// A mistake, what is said about it, and what was meant.
pub(crate) struct Mistake {
    what: String,
    anew: bool,
    /// What the user wanted: the pods of the last object run in the end.
    meant: Vec<Value>,
    written: Vec<Value>,
    says: Vec<String>,
}

/// These objects, of which one will be wrong or missing.
pub(crate) fn mistake(meant: Vec<Value>) -> Mistake {
    Mistake { what: String::new(), anew: false, written: meant.clone(), meant, says: Vec::new() }
}

impl Mistake {
    /// In the last object, this is written instead; null removes it.
    pub(crate) fn set(self, pointer: &str, value: Value) -> Self {
        let last = self.written.len() - 1;
        self.set_in(last, pointer, value)
    }

    /// In this object, this is written instead; null removes it.
    pub(crate) fn set_in(mut self, object: usize, pointer: &str, value: Value) -> Self {
        let text = value.to_string();
        self.what = format!("{pointer} = {}", &text[..text.len().min(80)]);
        set(&mut self.written[object], pointer, value);
        self
    }

    /// This object is forgotten.
    pub(crate) fn without(mut self, object: usize) -> Self {
        self.what = format!("without {}", objects::describe(&self.written[object]));
        self.written.remove(object);
        self
    }

    /// One line about it has all these words.
    pub(crate) fn says(mut self, words: &[&str]) -> Self {
        self.says = words.iter().map(|&one| one.to_owned()).collect();
        self
    }

    /// The user does not edit it, but writes it anew.
    pub(crate) fn anew(mut self) -> Self {
        self.anew = true;
        self
    }
}

fn set(object: &mut Value, pointer: &str, value: Value) {
    let (above, field) = pointer.rsplit_once('/').unwrap();
    let field = field.replace("~1", "/");
    if object.pointer(above).is_none() {
        set(object, above, json!({}));
    }
    match object.pointer_mut(above).unwrap() {
        Value::Object(map) if value.is_null() => {
            map.remove(&field);
        }
        above => above[field] = value,
    }
}

/// The merge patch from one to the other, as `kubectl apply` makes it.
fn difference(from: &Value, to: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (from, to) else {
        return (from != to).then(|| to.clone());
    };
    let mut patch = Map::new();
    for (key, value) in new {
        patch.extend(difference(old.get(key).unwrap_or(&Value::Null), value).map(|one| (key.clone(), one)));
    }
    patch.extend(old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), Value::Null)));
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// A PyTorchJob of two workers with a GPU each.
pub(crate) fn training(name: &str, queue: &str) -> Value {
    json!({
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {
            "name": name, "namespace": "default", "labels": { "kueue.x-k8s.io/queue-name": queue },
        },
        "spec": { "pytorchReplicaSpecs": { "Worker": {
            "replicas": 2, "restartPolicy": "Never", "template": template(1),
        } } },
    })
}

/// A pod's template: so many GPUs, and no end.
pub(crate) fn template(gpus: u32) -> Value {
    json!({ "spec": { "restartPolicy": "Never", "containers": [{
        "name": "main", "image": "trainer",
        "resources": { "requests": { "cpu": "1" }, "limits": { "nvidia.com/gpu": gpus.to_string() } },
    }] } })
}

/// A ClusterQueue of GPUs and cores.
pub(crate) fn cluster_queue(name: &str, gpus: u32) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": { "name": name },
        "spec": { "namespaceSelector": {}, "resourceGroups": [{
            "coveredResources": ["nvidia.com/gpu", "cpu"],
            "flavors": [{ "name": "gpu", "resources": [
                { "name": "nvidia.com/gpu", "nominalQuota": gpus.to_string() },
                { "name": "cpu", "nominalQuota": "100" },
            ] }],
        }] },
    })
}

/// A LocalQueue of the ClusterQueue with this name.
pub(crate) fn local_queue(name: &str) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
        "metadata": { "name": name, "namespace": "default" }, "spec": { "clusterQueue": name },
    })
}

fn setup() -> Vec<Value> {
    let mut class = json!({ "kind": "WorkloadPriorityClass", "metadata": { "name": "high" }, "value": 10 });
    let mut flavor = json!({ "kind": "ResourceFlavor", "metadata": { "name": "gpu" }, "spec": {} });
    for object in [&mut class, &mut flavor] {
        object["apiVersion"] = json!("kueue.x-k8s.io/v1beta2");
    }
    vec![class, flavor, cluster_queue("team", 12), local_queue("team"), training("elder", "team")]
}

/// The cluster with its three programs and two nodes of eight GPUs, in virtual time.
pub(crate) struct Bench {
    pub(crate) stack: Stack,
    pub(crate) user: kube::Client,
    /// Pods of the job that has run from the beginning.
    elder: BTreeSet<String>,
    leaders: BTreeSet<String>,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        panics::watch();
        let nodes = ["n1", "n2"].map(|name| NodeConfig {
            name: name.to_owned(),
            profile: "8xA100".to_owned(),
            labels: Default::default(),
        });
        let config = StackConfig {
            nodes: nodes.into(),
            replicas: 1,
            transport: Transport::Memory,
            admission: Default::default(),
            planted: model::planted::Planted::NONE,
            image: None,
        };
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let stack = Stack::start(clock, Rng::seeded(1), Tasks::new(), config).await.unwrap();
        stack.ready().await.unwrap();
        let user = stack.cluster.client_as("user");
        let mut bench = Self { stack, user, elder: BTreeSet::new(), leaders: BTreeSet::new() };
        for object in setup() {
            objects::apply(&bench.user, &object).await.unwrap();
        }
        bench.until("the first job runs", || bench.running("elder") == 2).await;
        bench.elder = bench.uids("elder");
        bench.leaders = bench.leaders();
        bench
    }

    /// Makes one mistake after the other.
    pub(crate) async fn make(&self, mistakes: Vec<Mistake>) {
        let mut wrong = Vec::new();
        for (number, mistake) in mistakes.into_iter().enumerate() {
            let what = mistake.what.clone();
            let well = training(&format!("well-{number}"), "team");
            let outcome = self.make_one(&mistake, &well).await;
            if let Err(problem) = outcome.and(self.clean(&mistake, &well).await) {
                wrong.push(format!("{what}\n    {problem}"));
            }
        }
        assert_eq!(panics::take(), [""; 0]);
        assert!(wrong.is_empty(), "{} mistakes:\n{}", wrong.len(), wrong.join("\n"));
    }

    async fn make_one(&self, mistake: &Mistake, well: &Value) -> Result<(), String> {
        let mut said = Vec::new();
        for object in &mistake.written {
            if let Err(error) = self.create(object).await {
                said.push(format!("refused: {error}"));
            }
        }
        self.create(well).await.map_err(|error| format!("the healthy job is refused: {error}"))?;
        if self.within(PATIENCE, || self.running("well-") == 2).await.is_err() {
            return Err(format!("the healthy job does not run: {:#?}", self.lines()));
        }
        let heard = |lines: &[String]| {
            lines.iter().any(|line| mistake.says.iter().all(|words| line.contains(words.as_str())))
        };
        if !heard(&said) {
            if self.within(PATIENCE, || heard(&self.lines())).await.is_err() {
                said.extend(self.lines());
                return Err(format!("{:?} is not said, but\n      {}", mistake.says, said.join("\n      ")));
            }
            if self.running("mine") > 0 {
                return Err("it runs in spite of the mistake".to_owned());
            }
            self.quiet().await?;
        }
        self.correct(mistake).await?;
        let all_run = || self.running("mine") > 0 && self.running("mine") == self.pods("mine").len();
        if self.within(2 * PATIENCE, all_run).await.is_err() {
            return Err(format!("it does not go on when it is corrected: {:#?}", self.lines()));
        }
        self.undisturbed()
    }

    async fn create(&self, object: &Value) -> Result<(), String> {
        let api = objects::api(&self.user, object).unwrap();
        let object = serde_json::from_value(object.clone()).map_err(|error| error.to_string())?;
        match api.create(&Default::default(), &object).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) => Err(format!("{} {}", status.code, status.message)),
            Err(other) => Err(other.to_string()),
        }
    }

    /// As `kubectl apply` does; what cannot be changed is made anew.
    async fn correct(&self, mistake: &Mistake) -> Result<(), String> {
        for meant in &mistake.meant {
            let name = meant["metadata"]["name"].as_str().unwrap();
            let there = objects::api(&self.user, meant).unwrap().get_opt(name).await.unwrap();
            let written =
                mistake.written.iter().find(|one| objects::describe(one) == objects::describe(meant));
            match (there, written.and_then(|written| difference(written, meant))) {
                (None, _) => self.create(meant).await?,
                (Some(_), None) => {}
                (Some(_), Some(patch)) => {
                    if mistake.anew || objects::patch(&self.user, meant, &patch).await.is_err() {
                        self.delete(meant).await?;
                        self.create(meant).await?;
                    }
                }
            }
        }
        Ok(())
    }

    async fn delete(&self, object: &Value) -> Result<(), String> {
        let name = object["metadata"]["name"].as_str().unwrap();
        let api = objects::api(&self.user, object).unwrap();
        let _ = objects::delete(&self.user, object).await;
        for _ in 0..PATIENCE {
            if api.get_opt(name).await.unwrap().is_none() {
                return Ok(());
            }
            pass(1).await;
        }
        Err(format!("{} cannot be deleted", objects::describe(object)))
    }

    async fn clean(&self, mistake: &Mistake, well: &Value) -> Result<(), String> {
        for object in [well].into_iter().chain(mistake.meant.iter().rev()) {
            self.delete(object).await?;
        }
        let left = || {
            self.pods("mine").len() + self.pods("well").len() + self.all("kueue.x-k8s.io", "workloads").len()
        };
        self.within(PATIENCE, || left() == 1)
            .await
            .map_err(|()| format!("something is left behind: {:#?}", self.lines()))?;
        for event in self.all("", "events") {
            let name = event["metadata"]["name"].as_str().unwrap().to_owned();
            let events = self.stack.cluster.store("user");
            let _ = events.delete(&GroupResource::core("events"), "default", &name, Default::default()).await;
        }
        Ok(())
    }

    /// Nobody writes in a circle.
    async fn quiet(&self) -> Result<(), String> {
        pass(30).await;
        let before = self.stack.cluster.revision();
        pass(60).await;
        let mut writes = Vec::new();
        for commit in self.stack.cluster.log_since(before) {
            let resource = commit.resource.to_string();
            if !resource.starts_with("leases") && !resource.starts_with("nodes") {
                writes.push(format!(
                    "{} {:?} {resource} {} {}",
                    commit.writer, commit.verb, commit.key, commit.subresource
                ));
            }
        }
        match writes.len() {
            0..=QUIET => Ok(()),
            many => Err(format!("{many} writes in a quiet minute: {:#?}", &writes[..QUIET])),
        }
    }

    fn undisturbed(&self) -> Result<(), String> {
        let ok = self.uids("elder") == self.elder && self.running("elder") == 2;
        if !ok {
            return Err("a running job was disturbed".to_owned());
        }
        let leaders = self.leaders();
        if leaders == self.leaders { Ok(()) } else { Err(format!("a program restarted: {leaders:?}")) }
    }

    async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        assert!(self.within(PATIENCE, holds).await.is_ok(), "{what}: {:#?}", self.lines());
    }

    async fn within(&self, seconds: u64, holds: impl Fn() -> bool) -> Result<(), ()> {
        for _ in 0..seconds {
            if holds() {
                return Ok(());
            }
            pass(1).await;
        }
        Err(())
    }

    fn all(&self, group: &str, resource: &str) -> Vec<Value> {
        let store = self.stack.cluster.store("user");
        store.list(&GroupResource::new(group, resource), None).iter().map(|one| one.value().clone()).collect()
    }

    fn pods(&self, prefix: &str) -> Vec<Value> {
        let mut pods = self.all("", "pods");
        pods.retain(|pod| pod["metadata"]["name"].as_str().unwrap().starts_with(prefix));
        pods
    }

    fn running(&self, prefix: &str) -> usize {
        self.pods(prefix).iter().filter(|pod| pod["status"]["phase"] == "Running").count()
    }

    fn uids(&self, prefix: &str) -> BTreeSet<String> {
        self.pods(prefix).iter().map(|pod| pod["metadata"]["uid"].as_str().unwrap().to_owned()).collect()
    }

    fn leaders(&self) -> BTreeSet<String> {
        let leases = self.all("coordination.k8s.io", "leases");
        leases.iter().filter_map(|lease| Some(lease["spec"]["holderIdentity"].as_str()?.to_owned())).collect()
    }

    /// What users read: every condition and every event.
    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (group, resource) in [
            ("kueue.x-k8s.io", "workloads"),
            ("kueue.x-k8s.io", "clusterqueues"),
            ("kueue.x-k8s.io", "localqueues"),
            ("scheduling.volcano.sh", "podgroups"),
            ("", "pods"),
        ] {
            for object in self.all(group, resource) {
                for condition in object["status"]["conditions"].as_array().into_iter().flatten() {
                    lines.push(format!(
                        "{} {}: {}={} {}: {}",
                        object["kind"].as_str().unwrap(),
                        object["metadata"]["name"].as_str().unwrap(),
                        condition["type"].as_str().unwrap(),
                        condition["status"].as_str().unwrap(),
                        condition["reason"].as_str().unwrap_or_default(),
                        condition["message"].as_str().unwrap_or_default(),
                    ));
                }
            }
        }
        for event in self.all("", "events") {
            let about = &event["involvedObject"];
            lines.push(format!(
                "{} {}: event {}: {}",
                about["kind"].as_str().unwrap(),
                about["name"].as_str().unwrap(),
                event["reason"].as_str().unwrap_or_default(),
                event["message"].as_str().unwrap_or_default(),
            ));
        }
        lines.retain(|line| !line.contains(" elder") && !line.contains("-elder") && !line.contains("well-"));
        lines
    }
}

pub(crate) async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}
