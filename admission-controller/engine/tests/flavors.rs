//! Which flavor serves, and which reason is given when none does.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;

use model::ResourceName;
use model::node::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use model::selector::Operator;
use quota_engine::input::*;
use quota_engine::*;
use support::*;

fn world(groups: Vec<ResourceGroup>, flavors: Vec<Flavor>, change: impl FnOnce(&mut ClusterQueue)) -> World {
    world_with(Settings::default(), groups, flavors, change)
}

fn world_with(
    settings: Settings,
    groups: Vec<ResourceGroup>,
    flavors: Vec<Flavor>,
    change: impl FnOnce(&mut ClusterQueue),
) -> World {
    let mut queue = cluster_queue("cq", Some("pool"), groups);
    change(&mut queue);
    let mut events: Vec<Event> = flavors.into_iter().map(Event::Flavor).collect();
    events.push(Event::ClusterQueue(queue));
    events.push(Event::LocalQueue(local_queue("cq")));
    World::with(settings, events)
}

#[test]
fn a_flavor_excludes_pods_only_by_labels_it_has() {
    let mut plain = flavor("plain");
    plain.node_labels.clear();
    let flavors = gpus(&[("plain", quota(4, None, None)), ("h100", quota(4, None, None))]);
    let mut world = world(flavors, vec![plain, flavor("h100")], |_| ());
    let mut one = workload("one", "cq", 1, 0);
    pod_set(&mut one).node_selector.insert("gpu-type".into(), "h100".into());
    world.put(one);
    world.settle();
    let Standing::Reserved { admission, .. } = &world.workloads[&Uid::from("one")].standing else { panic!() };
    assert_eq!(admission.pod_sets[0].flavors.values().next().unwrap().as_str(), "plain");
}

/// One that names a label of the flavor. Which flavor it means cannot be known, so none after that is looked at; but a term that
/// can be read makes up for one that cannot.
#[test]
fn a_malformed_affinity_ends_the_search() {
    let about = |operator: Operator, values: &[&str]| NodeSelectorTerm {
        match_expressions: vec![NodeSelectorRequirement {
            key: "gpu-type".into(),
            operator,
            values: values.iter().map(|value| (*value).to_owned()).collect(),
        }],
        match_fields: Vec::new(),
    };
    let wants = about(Operator::In, &["a100"]);
    let malformed = [(Operator::Gt, vec!["x"]), (Operator::NotIn, vec![]), (Operator::Exists, vec!["x"])];
    for (operator, values) in malformed {
        let bad = about(operator, &values);
        for (names, terms, given) in [
            (["a100", "plain"], vec![bad.clone()], None),
            (["plain", "a100"], vec![bad.clone()], Some("plain")),
            (["a100", "plain"], vec![bad.clone(), wants.clone()], Some("a100")),
        ] {
            let mut plain = flavor("plain");
            plain.node_labels.clear();
            let groups = gpus(&names.map(|name| (name, quota(4, None, None))));
            let mut world = world(groups, vec![flavor("a100"), plain], |_| ());
            let mut one = workload("one", "cq", 1, 0);
            pod_set(&mut one).affinity = Some(NodeSelector { node_selector_terms: terms });
            world.put(one);
            world.settle();
            let found = match &world.workloads[&Uid::from("one")].standing {
                Standing::Reserved { admission, .. } => admission.pod_sets[0].flavors.values().next(),
                _ => None,
            };
            assert_eq!(found.map(FlavorName::as_str), given, "{operator:?}, {names:?}");
            if given.is_none() {
                assert_eq!(world.reason("one").token(), "NoMatchingFlavor");
                let PendingReason::NoFit(told) = world.reason("one") else { panic!() };
                let malformed = Obstacle::MalformedAffinity("a100".into(), "gpu-type".into());
                assert_eq!(told[0].obstacles, [malformed]);
            }
        }
    }
}

#[test]
fn a_group_that_can_never_serve_tells_more_than_one_that_may_later() {
    let memory = ResourceName::from("memory");
    let mut groups = gpus(&[("a100", quota(4, None, None))]);
    groups.push(ResourceGroup {
        covered: vec![memory.clone()],
        flavors: vec![FlavorQuotas {
            flavor: "ram".into(),
            resources: [(memory.clone(), quota(10, None, None))].into(),
        }],
    });
    let mut ram = flavor("ram");
    ram.node_labels.clear();
    let mut world = world(groups, vec![flavor("a100"), ram], |_| ());
    world.put(workload("running", "cq", 3, 9));
    world.settle();
    for (uid, asked, token) in [("later", 10, "WaitingForQuota"), ("never", 11, "ExceedsMaxQuota")] {
        let mut one = workload(uid, "cq", 2, 0);
        pod_set(&mut one).requests.insert(memory.clone(), asked / 2 + asked % 2);
        world.put(one);
        world.settle();
        assert_eq!(world.reason(uid).token(), token, "{:?}", world.reason(uid));
    }
}

/// `borrowWithinCohort` alone lets a workload that has to borrow displace others of its own queue.
#[test]
fn who_may_borrow_by_preempting_may_displace_its_own() {
    for (borrow, displaced) in
        [(BorrowWithinCohort::Never, 0), (BorrowWithinCohort::LowerPriority { threshold: None }, 1)]
    {
        let mut world = world(gpus(&[("a100", quota(2, None, None))]), vec![flavor("a100")], |queue| {
            queue.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
            queue.preemption.borrow_within_cohort = borrow;
        });
        let bank = cluster_queue("bank", Some("pool"), gpus(&[("a100", quota(1, None, None))]));
        world.engine.apply(Event::ClusterQueue(bank));
        world.put(workload("low", "cq", 2, 0));
        world.settle();
        world.put(workload("high", "cq", 3, 1));
        world.settle();
        assert_eq!(world.evictions.len(), displaced, "{borrow:?}");
    }
}

#[test]
fn where_nobody_can_be_displaced_the_next_flavor_is_borrowed() {
    let mut bank = cluster_queue("bank", Some("pool"), gpus(&[("spot", quota(4, None, None))]));
    bank.preemption.reclaim_within_cohort = ReclaimWithinCohort::Any;
    let flavors = gpus(&[("a100", quota(2, Some(0), None)), ("spot", quota(0, None, None))]);
    let mut world = world(flavors, vec![flavor("a100"), flavor("spot")], |queue| {
        queue.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
        queue.fungibility = Fungibility {
            when_can_borrow: Search::TryNext,
            when_can_preempt: Search::TryNext,
            preference: Preference::PreemptionOverBorrowing,
        };
    });
    world.engine.apply(Event::ClusterQueue(bank));
    world.put(workload("equal", "cq", 2, 0));
    world.settle();
    world.put(workload("next", "cq", 2, 0));
    world.settle();
    assert!(world.is_admitted("next"), "{:?}", world.reason("next"));
}

/// Whether pods are placed by topology or not.
#[test]
fn pod_sets_of_one_group_get_one_flavor() {
    for (enabled, group, wanted) in [
        (true, None, ["a100", "h100"]),
        (true, Some("gang".to_owned()), ["h100", "h100"]),
        (false, Some("gang".to_owned()), ["h100", "h100"]),
    ] {
        let topology = TopologySettings { enabled, ..TopologySettings::default() };
        let settings = Settings { topology, ..Settings::default() };
        let flavors = gpus(&[("a100", quota(4, None, None)), ("h100", quota(9, None, None))]);
        let mut world = world_with(settings, flavors, vec![flavor("a100"), flavor("h100")], |_| ());
        let mut one = workload("one", "cq", 1, 0);
        let worker = PodSet { name: "worker".into(), count: 6, ..one.pod_sets[0].clone() };
        add_pod_set(&mut one, worker);
        Arc::make_mut(&mut one.pod_sets).iter_mut().for_each(|set| set.group.clone_from(&group));
        world.put(one);
        world.settle();
        let Standing::Reserved { admission, .. } = &world.workloads[&Uid::from("one")].standing else {
            panic!()
        };
        let given: Vec<&str> =
            admission.pod_sets.iter().map(|set| set.flavors.values().next().unwrap().as_str()).collect();
        assert_eq!(given, wanted);
    }
}

/// The first flavor has no memory, so the second is found for that; cpu is there in the first, and the second is not looked at.
#[test]
fn a_flavor_that_was_not_reached_for_all_resources_does_not_serve() {
    let group = |resource: &str, of_first: i64| {
        let resource = ResourceName::from(resource);
        let flavors = [("a100", of_first), ("h100", 4)].map(|(flavor, nominal)| FlavorQuotas {
            flavor: flavor.into(),
            resources: [(resource.clone(), quota(nominal, None, None))].into(),
        });
        ResourceGroup { covered: vec![resource.clone()], flavors: flavors.into() }
    };
    let groups = vec![group("cpu", 4), group("memory", 0)];
    let mut world = world(groups, vec![flavor("a100"), flavor("h100")], |_| ());
    let mut one = workload("one", "cq", 2, 0);
    pod_set(&mut one).requests = ["cpu", "memory"].map(|resource| (ResourceName::from(resource), 1)).into();
    world.put(one);
    let ask = assign::Ask::default();
    let mut search = assign::VictimSearch::default();
    let found = world.engine.find_flavors(&"one".into(), &"cq".into(), ask, &mut search);
    assert_eq!(found.mode(), assign::Mode::Fit);
    for (flavor, hindrance) in [("a100", Hindrance::MaxQuota), ("h100", Hindrance::NoMatchingFlavor)] {
        let attempt = found.pod_sets[0].attempts.get(&FlavorName::from(flavor)).unwrap();
        assert_eq!((attempt.mode, attempt.hindrance), (assign::Mode::NoFit, Some(hindrance)), "{flavor}");
    }
}

#[test]
fn other_flavors_than_those_allowed_are_passed_over() {
    let flavors = gpus(&[("a100", quota(4, None, None)), ("h100", quota(4, None, None))]);
    let mut world = world(flavors, vec![flavor("a100"), flavor("h100")], |_| ());
    for (uid, allowed, fits) in [("one", "h100", true), ("two", "spot", false)] {
        let mut one = workload(uid, "cq", 1, 0);
        one.seldom.allowed_flavors = Some([allowed.into()].into());
        world.put(one);
        world.settle();
        assert_eq!(world.is_admitted(uid), fits, "{uid}");
    }
    assert_eq!(world.reason("two").token(), "NoMatchingFlavor");
}

/// Who was outrun for one flavor goes on with the next, and does not come back to the first to displace who was faster.
#[test]
fn a_search_goes_on_where_the_last_one_stopped() {
    for (preserve, flavor_given, evictions) in [(true, "h100", 0), (false, "a100", 1)] {
        let settings =
            Settings { preserve_scan_progress: preserve, priority_sorting: false, ..Settings::default() };
        let mut borrower = cluster_queue(
            "borrower",
            Some("pool"),
            gpus(&[("a100", quota(0, None, None)), ("h100", quota(4, None, None))]),
        );
        borrower.preemption.reclaim_within_cohort = ReclaimWithinCohort::Any;
        borrower.preemption.borrow_within_cohort = BorrowWithinCohort::LowerPriority { threshold: None };
        borrower.fungibility.when_can_preempt = Search::MayStop;
        let other = cluster_queue("other", Some("pool"), gpus(&[("a100", quota(0, None, None))]));
        let bank = cluster_queue("bank", Some("pool"), gpus(&[("a100", quota(4, None, None))]));
        let mut world = World::with(
            settings,
            [
                Event::Flavor(flavor("a100")),
                Event::Flavor(flavor("h100")),
                Event::ClusterQueue(borrower),
                Event::ClusterQueue(other),
                Event::ClusterQueue(bank),
                Event::LocalQueue(local_queue("borrower")),
                Event::LocalQueue(local_queue("other")),
            ],
        );
        world.put(workload("fast", "other", 3, 0));
        let mut outrun = workload("outrun", "borrower", 4, 9);
        outrun.queued_at_ms = 1;
        world.put(outrun);
        for _ in 0..3 {
            for decision in world.engine.cycle(1_000) {
                world.carry_out(decision);
            }
        }
        assert_eq!(world.evictions.len(), evictions, "{preserve}");
        for gone in world.leaving() {
            world.standing(&gone.to_string(), Standing::Finished);
        }
        world.settle();
        assert_eq!(world.flavor_of("outrun"), Some(flavor_given), "{preserve}");
    }
}

/// Outrun by what is kept for a head that steps aside, it goes on with a flavor that is full: then the first has its room still.
#[test]
fn who_found_nothing_in_the_other_flavors_comes_back_to_one_that_has_room_again() {
    let flavors = [("a100", quota(6, None, None)), ("h100", quota(6, None, None))];
    let mut keeper = cluster_queue("keeper", Some("pool"), gpus(&flavors));
    keeper.preemption.reclaim_within_cohort = ReclaimWithinCohort::LowerPriority;
    keeper.preemption.borrow_within_cohort = BorrowWithinCohort::LowerPriority { threshold: None };
    let mut world = World::new([
        Event::Flavor(flavor("a100")),
        Event::Flavor(flavor("h100")),
        Event::ClusterQueue(keeper),
        Event::ClusterQueue(cluster_queue("other", Some("pool"), gpus(&flavors))),
        Event::LocalQueue(local_queue("keeper")),
        Event::LocalQueue(local_queue("other")),
    ]);
    let of = |uid, queue, count, priority, gpu_type: &str| {
        let mut workload = workload(uid, queue, count, priority);
        pod_set(&mut workload).node_selector.insert("gpu-type".into(), gpu_type.into());
        workload
    };
    world.put(of("a100s", "other", 5, 9, "a100"));
    world.put(of("h100s", "other", 12, 9, "h100"));
    world.settle();
    world.put(of("head", "keeper", 8, 9, "a100"));
    world.put(workload("outrun", "other", 4, 0));
    world.settle();
    assert!(!world.is_admitted("head"));
    assert!(world.is_admitted("outrun"));
}

/// Each of the pod sets fits where the other does not, and they take turns: the search that was given up is not gone on with when
/// another queue of the cohort has given its room back.
#[test]
fn after_a_search_that_was_given_up_the_next_begins_with_the_first_flavor() {
    let mut asks = cluster_queue(
        "asks",
        Some("pool"),
        gpus(&[("a100", quota(5, None, None)), ("h100", quota(6, None, None))]),
    );
    asks.fungibility.when_can_preempt = Search::TryNext;
    let mut world = World::new([
        Event::Flavor(flavor("a100")),
        Event::Flavor(flavor("h100")),
        Event::ClusterQueue(asks),
        Event::ClusterQueue(cluster_queue("lends", Some("pool"), gpus(&[("a100", quota(5, None, None))]))),
        Event::LocalQueue(local_queue("asks")),
        Event::LocalQueue(local_queue("lends")),
    ]);
    world.put(workload("short", "lends", 2, 0));
    let mut on_h100 = workload("on-h100", "asks", 5, 0);
    pod_set(&mut on_h100).node_selector.insert("gpu-type".into(), "h100".into());
    world.put(on_h100);
    world.settle();
    let mut job = workload("job", "asks", 2, 0);
    let workers = PodSet { name: "workers".into(), count: 8, ..pod_set(&mut job).clone() };
    add_pod_set(&mut job, workers);
    world.put(job);
    world.settle();
    assert!(!world.is_admitted("job"));
    world.engine.apply(Event::WorkloadGone("short".into()));
    world.settle();
    assert!(world.is_admitted("job"), "{:?}", world.reason("job"));
}

/// Until they have left, what they use is used: with it this flavor would be borrowed.
#[test]
fn who_leaves_counts_where_flavors_are_chosen_by_what_would_be_borrowed() {
    let quotas = |f1: i64, f2: i64| gpus(&[("f1", quota(f1, None, None)), ("f2", quota(f2, None, None))]);
    let mut queue = cluster_queue("cq", Some("pool"), quotas(5, 5));
    queue.fungibility.when_can_borrow = Search::TryNext;
    let lender = cluster_queue("lender", Some("pool"), quotas(5, 0));
    let flavors = ["f1", "f2"].map(|name| Event::Flavor(flavor(name)));
    let queues = [queue, lender].map(Event::ClusterQueue);
    let mut world =
        World::new(flavors.into_iter().chain(queues).chain([Event::LocalQueue(local_queue("cq"))]));
    world.put(workload("old", "cq", 5, 0));
    world.settle();
    world.begins_to_leave("old");
    world.put(workload("new", "cq", 5, 0));
    world.settle();
    assert_eq!(world.flavor_of("new"), Some("f2"));
}

/// The search may stop where room comes free only for those who could have made it themselves; to others it comes later or never.
#[test]
fn who_may_displace_nobody_does_not_stop_at_a_flavor_whose_holder_leaves() {
    // Where others would have to leave, it waits for who leaves anyway, if the search goes on.
    for (search, priority, other, flavor_given) in [
        (Search::MayStop, 0, None, Some("f2")),
        (Search::MayStop, 9, None, None),
        (Search::TryNext, 5, Some(0), None),
    ] {
        let quotas = gpus(&[("f1", quota(4, None, None)), ("f2", quota(4, None, None))]);
        let mut world = world(quotas, ["f1", "f2"].map(flavor).into(), |queue| {
            queue.fungibility.when_can_preempt = search;
            queue.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
        });
        world.put(workload("old", "cq", 4, 5));
        world.settle();
        if let Some(priority) = other {
            world.put(workload("other", "cq", 4, priority));
            world.settle();
        }
        world.begins_to_leave("old");
        world.put(workload("new", "cq", 4, priority));
        world.settle();
        assert_eq!(world.victims(), [], "{priority}");
        assert_eq!(world.flavor_of("new"), flavor_given, "{priority}");
    }
}

/// Whatever their order: preempting rather than borrowing is what the queue asks for, waiting rather than preempting is for where
/// nothing fits.
#[test]
fn the_best_of_flavors_does_not_depend_on_their_order() {
    for (names, best) in [
        (&["borrowed", "taken", "leaving"][..], "taken"),
        (&["borrowed", "leaving"], "borrowed"),
        (&["taken", "leaving"], "leaving"),
    ] {
        for turn in 0..2 * names.len() {
            let mut order = names.to_vec();
            order.rotate_left(turn % names.len());
            if turn >= names.len() {
                order.reverse();
            }
            let own = |name: &str| quota(if name == "borrowed" { 0 } else { 4 }, None, None);
            let quotas: Vec<_> = order.iter().map(|name| (*name, own(name))).collect();
            let mut queue = cluster_queue("cq", Some("pool"), gpus(&quotas));
            queue.fungibility = Fungibility {
                when_can_borrow: Search::TryNext,
                when_can_preempt: Search::TryNext,
                preference: Preference::PreemptionOverBorrowing,
            };
            queue.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
            let lender = cluster_queue("lender", Some("pool"), gpus(&[("borrowed", quota(4, None, None))]));
            let flavors = order.iter().map(|name| Event::Flavor(flavor(name)));
            let queues = [queue, lender].map(Event::ClusterQueue);
            let mut world = World::new(flavors.chain(queues).chain([Event::LocalQueue(local_queue("cq"))]));
            let mut put = |uid: &str, priority: i32, on: Option<&str>| {
                let mut one = workload(uid, "cq", 4, priority);
                if let Some(flavor) = on {
                    pod_set(&mut one).node_selector.insert("gpu-type".into(), flavor.into());
                }
                world.put(one);
                world.settle();
            };
            put("old", 9, Some("leaving"));
            if names.contains(&"taken") {
                put("low", 0, Some("taken"));
            }
            world.begins_to_leave("old");
            world.put(workload("new", "cq", 4, 5));
            world.settle();
            assert_eq!(world.leaving().len(), if best == "taken" { 2 } else { 1 }, "{order:?}");
            if best == "leaving" {
                world.standing("old", Standing::Finished);
                world.settle();
            }
            let given = (best != "taken").then_some(best);
            assert_eq!(world.flavor_of("new"), given, "{order:?}");
        }
    }
}
