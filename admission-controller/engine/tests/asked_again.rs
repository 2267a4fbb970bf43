//! Whoever asks for the same places again is answered as an index would answer that was never asked before.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use model::node::{Taint, TaintEffect};
use quota_engine::topology::*;
use support::hosts::{self, gpus};

const STORIES: u64 = 200;
const STEPS: usize = 60;
const LEVELS: [&str; 2] = ["rack", HOSTNAME];

fn request(rng: &mut fastrand::Rng) -> PodSetRequest {
    let spread = match rng.usize(0..3) {
        0 => Spread::Required("rack".into()),
        1 => Spread::Preferred(HOSTNAME.into()),
        _ => Spread::Unconstrained,
    };
    let request = hosts::request(rng.i64(1..=6), rng.i64(1..=2), spread);
    PodSetRequest { group: rng.bool().then(|| "group".into()), ..request }
}

fn node(name: &Arc<str>, rng: &mut fastrand::Rng) -> Node {
    let taint = Taint { key: "broken".into(), value: String::new(), effect: TaintEffect::NoSchedule };
    let rack = format!("r{}", rng.usize(0..2));
    Node {
        name: Arc::clone(name),
        labels: [("rack".into(), rack), (HOSTNAME.into(), name.to_string())].into(),
        taints: if rng.usize(0..4) == 0 { vec![taint] } else { Vec::new() },
        allocatable: [("gpu".into(), rng.i64(0..=4)), ("pods".into(), 10)].into(),
        ready: rng.usize(0..6) > 0,
    }
}

fn new() -> TopologyIndex {
    TopologyIndex::new(LEVELS.map(Arc::from).into(), BTreeMap::new(), Vec::new())
}

#[test]
fn what_is_kept_of_an_answer_is_true() {
    for story in 0..STORIES {
        let mut rng = fastrand::Rng::with_seed(story);
        let names: Vec<Arc<str>> = (0..5).map(|number| format!("n{number}").into()).collect();
        let asked: Vec<Vec<PodSetRequest>> =
            (0..4).map(|_| (0..rng.usize(1..=2)).map(|_| request(&mut rng)).collect()).collect();
        let mut nodes: BTreeMap<Arc<str>, Node> = BTreeMap::new();
        let mut others: Vec<Arc<str>> = Vec::new();
        let mut given: Vec<(Assignment, model::ResourceList)> = Vec::new();
        let mut index = new();
        for step in 0..STEPS {
            let name = &names[rng.usize(0..names.len())];
            match rng.usize(0..10) {
                0 | 1 => {
                    let node = node(name, &mut rng);
                    nodes.insert(Arc::clone(name), node.clone());
                    index.upsert_node(node);
                }
                2 => {
                    // Of another size, and otherwise as it was.
                    if let Some(node) = nodes.get_mut(name) {
                        node.allocatable.insert("gpu".into(), rng.i64(0..=4));
                        index.upsert_node(node.clone());
                    }
                }
                3 => {
                    nodes.remove(name);
                    index.remove_node(name);
                }
                4 => {
                    others.push(Arc::clone(name));
                    index.charge_node(name, &gpus(1));
                }
                5 => {
                    if let Some(name) = others.pop() {
                        index.release_node(&name, &gpus(1));
                    }
                }
                6 => {
                    let sets = &asked[rng.usize(0..asked.len())];
                    if let Ok(places) = index.place(sets, Rules::default(), View::Now).into_assignments() {
                        for (places, set) in places.into_iter().zip(sets) {
                            index.charge(&places, &set.per_pod);
                            given.push((places, set.per_pod.clone()));
                        }
                    }
                }
                7 => {
                    if let Some((places, per_pod)) = given.pop() {
                        index.release(&places, &per_pod);
                    }
                }
                _ => {}
            }
            let mut fresh = new();
            nodes.values().for_each(|node| _ = fresh.upsert_node(node.clone()));
            others.iter().for_each(|name| fresh.charge_node(name, &gpus(1)));
            given.iter().for_each(|(places, per_pod)| fresh.charge(places, per_pod));
            let sets = &asked[rng.usize(0..asked.len())];
            let rules = Rules { balanced: rng.bool(), ..Rules::default() };
            for view in [View::Empty, View::Now, View::Empty] {
                let found = index.place(sets, rules, view);
                assert_eq!(found, fresh.place(sets, rules, view), "story {story}, step {step}, {view:?}");
            }
        }
    }
}
