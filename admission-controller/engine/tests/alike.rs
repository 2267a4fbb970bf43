//! What was found for a workload is found for its like without a search, as long as a search would find it. In these tests, as in
//! all that are built with debug assertions, the engine searches all the same and compares.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;

use model::ResourceName;
use model::node::{Taint, TaintEffect};
use quota_engine::input::*;
use quota_engine::*;
use support::*;

/// With so much of each flavor; it rather takes the next than borrows.
fn queue(flavors: &[(&str, i64)]) -> Event {
    let flavors: Vec<_> =
        flavors.iter().map(|(name, nominal)| (*name, quota(*nominal, None, None))).collect();
    let mut queue = cluster_queue("cq", Some("pool"), gpus(&flavors));
    queue.fungibility.when_can_borrow = Search::TryNext;
    Event::ClusterQueue(queue)
}

/// The queue has 4 of either flavor, and could borrow 4 more of the first.
fn world() -> World {
    let lender = cluster_queue("lender", Some("pool"), gpus(&[("a100", quota(4, None, None))]));
    World::new([
        Event::Flavor(flavor("a100")),
        Event::Flavor(flavor("h100")),
        Event::ClusterQueue(lender),
        Event::LocalQueue(local_queue("lender")),
        queue(&[("a100", 4), ("h100", 4)]),
        Event::LocalQueue(local_queue("cq")),
    ])
}

fn admission<'a>(world: &'a World, uid: &str) -> &'a Arc<Admission> {
    let Standing::Reserved { admission, .. } = &world.workloads[&Uid::from(uid)].standing else {
        panic!("{uid} has no quota")
    };
    admission
}

#[test]
fn who_asks_for_the_same_is_given_the_same_while_it_is_there() {
    let mut world = world();
    for (number, flavor) in ["a100"; 4].into_iter().chain(["h100"; 4]).chain(["a100"; 4]).enumerate() {
        let uid = format!("job-{number}");
        world.put(workload(&uid, "cq", 1, 0));
        world.settle();
        assert_eq!(world.flavor_of(&uid), Some(flavor), "{uid}");
    }
    world.put(workload("late", "cq", 1, 0));
    world.settle();
    assert_eq!(world.flavor_of("late"), None);
    // It was looked for twice, and the next two were given what was found then; of the others each search looked at both flavors.
    assert!(!Arc::ptr_eq(admission(&world, "job-0"), admission(&world, "job-1")));
    assert!(Arc::ptr_eq(admission(&world, "job-1"), admission(&world, "job-3")));
    assert!(!Arc::ptr_eq(admission(&world, "job-4"), admission(&world, "job-5")));
}

#[test]
fn what_was_found_does_not_outlive_what_it_rests_on() {
    type Change = fn(&mut World, &mut Workload);
    let changes: [(&str, Change, Option<&str>); 8] = [
        ("nothing", |_, _| (), Some("a100")),
        (
            "a taint",
            |world, _| {
                let taint = Taint { key: "k".into(), value: String::new(), effect: TaintEffect::NoSchedule };
                world.engine.apply(Event::Flavor(Flavor { taints: vec![taint], ..flavor("a100") }));
            },
            Some("h100"),
        ),
        ("the other first", |world, _| world.engine.apply(queue(&[("h100", 4), ("a100", 4)])), Some("h100")),
        ("less quota", |world, _| world.engine.apply(queue(&[("a100", 2), ("h100", 4)])), Some("h100")),
        (
            "others take more than there is",
            |world, _| {
                world.put(workload("more", "cq", 2, 0));
                world.settle();
            },
            Some("h100"),
        ),
        ("more pods", |_, next| pod_set(next).count = 4, Some("h100")),
        (
            "another flavor allowed",
            |_, next| next.seldom.allowed_flavors = Some(["h100".into()].into()),
            Some("h100"),
        ),
        (
            "another resource",
            |_, next| pod_set(next).requests = [(ResourceName::from("cpu"), 1)].into(),
            None,
        ),
    ];
    for (name, change, flavor) in changes {
        let mut world = world();
        for uid in ["first", "second"] {
            world.put(workload(uid, "cq", 1, 0));
            world.settle();
        }
        let mut next = workload("next", "cq", 1, 0);
        change(&mut world, &mut next);
        world.put(next);
        world.settle();
        assert_eq!(world.flavor_of("next"), flavor, "{name}");
    }
}

/// Who borrows as far as those before it did is given what they were.
#[test]
fn a_borrower_is_given_what_borrowers_were() {
    let mut world = world();
    let mut queue = cluster_queue("cq", Some("pool"), gpus(&[("a100", quota(0, None, None))]));
    queue.fungibility.when_can_borrow = Search::MayStop;
    world.engine.apply(Event::ClusterQueue(queue));
    for uid in ["one", "two", "three", "four"] {
        world.put(workload(uid, "cq", 1, 0));
        world.settle();
    }
    assert!(Arc::ptr_eq(admission(&world, "two"), admission(&world, "four")));
}

/// A ninth kind takes the place of the one that is known longest.
#[test]
fn a_queue_remembers_eight_kinds() {
    let mut world = world();
    world.engine.apply(queue(&[("a100", 1_000)]));
    let mut put = |uid: String, count: i64| {
        world.put(workload(&uid, "cq", count, 0));
        world.settle();
        Arc::clone(admission(&world, &uid))
    };
    let given: Vec<Vec<_>> =
        (1..=9).map(|count| (0..3).map(|number| put(format!("{count}-{number}"), count)).collect()).collect();
    assert!(given.iter().all(|alike: &Vec<_>| Arc::ptr_eq(&alike[1], &alike[2])));
    let [first, second] = [1, 2].map(|count| put(format!("{count}-late"), count));
    assert_eq!(first, given[0][2]);
    assert!(!Arc::ptr_eq(&first, &given[0][2]));
    // That one's kind has taken the place of the next.
    assert!(!Arc::ptr_eq(&second, &given[1][2]));
    assert!(Arc::ptr_eq(&put("9-late".to_owned(), 9), &given[8][2]));
}

/// Two groups have the same resource, which only an object has that no webhook has seen: what is found in the second takes the place of
/// what was found in the first, but both have to serve.
#[test]
fn a_resource_of_two_groups_is_judged_in_both() {
    let (memory, cpu) = (ResourceName::from("memory"), ResourceName::from("cpu"));
    let group = |covered: &[&ResourceName], name: &str, nominal: i64| ResourceGroup {
        covered: covered.iter().map(|one| (*one).clone()).collect(),
        flavors: vec![FlavorQuotas {
            flavor: name.into(),
            resources: covered.iter().map(|one| ((*one).clone(), quota(nominal, None, None))).collect(),
        }],
    };
    let groups = vec![group(&[&memory], "a100", 0), group(&[&memory, &cpu], "h100", 10)];
    let lender = cluster_queue("lender", Some("pool"), vec![group(&[&memory], "a100", 2)]);
    let mut world = World::new([
        Event::Flavor(flavor("a100")),
        Event::Flavor(flavor("h100")),
        Event::ClusterQueue(lender),
        Event::LocalQueue(local_queue("lender")),
        Event::ClusterQueue(cluster_queue("cq", Some("pool"), groups)),
        Event::LocalQueue(local_queue("cq")),
    ]);
    let both = [(memory.clone(), 1), (cpu, 1)];
    let asks = [
        ("first", "cq", &both[..]),
        ("second", "cq", &both[..]),
        ("other", "lender", &[(memory, 2)]),
        ("third", "cq", &both[..]),
    ];
    for (uid, queue, asked) in asks {
        let mut one = workload(uid, queue, 1, 0);
        pod_set(&mut one).requests = asked.iter().cloned().collect();
        world.put(one);
        world.settle();
    }
    assert_eq!(asks.map(|(uid, ..)| world.is_admitted(uid)), [true, true, true, false]);
}

/// The second of two pod sets takes what the first has left of the same quota.
#[test]
fn pod_sets_are_counted_together() {
    let mut world = world();
    world.engine.apply(queue(&[("a100", 7), ("h100", 4)]));
    for (uid, flavors) in
        [("one", ["a100"; 2]), ("two", ["a100"; 2]), ("three", ["a100"; 2]), ("four", ["a100", "h100"])]
    {
        let mut job = workload(uid, "cq", 1, 0);
        let workers = PodSet { name: "workers".into(), ..job.pod_sets[0].clone() };
        add_pod_set(&mut job, workers);
        world.put(job);
        world.settle();
        let given: Vec<_> =
            admission(&world, uid).pod_sets.iter().map(|one| one.flavors[GPU].as_str()).collect();
        assert_eq!(given, flavors, "{uid}");
    }
    assert!(Arc::ptr_eq(admission(&world, "two"), admission(&world, "three")));
}
