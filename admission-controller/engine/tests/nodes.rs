//! Workloads whose pods get places on nodes, step by step: what they are told, when they are looked at again, and what is kept
//! for them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;

use model::ResourceName;
use model::node::{Taint, TaintEffect, Toleration, TolerationOperator};
use model::selector::{LabelSelector, Labels};
use quota_engine::input::*;
use quota_engine::topology::{HOSTNAME, SelectorConflict, Spread, TopologyReason};
use quota_engine::*;
use support::nodes::*;
use support::*;

/// Who of a queue is looked at in the next cycle.
fn looked_at(world: &World, queue: &str) -> Vec<Uid> {
    world.engine.waiting_in(&queue.into()).0
}

/// One pod set only lacks quota, another could not be placed even if there were nobody: that is what has to be told.
#[test]
fn what_can_never_be_placed_is_not_told_to_wait_for_quota() {
    let mut world = world(&["n1", "n2", "n3"], &[("a", 12)]);
    let mut running = job("running", "a", [pods("main", 8, 1, Spread::Unconstrained)]);
    running.standing = holds(&running, "a", Some(at(&[("n1", 4), ("n2", 4)])));
    world.put(running);
    let small = pods("small", 5, 1, Spread::Unconstrained);
    world.put(job("both", "a", [small, pods("huge", 1, GPUS + 1, on_one_host())]));
    world.settle();
    assert_eq!(world.reason("both").token(), "TopologyPlacementFailed");
}

/// Of a pod set that lacks quota, too, that is what is told. The reason says that quota would not be enough.
#[test]
fn what_lacks_quota_is_not_told_that_it_has_no_places_either() {
    let mut world = world(&["n1", "n2"], &[("a", 8)]);
    let mut running = job("running", "a", [pods("main", 4, 1, Spread::Unconstrained)]);
    running.standing = holds(&running, "a", Some(at(&[("n1", 4)])));
    world.put(running);
    world.put(job("huge", "a", [pods("main", 1, GPUS + 1, on_one_host())]));
    world.settle();
    assert_eq!(world.reason("huge").token(), "TopologyPlacementFailed");
    let PendingReason::NoFit(told) = world.reason("huge") else { panic!("{:?}", world.reason("huge")) };
    assert!(matches!(told[0].obstacles[..], [Obstacle::Insufficient { .. }]), "{told:?}");
}

/// The head of one queue took the node that the head of another had found. Nothing that could help the other is under way, so
/// it is not looked at again for that.
#[test]
fn who_lost_its_place_within_a_cycle_waits_for_room() {
    let mut world = world(&["n1"], &[("a", 4), ("b", 4)]);
    world.put(job("first", "a", [pods("main", 4, 1, on_one_host())]));
    world.put(Workload { priority: -1, ..job("second", "b", [pods("main", 4, 1, on_one_host())]) });
    world.cycle();
    assert!(world.is_admitted("first"));
    assert_eq!(looked_at(&world, "b"), []);
    world.standing("first", Standing::Finished);
    world.settle();
    assert!(world.is_admitted("second"));
}

/// Where pods leave a node that is gone, no room comes back.
#[test]
fn a_place_on_a_lost_node_is_of_no_use_to_those_who_wait() {
    let mut world = world(&["n1", "n2", "n3"], &[("a", 4), ("b", 8)]);
    let mut moved = job("moved", "a", [pods("main", 4, 1, on_one_host())]);
    moved.standing = holds(&moved, "a", Some(at(&[("n1", 4)])));
    world.put(moved);
    world.put(job("waits", "b", [pods("main", 3, 3, Spread::Unconstrained)]));
    world.settle();
    assert_eq!(looked_at(&world, "b"), []);
    world.engine.apply(Event::NodeGone("n1".into()));
    world.settle();
    let mut moved = world.workloads[&Uid::from("moved")].clone();
    moved.seldom.unhealthy_nodes = vec!["n1".into()];
    world.put(moved);
    world.cycle();
    assert_eq!(hosts_of(&world, "moved"), ["n2"]);
    assert_eq!(looked_at(&world, "b"), []);
}

/// The API server does not take the new place. Nothing about it will be different at once.
#[test]
fn a_place_that_was_refused_is_not_written_again_before_the_workload_is_another() {
    let mut world = world(&["n1", "n2"], &[("a", 4)]);
    let mut moved = job("moved", "a", [pods("main", 4, 1, on_one_host())]);
    moved.standing = holds(&moved, "a", Some(at(&[("n1", 4)])));
    moved.seldom.unhealthy_nodes = vec!["n1".into()];
    world.put(moved.clone());
    let is_reserve = |decision: &Decision| matches!(decision, Decision::Reserve(_));
    let Decision::Reserve(reserve) = world.engine.decide(0).remove(0) else { panic!() };
    world.engine.written(reserve.id, Outcome::Refused("no".into()));
    let after = world.engine.decide(0);
    assert!(!after.iter().any(is_reserve), "{after:?}");
    let told = after.iter().find_map(|decision| match decision {
        Decision::SetUnplaced(told) => Some((*told.reason).clone()),
        _ => None,
    });
    assert_eq!(told, Some(PendingReason::AdmissionRefused("no".into())));
    world.engine.audit().unwrap();
    moved.priority += 1;
    world.put(moved);
    assert!(world.engine.decide(0).iter().any(is_reserve));
}

/// Two have quota, and there is one node.
#[test]
fn of_those_who_have_quota_the_one_of_higher_priority_has_its_places_first_where_heads_go_by_that() {
    for (by_priority, first) in [(true, "urgent"), (false, "older")] {
        let settings = Settings { priority_sorting: by_priority, ..Settings::default() };
        let mut world = world_with(settings, &["n1"], &[("a", 12)]);
        for (uid, priority, queued_at_ms) in [("older", 0, 0), ("urgent", 1, 1)] {
            let mut one = job(uid, "a", [pods("main", 4, 1, on_one_host())]);
            one.standing = holds(&one, "a", None);
            one.checks_passed = true;
            (one.priority, one.queued_at_ms) = (priority, queued_at_ms);
            world.put(one);
        }
        world.cycle();
        let placed = ["older", "urgent"].map(|uid| !hosts_of(&world, uid).is_empty());
        assert_eq!(placed, [first == "older", first == "urgent"], "{first} comes first");
    }
}

/// One with quota finds others on every node on which it could be, whom it may not displace. What it will have when they have
/// ended is not given to the one after it.
#[test]
fn places_are_kept_for_who_has_quota_and_may_displace_nobody() {
    let mut world = world(&["n1", "n2"], &[("a", 12)]);
    let mut running = job("running", "a", [pods("main", 2, 1, Spread::Unconstrained)]);
    running.standing = holds(&running, "a", Some(at(&[("n1", 1), ("n2", 1)])));
    world.put(running);
    for (uid, count) in [("whole", 4), ("part", 3)] {
        let mut one = job(uid, "a", [pods("main", count, 1, on_one_host())]);
        one.standing = holds(&one, "a", None);
        one.checks_passed = true;
        one.priority = count.try_into().unwrap();
        world.put(one);
    }
    world.cycle();
    assert_eq!(hosts_of(&world, "whole"), [""; 0]);
    assert_eq!(hosts_of(&world, "part"), ["n2"]);
}

/// Who fills the node belongs to the same queue or borrows in another. Its quota would have to be enough for as much on top of
/// what the one in need of places has.
#[test]
fn who_has_quota_displaces_those_for_places_whom_it_would_displace_for_as_much_quota_again() {
    for (elsewhere, filled, nominal, evictions) in
        [(false, 2, 6, 0), (false, 2, 8, 1), (true, 4, 2, 0), (true, 4, 8, 1)]
    {
        let mut world = world(&["n1"], &[("a", nominal), ("b", 2), ("c", 4)]);
        let cohort = elsewhere.then_some("pool");
        let mut queue = cluster_queue("a", cohort, gpus(&[("f", quota(nominal, None, None))]));
        queue.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
        queue.preemption.reclaim_within_cohort = ReclaimWithinCohort::Any;
        world.engine.apply(Event::ClusterQueue(queue));
        let of = if elsewhere { "b" } else { "a" };
        let mut fills = job("fills", of, [pods("main", filled, 1, Spread::Unconstrained)]);
        fills.standing = holds(&fills, of, Some(at(&[("n1", filled)])));
        world.put(fills);
        let mut one = job("one", "a", [pods("main", 4, 1, on_one_host())]);
        one.standing = holds(&one, "a", None);
        one.checks_passed = true;
        one.priority = 1;
        world.put(one);
        world.settle();
        assert_eq!(world.evictions.len(), evictions, "elsewhere: {elsewhere}, nominal {nominal}");
    }
}

/// Where admission waits for pods, its own are among those that are awaited: they come when it has places.
#[test]
fn who_has_quota_and_needs_places_does_not_wait_for_pods() {
    let settings = Settings { block_admission: true, ..Settings::default() };
    let mut world = world_with(settings, &[], &[("a", 4)]);
    let mut one = job("one", "a", [pods("main", 4, 1, on_one_host())]);
    one.standing = holds(&one, "a", None);
    one.checks_passed = true;
    world.put(one);
    world.settle();
    assert_eq!(hosts_of(&world, "one"), [""; 0]);
    world.engine.apply(node("n1"));
    world.settle();
    assert_eq!(hosts_of(&world, "one"), ["n1"]);
}

/// What its queue may not decide now is put off: there is neither another place nor an eviction.
#[test]
fn who_lost_a_node_keeps_its_place_while_its_queue_does_not_serve_it() {
    let queue = |stop, namespace_selector| {
        let groups = gpus(&[("f", quota(4, None, None))]);
        let queue = cluster_queue("a", Some("pool"), groups);
        Event::ClusterQueue(ClusterQueue { stop, namespace_selector, ..queue })
    };
    let all = Some(LabelSelector::default());
    for (stop, selector, token) in
        [(StopPolicy::Hold, all.clone(), "Suspended"), (StopPolicy::None, None, "Misconfigured")]
    {
        let mut world = world(&["n1", "n2"], &[("a", 4)]);
        let mut moved = job("moved", "a", [pods("main", 4, 1, on_one_host())]);
        moved.standing = holds(&moved, "a", Some(at(&[("n1", 4)])));
        moved.seldom.unhealthy_nodes = vec!["n1".into()];
        world.engine.apply(queue(stop, selector));
        world.put(moved);
        let told = world.engine.decide(0);
        assert!(matches!(&told[..], [Decision::SetUnplaced(one)] if one.reason.token() == token), "{told:?}");
        assert!(world.engine.decide(0).is_empty(), "it is told once");
        world.engine.apply(queue(StopPolicy::None, all.clone()));
        world.settle();
        assert_eq!(hosts_of(&world, "moved"), ["n2"], "{token}");
    }
}

/// A LimitRange that came since would have the API server refuse the pods that take the place of the lost ones.
#[test]
fn who_lost_a_node_keeps_its_place_while_its_pods_would_be_refused() {
    let mut world = world(&["n1", "n2"], &[("a", 4)]);
    let mut moved = job("moved", "a", [pods("main", 4, 1, on_one_host())]);
    moved.standing = holds(&moved, "a", Some(at(&[("n1", 4)])));
    moved.seldom.unhealthy_nodes = vec!["n1".into()];
    moved.seldom.defect = Some("more than the namespace allows".into());
    let asked = moved.pod_sets.clone();
    world.put(moved);
    let told = world.engine.decide(0);
    let token = "Misconfigured";
    assert!(matches!(&told[..], [Decision::SetUnplaced(one)] if one.reason.token() == token), "{told:?}");
    world.engine.apply(Event::Requests("moved".into(), asked, None));
    world.settle();
    assert_eq!(hosts_of(&world, "moved"), ["n2"]);
}

/// The first of the nodes that failed is replaced where the other places are there still. Nodes: n2 and n3; n1 and n9 are gone.
#[test]
fn of_several_failed_nodes_one_is_replaced_unless_its_other_places_are_gone() {
    let both_gone = [("n1", 2), ("n9", 2)];
    for (held, failed, fail_fast, hosts, evictions) in [
        (&[("n1", 4)][..], ["n1", "n9"], true, &["n2"][..], 0),
        (&[("n1", 2), ("n3", 4)], ["n1", "n3"], true, &["n2", "n3"], 0),
        (&both_gone, ["n1", "n9"], true, &["n1", "n9"], 1),
        (&both_gone, ["n1", "n9"], false, &["n1", "n9"], 0),
    ] {
        let topology = TopologySettings { fail_fast, ..TopologySettings::default() };
        let settings = Settings { topology, ..Settings::default() };
        let mut world = world_with(settings, &["n2", "n3"], &[("a", 8)]);
        let count = held.iter().map(|(_, pods)| pods).sum();
        let mut moved = job("moved", "a", [pods("main", count, 1, Spread::Unconstrained)]);
        moved.standing = holds(&moved, "a", Some(at(held)));
        moved.seldom.unhealthy_nodes = failed.iter().map(|name| (*name).into()).collect();
        world.put(moved);
        world.settle();
        assert_eq!(hosts_of(&world, "moved"), hosts, "{held:?} {failed:?}");
        assert_eq!(world.evictions.len(), evictions, "{held:?} {failed:?}");
    }
}

/// Two nodes failed, and each has another pod set: only the first node is replaced, so there is no place for the second pod set.
#[test]
fn a_pod_set_that_lost_another_node_than_the_one_replaced_finds_no_place() {
    for (failed, hosts, evictions) in [(&["n1"][..], ["n3", "n2"], 0), (&["n1", "n2"], ["n1", "n2"], 1)] {
        let mut world = world(&["n2", "n3"], &[("a", 8)]);
        let sets = ["one", "two"].map(|name| pods(name, 4, 1, on_one_host()));
        let places = [at(&[("n1", 4)]), at(&[("n2", 4)])];
        let held = sets.iter().zip(places).map(|(set, places)| granted(set, Some(places))).collect();
        let mut moved = job("moved", "a", sets);
        moved.standing = holds_all("a", held);
        moved.seldom.unhealthy_nodes = failed.iter().map(|name| (*name).into()).collect();
        world.put(moved);
        world.settle();
        assert_eq!(hosts_of(&world, "moved"), hosts, "{failed:?}");
        assert_eq!(world.evictions.len(), evictions, "{failed:?}");
    }
}

/// Two look for another node in one cycle and find the same one. Whether the second may look again at once is a matter of a gate;
/// that there is none for it is known only then, or in the next cycle.
#[test]
fn who_is_outrun_with_quota_looks_for_another_place_at_once_or_in_the_next_cycle() {
    for (recompute, nodes, first, second) in [
        (true, &["n3", "n4"][..], ("n4", 0), ("n4", 0)),
        (true, &["n3"], ("n2", 1), ("n2", 1)),
        (false, &["n3", "n4"], ("n2", 0), ("n4", 0)),
        (false, &["n3"], ("n2", 0), ("n2", 1)),
    ] {
        let topology = TopologySettings { recompute, ..TopologySettings::default() };
        let settings = Settings { topology, ..Settings::default() };
        let mut world = world_with(settings, nodes, &[("a", 8)]);
        for (uid, node, priority) in [("one", "n1", 1), ("two", "n2", 0)] {
            let mut moved = Workload { priority, ..job(uid, "a", [pods("main", 4, 1, on_one_host())]) };
            moved.standing = holds(&moved, "a", Some(at(&[(node, 4)])));
            moved.seldom.unhealthy_nodes = vec![node.into()];
            world.put(moved);
        }
        for (host, evictions) in [first, second] {
            world.cycle();
            assert_eq!(hosts_of(&world, "one"), ["n3"], "{recompute} {nodes:?}");
            assert_eq!(hosts_of(&world, "two"), [host], "{recompute} {nodes:?}");
            assert_eq!(world.evictions.len(), evictions, "{recompute} {nodes:?}");
        }
    }
}

/// Checks that are passed say on which nodes the pods go, and so do the pods.
#[test]
fn there_is_no_place_where_checks_contradict_the_pods_or_one_another() {
    for (own, checks, place) in [
        (None, &["n2"][..], Ok("n2")),
        (Some("n2"), &["n2", "n2"], Ok("n2")),
        (Some("n1"), &["n2"], Err(("n1", "n2"))),
        (None, &["n2", "n1"], Err(("n2", "n1"))),
    ] {
        let mut world = world(&["n1", "n2"], &[("a", 4)]);
        let label = |value: &&str| (HOSTNAME.to_owned(), (*value).to_owned());
        let node_selector = own.iter().map(label).collect();
        let mut one =
            job("one", "a", [PodSet { node_selector, ..pods("main", 4, 1, Spread::Unconstrained) }]);
        one.standing = holds(&one, "a", None);
        one.checks_passed = true;
        let update = |value: &&str| {
            let (name, node_selector) = ("main".into(), [label(value)].into());
            PodSetUpdate { name, node_selector, ..PodSetUpdate::default() }
        };
        one.seldom.updates = checks.iter().map(update).collect();
        world.put(one);
        let decided = world.engine.decide(0);
        match (place, &decided[..]) {
            (Ok(host), [Decision::Reserve(reserve)]) => {
                let places = reserve.admission.pod_sets[0].topology.as_ref().unwrap();
                assert_eq!(*places, at(&[(host, 4)]));
            }
            (Err((given, wanted)), [Decision::SetUnplaced(told)]) => {
                let conflict =
                    SelectorConflict { label: HOSTNAME.into(), given: given.into(), wanted: wanted.into() };
                let conflict = Box::new(TopologyReason::SelectorConflict(conflict));
                let PendingReason::NoFit(pod_sets) = &*told.reason else { panic!("{:?}", told.reason) };
                assert_eq!(pod_sets[0].obstacles, [Obstacle::NoPlaces("f".into(), conflict)]);
            }
            other => panic!("{own:?} {checks:?}: {other:?}"),
        }
    }
}

/// Flavor g has the nodes of f: queue b has its GPUs of f, and of g another resource, for pods that use GPUs all the same.
fn two_flavors(shared_nodes: bool) -> World {
    let topology = TopologySettings { shared_nodes, ..TopologySettings::default() };
    let mut world = world_with(Settings { topology, ..Settings::default() }, &["n1"], &[("a", 4)]);
    let other = Flavor { topology: Some("hosts".into()), node_labels: Labels::new(), ..flavor("g") };
    world.engine.apply(Event::Flavor(other));
    let mut groups = gpus(&[("f", quota(4, None, None))]);
    let resources = [(ResourceName::from(NIC), quota(4, None, None))].into();
    groups.push(ResourceGroup {
        covered: vec![NIC.into()],
        flavors: vec![FlavorQuotas { flavor: "g".into(), resources }],
    });
    world.engine.apply(Event::ClusterQueue(cluster_queue("b", None, groups)));
    world.engine.apply(Event::LocalQueue(local_queue("b")));
    world
}

#[test]
fn what_is_used_of_a_node_counts_for_all_its_flavors_unless_that_is_switched_off() {
    for shared in [true, false] {
        let nics = PodSet { requests: [(NIC.into(), 1)].into(), ..pods("nics", 3, 1, on_one_host()) };
        let mut world = two_flavors(shared);
        world.put(job("one", "a", [pods("main", 3, 1, on_one_host())]));
        world.settle();
        world.put(job("other", "b", [nics.clone()]));
        world.settle();
        assert!(world.is_admitted("one"));
        assert_eq!(world.is_admitted("other"), !shared);

        let mut world = two_flavors(shared);
        world.put(job("both", "b", [pods("main", 3, 1, on_one_host()), nics]));
        world.settle();
        assert_eq!(world.is_admitted("both"), !shared);
    }
}

/// Pods that stay where they are take their room there once, for either flavor. The node has four GPUs: for one pod that stays and
/// three that come.
#[test]
fn pods_that_stay_when_a_node_is_replaced_are_not_counted_twice_for_flavors_that_share_nodes() {
    let mut world = two_flavors(true);
    world.engine.apply(node("n2"));
    world.engine.apply(Event::NodeGone("n1".into()));
    let nics = PodSet { requests: [(NIC.into(), 1)].into(), ..pods("nics", 1, 1, Spread::Unconstrained) };
    let mut moved = job("moved", "b", [pods("main", 3, 1, Spread::Unconstrained), nics]);
    let of_nics = PodSetAssignment {
        name: "nics".into(),
        flavors: [(NIC.into(), "g".into())].into(),
        usage: [(NIC.into(), 1)].into(),
        count: 1,
        topology: Some(at(&[("n1", 1)])),
        delayed: None,
    };
    let of_main = granted(&moved.pod_sets[0], Some(at(&[("n1", 2), ("n2", 1)])));
    moved.standing = holds_all("b", vec![of_main, of_nics]);
    moved.seldom.unhealthy_nodes = vec!["n1".into()];
    world.put(moved);
    world.settle();
    assert_eq!(hosts_of(&world, "moved"), ["n2", "n2"]);
}

#[test]
fn a_leader_that_asks_for_nothing_uses_nothing_of_its_workers_flavor() {
    let mut world = world(&["n1"], &[("a", 4)]);
    let workers = PodSet { group: Some("g".into()), ..pods("workers", 2, 1, on_one_host()) };
    let (name, requests, pod_requests) = ("leader".into(), Default::default(), Arc::default());
    let leader = PodSet { name, count: 1, requests, pod_requests, ..workers.clone() };
    world.put(job("job", "a", [leader, workers]));
    world.settle();
    let Standing::Reserved { admission, .. } = &world.workloads[&Uid::from("job")].standing else { panic!() };
    let used: Vec<i64> = admission.pod_sets.iter().map(|one| one.usage[GPU]).collect();
    assert_eq!(used, [0, 2]);
}

/// There is no flavor to place them by: that is not to be waited for.
#[test]
fn who_is_to_be_placed_and_finds_no_topology_or_names_no_level_is_told_so() {
    let mut world = world(&["n1"], &[("a", 4)]);
    let (requests, pod_requests) = (Default::default(), Arc::default());
    let asks_nothing = PodSet { requests, pod_requests, ..pods("main", 1, 1, on_one_host()) };
    world.put(job("nothing", "a", [asks_nothing]));
    world.put(job("unsaid", "a", [pods("main", 1, 1, Spread::Unsaid)]));
    world.settle();
    for (uid, obstacle) in [
        ("nothing", Obstacle::NotOneTopology(assign::TopologyDefect::NoFlavor)),
        ("unsaid", Obstacle::LevelNotGiven("f".into())),
    ] {
        let reason = world.reason(uid);
        assert_eq!(reason.token(), "NoMatchingFlavor", "{uid}");
        let PendingReason::NoFit(pod_sets) = reason else { panic!("{reason:?}") };
        assert_eq!(pod_sets[0].obstacles, [obstacle]);
    }
}

#[test]
fn who_may_be_resized_is_kept_to_no_domain_where_slices_are_placed_upon_one_another() {
    for elastic in [false, true] {
        let rules = topology::Rules { elastic, ..topology::Rules::default() };
        let topology = TopologySettings { rules, ..TopologySettings::default() };
        let mut world = world_with(Settings { topology, ..Settings::default() }, &["n1"], &[("a", 4)]);
        let resized = |uid: &str, spread: Spread| {
            let seldom = Seldom { elastic: true, ..Seldom::default() };
            Workload { seldom: seldom.into(), ..job(uid, "a", [pods("main", 1, 1, spread)]) }
        };
        world.put(resized("bound", on_one_host()));
        world.put(resized("free", Spread::Unconstrained));
        world.put(job("other", "a", [pods("main", 1, 1, on_one_host())]));
        world.settle();
        let admitted = ["bound", "free", "other"].map(|uid| world.is_admitted(uid));
        assert_eq!(admitted, [!elastic, true, true]);
        if elastic {
            let reason = world.reason("bound");
            assert_eq!(reason.token(), "NoMatchingFlavor");
            let PendingReason::NoFit(pod_sets) = reason else { panic!("{reason:?}") };
            let obstacle = Obstacle::NotOneTopology(assign::TopologyDefect::Elastic);
            assert_eq!(pod_sets[0].obstacles, [obstacle]);
        }
    }
}

/// However many levels there are, and be they the same, there are places; without any there is no topology.
#[test]
fn odd_levels_have_places_or_none() {
    let many: Vec<String> = (0..19).map(|level| format!("l{level}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).chain([HOSTNAME]).collect();
    let odd: [&[&str]; 5] =
        [&[], &many, &["rack", "rack", HOSTNAME], &[HOSTNAME, HOSTNAME], &[HOSTNAME, "rack"]];
    for levels in odd {
        let mut world = world(&[], &[("a", 8)]);
        let names = levels.iter().map(|level| (*level).to_owned()).collect();
        world.engine.apply(Event::Topology("hosts".into(), names));
        let above: Vec<(&str, &str)> =
            levels.iter().filter(|level| **level != HOSTNAME).map(|level| (*level, "same")).collect();
        for host in ["n1", "n2"] {
            world.engine.apply(labelled(host, &above));
        }
        let spread = levels.first().map_or(Spread::Unconstrained, |level| Spread::Required((*level).into()));
        world.put(job("job", "a", [pods("main", 4, 1, spread)]));
        world.settle();
        assert_eq!(world.is_admitted("job"), !levels.is_empty(), "{levels:?}");
    }
}

/// A node without the label of a level is no place; one whose label is empty is one, in the domain of that value.
#[test]
fn odd_labels_of_nodes_make_places_or_none() {
    for (count, wanted) in [(8, vec!["blank", "n1"]), (9, vec![])] {
        let mut world = world(&["bare"], &[("a", 12)]);
        let levels = vec!["rack".to_owned(), HOSTNAME.to_owned()];
        world.engine.apply(Event::Topology("hosts".into(), levels));
        world.engine.apply(labelled("n1", &[("rack", "r1")]));
        world.engine.apply(labelled("blank", &[("rack", "")]));
        world.put(job("job", "a", [pods("main", count, 1, Spread::Unconstrained)]));
        world.settle();
        let mut hosts = hosts_of(&world, "job");
        hosts.sort();
        assert_eq!(hosts, wanted, "{count} pods");
    }
}

/// What the namespace's LimitRange makes of its requests is told anew; that topologies are not heeded stays so.
#[test]
fn requests_that_change_bring_no_wishes_back() {
    let topology = TopologySettings { enabled: false, ..TopologySettings::default() };
    let settings = Settings { topology, ..Settings::default() };
    let mut world = world_with(settings, &[], &[("a", 4)]);
    world.put(job("one", "a", [pods("main", 5, 1, on_one_host())]));
    world.settle();
    assert_eq!(world.reason("one").token(), "ExceedsMaxQuota");
    let fewer = job("one", "a", [pods("main", 4, 1, on_one_host())]);
    world.engine.apply(Event::Requests("one".into(), fewer.pod_sets, None));
    world.settle();
    assert!(world.is_admitted("one"));
}

/// What is told with the reason, what it asks for, is another.
#[test]
fn a_reason_is_told_again_when_requests_change() {
    let mut world = world(&[], &[("a", 4)]);
    let spec = cluster_queue("a", Some("pool"), gpus(&[("f", quota(4, None, None))]));
    world.engine.apply(Event::ClusterQueue(ClusterQueue { namespace_selector: None, ..spec }));
    world.put(workload("one", "a", 1, 0));
    world.settle();
    assert_eq!(world.pending.remove(&Uid::from("one")).unwrap().token(), "Misconfigured");
    let more = workload("one", "a", 2, 0);
    world.engine.apply(Event::Requests("one".into(), more.pod_sets, None));
    world.settle();
    assert_eq!(world.reason("one").token(), "Misconfigured");
}

/// Pods that ask for nothing that counts have no flavor, and so no nodes on which they could get places: the scheduler finds them
/// some.
#[test]
fn pods_that_ask_only_for_what_is_not_counted_get_no_places() {
    let cpu = ResourceName::from("cpu");
    for (undeclared, wanted) in [(Undeclared::Ignore, true), (Undeclared::Block, false)] {
        let settings = Settings { undeclared, ..Settings::default() };
        let mut world = world_with(settings, &["a"], &[("q", 4)]);
        let mut one = pods("main", 1, 1, Spread::Unconstrained);
        one.requests = [(cpu.clone(), 1)].into();
        one.pod_requests = Arc::new(one.requests.clone());
        for (name, topology) in [("asks", one.topology.clone()), ("asks-not", None)] {
            world.put(job(name, "q", [PodSet { topology, ..one.clone() }]));
            world.settle();
            assert_eq!(world.is_admitted(name), wanted, "{name}, {undeclared:?}");
            assert!(hosts_of(&world, name).is_empty());
        }
    }
}

/// The same where those beside it get theirs later, since its flavor's nodes are still to be made: then, too, it is passed over.
#[test]
fn pods_that_ask_only_for_what_is_not_counted_do_not_stop_others_from_getting_places_later() {
    let settings = Settings { undeclared: Undeclared::Ignore, ..Settings::default() };
    let mut world = world_with(settings, &["a"], &[("q", 4)]);
    let cpu: model::ResourceList = [(ResourceName::from("cpu"), 1)].into();
    let driver = PodSet {
        requests: cpu.clone(),
        pod_requests: Arc::new(cpu),
        ..pods("driver", 1, 1, Spread::Unconstrained)
    };
    let mut one = job("w", "q", [driver.clone(), pods("main", 1, 1, Spread::Unconstrained)]);
    let uncounted = PodSetAssignment { name: "driver".into(), count: 1, ..PodSetAssignment::default() };
    one.standing = holds_all("q", vec![uncounted, granted(&one.pod_sets[1], None)]);
    one.checks_passed = true;
    world.put(one);
    world.settle();
    assert_eq!(hosts_of(&world, "w"), ["a"]);
}

/// What they say of the pods' labels is compared with the templates before the engine hears of it.
#[test]
fn there_is_no_place_where_checks_contradict_the_labels_of_the_pods() {
    let mut world = world(&["n1"], &[("a", 4)]);
    let mut one = job("one", "a", [pods("main", 4, 1, Spread::Unconstrained)]);
    one.standing = holds(&one, "a", None);
    one.checks_passed = true;
    let (label, given, wanted) = ("tier".into(), "one".into(), "two".into());
    let conflict = SelectorConflict { label, given, wanted };
    let update =
        PodSetUpdate { name: "main".into(), conflict: Some(conflict.clone()), ..PodSetUpdate::default() };
    one.seldom.updates = vec![update];
    world.put(one);
    let [Decision::SetUnplaced(told)] = &world.engine.decide(0)[..] else { panic!("it has places") };
    let PendingReason::NoFit(pod_sets) = &*told.reason else { panic!("{:?}", told.reason) };
    let conflict = Box::new(TopologyReason::SelectorConflict(conflict));
    assert_eq!(pod_sets[0].obstacles, [Obstacle::NoPlaces("f".into(), conflict)]);
}

/// Who has quota and waits for places is looked at again when a flavor, and so where there are places, has become another.
#[test]
fn another_flavor_may_have_places_for_who_lost_a_node() {
    let topology = TopologySettings { fail_fast: false, ..TopologySettings::default() };
    let settings = Settings { topology, ..Settings::default() };
    let mut world = world_with(settings, &["n2"], &[("a", 8)]);
    let taint = Taint { key: "spot".into(), value: String::new(), effect: TaintEffect::NoSchedule };
    let Event::Node(mut spot) = node("n2") else { panic!() };
    spot.taints.push(taint);
    world.engine.apply(Event::Node(spot));
    let mut moved = job("moved", "a", [pods("main", 4, 1, on_one_host())]);
    moved.standing = holds(&moved, "a", Some(at(&[("n1", 4)])));
    moved.seldom.unhealthy_nodes = vec!["n1".into()];
    world.put(moved);
    world.settle();
    assert_eq!(hosts_of(&world, "moved"), ["n1"]);
    let operator = TolerationOperator::Exists;
    let toleration = Toleration { key: "spot".into(), operator, ..Toleration::default() };
    let tolerating = Flavor { tolerations: vec![toleration], topology: Some("hosts".into()), ..flavor("f") };
    world.engine.apply(Event::Flavor(Flavor { node_labels: Labels::new(), ..tolerating }));
    world.settle();
    assert_eq!(hosts_of(&world, "moved"), ["n2"]);
}
