//! The client over HTTP: the tests that also run on the embedded host and inside a canister.

use crate::net::Net;
use coppice_client_tests::{NAMES, ROLES, init_arg, run};
use ic_agent::Agent;
use ic_agent::identity::BasicIdentity;
use ic_coppice_client::{CallError, Client, OverHttp, Retry};
use ic_coppice_interface::Grant;

/// Creates a client of a canister behind a gateway, with its own runtime.
fn over_http(net: &Net) -> (tokio::runtime::Runtime, Client<OverHttp>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let identity = BasicIdentity::from_pem(std::fs::read(net.path("key.pem")).unwrap().as_slice()).unwrap();
    let agent = Agent::builder().with_url(net.gateway.url()).with_identity(identity).build().unwrap();
    runtime.block_on(agent.fetch_root_key()).unwrap();
    (runtime, Client::new(OverHttp::new(agent, net.canister)))
}

#[test]
fn client_tests_pass_over_http() {
    let net = Net::with(init_arg);
    let (runtime, client) = over_http(&net);
    runtime.block_on(async {
        for role in ROLES {
            client.grant_role(&Grant { principal: net.principal, role }).await.unwrap();
        }
        for name in NAMES {
            run(name, &client, net.principal).await;
        }
        assert!(client.health().await.unwrap().healthy);
    });
}

#[test]
fn failing_gateway_may_be_retried_and_futures_are_send() {
    let net = Net::start();
    let (runtime, client) = over_http(&net);
    fn sent<F: Future<Output: Send> + Send + 'static>(runtime: &tokio::runtime::Runtime, call: F) -> F::Output {
        runtime.block_on(async { tokio::spawn(call).await.unwrap() })
    }
    net.gateway.fail(u64::MAX);
    let failing = client.clone();
    let error: CallError = sent(&runtime, async move { failing.health().await }).unwrap_err();
    assert_eq!(error.retry(), Retry::Again, "{error:?}");
    net.gateway.fail(0);
    let healthy = client.clone();
    assert!(sent(&runtime, async move { healthy.health().await }).unwrap().healthy);
}
