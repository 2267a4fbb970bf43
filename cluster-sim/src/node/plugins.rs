//! The kubelet's side of the device plugin API: the registration service, and the calls to plugins.

use std::path::{Component, Path};
use std::sync::{Arc, Weak};
use std::time::Duration;

use model::resources::ResourceName;
use proto::deviceplugin::device_plugin_client::DevicePluginClient;
use proto::deviceplugin::registration_server::Registration as RegistrationService;
use proto::deviceplugin::{
    AllocateRequest, ContainerAllocateRequest, ContainerAllocateResponse,
    ContainerPreferredAllocationRequest, Empty, PreStartContainerRequest, PreferredAllocationRequest,
    RegisterRequest, VERSION,
};
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use super::Inner;
use super::devices::{DeviceError, Given, Offer, Plan, Registration};
use super::pod::{Pod, is_extended};

/// How long the kubelet tries to reach a plugin that registered.
const DIAL: Duration = Duration::from_secs(10);

/// A plugin's connection and the registration it belongs to.
#[derive(Clone)]
pub(super) struct Endpoint {
    registration: Registration,
    client: DevicePluginClient<Channel>,
}

/// Answers on `kubelet.sock`.
pub(super) struct Registrar(pub(super) Weak<Inner>);

#[tonic::async_trait]
impl RegistrationService for Registrar {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        let kubelet = self.0.upgrade().ok_or_else(|| Status::unavailable("the kubelet has stopped"))?;
        let request = request.into_inner();
        check(&request).map_err(Status::invalid_argument)?;
        // The plugin must be listening by now: it is dialled before it gets its answer.
        let path = kubelet.spec.plugin_directory().join(&request.endpoint);
        let channel = tokio::time::timeout(DIAL, kubelet.spec.sockets.connect(&path))
            .await
            .map_err(|_| Status::deadline_exceeded(format!("no answer from {}", path.display())))?
            .map_err(|error| Status::unavailable(error.to_string()))?;
        let resource = ResourceName::new(request.resource_name);
        let Some(tasks) = kubelet.process() else {
            return Err(Status::unavailable("the kubelet has stopped"));
        };
        super::spawn(&tasks, serve(Arc::downgrade(&kubelet), resource, DevicePluginClient::new(channel)));
        Ok(Response::new(Empty {}))
    }
}

fn check(request: &RegisterRequest) -> Result<(), String> {
    if request.version != VERSION {
        return Err(format!("version {:?} is not served; register with {VERSION:?}", request.version));
    }
    if !is_extended(&request.resource_name) {
        return Err(format!(
            "{:?} is not the name of an extended resource; write for example \"vendor.com/device\"",
            request.resource_name
        ));
    }
    let mut parts = Path::new(&request.endpoint).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(_)), None) => Ok(()),
        _ => Err(format!(
            "endpoint {:?} is not the name of a file beside the kubelet's socket",
            request.endpoint
        )),
    }
}

/// Follows one plugin from its registration to the end of its stream.
async fn serve(kubelet: Weak<Inner>, resource: ResourceName, mut client: DevicePluginClient<Channel>) {
    let Ok(options) = client.get_device_plugin_options(Empty {}).await else { return };
    let registration = {
        let Some(kubelet) = kubelet.upgrade() else { return };
        let registration = kubelet.disk().devices.register(&resource, options.into_inner());
        let endpoint = Endpoint { registration, client: client.clone() };
        kubelet.endpoints().insert(resource.clone(), endpoint);
        registration
    };
    if let Ok(stream) = client.list_and_watch(Empty {}).await {
        let mut stream = stream.into_inner();
        while let Ok(Some(list)) = stream.message().await {
            let Some(kubelet) = kubelet.upgrade() else { return };
            let changed = kubelet.disk().devices.list(&resource, registration, &list.devices);
            if changed {
                kubelet.node_changed.notify_one();
            }
        }
    }
    let Some(kubelet) = kubelet.upgrade() else { return };
    let now = kubelet.now();
    if kubelet.disk().devices.ended(&resource, registration, now) {
        kubelet.endpoints().remove(&resource);
        kubelet.node_changed.notify_one();
    }
}

/// Gets a pod its devices, container by container, resource by resource.
///
/// # Errors
/// When one of them cannot be had; the pod then holds none.
pub(super) async fn allocate(kubelet: &Inner, pod: &Pod) -> Result<(), DeviceError> {
    let result = try_allocate(kubelet, pod).await;
    if result.is_err() {
        kubelet.disk().devices.release(&pod.uid);
    }
    result
}

async fn try_allocate(kubelet: &Inner, pod: &Pod) -> Result<(), DeviceError> {
    let mut finished: Vec<&str> = Vec::new();
    let inits = pod.spec.init_containers.iter().map(|one| (one, one.restart_policy != "Always"));
    for (container, ends) in inits.chain(pod.spec.containers.iter().map(|one| (one, false))) {
        for (resource, wanted) in pod.devices_of(&container.name) {
            let plan =
                kubelet.disk().devices.plan(&pod.uid, &container.name, &resource, wanted, &finished)?;
            let Some(plan) = plan else { continue };
            let given = ask(kubelet, &resource, &plan).await?;
            kubelet.disk().devices.keep(&pod.uid, &container.name, &resource, given);
        }
        if ends {
            finished.push(&container.name);
        }
    }
    Ok(())
}

/// GetPreferredAllocation, if the plugin wants it, then Allocate.
async fn ask(kubelet: &Inner, resource: &ResourceName, plan: &Plan) -> Result<Given, DeviceError> {
    let failed =
        |call: &'static str, said: String| DeviceError::Plugin { resource: resource.clone(), call, said };
    let mut client = kubelet
        .endpoints()
        .get(resource)
        .filter(|endpoint| endpoint.registration == plan.registration)
        .map(|endpoint| endpoint.client.clone())
        .ok_or_else(|| DeviceError::NoneHealthy(resource.clone()))?;
    let preferred = match &plan.prefer {
        None => Vec::new(),
        Some(offer) => {
            let answer = client.get_preferred_allocation(question(offer)).await;
            let answer =
                answer.map_err(|status| failed("GetPreferredAllocation", status.message().into()))?;
            let mut answers = answer.into_inner().container_responses;
            answers.pop().map(|answer| answer.device_i_ds).unwrap_or_default()
        }
    };
    let ids = kubelet.disk().devices.choose(plan, &preferred);
    let asked = ContainerAllocateRequest { devices_ids: ids.iter().cloned().collect() };
    let answer = client.allocate(AllocateRequest { container_requests: vec![asked] }).await;
    let mut answers = answer.map_err(|status| failed("Allocate", status.message().into()))?.into_inner();
    match (answers.container_responses.pop(), answers.container_responses.len()) {
        (Some(response), 0) => Ok(Given { ids, response }),
        (_, count) => Err(failed("Allocate", format!("one answer expected, {} received", count))),
    }
}

fn question(offer: &Offer) -> PreferredAllocationRequest {
    PreferredAllocationRequest {
        container_requests: vec![ContainerPreferredAllocationRequest {
            available_device_i_ds: offer.available.clone(),
            must_include_device_i_ds: offer.must_include.clone(),
            allocation_size: i32::try_from(offer.size).unwrap_or(i32::MAX),
        }],
    }
}

/// The last call before a container starts, for the plugins that want it.
pub(super) async fn pre_start(kubelet: &Inner, pod: &Pod, container: &str) -> Result<(), String> {
    let held: Vec<(ResourceName, Vec<String>)> = {
        let disk = kubelet.disk();
        let given = disk.devices.given(&pod.uid, container).into_iter().flatten();
        given
            .filter(|(resource, _)| disk.devices.wants_pre_start(resource))
            .map(|(resource, given)| (resource.clone(), given.ids.iter().cloned().collect()))
            .collect()
    };
    for (resource, devices_ids) in held {
        let client = kubelet.endpoints().get(&resource).map(|endpoint| endpoint.client.clone());
        let mut client = client.ok_or_else(|| format!("{resource}: the device plugin is gone"))?;
        let call = client.pre_start_container(PreStartContainerRequest { devices_ids });
        tokio::time::timeout(proto::deviceplugin::PRE_START_TIMEOUT, call)
            .await
            .map_err(|_| format!("{resource}: PreStartContainer took too long"))?
            .map_err(|status| format!("{resource}: PreStartContainer failed: {}", status.message()))?;
    }
    Ok(())
}

/// What all plugins together add to a container.
pub(super) fn combined<'a>(given: impl Iterator<Item = &'a Given>) -> ContainerAllocateResponse {
    let mut all = ContainerAllocateResponse::default();
    for one in given {
        let response = one.response.clone();
        all.envs.extend(response.envs);
        all.mounts.extend(response.mounts);
        all.devices.extend(response.devices);
        all.annotations.extend(response.annotations);
        all.cdi_devices.extend(response.cdi_devices);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registrations_are_checked() {
        let right = RegisterRequest {
            version: "v1beta1".into(),
            endpoint: "gpu.sock".into(),
            resource_name: "nvidia.com/gpu".into(),
            options: None,
        };
        assert_eq!(check(&right), Ok(()));
        for (wrong, said) in [
            (RegisterRequest { version: "v1".into(), ..right.clone() }, "version \"v1\""),
            (RegisterRequest { resource_name: "gpu".into(), ..right.clone() }, "\"gpu\" is not"),
            (RegisterRequest { endpoint: String::new(), ..right.clone() }, "endpoint \"\""),
            (RegisterRequest { endpoint: "../x.sock".into(), ..right.clone() }, "endpoint \"../x.sock\""),
            (RegisterRequest { endpoint: "/x.sock".into(), ..right.clone() }, "endpoint \"/x.sock\""),
        ] {
            assert!(check(&wrong).unwrap_err().starts_with(said), "{said}");
        }
    }
}
