//! The device plugin's calls, made by hand: what the kubelet may ask, and what it never should.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::BTreeSet;

use fake_nvml::Fault;
use proto::deviceplugin::device_plugin_client::DevicePluginClient;
use proto::deviceplugin::{
    AllocateRequest, ContainerAllocateRequest, ContainerPreferredAllocationRequest, Empty,
    PreferredAllocationRequest,
};
use support::{Bench, pass, set};
use tonic::transport::Channel;
use tonic::{Code, Status};

struct Caller {
    bench: Bench,
    client: DevicePluginClient<Channel>,
    ids: Vec<String>,
}

impl Caller {
    async fn new(profile: &str) -> Self {
        let bench = Bench::new(profile).await;
        let own = bench.kubelet.spec().plugin_directory().join("nvidia-gpu.sock");
        let channel = bench.kubelet.sockets().connect(&own).await.unwrap();
        let ids = bench.world.read(|world| world.all_gpus().iter().map(|gpu| gpu.uuid.clone()).collect());
        Self { bench, client: DevicePluginClient::new(channel), ids }
    }

    fn named(&self, indices: &[u32]) -> Vec<String> {
        indices.iter().map(|index| self.ids[*index as usize].clone()).collect()
    }

    /// Asks for several containers at once: what is available, what must be included, how many.
    async fn prefer(
        &mut self,
        containers: &[(Vec<String>, &[u32], i32)],
    ) -> Result<Vec<BTreeSet<u32>>, Status> {
        let container_requests = containers
            .iter()
            .map(|(available, must, size)| ContainerPreferredAllocationRequest {
                available_device_i_ds: available.clone(),
                must_include_device_i_ds: self.named(must),
                allocation_size: *size,
            })
            .collect();
        let request = PreferredAllocationRequest { container_requests };
        let answer = self.client.get_preferred_allocation(request).await?.into_inner();
        let index =
            |id: &String| u32::try_from(self.ids.iter().position(|known| known == id).unwrap()).unwrap();
        let sets = answer.container_responses.iter().map(|one| one.device_i_ds.iter().map(index).collect());
        Ok(sets.collect())
    }

    /// The containers' `NVIDIA_VISIBLE_DEVICES`.
    async fn allocate(&mut self, containers: &[Vec<String>]) -> Result<Vec<String>, Status> {
        let container_requests =
            containers.iter().map(|ids| ContainerAllocateRequest { devices_ids: ids.clone() }).collect();
        let answer = self.client.allocate(AllocateRequest { container_requests }).await?.into_inner();
        Ok(answer.container_responses.iter().map(|one| one.envs["NVIDIA_VISIBLE_DEVICES"].clone()).collect())
    }
}

#[tokio::test(start_paused = true)]
async fn options_and_list() {
    let mut caller = Caller::new("8xA100").await;
    let options = caller.client.get_device_plugin_options(Empty {}).await.unwrap().into_inner();
    assert!(options.get_preferred_allocation_available && !options.pre_start_required);
    let mut lists = caller.client.list_and_watch(Empty {}).await.unwrap().into_inner();
    let first = lists.message().await.unwrap().unwrap();
    let numa: Vec<i64> =
        first.devices.iter().map(|device| device.topology.as_ref().unwrap().nodes[0].id).collect();
    assert_eq!(numa, [3, 3, 1, 1, 7, 7, 5, 5]);
    assert!(first.devices.iter().all(|device| device.health == "Healthy" && device.id.len() <= 63));
    caller.bench.world.inject(Fault::Xid { gpu: 4, code: 79 });
    let second = lists.message().await.unwrap().unwrap();
    assert_eq!(second.devices.iter().filter(|device| device.health == "Unhealthy").count(), 1);
    assert_eq!(second.devices[4].health, "Unhealthy");
    assert_eq!(second.devices.len(), 8);
}

#[tokio::test(start_paused = true)]
async fn preferred_sets_follow_the_wiring_and_what_must_be_in_them() {
    let mut caller = Caller::new("4xL40S").await;
    let all = caller.named(&[0, 1, 2, 3]);
    assert_eq!(caller.prefer(&[(all.clone(), &[], 2)]).await.unwrap(), [set(&[0, 1])]);
    assert_eq!(caller.prefer(&[(all.clone(), &[2], 2)]).await.unwrap(), [set(&[2, 3])]);
    assert_eq!(caller.prefer(&[(all.clone(), &[0, 2], 2)]).await.unwrap(), [set(&[0, 2])]);
    let two = [(all.clone(), &[][..], 2), (all.clone(), &[][..], 2)];
    assert_eq!(caller.prefer(&two).await.unwrap(), [set(&[0, 1]), set(&[2, 3])], "containers do not share");
    assert_eq!(caller.prefer(&[(all.clone(), &[], 0)]).await.unwrap(), [set(&[])]);
    assert_eq!(caller.prefer(&[]).await.unwrap(), []);
    let gone = [all.clone(), vec!["GPU-gone".to_owned()]].concat();
    assert_eq!(
        caller.prefer(&[(gone, &[], 2)]).await.unwrap(),
        [set(&[0, 1])],
        "an id the kubelet still has"
    );

    for (available, must, size, says) in [
        (caller.named(&[0]), &[][..], 2, "2 devices are asked for and 1 are available"),
        (all.clone(), &[0, 1, 2], 2, "3 devices must be included"),
        (caller.named(&[0, 1]), &[3], 1, "device 3 must be included"),
        (all.clone(), &[], -1, "-1 devices"),
        (all.clone(), &[], i32::MAX, "asked for"),
    ] {
        let refused = caller.prefer(&[(available, must, size)]).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains(says), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_gpu_that_fell_ill_a_moment_ago_is_preferred_by_nobody_who_has_a_choice() {
    let mut caller = Caller::new("4xL40S").await;
    caller.bench.world.inject(Fault::Xid { gpu: 0, code: 79 });
    pass(1).await;
    let all = caller.named(&[0, 1, 2, 3]);
    assert_eq!(caller.prefer(&[(all.clone(), &[], 2)]).await.unwrap(), [set(&[2, 3])]);
    assert_eq!(
        caller.prefer(&[(all.clone(), &[0], 2)]).await.unwrap(),
        [set(&[0, 1])],
        "the kubelet insists"
    );
    assert_eq!(caller.prefer(&[(all, &[], 4)]).await.unwrap(), [set(&[0, 1, 2, 3])], "no choice");
}

#[tokio::test(start_paused = true)]
async fn allocate_gives_each_container_its_own_and_refuses_the_rest_by_name() {
    let mut caller = Caller::new("4xL40S").await;
    let (pair, single) = (caller.named(&[3, 1]), caller.named(&[0]));
    let given = caller.allocate(&[pair.clone(), single.clone()]).await.unwrap();
    assert_eq!(given, [format!("{},{}", pair[1], pair[0]), single[0].clone()]);
    assert_eq!(caller.allocate(&[]).await.unwrap(), [""; 0]);
    caller.bench.world.inject(Fault::Xid { gpu: 2, code: 79 });
    pass(1).await;
    let ill = caller.named(&[2]);
    for (containers, says) in [
        (vec![vec!["GPU-0".to_owned()]], "`GPU-0` is unknown"),
        (vec![vec![String::new()]], "`` is unknown"),
        (vec![vec![single[0].clone(), single[0].clone()]], "asked for twice"),
        (vec![single.clone(), single.clone()], "asked for twice"),
        (vec![ill], "unhealthy (Xid)"),
    ] {
        let refused = caller.allocate(&containers).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains(says), "{refused}");
    }
}
