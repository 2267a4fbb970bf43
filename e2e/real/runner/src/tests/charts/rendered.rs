//! What the charts make, compared with what it must agree with: the programs, and the generated definitions.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use admission_controller::Configuration;
use admission_controller::config::{FeatureGates, Integrations};
use admission_controller::visibility::{VERSIONS, api_service_name, api_services};
use admission_controller::webhook::{CONFIGURATION, webhook_configurations_for};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::schema;
use crate::cluster::{documents, yaml_files};
use crate::helm::{Helm, PROGRAMS};
use crate::registry::{Outcome, Test, need};
use crate::world::World;

/// The key of each program in the values.
const KEYS: [&str; 3] = ["admissionController", "gangScheduler", "nodeAgent"];
const VOLCANO: &str = "scheduling.volcano.sh";

/// Every test of this file.
pub(super) fn all() -> Vec<Test> {
    let mut tests = vec![
        Test::new("charts/lint_is_clean", lint),
        Test::new("charts/only_what_is_enabled_is_rendered", enabled),
        Test::new("charts/every_object_has_the_recommended_labels", labels),
        Test::new("charts/every_container_says_what_it_needs", containers),
        Test::new("charts/the_authority_may_be_written_where_it_is_needed", authority),
        Test::new("charts/the_visibility_api_is_that_of_the_program", api_services_agree),
        Test::new("charts/the_roles_of_people_are_named_as_kueues", roles_of_people),
        Test::new("charts/in_kueues_place_its_webhooks_are_those", in_kueues_place),
        Test::new("charts/in_kueues_place_the_lease_is_kueues", kueues_lease),
        Test::new("charts/sections_that_are_null_are_as_good_as_absent", null_sections),
        Test::new("charts/what_is_not_served_has_no_api_service", unserved),
        Test::new("charts/definitions/are_those_generated", generated),
        Test::new("charts/definitions/another_namespace_converts", |world| {
            converts(world, "conversion.namespace=quota", "namespace", "quota")
        }),
        Test::new("charts/definitions/another_service_converts", |world| {
            converts(world, "conversion.service=other", "name", "other")
        }),
        Test::new("charts/definitions/without_conversion", without_conversion),
    ];
    for group in ["kueue.x-k8s.io", VOLCANO, "trireme.dev"] {
        tests.push(Test::new(format!("charts/definitions/without_{group}"), move |world| {
            without_group(world, group)
        }));
    }
    for (key, (program, _)) in KEYS.into_iter().zip(PROGRAMS) {
        let name = format!("charts/config_keys_are_those_of_{program}");
        tests.push(Test::new(name, move |world| config_keys(world, key, program)));
    }
    for (name, set, config) in configurations() {
        let name = format!("charts/webhooks_are_those_of_the_program/{name}");
        tests.push(Test::new(name, move |world| hooks(world, set, config.clone())));
    }
    tests
}

/// Configurations that give different webhooks: a name, the value that says so, the same for the program.
fn configurations() -> [(&'static str, &'static str, Configuration); 5] {
    let default = Configuration::default();
    let all = Configuration { manage_jobs_without_queue_name: true, ..default.clone() };
    let frameworks = vec!["batch/job".to_owned()];
    let one = Configuration { integrations: Integrations::of(frameworks), ..default.clone() };
    let feature_gates = FeatureGates { partial_admission: false, ..FeatureGates::default() };
    let whole = Configuration { feature_gates, ..default.clone() };
    let elsewhere = Configuration { namespace: "quota".to_owned(), ..default.clone() };
    [
        ("by_default", "", default),
        ("without_the_label_too", "admissionController.config.manageJobsWithoutQueueName=true", all),
        ("for_one_kind", "admissionController.config.integrations.frameworks={batch/job}", one),
        (
            "without_partial_admission",
            "admissionController.config.featureGates.PartialAdmission=false",
            whole,
        ),
        ("in_another_namespace", "", elsewhere),
    ]
}

async fn lint(world: Arc<World>) -> Result<Outcome> {
    let helm = need!(Helm::new(&world));
    let said = helm.run(None, &["lint", "--strict", "trireme", "trireme-crds"]).await?;
    ensure!(said.contains("0 chart(s) failed") && !said.contains("[WARNING]"), "{said}");
    Ok(Outcome::Passed)
}

fn component(object: &Value) -> Option<&str> {
    object["metadata"]["labels"]["app.kubernetes.io/component"].as_str()
}

async fn enabled(world: Arc<World>) -> Result<Outcome> {
    let helm = need!(Helm::new(&world));
    for wanted in 0..8_u32 {
        let on = |index: usize| wanted & (1 << index) != 0;
        let flags: Vec<_> =
            KEYS.iter().enumerate().map(|(index, key)| format!("{key}.enabled={}", on(index))).collect();
        let objects = helm.template("trireme", &["--set", &flags.join(",")]).await?;
        let seen: BTreeSet<_> = objects.iter().filter_map(component).collect();
        let expected: BTreeSet<_> =
            PROGRAMS.iter().enumerate().filter(|(index, _)| on(*index)).map(|(_, (name, _))| *name).collect();
        ensure!(seen == expected, "{flags:?} gives objects of {seen:?}");
        let hooks = objects
            .iter()
            .filter(|one| one["kind"].as_str().is_some_and(|kind| kind.ends_with("WebhookConfiguration")));
        let hooks = hooks.count();
        ensure!(hooks == if on(0) { 2 } else { 0 }, "{flags:?} gives {hooks} webhook configurations");
    }
    Ok(Outcome::Passed)
}

async fn labels(world: Arc<World>) -> Result<Outcome> {
    let objects = need!(Helm::new(&world)).template("trireme", &[]).await?;
    for object in objects {
        for label in ["name", "instance", "component", "version", "managed-by"] {
            let value = &object["metadata"]["labels"][format!("app.kubernetes.io/{label}")];
            ensure!(value.is_string(), "{} {} lacks {label}", object["kind"], object["metadata"]["name"]);
        }
    }
    Ok(Outcome::Passed)
}

async fn containers(world: Arc<World>) -> Result<Outcome> {
    let objects = need!(Helm::new(&world)).template("trireme", &[]).await?;
    for (program, _) in PROGRAMS {
        let kind = |one: &&Value| component(one) == Some(program) && one["spec"]["template"].is_object();
        let object = objects.iter().find(kind).with_context(|| format!("who runs {program}"))?;
        let pod = &object["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        for path in ["/resources/requests/cpu", "/resources/requests/memory", "/resources/limits/memory"] {
            ensure!(container.pointer(path).is_some(), "{program}: {path}");
        }
        for probe in ["livenessProbe", "readinessProbe"] {
            ensure!(container[probe]["httpGet"]["port"] == "admin", "{program}: {probe}");
        }
        ensure!(container["securityContext"]["readOnlyRootFilesystem"] == true, "{program}: its file system");
        let unprivileged = pod["securityContext"]["runAsNonRoot"] == true
            && container["securityContext"]["allowPrivilegeEscalation"] == false
            && container["securityContext"]["capabilities"]["drop"] == json!(["ALL"]);
        // NVML needs the devices of the host.
        ensure!(unprivileged == (program != "node-agent"), "{program}: its privileges");
        ensure!(pod["serviceAccountName"] == program, "{program}: its account");
    }
    Ok(Outcome::Passed)
}

async fn hooks(world: Arc<World>, set: &str, config: Configuration) -> Result<Outcome> {
    let helm = need!(Helm::new(&world));
    let objects = helm.template("trireme", &["--namespace", &config.namespace, "--set", set]).await?;
    let (mutating, validating) = webhook_configurations_for(&config, None);
    for (kind, ours) in [
        ("MutatingWebhookConfiguration", serde_json::to_value(mutating)?),
        ("ValidatingWebhookConfiguration", serde_json::to_value(validating)?),
    ] {
        let rendered = objects.iter().find(|object| object["kind"] == kind).context(kind)?;
        ensure!(rendered["metadata"]["name"] == ours["metadata"]["name"], "{kind}: its name");
        ensure!(
            rendered["webhooks"] == ours["webhooks"],
            "{kind}: the chart has\n{}\nthe program\n{}",
            rendered["webhooks"],
            ours["webhooks"]
        );
    }
    Ok(Outcome::Passed)
}

/// Ours would answer nobody before the program leads, and Kueue could write nothing until then. The API server of Kueue's APIServices
/// has to be recognised all the same.
async fn in_kueues_place(world: Arc<World>) -> Result<Outcome> {
    let set = "admissionController.takeOver.enabled=true,admissionController.visibility=false";
    let objects = need!(Helm::new(&world)).template("trireme", &["--set", set]).await?;
    let kinds: Vec<&str> = objects.iter().filter_map(|one| one["kind"].as_str()).collect();
    let ours = kinds.iter().any(|kind| kind.ends_with("WebhookConfiguration") || *kind == "APIService");
    ensure!(!ours, "{kinds:?}");
    let reader = |one: &Value| one["roleRef"]["name"] == "extension-apiserver-authentication-reader";
    ensure!(objects.iter().any(reader), "who may read by whom the API server proves itself");
    Ok(Outcome::Passed)
}

/// Kueue's own file says which Lease it has; the program asks for the same one (`Configuration::lease`).
async fn kueues_lease(world: Arc<World>) -> Result<Outcome> {
    let helm = need!(Helm::new(&world));
    let own = "admissionController.config.leaderElection.resourceName=own,admissionController.config.leaderElection.resourceNamespace=apart";
    for (set, namespace, name) in [("", "kueue-system", "c1f6bfd2.kueue.x-k8s.io"), (own, "apart", "own")] {
        let set = format!("admissionController.takeOver.enabled=true,{set}");
        let objects = helm.template("trireme", &["--set", set.trim_end_matches(',')]).await?;
        let grants = |one: &&Value| {
            let rules = one["rules"].as_array().into_iter().flatten();
            one["kind"] == "Role" && rules.into_iter().any(|rule| rule["resourceNames"] == json!([name]))
        };
        let role = objects.iter().find(grants).with_context(|| format!("{set}: no Role for Lease {name}"))?;
        ensure!(role["metadata"]["namespace"] == namespace, "{set}: {}", role["metadata"]);
    }
    Ok(Outcome::Passed)
}

/// A section of which everything is commented out is as good as none, as to the program.
async fn null_sections(world: Arc<World>) -> Result<Outcome> {
    let helm = need!(Helm::new(&world));
    let sections = [
        "leaderElection",
        "managedJobsNamespaceSelector",
        "integrations",
        "resources",
        "featureGates",
        "fairSharing",
        "admissionFairSharing",
        "webhook",
        "metrics",
        "waitForPodsReady",
    ];
    let nulls: Vec<String> =
        sections.map(|section| format!("admissionController.config.{section}=null")).into();
    let inner = "admissionController.config.leaderElection.leaderElect=null,admissionController.config.integrations.frameworks=null";
    for set in [nulls.join(","), inner.to_owned()] {
        helm.template("trireme", &["--set", &set]).await.with_context(|| set.clone())?;
    }
    Ok(Outcome::Passed)
}

/// An APIService that nobody answers keeps every namespace from being deleted.
async fn unserved(world: Arc<World>) -> Result<Outcome> {
    let set = "admissionController.config.featureGates.VisibilityOnDemand=false";
    let objects = need!(Helm::new(&world)).template("trireme", &["--set", set]).await?;
    ensure!(objects.iter().all(|one| one["kind"] != "APIService"), "{set} makes an APIService");
    Ok(Outcome::Passed)
}

/// Who has which rights by Kueue's chart, 0.19: bindings to these names hold, whatever kinds are managed.
const KINDS_OF_JOBS: [&str; 15] = [
    "job",
    "jobset",
    "pytorchjob",
    "tfjob",
    "xgboostjob",
    "paddlejob",
    "jaxjob",
    "mpijob",
    "rayjob",
    "rayservice",
    "raycluster",
    "trainjob",
    "leaderworkerset",
    "sparkapplication",
    // Not Kueue's: a kind that is declared.
    "things.example.com",
];
const KINDS_OF_QUOTA: [&str; 4] = ["clusterqueue", "cohort", "resourceflavor", "topology"];

async fn roles_of_people(world: Arc<World>) -> Result<Outcome> {
    let declared = json!([{
        "name": "Thing.v1.example.com", "suspend": "/spec/suspend", "podSets": [], "active": {}, "finished": {},
    }]);
    let integrations = json!({ "frameworks": ["batch/job"], "kinds": declared });
    let set = format!("admissionController.config.integrations={integrations}");
    let objects = need!(Helm::new(&world)).template("trireme", &["--set-json", &set]).await?;
    // The role, and whom it serves besides the admin of quota: the user, and who has view.
    let mut wanted = Vec::new();
    for kind in KINDS_OF_JOBS {
        wanted.extend([(kind, "viewer", true, true), (kind, "editor", true, false)]);
    }
    for kind in KINDS_OF_QUOTA {
        wanted.extend([(kind, "viewer", false, false), (kind, "editor", false, false)]);
    }
    for kind in ["localqueue", "workload"] {
        wanted.extend([(kind, "viewer", true, true), (kind, "editor", false, false)]);
    }
    wanted.extend([
        ("pending-workloads-lq", "viewer", true, true),
        ("pending-workloads-cq", "viewer", false, true),
    ]);
    for (kind, does, user, view) in wanted {
        let name = format!("kueue-{kind}-{does}-role");
        let role = objects.iter().find(|one| one["kind"] == "ClusterRole" && one["metadata"]["name"] == name);
        let role = role.with_context(|| format!("{name} is not there"))?;
        let has = |label: &str| role["metadata"]["labels"][label] == "true";
        ensure!(role["metadata"]["labels"]["rbac.kueue.x-k8s.io/role"] == format!("{kind}-{does}"), "{name}");
        ensure!(has("rbac.kueue.x-k8s.io/batch-admin"), "{name}: the admin of quota");
        ensure!(has("rbac.kueue.x-k8s.io/batch-user") == user, "{name}: who submits jobs");
        ensure!(has("rbac.authorization.k8s.io/aggregate-to-view") == view, "{name}: who may view");
        ensure!(
            has("rbac.authorization.k8s.io/aggregate-to-admin") == (does == "viewer"),
            "{name}: the admin"
        );
    }
    Ok(Outcome::Passed)
}

async fn authority(world: Arc<World>) -> Result<Outcome> {
    let helm = need!(Helm::new(&world));
    let mut converted = BTreeSet::new();
    for file in yaml_files(&world.repository.join("crds/generated"))? {
        for definition in documents(&file)? {
            if definition["spec"]["conversion"]["strategy"] == "Webhook" {
                converted.insert(definition["metadata"]["name"].as_str().unwrap_or_default().to_owned());
            }
        }
    }
    let objects = helm.template("trireme", &[]).await?;
    let role = objects.iter().find(|object| {
        object["kind"] == "ClusterRole" && object["metadata"]["name"] == "trireme-admission-controller"
    });
    let rules = role.context("the role")?["rules"].as_array().context("rules")?;
    let names = |resource: &str| -> BTreeSet<String> {
        let rule = rules
            .iter()
            .find(|rule| rule["resources"].as_array().is_some_and(|all| all.contains(&json!(resource))));
        let names = rule.and_then(|rule| rule["resourceNames"].as_array()).into_iter().flatten();
        names.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let named = names("customresourcedefinitions");
    ensure!(named == converted, "the role names {named:?}, converted are {converted:?}");
    for kind in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
        ensure!(names(kind).contains(CONFIGURATION), "{kind}");
    }
    let wanted: BTreeSet<String> = VERSIONS.map(api_service_name).into();
    ensure!(names("apiservices") == wanted, "the role names {:?}", names("apiservices"));
    Ok(Outcome::Passed)
}

async fn api_services_agree(world: Arc<World>) -> Result<Outcome> {
    let helm = need!(Helm::new(&world));
    let objects = helm.template("trireme", &[]).await?;
    for ours in api_services(&Configuration::default()) {
        let ours = serde_json::to_value(&ours)?;
        let name = &ours["metadata"]["name"];
        let rendered =
            objects.iter().find(|one| one["kind"] == "APIService" && one["metadata"]["name"] == *name);
        let rendered = rendered.with_context(|| format!("the chart has no APIService {name}"))?;
        ensure!(
            rendered["spec"] == ours["spec"],
            "the chart has {}, the program {}",
            rendered["spec"],
            ours["spec"]
        );
    }
    Ok(Outcome::Passed)
}

async fn generated(world: Arc<World>) -> Result<Outcome> {
    let helm = need!(Helm::new(&world));
    let mut expected = Vec::new();
    for file in yaml_files(&world.repository.join("crds/generated"))? {
        expected.extend(documents(&file)?);
    }
    let mut rendered = helm.template("trireme-crds", &[]).await?;
    for definition in &mut rendered {
        let annotations = definition["metadata"]["annotations"].as_object_mut().context("annotations")?;
        ensure!(annotations.remove("helm.sh/resource-policy") == Some(json!("keep")), "it is kept");
        if annotations.is_empty() {
            definition["metadata"].as_object_mut().context("metadata")?.remove("annotations");
        }
    }
    let name = |one: &Value| one["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    expected.sort_by_key(name);
    rendered.sort_by_key(name);
    ensure!(expected.len() == rendered.len(), "{} of {} definitions", rendered.len(), expected.len());
    for (ours, theirs) in expected.iter().zip(&rendered) {
        ensure!(ours == theirs, "{} is not as generated", name(ours));
    }
    Ok(Outcome::Passed)
}

async fn converts(world: Arc<World>, set: &str, field: &str, value: &str) -> Result<Outcome> {
    let objects = need!(Helm::new(&world)).template("trireme-crds", &["--set", set]).await?;
    let services: Vec<_> = objects
        .iter()
        .filter_map(|one| one.pointer("/spec/conversion/webhook/clientConfig/service"))
        .map(|service| service[field].as_str().unwrap_or_default())
        .collect();
    ensure!(services == [value; 5], "{services:?}");
    Ok(Outcome::Passed)
}

async fn without_conversion(world: Arc<World>) -> Result<Outcome> {
    let helm = need!(Helm::new(&world));
    let objects = helm.template("trireme-crds", &["--set", "conversion.enabled=false"]).await?;
    let webhooks = objects.iter().filter(|one| one["spec"]["conversion"]["strategy"] == "Webhook").count();
    ensure!(webhooks == 0, "{webhooks} still ask a webhook");
    Ok(Outcome::Passed)
}

async fn without_group(world: Arc<World>, group: &str) -> Result<Outcome> {
    let helm = need!(Helm::new(&world));
    let groups = |objects: &[Value]| -> BTreeSet<String> {
        objects.iter().filter_map(|one| one["spec"]["group"].as_str()).map(str::to_owned).collect()
    };
    let mut expected = groups(&helm.template("trireme-crds", &[]).await?);
    ensure!(expected.remove(group), "by default it is there");
    let set = format!("groups.{}=false", group.replace('.', "\\."));
    let left = groups(&helm.template("trireme-crds", &["--set", &set]).await?);
    ensure!(left == expected, "{left:?} are left");
    Ok(Outcome::Passed)
}

/// Keys that a program's file has and the chart's values have not: what they ask for is refused by the program.
const NOT_YET: [&str; 3] = ["resources", "sharing", "imex"];

/// The schema takes the keys that the program's file has in any of its versions, and no others.
async fn config_keys(world: Arc<World>, key: &str, program: &str) -> Result<Outcome> {
    let binary = need!(world.tools.get(program)).to_owned();
    let schema = schema(&world.repository, "trireme")?;
    let config = &schema["properties"][key]["properties"]["config"];
    let path = world.work.join(format!("{program}-keys.yaml"));
    let mut levels = vec![(Vec::new(), config)];
    while let Some((way, level)) = levels.pop() {
        let children = level["properties"].as_object().context("a closed object")?;
        let nested = children.iter().filter(|(_, child)| child["properties"].is_object());
        levels.extend(nested.map(|(key, child)| ([&way[..], &[key.as_str()]].concat(), child)));
        let mut known = BTreeSet::new();
        for mut file in versions(program) {
            let at = way.iter().fold(&mut file, |object, key| &mut object[*key]);
            at["unheard-of"] = json!(1);
            std::fs::write(&path, file.to_string())?;
            known.extend(known_keys(&binary, program, &path)?);
        }
        if program == "node-agent" && way.is_empty() {
            known.retain(|key| !NOT_YET.contains(&key.as_str()));
        }
        let ours: BTreeSet<String> = children.keys().cloned().collect();
        ensure!(ours == known, "at {way:?} the chart has {ours:?}, {program} {known:?}");
    }
    Ok(Outcome::Passed)
}

/// The least file of each version that a program's file has.
fn versions(program: &str) -> Vec<Value> {
    match program {
        "admission-controller" => ["v1beta1", "v1beta2"]
            .map(|version| json!({"apiVersion": format!("config.kueue.x-k8s.io/{version}")}))
            .to_vec(),
        "node-agent" => vec![json!({"version": "v1"})],
        _ => vec![json!({})],
    }
}

/// The keys that a program names when it refuses a file for a key that it does not know.
fn known_keys(binary: &Path, program: &str, file: &Path) -> Result<BTreeSet<String>> {
    let flag = if program == "node-agent" { "--config-file" } else { "--config" };
    let answer = Command::new(binary).arg(flag).arg(file).env("NODE_NAME", "none").output()?;
    let text = String::from_utf8(answer.stderr)?;
    ensure!(answer.status.code() == Some(2), "{program}: {}: {text}", answer.status);
    let known = text.split_once("expected one of ").with_context(|| text.clone())?.1;
    let known = known.split([' ', '\n']).scan(true, |more, word| {
        let current = *more;
        *more = word.ends_with(',');
        current.then(|| word.trim_end_matches(',').to_owned())
    });
    Ok(known.collect())
}
