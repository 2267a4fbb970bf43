//! What a Workload asks of quota, and what a LimitRange says to that, as it is written: a limit stands in for a request only once
//! a Workload was adjusted, which no case about one of these functions of Kueue's does.

use std::collections::BTreeMap;
use std::path::Path;

use admission_controller::compose::Priorities;
use admission_controller::config::Configuration;
use admission_controller::defaults::PodDefaults;
use admission_controller::input;
use admission_controller::requests::{Devices, Rules};
use crds::view::workload::{PodSet, Workload};
use model::ResourceName;
use model::pod::PodResources;
use model::quantity::Written;
use model::resources::{self, ResourceList};
use quota_engine::input::Standing;
use serde_json::{Value, json};

use super::cycle::with_dependents;
use super::workload::{defaults, equal, judge_violations, seen, text, with_reservation};
use super::world::amounts;
use crate::case::{Case, Runner, Verdict};

pub(super) const TESTS: &[(&str, Runner)] = &[
    ("workload.TestNewInfo", quota_request),
    ("workload.TestValidateLimitRange", validate_limit_range),
    ("workload.TestWithPreprocessedDRAResources", quota_request),
    ("workload.TestWithPreprocessedDRAResourcesReplacesExtendedResources", quota_request),
];

/// The same without limits.
fn bare(pod: &PodResources) -> PodResources {
    let mut pod = pod.clone();
    let containers = pod.init_containers.iter_mut().chain(&mut pod.containers);
    let all = containers.map(|container| &mut container.resources).chain(&mut pod.resources);
    all.for_each(|resources| resources.limits.clear());
    pod
}

/// Of containers requests and limits are bounded, of pods what they request.
fn validate_limit_range(case: &Case) -> Verdict {
    let view: Workload = seen(&case.tc()["workload"]);
    let ranges: Vec<Value> =
        [&case.tc()["limitRange"]].into_iter().filter(|one| !one.is_null()).cloned().collect();
    let defaults = defaults(&json!(ranges), &Value::Null);
    let namespace = view.metadata.namespace.clone().unwrap_or_default();
    judge_violations(case.tc(), &view, |pod, path| {
        let of_containers = defaults.range_violations(&namespace, pod, path).into_iter();
        let of_pods = defaults.range_violations(&namespace, &bare(pod), path).into_iter();
        of_containers.filter(|one| one.field != path).chain(of_pods.filter(|one| one.field == path)).collect()
    })
}

/// Pod set, pods, what they ask for together, and the flavors they were given.
type Total = (String, i64, ResourceList, BTreeMap<String, String>);

fn quota_request(case: &Case) -> Verdict {
    let tc = case.tc();
    let workload = if tc["workload"].is_null() { &tc["wl"] } else { &tc["workload"] };
    let mut view: Workload = match workload["status"]["admission"] {
        Value::Null => seen(workload),
        // Kueue's function goes by the admission alone.
        _ => seen(&with_reservation(workload)),
    };
    view.spec.pod_sets = view.spec.pod_sets.iter().map(requesting).collect();
    let config = configuration(&case.name, !tc["infoOptions"].is_null(), &tc["featureGates"])?;
    let told = input::workload(
        (&view).into(),
        &view,
        &Rules::of(&config),
        &PodDefaults::default(),
        &Priorities::default(),
    );
    let given: Vec<Total> = match told.standing {
        Standing::Reserved { admission, .. } => {
            let sets = admission.pod_sets.iter();
            sets.map(|set| {
                let flavors = set.flavors.iter();
                let flavors = flavors.map(|(resource, flavor)| (resource.to_string(), flavor.to_string()));
                (set.name.to_string(), set.count, set.usage.clone().into_iter().collect(), flavors.collect())
            })
            .collect()
        }
        _ => {
            let sets = told.pod_sets.iter();
            sets.map(|set| {
                let mut set = set.clone();
                devices(tc, &set.name).count_in(&mut set.requests);
                (set.name.to_string(), set.count, set.total(), BTreeMap::new())
            })
            .collect()
        }
    };
    let wanted = tc["wantInfo"]["TotalRequests"].as_array().into_iter().flatten();
    let wanted: Vec<Total> = wanted
        .map(|set| {
            let flavors = set["Flavors"].as_object().into_iter().flatten();
            let flavors = flavors.map(|(resource, flavor)| (resource.clone(), text(flavor).to_owned()));
            let count = set["Count"].as_i64().unwrap_or(0);
            (text(&set["Name"]).to_owned(), count, amounts(&set["Requests"]).collect(), flavors.collect())
        })
        .collect();
    equal(&given, &wanted)
}

/// What the case says that the claims of a pod set stand for.
fn devices(tc: &Value, pod_set: &str) -> Devices {
    if tc["draResources"].is_null() || tc["featureGates"]["KueueDRAIntegration"] == false {
        return Devices::default();
    }
    let counted = &tc["draResources"][pod_set];
    let written: BTreeMap<ResourceName, Written> =
        serde_json::from_value(counted.clone()).unwrap_or_default();
    let quantities = written.iter().map(|(name, amount)| (name.clone(), resources::read(name, amount).0));
    let replaced = &tc["replacedExtendedResources"][pod_set];
    let keys = replaced.as_object().into_iter().flat_map(|set| set.keys().map(String::as_str));
    let items = replaced.as_array().into_iter().flatten().filter_map(Value::as_str);
    Devices {
        counted: quantities.chain(amounts(counted)).collect(),
        replaced: keys.chain(items).map(ResourceName::from).collect(),
    }
}

/// A pod set with what it requests, and no limits.
fn requesting(set: &PodSet) -> PodSet {
    let mut set = set.clone();
    set.template.spec.resources = bare(&set.template.spec.resources);
    set
}

const UNKNOWN: &str = "it was run with options that the table does not hold; add those that its description names to `configuration`";

/// What the cases were run with, which the tables do not hold: their description says it.
fn configuration(case: &str, has_options: bool, gates: &Value) -> Result<Configuration, String> {
    let one = |input: &str, strategy: &str, outputs: Value| json!({ "input": input, "strategy": strategy, "outputs": outputs });
    let multiplied = |input: &str, strategy: &str, by: &str, outputs: Value| json!({ "input": input, "strategy": strategy, "multiplyBy": by, "outputs": outputs });
    let transformations = match case {
        "transformResources" => json!([
            one(
                "nvidia.com/mig-1g.5gb",
                "Replace",
                json!({ "example.com/accelerator-memory": "5Ki", "example.com/credits": "10" })
            ),
            one(
                "nvidia.com/mig-2g.10gb",
                "Replace",
                json!({ "example.com/accelerator-memory": "10Ki", "example.com/credits": "15" })
            ),
            one(
                "nvidia.com/gpu",
                "Retain",
                json!({ "example.com/accelerator-memory": "40Ki", "example.com/credits": "100" })
            ),
            multiplied(
                "nvidia.com/vgpucores",
                "Replace",
                "nvidia.com/vgpu",
                json!({ "nvidia.com/total-vgpucores": "1" })
            ),
            multiplied(
                "nvidia.com/vgpumem",
                "Replace",
                "nvidia.com/vgpu",
                json!({ "nvidia.com/total-vgpumem": "1" })
            ),
        ]),
        "transformAllowanceUnderIt" => {
            json!([
                multiplied(
                    "nvidia.com/gpumem",
                    "Replace",
                    "nvidia.com/gpu",
                    json!({ "quota.example.com/gpu-memory-overage": "1" })
                ),
                one("nvidia.com/gpu", "Retain", json!({ "quota.example.com/gpu-memory-overage": "-1024" })),
            ])
        }
        "transformAllowanceDoesNotReachADirectRequest" => {
            json!([one("example.com/credit", "Replace", json!({ "example.com/gpu": "-1" }))])
        }
        "transformOutputSharingANameWithItsRetainedInputIsAddedToTheAmountRequested" => {
            json!([multiplied(
                "example.com/gpu",
                "Retain",
                "example.com/node",
                json!({ "example.com/gpu": "1" })
            )])
        }
        "transformProductPastTheRangeIsNotFlooredAway" => {
            json!([one("example.com/credit", "Replace", json!({ "example.com/gpu": "10000000000" }))])
        }
        "transformRetainWithMultiplyBy" => json!([multiplied(
            "example.com/gpumem",
            "Retain",
            "example.com/gpu",
            json!({ "example.com/gpumem-quota": "1" })
        ),]),
        "transformRetainWithMultiplyByUnderOne" => json!([
            { "input": "example.com/gpumem", "multiplyBy": "cpu", "outputs": { "example.com/gpumem-quota": "1" } },
        ]),
        "filterResources" => json!([]),
        _ if has_options => return Err(UNKNOWN.to_owned()),
        _ => json!([]),
    };
    let excluded = match case {
        "filterResources" => json!(["dummyPrefix", "networking.example.com/"]),
        _ => json!([]),
    };
    let file = json!({
        "resources": { "excludeResourcePrefixes": excluded, "transformations": transformations },
        "featureGates": with_dependents(gates),
    });
    // JSON is YAML.
    Configuration::parse(Path::new(case), &file.to_string()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(run: Runner, tc: Value) -> Verdict {
        run(&Case { file: String::new(), name: String::new(), line: json!({ "tc": tc }) })
    }

    #[test]
    fn limits_are_no_requests_before_a_workload_is_adjusted() {
        let workload = json!({ "metadata": { "name": "w", "namespace": "ns" }, "spec": { "podSets": [
            { "name": "main", "count": 1, "template": { "spec": { "containers": [
                { "name": "c", "resources": { "limits": { "cpu": "2" } } },
            ]}}},
        ]}});
        let info = json!({ "TotalRequests": [{ "Name": "main", "Count": 1 }] });
        assert_eq!(judged(quota_request, json!({ "workload": workload, "wantInfo": info })), Ok(()));
        let path = "spec.podSets[0].template.spec";
        for (kind, error) in
            [("Pod", None), ("Container", Some(format!("{path}.containers[0]: Invalid value: x")))]
        {
            let errors: Vec<Value> = error.into_iter().map(|text| json!({ "$error": text })).collect();
            let range = json!({ "metadata": { "name": "r", "namespace": "ns" }, "spec": {
                "limits": [{ "type": kind, "max": { "cpu": "1" } }],
            }});
            let tc = json!({ "workload": workload, "limitRange": range, "wantError": errors });
            assert_eq!(judged(validate_limit_range, tc), Ok(()), "{kind}");
        }
    }

    #[test]
    fn devices_of_claims_are_counted() {
        let tc = |gate: bool, wanted: Value| {
            json!({
                "workload": { "metadata": { "name": "w" }, "spec": { "podSets": [
                    { "name": "main", "count": 2, "template": { "spec": { "containers": [
                        { "name": "c", "resources": { "requests": { "cpu": "1", "x/gpu": "1" } } },
                    ]}}},
                ]}},
                "draResources": { "main": { "x/a100": "3" } },
                "replacedExtendedResources": { "main": { "x/gpu": {} } },
                "featureGates": { "KueueDRAIntegration": gate },
                "wantInfo": { "TotalRequests": [{ "Name": "main", "Count": 2, "Requests": { "value": wanted } }] },
            })
        };
        assert_eq!(judged(quota_request, tc(true, json!({ "cpu": 2000, "x/a100": 6 }))), Ok(()));
        assert_eq!(judged(quota_request, tc(false, json!({ "cpu": 2000, "x/gpu": 2 }))), Ok(()));
    }

    #[test]
    fn an_admission_counts_without_a_condition() {
        let total = |cpu: i64| json!([{ "Name": "main", "Count": 1, "Flavors": { "cpu": "f" }, "Requests": { "value": { "cpu": cpu } } }]);
        let tc = |cpu: i64| {
            json!({
                "workload": {
                    "metadata": { "name": "w" },
                    "spec": { "podSets": [{ "name": "main", "count": 1 }] },
                    "status": { "admission": { "clusterQueue": "cq", "podSetAssignments": [
                        { "name": "main", "count": 1, "flavors": { "cpu": "f" }, "resourceUsage": { "cpu": "2" } },
                    ]}},
                },
                "wantInfo": { "TotalRequests": total(cpu) },
            })
        };
        assert_eq!(judged(quota_request, tc(2000)), Ok(()));
        assert!(judged(quota_request, tc(1000)).is_err());
    }
}
