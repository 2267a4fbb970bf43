//! Settings of what is switched off: Kueue does not look at what they say (`pkg/config/validation.go`).

use serde_json::Value;

use super::{meanings, times};

/// Takes them out of a file, where they would be refused otherwise.
pub(super) fn forget(file: &mut Value) {
    let gate = |name: &str, default| file["featureGates"][name].as_bool().unwrap_or(default);
    let old = file["apiVersion"].as_str().is_some_and(|version| version.ends_with("/v1beta1"));
    let enables = |section: &str| !old || file[section]["enable"] == true;
    let waits = enables("waitForPodsReady") && !gate(times::DISABLE_WAIT_FOR_PODS_READY, false);
    let shares = enables("fairSharing");
    let has_strategy = gate(meanings::QUOTA_CHECK_STRATEGY, true);
    for (on, section, key) in [
        (waits, "/waitForPodsReady", "timeout"),
        (waits, "/waitForPodsReady", "recoveryTimeout"),
        (waits, "/waitForPodsReady/requeuingStrategy", "timestamp"),
        (shares, "/fairSharing", "preemptionStrategies"),
        (has_strategy, "/resources", "quotaCheckStrategy"),
    ] {
        if !on && let Some(section) = file.pointer_mut(section).and_then(Value::as_object_mut) {
            section.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Configuration;

    const OLD: &str = "apiVersion: config.kueue.x-k8s.io/v1beta1\n";

    fn read(text: &str) -> Result<Configuration, String> {
        Configuration::parse(Path::new("f"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_switched_off_may_say_anything() {
        let waits = "timeout: -1s, requeuingStrategy: { backoffLimitCount: -1, timestamp: Never } }";
        let shares = "preemptionStrategies: [LessThanInitialShare, Else] }";
        for (file, on) in [
            (
                format!("{OLD}waitForPodsReady: {{ enable: false, {waits}"),
                format!("{OLD}waitForPodsReady: {{ enable: true, {waits}"),
            ),
            (
                format!("featureGates: {{ DisableWaitForPodsReady: true }}\nwaitForPodsReady: {{ {waits}"),
                format!("waitForPodsReady: {{ {waits}"),
            ),
            (
                format!("{OLD}fairSharing: {{ enable: false, {shares}"),
                format!("{OLD}fairSharing: {{ enable: true, {shares}"),
            ),
            (
                "featureGates: { QuotaCheckStrategy: false }\nresources: { quotaCheckStrategy: Sometimes }"
                    .to_owned(),
                "resources: { quotaCheckStrategy: Sometimes }".to_owned(),
            ),
        ] {
            assert_eq!(read(&file).map(|_| ()), Ok(()), "{file}");
            assert!(read(&on).is_err(), "{on}");
        }
    }
}
