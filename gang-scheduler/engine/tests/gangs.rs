//! What becomes of gangs, step by step.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::*;
use placement_engine::*;

#[test]
fn a_gang_is_placed_whole_on_the_fewest_nodes() {
    let mut engine = engine([node("a", 8), node("b", 2), node("c", 4)]);
    add_gang(&mut engine, "g", 4, workers("g", 4, 1));
    let decisions = engine.decide(0);
    assert_eq!(decisions.len(), 1, "{decisions:#?}");
    assert!(placed(&decisions).values().all(|node| node == "c"), "the node it fills, not the larger one");
    assert!(engine.decide(0).is_empty(), "asking again gives nothing new");
    confirm(&mut engine, 0, &decisions);
    assert!(engine.decide(0).is_empty());
    engine.verify().unwrap();
}

#[test]
fn a_gang_that_does_not_fit_binds_nothing_and_says_why_with_numbers() {
    let cordoned = NodeInfo { unschedulable: true, ..node("c", 8) };
    let mut engine = engine([node("a", 2), node("b", 1), cordoned]);
    add_gang(&mut engine, "g", 4, workers("g", 4, 1));
    let decisions = engine.decide(0);
    assert!(placed(&decisions).is_empty());
    let Why::NoFit(no_fit) = &pending(&decisions).why else { panic!("{decisions:#?}") };
    assert_eq!((no_fit.placeable, no_fit.wanted, no_fit.nodes), (3, 4, 3));
    assert_eq!(
        no_fit.histogram,
        [(NodeReason::Unschedulable, 1), (NodeReason::Insufficient(GPU.into()), 2)].into()
    );
    assert_eq!(
        no_fit.to_string(),
        "3 of 4 pods fit; beside them, pod g-worker-0 fits none of 3 nodes: 2 insufficient nvidia.com/gpu (asks 1, at \
         most 0 left on a node), 1 cordoned"
    );
    assert!(engine.decide(1).is_empty(), "said once");
    engine.apply(2, Event::NodeApplied(node("d", 8)));
    assert_eq!(placed(&engine.decide(2)).len(), 4, "tried again when something changed");
}

#[test]
fn members_are_waited_for() {
    let mut engine = engine([node("a", 8)]);
    add_gang(&mut engine, "g", 3, workers("g", 2, 1));
    let mut gated = pod("g-worker-2", "g", 1);
    gated.gated = true;
    engine.apply(0, Event::PodApplied(Box::new(gated.clone())));
    let decisions = engine.decide(0);
    assert_eq!(pending(&decisions).why, Why::NotEnoughMembers { have: 2, need: 3, gated: 1 });
    gated.gated = false;
    engine.apply(1, Event::PodApplied(Box::new(gated)));
    assert_eq!(placed(&engine.decide(1)).len(), 3);
}

#[test]
fn more_than_the_minimum_is_placed_when_it_fits_and_later_when_not() {
    let mut engine = engine([node("a", 3)]);
    add_gang(&mut engine, "g", 2, workers("g", 4, 1));
    let decisions = engine.decide(0);
    assert_eq!(
        placed(&decisions).into_keys().collect::<Vec<_>>(),
        ["g-worker-0", "g-worker-1", "g-worker-2"]
    );
    let Why::NoFit(no_fit) = &pending(&decisions).why else { panic!("{decisions:#?}") };
    assert_eq!((no_fit.wanted, no_fit.member.as_ref()), (1, "g-worker-3"));
    confirm(&mut engine, 0, &decisions);
    engine.apply(1, Event::NodeApplied(node("b", 1)));
    assert_eq!(placed(&engine.decide(1)), [("g-worker-3".to_owned(), "b".to_owned())].into());
}

#[test]
fn nobody_joins_before_the_minimum_is_bound() {
    let mut engine = engine([node("a", 8)]);
    add_gang(&mut engine, "g", 3, workers("g", 3, 1));
    let minimum = engine.decide(0);
    assert_eq!(placed(&minimum).len(), 3);
    engine.apply(1, Event::PodApplied(Box::new(pod("g-worker-3", "g", 1))));
    assert!(placed(&engine.decide(1)).is_empty(), "the plan may not be durable yet");
    confirm(&mut engine, 2, &minimum);
    assert_eq!(placed(&engine.decide(2)).len(), 1);
    engine.verify().unwrap();
}

#[test]
fn who_is_missing_since_the_minimum_grew_waits_until_the_others_are_bound() {
    let mut engine = engine([node("a", 8)]);
    add_gang(&mut engine, "g", 3, workers("g", 3, 1));
    let minimum = engine.decide(0);
    assert_eq!(placed(&minimum).len(), 3);
    engine.apply(1, Event::GangApplied(gang("g", 4)));
    engine.apply(1, Event::PodApplied(Box::new(pod("g-worker-3", "g", 1))));
    assert!(placed(&engine.decide(1)).is_empty(), "the plan may not be durable yet");
    confirm(&mut engine, 2, &minimum);
    assert_eq!(placed(&engine.decide(2)).into_keys().collect::<Vec<_>>(), ["g-worker-3"]);
    engine.verify().unwrap();
}

#[test]
fn order_is_repair_then_priority_then_age() {
    let mut engine = engine([node("a", 4)]);
    add_gang(&mut engine, "old", 2, workers("old", 2, 2));
    let first = engine.decide(0);
    confirm(&mut engine, 0, &first);
    // One member is lost; a fresh gang of higher priority wants the same place (Volcano #5805).
    engine.apply(1, Event::PodDeleted(PodUid::new("uid-old-worker-1")));
    let mut urgent = workers("urgent", 1, 2);
    urgent[0].priority = 1000;
    add_gang(&mut engine, "urgent", 1, urgent);
    engine.apply(1, Event::PodApplied(Box::new(pod("old-worker-1b", "old", 2))));
    let decisions = engine.decide(1);
    assert_eq!(placed(&decisions).into_keys().collect::<Vec<_>>(), ["old-worker-1b"]);

    let mut engine = self::engine([node("a", 2)]);
    for (id, priority, created_ms) in [("young", 0, 20), ("old", 0, 10), ("important", 5, 30)] {
        engine.apply(0, Event::GangApplied(GangSpec { created_ms, ..gang(id, 1) }));
        let mut member = pod(id, id, 1);
        member.priority = priority;
        engine.apply(0, Event::PodApplied(Box::new(member)));
    }
    assert_eq!(placed(&engine.decide(0)).into_keys().collect::<Vec<_>>(), ["important", "old"]);
}

#[test]
fn a_gang_below_its_minimum_is_repaired_or_undone() {
    let mut engine = engine([node("a", 2), node("b", 2)]);
    let mut members = workers("g", 4, 1);
    members[0].has_controller = false;
    add_gang(&mut engine, "g", 4, members);
    let first = engine.decide(0);
    confirm(&mut engine, 0, &first);
    engine.apply(10, Event::PodDeleted(PodUid::new("uid-g-worker-3")));
    let decisions = engine.decide(10);
    assert_eq!(pending(&decisions).why, Why::NotEnoughMembers { have: 3, need: 4, gated: 0 });
    assert_eq!(engine.next_deadline(), Some(60_010));
    let decisions = engine.decide(60_010);
    let undo = decisions
        .iter()
        .find_map(|decision| match decision {
            Decision::Undo(undo) => Some(undo),
            _ => None,
        })
        .unwrap();
    assert_eq!(
        undo.delete.iter().map(|(_, _, name)| name.as_ref()).collect::<Vec<_>>(),
        ["g-worker-1", "g-worker-2"]
    );
    assert_eq!(undo.kept, [PodUid::new("uid-g-worker-0")]);
    assert!(engine.decide(60_011).is_empty(), "decided once");
    for name in ["g-worker-1", "g-worker-2"] {
        engine.apply(60_020, Event::PodDeleted(PodUid::new(format!("uid-{name}"))));
    }
    for name in ["g-worker-1b", "g-worker-2b", "g-worker-3b"] {
        engine.apply(60_030, Event::PodApplied(Box::new(pod(name, "g", 1))));
    }
    assert_eq!(placed(&engine.decide(60_030)).len(), 3, "the bare pod is planned around");
    engine.verify().unwrap();
}

/// Two members of a gang whose deletion was decided, as it needs a third; and one that came meanwhile.
fn undone() -> (Engine, [PodUid; 2]) {
    let mut engine = engine([node("a", 4)]);
    add_gang(&mut engine, "g", 2, workers("g", 2, 1));
    let first = engine.decide(0);
    confirm(&mut engine, 0, &first);
    engine.apply(10, Event::GangApplied(gang("g", 3)));
    engine.decide(10);
    let undone = engine.decide(60_010);
    assert!(undone.iter().any(|decision| matches!(decision, Decision::Undo(_))), "{undone:#?}");
    engine.apply(60_010, Event::PodApplied(Box::new(pod("g-worker-2", "g", 1))));
    (engine, ["uid-g-worker-0", "uid-g-worker-1"].map(PodUid::new))
}

/// Found by the fuzzer (seed 16121): members whose deletion was decided while the watch was silent had succeeded long before, and
/// one pod of those after them was to complete the minimum with them. So it was where finalizers held them.
#[test]
fn who_is_being_deleted_does_not_count_for_those_after_it() {
    for (phase, held) in [
        (PodPhase::Active, false),
        (PodPhase::Succeeded, false),
        (PodPhase::Succeeded, true),
        (PodPhase::Failed, true),
    ] {
        let (mut engine, members) = undone();
        for uid in &members {
            let done = PodInfo { phase, ..engine.pod(uid).unwrap().clone() };
            engine.apply(60_011, Event::PodApplied(Box::new(done)));
        }
        assert!(placed(&engine.decide(60_011)).is_empty(), "before it is known what is left");
        for uid in members {
            let leaves = PodInfo { deleting: true, ..engine.pod(&uid).unwrap().clone() };
            let seen = if held { Event::PodApplied(Box::new(leaves)) } else { Event::PodDeleted(uid) };
            engine.apply(60_012, seen);
        }
        assert!(placed(&engine.decide(60_012)).is_empty(), "one of three: {phase:?}, {held}");
        for name in ["g-worker-3", "g-worker-4"] {
            engine.apply(60_013, Event::PodApplied(Box::new(pod(name, "g", 1))));
        }
        assert_eq!(placed(&engine.decide(60_013)).len(), 3, "{phase:?}, {held}");
        engine.verify().unwrap();
    }
}

/// They move to another gang, and it turns out there that they stay; or back.
#[test]
fn whose_deletion_was_decided_counts_for_no_gang_until_it_is_known_to_have_failed() {
    for (moves, fails) in [(&["other"][..], true), (&["other", "g"], false), (&["other", "g"], true)] {
        let (mut engine, members) = undone();
        engine.apply(60_011, Event::GangApplied(gang("other", 3)));
        engine.apply(60_011, Event::PodApplied(Box::new(pod("late", "other", 1))));
        for to in moves {
            for uid in &members {
                let moved = PodInfo { gang: Some(GangId::new(*to)), ..engine.pod(uid).unwrap().clone() };
                engine.apply(60_011, Event::PodApplied(Box::new(moved)));
            }
            assert!(placed(&engine.decide(60_011)).is_empty(), "{moves:?}");
        }
        for uid in members {
            engine.apply(60_012, if fails { Event::UndoFailed(uid) } else { Event::PodDeleted(uid) });
        }
        for name in ["g-worker-3", "g-worker-4"] {
            engine.apply(60_012, Event::PodApplied(Box::new(pod(name, "g", 1))));
        }
        // With two that stay there is room for two more: one completes the minimum, the other joins when it stands.
        let placed = placed(&engine.decide(60_012));
        assert_eq!(placed.contains_key("late"), moves.len() == 1, "{moves:?}, {fails}: {placed:?}");
        assert_eq!(placed.contains_key("g-worker-2"), moves.len() == 2, "{moves:?}, {fails}: {placed:?}");
        engine.verify().unwrap();
    }
}

#[test]
fn a_refused_bind_is_placed_again_elsewhere_after_a_pause() {
    let mut engine = engine([node("a", 1), node("b", 1)]);
    add_gang(&mut engine, "g", 1, workers("g", 1, 1));
    assert_eq!(placed(&engine.decide(0))["g-worker-0"], "a");
    engine.apply(5, refusal("g-worker-0"));
    assert!(placed(&engine.decide(5)).is_empty());
    assert_eq!(engine.next_deadline(), Some(1_005));
    assert_eq!(placed(&engine.decide(1_005))["g-worker-0"], "b");
    engine.verify().unwrap();
}

#[test]
fn what_the_kubelet_rejected_is_replaced_on_another_node() {
    let mut engine = engine([node("a", 1), node("b", 1), node("c", 1)]);
    add_gang(&mut engine, "g", 2, workers("g", 2, 1));
    let first = engine.decide(0);
    confirm(&mut engine, 0, &first);
    let mut rejected = engine.pod(&PodUid::new("uid-g-worker-0")).unwrap().clone();
    rejected.phase = PodPhase::Rejected;
    engine.apply(1, Event::PodApplied(Box::new(rejected)));
    engine.apply(2, Event::PodApplied(Box::new(pod("g-worker-0b", "g", 1))));
    assert!(placed(&engine.decide(2)).is_empty(), "after a pause");
    assert_eq!(placed(&engine.decide(2_000))["g-worker-0b"], "c", "a refused, b is taken");
}

/// Found on a real kubelet whose device plugin was away for a second: the node was left alone until patience ended, and
/// the survivors were deleted.
#[test]
fn a_gang_that_fits_on_one_node_only_is_repaired_where_it_was_rejected() {
    let mut engine = engine([node("a", 2)]);
    add_gang(&mut engine, "g", 2, workers("g", 2, 1));
    let first = engine.decide(0);
    confirm(&mut engine, 0, &first);
    let member = engine.pod(&PodUid::new("uid-g-worker-0")).unwrap().clone();
    engine.apply(1, Event::PodApplied(Box::new(PodInfo { phase: PodPhase::Rejected, ..member })));
    let (mut now, mut decisions) = (1, engine.decide(1));
    engine.apply(20_000, Event::PodApplied(Box::new(pod("g-worker-0b", "g", 1))));
    while placed(&decisions).is_empty() {
        assert!(!decisions.iter().any(|decision| matches!(decision, Decision::Undo(_))), "{decisions:#?}");
        now = engine.next_deadline().unwrap().max(20_000).max(now);
        decisions = engine.decide(now);
    }
    assert_eq!(placed(&decisions)["g-worker-0b"], "a");
    assert!(now < 60_000, "at {now}");
}

#[test]
fn an_old_event_does_not_undo_what_is_assumed() {
    let mut engine = engine([node("a", 1)]);
    add_gang(&mut engine, "g", 1, workers("g", 1, 1));
    assert_eq!(placed(&engine.decide(0)).len(), 1);
    let mut old = engine.pod(&PodUid::new("uid-g-worker-0")).unwrap().clone();
    old.priority = 1;
    engine.apply(1, Event::PodApplied(Box::new(old)));
    assert!(engine.assumed(&PodUid::new("uid-g-worker-0")).is_some());
    add_gang(&mut engine, "h", 1, workers("h", 1, 1));
    assert!(placed(&engine.decide(1)).is_empty(), "the place is taken");
}

#[test]
fn a_found_plan_is_adopted_as_far_as_it_is_possible() {
    let mut engine = engine([node("a", 1), node("b", 1)]);
    add_gang(&mut engine, "g", 2, workers("g", 2, 1));
    let uid = |index: usize| PodUid::new(format!("uid-g-worker-{index}"));
    let found = || {
        Event::PlanFound(vec![
            (uid(0), "b".into(), DeviceChoice::new()),
            (uid(1), "gone".into(), DeviceChoice::new()),
        ])
    };
    engine.apply(0, found());
    assert_eq!(engine.assumed(&uid(0)).unwrap().0.as_ref(), "b");
    assert_eq!(engine.assumed(&uid(1)), None);
    assert!(placed(&engine.decide(0)).is_empty(), "no plan has the other one");
    engine.apply(1, Event::StoodDown);
    assert_eq!(engine.assumed(&uid(0)), None);
    engine.apply(1, found());
    let mut bound = engine.pod(&uid(0)).unwrap().clone();
    bound.node = Some("b".into());
    engine.apply(1, Event::PodApplied(Box::new(bound)));
    assert_eq!(placed(&engine.decide(1)), [("g-worker-1".to_owned(), "a".to_owned())].into());
    engine.apply(2, Event::StoodDown);
    assert_eq!(engine.assumed(&uid(1)), None);
    engine.verify().unwrap();
}

#[test]
fn holds_and_unsupported_features_keep_pods_pending() {
    let mut engine = engine([node("a", 8)]);
    let mut members = workers("g", 2, 1);
    members[1].hold = Some(Hold::Unsupported(Unsupported::ResourceClaims));
    add_gang(&mut engine, "g", 2, members);
    let decisions = engine.decide(0);
    assert_eq!(pending(&decisions).why, Why::Held(Hold::Unsupported(Unsupported::ResourceClaims)));
    assert!(placed(&decisions).is_empty());

    let hold = Hold::WorkloadNotAdmitted { workload: "w".into() };
    engine.apply(1, Event::GangApplied(GangSpec { hold: Some(hold.clone()), ..gang("h", 1) }));
    engine.apply(1, Event::PodApplied(Box::new(pod("h-0", "h", 1))));
    assert_eq!(pending(&engine.decide(1)).why, Why::Held(hold));
    engine.apply(2, Event::GangApplied(gang("h", 1)));
    assert_eq!(placed(&engine.decide(2)).len(), 1);
}

#[test]
fn pods_without_accelerators_stay_off_accelerated_nodes_if_they_can() {
    let plain = NodeInfo { allocatable: amounts(&[("cpu", 128_000), ("pods", 110)]), ..node("z", 0) };
    let mut engine = engine([node("a", 8), plain]);
    add_gang(&mut engine, "g", 1, workers("g", 1, 0));
    assert_eq!(placed(&engine.decide(0))["g-worker-0"], "z");
}

#[test]
fn devices_are_chosen_once_each() {
    let mut engine = engine([node("a", 4)]);
    let devices = (0..4).map(|index| Device { index, healthy: true, links: Vec::new() }).collect();
    engine.apply(0, Event::DevicesApplied { node: "a".into(), devices });
    add_gang(&mut engine, "g", 2, workers("g", 2, 2));
    let decisions = engine.decide(0);
    let Decision::Place(plan) = &decisions[0] else { panic!() };
    let indices: Vec<_> = plan.members.iter().map(|member| member.devices["main"][GPU].clone()).collect();
    assert_eq!(indices, [[0, 1], [2, 3]]);
}

#[test]
fn a_job_s_last_wave_is_not_waited_for_as_a_gang() {
    let mut engine = engine([node("a", 8)]);
    let mut members = workers("g", 5, 1);
    for done in &mut members[..4] {
        done.phase = PodPhase::Succeeded;
    }
    add_gang(&mut engine, "g", 4, members);
    assert_eq!(placed(&engine.decide(0)).len(), 1);
}

#[test]
fn a_huge_request_fits_nowhere_and_breaks_nothing() {
    let mut engine = engine([node("a", 8)]);
    let mut member = pod("g-0", "g", i64::MAX);
    member.requests = amounts(&[(GPU, i64::MAX), ("memory", i64::MAX), ("cpu", 0)]);
    let foreign = PodInfo { uid: PodUid::new("f"), gang: None, node: Some("a".into()), ..member.clone() };
    engine.apply(0, Event::PodApplied(Box::new(foreign)));
    add_gang(&mut engine, "g", 1, [member]);
    assert!(placed(&engine.decide(0)).is_empty());
    engine.apply(0, Event::PodDeleted(PodUid::new("f")));
    add_gang(&mut engine, "h", 1, workers("h", 1, 8));
    assert_eq!(placed(&engine.decide(0)).len(), 1);
    engine.verify().unwrap();
}

#[test]
fn any_members_make_the_minimum() {
    let mut engine = engine([node("a", 2)]);
    let mut members = workers("g", 3, 1);
    members[0].requests = amounts(&[(GPU, 8)]);
    add_gang(&mut engine, "g", 2, members);
    let decisions = engine.decide(0);
    let names: Vec<_> = placed(&decisions).into_keys().collect();
    assert_eq!(names, ["g-worker-1", "g-worker-2"], "the first fits nowhere; two others are enough");
    let Why::NoFit(no_fit) = &pending(&decisions).why else { panic!("{decisions:#?}") };
    assert_eq!(no_fit.member.as_ref(), "g-worker-0");
    engine.verify().unwrap();
}

#[test]
fn a_large_gang_of_two_shapes_is_no_deep_recursion() {
    let room = amounts(&[("cpu", 64_000), ("memory", 110), ("pods", 110)]);
    let nodes = (0..200).map(|index| NodeInfo { allocatable: room.clone(), ..node(&format!("n{index}"), 0) });
    let mut engine = engine(nodes);
    // 22,000 places. Each kind fits alone; both together do not.
    let members = (0..23_000).map(|index| PodInfo {
        requests: amounts(&[if index < 15_000 { ("memory", 1) } else { ("cpu", 1) }]),
        ..pod(&format!("g-{index}"), "g", 0)
    });
    add_gang(&mut engine, "g", 23_000, members);
    let Why::NoFit(no_fit) = pending(&engine.decide(1)).why.clone() else { panic!() };
    assert!(!no_fit.exhaustive, "packed, not searched: {no_fit}");
}

#[test]
fn nodes_that_would_rather_not_are_taken_last() {
    let taint = model::node::Taint {
        key: "k".into(),
        value: String::new(),
        effect: model::node::TaintEffect::PreferNoSchedule,
    };
    let disliked = |name: &str| NodeInfo { taints: vec![taint.clone()], ..node(name, 1) };
    let mut engine = engine([disliked("a"), node("b", 8), disliked("c")]);
    add_gang(&mut engine, "g", 1, workers("g", 9, 1));
    let decisions = engine.decide(0);
    assert_eq!(placed(&decisions)["g-worker-0"], "b", "although a is filled by it");
    assert_eq!(placed(&decisions)["g-worker-8"], "a", "better than nowhere");
}

#[test]
fn roles_have_minima_of_their_own() {
    let member = |role: &str, index: usize| PodInfo {
        role: Some(role.into()),
        ..pod(&format!("g-{role}-{index}"), "g", 1)
    };
    let roles = |list: &[(&str, u32)]| list.iter().map(|(role, count)| ((*role).into(), *count)).collect();
    let with = |min_member, list: &[(&str, u32)]| GangSpec { roles: roles(list), ..gang("g", min_member) };
    let workers = || (0..3).map(|index| member("worker", index));
    for (what, spec, gpus, masters, expected) in [
        (
            "a master is waited for",
            with(3, &[("master", 1), ("worker", 2)]),
            8,
            0,
            Err("0 of 1 pods of task master exist"),
        ),
        ("the master is among those that start", with(3, &[("master", 1), ("worker", 2)]), 3, 1, Ok(3)),
        ("minima above the gang's are not looked at", with(2, &[("master", 1), ("worker", 2)]), 8, 0, Ok(3)),
    ] {
        let mut engine = engine([node("a", gpus)]);
        engine.apply(0, Event::GangApplied(spec));
        for info in workers().chain((0..masters).map(|index| member("zmaster", index)).map(|mut info| {
            info.role = Some("master".into());
            info
        })) {
            engine.apply(0, Event::PodApplied(Box::new(info)));
        }
        let decisions = engine.decide(0);
        match expected {
            Ok(count) => {
                let placed = placed(&decisions);
                assert_eq!(placed.len(), count, "{what}: {decisions:#?}");
                assert_eq!(placed.keys().filter(|name| name.contains("zmaster")).count(), masters, "{what}");
            }
            Err(message) => assert_eq!(pending(&decisions).why.to_string(), message, "{what}"),
        }
    }
}

#[test]
fn a_gang_s_own_priority_beats_its_members() {
    let mut engine = engine([node("a", 1)]);
    for (id, own, member) in [("named", Some(10), 0), ("unnamed", None, 5)] {
        engine.apply(0, Event::GangApplied(GangSpec { priority: own, ..gang(id, 1) }));
        engine.apply(0, Event::PodApplied(Box::new(PodInfo { priority: member, ..pod(id, id, 1) })));
    }
    assert_eq!(placed(&engine.decide(0)).into_keys().collect::<Vec<_>>(), ["named"]);
}

#[test]
fn a_refused_plan_pauses_its_gang_and_blames_no_node() {
    let mut engine = engine([node("a", 2)]);
    add_gang(&mut engine, "g", 2, workers("g", 2, 1));
    assert_eq!(placed(&engine.decide(0)).len(), 2);
    engine.apply(0, Event::PlanRefused { gang: GangId::new("g"), problem: "no".into() });
    for index in 0..2 {
        engine.apply(0, Event::PlacementDropped(PodUid::new(format!("uid-g-worker-{index}"))));
    }
    let decisions = engine.decide(1);
    assert_eq!(
        pending(&decisions).why.to_string(),
        "the gang's GangPlacement could not be written (no); the next try follows shortly"
    );
    assert!(engine.decide(2).is_empty());
    assert_eq!(engine.next_deadline(), Some(1_000));
    assert_eq!(placed(&engine.decide(1_000)).len(), 2, "on the same node");
}

#[test]
fn an_assumed_place_may_turn_out_unsuitable_before_it_is_bound() {
    let place = || {
        let mut engine = engine([node("a", 1)]);
        add_gang(&mut engine, "g", 1, workers("g", 1, 1));
        assert_eq!(placed(&engine.decide(0)).len(), 1);
        assert!(engine.still_suits(&PodUid::new("uid-g-worker-0")));
        engine
    };
    let deleting = PodInfo { deleting: true, ..pod("g-worker-0", "g", 1) };
    for event in [
        Event::NodeDeleted("a".into()),
        Event::NodeApplied(NodeInfo { unschedulable: true, ..node("a", 1) }),
        Event::NodeApplied(NodeInfo { ready: false, ..node("a", 1) }),
        Event::PodApplied(Box::new(deleting)),
    ] {
        let mut engine = place();
        engine.apply(1, event.clone());
        assert!(!engine.still_suits(&PodUid::new("uid-g-worker-0")), "{event:?}");
    }
}

#[test]
fn pauses_grow_with_each_refusal_until_it_is_quiet() {
    let mut engine = engine((0..9).map(|index| node(&format!("n{index}"), 1)));
    let (mut now, mut pauses) = (0, Vec::new());
    add_gang(&mut engine, "g", 1, [pod("g-0", "g", 1)]);
    let mut decisions = engine.decide(now);
    for index in 0..8 {
        confirm(&mut engine, now, &decisions);
        assert!(engine.decide(now).is_empty());
        now += if index == 7 { 200_000 } else { 0 };
        // The kubelet rejects it, its controller makes another one.
        let uid = PodUid::new(format!("uid-g-{index}"));
        let rejected = PodInfo { phase: PodPhase::Rejected, ..engine.pod(&uid).unwrap().clone() };
        engine.apply(now, Event::PodApplied(Box::new(rejected)));
        engine.apply(now, Event::PodApplied(Box::new(pod(&format!("g-{}", index + 1), "g", 1))));
        let refused_at = now;
        decisions = engine.decide(now);
        while placed(&decisions).is_empty() {
            now = engine.next_deadline().unwrap();
            decisions = engine.decide(now);
        }
        pauses.push((now - refused_at) / 1_000);
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 1]);
}

#[test]
fn nobody_gets_more_than_its_minimum_before_everybody_has_it() {
    let nodes = || (0..6).map(|index| node(&format!("n{index}"), 1));
    let mut engine = self::engine(nodes());
    for (id, created_ms) in [("a", 1), ("b", 2)] {
        engine.apply(0, Event::GangApplied(GangSpec { created_ms, ..gang(id, 2) }));
        for member in workers(id, 4, 1) {
            engine.apply(0, Event::PodApplied(Box::new(member)));
        }
    }
    let decisions = engine.decide(0);
    let count = |id: &str| placed(&decisions).keys().filter(|name| name.starts_with(id)).count();
    assert_eq!((count("a-"), count("b-")), (3, 3));
    let plans = decisions.iter().filter(|decision| matches!(decision, Decision::Place(_))).count();
    assert_eq!(plans, 2, "what a gang gets at once is one plan: {decisions:#?}");

    let mut engine = self::engine(nodes());
    engine.apply(0, Event::GangApplied(GangSpec { priority: Some(1), ..gang("a", 2) }));
    for member in workers("a", 6, 1) {
        engine.apply(0, Event::PodApplied(Box::new(member)));
    }
    add_gang(&mut engine, "b", 2, workers("b", 2, 1));
    let decisions = engine.decide(0);
    assert!(
        placed(&decisions).keys().all(|name| name.starts_with("a-")),
        "unless it comes first by priority"
    );
    engine.verify().unwrap();
}
