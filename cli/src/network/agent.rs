//! Over ic-agent: calls that are signed, and answers that are verified.

use super::NetworkArgs;
use crate::canister::{Caller, Client, Transport, Unreachable};
use crate::embedded::Costs;
use crate::site::Site;
use anyhow::{Context, Result, anyhow, bail, ensure};
use candid::Principal;
use ic_agent::agent::RejectCode;
use ic_agent::identity::{AnonymousIdentity, BasicIdentity, Prime256v1Identity, Secp256k1Identity};
use ic_agent::{Agent, AgentError, Identity};
use std::path::Path;
use std::time::{Duration, SystemTime};
use tokio::runtime::Runtime;
use url::Url;

/// Hosts, and those below them, whose root key is known and must not be asked for.
const MAINNET: [&str; 4] = ["icp-api.io", "icp0.io", "ic0.app", "internetcomputer.org"];
/// How often the timer's work is looked at.
const POLL: Duration = Duration::from_secs(2);
/// How often at most: five minutes of the longest usual interval.
const PATIENCE: u32 = 150;

/// A canister on a network.
pub struct Network {
    agent: Agent,
    runtime: Runtime,
    canister: Principal,
    principal: Principal,
    url: String,
}

/// Connects, where a network is named.
pub(super) fn connect(args: &NetworkArgs) -> Result<Option<Client<Network>>> {
    let (Some(url), Some(canister)) = (&args.network, args.canister) else { return Ok(None) };
    ensure!(matches!(url.scheme(), "http" | "https"), "{url} is no URL of a network: http or https");
    let identity = identity(args.identity.as_deref())?;
    let principal = identity.sender().map_err(|why| anyhow!("the identity has no principal: {why}"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let agent = Agent::builder().with_url(url.as_str()).with_boxed_identity(identity).build()?;
    let network = Network { agent, runtime, canister, principal, url: url.to_string() };
    if args.fetch_root_key {
        refuse_mainnet(url)?;
        let fetched = network.runtime.block_on(network.agent.fetch_root_key());
        fetched.map_err(|error| network.failed("its root key", error))?;
    }
    Ok(Some(Client::new(network)))
}

fn refuse_mainnet(url: &Url) -> Result<()> {
    let host = url.host_str().unwrap_or_default().trim_end_matches('.').to_ascii_lowercase();
    let is_mainnet =
        MAINNET.iter().any(|name| host.strip_suffix(name).is_some_and(|sub| sub.is_empty() || sub.ends_with('.')));
    ensure!(!is_mainnet, "{host} is the mainnet, whose root key is known: leave --fetch-root-key out");
    Ok(())
}

fn identity(path: Option<&Path>) -> Result<Box<dyn Identity>> {
    let Some(path) = path else { return Ok(Box::new(AnonymousIdentity)) };
    let pem = std::fs::read(path).with_context(|| format!("cannot read the identity {}", path.display()))?;
    // Each refuses the keys of the others.
    if let Ok(identity) = Secp256k1Identity::from_pem(&pem) {
        return Ok(Box::new(identity));
    }
    if let Ok(identity) = Prime256v1Identity::from_pem(&pem) {
        return Ok(Box::new(identity));
    }
    match BasicIdentity::from_pem(&pem) {
        Ok(identity) => Ok(Box::new(identity)),
        Err(error) => bail!(
            "{} holds no unencrypted private key of Ed25519, secp256k1 or prime256v1 in PEM: {error}",
            path.display()
        ),
    }
}

/// Whether the same call may succeed a little later.
fn may_pass(error: &AgentError) -> bool {
    match error {
        AgentError::TransportError(_)
        | AgentError::RouteProviderError(_)
        | AgentError::TimeoutWaitingForResponse()
        | AgentError::CertificateOutdated(_)
        | AgentError::QuerySignatureVerificationFailed
        | AgentError::MissingSignature => true,
        AgentError::HttpError(http) => http.status == 429 || http.status >= 500,
        AgentError::CertifiedReject { reject, .. } | AgentError::UncertifiedReject { reject, .. } => {
            // While it is upgraded a canister is stopped.
            let stopped = reject.error_code.as_deref().is_some_and(|code| ["IC0508", "IC0509"].contains(&code));
            reject.reject_code == RejectCode::SysTransient || stopped
        }
        _ => false,
    }
}

impl Network {
    /// The canister's principal.
    pub fn canister(&self) -> Principal {
        self.canister
    }

    /// The network's URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    fn failed(&self, what: &str, error: AgentError) -> anyhow::Error {
        let (url, unreachable) = (self.url.clone(), may_pass(&error));
        let verification = matches!(error, AgentError::CertificateVerificationFailed());
        let mut error = anyhow!(error);
        if verification {
            error = error.context("its answers are not signed by the mainnet; a local network wants --fetch-root-key");
        }
        if unreachable { error.context(Unreachable { url }) } else { error.context(format!("{what} at {url}")) }
    }
}

impl Transport for Network {
    fn update(&self, _: Caller, method: &str, arg: Vec<u8>) -> Result<Vec<u8>> {
        let call = self.agent.update(&self.canister, method).with_arg(arg).call_and_wait();
        self.runtime.block_on(call).map_err(|error| self.failed(&format!("update {method}"), error))
    }

    fn query(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>> {
        let call = self.agent.query(&self.canister, method).with_arg(arg).call();
        self.runtime.block_on(call).map_err(|error| self.failed(&format!("query {method}"), error))
    }

    fn principal(&self, _: Caller) -> Principal {
        self.principal
    }
}

impl Site for Network {
    fn now_secs(&self) -> u64 {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }

    fn pass(&self, _: Duration) {}

    fn await_timer(&self, interval: Duration) {
        std::thread::sleep(POLL.min(interval));
    }

    fn patience(&self) -> u32 {
        PATIENCE
    }

    fn costs(&self) -> Result<Option<Costs>> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Keys of nobody, by the tool that everybody has.
    const ED25519: &str = "-----BEGIN PRIVATE KEY-----\n\
        MC4CAQAwBQYDK2VwBCIEIBERERERERERERERERERERERERERERERERERERERERER\n\
        -----END PRIVATE KEY-----\n";

    #[test]
    fn the_root_key_of_the_mainnet_is_not_asked_for() {
        for url in ["https://icp-api.io", "https://ICP-API.io./", "https://a.ic0.app/x", "https://icp0.io:443"] {
            assert!(refuse_mainnet(&url.parse().unwrap()).is_err(), "{url}");
        }
        for url in ["http://127.0.0.1:4943", "http://localhost", "https://noticp-api.io", "http://[::1]:8000"] {
            refuse_mainnet(&url.parse().unwrap()).unwrap();
        }
    }

    #[test]
    fn keys_of_each_curve_are_read_and_others_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key.pem");
        fs::write(&path, ED25519).unwrap();
        let principal = identity(Some(&path)).unwrap().sender().unwrap();
        assert_ne!(principal, Principal::anonymous());
        assert_eq!(identity(None).unwrap().sender().unwrap(), Principal::anonymous());
        fs::write(&path, "hello").unwrap();
        let error = identity(Some(&path)).err().unwrap().to_string();
        assert!(error.contains("key.pem") && error.contains("secp256k1"), "{error}");
        let missing = identity(Some(&dir.path().join("none.pem"))).err().unwrap();
        assert!(format!("{missing:#}").contains("none.pem"));
    }

    fn args(url: &str) -> NetworkArgs {
        NetworkArgs {
            network: Some(url.parse().unwrap()),
            canister: Some(Principal::management_canister()),
            ..NetworkArgs::default()
        }
    }

    #[test]
    fn a_network_that_does_not_answer_is_named_and_may_be_tried_again() {
        // A port that was free a moment ago.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let url = format!("http://127.0.0.1:{port}/");
        let client = args(&url).connect().unwrap().unwrap();
        for error in [client.head().err().unwrap(), client.ack_exported(1, &[1]).err().unwrap()] {
            assert!(error.is::<Unreachable>() && error.to_string().contains(&url), "{error:#}");
        }
        let error = NetworkArgs { fetch_root_key: true, ..args(&url) }.connect().err().unwrap();
        assert!(error.is::<Unreachable>(), "{error:#}");
        assert!(args("ftp://127.0.0.1").connect().is_err());
        assert_eq!(client.transport().costs().unwrap(), None);
        assert!(client.transport().now_secs() > 1_600_000_000);
    }
}
