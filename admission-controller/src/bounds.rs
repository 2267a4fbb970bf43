//! Requests that the API server will refuse when the pods are made: above their limits, or outside a LimitRange. Found before
//! quota is given, since a job that can never have pods would hold it for ever.

use std::collections::BTreeMap;
use std::fmt;

use model::ResourceName;
use model::pod::{ContainerResources, PodResources, Requirements};
use model::quantity::Written;
use model::resources::{self, ResourceList};

type Amounts = BTreeMap<ResourceName, Written>;

/// What a LimitRange, or several together, allow: no more than the lowest maximum, no less than the highest minimum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    most: ResourceList,
    least: ResourceList,
}

/// One value that is refused; for the API server it is "Invalid value".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The field.
    pub field: String,
    /// The resources that are asked for wrongly, in order.
    pub resources: Vec<Wrong>,
    /// What they break.
    pub rule: Rule,
}

/// A resource that is asked for wrongly, in base units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Which.
    pub resource: ResourceName,
    /// How much is asked for.
    pub asked: i64,
    /// How much may be, or must be.
    pub bound: i64,
}

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// More is requested than the limit allows.
    Limit,
    /// More than the LimitRange's maximum.
    Maximum,
    /// Less than the LimitRange's minimum.
    Minimum,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = match self.rule {
            Rule::Limit => "the limit",
            Rule::Maximum => "the maximum of the namespace's LimitRange",
            Rule::Minimum => "the minimum of the namespace's LimitRange",
        };
        let wrong = self.resources.iter().map(|one| {
            let (asked, most) = (one.resource.quantity(one.asked), one.resource.quantity(one.bound));
            format!("{}: the request is {asked}, {bound} {most}", one.resource.as_str())
        });
        write!(f, "{}: {}", self.field, wrong.collect::<Vec<_>>().join("; "))
    }
}

impl Bounds {
    /// Takes in what one more LimitRange says.
    pub fn tighten(&mut self, most: &Amounts, least: &Amounts) {
        for (resource, amount) in amounts(most) {
            let current = self.most.entry(resource).or_insert(amount);
            *current = (*current).min(amount);
        }
        resources::raise_to(&mut self.least, &amounts(least));
    }

    fn violations(&self, field: &str, lowest: &ResourceList, highest: &ResourceList) -> Vec<Violation> {
        [
            violation(field, Rule::Maximum, highest, &self.most),
            violation(field, Rule::Minimum, lowest, &self.least),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Containers that ask for more or less than they may; their limits count as well.
    pub fn of_containers(&self, pod: &PodResources, path: &str) -> Vec<Violation> {
        let violations = |(field, container): (String, &ContainerResources)| {
            let Requirements { requests, limits } = &container.resources;
            let (mut lowest, mut highest) = (amounts(requests), amounts(requests));
            resources::raise_to(&mut highest, &amounts(limits));
            for (resource, limit) in amounts(limits) {
                let current = lowest.entry(resource).or_insert(limit);
                *current = (*current).min(limit);
            }
            self.violations(&field, &lowest, &highest)
        };
        containers(pod, path).flat_map(violations).collect()
    }

    /// Pods that ask for more or less than they may, all in all.
    pub fn of_pod(&self, pod: &PodResources, path: &str) -> Vec<Violation> {
        let total = pod.tally().requests;
        self.violations(path, &total, &total)
    }
}

/// Requests above their limits. `path` is the pod spec's.
pub fn above_limits(pod: &PodResources, path: &str) -> Vec<Violation> {
    let containers = containers(pod, path).map(|(field, one)| (field, &one.resources));
    let pod_level = pod.resources.iter().map(|resources| (format!("{path}.resources"), resources));
    let violations = containers.chain(pod_level).filter_map(|(field, one)| {
        violation(&field, Rule::Limit, &amounts(&one.requests), &amounts(&one.limits))
    });
    violations.collect()
}

fn containers<'a>(
    pod: &'a PodResources,
    path: &'a str,
) -> impl Iterator<Item = (String, &'a ContainerResources)> {
    let list = |name: &'static str, list: &'a [ContainerResources]| {
        list.iter().enumerate().map(move |(index, one)| (format!("{path}.{name}[{index}]"), one))
    };
    list("initContainers", &pod.init_containers).chain(list("containers", &pod.containers))
}

/// The resources that are asked for against the rule, if any. What only one side names is not compared.
fn violation(field: &str, rule: Rule, asked: &ResourceList, bounds: &ResourceList) -> Option<Violation> {
    let breaks = |asked: i64, bound: i64| match rule {
        Rule::Limit | Rule::Maximum => asked > bound,
        Rule::Minimum => asked < bound,
    };
    let wrong = asked.iter().filter_map(|(resource, asked)| {
        let (asked, bound) = (*asked, *bounds.get(resource)?);
        breaks(asked, bound).then(|| Wrong { resource: resource.clone(), asked, bound })
    });
    let resources: Vec<Wrong> = wrong.collect();
    (!resources.is_empty()).then(|| Violation { field: field.to_owned(), resources, rule })
}

/// Numbers that are none are left out: they are told elsewhere.
fn amounts(written: &Amounts) -> ResourceList {
    let valid = written.iter().filter(|(_, amount)| amount.quantity().is_ok());
    valid.map(|(resource, amount)| (resource.clone(), resources::read(resource, amount).0)).collect()
}
