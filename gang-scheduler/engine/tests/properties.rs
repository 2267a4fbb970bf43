//! What must hold whatever happens.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::BTreeMap;

use common::*;
use placement_engine::*;
use proptest::prelude::*;

/// Whether pods asking (cpu, gpu) fit nodes having (cpu, gpu), by trying everything.
fn fits(nodes: &mut Vec<(i64, i64)>, pods: &[(i64, i64)]) -> bool {
    let Some((first, rest)) = pods.split_first() else { return true };
    (0..nodes.len()).any(|index| {
        if nodes[index].0 < first.0 || nodes[index].1 < first.1 {
            return false;
        }
        nodes[index].0 -= first.0;
        nodes[index].1 -= first.1;
        let fit = fits(nodes, rest);
        nodes[index].0 += first.0;
        nodes[index].1 += first.1;
        fit
    })
}

fn small_node(index: usize, (cpu, gpu): (i64, i64)) -> NodeInfo {
    NodeInfo {
        allocatable: amounts(&[("cpu", cpu), (GPU, gpu), ("pods", 10)]),
        ..node(&format!("n{index}"), 0)
    }
}

fn small_pod(gang: &str, index: usize, (cpu, gpu): (i64, i64)) -> PodInfo {
    PodInfo { requests: amounts(&[("cpu", cpu), (GPU, gpu)]), ..pod(&format!("{gang}-{index}"), gang, gpu) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// A gang is placed exactly when trying everything finds a place, also when its members differ.
    #[test]
    fn fits_agrees_with_exhaustive_search(
        nodes in prop::collection::vec((0..6i64, 0..5i64), 1..5),
        pods in prop::collection::vec((0..4i64, 0..4i64), 1..7),
    ) {
        let mut engine = engine(nodes.iter().enumerate().map(|(index, node)| small_node(index, *node)));
        let members = pods.iter().enumerate().map(|(index, pod)| small_pod("g", index, *pod));
        add_gang(&mut engine, "g", u32::try_from(pods.len()).unwrap(), members);
        let decisions = engine.decide(0);
        let placed = placed(&decisions).len();
        prop_assert_eq!(placed == pods.len(), fits(&mut nodes.clone(), &pods), "{:?}", decisions);
        prop_assert!(placed == pods.len() || placed == 0);
        engine.verify().unwrap();
    }

    /// For members that are alike, the number said to be placeable is the true one.
    #[test]
    fn placeable_is_counted_right(
        nodes in prop::collection::vec((0..8i64, 0..5i64), 1..5),
        each in (1..4i64, 1..3i64),
        count in 2..12usize,
    ) {
        let mut engine = engine(nodes.iter().enumerate().map(|(index, node)| small_node(index, *node)));
        add_gang(&mut engine, "g", u32::try_from(count).unwrap(), (0..count).map(|i| small_pod("g", i, each)));
        let decisions = engine.decide(0);
        let slots: i64 = nodes.iter().map(|node| (node.0 / each.0).min(node.1 / each.1)).sum();
        if slots < i64::try_from(count).unwrap() {
            let Why::NoFit(no_fit) = &pending(&decisions).why else { panic!("{decisions:?}") };
            prop_assert_eq!(i64::from(no_fit.placeable), slots);
            prop_assert_eq!(no_fit.histogram.values().sum::<u32>(), no_fit.nodes);
            prop_assert!(no_fit.exhaustive);
        } else {
            prop_assert_eq!(placed(&decisions).len(), count);
        }
    }
}

/// One step of a random history.
#[derive(Clone, Debug)]
enum Step {
    Decide,
    /// The server answers the oldest assumed bind: confirmed or refused.
    Answer(bool),
    NewGang {
        size: usize,
        min: usize,
        gpus: i64,
    },
    Node {
        index: usize,
        gpus: i64,
    },
    NodeGone(usize),
    /// A pod ends, is deleted, or is rejected by its kubelet.
    End(usize, u8),
    Foreign {
        node: usize,
        gpus: i64,
    },
    StoodDown,
    Later,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Decide),
        6 => prop::bool::weighted(0.8).prop_map(Step::Answer),
        3 => (1..5usize, 1..5usize, 0..4i64)
            .prop_map(|(size, min, gpus)| Step::NewGang { size, min: min.min(size), gpus }),
        2 => (0..4usize, 0..9i64).prop_map(|(index, gpus)| Step::Node { index, gpus }),
        1 => (0..4usize).prop_map(Step::NodeGone),
        3 => (0..30usize, 0..3u8).prop_map(|(index, how)| Step::End(index, how)),
        1 => (0..4usize, 0..4i64).prop_map(|(node, gpus)| Step::Foreign { node, gpus }),
        1 => Just(Step::StoodDown),
        2 => Just(Step::Later),
    ]
}

/// A world that the engine is told of, and that checks what the engine decides.
struct World {
    engine: Engine,
    now: i64,
    serial: usize,
    gpus: BTreeMap<String, i64>,
    /// Pods by uid, with the node that the server has for them, and the one assumed.
    pods: BTreeMap<PodUid, (PodInfo, Option<String>)>,
    minimum: BTreeMap<GangId, u32>,
    log: Vec<String>,
}

impl World {
    fn new() -> Self {
        Self {
            engine: engine((0..3).map(|index| node(&format!("n{index}"), 4))),
            now: 0,
            serial: 0,
            gpus: (0..3).map(|index| (format!("n{index}"), 4)).collect(),
            pods: BTreeMap::new(),
            minimum: BTreeMap::new(),
            log: Vec::new(),
        }
    }

    fn used(&self, node: &str) -> i64 {
        self.pods
            .values()
            .filter(|(info, assumed)| {
                let on = info.node.as_deref().or(assumed.as_deref());
                info.phase == PodPhase::Active && on == Some(node)
            })
            .map(|(info, _)| info.requests.get(GPU).copied().unwrap_or(0))
            .sum()
    }

    fn tell(&mut self, uid: &PodUid) {
        let info = self.pods[uid].0.clone();
        self.engine.apply(self.now, Event::PodApplied(Box::new(info)));
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Decide => self.decide(),
            Step::Answer(confirmed) => self.answer(*confirmed),
            Step::NewGang { size, min, gpus } => {
                self.serial += 1;
                let id = format!("g{}", self.serial);
                self.minimum.insert(GangId::new(id.as_str()), u32::try_from(*min).unwrap());
                add_gang(&mut self.engine, &id, u32::try_from(*min).unwrap(), []);
                for index in 0..*size {
                    let info = pod(&format!("{id}-{index}"), &id, *gpus);
                    let uid = info.uid.clone();
                    self.pods.insert(uid.clone(), (info, None));
                    self.tell(&uid);
                }
            }
            Step::Node { index, gpus } => {
                let name = format!("n{index}");
                self.gpus.insert(name.clone(), *gpus);
                self.engine.apply(self.now, Event::NodeApplied(node(&name, *gpus)));
            }
            Step::NodeGone(index) => {
                let name = format!("n{index}");
                self.gpus.remove(&name);
                self.engine.apply(self.now, Event::NodeDeleted(name.into()));
            }
            Step::End(index, how) => self.end(*index, *how),
            Step::Foreign { node, gpus } => {
                self.serial += 1;
                let mut info = pod(&format!("foreign-{}", self.serial), "none", *gpus);
                info.gang = None;
                info.node = Some(format!("n{node}").into());
                let uid = info.uid.clone();
                self.pods.insert(uid.clone(), (info, None));
                self.tell(&uid);
            }
            Step::StoodDown => {
                self.engine.apply(self.now, Event::StoodDown);
                for (_, assumed) in self.pods.values_mut() {
                    *assumed = None;
                }
            }
            Step::Later => self.now += 20_000,
        }
        self.engine.verify().unwrap();
    }

    fn decide(&mut self) {
        for decision in self.engine.decide(self.now) {
            self.log.push(format!("{decision:?}"));
            match decision {
                Decision::Place(plan) => {
                    for member in &plan.members {
                        let (info, assumed) = self.pods.get_mut(&member.pod).unwrap();
                        assert!(info.node.is_none() && assumed.is_none(), "placed twice: {member:?}");
                        *assumed = Some(member.node.to_string());
                        let asked = info.requests[GPU];
                        let node = member.node.to_string();
                        assert!(asked == 0 || self.used(&node) <= self.gpus[&node], "over-committed {node}");
                    }
                    self.check_minimum(&plan.gang);
                }
                Decision::Undo(undo) => {
                    for (uid, ..) in undo.delete {
                        self.pods.remove(&uid);
                        self.engine.apply(self.now, Event::PodDeleted(uid));
                    }
                }
                Decision::Pending(pending) => {
                    assert!(!pending.pods.is_empty() || pending.why.to_string() != "")
                }
            }
        }
    }

    /// After a decision to place, the gang has its minimum, ended members counted.
    fn check_minimum(&self, id: &GangId) {
        let members = self.pods.values().filter(|(info, _)| info.gang.as_ref() == Some(id));
        let counted = members
            .filter(|(info, assumed)| match info.phase {
                PodPhase::Active => info.node.is_some() || assumed.is_some(),
                PodPhase::Succeeded | PodPhase::Failed => true,
                PodPhase::Rejected => false,
            })
            .count();
        assert!(
            counted >= usize::try_from(self.minimum[id]).unwrap(),
            "{id} was given less than its minimum"
        );
    }

    fn answer(&mut self, confirmed: bool) {
        let Some(uid) =
            self.pods.iter().find(|(_, (_, assumed))| assumed.is_some()).map(|(uid, _)| uid.clone())
        else {
            return;
        };
        let (info, assumed) = self.pods.get_mut(&uid).unwrap();
        let node = assumed.take();
        if confirmed {
            info.node = node.map(Into::into);
            self.tell(&uid);
        } else {
            self.engine.apply(self.now, Event::BindRefused { pod: uid, problem: "no".into() });
        }
    }

    fn end(&mut self, index: usize, how: u8) {
        let bound: Vec<PodUid> = self
            .pods
            .iter()
            .filter(|(_, (info, _))| info.node.is_some() && info.phase == PodPhase::Active)
            .map(|(uid, _)| uid.clone())
            .collect();
        let Some(uid) = bound.get(index % bound.len().max(1)).cloned() else { return };
        match how {
            0 => {
                self.pods.get_mut(&uid).unwrap().0.phase = PodPhase::Succeeded;
                self.tell(&uid);
            }
            1 => {
                self.pods.get_mut(&uid).unwrap().0.phase = PodPhase::Rejected;
                self.tell(&uid);
            }
            _ => {
                self.pods.remove(&uid);
                self.engine.apply(self.now, Event::PodDeleted(uid));
            }
        }
    }
}

fn run(steps: &[Step]) -> Vec<String> {
    let mut world = World::new();
    for step in steps {
        world.step(step);
    }
    world.log
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// No node is ever over-committed by us, no gang gets less than its minimum, the sums equal a recount, and the same
    /// history gives the same decisions.
    #[test]
    fn every_history_is_safe_and_repeatable(steps in prop::collection::vec(step(), 1..60)) {
        prop_assert_eq!(run(&steps), run(&steps));
    }
}
