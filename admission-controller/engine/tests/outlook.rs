//! A close look at a workload that waits: numbers, whose turn is next, and what would let it in.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use model::ResourceName;
use quota_engine::input::*;
use quota_engine::*;
use support::nodes::{job, node, on_one_host, pods};
use support::*;

fn looked_at(world: &mut World, uid: &str) -> Outlook {
    let outlook = world.engine.outlook(&uid.into()).unwrap();
    world.engine.audit().unwrap();
    outlook
}

fn raise(by: i64) -> Vec<Raise> {
    raise_of("f", by)
}

fn raise_of(flavor: &str, by: i64) -> Vec<Raise> {
    vec![Raise { flavor: flavor.into(), resource: GPU.into(), by }]
}

fn names(uids: &[&str]) -> Vec<Uid> {
    uids.iter().map(|uid| Uid::from(*uid)).collect()
}

/// Queue `a` of 8 that may borrow 4 more, `b` of 12 that lends 6 of them, each with what runs in it.
fn cohort() -> World {
    let a = cluster_queue("a", Some("pool"), gpus(&[("f", quota(8, Some(4), None))]));
    let b = cluster_queue("b", Some("pool"), gpus(&[("f", quota(12, None, Some(6)))]));
    let mut world = World::new([
        Event::Flavor(flavor("f")),
        Event::ClusterQueue(a),
        Event::ClusterQueue(b),
        Event::LocalQueue(local_queue("a")),
        Event::LocalQueue(local_queue("b")),
    ]);
    world.put(workload("bert", "a", 5, 0));
    world.put(workload("vit", "a", 3, 0));
    world.put(workload("resnet", "b", 2, 0));
    world.settle();
    world
}

#[test]
fn the_numbers_of_quota_are_told() {
    let mut world = cohort();
    world.put(workload("llama", "a", 6, 0));
    world.settle();
    let outlook = looked_at(&mut world, "llama");
    let balance = Balance {
        pod_set: "main".into(),
        flavor: "f".into(),
        resource: GPU.into(),
        asked: 6,
        nominal: 8,
        used: 8,
        available: 4,
        borrowable: 4,
        potential: 12,
        withheld: 4,
    };
    assert_eq!((outlook.balances, outlook.next, outlook.fits), (vec![balance], None, Some(false)));
    assert_eq!(
        outlook.remedies,
        [
            Remedy::Leave(names(&["bert"])),
            Remedy::RaiseBorrowingLimit(raise(2)),
            fewer(4),
            Remedy::RaiseNominal(raise(2)),
        ]
    );
}

#[test]
fn what_could_never_be_had_is_told_with_what_would_be() {
    let mut world = cohort();
    world.put(workload("gpt", "a", 20, 0));
    world.settle();
    let outlook = looked_at(&mut world, "gpt");
    // With everybody gone it would lack 8, and with those who are there 16.
    let lacking = [fewer(4), Remedy::RaiseNominal(raise(16))];
    assert_eq!((outlook.balances[0].potential, &*outlook.remedies), (12, &lacking[..]));
}

#[test]
fn who_stands_behind_a_head_is_told_whom() {
    let queue = ClusterQueue {
        strategy: QueueingStrategy::StrictFifo,
        ..cluster_queue("a", None, gpus(&[("f", quota(4, None, None))]))
    };
    let mut world = world_of(queue);
    world.put(workload("runs", "a", 2, 0));
    world.settle();
    for (queued_at_ms, uid, count) in [(1, "head", 3), (2, "small", 1), (3, "large", 4)] {
        world.put(Workload { queued_at_ms, ..workload(uid, "a", count, 0) });
    }
    world.settle();
    let head = looked_at(&mut world, "head");
    assert_eq!((head.next, head.fits), (None, Some(false)));
    let small = looked_at(&mut world, "small");
    assert_eq!((small.next, small.fits, small.remedies), (Some("head".into()), Some(true), Vec::new()));
    let large = looked_at(&mut world, "large");
    assert_eq!((large.next, large.fits), (Some("head".into()), Some(false)));
}

/// Of two resource groups one has a flavor that has enough.
#[test]
fn only_what_lacks_is_to_be_raised() {
    let cpu = ResourceName::from("cpu");
    let cpus = |flavor: &str, nominal| FlavorQuotas {
        flavor: flavor.into(),
        resources: [(cpu.clone(), quota(nominal, None, None))].into(),
    };
    let mut groups = gpus(&[("f", quota(1, None, None)), ("g", quota(2, None, None))]);
    let second =
        ResourceGroup { covered: vec![cpu.clone()], flavors: vec![cpus("small", 1_000), cpus("big", 9_000)] };
    groups.push(second);
    let mut world = world_of(cluster_queue("a", None, groups));
    let mut both = workload("both", "a", 4, 0);
    pod_set(&mut both).requests = [(GPU.into(), 1), (cpu.clone(), 2_000)].into();
    world.put(both);
    let mut cpu_only = workload("cpu", "a", 5, 0);
    pod_set(&mut cpu_only).requests = [(cpu.clone(), 2_000)].into();
    world.put(cpu_only);
    world.settle();
    let both = looked_at(&mut world, "both").remedies;
    let wanted = [fewer(2), Remedy::RaiseNominal(raise_of("f", 3)), Remedy::RaiseNominal(raise_of("g", 2))];
    assert_eq!(both, wanted);
    let raised = |flavor: &str, by| {
        Remedy::RaiseNominal(vec![Raise { flavor: flavor.into(), resource: cpu.clone(), by }])
    };
    let cpu_only = looked_at(&mut world, "cpu").remedies;
    assert_eq!(cpu_only, [fewer(4), raised("small", 9_000), raised("big", 1_000)]);
}

/// Quota there is, and no node that is free.
#[test]
fn who_lacks_places_is_told_who_has_them() {
    let mut world = support::nodes::world(&["n1", "n2"], &[("a", 20)]);
    world.put(job("one", "a", [pods("main", 1, 3, on_one_host())]));
    world.settle();
    world.put(job("two", "a", [pods("main", 1, 2, on_one_host())]));
    world.settle();
    world.put(job("three", "a", [pods("main", 2, 2, on_one_host())]));
    world.settle();
    let outlook = looked_at(&mut world, "three");
    assert_eq!(outlook.remedies, [Remedy::Leave(names(&["one"])), fewer(1)]);
    world.engine.apply(node("n3"));
    world.settle();
    assert!(world.is_admitted("three"));
}

/// Who leaves already is asked first, and what was promised to another is not there.
#[test]
fn what_is_on_its_way_counts() {
    let mut queue = cluster_queue("a", None, gpus(&[("f", quota(4, None, None))]));
    queue.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
    let mut world = world_of(queue);
    world.put(workload("low", "a", 2, 0));
    world.put(workload("mid", "a", 2, 1));
    world.settle();
    world.put(workload("high", "a", 2, 2));
    world.put(workload("late", "a", 2, 0));
    world.settle();
    assert_eq!(looked_at(&mut world, "high").remedies, []);
    let late = looked_at(&mut world, "late");
    assert_eq!((late.balances[0].used, late.balances[0].available), (4, 0));
    // What `low` leaves is promised to `high`: another two have to come free.
    assert_eq!(late.remedies[0], Remedy::Leave(names(&["mid"])));
    assert!(world.engine.outlook(&"mid".into()).is_none());
}

/// This queue alone, with its LocalQueue.
fn world_of(queue: ClusterQueue) -> World {
    let flavors = queue.groups.iter().flat_map(|group| &group.flavors);
    let flavors: Vec<Event> = flavors.map(|one| Event::Flavor(flavor(one.flavor.as_str()))).collect();
    let name = queue.name.to_string();
    World::new(flavors.into_iter().chain([Event::ClusterQueue(queue), Event::LocalQueue(local_queue(&name))]))
}

/// One without a cohort, with these flavors.
fn alone(flavors: &[(&str, Quota)]) -> World {
    world_of(cluster_queue("a", None, gpus(flavors)))
}

/// Many hold the flavor that it may not have, and would be asked to leave before.
#[test]
fn only_those_are_told_to_leave_who_have_what_it_asks_for() {
    let free = |nominal| quota(nominal, None, None);
    let mut world = alone(&[("g", free(100)), ("f", free(4))]);
    for index in 0..100 {
        world.put(workload(&format!("other-{index}"), "a", 1, 0));
    }
    world.settle();
    world.put(workload("holds", "a", 4, 1));
    world.settle();
    assert_eq!(world.flavor_of("holds"), Some("f"));
    assert!(world.is_admitted("other-99"));
    let mut wanted = workload("wanted", "a", 3, 0);
    wanted.seldom.allowed_flavors = Some(["f".into()].into());
    world.put(wanted);
    world.settle();
    assert_eq!(looked_at(&mut world, "wanted").remedies[0], Remedy::Leave(names(&["holds"])));
}

/// The same where many hold another resource of the same flavor.
#[test]
fn only_those_are_told_to_leave_who_have_the_resource_that_lacks() {
    let cpu = ResourceName::from("cpu");
    let mut groups = gpus(&[("f", quota(4, None, None))]);
    groups[0].covered.push(cpu.clone());
    groups[0].flavors[0].resources.insert(cpu.clone(), quota(500, None, None));
    let mut world = world_of(cluster_queue("a", None, groups));
    for index in 0..100 {
        let mut light = workload(&format!("light-{index}"), "a", 1, 0);
        pod_set(&mut light).requests = [(cpu.clone(), 1)].into();
        world.put(light);
    }
    world.put(workload("holds", "a", 4, 1));
    world.settle();
    let mut wanted = workload("wanted", "a", 3, 0);
    pod_set(&mut wanted).requests = [(cpu.clone(), 1), (GPU.into(), 1)].into();
    world.put(wanted);
    world.settle();
    assert_eq!(looked_at(&mut world, "wanted").remedies[0], Remedy::Leave(names(&["holds"])));
}

/// What the slice that it replaces holds is counted already.
#[test]
fn the_slice_that_is_replaced_is_not_told_to_leave() {
    let mut world = alone(&[("f", quota(8, None, None))]);
    world.put(workload("x", "a", 4, 0));
    world.settle();
    let slice = |name: &str, count| {
        let mut slice = workload(name, "a", count, 0);
        slice.seldom.elastic = true;
        slice
    };
    world.put(slice("v1", 4));
    world.settle();
    let mut second = slice("v2", 8);
    second.seldom.replaces = Some("v1".into());
    world.put(second);
    world.settle();
    let outlook = looked_at(&mut world, "v2");
    assert_eq!(outlook.balances[0].asked, 4);
    assert_eq!(
        outlook.remedies[..],
        [Remedy::Leave(names(&["x"])), fewer(4), Remedy::RaiseNominal(raise(4))]
    );
}

fn fewer(count: i64) -> Remedy {
    Remedy::FewerPods(vec![("main".into(), count)])
}

/// Of two pod sets one finds another flavor.
#[test]
fn no_more_is_to_be_raised_than_one_flavor_lacks() {
    let mut world = alone(&[("f", quota(0, None, None)), ("g", quota(4, None, None))]);
    let mut pair = workload("pair", "a", 4, 0);
    let second = PodSet { name: "second".into(), ..pair.pod_sets[0].clone() };
    add_pod_set(&mut pair, second);
    world.put(pair);
    world.settle();
    let raises = looked_at(&mut world, "pair").remedies;
    let raises = raises.iter().filter(|one| matches!(one, Remedy::RaiseNominal(_)));
    let wanted = [Remedy::RaiseNominal(raise_of("f", 4)), Remedy::RaiseNominal(raise_of("g", 4))];
    assert!(raises.eq(&wanted));
}

#[test]
fn pods_that_are_done_are_among_the_fewer() {
    let mut world = alone(&[("f", quota(3, None, None))]);
    let mut job = workload("job", "a", 6, 0);
    pod_set(&mut job).done = 4;
    world.put(job);
    world.settle();
    assert_eq!(looked_at(&mut world, "job").remedies[0], fewer(7));
}

/// Two StrictFIFO queues lend to each other; the head of one may preempt, and finds nobody.
#[test]
fn only_heads_that_come_before_keep_what_is_free() {
    let strictly = |name: &str| ClusterQueue {
        strategy: QueueingStrategy::StrictFifo,
        ..cluster_queue(name, Some("pool"), gpus(&[("f", quota(4, None, None))]))
    };
    let mut b = strictly("b");
    b.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
    for (head_priority, kept_for) in [(0, vec![]), (9, vec!["head-of-b"])] {
        let mut world = World::new([
            Event::Flavor(flavor("f")),
            Event::ClusterQueue(strictly("a")),
            Event::ClusterQueue(b.clone()),
            Event::LocalQueue(local_queue("a")),
            Event::LocalQueue(local_queue("b")),
        ]);
        world.put(workload("runs-in-a", "a", 4, 0));
        world.put(workload("runs-in-b", "b", 2, 9));
        world.settle();
        world.put(workload("head-of-b", "b", 4, head_priority));
        world.settle();
        world.put(workload("waits", "a", 2, 3));
        world.settle();
        if kept_for.is_empty() {
            assert!(world.is_admitted("waits"));
            continue;
        }
        let outlook = looked_at(&mut world, "waits");
        assert_eq!((outlook.fits, outlook.kept_for), (Some(true), names(&kept_for)));
    }
}

/// What was promised to one is before those who come after it only.
#[test]
fn whose_turn_is_next_in_a_strict_queue() {
    let mut queue = ClusterQueue {
        strategy: QueueingStrategy::StrictFifo,
        ..cluster_queue("a", None, gpus(&[("f", quota(4, None, None))]))
    };
    queue.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
    let mut world = world_of(queue);
    world.put(workload("low", "a", 2, 0));
    world.put(workload("old", "a", 2, 9));
    world.settle();
    world.put(workload("mid", "a", 2, 1));
    world.settle();
    world.put(workload("last", "a", 1, 0));
    world.settle();
    let promised = looked_at(&mut world, "mid");
    assert_eq!(
        (promised.fits, promised.balances[0].available, promised.balances[0].borrowable),
        (None, 0, 0)
    );
    assert_eq!(looked_at(&mut world, "last").next, Some("mid".into()));
    world.put(workload("top", "a", 4, 2));
    world.settle();
    assert_eq!(looked_at(&mut world, "top").next, None);
    assert_eq!(looked_at(&mut world, "last").next, Some("top".into()));
}

/// A world of two flavors and a few queues, in cohorts, in which nobody displaces anybody.
struct Small {
    queues: Vec<ClusterQueue>,
    workloads: Vec<Workload>,
}

impl Small {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let limit = |rng: &mut fastrand::Rng| rng.bool().then(|| rng.i64(0..4));
        let mut queues = Vec::new();
        for index in 0..rng.usize(1..=3) {
            let mut quotas = || quota(rng.i64(0..8), limit(&mut rng), limit(&mut rng));
            let flavors = [("f", quotas()), ("g", quotas())];
            let flavors = &flavors[..rng.usize(1..=2)];
            let cohort = [None, Some("pool"), Some("pool")][rng.usize(0..3)];
            // Limits are for those who are in a cohort.
            let flavors: Vec<_> = flavors
                .iter()
                .map(|(name, one)| {
                    (*name, if cohort.is_some() { *one } else { quota(one.nominal, None, None) })
                })
                .collect();
            let mut queue = cluster_queue(&format!("cq-{index}"), cohort, gpus(&flavors));
            queue.strategy =
                [QueueingStrategy::BestEffortFifo, QueueingStrategy::StrictFifo][rng.usize(0..2)];
            queues.push(queue);
        }
        let workloads = (0..rng.usize(2..9)).map(|index| {
            let queue = format!("cq-{}", rng.usize(0..queues.len()));
            let one = workload(&format!("w{index}"), &queue, rng.i64(1..7), rng.i32(0..2));
            Workload { queued_at_ms: index as i64, ..one }
        });
        Self { workloads: workloads.collect(), queues }
    }

    fn settled(&self) -> World {
        let mut world = World::new(["f", "g"].map(|name| Event::Flavor(flavor(name))));
        for queue in &self.queues {
            world.engine.apply(Event::ClusterQueue(queue.clone()));
            world.engine.apply(Event::LocalQueue(local_queue(queue.name.as_str())));
        }
        self.workloads.iter().for_each(|one| world.put(one.clone()));
        world.settle();
        world
    }

    /// Whether that would let a workload in, by itself.
    fn would_help(&self, uid: &str, remedy: &Remedy) -> bool {
        let mut world = self.settled();
        let others: Vec<Uid> =
            world.workloads.keys().filter(|other| **other != uid.into()).cloned().collect();
        for other in others
            .iter()
            .map(ToString::to_string)
            .filter(|other| !world.is_admitted(other))
            .collect::<Vec<_>>()
        {
            world.standing(&other, Standing::Finished);
        }
        let change = |queue: &mut ClusterQueue, raises: &[Raise], nominal: bool| {
            for flavor in &mut queue.groups[0].flavors {
                let by =
                    raises.iter().filter(|one| one.flavor == flavor.flavor).map(|one| one.by).sum::<i64>();
                for quota in flavor.resources.values_mut() {
                    match nominal {
                        true => quota.nominal += by,
                        false => quota.borrowing_limit = quota.borrowing_limit.map(|limit| limit + by),
                    }
                }
            }
        };
        let own = self.workloads.iter().find(|one| one.uid == uid.into()).unwrap();
        let name = own.queue.as_ref().unwrap().to_string();
        let mut queue = self.queues.iter().find(|queue| *queue.name.as_str() == name).unwrap().clone();
        match remedy {
            Remedy::Leave(uids) => {
                uids.iter().for_each(|leaver| world.standing(&leaver.to_string(), Standing::Finished));
            }
            Remedy::RaiseNominal(raises) => change(&mut queue, raises, true),
            Remedy::RaiseBorrowingLimit(raises) => change(&mut queue, raises, false),
            Remedy::FewerPods(counts) => {
                let mut smaller = own.clone();
                pod_set(&mut smaller).count = counts[0].1;
                world.put(smaller);
            }
        }
        world.engine.apply(Event::ClusterQueue(queue));
        world.settle();
        world.is_admitted(uid)
    }
}

/// One unit, or one workload, less of it.
fn a_bit_less(remedy: &Remedy) -> Vec<Remedy> {
    let less = |raises: &[Raise]| vec![Raise { by: raises[0].by - 1, ..raises[0].clone() }];
    match remedy {
        Remedy::Leave(uids) => {
            let without = |index: usize| uids.iter().enumerate().filter(move |(at, _)| *at != index);
            let rest = |index| without(index).map(|(_, uid)| uid.clone()).collect();
            (0..uids.len()).map(|index| Remedy::Leave(rest(index))).collect()
        }
        Remedy::RaiseNominal(raises) => vec![Remedy::RaiseNominal(less(raises))],
        Remedy::RaiseBorrowingLimit(raises) => vec![Remedy::RaiseBorrowingLimit(less(raises))],
        Remedy::FewerPods(counts) => vec![Remedy::FewerPods(vec![(counts[0].0.clone(), counts[0].1 + 1)])],
    }
}

/// What is told to help does, and a bit less of it does not; and wherever one kind of help exists, it is told.
#[test]
fn what_is_told_to_help_does_and_less_of_it_does_not() {
    let (mut told, mut kinds, mut kept) = (0, [0; 4], 0);
    for seed in 0..1_000 {
        let small = Small::new(seed);
        let mut world = small.settled();
        let holders: Vec<Uid> =
            world.workloads.keys().filter(|uid| world.is_admitted(&uid.to_string())).cloned().collect();
        for own in &small.workloads {
            let uid = own.uid.to_string();
            let Some(outlook) = world.engine.outlook(&own.uid) else { continue };
            world.engine.audit().unwrap();
            let room = outlook.balances.iter().any(|one| one.asked <= one.available);
            assert_eq!(outlook.fits, Some(room), "seed {seed}, {uid}: {outlook:?}");
            if room {
                let waits_for = outlook.next.iter().chain(&outlook.kept_for).count();
                assert!(outlook.remedies.is_empty() && waits_for > 0, "seed {seed}, {uid}: {outlook:?}");
                kept += usize::from(!outlook.kept_for.is_empty());
                continue;
            }
            let has = |kind: fn(&Remedy) -> bool| outlook.remedies.iter().any(kind);
            assert!(has(|one| matches!(one, Remedy::RaiseNominal(_))), "seed {seed}, {uid}: {outlook:?}");
            let all_gone = small.would_help(&uid, &Remedy::Leave(holders.clone()));
            assert_eq!(has(|one| matches!(one, Remedy::Leave(_))), all_gone, "seed {seed}, {uid}");
            let alone = own.pod_sets[0].count > 1
                && small.would_help(&uid, &Remedy::FewerPods(vec![("main".into(), 1)]));
            assert_eq!(has(|one| matches!(one, Remedy::FewerPods(_))), alone, "seed {seed}, {uid}");
            for remedy in &outlook.remedies {
                assert!(small.would_help(&uid, remedy), "seed {seed}, {uid}: {remedy:?}");
                for less in a_bit_less(remedy) {
                    assert!(!small.would_help(&uid, &less), "seed {seed}, {uid}: {less:?} does too");
                }
                told += 1;
                kinds[match remedy {
                    Remedy::Leave(_) => 0,
                    Remedy::RaiseNominal(_) => 1,
                    Remedy::RaiseBorrowingLimit(_) => 2,
                    Remedy::FewerPods(_) => 3,
                }] += 1;
            }
        }
        let mut unasked = small.settled();
        for world in [&mut world, &mut unasked] {
            let leaver = holders.first().map(ToString::to_string);
            leaver.iter().for_each(|uid| world.standing(uid, Standing::Finished));
            world.put(Workload { queued_at_ms: 9, ..workload("late", "cq-0", 2, 1) });
            world.settle();
        }
        let outcome = |world: &World| (world.admissions.clone(), world.pending.clone());
        assert_eq!(outcome(&world), outcome(&unasked), "seed {seed}: asking changed something");
    }
    assert!(told > 1_000 && kinds.iter().all(|count| *count > 20) && kept > 0, "{told} {kinds:?} {kept}");
}
