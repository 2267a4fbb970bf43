//! The kubelet's pod resources service: which pod holds what.

use std::sync::Weak;

use model::resources::ResourceName;
use proto::podresources::pod_resources_lister_server::PodResourcesLister;
use proto::podresources::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, ContainerDevices, ContainerResources,
    GetPodResourcesRequest, GetPodResourcesResponse, ListPodResourcesRequest, ListPodResourcesResponse,
    NumaNode, PodResources, TopologyInfo,
};
use tonic::{Request, Response, Status};

use super::pod::Pod;
use super::{Disk, Inner};

/// Answers on the pod resources socket.
pub(super) struct Lister(pub(super) Weak<Inner>);

impl Lister {
    fn ask<T>(&self, answer: impl FnOnce(&Disk) -> T) -> Result<T, Status> {
        let kubelet = self.0.upgrade().ok_or_else(|| Status::unavailable("the kubelet has stopped"))?;
        let disk = kubelet.disk();
        Ok(answer(&disk))
    }
}

#[tonic::async_trait]
impl PodResourcesLister for Lister {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        let pod_resources =
            self.ask(|disk| disk.active().map(|taken| held(disk, &taken.pod)).collect::<Vec<_>>())?;
        Ok(Response::new(ListPodResourcesResponse { pod_resources }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<AllocatableResourcesRequest>,
    ) -> Result<Response<AllocatableResourcesResponse>, Status> {
        let devices = self.ask(|disk| {
            let all = disk.devices.allocatable().into_iter();
            all.map(|(resource, id, numa)| one(&resource, &id, &numa)).collect()
        })?;
        Ok(Response::new(AllocatableResourcesResponse { devices, ..Default::default() }))
    }

    async fn get(
        &self,
        request: Request<GetPodResourcesRequest>,
    ) -> Result<Response<GetPodResourcesResponse>, Status> {
        let request = request.into_inner();
        let found = self.ask(|disk| {
            disk.active()
                .find(|taken| {
                    taken.pod.meta.name == request.pod_name
                        && taken.pod.meta.namespace == request.pod_namespace
                })
                .map(|taken| held(disk, &taken.pod))
        })?;
        match found {
            Some(pod_resources) => {
                Ok(Response::new(GetPodResourcesResponse { pod_resources: Some(pod_resources) }))
            }
            None => Err(Status::not_found(format!(
                "no active pod {}/{} on this node",
                request.pod_namespace, request.pod_name
            ))),
        }
    }
}

fn held(disk: &Disk, pod: &Pod) -> PodResources {
    let sidecars = pod.spec.init_containers.iter().filter(|one| one.restart_policy == "Always");
    let containers = sidecars
        .chain(&pod.spec.containers)
        .map(|container| {
            let given = disk.devices.given(&pod.uid, &container.name).into_iter().flatten();
            let devices = given
                .flat_map(|(resource, given)| given.ids.iter().map(move |id| (resource, id)))
                .map(|(resource, id)| one(resource, id, &disk.devices.numa(resource, id)))
                .collect();
            ContainerResources { name: container.name.clone(), devices, ..Default::default() }
        })
        .collect();
    PodResources { name: pod.meta.name.clone(), namespace: pod.meta.namespace.clone(), containers }
}

/// The real kubelet makes one entry of each device, too.
fn one(resource: &ResourceName, id: &str, numa: &[i64]) -> ContainerDevices {
    let nodes: Vec<NumaNode> = numa.iter().map(|id| NumaNode { id: *id }).collect();
    ContainerDevices {
        resource_name: resource.as_str().to_owned(),
        device_ids: vec![id.to_owned()],
        topology: (!nodes.is_empty()).then_some(TopologyInfo { nodes }),
    }
}
