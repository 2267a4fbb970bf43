//! Queues whose flavor has nodes, and workloads that get places on them.

use model::selector::Labels;
use quota_engine::topology::{Assignment, DomainPods, HOSTNAME, Node, Spread};

use super::*;

/// GPUs of a node.
pub const GPUS: i64 = 4;
pub const NIC: &str = "example.com/nic";

pub fn node(name: &str) -> Event {
    Event::Node(Node {
        name: name.into(),
        labels: [(HOSTNAME.to_owned(), name.to_owned())].into(),
        taints: Vec::new(),
        allocatable: [(ResourceName::from(GPU), GPUS), (ResourceName::from(ResourceName::PODS), 9)].into(),
        ready: true,
    })
}

/// With these labels besides.
pub fn labelled(name: &str, labels: &[(&str, &str)]) -> Event {
    let Event::Node(mut node) = node(name) else { panic!() };
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    node.labels.extend(labels);
    Event::Node(node)
}

/// These nodes, and queues of this much quota each, all in one cohort, in which nobody displaces anybody.
pub fn world(nodes: &[&str], queues: &[(&str, i64)]) -> World {
    world_with(Settings::default(), nodes, queues)
}

pub fn world_with(settings: Settings, nodes: &[&str], queues: &[(&str, i64)]) -> World {
    let hosts = Flavor { topology: Some("hosts".into()), node_labels: Labels::new(), ..flavor("f") };
    let topology = Event::Topology("hosts".into(), vec![HOSTNAME.to_owned()]);
    let mut events = vec![Event::Flavor(hosts), topology];
    events.extend(nodes.iter().map(|name| node(name)));
    for (name, nominal) in queues {
        let queue = cluster_queue(name, Some("pool"), gpus(&[("f", quota(*nominal, None, None))]));
        events.extend([Event::ClusterQueue(queue), Event::LocalQueue(local_queue(name))]);
    }
    World::with(settings, events)
}

/// So many pods of so many GPUs each.
pub fn pods(name: &str, count: i64, each: i64, spread: Spread) -> PodSet {
    PodSet {
        name: name.into(),
        count,
        requests: [(ResourceName::from(GPU), each)].into(),
        pod_requests: Arc::new([(ResourceName::from(GPU), each)].into()),
        topology: Some(TopologyWish { spread, layers: Vec::new() }),
        ..PodSet::default()
    }
}

pub fn job(uid: &str, queue: &str, pod_sets: impl IntoIterator<Item = PodSet>) -> Workload {
    Workload { pod_sets: pod_sets.into_iter().collect(), ..workload(uid, queue, 1, 0) }
}

pub fn on_one_host() -> Spread {
    Spread::Required(HOSTNAME.into())
}

pub fn at(places: &[(&str, i64)]) -> Arc<Assignment> {
    let domain = |(host, pods): &(&str, i64)| DomainPods { values: vec![(*host).into()], pods: *pods };
    Arc::new(Assignment { levels: vec![HOSTNAME.into()], domains: places.iter().map(domain).collect() })
}

/// Its quota of one pod set, with these places or, without, none yet.
pub fn holds(one: &Workload, queue: &str, places: Option<Arc<Assignment>>) -> Standing {
    holds_all(queue, vec![granted(&one.pod_sets[0], places)])
}

/// Its quota of all pod sets.
pub fn holds_all(queue: &str, pod_sets: Vec<PodSetAssignment>) -> Standing {
    let admitted = pod_sets.iter().all(|one| one.topology.is_some());
    let admission = Arc::new(Admission { cluster_queue: queue.into(), pod_sets });
    Standing::Reserved { admission, admitted, evicted: false, since_ms: 0 }
}

pub fn granted(pod_set: &PodSet, places: Option<Arc<Assignment>>) -> PodSetAssignment {
    PodSetAssignment {
        name: pod_set.name.clone(),
        flavors: [(ResourceName::from(GPU), "f".into())].into(),
        usage: [(ResourceName::from(GPU), pod_set.requests[&ResourceName::from(GPU)] * pod_set.count)].into(),
        count: pod_set.count,
        delayed: places.is_none().then_some(DelayedTopology::Pending),
        topology: places,
    }
}

pub fn hosts_of(world: &World, uid: &str) -> Vec<String> {
    let Standing::Reserved { admission, .. } = &world.workloads[&Uid::from(uid)].standing else {
        return Vec::new();
    };
    let places = admission.pod_sets.iter().filter_map(|one| one.topology.as_ref());
    places.flat_map(|places| &places.domains).map(|domain| domain.values[0].to_string()).collect()
}
