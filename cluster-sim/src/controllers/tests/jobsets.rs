//! JobSets as their users write them.

use super::*;

/// A set of groups: name, replicas, what it depends on, how long its pods run.
fn grouped(groups: &[(&str, u32, Value, &str)]) -> Value {
    let groups = groups.iter().map(|(name, replicas, depends_on, run_for)| {
        json!({
            "name": name,
            "replicas": replicas,
            "dependsOn": depends_on,
            "template": { "spec": { "template": template(&json!({ "sim.trireme.dev/run-for": run_for }), None) } },
        })
    });
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": { "name": "j", "namespace": "default" },
        "spec": { "replicatedJobs": groups.collect::<Vec<_>>() },
    })
}

impl Bench {
    /// The Jobs that there are and not suspended, by name.
    fn released(&self) -> Vec<String> {
        let jobs = self.store.list(&jobs(), None);
        let released = jobs.iter().filter(|job| job.value()["spec"]["suspend"] != true);
        released.map(|job| job.key().name.to_string()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_jobset_that_names_neither_policy_nor_mode_runs() {
    let bench = Bench::new().await;
    bench.create(&jobsets(), grouped(&[("w", 1, json!([]), "10s")])).await;
    pass(4).await;
    assert_eq!(bench.count("Running"), 1);
    assert_eq!(bench.pods()[0]["spec"]["restartPolicy"], "OnFailure");
    let job = bench.store.get(&jobs(), "default", "j-w-0").unwrap();
    assert_eq!(job.value()["spec"]["completionMode"], "Indexed");
    pass(30).await;
    assert!(bench.is(&jobsets(), "Completed"));
}

#[tokio::test(start_paused = true)]
async fn a_group_waits_for_what_it_depends_on() {
    for (status, before, after) in [("Ready", 3, 20), ("Complete", 20, 40)] {
        let bench = Bench::new().await;
        let on = json!([{ "name": "first", "status": status }]);
        bench.create(&jobsets(), grouped(&[("second", 1, on, "10s"), ("first", 2, json!([]), "30s")])).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(bench.released(), ["j-first-0", "j-first-1"], "{status}");
        if before > 3 {
            pass(before).await;
            assert_eq!(bench.released(), ["j-first-0", "j-first-1"], "{status}");
        }
        pass(after - before).await;
        assert_eq!(bench.released(), ["j-first-0", "j-first-1", "j-second-0"], "{status}");
        pass(60).await;
        assert!(bench.is(&jobsets(), "Completed"), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_groups_of_a_resumed_set_are_released_in_their_turn() {
    let bench = Bench::new().await;
    let on = json!([{ "name": "first", "status": "Complete" }]);
    let mut set = grouped(&[("first", 1, json!([]), "10s"), ("second", 1, on, "10s")]);
    set["spec"]["suspend"] = true.into();
    bench.create(&jobsets(), set).await;
    pass(3).await;
    assert_eq!((bench.store.list(&jobs(), None).len(), bench.released().len()), (2, 0));
    bench.change(&jobsets(), |set| set["spec"]["suspend"] = false.into()).await;
    pass(5).await;
    assert_eq!(bench.released(), ["j-first-0"]);
    pass(15).await;
    assert_eq!(bench.released(), ["j-first-0", "j-second-0"]);
}

#[tokio::test(start_paused = true)]
async fn a_group_that_depends_on_nobody_known_never_starts() {
    let bench = Bench::new().await;
    let on = json!([{ "name": "other", "status": "Ready" }]);
    bench.create(&jobsets(), grouped(&[("w", 1, on, "10s")])).await;
    pass(60).await;
    assert!(bench.released().is_empty());
}
