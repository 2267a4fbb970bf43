//! What remains of jobs that have ended: counts, and for how long they are kept.

use super::*;

#[tokio::test(start_paused = true)]
async fn pods_that_a_failed_job_ends_have_failed() {
    let deadline = json!({ "activeDeadlineSeconds": 30, "parallelism": 2, "completions": 2 });
    let mut restarting = job(json!({ "backoffLimit": 2 }), &fails());
    restarting["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure".into();
    for (job, reason, failed) in
        [(job(deadline, &json!({})), "DeadlineExceeded", 2), (restarting, "BackoffLimitExceeded", 1)]
    {
        let bench = Bench::new().await;
        bench.create(&jobs(), job).await;
        pass(120).await;
        let status = bench.status(&jobs());
        assert_eq!(conditions::find(&status, "Failed").unwrap()["reason"], reason);
        assert_eq!((&status["failed"], &status["active"]), (&json!(failed), &Value::Null), "{reason}");
        assert!(bench.pods().is_empty(), "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ends_well_after_the_deadline_has_failed() {
    let bench = Bench::new().await;
    let slow = json!({ "sim.trireme.dev/run-for": "35s", "sim.trireme.dev/stop-after": "20s" });
    bench.create(&jobs(), job(json!({ "activeDeadlineSeconds": 30 }), &slow)).await;
    pass(60).await;
    let status = bench.status(&jobs());
    assert!(bench.is(&jobs(), "Failed") && bench.pods().is_empty());
    assert_eq!((&status["failed"], &status["succeeded"]), (&json!(1), &Value::Null));
}

#[tokio::test(start_paused = true)]
async fn a_failed_pytorchjob_without_pods_has_no_active_replicas() {
    let bench = Bench::new().await;
    let mut one = pytorchjob(&[("Worker", 2)], &json!({}), "OnFailure", false);
    one["spec"]["runPolicy"]["activeDeadlineSeconds"] = 30.into();
    bench.create(&pytorchjobs(), one).await;
    pass(10).await;
    assert_eq!(bench.status(&pytorchjobs())["replicaStatuses"]["Worker"]["active"], 2);
    pass(60).await;
    assert!(bench.is(&pytorchjobs(), "Failed") && bench.pods().is_empty());
    assert_eq!(bench.status(&pytorchjobs())["replicaStatuses"]["Worker"]["active"], Value::Null);
    bench.assert_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn the_active_replicas_of_a_failed_pytorchjob_become_fewer() {
    let bench = Bench::new().await;
    let mut one = pytorchjob(&[("Master", 1), ("Worker", 1)], &fails(), "Never", false);
    one["spec"]["pytorchReplicaSpecs"]["Master"]["template"] =
        template(&json!({ "sim.trireme.dev/run-for": "20s" }), None);
    bench.create(&pytorchjobs(), one).await;
    pass(5).await;
    let replicas = |bench: &Bench, kind: &str| bench.status(&pytorchjobs())["replicaStatuses"][kind].clone();
    assert!(bench.is(&pytorchjobs(), "Failed"));
    assert_eq!(
        (&replicas(&bench, "Master")["active"], &replicas(&bench, "Worker")["failed"]),
        (&json!(1), &json!(1))
    );
    pass(30).await;
    assert_eq!(replicas(&bench, "Master")["active"], Value::Null, "its pod has ended since");
}

/// Each kind with a time to live of `seconds`, of which the pods run for ten seconds.
fn short_lived(seconds: u32) -> [(GroupResource, Value); 3] {
    let mut pytorch = pytorchjob(&[("Worker", 1)], &ten_seconds(), "OnFailure", false);
    pytorch["spec"]["runPolicy"]["ttlSecondsAfterFinished"] = seconds.into();
    let ttl = json!({ "ttlSecondsAfterFinished": seconds });
    [
        (jobs(), job(ttl.clone(), &ten_seconds())),
        (jobsets(), jobset(ttl, &ten_seconds())),
        (pytorchjobs(), pytorch),
    ]
}

#[tokio::test(start_paused = true)]
async fn what_has_ended_goes_after_its_time_to_live() {
    for (resource, object) in short_lived(100) {
        let bench = Bench::new().await;
        bench.create(&resource, object).await;
        pass(90).await;
        assert!(bench.store.get(&resource, "default", "j").is_some(), "{resource}: not yet");
        pass(60).await;
        assert!(bench.store.get(&resource, "default", "j").is_none(), "{resource}");
        assert!(bench.pods().is_empty() && bench.store.list(&jobs(), None).is_empty(), "{resource}");
        bench.assert_quiet().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_time_to_live_may_be_given_and_taken_after_the_end() {
    let bench = Bench::new().await;
    bench.create(&jobs(), job(json!({ "ttlSecondsAfterFinished": 100 }), &ten_seconds())).await;
    pass(60).await;
    bench.change(&jobs(), |job| job["spec"]["ttlSecondsAfterFinished"] = Value::Null).await;
    bench.assert_quiet().await;
    assert!(bench.is(&jobs(), "Complete"));
    bench.change(&jobs(), |job| job["spec"]["ttlSecondsAfterFinished"] = 0.into()).await;
    pass(1).await;
    assert!(bench.store.get(&jobs(), "default", "j").is_none());
}
