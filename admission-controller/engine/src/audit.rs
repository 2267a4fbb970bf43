//! The books counted anew, for tests: whether what is kept incrementally is what it should be.

use std::collections::BTreeMap;

use crate::engine::Engine;
use crate::record::{HoldState, Phase};
use crate::tree::{Ledger, NodeId, Usage};

impl Engine {
    /// Compares the running sums with a count from scratch, and the queues with the workloads in them.
    ///
    /// For tests and the simulation: its cost is proportional to everything the engine knows.
    ///
    /// # Errors
    /// The first difference, in words.
    pub fn audit(&self) -> Result<(), String> {
        self.audit_places()?;
        self.audit_ledger(Ledger::Held)?;
        self.audit_ledger(Ledger::Planned)?;
        self.audit_accounts()?;
        let mut recounted = self.tree.clone();
        recounted.recount();
        if self.tree.is_dirty() {
            return Ok(());
        }
        for id in self.tree.ids() {
            for ledger in [Ledger::Held, Ledger::Planned] {
                let (kept, counted) = (self.tree.usage_of(id, ledger), recounted.usage_of(id, ledger));
                if kept != counted {
                    let path = self.tree.path_text(id);
                    return Err(format!("{path}, {ledger:?}: kept {kept:?}, counted {counted:?}"));
                }
            }
        }
        self.audit_queues()
    }

    fn audit_ledger(&self, ledger: Ledger) -> Result<(), String> {
        let mut expected: BTreeMap<NodeId, BTreeMap<_, i128>> = BTreeMap::new();
        let mut charge = |node: NodeId, usage: &Usage| {
            for (pair, amount) in usage.iter().filter(|(_, amount)| **amount != 0) {
                *expected.entry(node).or_default().entry(*pair).or_default() += i128::from(*amount);
            }
        };
        for (_, record) in self.workloads.in_order() {
            match &record.phase {
                Phase::Holding(holding) => {
                    let leaving = matches!(holding.state, HoldState::Leaving { .. });
                    if ledger == Ledger::Held || !leaving {
                        charge(holding.queue, &holding.usage);
                    }
                }
                Phase::Claiming(claim) if ledger == Ledger::Planned => {
                    charge(claim.queue, &claim.usage);
                }
                _ => {}
            }
        }
        for queue in self.queues.in_order() {
            let kept = self.tree.usage_of(queue.node, ledger);
            let counted = expected.remove(&queue.node).unwrap_or_default();
            if kept != counted {
                let path = self.tree.path_text(queue.node);
                return Err(format!("{path}, {ledger:?}: kept {kept:?}, counted {counted:?} from workloads"));
            }
        }
        Ok(())
    }

    fn audit_queues(&self) -> Result<(), String> {
        for (who, record) in self.workloads.in_order() {
            let order = self.order_of(who, record);
            let (name, listed) = match &record.phase {
                Phase::Queued(name) => (name, self.queues[*name].active.contains(&order)),
                Phase::Parked(name) => (name, self.queues[*name].parked.contains(&record.shape, &order)),
                Phase::Claiming(claim) => (
                    &claim.queue,
                    self.queues[claim.queue].claiming.contains(&order) && self.claims.contains(&order),
                ),
                Phase::Holding(holding) => {
                    (&holding.queue, self.queues[holding.queue].holding.contains(&who))
                }
                Phase::Aside(Some(name)) => (name, self.queues[*name].aside.contains(&who)),
                Phase::Aside(None) | Phase::Finished => continue,
            };
            if !listed {
                return Err(format!(
                    "{} is {:?} but not listed so in {}",
                    record.workload.uid, record.phase, self.queues[*name].name
                ));
            }
        }
        for queue in self.queues.iter() {
            let held = queue.holding.iter().filter_map(|who| self.holding(*who));
            let leaving = held.filter(|holding| holding.is_leaving()).count();
            if queue.leaving != leaving {
                return Err(format!("{}: kept {} leaving, counted {leaving}", queue.name, queue.leaving));
            }
        }
        let listed: usize = self.queues.iter().map(|queue| queue.pending() + queue.holding.len()).sum();
        let placed = self
            .workloads
            .in_order()
            .filter(|(_, record)| !matches!(record.phase, Phase::Aside(None) | Phase::Finished))
            .count();
        if listed == placed { Ok(()) } else { Err(format!("{listed} listed in queues, {placed} placed")) }
    }
}
