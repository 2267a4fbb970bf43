//! The device plugin's service, as the kubelet calls it.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;

use futures::{Stream, StreamExt};
use model::planted::{Bug, Planted};
use proto::deviceplugin::device_plugin_server::DevicePlugin;
use proto::deviceplugin::{
    AllocateRequest, AllocateResponse, ContainerPreferredAllocationRequest,
    ContainerPreferredAllocationResponse, Device, DevicePluginOptions, Empty, HEALTHY, ListAndWatchResponse,
    NumaNode, PreStartContainerRequest, PreStartContainerResponse, PreferredAllocationRequest,
    PreferredAllocationResponse, TopologyInfo, UNHEALTHY,
};
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tonic::{Request, Response, Status};

use crate::allocation::{self, ResponseSettings};
use crate::config::MigStrategy;
use crate::driver::MigMode;
use crate::inventory::{self, Inventory};
use crate::metrics::Metrics;
use crate::placement::{Placement, Question};

/// The GPUs that are offered as the whole-GPU resource: with a MIG strategy, partitioned ones are not.
pub(crate) fn offered(
    inventory: &Inventory,
    strategy: MigStrategy,
) -> impl Iterator<Item = &inventory::Device> {
    inventory
        .devices()
        .iter()
        .filter(move |device| strategy == MigStrategy::None || device.gpu.mig != MigMode::Enabled)
}

/// Why a plugin has nothing to offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Idle {
    /// The driver does not answer; this is what it says.
    NoDriver(String),
    /// There is none: a node without GPUs, or with partitioned ones only.
    NoGpus,
}

/// One resource's plugin. Clones are the same plugin.
#[derive(Clone)]
pub(crate) struct Plugin(Arc<Inner>);

struct Inner {
    resource: &'static str,
    inventory: watch::Receiver<Arc<Inventory>>,
    strategy: MigStrategy,
    response: ResponseSettings,
    placement: Arc<Placement>,
    metrics: Metrics,
    listeners: watch::Sender<usize>,
    planted: Planted,
}

impl Plugin {
    pub(crate) fn new(
        resource: &'static str,
        inventory: watch::Receiver<Arc<Inventory>>,
        (strategy, response): (MigStrategy, ResponseSettings),
        placement: Arc<Placement>,
        (metrics, planted): (Metrics, Planted),
    ) -> Self {
        let listeners = watch::Sender::new(0);
        Self(Arc::new(Inner {
            resource,
            inventory,
            strategy,
            response,
            placement,
            metrics,
            listeners,
            planted,
        }))
    }

    /// The resource's name.
    pub(crate) fn resource(&self) -> &'static str {
        self.0.resource
    }

    /// How many ListAndWatch streams there are: none means that the kubelet does not listen.
    pub(crate) fn listeners(&self) -> watch::Receiver<usize> {
        self.0.listeners.subscribe()
    }

    /// Why there is nothing to offer: no driver, or no GPU that is offered whole.
    pub(crate) fn idle(&self) -> Idle {
        let inventory = self.0.inventory.borrow().clone();
        match inventory.driver_error() {
            Some(error) => Idle::NoDriver(error.to_string()),
            None => Idle::NoGpus,
        }
    }

    /// How many devices are offered, and how many of them are healthy.
    pub(crate) fn offer(&self) -> (usize, usize) {
        let inventory = self.0.inventory.borrow().clone();
        let healthy =
            offered(&inventory, self.0.strategy).filter(|device| device.health.is_healthy()).count();
        (offered(&inventory, self.0.strategy).count(), healthy)
    }

    /// The answer for one container of a request; `taken` is what the containers before it were told.
    async fn preferred(
        &self,
        request: &ContainerPreferredAllocationRequest,
        taken: &BTreeSet<u32>,
    ) -> Result<ContainerPreferredAllocationResponse, Status> {
        let inventory = self.0.inventory.borrow().clone();
        let must_include = indices(&inventory, &request.must_include_device_i_ds)?;
        let size = usize::try_from(request.allocation_size).map_err(|_| {
            Status::invalid_argument(format!("{} devices cannot be asked for", request.allocation_size))
        })?;
        // The kubelet's list may be a moment old: devices that are gone since are passed over, and ill ones are taken only
        // where there are not enough others.
        let known = request.available_device_i_ds.iter().filter_map(|id| inventory.by_id(id));
        let available: BTreeSet<u32> = known.map(|device| device.gpu.index).collect();
        let is_good = |index: &u32| {
            let healthy = inventory.by_index(*index).is_some_and(|device| device.health.is_healthy());
            must_include.contains(index) || (healthy && !taken.contains(index))
        };
        let good: BTreeSet<u32> = available.iter().copied().filter(is_good).collect();
        let available = if good.len() < size { available } else { good };
        let question =
            Question { resource: self.0.resource, available, must_include, size, inventory: &inventory };
        let chosen = self
            .0
            .placement
            .choose(&question)
            .await
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let ids = chosen.iter().filter_map(|index| inventory.by_index(*index));
        Ok(ContainerPreferredAllocationResponse {
            device_i_ds: ids.map(|device| device.gpu.uuid.to_string()).collect(),
        })
    }

    fn counted<T>(&self, operation: &'static str, answer: Result<T, Status>) -> Result<Response<T>, Status> {
        if let Err(status) = &answer {
            self.0.metrics.failed(operation);
            tracing::warn!(operation, error = status.message(), "a call of the kubelet is refused");
        }
        answer.map(Response::new)
    }
}

fn indices(inventory: &Inventory, ids: &[String]) -> Result<BTreeSet<u32>, Status> {
    ids.iter()
        .map(|id| {
            let unknown = || Status::invalid_argument(format!("device `{id}` is unknown on this node"));
            inventory.by_id(id).map(|device| device.gpu.index).ok_or_else(unknown)
        })
        .collect()
}

fn list(inventory: &Inventory, strategy: MigStrategy) -> ListAndWatchResponse {
    let devices = offered(inventory, strategy).map(|device| Device {
        id: device.gpu.uuid.to_string(),
        health: if device.health.is_healthy() { HEALTHY } else { UNHEALTHY }.to_owned(),
        topology: device
            .gpu
            .numa_node
            .map(|node| TopologyInfo { nodes: vec![NumaNode { id: i64::from(node) }] }),
    });
    ListAndWatchResponse { devices: devices.collect() }
}

/// Counts a stream as long as it lives.
struct Listening(Arc<Inner>);

impl Listening {
    fn new(inner: Arc<Inner>) -> Self {
        inner.listeners.send_modify(|count| *count += 1);
        Self(inner)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.listeners.send_modify(|count| *count = count.saturating_sub(1));
    }
}

#[tonic::async_trait]
impl DevicePlugin for Plugin {
    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(options()))
    }

    type ListAndWatchStream = Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let listening = Listening::new(self.0.clone());
        let strategy = self.0.strategy;
        let lists =
            WatchStream::new(self.0.inventory.clone()).map(move |inventory| list(&inventory, strategy));
        // Not every change of the inventory is one of the list.
        let mut last = None;
        let news = lists.filter_map(move |list| {
            let news = (last.as_ref() != Some(&list)).then(|| list.clone());
            last = Some(list);
            std::future::ready(news)
        });
        Ok(Response::new(Box::pin(news.map(move |list| {
            let _alive = &listening;
            Ok(list)
        }))))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let inventory = self.0.inventory.borrow().clone();
        let (mut responses, mut taken) = (Vec::new(), BTreeSet::new());
        for container in &request.into_inner().container_requests {
            match self.preferred(container, &taken).await {
                Ok(response) => {
                    let ids = response.device_i_ds.iter().filter_map(|id| inventory.by_id(id));
                    taken.extend(ids.map(|device| device.gpu.index));
                    responses.push(response);
                }
                Err(status) => return self.counted("preferred_allocation", Err(status)),
            }
        }
        Ok(Response::new(PreferredAllocationResponse { container_responses: responses }))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let inventory = self.0.inventory.borrow().clone();
        let requests = request.into_inner().container_requests;
        let mut given = BTreeSet::new();
        let answer = requests
            .iter()
            .map(|container| {
                let mut gpus = allocation::resolve_ids(&container.devices_ids, &inventory, &mut given)?;
                if self.0.planted.is(Bug::TellWrongDevices) {
                    gpus = inventory.devices().iter().map(|device| &device.gpu).take(gpus.len()).collect();
                }
                Ok(allocation::container_response(&gpus, &self.0.response))
            })
            .collect::<Result<Vec<_>, allocation::AllocateError>>()
            .map(|responses| {
                responses.iter().for_each(|_| self.0.metrics.allocated());
                AllocateResponse { container_responses: responses }
            })
            .map_err(|error| Status::invalid_argument(error.to_string()));
        self.counted("allocate", answer)
    }

    async fn pre_start_container(
        &self,
        _: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        Ok(Response::new(PreStartContainerResponse {}))
    }
}

/// What the kubelet is told to ask for.
pub(crate) fn options() -> DevicePluginOptions {
    DevicePluginOptions { pre_start_required: false, get_preferred_allocation_available: true }
}
