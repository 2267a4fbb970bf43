use std::collections::BTreeMap;

use model::node::{NodeSelector, Toleration};
use model::planted::Planted;
use model::resources::{ResourceList, ResourceName};

use crate::ids::{NodeIndex, ResourceIndex, ShapeId};
use crate::nodes::Nodes;
use crate::reason::NodeReason;

/// A port of the node that a container claims (`spec.containers[].ports[].hostPort`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// The address; empty and `0.0.0.0` mean every address.
    pub ip: String,
    /// The port.
    pub port: u16,
}

impl HostPort {
    /// Whether both cannot be on one node (kube-scheduler's NodePorts: same protocol and port, and an address in
    /// common).
    pub fn conflicts(&self, other: &Self) -> bool {
        let any = |ip: &str| ip.is_empty() || ip == "0.0.0.0";
        self.protocol == other.protocol
            && self.port == other.port
            && (self.ip == other.ip || any(&self.ip) || any(&other.ip))
    }
}

/// Where a pod may run, besides its requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodRules {
    /// `spec.nodeSelector`.
    pub node_selector: BTreeMap<String, String>,
    /// `spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution`.
    pub node_affinity: Option<NodeSelector>,
    /// `spec.tolerations`.
    pub tolerations: Vec<Toleration>,
    /// Host ports of its containers, sorted.
    pub host_ports: Vec<HostPort>,
}

/// Pods that no filter and no score can tell apart.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) rules: PodRules,
    /// What it asks, without zeros, `pods` included.
    pub(crate) demands: Vec<(ResourceIndex, i64)>,
    /// It asks for a resource outside Kubernetes' own: nodes that have such are not wasted on it.
    pub(crate) accelerated: bool,
    pub(crate) key: String,
    users: usize,
    verdicts: Vec<Verdict>,
}

/// What the filters that look only at the node object said, and for which version of it.
#[derive(Clone, Debug, Default)]
struct Verdict {
    version: u64,
    reason: Option<NodeReason>,
    /// Taints with `PreferNoSchedule` that the shape does not tolerate.
    disliked: usize,
}

/// All shapes in use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shapes {
    by_key: BTreeMap<String, ShapeId>,
    rows: Vec<Shape>,
    unused: Vec<ShapeId>,
}

impl Shapes {
    /// The shape of these requests and rules, with one user more.
    pub(crate) fn intern(&mut self, nodes: &mut Nodes, requests: &ResourceList, rules: &PodRules) -> ShapeId {
        let key = format!("{requests:?}{rules:?}");
        if let Some(&id) = self.by_key.get(&key) {
            self.rows[id.0].users += 1;
            return id;
        }
        let demands = nodes.demands(requests);
        let accelerated = requests.iter().any(|(name, amount)| *amount > 0 && is_extended(name));
        let shape = Shape {
            rules: rules.clone(),
            demands,
            accelerated,
            key: key.clone(),
            users: 1,
            verdicts: Vec::new(),
        };
        let id = match self.unused.pop() {
            Some(id) => {
                self.rows[id.0] = shape;
                id
            }
            None => {
                self.rows.push(shape);
                ShapeId(self.rows.len() - 1)
            }
        };
        self.by_key.insert(key, id);
        id
    }

    /// One user less.
    pub(crate) fn release(&mut self, id: ShapeId) {
        let shape = &mut self.rows[id.0];
        shape.users -= 1;
        if shape.users == 0 {
            self.by_key.remove(&shape.key);
            shape.verdicts = Vec::new();
            self.unused.push(id);
        }
    }

    pub(crate) fn get(&self, id: ShapeId) -> &Shape {
        &self.rows[id.0]
    }

    /// What the filters that look only at the node object say, computed once per shape and version of the node.
    pub(crate) fn verdict(
        &mut self,
        nodes: &Nodes,
        id: ShapeId,
        node: NodeIndex,
        planted: Planted,
    ) -> Option<&NodeReason> {
        let version = nodes.version(node);
        let shape = &mut self.rows[id.0];
        if shape.verdicts.len() <= node.0 {
            shape.verdicts.resize(node.0 + 1, Verdict::default());
        }
        if shape.verdicts[node.0].version != version {
            let info = nodes.info(node);
            let reason = crate::filters::static_reason(info, &shape.rules, planted);
            let disliked = crate::filters::disliked(info, &shape.rules);
            shape.verdicts[node.0] = Verdict { version, reason, disliked };
        }
        shape.verdicts[node.0].reason.as_ref()
    }

    /// How many taints of the node would rather not have the shape, as of its last [`Shapes::verdict`].
    pub(crate) fn disliked(&self, node: NodeIndex, id: ShapeId) -> usize {
        self.rows[id.0].verdicts.get(node.0).map_or(0, |verdict| verdict.disliked)
    }
}

/// Whether a resource is an extended one: it has a prefix that is not Kubernetes' own (`nvidia.com/gpu`).
pub(crate) fn is_extended(name: &ResourceName) -> bool {
    name.as_str().split_once('/').is_some_and(|(domain, _)| !domain.ends_with("kubernetes.io"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_conflict_on_a_common_address_only() {
        let port =
            |protocol: &str, ip: &str, port| HostPort { protocol: protocol.into(), ip: ip.into(), port };
        for (a, b, expected) in [
            (port("TCP", "", 80), port("TCP", "10.0.0.1", 80), true),
            (port("TCP", "0.0.0.0", 80), port("TCP", "", 80), true),
            (port("TCP", "10.0.0.1", 80), port("TCP", "10.0.0.2", 80), false),
            (port("TCP", "", 80), port("UDP", "", 80), false),
            (port("TCP", "", 80), port("TCP", "", 81), false),
        ] {
            assert_eq!(a.conflicts(&b), expected, "{a:?} {b:?}");
            assert_eq!(b.conflicts(&a), expected, "{b:?} {a:?}");
        }
    }
}
