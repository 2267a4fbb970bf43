//! Which pod goes to which of the places that its Workload was given: pods are made with a scheduling gate, and it is taken
//! away together with the node labels of their domain being set.
//!
//! Rules: Kueue `pkg/controller/tas/topology_ungater.go`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crds::api::kueue::v1beta2::PodSetTopologyRequest;
use crds::view::workload::{PodSetAssignment, Workload};
use model::selector::Labels;
use quota_engine::Uid;
use quota_engine::topology::{Assignment, HOSTNAME};

/// A pod of a Workload that is placed by topology, not ended yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Its pod set.
    pub pod_set: String,
    /// Whether its gate is closed.
    pub gated: bool,
    /// Its node selector; of one that is about to be let go, with its domain.
    pub node_selector: Labels,
    /// Its labels.
    pub labels: Labels,
    /// By how much its index is higher than its rank.
    pub index_offset: Option<String>,
}

/// The pods whose gates may open, with the node labels that they get.
pub fn released(workload: &Workload, members: &BTreeMap<&Uid, &Member>) -> Vec<(Uid, Labels)> {
    let sets = workload.status.admission.iter().flat_map(|admission| &admission.pod_set_assignments);
    sets.flat_map(|held| of_pod_set(workload, held, members)).collect()
}

fn of_pod_set(
    workload: &Workload,
    held: &PodSetAssignment,
    members: &BTreeMap<&Uid, &Member>,
) -> Vec<(Uid, Labels)> {
    let places = held.topology_assignment.as_ref().and_then(|places| super::read(places).ok());
    let Some(places) = places else { return Vec::new() };
    let pods: Vec<(&Uid, &Member)> = members
        .iter()
        .filter(|(_, member)| member.pod_set == held.name)
        .map(|(uid, member)| (*uid, *member))
        .collect();
    let given = match by_rank(workload, held, &places, &pods) {
        Some(given) => given,
        None => in_turn(&places, &pods),
    };
    // Nobody is sent to a node that has failed: it is about to be replaced.
    let failed = |values: &[Arc<str>]| {
        let host = values.last().filter(|_| ends_in_host(&places));
        host.is_some_and(|host| workload.status.unhealthy_nodes.iter().any(|node| *node.name == **host))
    };
    let alive = given.into_iter().filter(|(_, values)| !failed(values));
    alive.map(|(uid, values)| (uid.clone(), labels(&places, values))).collect()
}

fn ends_in_host(places: &Assignment) -> bool {
    places.levels.last().is_some_and(|level| &**level == HOSTNAME)
}

fn labels(places: &Assignment, values: &[Arc<str>]) -> Labels {
    places.levels.iter().zip(values).map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

/// The domain that a pod was sent to.
fn domain_of<'a>(places: &Assignment, member: &'a Member) -> Vec<&'a str> {
    let value = |level: &Arc<str>| member.node_selector.get(&**level).map_or("", String::as_str);
    places.levels.iter().map(value).collect()
}

fn is_domain(values: &[Arc<str>], domain: &[&str]) -> bool {
    values.iter().map(|value| &**value).eq(domain.iter().copied())
}

type Given<'a> = Vec<(&'a Uid, &'a [Arc<str>])>;

/// Domain after domain is filled, whoever comes.
fn in_turn<'a>(places: &'a Assignment, pods: &[(&'a Uid, &'a Member)]) -> Given<'a> {
    let mut waiting = pods.iter().filter(|(_, member)| member.gated);
    let mut there: BTreeMap<Vec<&str>, usize> = BTreeMap::new();
    for (_, member) in pods.iter().filter(|(_, member)| !member.gated) {
        *there.entry(domain_of(places, member)).or_default() += 1;
    }
    let mut given = Vec::new();
    for domain in &places.domains {
        let values: Vec<&str> = domain.values.iter().map(|value| &**value).collect();
        let taken = there.get(&values).copied().unwrap_or(0);
        let left = usize::try_from(domain.pods).unwrap_or(0).saturating_sub(taken);
        given.extend(waiting.by_ref().take(left).map(|(uid, _)| (*uid, domain.values.as_slice())));
    }
    given
}

/// By the order that their labels tell. `None` where that cannot be followed: a label lacks or makes no sense, or a pod that
/// runs is somewhere else.
fn by_rank<'a>(
    workload: &Workload,
    held: &PodSetAssignment,
    places: &'a Assignment,
    pods: &[(&'a Uid, &'a Member)],
) -> Option<Given<'a>> {
    let request = request_of(workload, &held.name)?;
    let label = request.pod_index_label.as_deref()?;
    let (lowest, above) = ranks_of_group(workload, held, request);
    let offset = match pods.first().and_then(|(_, member)| member.index_offset.as_deref()) {
        Some(written) => i64::from(written.parse::<i32>().ok()?),
        None => 0,
    };
    let (lowest, above) = (lowest + offset, above + offset);
    let count = held.count.unwrap_or(0);
    // Up to which rank each domain goes: their numbers of pods are what somebody wrote.
    let ends: Vec<i64> = places
        .domains
        .iter()
        .scan(0_i64, |end, domain| {
            *end = end.saturating_add(domain.pods.max(0));
            Some(*end)
        })
        .collect();
    let mut seen = BTreeSet::new();
    let mut given = Vec::new();
    for (uid, member) in pods {
        let index = number(member, label, above)?;
        let rank = match &request.sub_group_index_label {
            None => index,
            Some(label) => {
                let groups = i64::from(request.sub_group_count.filter(|groups| *groups > 0)?);
                let each = count / groups;
                (index < each).then_some(())?;
                index + number(member, label, groups)? * each
            }
        } - lowest;
        // There may be fewer places than pods were granted, of which the index may be (kueue#13223).
        let domain = places.domains.get(ends.partition_point(|end| *end <= rank)).filter(|_| rank >= 0)?;
        if !seen.insert(rank) {
            return None;
        }
        let values = domain.values.as_slice();
        match member.gated {
            true => given.push((*uid, values)),
            false => is_domain(values, &domain_of(places, member)).then_some(())?,
        }
    }
    Some(given)
}

fn request_of<'a>(workload: &'a Workload, pod_set: &str) -> Option<&'a PodSetTopologyRequest> {
    workload.spec.pod_sets.iter().find(|one| one.name == pod_set)?.topology_request.as_ref()
}

/// The lowest index of a pod set's pods, and the first that is too high: in a group the leader comes first.
fn ranks_of_group(
    workload: &Workload,
    held: &PodSetAssignment,
    request: &PodSetTopologyRequest,
) -> (i64, i64) {
    let count = |held: &PodSetAssignment| held.count.unwrap_or(0);
    let own = count(held);
    let Some(group) = &request.pod_set_group_name else { return (0, own) };
    let sets = workload.status.admission.iter().flat_map(|admission| &admission.pod_set_assignments);
    let mut of_group = sets.filter(|one| {
        let request = request_of(workload, &one.name);
        request.and_then(|request| request.pod_set_group_name.as_ref()) == Some(group)
    });
    let (first, second) = (of_group.next(), of_group.next());
    let (Some(first), Some(second)) = (first, second) else { return (0, own) };
    let leader = if count(first) > count(second) { second } else { first };
    match leader.name == held.name {
        true => (0, own),
        false => (count(leader), own + count(leader)),
    }
}

fn number(member: &Member, label: &str, below: i64) -> Option<i64> {
    let number: i64 = member.labels.get(label)?.parse().ok()?;
    (0..below).contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn workload(request: Value, failed: &[&str]) -> Workload {
        let failed: Vec<Value> = failed.iter().map(|name| json!({ "name": name })).collect();
        serde_json::from_value(json!({
            "spec": { "podSets": [{ "name": "main", "count": 3, "topologyRequest": request }] },
            "status": {
                "unhealthyNodes": failed,
                "admission": { "clusterQueue": "q", "podSetAssignments": [{
                    "name": "main", "count": 3,
                    "topologyAssignment": { "levels": ["kubernetes.io/hostname"], "slices": [{
                        "domainCount": 2,
                        "valuesPerLevel": [{ "individual": { "roots": ["h1", "h2"] } }],
                        "podCounts": { "individual": [2, 1] },
                    }]},
                }]},
            },
        }))
        .unwrap()
    }

    fn member(gated: bool, host: &str, index: &str) -> Member {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        Member {
            pod_set: "main".into(),
            gated,
            node_selector: [pair(HOSTNAME, host)].into_iter().filter(|(_, host)| !host.is_empty()).collect(),
            labels: [pair("index", index)].into(),
            index_offset: None,
        }
    }

    /// Pods in order of uid: gated or not, host, index; and where each is sent.
    fn sent(workload: &Workload, pods: &[(bool, &str, &str)]) -> Vec<(String, String)> {
        let uids: Vec<Uid> = (0..pods.len()).map(|at| Uid::from(format!("p{at}").as_str())).collect();
        let members: Vec<Member> =
            pods.iter().map(|(gated, host, index)| member(*gated, host, index)).collect();
        let mut sent: Vec<_> = released(workload, &uids.iter().zip(&members).collect())
            .into_iter()
            .map(|(uid, labels)| (uid.to_string(), labels[HOSTNAME].clone()))
            .collect();
        sent.sort();
        sent
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(uid, host)| ((*uid).to_owned(), (*host).to_owned())).collect()
    }

    #[test]
    fn domains_are_filled_one_after_another() {
        let workload = workload(json!({ "required": "kubernetes.io/hostname" }), &[]);
        let waiting = (true, "", "");
        assert_eq!(sent(&workload, &[waiting; 4]), pairs(&[("p0", "h1"), ("p1", "h1"), ("p2", "h2")]));
        assert_eq!(
            sent(&workload, &[(false, "h1", ""), waiting, waiting]),
            pairs(&[("p1", "h1"), ("p2", "h2")])
        );
        assert_eq!(sent(&workload, &[(false, "h2", ""), waiting]), pairs(&[("p1", "h1")]));
    }

    #[test]
    fn neighbours_are_told_by_their_index() {
        let workload = workload(json!({ "podIndexLabel": "index" }), &[]);
        let waiting = |index| (true, "", index);
        assert_eq!(
            sent(&workload, &[waiting("2"), waiting("1"), waiting("0")]),
            pairs(&[("p0", "h2"), ("p1", "h1"), ("p2", "h1")])
        );
        assert_eq!(sent(&workload, &[waiting("2")]), pairs(&[("p0", "h2")]), "nobody has to wait for all");
        // Of two with one index, or one beyond the last, nothing can be told.
        for indexes in [["1", "1"], ["0", "7"], ["0", "x"]] {
            assert_eq!(
                sent(&workload, &indexes.map(waiting)),
                pairs(&[("p0", "h1"), ("p1", "h1")]),
                "{indexes:?}"
            );
        }
        // One that runs elsewhere than its index says was placed otherwise, and so are the rest.
        assert_eq!(sent(&workload, &[(false, "h1", "2"), waiting("0")]), pairs(&[("p1", "h1")]));
        assert_eq!(sent(&workload, &[(false, "h2", "0"), waiting("2")]), pairs(&[("p1", "h1")]));
    }

    /// kueue#13223: of pods in slices of two the third has no place, and its index is one that was granted.
    #[test]
    fn fewer_places_than_pods_are_given_to_as_many() {
        let mut workload = workload(json!({ "podIndexLabel": "index" }), &[]);
        let count = |counts: Value| {
            let mut object =
                json!({ "domainCount": 2, "valuesPerLevel": [{ "individual": { "roots": ["h1", "h2"] } }] });
            object["podCounts"] = json!({ "individual": counts });
            json!({ "levels": [HOSTNAME], "slices": [object] })
        };
        let mut places = |counts: Value| {
            let admission = workload.status.admission.as_mut().unwrap();
            admission.pod_set_assignments[0].topology_assignment =
                serde_json::from_value(count(counts)).unwrap();
            sent(&workload, &["0", "1", "2"].map(|index| (true, "", index)))
        };
        assert_eq!(places(json!([1, 1])), pairs(&[("p0", "h1"), ("p1", "h2")]));
        // Whoever may write the status may write any number.
        assert_eq!(places(json!([2, i32::MAX])), pairs(&[("p0", "h1"), ("p1", "h1"), ("p2", "h2")]));
    }

    /// What the annotation says about indices may be anything that somebody wrote.
    #[test]
    fn an_offset_that_makes_no_sense_is_as_good_as_no_index() {
        let workload = workload(json!({ "podIndexLabel": "index" }), &[]);
        let sent_with = |offset: &str| {
            let mut pod = member(true, "", "2");
            pod.index_offset = Some(offset.to_owned());
            let uid = Uid::from("p0");
            released(&workload, &[(&uid, &pod)].into())[0].1[HOSTNAME].clone()
        };
        assert_eq!(sent_with("0"), "h2");
        assert_eq!(sent_with("1"), "h1", "its rank is 1");
        for offset in ["9223372036854775807", "-9223372036854775808", "2147483647", "x", ""] {
            assert_eq!(sent_with(offset), "h1", "{offset:?}");
        }
    }

    #[test]
    fn nobody_is_sent_to_a_failed_node() {
        let workload = workload(json!({ "required": "kubernetes.io/hostname" }), &["h1"]);
        assert_eq!(sent(&workload, &[(true, "", ""); 3]), pairs(&[("p2", "h2")]));
    }
}
