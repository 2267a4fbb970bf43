//! The configuration file.

use std::collections::BTreeSet;
use std::path::Path;

use kit::config::ConfigError;
use model::planted::Planted;
use serde::Deserialize;

/// gang-scheduler's configuration: a YAML or JSON file; a field it does not know is refused.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Config {
    /// Pods with one of these in `spec.schedulerName` are placed here. Only one scheduler may serve a name.
    pub scheduler_names: BTreeSet<String>,
    /// Seconds for which a running gang below its minimum is repaired before it is undone as a whole.
    pub repair_patience_seconds: u32,
    /// The lease by which replicas agree on who leads.
    pub lease_name: String,
    /// The lease's namespace.
    pub lease_namespace: String,
    /// Where the pages for health, metrics and state are served, as in `127.0.0.1:8082`. Without it the binary takes a
    /// default, and a simulation finds them in process.
    pub admin_address: Option<std::net::SocketAddr>,
    /// A bug on purpose, for testing the tests; never set from a file.
    #[serde(skip)]
    pub planted: Planted,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            scheduler_names: ["trireme", "volcano", "kai-scheduler", "kube-batch", "ml-scheduler"]
                .map(str::to_owned)
                .into(),
            repair_patience_seconds: 60,
            lease_name: "gang-scheduler".to_owned(),
            lease_namespace: crds::names::trireme::NAMESPACE.to_owned(),
            admin_address: None,
            planted: Planted::NONE,
        }
    }
}

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// See [`ConfigError`]; the text names the file, the field and the reason.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let config: Self = kit::config::read(path)?;
        config.check(path)?;
        Ok(config)
    }

    /// The same for a text that was read already; `path` is for the messages.
    ///
    /// # Errors
    /// See [`Config::read`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let config: Self = kit::config::parse(path, text)?;
        config.check(path)?;
        Ok(config)
    }

    fn check(&self, path: &Path) -> Result<(), ConfigError> {
        let wrong = |field, problem| Err(ConfigError::invalid(path, field, problem));
        if self.scheduler_names.is_empty() {
            return wrong("schedulerNames", "is empty; name at least one scheduler, for example trireme");
        }
        if self.scheduler_names.iter().any(|name| name.trim().is_empty()) {
            return wrong("schedulerNames", "contains an empty name; remove it");
        }
        if self.scheduler_names.contains("default-scheduler") {
            return wrong(
                "schedulerNames",
                "contains default-scheduler, which kube-scheduler serves; two schedulers would over-commit nodes",
            );
        }
        if self.lease_name.is_empty() {
            return wrong("leaseName", "is empty; replicas need a lease to agree on who leads");
        }
        if self.lease_namespace.is_empty() {
            return wrong("leaseNamespace", "is empty; name the namespace the lease is kept in");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_refused_by_field() {
        for (text, expected) in [
            ("schedulerNames: []", "schedulerNames"),
            ("schedulerNames: [default-scheduler]", "kube-scheduler"),
            ("schedulerName: [trireme]", "schedulerName"),
            ("repairPatienceSeconds: soon", "repairPatienceSeconds"),
            ("leaseName: ''", "leaseName"),
            ("leaseNamespace: ''", "leaseNamespace"),
            ("repairPatienceSeconds: -1", "repairPatienceSeconds"),
            ("adminAddress: everywhere", "adminAddress"),
            ("schedulerNames: ['trireme', ' ']", "schedulerNames"),
            ("planted: 1", "planted"),
            ("- a list", "c.yaml"),
        ] {
            let error = Config::parse(Path::new("c.yaml"), text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert_eq!(Config::parse(Path::new("c.yaml"), "{}").unwrap(), Config::default());
        let config =
            Config::parse(Path::new("c.yaml"), "schedulerNames: [volcano]\nrepairPatienceSeconds: 5")
                .unwrap();
        assert_eq!((config.scheduler_names.len(), config.repair_patience_seconds), (1, 5));
    }
}
