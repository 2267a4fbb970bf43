//! Who waits in a ClusterQueue, in order: what the visibility API shows.

use std::sync::Arc;

use crate::engine::Engine;
use crate::input::StopPolicy;
use crate::line::Order;
use crate::names::{ClusterQueueName, LocalQueueKey};
use crate::uid::Uid;

/// One that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its uid.
    pub uid: Uid,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its priority.
    pub priority: i32,
    /// The LocalQueue it waits in.
    pub local_queue: Arc<str>,
    /// How many of the same LocalQueue stand before it.
    pub position_in_local_queue: usize,
}

impl Engine {
    /// Everyone who waits in this ClusterQueue, in the order of their turns; also those who cannot be admitted
    /// as things are. `None` where no such object exists.
    pub fn line_of(&self, name: &ClusterQueueName) -> Option<Vec<Waiting>> {
        let queue = self.known_queue(name).filter(|queue| queue.spec.is_some())?;
        let aside = queue.aside.iter().filter_map(|who| Some(self.order_of(*who, self.workloads.get(*who)?)));
        let aside: Vec<Order> = aside.collect();
        let looked_at = queue.claiming.iter().chain(queue.active.iter()).chain(queue.parked.orders());
        let mut in_order: Vec<&Order> = looked_at.chain(&aside).collect();
        in_order.sort_by_cached_key(|order| queue.standing(order));
        let mut before = std::collections::BTreeMap::<LocalQueueKey, usize>::new();
        let waiting = in_order.into_iter().filter_map(|order| {
            let workload = &self.workloads.get(order.who)?.workload;
            let local_queue = workload.queue.clone()?;
            let key = LocalQueueKey { namespace: workload.namespace.clone(), name: local_queue.clone() };
            let before = before.entry(key).or_default();
            let position_in_local_queue = *before;
            *before += 1;
            Some(Waiting {
                uid: workload.uid.clone(),
                namespace: workload.namespace.clone(),
                name: workload.name.clone(),
                priority: workload.base_priority,
                local_queue,
                position_in_local_queue,
            })
        });
        Some(waiting.collect())
    }

    /// The ClusterQueue that a LocalQueue leads to; `None` where no such LocalQueue exists, or it is stopped: nobody waits in it.
    pub fn cluster_queue_of_local_queue(&self, key: &LocalQueueKey) -> Option<&ClusterQueueName> {
        let running = self.local_queues.object(key).filter(|queue| queue.stop == StopPolicy::None);
        running.map(|queue| &queue.cluster_queue)
    }
}
