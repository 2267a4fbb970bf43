//! The HTTP interface: routing, content types, and errors as `Status` objects.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use futures::stream::BoxStream;
use http::{Request, Response, StatusCode, header};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use serde_json::Value;
use tokio_util::task::AbortOnDropHandle;

use crate::cluster::Cluster;
use crate::delete::DeleteOptions;
use crate::error::ApiError;
use crate::faults::{Call, Listing};
use crate::object::to_bytes;
use crate::patch::PatchKind;
use crate::protobuf;
use crate::request::{Query, Target, View};
use crate::store::Verb;
use crate::write::{Caller, UnknownFields};

/// Bodies above this are refused, as a real server does (3 MiB, `MaxRequestBodyBytes`).
const MAX_BODY: usize = 3 * 1024 * 1024;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a response: all at once, or the lines of a watch as they come.
pub enum ResponseBody {
    /// Everything.
    Full(Option<Bytes>),
    /// A watch.
    Stream(BoxStream<'static, Result<Bytes, std::io::Error>>),
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Self::Stream(stream) => {
                stream.as_mut().poll_next(cx).map(|next| next.map(|line| line.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Full(None))
    }
}

/// The API server as a service: give it to `kube::Client::new`, or serve it over a socket.
#[derive(Clone)]
pub struct ApiService {
    cluster: Cluster,
    writer: Arc<str>,
}

impl ApiService {
    pub(crate) fn new(cluster: Cluster, writer: &str) -> Self {
        Self { cluster, writer: writer.into() }
    }
}

impl<B> tower::Service<Request<B>> for ApiService
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { service.answer(request).await })
    }
}

impl ApiService {
    async fn answer<B>(self, request: Request<B>) -> Result<Response<ResponseBody>, BoxError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(Into::into)?.to_bytes();
        let path = parts.uri.path();
        if !crate::discovery::is_resource_path(path) {
            return Ok(match crate::discovery::answer(&self.cluster, path, &parts.headers) {
                Ok(response) => response,
                Err(error) => self.elsewhere(&parts, body, error).await,
            });
        }
        let query = Query::parse(parts.uri.query());
        let mut call = match self.call(&parts.method, path, &query) {
            Ok(call) => call,
            Err(error) => return Ok(self.elsewhere(&parts, body, error).await),
        };
        let faults = self.cluster.faults();
        let ticket = match faults.before(&call.about).await {
            Ok(ticket) => ticket,
            Err(crate::faults::Refusal::Answer(error)) => return Ok(refused(error)),
            Err(crate::faults::Refusal::Broken(error)) => return Err(error.into()),
        };
        call.listing = ticket.listing();
        let about = call.about.clone();
        let delay = ticket.delay();
        let service = self.clone();
        let handling = async move {
            if let Some(delay) = delay {
                service.cluster.0.clock.sleep(delay).await;
            }
            service.dispatch(&call, &query, &parts.headers, body).await.unwrap_or_else(refused)
        };
        let response = match about.verb.is_write() {
            true => self.on_its_own(handling).await?,
            false => handling.await,
        };
        match faults.after(&about, ticket).await {
            Ok(()) => Ok(response),
            Err(crate::faults::Refusal::Answer(error)) => Ok(refused(error)),
            Err(crate::faults::Refusal::Broken(error)) => Err(error.into()),
        }
    }

    /// Handles a call apart from who sent it: a stalled client does not stall the server. One that hangs up, or dies, takes
    /// back what has not been done yet.
    async fn on_its_own<F>(&self, handling: F) -> Result<F::Output, std::io::Error>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let answer = AbortOnDropHandle::new(self.cluster.tasks().spawn(handling)).await;
        answer.ok().flatten().ok_or_else(|| std::io::ErrorKind::ConnectionReset.into())
    }

    /// What is not served here may be served behind an APIService.
    async fn elsewhere(
        &self,
        parts: &http::request::Parts,
        body: Bytes,
        error: ApiError,
    ) -> Response<ResponseBody> {
        let answer = crate::aggregation::pass_on(&self.cluster, &self.writer, parts, body).await;
        answer.unwrap_or_else(|| refused(error))
    }

    fn call(&self, method: &http::Method, path: &str, query: &Query) -> Result<Routed, ApiError> {
        let target = Target::parse(&self.cluster, path)?;
        let verb = target.verb(method, query)?;
        let about = Call {
            writer: self.writer.clone(),
            verb,
            resource: target.resource.id.clone(),
            subresource: target.subresource.clone(),
            namespace: target.namespace_or_empty().into(),
            name: target.name.as_deref().unwrap_or_default().into(),
        };
        Ok(Routed { target, verb, about, listing: Listing::default() })
    }

    async fn dispatch(
        &self,
        call: &Routed,
        query: &Query,
        headers: &http::HeaderMap,
        body: Bytes,
    ) -> Result<Response<ResponseBody>, ApiError> {
        if body.len() > MAX_BODY {
            return Err(ApiError::new(
                413,
                "RequestEntityTooLarge",
                format!("Request entity too large: limit is {MAX_BODY}"),
            ));
        }
        crate::subresources::refuse_streams(&self.cluster, &call.target)?;
        let view = View::negotiate(headers)?;
        let content_type =
            headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let caller = Caller {
            dry_run: query.dry_run()?,
            field_manager: query.get("fieldManager").map(str::to_owned),
            unknown_fields: UnknownFields::parse(query.get("fieldValidation"))?,
            precise: call.verb.is_write() && crate::request::is_precise(&body),
            ..Caller::internal(&self.writer, call.verb)
        };
        let warnings = caller.warnings.clone();
        let mut response = self.perform(call, query, view, content_type, &caller, body).await?;
        for warning in warnings.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let text = format!("299 - {}", Value::from(warning.as_str()));
            if let Ok(value) = header::HeaderValue::from_str(&text) {
                response.headers_mut().append(header::WARNING, value);
            }
        }
        Ok(response)
    }

    async fn perform(
        &self,
        call: &Routed,
        query: &Query,
        view: View,
        content_type: &str,
        caller: &Caller,
        body: Bytes,
    ) -> Result<Response<ResponseBody>, ApiError> {
        let cluster = &self.cluster;
        let target = &call.target;
        match call.verb {
            Verb::Watch => crate::watch::serve(cluster, &self.writer, target, query, view),
            Verb::List => crate::read::list(cluster, target, query, view, call.listing).await,
            Verb::Get if &*target.subresource == "log" => {
                crate::subresources::pod_log(cluster, target, query)
            }
            Verb::Get => crate::read::get(cluster, target, view).await,
            Verb::Create => {
                let body = parse(&body, content_type)?;
                let (code, bytes) = crate::write::post(cluster, caller, target, body).await?;
                Ok(json_response(code, bytes))
            }
            Verb::Update => {
                let body = parse(&body, content_type)?;
                let bytes = crate::write::put(cluster, caller, target, body).await?;
                Ok(json_response(StatusCode::OK, bytes))
            }
            Verb::Patch => {
                let patch = PatchKind::parse(content_type, &body)?;
                let (code, bytes) = crate::write::patch(cluster, caller, target, patch).await?;
                Ok(json_response(code, bytes))
            }
            Verb::Delete | Verb::DeleteCollection => {
                let options = DeleteOptions::parse(&body, content_type, query)?;
                let bytes = crate::delete::serve(cluster, caller, target, options, query).await?;
                Ok(json_response(StatusCode::OK, bytes))
            }
        }
    }
}

struct Routed {
    target: Target,
    verb: Verb,
    about: Call,
    /// How a list is to be made.
    listing: Listing,
}

/// A request body as JSON; YAML and protobuf are accepted where they are declared.
pub(crate) fn parse(body: &[u8], content_type: &str) -> Result<Value, ApiError> {
    if content_type.contains("yaml") {
        let text = std::str::from_utf8(body)
            .map_err(|e| ApiError::bad_request(format!("the body is no UTF-8: {e}")))?;
        return serde_saphyr::from_str(text)
            .map_err(|e| ApiError::bad_request(format!("the object provided is unrecognized: {e}")));
    }
    let media = content_type.split(';').next().unwrap_or_default().trim();
    if media == protobuf::MEDIA_TYPE {
        return protobuf::decode(body);
    }
    if !matches!(media, "" | "application/json") && !media.ends_with("+json") {
        return Err(ApiError::unsupported_media_type(content_type));
    }
    serde_json::from_slice(body).map_err(|e| {
        ApiError::bad_request(format!("the object provided is unrecognized (must be of type JSON): {e}"))
    })
}

/// A JSON response.
pub(crate) fn json_response(code: StatusCode, body: Bytes) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Full(Some(body)));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

/// An error as a response with a `Status` body.
pub(crate) fn refused(error: ApiError) -> Response<ResponseBody> {
    let code = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json_response(code, to_bytes(&error.status()));
    if let Some(seconds) = error.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from(seconds));
    }
    response
}

/// A body that is a stream of lines.
pub(crate) fn stream_response(
    stream: impl Stream<Item = Result<Bytes, std::io::Error>> + Send + 'static,
) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Stream(Box::pin(stream)));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

/// A text body.
pub(crate) fn text_response(text: String) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Full(Some(Bytes::from(text))));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain"));
    response
}
