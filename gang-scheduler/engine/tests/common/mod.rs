//! Builders for engine tests.
#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses its part; a test may panic")]

use std::collections::BTreeMap;

use model::resources::{ResourceList, ResourceName};
use placement_engine::*;

pub(crate) const GPU: &str = "nvidia.com/gpu";

pub(crate) fn amounts(entries: &[(&str, i64)]) -> ResourceList {
    entries.iter().map(|(name, amount)| (ResourceName::from(*name), *amount)).collect()
}

pub(crate) fn node(name: &str, gpus: i64) -> NodeInfo {
    NodeInfo {
        name: name.into(),
        ready: true,
        allocatable: amounts(&[("cpu", 64_000), ("memory", 1 << 38), ("pods", 110), (GPU, gpus)]),
        ..NodeInfo::default()
    }
}

pub(crate) fn pod(name: &str, gang: &str, gpus: i64) -> PodInfo {
    PodInfo {
        uid: PodUid::new(format!("uid-{name}")),
        namespace: "team".into(),
        name: name.into(),
        gang: Some(GangId::new(gang)),
        has_controller: true,
        requests: amounts(&[("cpu", 1000), (GPU, gpus)]),
        devices_asked: [("main".to_owned(), amounts(&[(GPU, gpus)]))].into(),
        ..PodInfo::default()
    }
}

pub(crate) fn gang(id: &str, min_member: u32) -> GangSpec {
    GangSpec {
        id: GangId::new(id),
        min_member,
        expected: min_member,
        created_ms: 0,
        priority: None,
        roles: BTreeMap::new(),
        hold: None,
    }
}

/// An engine with these nodes.
pub(crate) fn engine(nodes: impl IntoIterator<Item = NodeInfo>) -> Engine {
    let mut engine = Engine::new(Config::default());
    for node in nodes {
        engine.apply(0, Event::NodeApplied(node));
    }
    engine
}

pub(crate) fn add_gang(
    engine: &mut Engine,
    id: &str,
    min_member: u32,
    pods: impl IntoIterator<Item = PodInfo>,
) {
    engine.apply(0, Event::GangApplied(gang(id, min_member)));
    for pod in pods {
        engine.apply(0, Event::PodApplied(Box::new(pod)));
    }
}

pub(crate) fn workers(id: &str, count: usize, gpus: i64) -> Vec<PodInfo> {
    (0..count).map(|index| pod(&format!("{id}-worker-{index}"), id, gpus)).collect()
}

/// Node by pod of everything the decisions place.
pub(crate) fn placed(decisions: &[Decision]) -> BTreeMap<String, String> {
    let plans = decisions.iter().filter_map(|decision| match decision {
        Decision::Place(plan) => Some(plan),
        _ => None,
    });
    plans
        .flat_map(|plan| &plan.members)
        .map(|member| (member.name.to_string(), member.node.to_string()))
        .collect()
}

/// The only pending decision.
pub(crate) fn pending(decisions: &[Decision]) -> &Pending {
    let mut found = decisions.iter().filter_map(|decision| match decision {
        Decision::Pending(pending) => Some(pending),
        _ => None,
    });
    let first = found.next().unwrap_or_else(|| panic!("nothing pending: {decisions:#?}"));
    assert_eq!(found.next(), None);
    first
}

/// The server confirms the binds of these decisions.
pub(crate) fn confirm(engine: &mut Engine, now: i64, decisions: &[Decision]) {
    for decision in decisions {
        let Decision::Place(plan) = decision else { continue };
        for member in &plan.members {
            let mut info = engine.pod(&member.pod).unwrap().clone();
            info.node = Some(member.node.clone());
            info.devices = member.devices.clone();
            engine.apply(now, Event::PodApplied(Box::new(info)));
        }
    }
}

/// The server refuses a pod's bind.
pub(crate) fn refusal(pod: &str) -> Event {
    Event::BindRefused { pod: PodUid::new(format!("uid-{pod}")), problem: "no".into() }
}
