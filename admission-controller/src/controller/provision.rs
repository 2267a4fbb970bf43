//! Requests for nodes: made, followed and cleaned up.

use crds::reasons::admission_check::active;
use crds::reasons::event as reasons;
use crds::reasons::queue::ACTIVE;
use crds::reasons::workload as tokens;
use crds::view::admission_check::AdmissionCheck;
use crds::view::provisioning::{PodTemplateMeta, ProvisioningRequest, WholeWorkload};
use crds::view::workload::{AdmissionCheckState, CheckState, Workload};
use futures::future::try_join_all;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kit::events::Severity;
use kit::patch::{self, Subresource, Target, WriteError};
use kit::writes::Priority;
use kube::Api;
use kube::core::Status;
use kube::core::response::reason;
use model::planted::Bug;
use quota_engine::{Outcome, Uid};
use serde_json::{Value, json};

use super::Controller;
use super::pump::{About, Answer, Before, Op, target, text};
use super::refused::Aim;
use super::world::{Unit, controller_of};
use crate::provisioning::{self, Submission};
use crate::status::{self, Change};
use crate::{checks, input, placement, words};

const NOT_SERVED: &str =
    "ProvisioningRequests (autoscaling.x-k8s.io/v1) are not served; install their definition";

impl Controller {
    /// Does what the checks of a workload that ask for nodes need next.
    pub(super) fn provision(&mut self, unit: &Unit, workload: &Workload) -> bool {
        let over = workload.holds(tokens::FINISHED) || workload.holds(tokens::EVICTED);
        if over || !workload.holds(tokens::QUOTA_RESERVED) {
            self.take_back(unit, workload);
            return self.busy.contains_key(unit);
        }
        let (requests, now) = (self.world.requests_of(workload), self.ctx.clock.now());
        let name = workload.metadata.name.as_deref().unwrap_or_default();
        let mut states = workload.status.admission_checks.clone();
        let (mut used, mut next) = (Vec::new(), None);
        for state in &mut states {
            let Some(check) = self.world.check(&state.name.as_str().into()) else { continue };
            if !provisioning::is_ours(check) {
                continue;
            }
            let is_its =
                |request: &str| provisioning::attempt(request, name, &state.name, i32::MAX).is_some();
            let its = requests.iter().map(|request| &request.metadata);
            let its: Vec<_> = its.filter(|one| one.name.as_deref().is_some_and(is_its)).collect();
            if provisioning::config_name(check).is_err() {
                // What it asked for before stays as it is until it says again what to go by.
                used.extend(its.into_iter().map(|one| one.uid.clone()));
                continue;
            }
            let config = self.world.provisioning_config(check).ok();
            let current = config.and_then(|one| provisioning::current(workload, &state.name, one, &requests));
            *state = provisioning::answer(state, workload, config, current, now);
            if self.config.planted.is(Bug::TakeNodesForGranted) && current.is_some() {
                state.state = CheckState::Ready;
            }
            let current_uid = current.and_then(|(request, _)| request.metadata.uid.clone());
            // It asks for nothing more until what it does not use any more is gone.
            let is_clean = its.iter().all(|one| one.uid == current_uid);
            used.push(current_uid);
            if let (None, Some(config), true) = (&next, config, is_clean)
                && let Some(attempt) = provisioning::next_attempt(state, workload, config, current)
            {
                let request = provisioning::request_name(name, &state.name, attempt);
                let is_refused = self.is_refused(unit, Aim::Other, &creation_of(&request));
                next = (!is_refused).then(|| (state.name.clone(), request, config.clone()));
            }
        }
        if states != workload.status.admission_checks {
            if self.is_status_refused(unit, workload) {
                return false;
            }
            self.tell_states(workload, &states);
            let body = status::listed(workload, &states, now);
            self.patch_workload(unit, workload, body, Subresource::Status, Priority::Normal, None);
            return true;
        }
        let unused = requests.iter().filter(|request| !used.contains(&request.metadata.uid));
        let unused: Vec<_> = unused.map(|request| (*request).clone()).collect();
        if unused.iter().any(|unused| self.delete_request(unit, workload, unused)) {
            return true;
        }
        let Some((check, request, config)) = next else { return false };
        self.create_request(unit, workload, (&check, &request), config);
        true
    }

    /// Ends what was asked for with quota, nodes and places, and what came of it. Tells whether anything is left of that: the next
    /// reservation would take it for its own.
    pub(super) fn take_back(&mut self, unit: &Unit, workload: &Workload) -> bool {
        let keeps = self.config.planted.is(Bug::KeepNodeRequests);
        let requests = self.world.requests_of(workload);
        let left: Vec<ProvisioningRequest> =
            requests.into_iter().filter(|_| !keeps).map(|request| (*request).clone()).collect();
        if !left.is_empty() {
            let _begun = left.iter().any(|request| self.delete_request(unit, workload, request));
            return true;
        }
        if workload.holds(tokens::FINISHED) || workload.holds(tokens::QUOTA_RESERVED) {
            return false;
        }
        let (mut states, now) = (workload.status.admission_checks.clone(), self.ctx.clock.now());
        for state in &mut states {
            let is_for_quota = |check| provisioning::is_ours(check) || placement::is_placement(check);
            if self.world.check(&state.name.as_str().into()).is_some_and(is_for_quota) {
                *state = checks::lapsed(state, now);
            }
        }
        if states == workload.status.admission_checks {
            return false;
        }
        if !self.is_status_refused(unit, workload) {
            self.tell_states(workload, &states);
            let body = status::listed(workload, &states, now);
            self.patch_workload(unit, workload, body, Subresource::Status, Priority::Normal, None);
        }
        true
    }

    fn tell_states(&self, workload: &Workload, states: &[AdmissionCheckState]) {
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
        let client = self.ctx.clients.write.clone();
        let (view, flavors, name) =
            (workload.clone(), self.world.flavors_by_name.clone(), request.to_owned());
        let op = self.op_of_request(workload, Some(check), creation_of(request));
        let send = move || {
            let (client, name) = (client.clone(), name.clone());
            let (view, flavors, config) = (view.clone(), flavors.clone(), config.clone());
            async move {
                let namespace = text(view.metadata.namespace.as_ref());
                let workloads = Api::<WholeWorkload>::namespaced(client.clone(), &namespace);
                let whole = workloads.get_opt(&text(view.metadata.name.as_ref())).await?;
                let whole = whole.filter(|whole| whole.metadata.uid == view.metadata.uid);
                let whole = whole.ok_or(WriteError::Gone)?;
                let asked = provisioning::submission(&view, &whole.spec, &config, &name, &flavors);
                submit(client, &view, &name, &asked).await
            }
        };
        self.submit(unit, Priority::Normal, op, send);
    }

    /// Takes a request that was made, and tells of it.
    pub(super) fn announce_request(&mut self, request: ProvisioningRequest) {
        let owner = controller_of(&request.metadata).map(|owner| Uid::from(owner.uid.as_str()));
        let workload = owner.and_then(|uid| self.world.workloads.get(&uid));
        if let Some(workload) = workload {
            let note = format!("ProvisioningRequest {} was made", text(request.metadata.name.as_ref()));
            self.about_workload(&workload, Severity::Normal, reasons::PROVISIONING_REQUEST_CREATED, &note);
        }
        self.world.take_request_answer(request);
    }

    fn delete_request(&mut self, unit: &Unit, workload: &Workload, request: &ProvisioningRequest) -> bool {
        let uid = input::uid(&request.metadata);
        // Told apart from the versions of steps: it is the request that cannot be deleted.
        let versions = format!("request {uid}");
        if self.is_refused(unit, Aim::Other, &versions) {
            return false;
        }
        let namespace = text(request.metadata.namespace.as_ref());
        let api = Api::<ProvisioningRequest>::namespaced(self.ctx.clients.write.clone(), &namespace);
        let target = target(&request.metadata);
        let op = self.op_of_request(workload, None, versions);
        self.submit(unit, Priority::Normal, op, move || {
            let (api, target, uid) = (api.clone(), target.clone(), uid.clone());
            async move {
                match patch::delete(&api, &target, None).await {
                    Ok(()) | Err(WriteError::Gone) => Ok(Answer::RequestDeleted(uid)),
                    Err(error) => Err(error),
                }
            }
        });
        true
    }

    fn op_of_request(&self, workload: &Workload, check: Option<&str>, versions: String) -> Op {
        let about = About::Request {
            namespace: text(workload.metadata.namespace.as_ref()),
            name: text(workload.metadata.name.as_ref()),
            check: check.map(str::to_owned),
        };
        let before = Before::Workload(Box::new(workload.clone()));
        Op { before, ..Op::new(about, versions) }
    }

    /// Tells the owner of a workload that no nodes can be asked for, and says so in the state of the check that asks.
    pub(super) fn request_refused(&mut self, unit: &Unit, op: Op, words: &str) {
        let About::Request { namespace, name, check } = &op.about else { return };
        self.remember_refused(unit, &op, super::REFUSED_DELAY);
        let Some(workload) = self.world.workload_named(namespace, name) else { return };
        self.about_workload(&workload, Severity::Warning, reasons::FAILED_CREATE, words);
        if check.is_none()
            && let Some(reserve) = self.reserves.remove(&input::uid(&workload.metadata))
        {
            // It would wait for the request for ever, and others for its quota.
            self.engine.written(reserve.id, Outcome::Refused(words.to_owned()));
        }
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
            Ok(_) if !self.world.serves_requests() => {
                Change::new(ACTIVE, false, active::KIND_NOT_SERVED, NOT_SERVED)
            }
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

/// What the creation of a request is remembered by where it is refused: one check's keeps no other from asking, and the workload,
/// which is told of it, asks again no sooner for that.
fn creation_of(request: &str) -> String {
    format!("creation of {request}")
}

async fn submit(
    client: kube::Client,
    workload: &Workload,
    name: &str,
    asked: &Submission,
) -> Result<Answer, WriteError> {
    let namespace = text(workload.metadata.namespace.as_ref());
    let uid = text(workload.metadata.uid.as_ref());
    let templates = Api::<PodTemplateMeta>::namespaced(client.clone(), &namespace);
    let requests = Api::<ProvisioningRequest>::namespaced(client, &namespace);
    // All of it is one attempt, which has to end in its time however many pod sets there are.
    let made = asked.templates.iter().map(|one| make_template(&templates, &requests, one, (&uid, name)));
    let made = try_join_all(made).await?;
    let request = make_request(&requests, &asked.request, (&uid, name)).await?;
    let owner = json!({ "metadata": { "ownerReferences": [{
        "apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest",
        "name": request.metadata.name, "uid": request.metadata.uid,
        "controller": true, "blockOwnerDeletion": true,
    }]}});
    let owned = made.iter().map(async |template: &PodTemplateMeta| {
        let target = Target::new(text(template.metadata.name.as_ref()), text(template.metadata.uid.as_ref()));
        patch::merge::<_, PodTemplateMeta>(&templates, &target, owner.clone(), Subresource::Main).await
    });
    try_join_all(owned).await?;
    Ok(Answer::Request(Box::new(request)))
}

/// Makes a template. One that is there stays where the request is there, too, which was made with it. Otherwise it is left of an
/// earlier try, or of a request that is gone, and may be of other pods or for other nodes: it makes way.
async fn make_template(
    templates: &Api<PodTemplateMeta>,
    requests: &Api<ProvisioningRequest>,
    template: &Value,
    (workload, request): (&str, &str),
) -> Result<PodTemplateMeta, WriteError> {
    let words = match patch::create::<PodTemplateMeta, PodTemplateMeta>(templates, template).await {
        Err(WriteError::Conflict(words)) => words,
        answer => return answer,
    };
    let name = template["metadata"]["name"].as_str().unwrap_or_default();
    let Some(there) = templates.get_opt(name).await? else {
        // The garbage collector was faster.
        return patch::create(templates, template).await;
    };
    // Read after the template: an owner that is not there now will not be there again.
    let made = requests.get_opt(request).await?;
    if made.as_ref().is_some_and(|made| made.metadata.deletion_timestamp.is_some()) {
        return Err(WriteError::Conflict(words));
    }
    let made = made.map(|made| text(made.metadata.uid.as_ref()));
    let is_left = controller_of(&there.metadata).is_some_and(|owner| {
        owner.uid == workload || (owner.kind == "ProvisioningRequest" && owner.name == request)
    });
    match made {
        Some(made) if is_of(&there.metadata, workload) || is_of(&there.metadata, &made) => Ok(there),
        None if is_left => {
            let target = Target::new(name, text(there.metadata.uid.as_ref()));
            match patch::delete(templates, &target, None).await {
                Ok(()) | Err(WriteError::Gone) => patch::create(templates, template).await,
                Err(error) => Err(error),
            }
        }
        _ => Err(WriteError::Conflict(words)),
    }
}

/// Makes a request. One that is there was made by an earlier try, if it is this Workload's.
async fn make_request(
    requests: &Api<ProvisioningRequest>,
    request: &Value,
    (workload, name): (&str, &str),
) -> Result<ProvisioningRequest, WriteError> {
    match patch::create::<ProvisioningRequest, ProvisioningRequest>(requests, request).await {
        Err(WriteError::Conflict(words)) => {
            let there = requests.get_opt(name).await?;
            there.filter(|there| is_of(&there.metadata, workload)).ok_or(WriteError::Conflict(words))
        }
        answer => answer.map_err(refused_if_not_served),
    }
}

/// Whether an object belongs to the owner of this uid, and stays.
fn is_of(metadata: &ObjectMeta, owner: &str) -> bool {
    metadata.deletion_timestamp.is_none() && controller_of(metadata).is_some_and(|one| one.uid == owner)
}

/// The Workload and the namespace were there a moment ago: what is not there is the kind, and the Workload need not be read again.
fn refused_if_not_served(error: WriteError) -> WriteError {
    match error {
        WriteError::Gone => {
            WriteError::Refused(Status::failure(NOT_SERVED, reason::NOT_FOUND).with_code(404).boxed())
        }
        error => error,
    }
}
