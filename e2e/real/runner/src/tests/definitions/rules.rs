//! The rules of a Workload refuse what those of Kueue's definition refuse. Ours are other words, cheaper for the API server: see
//! `schema::keywords::rule_while` of the crate `crds`.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::cluster::{self, documents};
use crate::registry::{Outcome, Test, need};
use crate::world::World;

/// Requests at a time.
const AT_ONCE: usize = 16;
/// The definition that is compared.
const FILE: &str = "kueue.x-k8s.io_workloads.yaml";
/// Whose definition: part of its group.
const OURS: &str = "ours";
const THEIRS: &str = "theirs";

/// One test for each version of the API.
pub(super) fn all() -> Vec<Test> {
    ["v1beta1", "v1beta2"].map(test).into()
}

fn test(version: &'static str) -> Test {
    Test::new(format!("definitions/rules/{version}"), move |world| async move {
        let running = need!(world.running());
        let peers = need!(world.shared("conformance/crds/kueue")).join(FILE);
        let ours = world.repository.join("crds/generated").join(FILE);
        let client = &running.plane.client;
        let compared = compare(&world, client, &ours, &peers, version).await;
        for whose in [OURS, THEIRS] {
            let path = format!(
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/workloads.{}",
                group(whose, version)
            );
            let gone = cluster::send(client, "DELETE", &path, &json!({})).await;
            // Where they could not be compared, one may be missing.
            if compared.is_ok() {
                gone?;
            }
        }
        compared.map(|()| Outcome::Passed)
    })
}

async fn compare(world: &World, client: &Client, ours: &Path, theirs: &Path, version: &str) -> Result<()> {
    let ours = alone(world, client, ours, OURS, version).await?;
    let theirs = alone(world, client, theirs, THEIRS, version).await?;
    let (mut asked, mut refused) = (0, 0);
    let cases = cases(version);
    let answers = answers(&ours, &cases).await?.into_iter().zip(answers(&theirs, &cases).await?);
    for (case, (ours, theirs)) in cases.iter().zip(answers) {
        for ((change, ours), theirs) in case.changes.iter().zip(ours).zip(theirs) {
            ensure!(
                ours == theirs,
                "{change:?} of {}, {}: {ours:?}, theirs {theirs:?}",
                case.spec,
                case.status
            );
            asked += 1;
            refused += usize::from(!ours.is_empty());
        }
    }
    ensure!(refused > asked / 20 && refused < asked / 2, "{refused} of {asked} are refused");
    Ok(())
}

/// Workloads of one definition.
type Peer = (Api<DynamicObject>, ApiResource);

/// One version of a definition, in a group of its own: no webhook knows it and nothing is converted.
async fn alone(world: &World, client: &Client, file: &Path, whose: &str, version: &str) -> Result<Peer> {
    let group = group(whose, version);
    let mut definition = documents(file)?.into_iter().next().context("no definition")?;
    let mut versions = definition["spec"]["versions"].take();
    let versions = versions.as_array_mut().context("no versions")?;
    versions.retain(|one| one["name"] == version);
    versions.iter_mut().for_each(|one| one["storage"] = true.into());
    definition["spec"]["versions"] = json!(versions);
    definition["spec"]["conversion"] = Value::Null;
    definition["spec"]["group"] = json!(group);
    definition["metadata"] = json!({"name": format!("workloads.{group}")});
    let folder = world.work.join("rules");
    std::fs::create_dir_all(&folder)?;
    let copy = folder.join(format!("{group}.yaml"));
    std::fs::write(&copy, definition.to_string())?;
    let outcome = cluster::install_definitions(client, &[copy]).await?;
    for (name, outcome) in outcome {
        ensure!(outcome.is_ok(), "{name}: {outcome:?}");
    }
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(&group, version, "Workload"));
    Ok((Api::namespaced_with(client.clone(), "default", &kind), kind))
}

fn group(whose: &str, version: &str) -> String {
    format!("{whose}-{version}.rules.example")
}

/// A Workload with a status, and what somebody changes of it.
struct Case {
    name: String,
    spec: Value,
    status: Value,
    changes: Vec<Change>,
}

/// A merge patch.
#[derive(Clone, Debug)]
enum Change {
    Spec(Value),
    Status(Value),
}

fn cases(version: &str) -> Vec<Case> {
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "Test", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let admission = |sets: usize| {
        let sets = (0..sets).map(|number| json!({"name": format!("set-{number}"), "count": 1}));
        json!({"clusterQueue": "queue", "podSetAssignments": sets.collect::<Vec<_>>()})
    };
    let (reserved, admitted) = (condition("QuotaReserved", "True"), condition("Admitted", "True"));
    let statuses = [
        json!({}),
        json!({"conditions": [reserved]}),
        json!({"conditions": [reserved], "admission": admission(1)}),
        json!({"conditions": [condition("QuotaReserved", "False")], "admission": admission(1)}),
        json!({"conditions": [reserved, admitted], "admission": admission(1)}),
        json!({"conditions": [admitted]}),
        json!({"conditions": [condition("QuotaReserved", "False"), condition("Admitted", "False")]}),
    ];
    let sets = |number: usize| {
        let set = |number| json!({"name": format!("set-{number}"), "count": 1, "template": {"spec": {"containers": []}}});
        Value::Array((0..number).map(set).collect())
    };
    let classes = classes(version);
    let no_class = classes.first().map(without).unwrap_or_default();
    let mut specs = vec![json!({"queueName": "one"}), json!({"maximumExecutionTimeSeconds": 60})];
    specs.extend(classes.iter().cloned());
    let mut changes = vec![
        json!({"queueName": "one"}),
        json!({"queueName": "two"}),
        json!({"queueName": null}),
        json!({"maximumExecutionTimeSeconds": 60}),
        json!({"maximumExecutionTimeSeconds": 61}),
        json!({"maximumExecutionTimeSeconds": null}),
        json!({"podSets": sets(2)}),
        json!({"priority": 7}),
        no_class,
    ];
    changes.extend(classes.iter().cloned());
    let mut changes: Vec<Change> = changes.into_iter().map(Change::Spec).collect();
    let of_status = statuses.iter().cloned().chain([
        json!({"admission": admission(2)}),
        json!({"conditions": [reserved], "admission": admission(2)}),
        json!({"conditions": null, "admission": null}),
    ]);
    changes.extend(of_status.map(Change::Status));

    let mut cases = Vec::new();
    for (row, mut spec) in specs.into_iter().enumerate() {
        spec["podSets"] = sets(1);
        spec["priority"] = json!(5);
        for (column, status) in statuses.iter().enumerate() {
            let (name, status) = (format!("w-{row}-{column}"), status.clone());
            cases.push(Case { name, spec: spec.clone(), status, changes: changes.clone() });
        }
    }
    cases
}

/// Ways to say where the priority comes from.
fn classes(version: &str) -> Vec<Value> {
    if version == "v1beta1" {
        let class =
            |source: &str, name: &str| json!({"priorityClassSource": source, "priorityClassName": name});
        let (own, pods) = ("kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass");
        return vec![
            class(own, "high"),
            class(own, "low"),
            class(pods, "high"),
            class(pods, "low"),
            json!({"priorityClassSource": own}),
            json!({"priorityClassSource": pods}),
        ];
    }
    let class = |group: &str, kind: &str, name: &str| json!({"priorityClassRef": {"group": group, "kind": kind, "name": name}});
    vec![
        class("kueue.x-k8s.io", "WorkloadPriorityClass", "high"),
        class("kueue.x-k8s.io", "WorkloadPriorityClass", "low"),
        class("scheduling.k8s.io", "PriorityClass", "high"),
        class("scheduling.k8s.io", "PriorityClass", "low"),
    ]
}

fn without(class: &Value) -> Value {
    let fields = class.as_object().into_iter().flatten();
    fields.map(|(field, _)| (field.clone(), Value::Null)).collect()
}

/// For each case and each change the fields that are complained of, none where the change is taken.
async fn answers((api, kind): &Peer, cases: &[Case]) -> Result<Vec<Vec<Vec<String>>>> {
    let all = cases.iter().map(|case| async move {
        let object = DynamicObject::new(&case.name, kind).data(json!({"spec": case.spec}));
        let what = || format!("{}, {}", case.spec, case.status);
        api.create(&PostParams::default(), &object).await.with_context(what)?;
        let status = json!({"status": case.status});
        let params = PatchParams::default();
        api.patch_status(&case.name, &params, &Patch::Merge(&status)).await.with_context(what)?;
        let dry = PatchParams { dry_run: true, ..params };
        let mut answers = Vec::new();
        for change in &case.changes {
            let answer = match change {
                Change::Spec(spec) => api.patch(&case.name, &dry, &Patch::Merge(json!({"spec": spec}))).await,
                Change::Status(status) => {
                    api.patch_status(&case.name, &dry, &Patch::Merge(json!({"status": status}))).await
                }
            };
            answers.push(match answer {
                Ok(_) => Vec::new(),
                Err(kube::Error::Api(refusal)) => {
                    let causes = refusal.details.iter().flat_map(|details| &details.causes);
                    causes.map(|cause| format!("{} {}", cause.reason, cause.field)).collect()
                }
                Err(error) => return Err(error.into()),
            });
        }
        anyhow::Ok(answers)
    });
    futures::stream::iter(all).buffered(AT_ONCE).try_collect().await
}
