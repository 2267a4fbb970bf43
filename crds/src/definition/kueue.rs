//! Definitions of `kueue.x-k8s.io`: v1beta1 is served and deprecated, v1beta2 is stored.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use super::build::{Definition, Version};
use crate::api::kueue::{v1beta1, v1beta2};

pub(super) fn all() -> Vec<CustomResourceDefinition> {
    vec![
        admission_check(),
        cluster_queue(),
        cohort(),
        local_queue(),
        multikueue_cluster(),
        multikueue_config(),
        provisioning_request_config(),
        resource_flavor(),
        topology(),
        workload_priority_class(),
        workload(),
    ]
}

fn admission_check() -> CustomResourceDefinition {
    Definition::of::<v1beta2::AdmissionCheck>("admissioncheck", &["ac"])
        .version(Version::served::<v1beta1::AdmissionCheck>().deprecated().status())
        .version(Version::stored::<v1beta2::AdmissionCheck>().status())
        .finish()
}

fn cluster_queue() -> CustomResourceDefinition {
    let columns = |version: Version, cohort| {
        version
            .status()
            .column("Cohort", "string", cohort)
            .wide_column("Strategy", "string", ".spec.queueingStrategy")
            .column("Pending Workloads", "integer", ".status.pendingWorkloads")
            .wide_column("Admitted Workloads", "integer", ".status.admittedWorkloads")
    };
    Definition::of::<v1beta2::ClusterQueue>("clusterqueue", &["cq"])
        .version(columns(Version::served::<v1beta1::ClusterQueue>().deprecated(), ".spec.cohort"))
        .version(columns(Version::stored::<v1beta2::ClusterQueue>(), ".spec.cohortName"))
        .converted()
        .finish()
}

fn cohort() -> CustomResourceDefinition {
    Definition::of::<v1beta2::Cohort>("cohort", &["co"])
        .version(Version::served::<v1beta1::Cohort>().deprecated().status())
        .version(Version::stored::<v1beta2::Cohort>().status())
        .converted()
        .finish()
}

fn local_queue() -> CustomResourceDefinition {
    let columns = |version: Version| {
        version
            .status()
            .column("ClusterQueue", "string", ".spec.clusterQueue")
            .column("Pending Workloads", "integer", ".status.pendingWorkloads")
            .column("Admitted Workloads", "integer", ".status.admittedWorkloads")
    };
    Definition::of::<v1beta2::LocalQueue>("localqueue", &["queue", "queues", "lq"])
        .version(columns(Version::served::<v1beta1::LocalQueue>().deprecated()))
        .version(columns(Version::stored::<v1beta2::LocalQueue>()))
        .converted()
        .finish()
}

fn multikueue_cluster() -> CustomResourceDefinition {
    let columns = |version: Version| {
        version
            .status()
            .column("Connected", "string", ".status.conditions[?(@.type=='Active')].status")
            .column("Age", "date", ".metadata.creationTimestamp")
    };
    Definition::of::<v1beta2::MultiKueueCluster>("multikueuecluster", &["mkc"])
        .version(columns(Version::served::<v1beta1::MultiKueueCluster>().deprecated()))
        .version(columns(Version::stored::<v1beta2::MultiKueueCluster>()))
        .converted()
        .finish()
}

fn multikueue_config() -> CustomResourceDefinition {
    Definition::of::<v1beta2::MultiKueueConfig>("multikueueconfig", &["mkconf"])
        .version(Version::served::<v1beta1::MultiKueueConfig>())
        .version(Version::stored::<v1beta2::MultiKueueConfig>())
        .finish()
}

fn provisioning_request_config() -> CustomResourceDefinition {
    Definition::of::<v1beta2::ProvisioningRequestConfig>("provisioningrequestconfig", &["prc"])
        .version(Version::served::<v1beta1::ProvisioningRequestConfig>().deprecated())
        .version(Version::stored::<v1beta2::ProvisioningRequestConfig>())
        .finish()
}

fn resource_flavor() -> CustomResourceDefinition {
    Definition::of::<v1beta2::ResourceFlavor>("resourceflavor", &["flavor", "flavors", "rf"])
        .version(Version::served::<v1beta1::ResourceFlavor>().deprecated())
        .version(Version::stored::<v1beta2::ResourceFlavor>())
        .finish()
}

fn topology() -> CustomResourceDefinition {
    Definition::of::<v1beta2::Topology>("topology", &["topo"])
        .version(Version::served::<v1beta1::Topology>().deprecated())
        .version(Version::stored::<v1beta2::Topology>())
        .finish()
}

fn workload_priority_class() -> CustomResourceDefinition {
    let columns = |version: Version| version.no_subresources().column("Value", "integer", ".value");
    Definition::of::<v1beta2::WorkloadPriorityClass>("workloadpriorityclass", &["wpc"])
        .version(columns(Version::served::<v1beta1::WorkloadPriorityClass>().deprecated()))
        .version(columns(Version::stored::<v1beta2::WorkloadPriorityClass>()))
        .finish()
}

fn workload() -> CustomResourceDefinition {
    let columns = |version: Version| {
        version
            .status()
            .column("Queue", "string", ".spec.queueName")
            .column("Reserved in", "string", ".status.admission.clusterQueue")
            .column("Admitted", "string", ".status.conditions[?(@.type=='Admitted')].status")
            .column("Finished", "string", ".status.conditions[?(@.type=='Finished')].status")
            .column("Age", "date", ".metadata.creationTimestamp")
    };
    Definition::of::<v1beta2::Workload>("workload", &["kwl", "kueueworkload", "kueueworkloads"])
        .version(columns(Version::served::<v1beta1::Workload>().deprecated()))
        .version(columns(Version::stored::<v1beta2::Workload>()).selectable(".status.admission.clusterQueue"))
        .converted()
        .finish()
}
