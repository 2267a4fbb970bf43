use std::sync::OnceLock;

use super::shape::Shape;

/// What a built-in resource can do beyond create, read, update and delete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Feature {
    /// `status` is a subresource: writes to the main resource leave it alone and the other way round.
    Status,
    /// `scale` is a subresource over `spec.replicas`.
    Scale,
    /// `metadata.generation` counts the changes of the spec.
    Generation,
    /// The status given at creation is kept (a kubelet registers its Node with one).
    StatusAtCreation,
    /// A deletion answers with the object instead of with a Status.
    ReturnsDeleted,
    /// A review that is answered and not stored.
    Review,
    /// An update without a resourceVersion is refused.
    ConditionalUpdateOnly,
}

use Feature::{ConditionalUpdateOnly, Generation, ReturnsDeleted, Review, Scale, Status, StatusAtCreation};

/// One row of the closed table of built-in resources.
#[derive(Debug)]
pub(crate) struct Builtin {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) short_names: &'static [&'static str],
    pub(crate) categories: &'static [&'static str],
    pub(crate) namespaced: bool,
    pub(crate) features: &'static [Feature],
    /// Fields that a field selector may name beside `metadata.name` and `metadata.namespace`.
    pub(crate) fields: &'static [&'static str],
    shape: OnceLock<Shape>,
}

impl Builtin {
    /// The fields of the kind. Derived once in a process, when the kind is first written: a pure function of the table.
    pub(crate) fn shape(&self) -> &Shape {
        self.shape.get_or_init(|| Shape::of(self.group, self.kind))
    }
}

const fn row(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    short_names: &'static [&'static str],
    namespaced: bool,
    features: &'static [Feature],
) -> Builtin {
    Builtin {
        group,
        version,
        kind,
        plural,
        short_names,
        categories: &[],
        namespaced,
        features,
        fields: &[],
        shape: OnceLock::new(),
    }
}

const fn selectable(mut builtin: Builtin, fields: &'static [&'static str]) -> Builtin {
    builtin.fields = fields;
    builtin
}

const fn in_all(mut builtin: Builtin) -> Builtin {
    builtin.categories = &["all"];
    builtin
}

const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "reason",
    "reportingController",
    "reportingComponent",
    "source",
    "type",
];

const POD_FIELDS: &[&str] = &[
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
];

/// Every built-in resource: group, version, kind, plural, short names, namespaced, features.
pub(crate) static BUILTINS: [Builtin; 52] = [
    in_all(selectable(
        row("", "v1", "Pod", "pods", &["po"], true, &[Status, Generation, ReturnsDeleted]),
        POD_FIELDS,
    )),
    selectable(
        row("", "v1", "Node", "nodes", &["no"], false, &[Status, StatusAtCreation]),
        &["spec.unschedulable"],
    ),
    in_all(row("", "v1", "Service", "services", &["svc"], true, &[Status, ReturnsDeleted])),
    row("", "v1", "Endpoints", "endpoints", &["ep"], true, &[]),
    selectable(
        row("", "v1", "Namespace", "namespaces", &["ns"], false, &[Status]),
        &["status.phase", "name"],
    ),
    row("", "v1", "ConfigMap", "configmaps", &["cm"], true, &[]),
    selectable(row("", "v1", "Secret", "secrets", &[], true, &[]), &["type"]),
    row("", "v1", "ServiceAccount", "serviceaccounts", &["sa"], true, &[ReturnsDeleted]),
    selectable(row("", "v1", "Event", "events", &["ev"], true, &[]), EVENT_FIELDS),
    row("", "v1", "LimitRange", "limitranges", &["limits"], true, &[]),
    row("", "v1", "ResourceQuota", "resourcequotas", &["quota"], true, &[Status, ReturnsDeleted]),
    row("", "v1", "PersistentVolume", "persistentvolumes", &["pv"], false, &[Status, ReturnsDeleted]),
    row(
        "",
        "v1",
        "PersistentVolumeClaim",
        "persistentvolumeclaims",
        &["pvc"],
        true,
        &[Status, ReturnsDeleted],
    ),
    row("", "v1", "PodTemplate", "podtemplates", &[], true, &[Generation, ReturnsDeleted]),
    in_all(row(
        "",
        "v1",
        "ReplicationController",
        "replicationcontrollers",
        &["rc"],
        true,
        &[Status, Scale, Generation],
    )),
    selectable(row("events.k8s.io", "v1", "Event", "events", &["ev"], true, &[]), EVENT_FIELDS),
    row("coordination.k8s.io", "v1", "Lease", "leases", &[], true, &[ConditionalUpdateOnly]),
    in_all(selectable(
        row("batch", "v1", "Job", "jobs", &[], true, &[Status, Generation]),
        &["status.successful"],
    )),
    in_all(row("batch", "v1", "CronJob", "cronjobs", &["cj"], true, &[Status, Generation])),
    in_all(row("apps", "v1", "Deployment", "deployments", &["deploy"], true, &[Status, Scale, Generation])),
    in_all(row("apps", "v1", "StatefulSet", "statefulsets", &["sts"], true, &[Status, Scale, Generation])),
    in_all(row("apps", "v1", "DaemonSet", "daemonsets", &["ds"], true, &[Status, Generation])),
    in_all(row("apps", "v1", "ReplicaSet", "replicasets", &["rs"], true, &[Status, Scale, Generation])),
    row("apps", "v1", "ControllerRevision", "controllerrevisions", &[], true, &[]),
    row("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", &["pc"], false, &[]),
    row("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", &[], false, &[]),
    row("storage.k8s.io", "v1", "StorageClass", "storageclasses", &["sc"], false, &[]),
    row("storage.k8s.io", "v1", "CSINode", "csinodes", &[], false, &[]),
    row("storage.k8s.io", "v1", "CSIDriver", "csidrivers", &[], false, &[]),
    row("storage.k8s.io", "v1", "CSIStorageCapacity", "csistoragecapacities", &[], true, &[]),
    row("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", &[], false, &[Status]),
    row(
        "policy",
        "v1",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        &["pdb"],
        true,
        &[Status, Generation, ConditionalUpdateOnly],
    ),
    row("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", &[], true, &[Generation]),
    row("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", &["netpol"], true, &[Generation]),
    row("networking.k8s.io", "v1", "Ingress", "ingresses", &["ing"], true, &[Status, Generation]),
    row(
        "autoscaling",
        "v2",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        &["hpa"],
        true,
        &[Status],
    ),
    row("rbac.authorization.k8s.io", "v1", "Role", "roles", &[], true, &[]),
    row("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", &[], true, &[]),
    row("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", &[], false, &[]),
    row("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", &[], false, &[]),
    row(
        "admissionregistration.k8s.io",
        "v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        &[],
        false,
        &[Generation],
    ),
    row(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        &[],
        false,
        &[Generation],
    ),
    row(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        &[],
        false,
        &[Status, Generation],
    ),
    row(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        &[],
        false,
        &[Generation],
    ),
    row(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        &["crd", "crds"],
        false,
        &[Status, Generation, ConditionalUpdateOnly],
    ),
    row("apiregistration.k8s.io", "v1", "APIService", "apiservices", &[], false, &[Status]),
    row("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", &[], false, &[Review]),
    row("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", &[], false, &[Review]),
    row("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", &[], false, &[Review]),
    row(
        "authorization.k8s.io",
        "v1",
        "SelfSubjectAccessReview",
        "selfsubjectaccessreviews",
        &[],
        false,
        &[Review],
    ),
    row(
        "authorization.k8s.io",
        "v1",
        "LocalSubjectAccessReview",
        "localsubjectaccessreviews",
        &[],
        true,
        &[Review],
    ),
    row(
        "authorization.k8s.io",
        "v1",
        "SelfSubjectRulesReview",
        "selfsubjectrulesreviews",
        &[],
        false,
        &[Review],
    ),
];
