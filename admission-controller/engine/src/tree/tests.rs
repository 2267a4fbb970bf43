use super::*;
use crate::input::{FlavorQuotas, ResourceGroup};

fn groups(nominal: i64, borrowing: Option<i64>, lending: Option<i64>) -> Vec<ResourceGroup> {
    let gpu = ResourceName::from("nvidia.com/gpu");
    let quota = Quota { nominal, borrowing_limit: borrowing, lending_limit: lending };
    vec![ResourceGroup {
        covered: vec![gpu.clone()],
        flavors: vec![FlavorQuotas { flavor: "a100".into(), resources: [(gpu, quota)].into() }],
    }]
}

struct Fixture {
    tree: Tree,
    pair: FlavorResource,
}

impl Fixture {
    fn new() -> Self {
        let mut tree = Tree::default();
        let pair = tree.pair(&"a100".into(), &"nvidia.com/gpu".into());
        Self { tree, pair }
    }

    fn queue(
        &mut self,
        name: &str,
        parent: &str,
        nominal: i64,
        borrowing: Option<i64>,
        lending: Option<i64>,
    ) -> NodeId {
        let parent = self.tree.node(NodeName::Cohort(parent.into()));
        let id = self.tree.node(NodeName::ClusterQueue(name.into()));
        self.tree.configure(id, Some(parent), &groups(nominal, borrowing, lending));
        id
    }

    fn free(&self, id: NodeId) -> i128 {
        self.tree.available(id, self.pair, Ledger::Held)
    }
}

#[test]
fn borrowing_and_lending_limits_hold() {
    let mut fixture = Fixture::new();
    let borrower = fixture.queue("borrower", "pool", 8, Some(4), None);
    let lender = fixture.queue("lender", "pool", 16, None, Some(6));
    fixture.tree.refresh();
    let pair = fixture.pair;
    assert_eq!(fixture.free(borrower), 12, "its own 8 and at most 4 of the lent 6");
    assert_eq!(fixture.free(lender), 24, "10 it keeps, 6 it lends, 8 that the other lends");
    assert_eq!(fixture.tree.maximum(borrower, pair), 12);
    fixture.tree.add(borrower, pair, Ledger::Held, 12);
    assert_eq!(fixture.free(borrower), 0);
    assert_eq!(fixture.free(lender), 12);
    assert_eq!(fixture.tree.borrow_height(lender, pair, Ledger::Held, 16), (0, true));
    assert_eq!(fixture.tree.borrow_height(lender, pair, Ledger::Held, 17), (1, false));
}

#[test]
fn a_cycle_disables_the_tree_that_hangs_on_it_and_no_other() {
    let mut fixture = Fixture::new();
    let inside = fixture.queue("inside", "a", 8, None, None);
    let outside = fixture.queue("outside", "c", 8, None, None);
    let (a, b) =
        (fixture.tree.node(NodeName::Cohort("a".into())), fixture.tree.node(NodeName::Cohort("b".into())));
    fixture.tree.configure(a, Some(b), &[]);
    fixture.tree.configure(b, Some(a), &[]);
    fixture.tree.refresh();
    assert!(fixture.tree.in_cycle(inside) && fixture.tree.in_cycle(a));
    assert!(!fixture.tree.in_cycle(outside));
    assert_eq!(fixture.tree.endless_way(&"a".into()), Some(vec!["a", "b", "a"]));
    assert_eq!(fixture.tree.endless_way(&"c".into()), None);
    fixture.tree.configure(b, None, &[]);
    fixture.tree.refresh();
    assert!(!fixture.tree.in_cycle(inside));
    assert_eq!(fixture.tree.path_text(inside), "/b/a/inside");
}

#[test]
fn a_what_if_leaves_no_trace() {
    let mut fixture = Fixture::new();
    let queue = fixture.queue("queue", "pool", 8, None, Some(2));
    fixture.tree.refresh();
    let pair = fixture.pair;
    fixture.tree.add(queue, pair, Ledger::Held, 5);
    let before: Vec<_> = fixture.tree.ids().map(|id| fixture.tree.usage_of(id, Ledger::Held)).collect();
    let outer = fixture.tree.mark();
    fixture.tree.add(queue, pair, Ledger::Held, 9);
    let inner = fixture.tree.mark();
    fixture.tree.add(queue, pair, Ledger::Held, -14);
    fixture.tree.rollback(inner);
    assert_eq!(fixture.tree.used(queue, pair, Ledger::Held), 14);
    fixture.tree.rollback(outer);
    let after: Vec<_> = fixture.tree.ids().map(|id| fixture.tree.usage_of(id, Ledger::Held)).collect();
    assert_eq!(before, after);
}

/// Other quotas in a what-if leave the sums as they would be had the object had them.
#[test]
fn sums_follow_a_quota() {
    let nodes = |tree: &Tree| -> Vec<(i128, [i128; 2])> {
        let cells = tree.nodes.iter().flat_map(|node| node.cells.values());
        cells.map(|cell| (cell.subtree, cell.used)).collect()
    };
    let limits = [None, Some(0), Some(3), Some(40)];
    let quotas = || [0, 5, 20].into_iter().flat_map(|nominal| limits.map(|lending| (nominal, lending)));
    for (((before, lent_before), (after, lent_after)), used) in quotas()
        .flat_map(|one| quotas().map(move |other| (one, other)))
        .flat_map(|two| [0, 4, 30].map(|used| (two, used)))
    {
        let tree = |nominal: i64, lending: Option<i64>| {
            let mut fixture = Fixture::new();
            let queue = fixture.queue("queue", "team", nominal, None, lending);
            fixture.queue("beside", "team", 2, None, Some(1));
            let [team, pool] = ["team", "pool"].map(|name| fixture.tree.node(NodeName::Cohort(name.into())));
            fixture.tree.configure(team, Some(pool), &groups(1, None, Some(6)));
            fixture.queue("far", "pool", 8, None, None);
            fixture.tree.refresh();
            fixture.tree.add(queue, fixture.pair, Ledger::Held, used);
            fixture.tree.add(queue, fixture.pair, Ledger::Planned, used / 2);
            (fixture, queue)
        };
        let (mut changed, queue) = tree(before, lent_before);
        let quota = Quota { nominal: after, borrowing_limit: None, lending_limit: lent_after };
        let own = changed.tree.quotas(queue, std::iter::once(changed.pair));
        changed.tree.set_quotas(queue, vec![(changed.pair, quota)]);
        assert_eq!(nodes(&changed.tree), nodes(&tree(after, lent_after).0.tree), "{own:?} {quota:?} {used}");
        changed.tree.set_quotas(queue, own);
        assert_eq!(nodes(&changed.tree), nodes(&tree(before, lent_before).0.tree), "{quota:?} {used}");
    }
}

#[test]
fn the_largest_numbers_do_not_overflow() {
    let mut fixture = Fixture::new();
    let one = fixture.queue("one", "pool", i64::MAX, None, None);
    fixture.queue("two", "pool", i64::MAX, Some(i64::MAX), Some(i64::MAX));
    fixture.tree.refresh();
    let pair = fixture.pair;
    fixture.tree.add(one, pair, Ledger::Held, i128::from(i64::MAX));
    assert_eq!(fixture.free(one), i128::from(i64::MAX));
}
