//! The api-parity suite against the real server: the judge of its cases.

use api_parity::{Case, Harness};

use crate::registry::{Outcome, Test, need};

/// One test per case.
pub(crate) fn all() -> Vec<Test> {
    api_parity::cases().into_iter().enumerate().map(test).collect()
}

fn test((index, case): (usize, Case)) -> Test {
    Test::new(format!("parity/{}/{}", case.topic, case.name), move |world| async move {
        let running = need!(world.running());
        if case.needs == api_parity::Needs::Controllers {
            need!(world.tools.get("kube-controller-manager"));
        }
        let harness = Harness::new(running.plane.client.clone(), &format!("p{index}")).await?;
        case.run(harness.with_webhooks(running.webhooks.clone())).await?;
        Ok(Outcome::Passed)
    })
}
