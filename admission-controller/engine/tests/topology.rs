//! Random clusters of up to twelve nodes, judged by trying every way to place the pods.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use model::node::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Taint, TaintEffect, Toleration,
    TolerationOperator,
};
use model::selector::Operator;
use quota_engine::topology::*;
use support::hosts::{Cluster, Host, LEVELS, gpus, on, request};

const CLUSTERS: u64 = 4_000;
/// A request with its slice layer, if it has one.
fn random_request(rng: &mut fastrand::Rng) -> (PodSetRequest, usize, usize, i64) {
    let level = rng.usize(0..3);
    let slice_level = if rng.bool() { 2 } else { rng.usize(level..3) };
    let size = if slice_level == 2 && rng.bool() { 1 } else { rng.i64(1..=3) };
    let spread = match rng.u32(0..4) {
        0 | 1 => Spread::Required(LEVELS[level].into()),
        2 => Spread::Preferred(LEVELS[level].into()),
        _ => Spread::Unconstrained,
    };
    let mut request = request(rng.i64(1..=5) * size, rng.i64(0..=4), spread);
    let layer = SliceLayer { level: LEVELS[slice_level].into(), size };
    if slice_level == 2 && size == 1 {
        return (request, level, slice_level, size);
    }
    if request.spread == Spread::Unconstrained {
        request.spread = Spread::SlicesOnly;
    }
    request.layers.push(layer);
    (request, level, slice_level, size)
}

#[test]
fn a_place_is_found_if_there_is_one_and_it_is_a_good_one() {
    let mut refused = 0;
    for seed in 0..CLUSTERS {
        let mut rng = fastrand::Rng::with_seed(seed);
        let cluster = Cluster::random(&mut rng);
        let mut index = cluster.index(&mut rng);
        let (request, level, slice_level, size) = random_request(&mut rng);
        let rules = Rules { mixed_profile: rng.bool(), balanced: rng.bool(), ..Rules::default() };
        let (gpu, wanted) = (request.per_pod["gpu"], request.count / size);
        let at = |level: usize| cluster.slices(level, slice_level, size, gpu);
        let one_holds = |level: usize| at(level).values().any(|slices| *slices >= wanted);
        let all_hold = at(0).values().sum::<i64>() >= wanted;

        let given = index.place(std::slice::from_ref(&request), rules, View::Now).into_assignments();
        let what = || format!("seed {seed}: {cluster:?} {request:?} {rules:?} {given:?}");
        let possible = match request.spread {
            Spread::Required(_) => one_holds(level),
            _ => all_hold,
        };
        assert_eq!(given.is_ok(), possible, "{}", what());
        let Ok([given]) = given.as_deref() else {
            refused += 1;
            continue;
        };
        cluster.check(given, &request, slice_level, size);
        match request.spread {
            Spread::Required(_) => assert_eq!(cluster.used(given, level), 1, "{}", what()),
            // The nearest level at which one domain is enough; else as few as possible at the top.
            Spread::Preferred(_) if !rules.balanced => {
                match (0..=level).rev().find(|level| one_holds(*level)) {
                    Some(found) => assert_eq!(cluster.used(given, found), 1, "{}", what()),
                    None => {
                        assert_eq!(
                            Some(cluster.used(given, 0)),
                            cluster.fewest(&at(0), wanted),
                            "{}",
                            what()
                        );
                    }
                }
            }
            Spread::Unconstrained if !rules.mixed_profile => {
                assert_eq!(Some(cluster.used(given, 2)), cluster.fewest(&at(2), wanted), "{}", what());
            }
            _ => {}
        }
    }
    assert!((500..3_000).contains(&refused), "too few clusters say anything: {refused} refused");
}

#[test]
fn a_search_changes_nothing_and_several_pod_sets_never_overbook() {
    let mut placed = 0;
    for seed in 0..CLUSTERS {
        let mut rng = fastrand::Rng::with_seed(seed);
        let cluster = Cluster::random(&mut rng);
        let mut index = cluster.index(&mut rng);
        let mut sets: Vec<PodSetRequest> = (0..3).map(|_| random_request(&mut rng).0).collect();
        if rng.bool() {
            sets[0] =
                PodSetRequest { count: 1, group: Some("all".into()), layers: Vec::new(), ..sets[1].clone() };
            sets[0].per_pod = gpus(rng.i64(0..=4));
            sets[1].group = Some("all".into());
        }
        let rules = Rules { mixed_profile: rng.bool(), balanced: rng.bool(), ..Rules::default() };
        let first = index.place(&sets, rules, View::Now);
        assert_eq!(first, index.place(&sets, rules, View::Now), "seed {seed}");

        let Ok(given) = first.into_assignments() else { continue };
        placed += 1;
        let mut taken: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
        for (set, given) in sets.iter().zip(&given) {
            assert_eq!(given.pods(), set.count, "seed {seed}");
            for domain in &given.domains {
                let (gpus, pods) = taken.entry(&domain.values[0]).or_default();
                *gpus += domain.pods * set.per_pod["gpu"];
                *pods += domain.pods;
            }
        }
        for (name, (gpus, pods)) in taken {
            let host = cluster.host(name);
            assert!(gpus <= host.gpus && pods <= host.pods, "seed {seed}: {name} is overbooked");
        }
    }
    assert!(placed > CLUSTERS / 10, "too few are placed to say anything: {placed}");
}

#[test]
fn usage_is_where_the_places_are_and_comes_back() {
    let mut rng = fastrand::Rng::with_seed(1);
    let host = |name: &str| Host { path: ["b".into(), "r".into(), name.into()], gpus: 4, pods: 9 };
    let cluster = Cluster { hosts: vec![host("h1"), host("h2")] };
    let mut index = cluster.index(&mut rng);
    let wish = request(4, 1, Spread::Required(HOSTNAME.into()));
    let place = |index: &mut TopologyIndex, view| {
        index.place(std::slice::from_ref(&wish), Rules::default(), view).into_assignments()
    };
    let one = place(&mut index, View::Now).unwrap().remove(0);
    index.charge(&one, &wish.per_pod);
    let other = place(&mut index, View::Now).unwrap().remove(0);
    assert_ne!(one, other);
    assert!(index.fits(&other, &wish.per_pod, View::Now));
    index.charge(&other, &wish.per_pod);
    assert!(!index.fits(&other, &wish.per_pod, View::Now));

    let Err((0, TopologyReason::DoesNotFit { fits: 0, wanted: 4, exclusions, .. })) =
        place(&mut index, View::Now)
    else {
        panic!("both are full");
    };
    assert_eq!((exclusions.total, exclusions.resources), (2, [("gpu".into(), 2)].into()));
    assert_eq!(place(&mut index, View::Empty).unwrap().remove(0), one, "as if nothing were placed");

    index.release(&other, &wish.per_pod);
    assert_eq!(place(&mut index, View::Now).unwrap().remove(0), other);
    index.remove_node(&format!("node-{}", other.domains[0].values[0]));
    assert!(place(&mut index, View::Now).is_err());
    assert!(!index.fits(&other, &wish.per_pod, View::Now));
}

/// Whether one domain of a level holds the leader and, beside it, all slices: every host is tried for the leader.
fn group_fits(
    cluster: &Cluster,
    level: usize,
    slice_level: usize,
    size: i64,
    sets: &[PodSetRequest],
) -> bool {
    let [leader, workers] = sets else { unreachable!("a leader and its workers") };
    let (leader, gpu) = (leader.per_pod["gpu"], workers.per_pod["gpu"]);
    cluster.hosts.iter().enumerate().filter(|(_, host)| cluster.fits(host, leader) > 0).any(|(at, host)| {
        let mut rest = Cluster { hosts: cluster.hosts.clone() };
        rest.hosts[at].gpus -= leader;
        rest.hosts[at].pods -= 1;
        rest.slices(level, slice_level, size, gpu)[&host.path[..=level]] >= workers.count / size
    })
}

#[test]
fn a_leader_finds_a_place_beside_its_workers_if_there_is_one() {
    let mut refused = 0;
    for seed in 0..CLUSTERS {
        let mut rng = fastrand::Rng::with_seed(seed);
        let cluster = Cluster::random(&mut rng);
        let mut index = cluster.index(&mut rng);
        let (mut workers, level, slice_level, size) = random_request(&mut rng);
        workers.spread = Spread::Required(LEVELS[level].into());
        workers.group = Some("all".into());
        let leader =
            PodSetRequest { count: 1, per_pod: gpus(rng.i64(0..=4)), layers: Vec::new(), ..workers.clone() };
        let sets = [leader, workers];
        // Of two pod sets of one pod the first has its slices looked at.
        if sets[1].count == 1 {
            continue;
        }
        let given = index.place(&sets, Rules::default(), View::Now).into_assignments();
        let possible = group_fits(&cluster, level, slice_level, size, &sets);
        assert_eq!(given.is_ok(), possible, "seed {seed}: {cluster:?} {sets:?} {given:?}");
        let Ok(given) = given else {
            refused += 1;
            continue;
        };
        cluster.check(&given[0], &sets[0], 2, 1);
        cluster.check(&given[1], &sets[1], slice_level, size);
        let path = |given: &Assignment| cluster.host(&given.domains[0].values[0]).path[..=level].to_vec();
        assert_eq!(path(&given[0]), path(&given[1]), "seed {seed}");
    }
    assert!((500..3_000).contains(&refused), "too few clusters say anything: {refused} refused");
}

#[test]
fn the_pods_of_a_failed_node_move_and_the_others_stay() {
    let (mut moved, mut refused) = (0, 0);
    for seed in 0..CLUSTERS {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut cluster = Cluster::random(&mut rng);
        let mut index = cluster.index(&mut rng);
        let (request, level, slice_level, size) = random_request(&mut rng);
        let (gpu, rules) = (request.per_pod["gpu"], Rules::default());
        let Ok(given) = index.place(std::slice::from_ref(&request), rules, View::Now).into_assignments()
        else {
            continue;
        };
        index.charge(&given[0], &request.per_pod);
        let failed = given[0].domains[rng.usize(0..given[0].domains.len())].clone();
        index.remove_node(&format!("node-{}", failed.values[0]));
        let previous = Previous::Failed { assignment: given[0].clone(), node: failed.values[0].clone() };
        let again = PodSetRequest { previous: Some(previous), ..request.clone() };
        let after = index.place(&[again], rules, View::Now).into_assignments();

        let first = given[0].domains.iter().find(|domain| **domain != failed);
        let mut room = Cluster { hosts: cluster.hosts.clone() };
        room.hosts.retain(|host| *host.path[2] != *failed.values[0]);
        for domain in given[0].domains.iter().filter(|domain| **domain != failed) {
            let host = room.hosts.iter_mut().find(|host| *host.path[2] == *domain.values[0]).unwrap();
            host.gpus -= domain.pods * gpu;
            host.pods -= domain.pods;
        }
        if size == 1 {
            let free = room.slices(level, 2, 1, gpu);
            let possible = match (&request.spread, first) {
                (Spread::Required(_), Some(first)) => {
                    free[&cluster.host(&first.values[0]).path[..=level]] >= failed.pods
                }
                (Spread::Required(_), None) => free.values().any(|pods| *pods >= failed.pods),
                _ => free.values().sum::<i64>() >= failed.pods,
            };
            assert_eq!(after.is_ok(), possible, "seed {seed}: {cluster:?} {request:?} {given:?} {after:?}");
        }
        let Ok([after]) = after.as_deref() else {
            refused += 1;
            continue;
        };
        moved += 1;
        cluster.hosts.retain(|host| *host.path[2] != *failed.values[0]);
        cluster.check(after, &request, slice_level, size);
        for kept in given[0].domains.iter().filter(|domain| **domain != failed) {
            let still = after.domains.iter().find(|domain| domain.values == kept.values);
            assert!(still.is_some_and(|domain| domain.pods >= kept.pods), "seed {seed}: {kept:?} has moved");
        }
        if matches!(request.spread, Spread::Required(_)) {
            assert_eq!(cluster.used(after, level), 1, "seed {seed}");
        }
    }
    assert!(moved > 400 && refused > 400, "{moved} moved, {refused} refused");
}

#[test]
fn nodes_that_do_not_suit_are_left_out_and_counted() {
    for seed in 0..CLUSTERS {
        let mut rng = fastrand::Rng::with_seed(seed);
        let cluster = Cluster::random(&mut rng);
        let taint = Taint { key: "k".into(), value: String::new(), effect: TaintEffect::NoSchedule };
        let own =
            Toleration { key: "k".into(), operator: TolerationOperator::Exists, ..Toleration::default() };
        // A field is compared with one value.
        let by_host = rng.u32(0..3);
        let names = if by_host == 2 { 1 } else { 8 };
        let listed: Vec<String> = (0..names).map(|host| format!("h{host}")).collect();
        let named = |key: &str| NodeSelectorRequirement {
            key: key.into(),
            operator: Operator::In,
            values: listed.clone(),
        };
        let mut wish = request(rng.i64(1..=9), rng.i64(0..=4), Spread::Unconstrained);
        let (tolerant, zoned) = (rng.bool(), rng.bool());
        wish.tolerations.extend(tolerant.then_some(own));
        wish.node_selector.extend(zoned.then(|| ("zone".to_owned(), "a".to_owned())));
        let term = match by_host {
            0 => None,
            1 => Some(NodeSelectorTerm { match_expressions: vec![named(HOSTNAME)], match_fields: vec![] }),
            _ => Some(NodeSelectorTerm {
                match_expressions: vec![],
                match_fields: vec![named("metadata.name")],
            }),
        };
        wish.affinity = term.map(|term| NodeSelector { node_selector_terms: vec![term] });

        let mut index = TopologyIndex::new(LEVELS.map(Arc::from).into(), BTreeMap::new(), Vec::new());
        let (mut room, mut useless) = (0, 0);
        for host in &cluster.hosts {
            let (tainted, zone) = (rng.bool(), ["a", "b"][rng.usize(0..2)]);
            let labels =
                LEVELS.iter().zip(&host.path).map(|(level, value)| ((*level).to_owned(), value.clone()));
            index.upsert_node(Node {
                name: host.path[2].as_str().into(),
                labels: labels.chain([("zone".to_owned(), zone.to_owned())]).collect(),
                taints: if tainted { vec![taint.clone()] } else { Vec::new() },
                allocatable: [("gpu".into(), host.gpus), ("pods".into(), host.pods)].into(),
                ready: true,
            });
            let suits = (!tainted || tolerant)
                && (!zoned || zone == "a")
                && (by_host == 0 || listed.contains(&host.path[2]));
            let fits = if suits { cluster.fits(host, wish.per_pod["gpu"]) } else { 0 };
            room += fits;
            useless += usize::from(fits == 0);
        }
        match index.place(std::slice::from_ref(&wish), Rules::default(), View::Now).into_assignments() {
            Ok(_) => assert!(room >= wish.count, "seed {seed}"),
            Err((_, TopologyReason::DoesNotFit { fits, wanted, exclusions, .. })) => {
                assert!(room < wish.count, "seed {seed}");
                assert_eq!((fits, wanted), (room, wish.count), "seed {seed}");
                let counted = exclusions.taints.values().chain(exclusions.resources.values()).sum::<usize>();
                assert_eq!(counted + exclusions.node_selector + exclusions.affinity, useless, "seed {seed}");
                assert_eq!(exclusions.total, cluster.hosts.len());
            }
            Err(other) => panic!("seed {seed}: {other:?}"),
        }
    }
}

/// Kueue `tas_flavor_snapshot.go`: one term that cannot be read spoils the others, and pods are not sent to nodes at a guess.
#[test]
fn nobody_guesses_what_a_malformed_affinity_means() {
    let mut index = TopologyIndex::new(LEVELS.map(Arc::from).into(), BTreeMap::new(), Vec::new());
    let labels = LEVELS.map(|level| (level.to_owned(), "x".to_owned()));
    index.upsert_node(Node {
        name: "x".into(),
        labels: labels.into(),
        taints: Vec::new(),
        allocatable: [("gpu".into(), 1), ("pods".into(), 10)].into(),
        ready: true,
    });
    let one = |operator, values: &[&str]| {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        let match_expressions = vec![NodeSelectorRequirement { key: "zone".into(), operator, values }];
        NodeSelectorTerm { match_expressions, match_fields: vec![] }
    };
    let (sound, malformed) = (one(Operator::DoesNotExist, &[]), one(Operator::NotIn, &[]));
    let mut wish = request(1, 1, Spread::Unconstrained);
    let mut place = |required: &[&NodeSelectorTerm], preferred: Option<i64>, rules| {
        let node_selector_terms = required.iter().map(|term| (*term).clone()).collect();
        wish.affinity = Some(NodeSelector { node_selector_terms });
        let preference = |weight| Preference { weight, term: malformed.clone() };
        wish.preferences = preferred.map(preference).into_iter().collect();
        index.place(std::slice::from_ref(&wish), rules, View::Now).into_assignments().map_err(|(_, why)| why)
    };
    let refused = || TopologyReason::MalformedAffinity("zone".into());
    let liking = Rules { preferred_affinity: true, ..Rules::default() };
    place(&[&sound], Some(1), Rules::default()).expect("preferences are not looked at");
    place(&[&sound], Some(0), liking).expect("a preference without weight is none");
    assert_eq!(place(&[&sound, &malformed], None, Rules::default()).err(), Some(refused()));
    assert_eq!(place(&[&sound], Some(1), liking).err(), Some(refused()));
}

#[test]
fn of_a_running_workload_only_the_failed_node_is_replaced() {
    let mut rng = fastrand::Rng::with_seed(1);
    let host = |name: &str| Host { path: ["b".into(), "r".into(), name.into()], gpus: 4, pods: 9 };
    let mut index = Cluster { hosts: vec![host("h1"), host("h2"), host("h3")] }.index(&mut rng);
    let on = |host: &str| on(&[(host, 2)]);
    let wish = request(2, 1, Spread::Required(HOSTNAME.into()));
    let with = |previous| PodSetRequest { previous, ..wish.clone() };
    index.remove_node("node-h1");
    let failed = |assignment| Some(Previous::Failed { assignment, node: "h1".into() });
    let mut place = |sets: &[PodSetRequest]| index.place(sets, Rules::default(), View::Now).pod_sets;

    let moved = place(&[with(failed(on("h1"))), with(None)]);
    assert_eq!(moved, [Some(Ok(on("h2"))), None]);
    let elsewhere = place(&[with(failed(on("h1"))), with(failed(on("h3"))), with(None)]);
    let not_there = TopologyReason::NotOnNode { node: "h1".into() };
    assert_eq!(elsewhere, [Some(Ok(on("h2"))), Some(Err(not_there)), None], "it lost another node");
    assert_eq!(place(&[with(Some(Previous::Kept(on("h1"))))]), [Some(Ok(on("h1")))], "it cannot move");
    let gone = Assignment { domains: [on("h1").domains, on("gone").domains].concat(), ..on("h1") };
    let stale = TopologyReason::StaleAssignment { domain: vec!["gone".into()] };
    assert_eq!(place(&[with(failed(gone)), wish.clone()]), [Some(Err(stale.clone())), None]);
    assert_eq!(place(&[with(failed(on("gone")))]), [Some(Err(stale))], "that is not the one to replace");
    let unsaid = PodSetRequest { spread: Spread::Unsaid, ..wish.clone() };
    assert_eq!(place(&[unsaid]), [Some(Err(TopologyReason::LevelNotGiven))]);
}

#[test]
fn a_growing_job_keeps_its_places_and_a_shrinking_one_gives_back_the_last() {
    let mut rng = fastrand::Rng::with_seed(1);
    let host = |name: &str| Host { path: ["b".into(), "r".into(), name.into()], gpus: 4, pods: 9 };
    let mut index = Cluster { hosts: vec![host("h1"), host("h2")] }.index(&mut rng);
    let rules = Rules { elastic: true, ..Rules::default() };
    for (before, count, after) in [
        (on(&[("h2", 3)]), 5, Some(on(&[("h1", 2), ("h2", 3)]))),
        (on(&[("h1", 1), ("h2", 3)]), 4, Some(on(&[("h1", 1), ("h2", 3)]))),
        (on(&[("h1", 1), ("h2", 3)]), 2, Some(on(&[("h1", 1), ("h2", 1)]))),
        (on(&[("gone", 3)]), 3, Some(on(&[("h1", 3)]))),
        (on(&[("h1", 4)]), 9, None),
    ] {
        let previous = Some(Previous::Slice(before.clone()));
        let wish = PodSetRequest { previous, ..request(count, 1, Spread::Unconstrained) };
        let given =
            index.place(&[wish], rules, View::Now).into_assignments().ok().map(|mut all| all.remove(0));
        assert_eq!(given, after, "{before:?} to {count}");
    }
}

/// Free GPUs of hosts, by block and rack.
fn cluster(hosts: &[(&str, &str, &str, i64)]) -> Cluster {
    let host = |(block, rack, name, gpus): &(&str, &str, &str, i64)| Host {
        path: [*block, *rack, *name].map(str::to_owned),
        gpus: *gpus,
        pods: 20,
    };
    Cluster { hosts: hosts.iter().map(host).collect() }
}

/// Slices of four in a rack, each of pairs on a host.
#[test]
fn balanced_slices_within_slices_go_where_fewest_pods_are_to_spare() {
    for (hosts, places) in [
        // Of two blocks that hold two slices each, the one with room for ten pods, not for twelve.
        (
            &[
                ("a", "a1", "h1", 3),
                ("a", "a1", "h2", 3),
                ("a", "a2", "h3", 3),
                ("a", "a2", "h4", 3),
                ("b", "b1", "h5", 5),
                ("b", "b2", "h6", 5),
            ][..],
            &[("h5", 4), ("h6", 4)][..],
        ),
        // By single pods a rack would hold two slices. It does not, and they are placed without balance.
        (
            &[
                ("a", "a1", "h1", 3),
                ("a", "a1", "h2", 3),
                ("a", "a1", "h3", 3),
                ("a", "a2", "h4", 3),
                ("a", "a2", "h5", 3),
                ("a", "a2", "h6", 3),
            ],
            &[("h1", 2), ("h2", 2), ("h4", 2), ("h5", 2)],
        ),
    ] {
        let mut index = cluster(hosts).index(&mut fastrand::Rng::with_seed(1));
        let layer = |level: &str, size| SliceLayer { level: level.into(), size };
        let wish = PodSetRequest {
            layers: vec![layer("rack", 4), layer(HOSTNAME, 2)],
            ..request(8, 1, Spread::Preferred("block".into()))
        };
        let rules = Rules { balanced: true, ..Rules::default() };
        let given = index.place(&[wish], rules, View::Now).into_assignments();
        assert_eq!(given, Ok(vec![on(places)]), "{hosts:?}");
    }
}

/// One of two pods of a slice has lost its host.
#[test]
fn a_broken_slice_is_mended_where_the_request_says_more_than_its_slices() {
    let layer = |level: &str, size| SliceLayer { level: level.into(), size };
    for (spread, layers, mended) in [
        (Spread::SlicesOnly, vec![layer("rack", 2)], false),
        (Spread::SlicesOnly, vec![layer("rack", 2), layer(HOSTNAME, 1)], true),
        (Spread::Unconstrained, vec![layer("rack", 2)], true),
        (Spread::Preferred("block".into()), vec![layer("rack", 2)], true),
        (Spread::Required("rack".into()), vec![layer("rack", 2)], true),
    ] {
        let hosts = [("b", "r", "h1", 1), ("b", "r", "h2", 1), ("b", "r", "h3", 1)];
        let mut index = cluster(&hosts).index(&mut fastrand::Rng::with_seed(1));
        let wish = PodSetRequest { layers, ..request(2, 1, spread) };
        let before = on(&[("h1", 1), ("h2", 1)]);
        index.charge(&before, &wish.per_pod);
        index.remove_node("node-h1");
        let previous = Some(Previous::Failed { assignment: before, node: "h1".into() });
        let again = PodSetRequest { previous, ..wish };
        let after = index.place(std::slice::from_ref(&again), Rules::default(), View::Now).pod_sets;
        let wanted =
            if mended { Ok(on(&[("h2", 1), ("h3", 1)])) } else { Err(TopologyReason::LevelNotGiven) };
        assert_eq!(after, [Some(wanted)], "{again:?}");
    }
}

#[test]
fn a_flavors_label_without_a_value_selects_nodes_without_the_label() {
    let labels = BTreeMap::from([("dedicated".to_owned(), String::new())]);
    for (label, taken) in [(None, true), (Some(""), true), (Some("gpu"), false)] {
        let mut index = TopologyIndex::new(vec![HOSTNAME.into()], labels.clone(), Vec::new());
        let own = label.map(|value| ("dedicated".to_owned(), value.to_owned()));
        index.upsert_node(Node {
            name: "h1".into(),
            labels: [(HOSTNAME.to_owned(), "h1".to_owned())].into_iter().chain(own).collect(),
            taints: Vec::new(),
            allocatable: [("gpu".into(), 1), ("pods".into(), 1)].into(),
            ready: true,
        });
        let given = index.place(&[request(1, 1, Spread::Unconstrained)], Rules::default(), View::Now);
        assert_eq!(given.into_assignments().is_ok(), taken, "{label:?}");
    }
}
