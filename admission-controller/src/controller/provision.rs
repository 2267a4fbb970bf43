//! Requests for nodes: made, followed and cleaned up.

use crds::names::kueue;
use crds::reasons::admission_check::active;
use crds::reasons::event as reasons;
use crds::reasons::queue::ACTIVE;
use crds::reasons::workload as tokens;
use crds::view::admission_check::AdmissionCheck;
use crds::view::provisioning::{PodTemplateMeta, ProvisioningRequest, WholeWorkload};
use crds::view::workload::Workload;
use kit::events::Severity;
use kit::patch::{self, Subresource, Target, WriteError};
use kit::writes::Priority;
use kube::Api;
use kube::core::Status;
use kube::core::response::reason;
use quota_engine::Uid;
use serde_json::{Value, json};

use super::Controller;
use super::pump::{About, Answer, Before, Op, target, text};
use super::world::Unit;
use crate::provisioning::{self, Submission};
use crate::status::{self, Change};
use crate::words;

impl Controller {
    /// Does what the checks of a workload that ask for nodes need next.
    pub(super) fn provision(&mut self, unit: &Unit, workload: &Workload) -> bool {
        let (finished, evicted) = (workload.holds(tokens::FINISHED), workload.holds(tokens::EVICTED));
        let requests = self.world.requests_of(workload);
        if finished || evicted {
            let first = requests.first().map(|request| (*request).clone());
            return first.is_some_and(|request| self.delete_request(unit, workload, &request));
        }
        if !workload.holds(tokens::QUOTA_RESERVED) || self.is_refused(unit, &self.versions_of(unit, workload))
        {
            return false;
        }
        let now = self.ctx.clock.now();
        let mut states = workload.status.admission_checks.clone();
        let (mut used, mut next) = (Vec::new(), None);
        for state in &mut states {
            let Some(check) = self.world.check(&state.name.as_str().into()) else { continue };
            if !provisioning::is_ours(check) {
                continue;
            }
            let config = self.world.provisioning_config(check).ok();
            let current = config.and_then(|one| provisioning::current(workload, &state.name, one, &requests));
            *state = provisioning::answer(state, workload, config, current, now);
            used.extend(current.map(|(request, _)| request.metadata.uid.clone()));
            if let (None, Some(config)) = (&next, config) {
                let attempt = provisioning::next_attempt(state, workload, config, current);
                next = attempt.map(|attempt| (state.name.clone(), attempt, config.clone()));
            }
        }
        if states != workload.status.admission_checks {
            self.tell_states(workload, &states);
            let body = status::listed(workload, &states, now);
            self.patch_workload(unit, workload, body, Subresource::Status, Priority::Normal, None);
            return true;
        }
        let unused = requests.iter().find(|request| !used.contains(&request.metadata.uid));
        if let Some(unused) = unused.map(|request| (*request).clone()) {
            return self.delete_request(unit, workload, &unused);
        }
        let Some((check, attempt, config)) = next else { return false };
        let name = workload.metadata.name.as_deref().unwrap_or_default();
        let request = provisioning::request_name(name, &check, attempt);
        self.create_request(unit, workload, (&check, &request), config);
        true
    }

    fn tell_states(&self, workload: &Workload, states: &[crds::view::workload::AdmissionCheckState]) {
        for (before, after) in workload.status.admission_checks.iter().zip(states) {
            if before.state != after.state {
                let note = format!(
                    "check {} went from {:?} to {:?}: {}",
                    after.name, before.state, after.state, after.message
                );
                self.about_workload(workload, Severity::Normal, reasons::ADMISSION_CHECK_UPDATED, &note);
            }
        }
    }

    /// Asks for nodes: templates first, then the request, which takes the templates over. Done again it finds what is there.
    fn create_request(
        &mut self,
        unit: &Unit,
        workload: &Workload,
        (check, request): (&str, &str),
        config: crds::view::provisioning::ProvisioningRequestConfig,
    ) {
        let namespace = text(workload.metadata.namespace.as_ref());
        let client = self.ctx.clients.write.clone();
        let (view, flavors, name) =
            (workload.clone(), self.world.flavors_by_name.clone(), request.to_owned());
        let op = self.op_of_request(unit, workload, Some(check));
        let send = move || {
            let (client, namespace, name) = (client.clone(), namespace.clone(), name.clone());
            let (view, flavors, config) = (view.clone(), flavors.clone(), config.clone());
            async move {
                let workloads = Api::<WholeWorkload>::namespaced(client.clone(), &namespace);
                let whole = workloads.get_opt(&text(view.metadata.name.as_ref())).await?;
                let whole = whole.filter(|whole| whole.metadata.uid == view.metadata.uid);
                let whole = whole.ok_or(WriteError::Gone)?;
                let asked = provisioning::submission(&view, &whole.spec, &config, &name, &flavors);
                submit(client, &namespace, &asked).await
            }
        };
        self.submit(unit, Priority::Normal, op, send);
    }

    /// Takes a request that was made, and tells of it.
    pub(super) fn announce_request(&mut self, request: ProvisioningRequest) {
        let owner = super::world::controller_of(&request.metadata).map(|owner| Uid::from(owner.uid.as_str()));
        let workload = owner.and_then(|uid| self.world.workloads.get(&uid));
        if let Some(workload) = workload {
            let note = format!("ProvisioningRequest {} was made", text(request.metadata.name.as_ref()));
            self.about_workload(&workload, Severity::Normal, reasons::PROVISIONING_REQUEST_CREATED, &note);
        }
        self.world.take_request_answer(request);
    }

    fn delete_request(&mut self, unit: &Unit, workload: &Workload, request: &ProvisioningRequest) -> bool {
        if request.metadata.deletion_timestamp.is_some() {
            return false;
        }
        let versions = format!("request {}", text(request.metadata.uid.as_ref()));
        if self.is_refused(unit, &versions) {
            return false;
        }
        // The watch tells when it is gone; until then it is not deleted again.
        self.remember_refused(unit, versions, super::CONFLICT_DELAY);
        let namespace = text(request.metadata.namespace.as_ref());
        let api = Api::<ProvisioningRequest>::namespaced(self.ctx.clients.write.clone(), &namespace);
        let target = target(&request.metadata);
        let op = self.op_of_request(unit, workload, None);
        self.submit(unit, Priority::Normal, op, move || {
            let (api, target) = (api.clone(), target.clone());
            async move {
                match patch::delete(&api, &target, None).await {
                    Ok(()) | Err(WriteError::Gone) => Ok(Answer::Nothing),
                    Err(error) => Err(error),
                }
            }
        });
        true
    }

    fn op_of_request(&self, unit: &Unit, workload: &Workload, check: Option<&str>) -> Op {
        let about = About::Request {
            namespace: text(workload.metadata.namespace.as_ref()),
            name: text(workload.metadata.name.as_ref()),
            check: check.map(str::to_owned),
        };
        let before = Before::Workload(Box::new(workload.clone()));
        Op { before, ..Op::new(about, self.versions_of(unit, workload)) }
    }

    /// Tells the owner of a workload that no nodes can be asked for, and says so in the state of the check that asks.
    pub(super) fn request_refused(&mut self, unit: &Unit, op: Op, words: &str) {
        let About::Request { namespace, name, check } = &op.about else { return };
        self.remember_refused(unit, op.versions, super::REFUSED_DELAY);
        let Some(workload) = self.world.workload_named(namespace, name) else { return };
        self.about_workload(&workload, Severity::Warning, reasons::FAILED_CREATE, words);
        let (mut states, now) = (workload.status.admission_checks.clone(), self.ctx.clock.now());
        let message = words::truncated(format!("no nodes can be asked for: {words}"));
        let state = states.iter_mut().find(|state| Some(&state.name) == check.as_ref());
        let Some(state) = state.filter(|state| state.message != message) else { return };
        (state.message, state.last_transition_time) = (message, Some(status::whole_second(now)));
        let body = status::listed(&workload, &states, now);
        self.patch_workload(unit, &workload, body, Subresource::Status, Priority::Normal, None);
    }

    /// Whether nodes can be asked for by this check, as its status has to say it; `None` where it says so.
    pub(super) fn provisioning_status(&self, check: &AdmissionCheck) -> Option<Value> {
        if !provisioning::is_ours(check) || check.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let change = match self.world.provisioning_config(check) {
            Ok(_) => Change::new(ACTIVE, true, active::ACTIVE, "nodes are asked of an autoscaler"),
            Err(words) => Change::new(ACTIVE, false, active::BAD_PARAMETERS_REF, words),
        };
        let (generation, now) = (check.metadata.generation, self.ctx.clock.now());
        if status::is_said(&check.status.conditions, &change, generation) {
            return None;
        }
        let conditions = status::merged(&check.status.conditions, &[change], generation, now);
        Some(json!({ "status": { "conditions": conditions } }))
    }
}

async fn submit(client: kube::Client, namespace: &str, asked: &Submission) -> Result<Answer, WriteError> {
    let templates = Api::<PodTemplateMeta>::namespaced(client.clone(), namespace);
    let requests = Api::<ProvisioningRequest>::namespaced(client, namespace);
    let mut made = Vec::new();
    for template in &asked.templates {
        made.push(create_or_get(&templates, template).await?);
    }
    let request: ProvisioningRequest =
        create_or_get(&requests, &asked.request).await.map_err(refused_if_not_served)?;
    let owner = json!({ "metadata": { "ownerReferences": [{
        "apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest",
        "name": request.metadata.name, "uid": request.metadata.uid,
        "controller": true, "blockOwnerDeletion": true,
    }]}});
    for template in made {
        let target = Target::new(text(template.metadata.name.as_ref()), text(template.metadata.uid.as_ref()));
        let _owned: PodTemplateMeta =
            patch::merge(&templates, &target, owner.clone(), Subresource::Main).await?;
    }
    Ok(Answer::Request(Box::new(request)))
}

/// The Workload and the namespace were there a moment ago: what is not there is the kind, and the Workload need not be read again.
fn refused_if_not_served(error: WriteError) -> WriteError {
    match error {
        WriteError::Gone => {
            let words =
                "ProvisioningRequests (autoscaling.x-k8s.io/v1) are not served; install their definition";
            WriteError::Refused(Status::failure(words, reason::NOT_FOUND).with_code(404).boxed())
        }
        error => error,
    }
}

/// What is there already was made by an earlier try.
async fn create_or_get<K>(api: &Api<K>, object: &Value) -> Result<K, WriteError>
where
    K: kube::Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    match patch::create::<K, K>(api, object).await {
        Err(WriteError::Conflict(words)) => {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let there = api.get_opt(name).await?;
            let ours = |there: &K| {
                there.meta().labels.as_ref().is_some_and(|labels| labels.contains_key(kueue::MANAGED))
            };
            there.filter(ours).ok_or(WriteError::Conflict(words))
        }
        answer => answer,
    }
}
