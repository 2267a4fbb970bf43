//! v1beta1 ↔ v1beta2: rules, and that nothing gets lost or crashes. The peers' cases are in `e2e/conformance`.

#![expect(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use crds::{
    api::kueue::v1beta1::{TopologyAssignment, TopologyDomainAssignment},
    conversion::{convert, convert_review, topology},
};
use proptest::prelude::*;
use serde_json::{Value, json};

const V1BETA1: &str = "kueue.x-k8s.io/v1beta1";
const V1BETA2: &str = "kueue.x-k8s.io/v1beta2";

/// What one object becomes; it need not say its type.
fn converted(kind: &str, object: &Value, from: &str, to: &str) -> Value {
    let mut object = object.as_object().unwrap().clone();
    object.insert("apiVersion".into(), from.into());
    object.insert("kind".into(), kind.into());
    convert(&mut object, to).unwrap();
    assert_eq!(object.remove("apiVersion").unwrap(), to);
    assert_eq!(object.remove("kind").unwrap(), kind);
    object.into()
}

fn to_v1beta2(kind: &str, object: Value) -> Value {
    converted(kind, &object, V1BETA1, V1BETA2)
}

fn to_v1beta1(kind: &str, object: Value) -> Value {
    converted(kind, &object, V1BETA2, V1BETA1)
}

#[test]
fn what_the_rules_do_not_mention_passes() {
    let object = json!({
        "metadata": { "name": "w", "managedFields": [{ "fieldsV1": { "f:spec": {} } }], "annotations": { "a": "" } },
        "spec": { "podSets": [{ "name": "main", "count": 2, "template": { "spec": { "aFieldOfTheFuture": null } } }] },
        "status": { "conditions": [], "somethingElse": 1 },
    });
    assert_eq!(to_v1beta2("Workload", object.clone()), object);
    assert_eq!(to_v1beta1("Workload", object.clone()), object);
}

#[test]
fn admission_checks_become_one_list() {
    let checks = |plain: Value, strategy: Value| {
        let spec = json!({ "admissionChecks": plain, "admissionChecksStrategy": strategy });
        to_v1beta2("ClusterQueue", json!({ "spec": spec }))["spec"].clone()
    };
    let on_flavor = json!({ "admissionChecks": [{ "name": "b", "onFlavors": ["f"] }] });
    let plain =
        json!({ "admissionChecksStrategy": { "admissionChecks": [{ "name": "a" }, { "name": "b" }] } });
    assert_eq!(checks(json!([]), json!({})), json!({}));
    assert_eq!(checks(json!([]), on_flavor.clone()), json!({ "admissionChecksStrategy": on_flavor }));
    assert_eq!(checks(json!(["a", "b"]), Value::Null), plain);
    assert_eq!(checks(json!(["a", "b"]), on_flavor), plain);
}

#[test]
fn a_priority_class_is_known_by_group_and_kind() {
    let old =
        |source: &str| json!({ "spec": { "priorityClassName": "high", "priorityClassSource": source } });
    let class = |group: &str, kind: &str| json!({ "spec": { "priorityClassRef": { "group": group, "kind": kind, "name": "high" } } });
    for (source, group, kind) in [
        ("kueue.x-k8s.io/workloadpriorityclass", "kueue.x-k8s.io", "WorkloadPriorityClass"),
        ("scheduling.k8s.io/priorityclass", "scheduling.k8s.io", "PriorityClass"),
    ] {
        assert_eq!(to_v1beta2("Workload", old(source)), class(group, kind));
        assert_eq!(to_v1beta1("Workload", class(group, kind)), old(source));
    }
    assert_eq!(to_v1beta2("Workload", old("")), json!({ "spec": {} }));
    assert_eq!(to_v1beta1("Workload", class("kueue.x-k8s.io", "PriorityClass")), json!({ "spec": {} }));
}

#[test]
fn a_priority_class_without_a_name_keeps_its_kind() {
    let source = json!({ "spec": { "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass" } });
    let class = json!({ "spec": { "priorityClassRef": { "group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass" } } });
    assert_eq!(to_v1beta2("Workload", source.clone()), class);
    assert_eq!(to_v1beta1("Workload", class.clone()), source);
    let [mut unnamed_source, mut unnamed_class] = [source.clone(), class.clone()];
    unnamed_source["spec"]["priorityClassName"] = json!("");
    unnamed_class["spec"]["priorityClassRef"]["name"] = json!("");
    assert_eq!(to_v1beta2("Workload", unnamed_source), class);
    assert_eq!(to_v1beta1("Workload", unnamed_class), source);
}

#[test]
fn old_fungibility_names() {
    let old = json!({ "spec": { "flavorFungibility": { "whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt" } } });
    let new = json!({ "spec": { "flavorFungibility": { "whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch" } } });
    assert_eq!(to_v1beta2("ClusterQueue", old), new);
    assert_eq!(to_v1beta1("ClusterQueue", new.clone()), new);
}

#[test]
fn a_profile_keeps_v1beta1_writable() {
    let v1beta2 = json!({ "spec": { "clusterSource": { "clusterProfileRef": { "name": "p" } } } });
    let v1beta1 = to_v1beta1("MultiKueueCluster", v1beta2.clone());
    // The field is required there, and its `locationType` has a default.
    assert_eq!(v1beta1["spec"]["kubeConfig"], json!({ "location": "" }));
    assert_eq!(to_v1beta2("MultiKueueCluster", v1beta1), v1beta2);
    let nothing = json!({ "spec": { "kubeConfig": { "location": "", "locationType": "Secret" } } });
    assert_eq!(to_v1beta2("MultiKueueCluster", nothing), json!({ "spec": { "clusterSource": {} } }));
}

#[test]
fn what_v1beta1_cannot_say_is_dropped() {
    let v1beta2 = json!({
        "spec": {
            "preemptionGates": [{ "name": "g" }],
            "podSets": [{ "topologyRequest": {
                "required": "rack", "podsetSliceRequiredTopologyConstraints": [{ "topology": "host", "size": 2 }],
            }}],
        },
        "status": { "preemptionGates": [{ "name": "g", "position": "Open" }] },
    });
    let v1beta1 =
        json!({ "spec": { "podSets": [{ "topologyRequest": { "required": "rack" } }] }, "status": {} });
    assert_eq!(to_v1beta1("Workload", v1beta2), v1beta1);
}

fn review(objects: Value, desired: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": { "uid": "u", "desiredAPIVersion": desired, "objects": objects },
    })
}

fn answer(body: &[u8]) -> Value {
    let answer: Value = serde_json::from_slice(&convert_review(body)).unwrap();
    assert_eq!(answer["apiVersion"], "apiextensions.k8s.io/v1");
    assert_eq!(answer["kind"], "ConversionReview");
    answer["response"].clone()
}

#[test]
fn a_review_is_answered() {
    let queue = |version: &str, cohort: &str| json!({ "apiVersion": version, "kind": "ClusterQueue", "spec": { cohort: "c" } });
    let body = review(json!([queue(V1BETA1, "cohort"), queue(V1BETA2, "cohortName")]), V1BETA2);
    let wanted = json!({
        "uid": "u",
        "convertedObjects": [queue(V1BETA2, "cohortName"), queue(V1BETA2, "cohortName")],
        "result": { "status": "Success" },
    });
    assert_eq!(answer(&serde_json::to_vec(&body).unwrap()), wanted);
}

#[test]
fn bad_reviews_fail_with_a_sentence() {
    let object = |version: &str, kind: &str| json!({ "apiVersion": version, "kind": kind, "metadata": { "name": "n" } });
    let packed = |slice: Value| {
        let topology = json!({ "levels": ["host"], "slices": [slice] });
        json!({
            "apiVersion": V1BETA2, "kind": "Workload", "metadata": { "namespace": "ns", "name": "w" },
            "status": { "admission": { "podSetAssignments": [{ "topologyAssignment": topology }] } },
        })
    };
    let plain = |domain: Value| {
        let topology = json!({ "levels": ["host"], "domains": [domain] });
        json!({
            "apiVersion": V1BETA1, "kind": "Workload",
            "status": { "admission": { "podSetAssignments": [{ "topologyAssignment": topology }] } },
        })
    };
    let without_values = json!({ "domainCount": 1, "valuesPerLevel": [], "podCounts": { "universal": 1 } });
    let few_roots = json!({
        "domainCount": 2, "valuesPerLevel": [{ "individual": { "roots": ["a"] } }], "podCounts": { "universal": 1 },
    });
    let one = |counts: Value| json!({ "domainCount": 2, "valuesPerLevel": [{ "universal": "x" }], "podCounts": counts });
    let many = json!({ "domainCount": 2_000_000_000, "valuesPerLevel": [{ "universal": "x" }], "podCounts": { "universal": 1 } });
    let wrong_kind = json!({ "apiVersion": "v1", "kind": "Pod", "request": { "uid": "u", "desiredAPIVersion": "", "objects": [] } });
    for (body, sentence) in [
        (json!(null), "is not a ConversionReview"),
        (json!({ "request": 3 }), "is not a ConversionReview"),
        (wrong_kind, "v1 Pod is not understood"),
        (review(json!([3]), V1BETA2), "is not a ConversionReview"),
        (review(json!([{}]), V1BETA2), "objects[0] (unknown kind): apiVersion is missing"),
        (
            review(json!([object(V1BETA1, "ClusterQueue"), object(V1BETA1, "Pod")]), V1BETA2),
            "objects[1] (Pod n): Pod is not converted",
        ),
        (review(json!([object(V1BETA1, "Cohort")]), "kueue.x-k8s.io/v1"), "kueue.x-k8s.io/v1 is not one of"),
        (review(json!([object("v1", "Cohort")]), V1BETA2), "v1 is not one of"),
        (
            review(json!([packed(one(json!({ "individual": [1] })))]), V1BETA1),
            "(Workload ns/w): status.admission.podSetAssignments[0].topologyAssignment: slices[0].podCounts.individual has 1 entries for 2 domains",
        ),
        (review(json!([packed(one(json!({})))]), V1BETA1), "slices[0].podCounts needs either"),
        (
            review(json!([packed(without_values)]), V1BETA1),
            "slices[0].valuesPerLevel has 0 values for 1 levels",
        ),
        (
            review(json!([packed(few_roots)]), V1BETA1),
            "slices[0].valuesPerLevel[].individual.roots has 1 entries for 2 domains",
        ),
        (
            review(json!([plain(json!({ "values": [], "count": 1 }))]), V1BETA2),
            "domains[0] has 0 values for 1 levels",
        ),
        (review(json!([packed(many)]), V1BETA1), "more than 250000 domains"),
        (review(json!([packed(json!({}))]), V1BETA1), "missing field"),
    ] {
        let response = answer(&serde_json::to_vec(&body).unwrap());
        assert_eq!(response["result"]["status"], "Failed", "{body}");
        assert_eq!(response["convertedObjects"], json!([]), "{body}");
        let message = response["result"]["message"].as_str().unwrap();
        assert!(message.contains(sentence), "{message:?} lacks {sentence:?}");
    }
    assert_eq!(answer(b"\xff{")["result"]["status"], "Failed");
}

#[test]
fn an_assignment_without_domains_is_one() {
    let placed = |topology: &Value| json!({ "status": { "admission": { "podSetAssignments": [{ "topologyAssignment": topology }] } } });
    for (written, levels) in [
        (json!({ "levels": ["a"] }), json!(["a"])),
        (json!({ "levels": ["a"], "slices": null, "domains": null }), json!(["a"])),
        (json!({ "levels": ["a"], "slices": [], "domains": [] }), json!(["a"])),
        (json!({ "levels": null }), json!([])),
        (json!({}), json!([])),
    ] {
        let (old, new) = (
            placed(&json!({ "levels": levels, "domains": [] })),
            placed(&json!({ "levels": levels, "slices": [] })),
        );
        assert_eq!(to_v1beta1("Workload", placed(&written)), old, "{written}");
        assert_eq!(to_v1beta2("Workload", placed(&written)), new, "{written}");
    }
}

/// Kueue reads what it needs of an assignment and no more.
#[test]
fn an_assignment_with_more_than_it_needs_can_be_read() {
    let placed = |topology: Value| json!({ "status": { "admission": { "podSetAssignments": [{ "topologyAssignment": topology }] } } });
    let universal = |value: &str| json!({ "universal": value });
    let individual = |roots: Value| json!({ "individual": { "prefix": "n", "roots": roots } });
    let (one, both) = (json!({ "universal": 1 }), json!({ "universal": "a", "individual": { "roots": [] } }));
    let of = |values: &[&str], counts: &[i32]| -> Value {
        let domains = values.iter().zip(counts);
        domains.map(|(value, count)| json!({ "values": [value], "count": count })).collect()
    };
    for (count, values, counts, domains) in [
        (1, json!([universal("a"), universal("b")]), one.clone(), of(&["a"], &[1])),
        (1, json!([both]), one.clone(), of(&["a"], &[1])),
        (2, json!([individual(json!(["1", "2", "3"]))]), one.clone(), of(&["n1", "n2"], &[1, 1])),
        (1, json!([universal("a")]), json!({ "universal": 3, "individual": [1] }), of(&["a"], &[3])),
        (
            2,
            json!([individual(json!(["1", "2"]))]),
            json!({ "individual": [1, 2, 3] }),
            of(&["n1", "n2"], &[1, 2]),
        ),
        (0, json!([]), json!({}), json!([])),
    ] {
        let slice = json!({ "domainCount": count, "valuesPerLevel": values, "podCounts": counts });
        let packed = placed(json!({ "levels": ["host"], "slices": [slice] }));
        let plain = placed(json!({ "levels": ["host"], "domains": domains }));
        assert_eq!(to_v1beta1("Workload", packed), plain, "{slice}");
    }
    let more_values = json!({ "levels": ["host"], "domains": [{ "values": ["a", "b"], "count": 1 }] });
    let slice = json!({ "domainCount": 1, "valuesPerLevel": [universal("a")], "podCounts": one });
    let packed = json!({ "levels": ["host"], "slices": [slice] });
    assert_eq!(to_v1beta2("Workload", placed(more_values)), placed(packed));
}

#[test]
fn a_slice_has_as_many_domains_as_its_schema_takes() {
    let domain = |n: i32| TopologyDomainAssignment { values: vec![format!("node-{n}")], count: 1 };
    let domains = (0..=100_000).map(domain).collect();
    let assignment = TopologyAssignment { levels: vec!["host".into()], domains };
    let packed = topology::pack(&assignment).unwrap();
    let counts: Vec<i32> = packed.slices.iter().map(|slice| slice.domain_count).collect();
    assert_eq!(counts, [100_000, 1]);
    assert!(topology::unpack(&packed).unwrap() == assignment, "unpacked, they are what they were");
}

#[test]
fn common_parts_are_said_once() {
    let domains = ["node-a-1.x", "node-a-22.x", "node-a-3.x"]
        .map(|host| TopologyDomainAssignment { values: vec!["rack".into(), host.into()], count: 4 });
    let assignment = TopologyAssignment { levels: vec!["r".into(), "h".into()], domains: domains.into() };
    let packed = topology::pack(&assignment).unwrap();
    assert_eq!(
        json!(packed.slices),
        json!([{
            "domainCount": 3,
            "valuesPerLevel": [
                { "universal": "rack" },
                { "individual": { "prefix": "node-a-", "suffix": ".x", "roots": ["1", "22", "3"] } },
            ],
            "podCounts": { "universal": 4 },
        }])
    );
}

/// Each pool of nodes has a slice, where that is shorter.
#[test]
fn names_of_nodes_that_begin_alike_are_together() {
    let host = "kubernetes.io/hostname";
    let pool = |pool: &str, nodes: std::ops::Range<u32>| -> Vec<String> {
        nodes.map(|node| format!("{pool}-{node}")).collect()
    };
    let slices = |level: &str, names: &[Vec<String>]| {
        let domain = |host: &String| TopologyDomainAssignment { values: vec![host.clone()], count: 1 };
        let domains = names.iter().flatten().map(domain).collect();
        let assignment = TopologyAssignment { levels: vec![level.into()], domains };
        let packed = topology::pack(&assignment).unwrap();
        assert_eq!(topology::unpack(&packed).unwrap(), assignment);
        packed.slices.iter().map(|slice| slice.domain_count).collect::<Vec<_>>()
    };
    let (a, b) = (pool("gke-c-pool-a-1234", 0..10), pool("gke-c-pool-b-5678", 0..10));
    let alone = vec!["gke-c-other".to_owned()];
    assert_eq!(slices(host, &[a.clone(), b.clone()]), [10, 10]);
    assert_eq!(slices("rack", &[a.clone(), b.clone()]), [20], "only names of nodes are of pools");
    assert_eq!(slices(host, &[pool("a", 0..2), pool("b", 0..2)]), [4], "that would be longer");
    assert_eq!(slices(host, &[a.clone(), alone, b.clone()]), [10, 1, 10]);
    assert_eq!(slices(host, &[]), [0; 0]);
    // 1,100 pools of two, far from each other, are more slices than there may be: what they have in common is one dash earlier.
    let far = |n: u32| pool(&format!("a-very-long-name-that-all-of-them-share-{n}"), 0..2);
    assert_eq!(slices(host, &(0..1_100).map(far).collect::<Vec<_>>()), [2_200]);
}

#[test]
fn where_beginning_and_end_overlap_the_end_is_taken() {
    let domains =
        ["ababa", "aba"].map(|host| TopologyDomainAssignment { values: vec![host.into()], count: 1 });
    let assignment = TopologyAssignment { levels: vec!["h".into()], domains: domains.into() };
    let packed = topology::pack(&assignment).unwrap();
    let values = json!([{ "individual": { "suffix": "aba", "roots": ["ab", ""] } }]);
    assert_eq!(json!(packed.slices[0].values_per_level), values);
    assert_eq!(topology::unpack(&packed).unwrap(), assignment);
}

fn assignment() -> impl Strategy<Value = TopologyAssignment> {
    (1usize..4).prop_flat_map(|levels| {
        // Few letters: values that share parts, contain each other, and are empty.
        let domain = (proptest::collection::vec("[abä]{0,4}", levels), 1i32..3)
            .prop_map(|(values, count)| TopologyDomainAssignment { values, count });
        proptest::collection::vec(domain, 0..6).prop_map(move |domains| TopologyAssignment {
            levels: (0..levels).map(|level| format!("l{level}")).collect(),
            domains,
        })
    })
}

proptest! {
    #[test]
    fn unpack_undoes_pack(assignment in assignment()) {
        let packed = topology::pack(&assignment).unwrap();
        prop_assert_eq!(topology::unpack(&packed).unwrap(), assignment);
    }

    #[test]
    fn any_body_is_answered(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        answer(&body);
    }

    #[test]
    fn a_review_with_a_damage_is_answered(at in any::<proptest::sample::Index>(), with in proptest::collection::vec(any::<u8>(), 0..4)) {
        let queue = json!({ "apiVersion": V1BETA1, "kind": "ClusterQueue", "spec": { "cohort": "c" } });
        let mut body = review(json!([queue]), V1BETA2).to_string().into_bytes();
        let at = at.index(body.len());
        body.splice(at..=at, with);
        answer(&body);
    }
}
