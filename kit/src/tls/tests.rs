use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Mutex;

use axum::Router;
use axum::routing::get;
use kube::client::Body;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::http::{Listen, publish};
use crate::test_support::context_with;

/// A server that keeps one Secret, and does not have the namespace `nowhere`.
fn client(store: &Arc<Mutex<Option<Value>>>) -> kube::Client {
    let store = store.clone();
    let service = tower::service_fn(move |request: ::http::Request<Body>| {
        let store = store.clone();
        async move {
            let (head, body) = request.into_parts();
            let bytes = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
            let body: Option<Value> = serde_json::from_slice(&bytes).ok();
            let mut store = store.lock().unwrap();
            let conflict = (409, json!({"kind": "Status", "code": 409}));
            let (code, answer) = match (head.method.as_str(), store.clone(), body) {
                ("GET", Some(secret), _) => (200, secret),
                ("GET", None, _) => (404, json!({"kind": "Status", "code": 404})),
                ("POST", ..) if head.uri.path().contains("/nowhere/") => {
                    (404, json!({"kind": "Status", "code": 404}))
                }
                ("POST", None, Some(mut secret)) => {
                    secret["metadata"]["resourceVersion"] = json!("1");
                    secret["metadata"]["uid"] = json!("u");
                    *store = Some(secret.clone());
                    (201, secret)
                }
                ("PATCH", Some(mut secret), Some(patch)) => {
                    if secret["metadata"]["resourceVersion"] != patch["metadata"]["resourceVersion"] {
                        conflict
                    } else {
                        secret["data"] = patch["data"].clone();
                        secret["metadata"]["resourceVersion"] = json!("2");
                        *store = Some(secret.clone());
                        (200, secret)
                    }
                }
                _ => conflict,
            };
            let answer = Body::from(answer.to_string().into_bytes());
            Ok::<_, Infallible>(::http::Response::builder().status(code).body(answer).unwrap())
        }
    });
    kube::Client::new(service, "default")
}

/// Makes the stored certificates look older.
fn age(store: &Mutex<Option<Value>>, seconds: i64) {
    let mut store = store.lock().unwrap();
    let state = &mut store.as_mut().unwrap()["data"][STATE_KEY];
    let mut generations: Value =
        serde_json::from_slice(&STANDARD.decode(state.as_str().unwrap()).unwrap()).unwrap();
    for key in ["made", "serveFrom"] {
        let time = generations[0][key].as_i64().unwrap();
        generations[0][key] = json!(time - seconds);
    }
    *state = json!(STANDARD.encode(generations.to_string()));
}

fn settings() -> Settings {
    Settings { namespace: "ns".into(), secret: "cert".into(), service: "hooks".into() }
}

async fn ask(address: SocketAddr, bundle: &str, name: &str) -> std::io::Result<String> {
    let mut roots = rustls::RootCertStore::empty();
    for cert in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(cert.unwrap()).unwrap();
    }
    let config = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = tokio::net::TcpStream::connect(address).await?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(ServerName::try_from(name.to_owned()).unwrap(), stream).await?;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::test]
async fn replicas_share_one_secret_and_serve_what_the_bundle_trusts() {
    let store = Arc::default();
    // The certificates must be valid for rustls, which reads the machine's clock.
    let mut ctx = context_with(client(&store));
    ctx.clock = crate::Clock::System;
    let first = Certificates::start(&ctx, settings()).await.unwrap();
    let second = Certificates::start(&ctx, settings()).await.unwrap();
    let bundle = second.ca_bundle().borrow().clone();
    assert_eq!(*first.ca_bundle().borrow(), bundle);
    let listen = Listen::Tls(SocketAddr::from(([127, 0, 0, 1], 0)), first.server_config().unwrap());
    let router = Router::new().route("/", get(|| async { "hello" }));
    let address = publish(&ctx, "ns", "hooks", &listen, router).await.unwrap().unwrap();
    let answer = ask(address, &bundle, "hooks.ns.svc").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello"), "{answer}");
    assert!(ask(address, &bundle, "other.ns.svc").await.is_err());
    ctx.tasks.stop();
    ctx.tasks.ended().await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_not_there_is_named() {
    let ctx = context_with(client(&Arc::default()));
    let settings = Settings { namespace: "nowhere".into(), ..settings() };
    let mut keeper = Keeper {
        api: Api::namespaced(ctx.clients.write.clone(), &settings.namespace),
        ctx,
        settings,
        served: Arc::new(Served(RwLock::default())),
        publish: watch::channel(String::new()).0,
    };
    let error = keeper.refresh().await.unwrap_err();
    assert!(matches!(&error, TlsError::NoNamespace(secret) if secret == "nowhere/cert"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_rotation_reaches_running_replicas_and_a_spoilt_secret_is_made_anew() {
    let store: Arc<Mutex<Option<Value>>> = Arc::default();
    let ctx = context_with(client(&store));
    let certificates = Certificates::start(&ctx, settings()).await.unwrap();
    let before = certificates.served.0.read().unwrap().clone().unwrap();
    let mut bundle = certificates.ca_bundle();
    assert_eq!(bundle.borrow_and_update().matches("BEGIN CERTIFICATE").count(), 1);
    age(&store, 61 * 86_400);
    bundle.changed().await.unwrap();
    assert_eq!(bundle.borrow_and_update().matches("BEGIN CERTIFICATE").count(), 2);
    assert_eq!(certificates.served.0.read().unwrap().clone().unwrap().cert, before.cert);
    ctx.clock.sleep(Duration::from_secs(2 * 3_600)).await;
    assert_ne!(certificates.served.0.read().unwrap().clone().unwrap().cert, before.cert);

    store.lock().unwrap().as_mut().unwrap()["data"][STATE_KEY] = json!(STANDARD.encode("nonsense"));
    bundle.changed().await.unwrap();
    assert_eq!(bundle.borrow_and_update().matches("BEGIN CERTIFICATE").count(), 1);
}
