//! Values: each does what it says, and what is not one is refused.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::schema;
use crate::helm::{Helm, PROGRAMS};
use crate::registry::{Outcome, Test, need};
use crate::world::World;

/// What shows, in a component's objects, that a value was heeded.
#[derive(Clone, Copy)]
enum Shows {
    /// This text, which is not there by default.
    Present(&'static str),
    /// This text is no longer there.
    Absent(&'static str),
}

/// A value, its component (empty: all), how it is set, and what that changes.
struct Case(&'static str, &'static str, &'static str, Shows);

use Shows::{Absent, Present};

/// Every value of the chart `trireme`.
const CASES: &[Case] = &[
    Case("nameOverride", "", "=other", Present(r#""app.kubernetes.io/name":"other""#)),
    Case("imagePullSecrets", "", "[0].name=pull", Present(r#""imagePullSecrets":[{"name":"pull"}]"#)),
    Case("commonLabels", "", ".team=ml", Present(r#""team":"ml""#)),
    Case("image.registry", "", "=r.example", Present(r#""image":"r.example/trireme-dev/"#)),
    Case("image.repository", "", "=mine", Present(r#""image":"ghcr.io/mine/"#)),
    Case("image.tag", "", "=nightly", Present(r#":nightly""#)),
    Case("image.pullPolicy", "", "=Always", Present(r#""imagePullPolicy":"Always""#)),
    Case("admissionController.enabled", "admission-controller", "=false", Absent(r#""kind""#)),
    Case("admissionController.replicas", "admission-controller", "=3", Present(r#""replicas":3"#)),
    Case(
        "admissionController.config",
        "admission-controller",
        ".webhook.port=9000",
        Present(r#""containerPort":9000"#),
    ),
    Case("admissionController.takeOver.enabled", "admission-controller", "=true", Present("--hand-back")),
    Case(
        "admissionController.takeOver.namespace",
        "admission-controller",
        "=quota,admissionController.takeOver.enabled=true",
        Present(r#""namespace":"quota""#),
    ),
    Case(
        "admissionController.takeOver.name",
        "admission-controller",
        "=other,admissionController.takeOver.enabled=true",
        Present("other-mutating-webhook-configuration"),
    ),
    Case("admissionController.visibility", "admission-controller", "=false", Absent(r#""APIService""#)),
    Case("admissionController.userRoles", "admission-controller", "=false", Absent("kueue-batch-user-role")),
    Case("admissionController.visibilityFlowSchema", "admission-controller", "=true", Present("FlowSchema")),
    Case("admissionController.logFilter", "admission-controller", "=debug", Present(r#""value":"debug""#)),
    Case(
        "admissionController.resources",
        "admission-controller",
        ".limits.memory=3Gi",
        Present(r#""memory":"3Gi""#),
    ),
    Case(
        "admissionController.nodeSelector",
        "admission-controller",
        ".zone=one",
        Present(r#""nodeSelector":{"zone":"one"}"#),
    ),
    Case(
        "admissionController.affinity",
        "admission-controller",
        ".podAffinity.own=one",
        Present(r#""affinity":{"podAffinity":{"own":"one"}}"#),
    ),
    Case(
        "admissionController.tolerations",
        "admission-controller",
        "[0].key=own",
        Present(r#""tolerations":[{"key":"own"}]"#),
    ),
    Case(
        "admissionController.priorityClassName",
        "admission-controller",
        "=own",
        Present(r#""priorityClassName":"own""#),
    ),
    Case(
        "admissionController.podDisruptionBudget",
        "admission-controller",
        "=false",
        Absent("PodDisruptionBudget"),
    ),
    Case(
        "admissionController.webhooks.failurePolicy",
        "admission-controller",
        "=Ignore",
        Absent(r#""failurePolicy":"Fail""#),
    ),
    Case(
        "admissionController.webhooks.timeoutSeconds",
        "admission-controller",
        "=3",
        Present(r#""timeoutSeconds":3"#),
    ),
    Case(
        "admissionController.webhooks.excludedNamespaces",
        "admission-controller",
        "={quiet}",
        Present(r#"["quiet","trireme-system"]"#),
    ),
    Case("gangScheduler.enabled", "gang-scheduler", "=false", Absent(r#""kind""#)),
    Case("gangScheduler.replicas", "gang-scheduler", "=0", Present(r#""replicas":0"#)),
    Case(
        "gangScheduler.config",
        "gang-scheduler",
        ".leaseName=own-lease",
        Present(r#""resourceNames":["own-lease"]"#),
    ),
    Case("gangScheduler.logFilter", "gang-scheduler", "=debug", Present(r#""value":"debug""#)),
    Case("gangScheduler.resources", "gang-scheduler", ".limits.memory=3Gi", Present(r#""memory":"3Gi""#)),
    Case(
        "gangScheduler.nodeSelector",
        "gang-scheduler",
        ".zone=one",
        Present(r#""nodeSelector":{"zone":"one"}"#),
    ),
    Case(
        "gangScheduler.affinity",
        "gang-scheduler",
        ".podAffinity.own=one",
        Present(r#""affinity":{"podAffinity":{"own":"one"}}"#),
    ),
    Case(
        "gangScheduler.tolerations",
        "gang-scheduler",
        "[0].key=own",
        Present(r#""tolerations":[{"key":"own"}]"#),
    ),
    Case(
        "gangScheduler.priorityClassName",
        "gang-scheduler",
        "=own",
        Present(r#""priorityClassName":"own""#),
    ),
    Case("gangScheduler.podDisruptionBudget", "gang-scheduler", "=false", Absent("PodDisruptionBudget")),
    Case("nodeAgent.enabled", "node-agent", "=false", Absent(r#""kind""#)),
    Case("nodeAgent.driver", "node-agent", "=fake:4xL40S", Present("--driver=fake:4xL40S")),
    Case(
        "nodeAgent.config",
        "node-agent",
        ".flags.migStrategy=none",
        Present("--config-file=/etc/trireme/config.yaml"),
    ),
    Case("nodeAgent.logFilter", "node-agent", "=debug", Present(r#""value":"debug""#)),
    Case("nodeAgent.kubeletDir", "node-agent", "=/data/kubelet", Present("/data/kubelet/device-plugins")),
    Case(
        "nodeAgent.driverRoot",
        "node-agent",
        "=/run/nvidia/driver",
        Present("--driver-root=/run/nvidia/driver"),
    ),
    Case(
        "nodeAgent.nvmlLibrary",
        "node-agent",
        "=/usr/lib/libnvidia-ml.so.1",
        Present("--nvml-library=/driver-root/usr/lib/libnvidia-ml.so.1"),
    ),
    Case("nodeAgent.runtimeClassName", "node-agent", "=nvidia", Present(r#""runtimeClassName":"nvidia""#)),
    Case("nodeAgent.cdiFolder", "node-agent", "=/var/run/cdi", Present("--cdi-folder=/var/run/cdi")),
    Case("nodeAgent.resources", "node-agent", ".limits.memory=3Gi", Present(r#""memory":"3Gi""#)),
    Case("nodeAgent.nodeSelector", "node-agent", ".zone=one", Present(r#""nodeSelector":{"zone":"one"}"#)),
    Case(
        "nodeAgent.affinity",
        "node-agent",
        ".podAffinity.own=one",
        Present(r#""affinity":{"podAffinity":{"own":"one"}}"#),
    ),
    Case("nodeAgent.tolerations", "node-agent", "[0].key=own", Present(r#""tolerations":[{"key":"own"}]"#)),
    Case("nodeAgent.priorityClassName", "node-agent", "=own", Present(r#""priorityClassName":"own""#)),
    Case("metrics.podMonitor", "", "=true", Present(r#""kind":"PodMonitor""#)),
];

/// Values that must be refused, with a word of the message.
const WRONG: &[(&str, &str)] = &[
    ("admissionController.replicas=-1", "/admissionController/replicas"),
    ("admissionController.replicas=two", "/admissionController/replicas"),
    ("gangScheduler.replicas=10", "/gangScheduler/replicas"),
    ("admissionController.webhooks.failurePolicy=Perhaps", "failurePolicy"),
    ("admissionController.webhooks.timeoutSeconds=31", "timeoutSeconds"),
    ("admissionController.config.namespace=elsewhere", "admissionController.config.namespace is set by"),
    ("admissionController.config.leaderElection.leaderElect=false", "admissionController.replicas is 2"),
    ("admissionController.config.webhook.port=443", "/admissionController/config/webhook/port"),
    ("admissionController.config.integrations.frameworks={batch/cronjob}", "'kubeflow.org/pytorchjob'"),
    ("gangScheduler.config.leaseNamespace=elsewhere", "gangScheduler.config.leaseNamespace is set by"),
    ("gangScheduler.config.adminAddress=:80", "gangScheduler.config.adminAddress is set by"),
    ("gangScheduler.config.schedulerNames={default-scheduler}", "/gangScheduler/config/schedulerNames/0"),
    ("gangScheduler.config.repairPatienceSeconds=-1", "repairPatienceSeconds"),
    ("nodeAgent.driver=amd", "/nodeAgent/driver"),
    ("nodeAgent.kubeletDir=kubelet", "/nodeAgent/kubeletDir"),
    ("nodeAgent.config.sharing.mps.renameByDefault=true", "'sharing' not allowed"),
    ("image.pullPolicy=Sometimes", "/image/pullPolicy"),
];

/// Every test of this file.
pub(super) fn all() -> Vec<Test> {
    let mut tests = vec![
        Test::new("charts/values/all_are_tested", tested),
        Test::new("charts/values/all_are_documented", documented),
        Test::new("charts/values/unknown_ones_are_refused_at_every_level", unknown),
    ];
    for case in CASES {
        tests.push(Test::new(format!("charts/values/{}", case.0), move |world| heeded(world, case)));
    }
    for (set, word) in WRONG {
        let name = format!("charts/values/refused/{set}");
        tests.push(Test::new(name, move |world| async move {
            refuses(&need!(Helm::new(&world)), "trireme", set, word).await?;
            Ok(Outcome::Passed)
        }));
    }
    tests
}

/// The objects of a component as text.
async fn rendered(helm: &Helm, component: &str, arguments: &[&str]) -> Result<String> {
    let mut objects = helm.template("trireme", arguments).await?;
    let label = |object: &Value| object["metadata"]["labels"]["app.kubernetes.io/component"].clone();
    objects.retain(|object| component.is_empty() || label(object) == component);
    Ok(serde_json::to_string(&objects)?)
}

async fn heeded(world: Arc<World>, Case(value, component, set, shows): &Case) -> Result<Outcome> {
    let helm = need!(Helm::new(&world));
    let without = rendered(&helm, component, &[]).await?;
    let with = rendered(&helm, component, &["--set", &format!("{value}{set}")]).await?;
    let (appears, text) = match shows {
        Present(text) => (true, text),
        Absent(text) => (false, text),
    };
    ensure!(
        without.contains(text) != appears,
        "by default {text} is {}",
        if appears { "there" } else { "missing" }
    );
    ensure!(with.contains(text) == appears, "{value}{set} has no effect on {text}:\n{with}");
    Ok(Outcome::Passed)
}

/// Rendering must fail and say `word`.
async fn refuses(helm: &Helm, chart: &str, set: &str, word: &str) -> Result<()> {
    match helm.template(chart, &["--set", set]).await {
        Ok(_) => anyhow::bail!("{chart} took {set}"),
        Err(error) => ensure!(format!("{error:#}").contains(word), "{set}: {error:#}"),
    }
    Ok(())
}

/// Follows a reference within the schema.
fn resolve<'a>(root: &'a Value, node: &'a Value) -> &'a Value {
    match node["$ref"].as_str() {
        Some(reference) => root.pointer(reference.trim_start_matches('#')).unwrap_or(node),
        None => node,
    }
}

/// Every object that the schema describes, by the way to it as `--set` has it.
fn levels<'a>(root: &'a Value, node: &'a Value, way: &str, found: &mut Vec<(String, &'a Value)>) {
    let node = resolve(root, node);
    if node["type"] == "object" {
        found.push((way.to_owned(), node));
    }
    for (key, child) in node["properties"].as_object().into_iter().flatten() {
        let key = key.replace('.', "\\.");
        levels(root, child, &if way.is_empty() { key } else { format!("{way}.{key}") }, found);
    }
    if node["items"].is_object() {
        levels(root, &node["items"], &format!("{way}[0]"), found);
    }
}

async fn unknown(world: Arc<World>) -> Result<Outcome> {
    let helm = need!(Helm::new(&world));
    for chart in ["trireme", "trireme-crds"] {
        let schema = schema(&world.repository, chart)?;
        let mut found = Vec::new();
        levels(&schema, &schema, "", &mut found);
        ensure!(found.len() >= 3, "the levels of {chart}: {found:?}");
        for (way, level) in found {
            let keys = &level["additionalProperties"];
            // Maps have keys of people's choice; Helm hands `global` to every chart of a larger one.
            if keys["type"].is_string() || keys["type"].is_array() || way == "global" {
                continue;
            }
            ensure!(*keys == false, "{chart}: {way} is open");
            let parent = if way.is_empty() { way } else { format!("{way}.") };
            refuses(&helm, chart, &format!("{parent}replicaz=1"), "'replicaz' not allowed").await?;
        }
    }
    Ok(Outcome::Passed)
}

/// The values that are told apart: what lies below these words is one value.
fn leaves(repository: &Path) -> Result<BTreeSet<String>> {
    const WHOLE: [&str; 6] =
        ["config", "resources", "nodeSelector", "tolerations", "imagePullSecrets", "commonLabels"];
    fn walk(node: &Value, way: &str, found: &mut BTreeSet<String>) {
        match node["properties"].as_object() {
            Some(children) if !WHOLE.contains(&way.rsplit('.').next().unwrap_or_default()) => {
                for (key, child) in children {
                    walk(child, &if way.is_empty() { key.clone() } else { format!("{way}.{key}") }, found);
                }
            }
            _ => _ = found.insert(way.to_owned()),
        }
    }
    let mut found = BTreeSet::new();
    walk(&schema(repository, "trireme")?, "", &mut found);
    found.remove("global");
    Ok(found)
}

async fn tested(world: Arc<World>) -> Result<Outcome> {
    let ours: BTreeSet<_> = CASES.iter().map(|case| case.0.to_owned()).collect();
    ensure!(ours == leaves(&world.repository)?, "tested are {ours:?}");
    let file = world.repository.join("charts/trireme/values.yaml");
    let defaults: Value = serde_saphyr::from_str(&std::fs::read_to_string(file)?)?;
    for value in ours {
        ensure!(
            defaults.pointer(&format!("/{}", value.replace('.', "/"))).is_some(),
            "{value} has no default in values.yaml"
        );
    }
    Ok(Outcome::Passed)
}

async fn documented(world: Arc<World>) -> Result<Outcome> {
    let text = std::fs::read_to_string(world.repository.join("docs/installing.md"))?;
    let has = |name: &str| text.contains(&format!("`{name}`"));
    for value in leaves(&world.repository)? {
        let (first, rest) = value.split_once('.').unwrap_or((&value, ""));
        let program =
            first.ends_with("Controller") || first.ends_with("Scheduler") || first.ends_with("Agent");
        ensure!(
            has(&value) || (program && has(&format!("*.{rest}"))),
            "docs/installing.md is silent on {value}"
        );
    }
    let crds = schema(&world.repository, "trireme-crds")?;
    for key in ["conversion", "groups"] {
        for name in crds["properties"][key]["properties"].as_object().context(key)?.keys() {
            ensure!(has(&format!("{key}.{name}")), "docs/installing.md is silent on {key}.{name}");
        }
    }
    ensure!(PROGRAMS.iter().all(|(name, _)| text.contains(name)), "every program is named");
    Ok(Outcome::Passed)
}
