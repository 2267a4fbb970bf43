//! A kubelet's whole conversation with a device plugin, over both kinds of socket.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use futures::{Stream, StreamExt};
use proto::deviceplugin::device_plugin_client::DevicePluginClient;
use proto::deviceplugin::device_plugin_server::{DevicePlugin, DevicePluginServer};
use proto::deviceplugin::registration_client::RegistrationClient;
use proto::deviceplugin::registration_server::{Registration, RegistrationServer};
use proto::deviceplugin::*;
use proto::sockets::Sockets;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::WatchStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

type DeviceLists = Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

/// Two devices, whose health the test switches.
struct Plugin(watch::Receiver<&'static str>);

#[tonic::async_trait]
impl DevicePlugin for Plugin {
    type ListAndWatchStream = DeviceLists;

    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(DevicePluginOptions {
            pre_start_required: false,
            get_preferred_allocation_available: true,
        }))
    }

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<DeviceLists>, Status> {
        let lists = WatchStream::new(self.0.clone()).map(|health| {
            let devices = ["gpu-0", "gpu-1"].map(|id| Device {
                id: id.into(),
                health: health.into(),
                topology: Some(TopologyInfo { nodes: vec![NumaNode { id: 1 }] }),
            });
            Ok(ListAndWatchResponse { devices: devices.into() })
        });
        Ok(Response::new(Box::pin(lists)))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let container_responses = request
            .into_inner()
            .container_requests
            .into_iter()
            .map(|asked| {
                let size = usize::try_from(asked.allocation_size).unwrap();
                let device_i_ds = asked.available_device_i_ds.into_iter().rev().take(size).collect();
                ContainerPreferredAllocationResponse { device_i_ds }
            })
            .collect();
        Ok(Response::new(PreferredAllocationResponse { container_responses }))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let container_responses = request
            .into_inner()
            .container_requests
            .into_iter()
            .map(|asked| ContainerAllocateResponse {
                envs: [("NVIDIA_VISIBLE_DEVICES".to_owned(), asked.devices_ids.join(","))].into(),
                ..Default::default()
            })
            .collect();
        Ok(Response::new(AllocateResponse { container_responses }))
    }

    async fn pre_start_container(
        &self,
        _: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        Err(Status::unimplemented("the options do not ask for it"))
    }
}

struct Kubelet(mpsc::Sender<RegisterRequest>);

#[tonic::async_trait]
impl Registration for Kubelet {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        self.0.send(request.into_inner()).await.map_err(|error| Status::unavailable(error.to_string()))?;
        Ok(Response::new(Empty {}))
    }
}

/// Registers, is dialled back, lists, prefers, allocates; then a device falls ill.
async fn converse(sockets: Sockets, folder: &Path) {
    let (register, mut registered) = mpsc::channel(1);
    let kubelet = Server::builder()
        .add_service(RegistrationServer::new(Kubelet(register)))
        .serve_with_incoming(sockets.listen(&folder.join(KUBELET_SOCKET)).unwrap());
    let (health, healths) = watch::channel(HEALTHY);
    let plugin = Server::builder()
        .add_service(DevicePluginServer::new(Plugin(healths)))
        .serve_with_incoming(sockets.listen(&folder.join("gpu.sock")).unwrap());

    let story = async {
        let kubelet = sockets.connect(&folder.join(KUBELET_SOCKET)).await.unwrap();
        let request = RegisterRequest {
            version: VERSION.into(),
            endpoint: "gpu.sock".into(),
            resource_name: "nvidia.com/gpu".into(),
            options: None,
        };
        RegistrationClient::new(kubelet).register(request).await.unwrap();
        let endpoint = registered.recv().await.unwrap().endpoint;

        let mut plugin = DevicePluginClient::new(sockets.connect(&folder.join(endpoint)).await.unwrap());
        let options = plugin.get_device_plugin_options(Empty {}).await.unwrap().into_inner();
        assert!(options.get_preferred_allocation_available);
        let mut lists = plugin.list_and_watch(Empty {}).await.unwrap().into_inner();
        let devices = lists.message().await.unwrap().unwrap().devices;
        assert_eq!(
            devices.iter().map(|d| (d.id.as_str(), d.health.as_str())).collect::<Vec<_>>(),
            [("gpu-0", HEALTHY), ("gpu-1", HEALTHY)]
        );

        let preferred = plugin
            .get_preferred_allocation(PreferredAllocationRequest {
                container_requests: vec![ContainerPreferredAllocationRequest {
                    available_device_i_ds: vec!["gpu-0".into(), "gpu-1".into()],
                    must_include_device_i_ds: vec![],
                    allocation_size: 1,
                }],
            })
            .await
            .unwrap()
            .into_inner();
        let devices_ids = preferred.container_responses[0].device_i_ds.clone();
        assert_eq!(devices_ids, ["gpu-1"]);
        let allocated = plugin
            .allocate(AllocateRequest { container_requests: vec![ContainerAllocateRequest { devices_ids }] })
            .await
            .unwrap()
            .into_inner();
        assert_eq!(allocated.container_responses[0].envs["NVIDIA_VISIBLE_DEVICES"], "gpu-1");

        tokio::time::sleep(Duration::from_secs(1)).await;
        health.send_replace(UNHEALTHY);
        let devices = lists.message().await.unwrap().unwrap().devices;
        assert!(devices.iter().all(|device| device.health == UNHEALTHY));
        drop(health);
        assert!(lists.message().await.unwrap().is_none(), "the plugin ended the stream");
    };
    tokio::select! {
        biased;
        result = kubelet => panic!("the kubelet's server ended: {result:?}"),
        result = plugin => panic!("the plugin's server ended: {result:?}"),
        () = story => {}
    }
}

#[tokio::test(start_paused = true)]
async fn in_memory_and_virtual_time() {
    #[expect(clippy::disallowed_methods, reason = "the runtime's own time is what is tested")]
    let before = tokio::time::Instant::now();
    converse(Sockets::memory(), &PathBuf::from("/plugins")).await;
    assert_eq!(before.elapsed(), Duration::from_secs(1), "only the test's own second passed");
}

#[tokio::test]
async fn over_unix_sockets() {
    let folder = tempfile::tempdir().unwrap();
    converse(Sockets::Unix, folder.path()).await;
}
