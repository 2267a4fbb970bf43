use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::faults::Fault;
use crate::world::{Event, World};

/// Called with every event, at the moment it is reported and on the thread that reports it.
pub type Listener = Arc<dyn Fn(&World, &Event) + Send + Sync>;

/// One world, shared. Clones are the same world.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

struct Shared {
    world: Mutex<World>,
    listeners: Mutex<Listeners>,
}

#[derive(Default)]
struct Listeners {
    next: u64,
    by_id: BTreeMap<u64, Listener>,
}

/// Keeps a listener; dropping it ends the calls.
pub struct Subscription {
    shared: Weak<Shared>,
    id: u64,
}

impl Handle {
    /// Shares a world.
    pub fn new(world: World) -> Self {
        Self(Arc::new(Shared { world: Mutex::new(world), listeners: Mutex::default() }))
    }

    /// Looks at the world. The closure must not call the handle again.
    pub fn read<T>(&self, look: impl FnOnce(&World) -> T) -> T {
        look(&lock(&self.0.world))
    }

    /// Changes the world, then tells the listeners what it reported meanwhile.
    pub fn change<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        let (answer, after, before) = {
            let mut world = lock(&self.0.world);
            let before = world.last_sequence();
            let answer = change(&mut world);
            (answer, (world.last_sequence() != before).then(|| world.clone()), before)
        };
        if let Some(world) = after {
            self.tell(&world, before);
        }
        answer
    }

    /// Lets a fault happen now.
    pub fn inject(&self, fault: Fault) {
        self.change(|world| world.inject(fault));
    }

    /// Advances the world's clock.
    pub fn advance_to(&self, now_ms: u64) {
        self.change(|world| world.advance_to(now_ms));
    }

    /// Calls `listener` with every event from now on.
    pub fn subscribe(&self, listener: Listener) -> Subscription {
        let mut listeners = lock(&self.0.listeners);
        let id = listeners.next;
        listeners.next += 1;
        listeners.by_id.insert(id, listener);
        Subscription { shared: Arc::downgrade(&self.0), id }
    }

    fn tell(&self, world: &World, mut seen: u64) {
        let listeners: Vec<Listener> = lock(&self.0.listeners).by_id.values().cloned().collect();
        while let Some(event) = world.event_after(seen, |_| true) {
            seen = event.sequence;
            for listener in &listeners {
                listener(world, &event);
            }
        }
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Handle").field(&self.read(|world| world.spec().product.clone())).finish()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            lock(&shared.listeners).by_id.remove(&self.id);
        }
    }
}

/// A panic elsewhere leaves a world that is still a world.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EventKind, WorldSpec};

    #[test]
    fn listeners_hear_events_until_they_are_dropped() {
        let handle = Handle::new(World::new(WorldSpec::profile("4xL40S").unwrap(), "n"));
        let heard = Arc::new(Mutex::new(Vec::new()));
        let sink = heard.clone();
        let subscription = handle.subscribe(Arc::new(move |_, event| sink.lock().unwrap().push(event.kind)));
        handle.inject(Fault::Xid { gpu: 0, code: 48 });
        handle.inject(Fault::Lost { gpu: 1 });
        drop(subscription);
        handle.inject(Fault::Xid { gpu: 0, code: 79 });
        assert_eq!(*heard.lock().unwrap(), [EventKind::Xid(48)]);
    }
}
