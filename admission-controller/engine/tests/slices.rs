//! Elastic jobs: one slice takes the place of another.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use quota_engine::input::*;
use quota_engine::topology::Spread;
use quota_engine::*;
use support::nodes::{at, hosts_of, job, on_one_host, pods, world_with};
use support::*;

fn one_queue(nominal: i64) -> World {
    World::new([
        Event::Flavor(flavor("a100")),
        Event::Flavor(flavor("h100")),
        Event::ClusterQueue(cluster_queue(
            "cq",
            None,
            gpus(&[("a100", quota(nominal, None, None)), ("h100", quota(100, None, None))]),
        )),
        Event::LocalQueue(local_queue("cq")),
    ])
}

fn slice(uid: &str, count: i64, replaces: Option<&str>) -> Workload {
    let seldom = Seldom { replaces: replaces.map(Into::into), elastic: true, ..Seldom::default() };
    Workload { seldom: seldom.into(), ..workload(uid, "cq", count, 0) }
}

fn held(world: &World) -> i64 {
    let report = world.engine.cluster_queue_report(&"cq".into()).unwrap();
    report.reservation.iter().map(|one| one.total).sum()
}

fn is_finished(world: &World, uid: &str) -> bool {
    world.workloads[&Uid::from(uid)].standing == Standing::Finished
}

#[test]
fn a_larger_slice_needs_only_the_difference_and_ends_the_smaller_one() {
    let mut world = one_queue(10);
    world.put(slice("small", 6, None));
    world.settle();
    world.put(slice("large", 10, Some("small")));
    world.settle();
    assert!(world.is_admitted("large") && is_finished(&world, "small"));
    assert_eq!(held(&world), 10);
    // A third one, of which nothing fits any more on the same flavor: what it would replace stays.
    world.put(slice("huge", 11, Some("large")));
    world.settle();
    assert!(!world.is_admitted("huge") && world.is_admitted("large"));
    assert_eq!(held(&world), 10);
}

/// A slice that was given up before it had quota, and another in its place: what somebody does to the first counts for nothing.
#[test]
fn of_two_slices_for_the_place_of_one_the_one_with_quota_counts() {
    let mut world = one_queue(10);
    world.put(slice("small", 2, None));
    world.put(workload("other", "cq", 8, 0));
    world.settle();
    let given_up = Workload { standing: Standing::Finished, ..slice("given-up", 6, Some("small")) };
    world.put(given_up.clone());
    world.put(slice("next", 4, Some("small")));
    world.settle();
    assert!(!world.is_admitted("next"));
    world.put(Workload { priority: 1, ..given_up });
    world.standing("other", Standing::Finished);
    world.settle();
    assert!(world.is_admitted("next") && is_finished(&world, "small"));
    assert_eq!(held(&world), 4);
    world.engine.audit().unwrap();
    world.put(workload("then", "cq", 8, 0));
    world.settle();
    assert_eq!(world.flavor_of("then"), Some("h100"), "six are left of the first");
}

/// Two slices name the same one, as nobody but a user lets them: what that has counts for one of them only.
#[test]
fn only_one_slice_adds_to_another() {
    for restarted in [false, true] {
        let mut world = one_queue(10);
        world.put(slice("small", 6, None));
        world.settle();
        world.put(slice("first", 8, Some("small")));
        world.decide(1_000);
        if restarted {
            let seen = ["first", "small"].map(|uid| world.workloads[&Uid::from(uid)].clone());
            world = one_queue(10);
            seen.into_iter().for_each(|one| world.put(one));
        }
        // Of what "small" had there are two more, which it does not need, and of the other flavor enough.
        world.put(slice("second", 8, Some("small")));
        let decisions = world.engine.decide(2_000);
        for decision in decisions {
            world.carry_out(decision);
        }
        assert_eq!(world.flavor_of("second"), Some("h100"), "{restarted}");
        assert_eq!(held(&world), 16, "{restarted}");
        world.settle();
        assert!(is_finished(&world, "small"));
        assert_eq!((world.flavor_of("first"), held(&world)), (Some("a100"), 16), "{restarted}");
        // Who was first leaves: the other has all that it needs.
        world.standing("first", Standing::Finished);
        world.settle();
        assert_eq!(held(&world), 8, "{restarted}");
        world.engine.audit().unwrap();
    }
}

/// Who was first leaves, and its pods have not ended: what it has is not there for the next.
#[test]
fn a_slice_does_not_add_to_what_another_that_leaves_has_taken_over() {
    let mut world = one_queue(10);
    world.engine.apply(Event::ClusterQueue(cluster_queue(
        "cq",
        None,
        gpus(&[("a100", quota(10, None, None))]),
    )));
    world.put(slice("small", 6, None));
    world.settle();
    world.put(slice("first", 8, Some("small")));
    world.decide(1_000);
    let mut first = world.workloads[&Uid::from("first")].clone();
    let Standing::Reserved { evicted, .. } = &mut first.standing else { panic!("{first:?}") };
    *evicted = true;
    first.active = false;
    world.put(first);
    world.put(slice("second", 8, Some("small")));
    world.decide(2_000);
    assert!(!world.is_admitted("second"));
    assert!(held(&world) <= 14, "six, and eight of what leaves, which may run beside: {}", held(&world));
    world.standing("first", Standing::Pending);
    world.settle();
    assert!(world.is_admitted("second") && is_finished(&world, "small"));
    assert_eq!(held(&world), 8);
    world.engine.audit().unwrap();
}

/// As only a user's hand writes it down.
#[test]
fn slices_that_name_one_another_or_themselves_replace_nobody() {
    for names in
        [&[("one", "one")][..], &[("one", "two"), ("two", "one")], &[("a", "b"), ("b", "c"), ("c", "a")]]
    {
        let mut world = one_queue(100);
        for (uid, replaces) in names {
            world.put(slice(uid, 8, Some(replaces)));
        }
        world.settle();
        assert_eq!(held(&world), 8 * names.len() as i64, "{names:?}");
        assert!(names.iter().all(|(uid, _)| world.is_admitted(uid)), "{names:?}");
        world.engine.audit().unwrap();
    }
}

/// What belongs to another job runs on, whatever a Workload says of it.
#[test]
fn a_slice_replaces_only_one_of_its_own_job() {
    let of = |owned: bool, job: Option<&str>| (owned, job.map(Uid::from));
    for (old, new, replaces) in [
        (of(true, Some("j")), of(true, Some("j")), true),
        (of(true, Some("j")), of(true, Some("k")), false),
        (of(true, Some("j")), of(false, None), false),
        (of(true, None), of(true, None), false),
        (of(true, None), of(true, Some("j")), false),
        (of(false, None), of(false, None), true),
        (of(false, None), of(true, Some("j")), false),
    ] {
        let mut world = one_queue(100);
        let put =
            |world: &mut World, uid: &str, count, name: Option<&str>, (owned, job): &(bool, Option<Uid>)| {
                let slice = slice(uid, count, name);
                let seldom = Seldom { slice_of: job.clone(), ..(*slice.seldom).clone() };
                world.put(Workload { owned: *owned, seldom: seldom.into(), ..slice });
                world.settle();
            };
        put(&mut world, "small", 6, None, &old);
        put(&mut world, "large", 8, Some("small"), &new);
        assert_eq!(is_finished(&world, "small"), replaces, "{old:?} {new:?}");
        assert_eq!(held(&world), if replaces { 8 } else { 14 }, "{old:?} {new:?}");
    }
}

/// Two that name the same one came at the same time, the second of them to another flavor: it never counts as less than it has.
#[test]
fn what_a_slice_has_of_another_flavor_is_counted_whole() {
    let mut world = one_queue(10);
    world.put(slice("small", 6, None));
    world.settle();
    for uid in ["z", "b"] {
        world.put(Workload { queued_at_ms: i64::from(uid == "b"), ..slice(uid, 8, Some("small")) });
    }
    world.decide(1_000);
    let of_flavor = |world: &World, flavor: &str| {
        let report = world.engine.cluster_queue_report(&"cq".into()).unwrap();
        let of_one = report.reservation.iter().filter(|one| one.flavor.to_string() == flavor);
        of_one.map(|one| one.total).sum::<i64>()
    };
    assert_eq!((world.flavor_of("z"), world.flavor_of("b")), (Some("a100"), Some("h100")));
    assert_eq!(of_flavor(&world, "h100"), 8);
    world.settle();
    assert_eq!((of_flavor(&world, "a100"), of_flavor(&world, "h100")), (8, 8));
    world.engine.audit().unwrap();
}

/// Somebody makes again what was replaced.
#[test]
fn a_slice_that_comes_after_the_one_that_replaces_it_ends_with_its_admission() {
    let mut world = one_queue(10);
    world.put(slice("large", 8, Some("small")));
    world.settle();
    world.put(slice("small", 2, None));
    world.settle();
    assert!(is_finished(&world, "small") && world.is_admitted("large"));
    assert_eq!(held(&world), 8);
    world.engine.audit().unwrap();
}

#[test]
fn a_slice_whose_admission_is_not_written_ends_nothing() {
    let mut world = one_queue(10);
    world.put(slice("small", 6, None));
    world.settle();
    world.put(slice("large", 8, Some("small")));
    let decisions = world.engine.decide(1_000);
    let [Decision::Reserve(reserve)] = &decisions[..] else { panic!("{decisions:?}") };
    assert_eq!(held(&world), 8, "six, and two on top");
    world.engine.written(reserve.id, Outcome::NotWritten);
    assert_eq!(held(&world), 6);
    assert!(world.engine.tell().iter().all(|one| !matches!(one, Decision::Replace(_))));
    world.engine.audit().unwrap();
    world.settle();
    assert!(is_finished(&world, "small"));
    assert_eq!(held(&world), 8);
}

/// Its job shrank below what the slice has that it replaces, before it had quota. What it does not need is free when that has ended.
#[test]
fn a_smaller_slice_frees_nothing_before_the_larger_one_has_ended() {
    let mut world = one_queue(6);
    world.put(slice("large", 6, None));
    world.settle();
    world.put(slice("small", 2, Some("large")));
    world.put(workload("then", "cq", 4, 0));
    let decisions = world.engine.decide(1_000);
    let reserved = decisions.iter().filter_map(|one| match one {
        Decision::Reserve(reserve) => Some(reserve.workload.to_string()),
        _ => None,
    });
    // There is as much of another flavor.
    assert_eq!(reserved.collect::<Vec<_>>(), ["small", "then"]);
    for decision in decisions {
        world.carry_out(decision);
    }
    assert_eq!(world.flavor_of("then"), Some("h100"));
    world.settle();
    assert!(is_finished(&world, "large"));
    assert_eq!(held(&world), 6);
    world.put(workload("another", "cq", 4, 0));
    world.settle();
    assert_eq!(world.flavor_of("another"), Some("a100"));
}

#[test]
fn after_a_restart_no_pod_is_counted_twice_and_the_replaced_slice_ends() {
    for order in [["small", "large"], ["large", "small"]] {
        let mut before = one_queue(10);
        before.put(slice("small", 6, None));
        before.settle();
        before.put(slice("large", 10, Some("small")));
        before.decide(1_000);
        // Both have quota; whoever should have finished the small one is gone.
        let mut world = one_queue(10);
        for uid in order {
            let seen = before.workloads[&Uid::from(uid)].clone();
            world.put(seen);
            assert!(held(&world) <= 10, "{order:?}");
        }
        world.settle();
        assert!(is_finished(&world, "small"), "{order:?}");
        assert_eq!(held(&world), 10, "{order:?}");
    }
}

#[test]
fn a_slice_of_a_stranger_is_a_workload_like_any_other() {
    let mut world = one_queue(10);
    world.put(slice("other", 6, None));
    world.settle();
    world.put(Workload { namespace: "elsewhere".into(), ..slice("large", 4, Some("other")) });
    world.put(slice("orphan", 4, Some("nobody")));
    world.settle();
    assert!(!is_finished(&world, "other"));
    assert!(world.is_admitted("orphan"));
    assert_eq!(held(&world), 10);
}

/// Queues "a" and "b" of 4 each, of which the second takes back what it lent; "small" of "a" runs with 6.
fn lent(settings: Settings) -> World {
    let mut events = vec![Event::Flavor(flavor("f"))];
    for (name, reclaim) in [("a", ReclaimWithinCohort::Never), ("b", ReclaimWithinCohort::Any)] {
        let mut queue = cluster_queue(name, Some("pool"), gpus(&[("f", quota(4, None, None))]));
        queue.preemption.reclaim_within_cohort = reclaim;
        events.extend([Event::ClusterQueue(queue), Event::LocalQueue(local_queue(name))]);
    }
    let mut world = World::with(settings, events);
    world.put(of_queue("a", slice("small", 6, None)));
    world.settle();
    world
}

fn of_queue(queue: &str, slice: Workload) -> Workload {
    Workload { queue: Some(queue.into()), ..slice }
}

/// Nothing is left to which the difference could be added.
#[test]
fn a_slice_does_not_add_to_one_that_leaves_for_others() {
    for (recomputes, later) in [(true, false), (false, false), (true, true)] {
        let mut world = lent(Settings { recompute_overlapping_targets: recomputes, ..Settings::default() });
        world.put(workload("owner", "b", 4, 0));
        if later {
            world.cycle();
        }
        world.put(of_queue("a", slice("large", 7, Some("small"))));
        world.cycle();
        assert_eq!(world.victims(), [("small", "InCohortReclamation")]);
        let skipped = world.engine.take_cycle_counts().preemption_skips;
        assert_eq!(skipped.len(), usize::from(!recomputes), "{skipped:?}");
        world.settle();
        assert!(!world.is_admitted("large"), "{recomputes}, {later}");
        assert_eq!(world.reason("large").token(), "WaitingForQuota");
        world.standing("small", Standing::Pending);
        world.settle();
        assert!(world.is_admitted("owner") && !world.is_admitted("large"), "{recomputes}, {later}");
    }
}

/// Nobody's cycle ends and begins again for ever over what it is that a slice adds: it is the pods of the sets that both have.
#[test]
fn a_slice_without_a_set_that_its_predecessor_had_adds_to_the_others() {
    for recomputes in [true, false] {
        let mut world = lent(Settings { recompute_overlapping_targets: recomputes, ..Settings::default() });
        let sets = |uid: &str, counts: &[(&str, i64)], replaces: Option<&str>| {
            let one = of_queue("b", slice(uid, 1, replaces));
            let set = |(name, count): &(&str, i64)| PodSet {
                name: (*name).into(),
                count: *count,
                ..one.pod_sets[0].clone()
            };
            Workload { pod_sets: counts.iter().map(set).collect(), ..one.clone() }
        };
        world.standing("small", Standing::Finished);
        world.put(sets("two", &[("x", 1), ("y", 1)], None));
        world.settle();
        world.put(of_queue("a", workload("other", "a", 5, 0)));
        world.settle();
        world.put(sets("one", &[("x", 2)], Some("two")));
        world.settle();
        assert!(world.is_admitted("one") && is_finished(&world, "two"), "{recomputes}");
        world.engine.audit().unwrap();
    }
}

/// What it had is charged for both together: by its leaving nobody gains anything.
#[test]
fn a_slice_in_whose_place_another_has_quota_is_no_victim() {
    let mut world = lent(Settings::default());
    world.put(of_queue("a", slice("large", 7, Some("small"))));
    world.decide(1_000);
    // That the first has ended is not seen before somebody wants its quota back.
    let large = world.workloads[&Uid::from("large")].clone();
    assert!(matches!(large.standing, Standing::Reserved { .. }), "{large:?}");
    world.put(workload("owner", "b", 4, 0));
    world.settle();
    assert_eq!(world.victims(), [("large", "InCohortReclamation")]);
    world.standing("large", Standing::Pending);
    world.settle();
    assert!(world.is_admitted("owner"));
}

/// It was promised all that it needs beside others, and needs only the difference now.
#[test]
fn a_slice_adds_to_one_that_stays_after_all() {
    let queue = cluster_queue("cq", None, gpus(&[("f", quota(10, None, None))]));
    let mut world = World::new([
        Event::Flavor(flavor("f")),
        Event::ClusterQueue(queue),
        Event::LocalQueue(local_queue("cq")),
    ]);
    world.put(slice("small", 6, None));
    world.settle();
    let mut small = world.workloads[&Uid::from("small")].clone();
    let reason = EvictReason::PodsReadyTimeout(Unready::SinceStart);
    small.seldom.leave = Some(Leave { at_ms: 500, reason });
    world.put(small.clone());
    world.put(slice("large", 8, Some("small")));
    let decisions = world.engine.decide(1_000);
    assert!(matches!(decisions[..], [Decision::Evict(_)]), "{decisions:?}");
    // Before that is written its pods become ready.
    small.seldom.leave = None;
    world.put(small);
    world.settle();
    assert!(world.is_admitted("large") && is_finished(&world, "small"));
    assert_eq!(held(&world), 8);
}

/// A slice of seven pods, in the place of one of three, on two nodes of four GPUs. Without the gate, or where the job is not elastic,
/// it looks for places for all of them beside those that the first has.
#[test]
fn pods_stay_where_they_are_where_slices_are_placed_upon_one_another() {
    for (gate, elastic) in [(true, true), (true, false), (false, true)] {
        let rules = topology::Rules { elastic: gate, ..topology::Rules::default() };
        let topology = TopologySettings { rules, ..TopologySettings::default() };
        let mut world = world_with(Settings { topology, ..Settings::default() }, &["n1", "n2"], &[("a", 8)]);
        let of_pods = |uid: &str, count: i64| job(uid, "a", [pods("main", count, 1, Spread::Unconstrained)]);
        world.put(of_pods("small", 3));
        world.settle();
        assert_eq!(hosts_of(&world, "small"), ["n1"]);
        let seldom = Seldom { replaces: Some("small".into()), elastic, ..Seldom::default() };
        world.put(Workload { seldom: seldom.into(), ..of_pods("large", 7) });
        world.settle();
        let grows = gate && elastic;
        assert_eq!((world.is_admitted("large"), is_finished(&world, "small")), (grows, grows));
        if let Standing::Reserved { admission, .. } = &world.workloads[&Uid::from("large")].standing {
            assert_eq!(admission.pod_sets[0].topology, Some(at(&[("n1", 3), ("n2", 4)])));
        }
    }
}

/// Where slices are placed upon one another.
fn upon_one_another(nodes: &[&str], queues: &[(&str, i64)], recompute: bool) -> World {
    let rules = topology::Rules { elastic: true, ..topology::Rules::default() };
    let topology = TopologySettings { rules, recompute, ..TopologySettings::default() };
    world_with(Settings { topology, ..Settings::default() }, nodes, queues)
}

/// A slice of so many pods, wherever there is room for them.
fn placed(uid: &str, count: i64, replaces: Option<&str>) -> Workload {
    let pod_sets = job(uid, "a", [pods("main", count, 1, Spread::Unconstrained)]).pod_sets;
    of_queue("a", Workload { pod_sets, ..slice(uid, count, replaces) })
}

/// Four pods that go together.
fn on_a_node(uid: &str, queue: &str, priority: i32) -> Workload {
    Workload { priority, ..job(uid, queue, [pods("main", 4, 1, on_one_host())]) }
}

/// What was found for the pods that come goes to another head of the cycle. Those that stay are in nobody's way.
#[test]
fn a_slice_that_lost_its_places_within_a_cycle_finds_others() {
    for recompute in [true, false] {
        let mut world = upon_one_another(&["n1", "n2", "n3"], &[("a", 8), ("b", 4)], recompute);
        world.put(placed("small", 3, None));
        world.settle();
        assert_eq!(hosts_of(&world, "small"), ["n1"]);
        world.put(placed("large", 7, Some("small")));
        world.put(on_a_node("first", "b", 1));
        world.cycle();
        assert_eq!(hosts_of(&world, "first"), ["n2"]);
        assert_eq!(world.is_admitted("large"), recompute);
        world.settle();
        assert_eq!(hosts_of(&world, "large"), ["n1", "n3"], "{recompute}");
        assert!(is_finished(&world, "small"), "{recompute}");
    }
}

/// "small" runs on the first node, "low" on the second, and others on the third and beside "small"; "large", which adds to "small",
/// was promised the node of "low".
fn promised() -> World {
    let mut world = upon_one_another(&["n1", "n2", "n3"], &[("a", 12), ("b", 12)], true);
    let mut queue = cluster_queue("a", Some("pool"), gpus(&[("f", quota(12, None, None))]));
    queue.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
    world.engine.apply(Event::ClusterQueue(queue));
    let beside = job("beside", "b", [pods("main", 1, 1, Spread::Unconstrained)]);
    let all = [placed("small", 3, None), on_a_node("low", "a", -1), on_a_node("third", "b", 0), beside];
    for one in all {
        world.put(one);
        world.settle();
    }
    let hosts = ["small", "low", "third", "beside"].map(|uid| hosts_of(&world, uid).concat());
    assert_eq!(hosts, ["n1", "n2", "n3", "n1"]);
    world.put(placed("large", 7, Some("small")));
    world.settle();
    assert_eq!(world.victims(), [("low", "InClusterQueue")]);
    assert!(!world.is_admitted("large"));
    world
}

/// Its pods that stay hold their places themselves: that is no reason to take the promise back.
#[test]
fn what_a_slice_was_promised_is_kept_though_its_predecessor_has_places_too() {
    let mut world = promised();
    world.put(on_a_node("rival", "b", 5));
    world.settle();
    world.standing("beside", Standing::Finished);
    world.settle();
    world.standing("low", Standing::Finished);
    world.settle();
    assert_eq!(hosts_of(&world, "large"), ["n1", "n2"]);
    assert!(is_finished(&world, "small") && !world.is_admitted("rival"));
}

#[test]
fn a_slice_whose_promised_node_is_gone_takes_another() {
    let mut world = promised();
    world.engine.apply(Event::NodeGone("n2".into()));
    world.settle();
    assert!(!world.is_admitted("large"));
    world.standing("third", Standing::Finished);
    world.settle();
    assert_eq!(hosts_of(&world, "large"), ["n1", "n3"]);
    assert!(is_finished(&world, "small"));
}
