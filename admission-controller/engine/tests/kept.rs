//! What is kept for a head that has a right to displace others, and finds nobody whom it may.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use model::ResourceName;
use quota_engine::input::*;
use quota_engine::topology::HOSTNAME;
use quota_engine::*;
use support::nodes::*;
use support::*;

fn queue(name: &str, quota: Quota, preemption: Preemption) -> [Event; 2] {
    let mut queue = cluster_queue(name, Some("pool"), gpus(&[("f", quota)]));
    queue.preemption = preemption;
    [Event::ClusterQueue(queue), Event::LocalQueue(local_queue(name))]
}

/// So much of each flavor, without limits.
fn of(flavors: &[(&str, i64)]) -> Vec<ResourceGroup> {
    gpus(&flavors.iter().map(|(name, nominal)| (*name, quota(*nominal, None, None))).collect::<Vec<_>>())
}

/// A queue that may displace who has a lower priority, of which there is nobody: something is kept for its head.
fn entitled(name: &str, flavors: &[(&str, i64)]) -> ClusterQueue {
    let mut queue = cluster_queue(name, Some("pool"), of(flavors));
    queue.preemption.reclaim_within_cohort = ReclaimWithinCohort::LowerPriority;
    queue
}

/// The queue may use 8, and who leaves it uses as many until it has left: nothing of what others left free is its own.
#[test]
fn no_more_is_kept_than_the_queue_may_use_beside_those_who_leave_it() {
    let borrows = Preemption {
        reclaim_within_cohort: ReclaimWithinCohort::LowerPriority,
        borrow_within_cohort: BorrowWithinCohort::LowerPriority { threshold: None },
        ..Preemption::default()
    };
    let owns = Preemption { reclaim_within_cohort: ReclaimWithinCohort::Any, ..Preemption::default() };
    let queues = [
        queue("limited", quota(4, Some(4), None), borrows),
        queue("owner", quota(8, None, None), owns),
        queue("guest", quota(0, None, None), Preemption::default()),
    ];
    let mut world = World::new([Event::Flavor(flavor("f"))].into_iter().chain(queues.into_iter().flatten()));
    world.put(workload("leaves", "limited", 8, 0));
    world.settle();
    world.put(workload("owner", "owner", 8, 0));
    world.settle();
    assert_eq!(world.leaving(), [Uid::from("leaves")]);
    world.put(workload("head", "limited", 6, 0));
    let mut fits = workload("fits", "guest", 2, 0);
    fits.queued_at_ms = 1;
    world.put(fits);
    world.cycle();
    assert_eq!(world.reason("head").token(), "WaitingForQuota");
    assert!(world.is_admitted("fits"), "{:?}", world.reason("fits"));
}

/// Its first flavor is used by somebody of whom it is not known yet whether he was admitted, and the second is kept for the head of
/// a strict queue. Looking for victims instead shows the first flavor again, which must not begin everything anew.
#[test]
fn who_looks_for_victims_instead_goes_round_its_flavors_once() {
    let mut keeper = entitled("keeper", &[("second", 12)]);
    keeper.strategy = QueueingStrategy::StrictFifo;
    let mut seeker = cluster_queue("seeker", Some("pool"), of(&[("first", 4), ("second", 4)]));
    seeker.preemption.reclaim_within_cohort = ReclaimWithinCohort::Any;
    seeker.fungibility.when_can_preempt = Search::MayStop;
    let on_first = cluster_queue("on-first", Some("pool"), of(&[("first", 0)]));
    let on_second = cluster_queue("on-second", Some("pool"), of(&[("second", 0)]));
    let locals =
        ["keeper", "seeker", "on-first", "on-second"].map(|name| Event::LocalQueue(local_queue(name)));
    let queues = [keeper, seeker, on_first, on_second].map(Event::ClusterQueue);
    let flavors = ["first", "second"].map(|name| Event::Flavor(flavor(name)));
    let mut world = World::new(flavors.into_iter().chain(queues).chain(locals));
    world.put(workload("above", "on-second", 10, 100));
    world.settle();
    world.put(workload("unconfirmed", "on-first", 4, 0));
    assert_eq!(world.engine.decide(1_000).len(), 1);
    world.put(workload("head", "keeper", 12, 0));
    world.put(workload("seeker", "seeker", 2, 0));
    assert_eq!(world.engine.decide(1_000), []);
    assert!(!world.engine.has_more(), "it looks at the same heads for ever");
    world.take_reasons();
    assert_eq!(*world.reason("seeker"), PendingReason::NoLongerFits);
}

/// Its pod sets take turns at two flavors, as each is large enough for one of them. What fits takes a node that is kept for the head of
/// another queue, so it is looked for once more within the cycle: which is no new beginning.
#[test]
fn who_looks_for_places_once_more_goes_round_its_flavors_once() {
    let hosts = |name: &str| Flavor { topology: Some("hosts".into()), ..flavor(name) };
    let mut keeper = entitled("keeper", &[("second", 4)]);
    keeper.strategy = QueueingStrategy::StrictFifo;
    let seeker = cluster_queue("seeker", Some("pool"), of(&[("first", 4), ("second", 4)]));
    let other = cluster_queue("other", Some("pool"), of(&[("second", 1)]));
    let locals = ["keeper", "seeker", "other"].map(|name| Event::LocalQueue(local_queue(name)));
    let nodes = ["first", "second"].map(|name| labelled(name, &[("gpu-type", name)]));
    let mut world = World::new(
        [Event::Topology("hosts".into(), vec![HOSTNAME.to_owned()])]
            .into_iter()
            .chain(["first", "second"].map(|name| Event::Flavor(hosts(name))))
            .chain(nodes)
            .chain([keeper, seeker, other].map(Event::ClusterQueue))
            .chain(locals),
    );
    world.put(job("above", "other", [pods("main", 1, 1, on_one_host())]));
    world.settle();
    assert_eq!(hosts_of(&world, "above"), ["second"]);
    world.put(Workload { priority: 1, ..job("head", "keeper", [pods("main", 4, 1, on_one_host())]) });
    let [leader, workers] =
        [("leader", 1), ("workers", 4)].map(|(name, count)| pods(name, count, 1, on_one_host()));
    world.put(job("seeker", "seeker", [leader, workers]));
    assert_eq!(world.engine.decide(1_000), []);
    assert!(!world.engine.has_more(), "it looks at the same heads for ever");
    world.take_reasons();
    assert_eq!(world.reason("seeker").token(), "WaitingForQuota");
}

/// So much of a resource in each of these flavors.
fn group(resource: &str, amount: i64, flavors: &[&str]) -> ResourceGroup {
    let name = ResourceName::from(resource);
    let of = |flavor: &&str| FlavorQuotas {
        flavor: (*flavor).into(),
        resources: [(name.clone(), quota(amount, None, None))].into(),
    };
    ResourceGroup { covered: vec![name.clone()], flavors: flavors.iter().map(of).collect() }
}

/// GPUs of one flavor, and memory of these.
fn with_memory(gpu: i64, memory: i64, flavors: &[&str]) -> Vec<ResourceGroup> {
    gpus(&[("f", quota(gpu, None, None))]).into_iter().chain([group("memory", memory, flavors)]).collect()
}

/// One pod that wants so much of this alone.
fn wants_only(uid: &str, queue: &str, resource: &str, amount: i64) -> Workload {
    let mut one = wants(workload(uid, queue, 1, 0), resource, amount);
    pod_set(&mut one).requests.remove(&ResourceName::from(GPU));
    one
}

/// One that wants so much memory for each pod besides.
fn wants_memory(workload: Workload, amount: i64) -> Workload {
    wants(workload, "memory", amount)
}

fn wants(mut workload: Workload, resource: &str, amount: i64) -> Workload {
    pod_set(&mut workload).requests.insert(ResourceName::from(resource), amount);
    workload
}

/// A strict queue whose head waits for 8 GPUs, 4 of them lent, and tries two flavors of memory in turns; and these queues.
fn beside_a_head_with_two_flavors(settings: Settings, queues: [ClusterQueue; 2]) -> World {
    let mut keeper = cluster_queue("keeper", Some("pool"), with_memory(8, 10, &["fast", "large"]));
    keeper.strategy = QueueingStrategy::StrictFifo;
    keeper.preemption.reclaim_within_cohort = ReclaimWithinCohort::LowerPriority;
    let lender = cluster_queue("lender", Some("pool"), gpus(&[("f", quota(0, None, None))]));
    let queues: Vec<_> = [keeper, lender].into_iter().chain(queues).collect();
    let locals: Vec<_> =
        queues.iter().map(|queue| Event::LocalQueue(local_queue(queue.name.as_str()))).collect();
    let flavors = ["f", "fast", "large"].map(|name| Event::Flavor(flavor(name)));
    let queues = queues.into_iter().map(Event::ClusterQueue);
    let mut world = World::with(settings, flavors.into_iter().chain(queues).chain(locals));
    world.put(workload("above", "lender", 4, 0));
    world.settle();
    world.put(wants_memory(workload("head", "keeper", 8, 0), 1));
    world.settle();
    assert_eq!(world.reason("head").token(), "WaitingForQuota");
    world
}

/// It stood between its two flavors when the other head came, so that one of the two had a flavor left in every cycle.
#[test]
fn two_heads_that_go_round_their_flavors_out_of_step_come_to_rest() {
    let queues = ["guest", "third"]
        .map(|name| cluster_queue(name, Some("pool"), with_memory(0, 10, &["fast", "large"])));
    let mut world = beside_a_head_with_two_flavors(Settings::default(), queues);
    world.put(workload("third", "third", 9, 0));
    world.settle();
    world.put(wants_memory(workload("guest", "guest", 2, 0), 1));
    for _ in 0..3 {
        assert_eq!(world.engine.decide(1_000), []);
    }
    assert!(!world.engine.has_more(), "it looks at the same heads for ever");
    world.take_reasons();
    assert_eq!(*world.reason("guest"), PendingReason::NoLongerFits);
    assert_eq!(world.reason("head").token(), "WaitingForQuota");
}

/// What it needs is kept while the head looks at one flavor, and not while it looks at the other. It comes after a workload that does
/// not fit, and while the head stands at its second flavor or begins anew.
#[test]
fn who_is_outrun_by_a_head_with_two_flavors_gets_the_one_at_which_it_does_not_look() {
    for (flavor, after, settles) in [
        ("fast", None, false),
        ("fast", Some("third"), true),
        ("large", None, false),
        ("large", Some("guest"), false),
    ] {
        let queues =
            ["guest", "third"].map(|name| cluster_queue(name, Some("pool"), with_memory(0, 0, &[flavor])));
        let mut world = beside_a_head_with_two_flavors(Settings::default(), queues);
        if let Some(queue) = after {
            world.put(workload("large", queue, 9, 0));
        }
        if settles {
            world.settle();
        }
        world.put(Workload { queued_at_ms: 1, ..wants_only("all", "guest", "memory", 10) });
        world.settle();
        assert!(world.is_admitted("all"), "{flavor}, {after:?}: {:?}", world.reason("all"));
    }
}

/// Found by the fuzzer (seed 15784). With its master in the first flavor the pods of the other set could have `shared`, of which
/// nobody may be displaced; with its master there as well they ask for more than there is.
#[test]
fn who_is_outrun_by_a_head_that_goes_on_and_wants_it_no_more_gets_it() {
    let flavors = ["own", "shared", "rest"];
    let mut wide = entitled("wide", &[("own", 2), ("shared", 1)]);
    wide.preemption.borrow_within_cohort = BorrowWithinCohort::LowerPriority { threshold: None };
    let poor = cluster_queue("poor", Some("pool"), of(&[("shared", 3), ("rest", 0)]));
    let queues = [wide, poor].map(Event::ClusterQueue);
    let locals = ["wide", "poor"].map(|name| Event::LocalQueue(local_queue(name)));
    let flavors = flavors.map(|name| Event::Flavor(flavor(name)));
    let mut world = World::new(flavors.into_iter().chain(queues).chain(locals));
    world.put(workload("above", "poor", 3, 100));
    world.settle();
    let mut job = workload("job", "wide", 1, 10);
    let workers = PodSet { name: "worker".into(), count: 4, ..pod_set(&mut job).clone() };
    add_pod_set(&mut job, workers);
    world.put(job);
    world.put(Workload { queued_at_ms: 1, ..workload("crowd", "poor", 1, 10) });
    world.settle();
    assert!(world.is_admitted("crowd"), "{:?}", world.reason("crowd"));
    assert_eq!(world.reason("job").token(), "ExceedsMaxQuota");
}

/// Found by the fuzzer (seed 17097). Its places were kept for a head of another queue, which is put aside after that; it went on to a
/// flavor without places.
#[test]
fn who_finds_no_places_beside_what_is_kept_gets_them_when_that_ends() {
    let keeper = entitled("keeper", &[("placed", 4)]);
    let seeker = cluster_queue("seeker", Some("pool"), of(&[("placed", 4), ("bare", 4)]));
    let other = cluster_queue("other", Some("pool"), of(&[("placed", 4)]));
    let locals = ["keeper", "seeker", "other"].map(|name| Event::LocalQueue(local_queue(name)));
    let placed = Flavor { topology: Some("hosts".into()), ..flavor("placed") };
    let mut world = World::new(
        [Event::Topology("hosts".into(), vec![HOSTNAME.to_owned()]), Event::Flavor(placed)]
            .into_iter()
            .chain([Event::Flavor(flavor("bare")), labelled("host", &[("gpu-type", "placed")])])
            .chain([keeper, seeker, other].map(Event::ClusterQueue))
            .chain(locals),
    );
    world.put(job("above", "other", [pods("main", 1, 1, on_one_host())]));
    world.settle();
    world.put(Workload { priority: 1, ..job("head", "keeper", [pods("main", 4, 1, on_one_host())]) });
    world.put(job("seeker", "seeker", [pods("main", 3, 1, on_one_host())]));
    world.settle();
    assert!(world.is_admitted("seeker"), "{:?}", world.reason("seeker"));
    assert_eq!(world.reason("head").token(), "WaitingForQuota");
}

fn on_a_host(uid: &str, queue: &str, count: i64, priority: i32) -> Workload {
    Workload { priority, ..job(uid, queue, [pods("main", count, 1, on_one_host())]) }
}

/// It found its first flavor kept for the head of a strict queue, and nothing in its second.
#[test]
fn who_went_on_beside_what_was_kept_looks_again_when_that_head_is_gone() {
    let mut keeper = entitled("keeper", &[("first", 8)]);
    keeper.strategy = QueueingStrategy::StrictFifo;
    let seeker = cluster_queue("seeker", Some("pool"), of(&[("first", 0), ("second", 0)]));
    let lender = cluster_queue("lender", Some("pool"), of(&[("first", 0)]));
    let other = cluster_queue("other", Some("pool"), of(&[("second", 4)]));
    let locals = ["keeper", "seeker", "lender", "other"].map(|name| Event::LocalQueue(local_queue(name)));
    let flavors = ["first", "second"].map(|name| Event::Flavor(flavor(name)));
    let queues = [keeper, seeker, lender, other].map(Event::ClusterQueue);
    let mut world = World::new(flavors.into_iter().chain(queues).chain(locals));
    world.put(workload("lent", "lender", 4, 100));
    world.put(workload("own", "other", 4, 100));
    world.settle();
    world.put(workload("head", "keeper", 8, 0));
    world.put(workload("seeker", "seeker", 4, 0));
    world.settle();
    assert_eq!(world.reason("head").token(), "WaitingForQuota");
    assert_eq!(world.reason("seeker").token(), "WaitingForQuota");
    world.engine.apply(Event::WorkloadGone("head".into()));
    world.settle();
    assert!(world.is_admitted("seeker"), "{:?}", world.reason("seeker"));
}

/// The place of its leader is kept for the head of a strict queue, which stays; those of its workers are kept for itself, once.
#[test]
fn what_is_kept_for_one_that_is_put_aside_is_free_in_the_next_cycle() {
    let host =
        |name: &str, pods: PodSet| PodSet { node_selector: [(HOSTNAME.into(), name.into())].into(), ..pods };
    let on = |name: &str, count: i64| host(name, pods(name, count, 1, on_one_host()));
    let queues = [("keeper", 4), ("other", 1), ("middle", 4), ("last", 2)];
    let mut world = world(&["left", "right"], &queues);
    for (name, strategy) in
        [("keeper", QueueingStrategy::StrictFifo), ("middle", QueueingStrategy::BestEffortFifo)]
    {
        world.engine.apply(Event::ClusterQueue(ClusterQueue { strategy, ..entitled(name, &[("f", 4)]) }));
    }
    world.put(job("above", "other", [on("left", 1)]));
    world.settle();
    world.put(Workload { priority: 1, ..job("head", "keeper", [on("left", 4)]) });
    world.put(job("middle", "middle", [on("left", 1), on("right", 3)]));
    world.put(Workload { queued_at_ms: 1, ..job("last", "last", [on("right", 2)]) });
    world.settle();
    assert_eq!(world.reason("middle").token(), "WaitingForQuota");
    assert!(world.is_admitted("last"), "{:?}", world.reason("last"));
}

/// It blocks its queue because its places were kept for the head of another, which is put aside after that.
#[test]
fn the_head_of_a_strict_queue_gets_the_places_that_were_kept_for_another() {
    let mut world = world(&["host"], &[("keeper", 4), ("seeker", 4), ("other", 4)]);
    world.engine.apply(Event::ClusterQueue(entitled("keeper", &[("f", 4)])));
    let mut seeker = cluster_queue("seeker", Some("pool"), of(&[("f", 4)]));
    seeker.strategy = QueueingStrategy::StrictFifo;
    world.engine.apply(Event::ClusterQueue(seeker));
    world.put(on_a_host("above", "other", 1, 0));
    world.settle();
    world.put(on_a_host("head", "keeper", 4, 1));
    world.put(on_a_host("seeker", "seeker", 3, 0));
    world.settle();
    assert!(world.is_admitted("seeker"), "{:?}", world.reason("seeker"));
    assert_eq!(world.reason("head").token(), "WaitingForQuota");
}

/// Where nobody looks for places a second time within a cycle, it would go on finding the ones that are kept for a workload which has its
/// quota and needs them.
#[test]
fn who_is_outrun_by_one_that_has_quota_and_finds_no_places_gets_them() {
    for recompute in [true, false] {
        let topology = TopologySettings { recompute, ..TopologySettings::default() };
        let settings = Settings { topology, ..Settings::default() };
        let mut world = world_with(settings, &["host"], &[("second", 4), ("seeker", 4), ("other", 4)]);
        world.engine.apply(Event::ClusterQueue(entitled("second", &[("f", 4)])));
        world.put(on_a_host("above", "other", 1, 0));
        world.settle();
        let mut second = Workload { checks_passed: true, ..on_a_host("second", "second", 4, 0) };
        second.standing = holds(&second, "second", None);
        world.put(second);
        world.put(on_a_host("seeker", "seeker", 3, 0));
        world.settle();
        assert!(world.is_admitted("seeker"), "{recompute}: {:?}", world.reason("seeker"));
        assert!(hosts_of(&world, "second").is_empty());
    }
}

/// One that blocks its queue for another reason stands between it and who would borrow what is kept.
#[test]
fn who_is_shut_out_by_a_head_that_goes_round_comes_to_rest_whoever_else_is_put_aside() {
    let waits = Settings { block_admission: true, ..Settings::default() };
    let mut strict = cluster_queue("strict", Some("pool"), vec![group("licences", 1, &["site"])]);
    strict.strategy = QueueingStrategy::StrictFifo;
    let guest = cluster_queue("guest", Some("pool"), gpus(&[("f", quota(0, None, None))]));
    let mut world = beside_a_head_with_two_flavors(waits, [strict, guest]);
    world.engine.apply(Event::Flavor(flavor("site")));
    world.put(wants_only("licence", "strict", "licences", 1));
    world.put(workload("guest", "guest", 1, 0));
    world.engine.take_cycle_counts();
    for _ in 0..3 {
        assert_eq!(world.engine.decide(1_000), []);
    }
    let cycles = world.engine.take_cycle_counts().attempts.failed;
    assert!(cycles < 9, "{cycles} cycles: those of a round, and one for each that is put aside");
    assert!(!world.engine.has_more(), "it looks at the same heads for ever");
    world.take_reasons();
    assert_eq!(*world.reason("licence"), PendingReason::PodsNotReady);
    assert_eq!(*world.reason("guest"), PendingReason::NoLongerFits);
    assert_eq!(world.reason("head").token(), "WaitingForQuota");
}

/// What one of them found, it found before anything was kept: it goes round its flavors once, and no more for the sake of the other.
#[test]
fn two_blocked_heads_with_two_flavors_go_round_them_once_for_each_that_comes() {
    let both = ["one", "two"].map(|name| {
        let groups = with_memory(8, 10, &["fast", "large"]);
        let strategy = QueueingStrategy::StrictFifo;
        ClusterQueue { groups, strategy, ..entitled(name, &[("f", 8)]) }
    });
    let guest = cluster_queue("guest", Some("pool"), vec![group("licences", 1, &["site"])]);
    let lender = cluster_queue("lender", Some("pool"), of(&[("f", 0)]));
    let queues = both.into_iter().chain([guest, lender]).map(Event::ClusterQueue);
    let locals = ["one", "two", "guest", "lender"].map(|name| Event::LocalQueue(local_queue(name)));
    let flavors = ["f", "fast", "large", "site"].map(|name| Event::Flavor(flavor(name)));
    let mut world = World::new(flavors.into_iter().chain(queues).chain(locals));
    world.put(workload("above", "lender", 12, 0));
    world.settle();
    for name in ["one", "two"] {
        world.put(wants_memory(workload(name, name, 8, 0), 1));
    }
    world.settle();
    world.engine.take_cycle_counts();
    world.put(wants_only("guest", "guest", "licences", 1));
    world.settle();
    assert!(world.is_admitted("guest"));
    for name in ["one", "two"] {
        assert_eq!(world.reason(name).token(), "WaitingForQuota");
    }
    let attempts = world.engine.take_cycle_counts().attempts;
    assert!(attempts.succeeded + attempts.failed < 9, "{attempts:?}");
}
