//! Which flavors a pod set may have: what nodes a flavor stands for, and what keeps pods away from them.

use std::collections::{BTreeMap, BTreeSet};

use model::node::{Taint, Toleration, first_untolerated};
use serde_json::Value;

use super::nodes::requests;
use super::quota::became_true;
use crate::fuzz::world::{CLUSTER_QUEUES, FLAVORS, WORKLOADS, World, Write, amount, at, items, text};

/// Whether pods of a template may have a flavor, of a group that has flavors with these labels.
///
/// A node selector counts where a flavor of the group says something about its label at all.
pub(super) fn suits(template: &Value, flavor: &Value, labels: &BTreeSet<String>) -> bool {
    let mut tolerations = tolerations(at(template, "/spec/tolerations"));
    tolerations.extend(self::tolerations(at(flavor, "/spec/tolerations")));
    let taints: Vec<Taint> = at(flavor, "/spec/nodeTaints")
        .and_then(|list| serde_json::from_value(list.clone()).ok())
        .unwrap_or_default();
    let selected = at(template, "/spec/nodeSelector").and_then(Value::as_object);
    let on_its_nodes = selected.into_iter().flatten().all(|(label, value)| {
        !labels.contains(label)
            || at(flavor, "/spec/nodeLabels").and_then(|all| all.get(label)) == Some(value)
    });
    on_its_nodes && first_untolerated(&taints, &tolerations).is_none()
}

pub(super) fn tolerations(list: Option<&Value>) -> Vec<Toleration> {
    list.and_then(|list| serde_json::from_value(list.clone()).ok()).unwrap_or_default()
}

/// The labels that any flavor of a resource group has.
pub(super) fn labels_of(world: &World, group: &Value) -> BTreeSet<String> {
    let flavors = items(group, "/flavors").filter_map(|one| world.get(FLAVORS, "", text(one, "/name")));
    flavors
        .filter_map(|flavor| at(flavor, "/spec/nodeLabels").and_then(Value::as_object))
        .flat_map(|labels| labels.keys().cloned())
        .collect()
}

/// The resource group of a ClusterQueue that covers a resource.
pub(super) fn group_of<'a>(queue: &'a Value, resource: &str) -> Option<&'a Value> {
    let covers = |group: &&Value| items(group, "/coveredResources").any(|one| one == resource);
    items(queue, "/spec/resourceGroups").find(covers)
}

/// Whoever is given quota is given flavors that its pods may have, and one flavor for all resources of a group.
pub(super) fn assigned_flavors_suit(world: &World, write: &Write) -> Result<(), String> {
    if write.resource != WORKLOADS || !became_true(write, "QuotaReserved") {
        return Ok(());
    }
    let workload = write.object();
    let queue = text(workload, "/status/admission/clusterQueue");
    let versions: Vec<_> = world.believable(CLUSTER_QUEUES, "", queue).collect();
    for assignment in items(workload, "/status/admission/podSetAssignments") {
        let Some(template) = items(workload, "/spec/podSets").find(|set| set["name"] == assignment["name"])
        else {
            return Err(format!("{:?} has no pod set {}", write.key(), assignment["name"]));
        };
        let verdicts = versions.iter().map(|queue| one_flavor_a_group(world, queue, template, assignment));
        let mut wrong = None;
        for verdict in verdicts {
            wrong = verdict.err();
            if wrong.is_none() {
                break;
            }
        }
        if let Some(what) = wrong {
            return Err(format!("{:?}: {what}", write.key()));
        }
    }
    Ok(())
}

/// An admission names every pod set once, and all that its pods ask for of what the queue covers, as much as so many pods need.
pub(super) fn admissions_are_whole(world: &World, write: &Write) -> Result<(), String> {
    if write.resource != WORKLOADS || !became_true(write, "QuotaReserved") {
        return Ok(());
    }
    let workload = write.object();
    let names = |path| {
        let mut names: Vec<&str> = items(workload, path).map(|one| text(one, "/name")).collect();
        names.sort_unstable();
        names
    };
    let (asked, given) = (names("/spec/podSets"), names("/status/admission/podSetAssignments"));
    if asked != given {
        return Err(format!("{:?} has the pod sets {asked:?}, and quota for {given:?}", write.key()));
    }
    let queue = text(workload, "/status/admission/clusterQueue");
    let versions: Vec<_> = world.believable(CLUSTER_QUEUES, "", queue).collect();
    for assignment in items(workload, "/status/admission/podSetAssignments") {
        let set = items(workload, "/spec/podSets").find(|set| set["name"] == assignment["name"]);
        let mut each = requests(set.and_then(|set| set.get("template")).unwrap_or(&Value::Null));
        each.insert("pods".into(), 1);
        let count = assignment["count"].as_i64().unwrap_or(1);
        for (resource, each) in each.iter().filter(|(_, each)| **each > 0) {
            let name = resource.as_str();
            if versions.iter().any(|queue| group_of(queue, name).is_none()) {
                continue;
            }
            let told = amount(name, assignment["resourceUsage"].get(name));
            if assignment["flavors"][name].as_str().is_none_or(str::is_empty) || told != Some(each * count) {
                let set = &assignment["name"];
                return Err(format!("{:?} {set}: {count} pods of {each} {name} use {told:?}", write.key()));
            }
        }
    }
    Ok(())
}

fn one_flavor_a_group(world: &World, queue: &Value, set: &Value, assignment: &Value) -> Result<(), String> {
    let mut chosen: BTreeMap<String, &str> = BTreeMap::new();
    for (resource, flavor) in assignment["flavors"].as_object().into_iter().flatten() {
        let flavor = flavor.as_str().unwrap_or_default();
        let Some(group) = group_of(queue, resource) else {
            return Err(format!("{resource} is covered by no group"));
        };
        let before = chosen.insert(group["coveredResources"].to_string(), flavor);
        if before.is_some_and(|before| before != flavor) {
            return Err(format!(
                "{resource} is of {flavor}, others of its group of {}",
                before.unwrap_or("")
            ));
        }
        let labels = labels_of(world, group);
        let template = set.get("template").unwrap_or(&Value::Null);
        let mut versions = world.believable(FLAVORS, "", flavor).peekable();
        if versions.peek().is_none() {
            return Err(format!("{flavor} does not exist"));
        }
        if !versions.any(|flavor| suits(template, flavor, &labels)) {
            return Err(format!("{} may not have {flavor}", set["name"]));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CPU: &str = "cpu";

    #[test]
    fn an_admission_that_leaves_something_out_is_seen() {
        let whole =
            json!({ "name": "a", "count": 2, "flavors": { CPU: "f" }, "resourceUsage": { CPU: "6" } });
        let with = |field: &str, value: Value| {
            let mut given = whole.clone();
            given[field] = value;
            given
        };
        for (what, given, is_fine) in [
            ("all of it", vec![whole.clone()], true),
            (
                "fewer pods",
                vec![
                    json!({ "name": "a", "count": 1, "flavors": { CPU: "f" }, "resourceUsage": { CPU: "3" } }),
                ],
                true,
            ),
            ("no pod set", vec![], false),
            ("the pod set twice", vec![whole.clone(), whole.clone()], false),
            ("another pod set", vec![with("name", json!("b"))], false),
            ("no flavor", vec![with("flavors", json!({}))], false),
            ("no usage", vec![with("resourceUsage", json!({}))], false),
            ("usage of one pod", vec![with("resourceUsage", json!({ CPU: "3" }))], false),
        ] {
            let group = json!({ "coveredResources": [CPU], "flavors": [{ "name": "f", "resources": [] }] });
            let queue = json!({ "metadata": { "name": "q" }, "spec": { "resourceGroups": [group] } });
            let requests = json!({ CPU: "3", "memory": "1" });
            let template = json!({ "spec": { "containers": [{ "resources": { "requests": requests } }] } });
            let waits = json!({
                "metadata": { "name": "w", "namespace": "n" },
                "spec": { "podSets": [{ "name": "a", "count": 2, "template": template }] },
            });
            let mut has_quota = waits.clone();
            has_quota["status"] = json!({
                "admission": { "clusterQueue": "q", "podSetAssignments": given },
                "conditions": [{ "type": "QuotaReserved", "status": "True" }],
            });
            let world = World::holding([(CLUSTER_QUEUES, queue)]);
            let write = Write::by_a_replica(0, WORKLOADS, Some(waits), has_quota);
            let judged = admissions_are_whole(&world, &write);
            assert_eq!(judged.is_ok(), is_fine, "{what}: {judged:?}");
        }
    }
}
