//! Pods that cannot all be put into slices of a topology: as many get places as make whole slices.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;

use model::ResourceName;
use model::selector::Labels;
use quota_engine::input::*;
use quota_engine::topology::{HOSTNAME, Node, SliceLayer, Spread, TopologyReason};
use quota_engine::*;
use support::*;

const RACK: &str = "rack";

/// One rack of nodes of two GPUs each, and a queue with quota enough.
fn world(nodes: usize) -> World {
    world_with(Settings::default(), nodes)
}

fn world_with(settings: Settings, nodes: usize) -> World {
    let racks = Flavor { topology: Some("racks".into()), node_labels: Labels::new(), ..flavor("f") };
    let queue = cluster_queue("cq", None, gpus(&[("f", quota(100, None, None))]));
    let mut events = vec![
        Event::Flavor(racks),
        Event::Topology("racks".into(), vec![RACK.to_owned(), HOSTNAME.to_owned()]),
        Event::ClusterQueue(queue),
        Event::LocalQueue(local_queue("cq")),
    ];
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    events.extend((0..nodes).map(|at| {
        let name = format!("n{at}");
        Event::Node(Node {
            name: name.as_str().into(),
            labels: [label(RACK, "r"), label(HOSTNAME, &name)].into(),
            taints: Vec::new(),
            allocatable: [(ResourceName::from(GPU), 2), (ResourceName::from(ResourceName::PODS), 9)].into(),
            ready: true,
        })
    }));
    World::with(settings, events)
}

/// Pods of one GPU each, in pairs within a rack.
fn in_pairs(count: i64, min_count: Option<i64>) -> Workload {
    let mut one = workload("one", "cq", count, 0);
    let layers = vec![SliceLayer { level: Arc::from(RACK), size: 2 }];
    pod_set(&mut one).topology = Some(TopologyWish { spread: Spread::SlicesOnly, layers });
    pod_set(&mut one).min_count = min_count;
    one
}

/// Its admission.
fn held<'a>(world: &'a World, uid: &str) -> Option<&'a PodSetAssignment> {
    match &world.workloads[&Uid::from(uid)].standing {
        Standing::Reserved { admission, .. } => Some(&admission.pod_sets[0]),
        _ => None,
    }
}

/// How many pods were admitted, and how many of them have places.
fn given(world: &World) -> Option<(i64, i64)> {
    let held = held(world, "one")?;
    Some((held.count, held.topology.as_ref().unwrap().pods()))
}

#[test]
fn pods_that_are_left_over_get_no_places() {
    for (count, min_count, nodes, wanted) in [
        (4, None, 2, Some((4, 4))),
        (5, None, 2, Some((5, 4))),
        (5, None, 1, None),
        // With fewer of them where not all whole slices fit.
        (7, Some(3), 3, Some((7, 6))),
        (7, Some(3), 2, Some((5, 4))),
    ] {
        let mut world = world(nodes);
        world.put(in_pairs(count, min_count));
        world.settle();
        assert_eq!(given(&world), wanted, "{count} pods, {nodes} nodes");
    }
}

#[test]
fn fewer_pods_than_a_slice_has_find_no_place() {
    let mut world = world(1);
    world.put(in_pairs(1, None));
    world.settle();
    let PendingReason::NoFit(told) = world.reason("one") else { panic!("{:?}", world.reason("one")) };
    let reason = Box::new(TopologyReason::NoWholeSlice { pods: 1, size: 2 });
    assert_eq!(told[0].obstacles, [Obstacle::NoPlaces("f".into(), reason)]);
}

/// Kueue looks at the first two, and of the leader at one pod.
#[test]
fn of_a_group_two_pod_sets_get_places() {
    let mut one = workload("one", "cq", 1, 0);
    let set = pod_set(&mut one);
    set.group = Some("all".into());
    set.topology = Some(TopologyWish { spread: Spread::Required(RACK.into()), layers: Vec::new() });
    let set = set.clone();
    for name in ["second", "third"] {
        add_pod_set(&mut one, PodSet { name: name.into(), ..set.clone() });
    }
    let mut world = world(2);
    world.put(one);
    world.settle();
    let Standing::Reserved { admission, .. } = &world.workloads[&Uid::from("one")].standing else {
        panic!("{:?}", world.reason("one"))
    };
    let placed: Vec<bool> = admission.pod_sets.iter().map(|one| one.topology.is_some()).collect();
    assert_eq!(placed, [true, true, false]);
}

/// Pods that have places keep them, and those that come get some as far as they make whole slices.
#[test]
fn a_slice_of_a_job_adds_whole_slices_to_the_places_of_the_one_before() {
    let rules = topology::Rules { elastic: true, ..topology::Rules::default() };
    let topology = TopologySettings { rules, ..TopologySettings::default() };
    let settings = Settings { topology, ..Settings::default() };
    for (before, after, wanted) in [(4, 5, 4), (5, 6, 6), (5, 7, 6), (4, 7, 6), (2, 9, 8)] {
        let mut world = world_with(settings.clone(), 4);
        world.put(in_pairs(before, None));
        world.settle();
        let first = held(&world, "one").unwrap().topology.clone().unwrap();
        let seldom = Seldom { replaces: Some("one".into()), elastic: true, ..Seldom::default() };
        let next = Workload { uid: "two".into(), name: "two".into(), ..in_pairs(after, None) };
        world.put(Workload { seldom: seldom.into(), ..next });
        world.settle();
        assert_eq!(world.workloads[&Uid::from("one")].standing, Standing::Finished, "{before} to {after}");
        let next = held(&world, "two").unwrap();
        let places = next.topology.as_ref().unwrap();
        assert_eq!((next.count, places.pods()), (after, wanted), "{before} to {after}");
        let kept = |domain: &topology::DomainPods| {
            let now = places.domains.iter().find(|one| one.values == domain.values);
            now.is_some_and(|now| now.pods >= domain.pods)
        };
        assert!(first.domains.iter().all(kept), "{before} to {after}: {places:?}");
    }
}
