use proptest::prelude::*;
use proto::deviceplugin::{
    Device as Listed, DevicePluginOptions, HEALTHY, NumaNode, TopologyInfo, UNHEALTHY,
};

use super::*;

const PREFERS: DevicePluginOptions =
    DevicePluginOptions { pre_start_required: false, get_preferred_allocation_available: true };

fn gpu() -> ResourceName {
    "nvidia.com/gpu".into()
}

fn pod(name: &str) -> PodUid {
    PodUid(name.into())
}

fn listed(count: usize, ill: &[usize]) -> Vec<Listed> {
    (0..count)
        .map(|index| Listed {
            id: format!("gpu-{index}"),
            health: if ill.contains(&index) { UNHEALTHY } else { HEALTHY }.into(),
            topology: Some(TopologyInfo { nodes: vec![NumaNode { id: i64::try_from(index / 4).unwrap() }] }),
        })
        .collect()
}

fn with(count: usize) -> (DeviceManager, Registration) {
    let mut manager = DeviceManager::default();
    let registration = manager.register(&gpu(), PREFERS);
    assert!(manager.list(&gpu(), registration, &listed(count, &[])));
    (manager, registration)
}

fn seen(manager: &mut DeviceManager, now: Millis) -> (usize, usize) {
    let amounts = manager.amounts(now)["nvidia.com/gpu"];
    (amounts.capacity, amounts.allocatable)
}

fn ids(of: &[&str]) -> BTreeSet<String> {
    of.iter().map(|id| (*id).to_owned()).collect()
}

/// Plans, takes the plugin's preference and keeps.
fn give(
    manager: &mut DeviceManager,
    to: &str,
    container: &str,
    wanted: usize,
    preferred: &[&str],
    finished: &[&str],
) -> Result<BTreeSet<String>, DeviceError> {
    let Some(plan) = manager.plan(&pod(to), container, &gpu(), wanted, finished)? else {
        return Ok(BTreeSet::new());
    };
    let preferred: Vec<String> = preferred.iter().map(|id| (*id).to_owned()).collect();
    let chosen = manager.choose(&plan, &preferred);
    manager.keep(&pod(to), container, &gpu(), Given { ids: chosen.clone(), ..Given::default() });
    Ok(chosen)
}

#[test]
fn health_moves_allocatable_and_not_capacity() {
    let (mut manager, registration) = with(4);
    assert_eq!(seen(&mut manager, 0), (4, 4));
    assert!(manager.list(&gpu(), registration, &listed(4, &[1])));
    assert_eq!(seen(&mut manager, 0), (4, 3));
    assert!(!manager.list(&gpu(), registration, &listed(4, &[2])), "another device, the same numbers");
    assert!(manager.list(&gpu(), registration, &listed(3, &[])));
    assert_eq!(seen(&mut manager, 0), (3, 3));
}

#[test]
fn an_ended_stream_keeps_capacity_for_five_minutes() {
    let (mut manager, registration) = with(4);
    assert!(manager.ended(&gpu(), registration, 1_000));
    assert_eq!(seen(&mut manager, 1_000), (4, 0));
    assert_eq!(manager.next_expiry(), Some(301_000));
    assert_eq!(seen(&mut manager, 300_999), (4, 0));
    assert_eq!(seen(&mut manager, 301_000), (0, 0), "the resource stays, with nothing");
    assert_eq!(manager.next_expiry(), None);
}

#[test]
fn the_newest_registration_wins() {
    let (mut manager, old) = with(4);
    let new = manager.register(&gpu(), PREFERS);
    assert_eq!(seen(&mut manager, 0), (4, 4), "until the first list the old one's devices stand");
    assert!(!manager.list(&gpu(), old, &listed(8, &[])), "the old plugin is not listened to");
    assert!(!manager.ended(&gpu(), old, 0), "nor missed");
    assert!(manager.list(&gpu(), new, &listed(2, &[])));
    assert_eq!(seen(&mut manager, 0), (2, 2));
}

#[test]
fn a_preference_is_followed_as_far_as_it_may_be() {
    let (mut manager, _) = with(4);
    assert_eq!(give(&mut manager, "a", "c", 2, &["gpu-3", "gpu-1"], &[]).unwrap(), ids(&["gpu-1", "gpu-3"]));
    let chosen = give(&mut manager, "b", "c", 2, &["gpu-3", "gpu-9", "gpu-2"], &[]).unwrap();
    assert_eq!(chosen, ids(&["gpu-0", "gpu-2"]), "held and unknown ids are passed over, the rest is by id");
    let error = give(&mut manager, "c", "c", 1, &[], &[]).unwrap_err();
    assert_eq!(error, DeviceError::TooFew { resource: gpu(), wanted: 1, free: 0 });
    manager.release(&pod("a"));
    assert_eq!(give(&mut manager, "c", "c", 1, &[], &[]).unwrap(), ids(&["gpu-1"]));
}

#[test]
fn the_offer_holds_all_free_and_healthy_ids() {
    let (mut manager, registration) = with(4);
    give(&mut manager, "a", "c", 1, &["gpu-0"], &[]).unwrap();
    manager.list(&gpu(), registration, &listed(4, &[2]));
    let plan = manager.plan(&pod("b"), "c", &gpu(), 1, &[]).unwrap().unwrap();
    assert_eq!(
        plan.prefer.unwrap(),
        Offer { available: vec!["gpu-1".into(), "gpu-3".into()], must_include: vec![], size: 1 }
    );
}

#[test]
fn devices_of_a_finished_init_container_come_first() {
    let (mut manager, _) = with(4);
    assert_eq!(
        give(&mut manager, "a", "init", 2, &["gpu-2", "gpu-3"], &[]).unwrap(),
        ids(&["gpu-2", "gpu-3"])
    );
    assert_eq!(give(&mut manager, "a", "main", 1, &["gpu-0"], &["init"]).unwrap(), ids(&["gpu-2"]));
    let second = give(&mut manager, "a", "other", 2, &["gpu-0"], &["init"]).unwrap();
    assert_eq!(second, ids(&["gpu-0", "gpu-3"]), "what runs beside it is not taken from it");
    assert!(give(&mut manager, "b", "main", 2, &[], &[]).is_err(), "three are held in all");
}

#[test]
fn a_restart_remembers_what_is_held_and_forgets_what_exists() {
    let (mut manager, old) = with(2);
    give(&mut manager, "a", "c", 1, &["gpu-1"], &[]).unwrap();
    manager.restarted(0);
    assert_eq!(seen(&mut manager, 0), (0, 0));
    assert!(!manager.list(&gpu(), old, &listed(2, &[])), "a stream from before the restart says nothing");
    assert_eq!(give(&mut manager, "b", "c", 1, &[], &[]), Err(DeviceError::NoneHealthy(gpu())));
    let new = manager.register(&gpu(), PREFERS);
    manager.list(&gpu(), new, &listed(2, &[]));
    assert_eq!(give(&mut manager, "b", "c", 1, &["gpu-1"], &[]).unwrap(), ids(&["gpu-0"]));
    assert_eq!(manager.plan(&pod("a"), "c", &gpu(), 1, &[]), Ok(None), "it still holds its own");
}

#[test]
fn what_fell_ill_cannot_be_started_again() {
    let (mut manager, registration) = with(2);
    give(&mut manager, "a", "c", 1, &["gpu-1"], &[]).unwrap();
    manager.list(&gpu(), registration, &listed(2, &[1]));
    assert_eq!(manager.plan(&pod("a"), "c", &gpu(), 1, &[]), Err(DeviceError::HeldIsIll(gpu())));
}

#[test]
fn a_resource_without_a_plugin_is_others_business() {
    let manager = DeviceManager::default();
    assert_eq!(manager.plan(&pod("a"), "c", &"example.com/tape".into(), 3, &[]), Ok(None));
}

#[test]
#[should_panic(expected = "is held by pod a")]
fn a_device_given_twice_is_the_end() {
    let (mut manager, _) = with(1);
    let given = Given { ids: ids(&["gpu-0"]), ..Given::default() };
    manager.keep(&pod("a"), "c", &gpu(), given.clone());
    manager.keep(&pod("b"), "c", &gpu(), given);
}

#[derive(Clone, Debug)]
enum Step {
    Register,
    List { count: usize, ill: usize },
    End,
    Restart,
    Give { pod: u8, wanted: usize },
    Release { pod: u8 },
    Wait { seconds: i64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Register),
        (0usize..6, 0usize..6).prop_map(|(count, ill)| Step::List { count, ill }),
        Just(Step::End),
        Just(Step::Restart),
        (0u8..5, 1usize..4).prop_map(|(pod, wanted)| Step::Give { pod, wanted }),
        (0u8..5).prop_map(|pod| Step::Release { pod }),
        (1i64..400).prop_map(|seconds| Step::Wait { seconds }),
    ]
}

proptest! {
    /// Whatever happens to plugins and kubelet: no device is given twice, no more healthy than all, and what is given was
    /// healthy when it was.
    #[test]
    fn books_stay_right(steps in proptest::collection::vec(step(), 1..60)) {
        let mut manager = DeviceManager::default();
        let (mut registration, mut now, mut healthy) = (None, 0, BTreeSet::new());
        for step in steps {
            match step {
                Step::Register => registration = Some(manager.register(&gpu(), PREFERS)),
                Step::List { count, ill } => if let Some(registration) = registration {
                    manager.list(&gpu(), registration, &listed(count, &[ill]));
                },
                Step::End => if let Some(registration) = registration {
                    manager.ended(&gpu(), registration, now);
                },
                Step::Restart => { manager.restarted(now); registration = None; }
                Step::Give { pod, wanted } => {
                    let name = pod.to_string();
                    let given = give(&mut manager, &name, "c", wanted, &[], &[]);
                    if let Ok(given) = given {
                        prop_assert!(given.is_empty() || given.len() == wanted);
                        prop_assert!(given.is_subset(&healthy), "{given:?} of {healthy:?}");
                    }
                }
                Step::Release { pod } => manager.release(&PodUid(pod.to_string().into())),
                Step::Wait { seconds } => now += seconds * 1000,
            }
            healthy = manager.allocatable().into_iter().map(|(_, id, _)| id).collect();
            for amounts in manager.amounts(now).values() {
                prop_assert!(amounts.allocatable <= amounts.capacity);
            }
            let mut held = BTreeSet::new();
            for holder in manager.holders.values() {
                for id in holder.containers.values().flat_map(|given| given.values()).flat_map(|given| &given.ids) {
                    prop_assert!(held.insert(id.clone()), "{id} is held twice");
                }
            }
        }
    }
}
