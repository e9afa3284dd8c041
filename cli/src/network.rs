//! A canister on a network, over ic-agent: signs calls and verifies answers.

use crate::client::{CanisterClient, Client, Failure, GivesUp, Transport};
use crate::exit::{Exit, WRONG_LINE};
use crate::gateway::is_mainnet;
use crate::stop::Waiter;
use crate::terminal::{Level, stderr};
use anyhow::{Context, Result, anyhow, ensure};
use candid::Principal;
use ic_agent::identity::{AnonymousIdentity, BasicIdentity, Prime256v1Identity, Secp256k1Identity};
use ic_agent::{Agent, AgentError, Identity};
use ic_coppice_client::certificate::{self, Vouched};
use ic_coppice_client::{OverHttp, Reject};
use ic_coppice_interface::Role;
use std::cell::RefCell;
use std::mem::discriminant;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;
use url::{Host, Url};

/// Longest response, in bytes, because an endless one would take all memory; the platform's replies have at most 3 MiB.
const MAX_RESPONSE: usize = 4 << 20;
/// The age up to which certificates are accepted: archives hold old ones.
const FOR_EVER: Duration = Duration::from_secs(10_000 * 365 * 86_400);
/// The longest wait for the network's root key.
const ROOT_KEY: Duration = Duration::from_secs(30);
/// The longest wait for an HTTP response on this machine: the agent's own limit.
const CALL: Duration = Duration::from_secs(360);
/// The longest wait for the answer to a query.
const QUERY: Duration = Duration::from_secs(60);
/// The mainnet.
const IC: &str = "https://icp-api.io";
/// The network that `icp network start` starts.
const LOCAL: &str = "http://127.0.0.1:8000";
/// The error if no network is named.
const UNNAMED: &str =
    "name the canister with --network NETWORK and --canister ID, or with COPPICE_NETWORK and COPPICE_CANISTER";

/// A canister on a network.
pub struct Network {
    canister: OverHttp,
    waiter: Waiter,
    principal: Principal,
    url: String,
    /// Fetch the root key before the first call.
    fetch_root_key: bool,
    /// The longest wait for the answer to a query.
    query: Duration,
    verifier: OnceLock<Verifier>,
}

thread_local! {
    /// Ends the calls of this thread.
    static GIVES_UP: RefCell<Option<GivesUp>> = const { RefCell::new(None) };
}

/// Options that name a canister on a network.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct NetworkArgs {
    /// Network on which the canister is installed: ic, local (of icp-cli, with its root key), or a URL [env: COPPICE_NETWORK]
    #[arg(long, value_name = "NETWORK")]
    pub network: Option<Place>,
    /// Principal of the canister [env: COPPICE_CANISTER]
    #[arg(long, value_name = "ID", value_parser = canister_id)]
    pub canister: Option<Principal>,
    /// PEM file with the private key that signs calls: Ed25519, secp256k1 or prime256v1 [default: anonymous]
    #[arg(long, value_name = "PATH", env = "COPPICE_IDENTITY")]
    pub identity: Option<PathBuf>,
    /// Trust the root key that the network reports; only for local networks
    #[arg(long)]
    pub fetch_root_key: bool,
}

/// A network: its URL, and whether its root key is fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub url: Url,
    /// The network of icp-cli on this machine, which has a root key of its own.
    pub is_local: bool,
}

impl From<Url> for Place {
    fn from(url: Url) -> Self {
        Self { url, is_local: false }
    }
}

/// Reads a name, `ic` or `local`, or a URL.
impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (url, is_local) = match text {
            "ic" => (IC, false),
            "local" => (LOCAL, true),
            url => (url, false),
        };
        let url = Url::parse(url).map_err(|_| "neither ic, nor local, nor a URL such as https://icp-api.io")?;
        Ok(Self { url, is_local })
    }
}

/// Reads the principal of a canister.
fn canister_id(text: &str) -> Result<Principal, String> {
    text.parse().map_err(|_| "not the id of a canister, such as um5iw-rqaaa-aaaaq-qaaba-cai".into())
}

/// Returns the value of an environment variable.
fn from_env<T>(name: &str, read: fn(&str) -> Result<T, String>) -> Result<Option<T>> {
    let Some(value) = std::env::var(name).ok().filter(|value| !value.is_empty()) else { return Ok(None) };
    let wrong = |why| Exit::error(WRONG_LINE, format!("{name} is {value}: {why}"));
    read(&value).map(Some).map_err(wrong)
}

impl NetworkArgs {
    /// Returns a client of the canister, without a call.
    ///
    /// # Errors
    /// [`Exit`] with [`WRONG_LINE`] if no network is named; when the identity cannot be read, or `--fetch-root-key` is set for the mainnet.
    pub fn connect(&self) -> Result<Client<Network>> {
        self.connect_within(QUERY)
    }

    /// Returns whether a network is named, by the option or by the environment.
    ///
    /// # Errors
    /// [`Exit`] with [`WRONG_LINE`] if the environment names no network.
    pub fn is_named(&self) -> Result<bool> {
        Ok(self.place()?.is_some())
    }

    fn place(&self) -> Result<Option<Place>> {
        if self.network.is_some() { Ok(self.network.clone()) } else { from_env("COPPICE_NETWORK", str::parse) }
    }

    fn connect_within(&self, query: Duration) -> Result<Client<Network>> {
        let canister = if self.canister.is_some() { self.canister } else { from_env("COPPICE_CANISTER", canister_id)? };
        let (Some(Place { url, is_local }), Some(canister)) = (self.place()?, canister) else {
            return Err(Exit::error(WRONG_LINE, UNNAMED));
        };
        let url = &url;
        ensure!(
            matches!(url.scheme(), "http" | "https"),
            "{url} is not the URL of a network: it must start with http: or https:"
        );
        let identity = identity(self.identity.as_deref())?;
        let principal = identity.sender().map_err(|why| anyhow!("the identity has no principal: {why}"))?;
        let waiter = Waiter::new()?;
        let mut agent = Agent::builder().with_url(url.as_str()).with_boxed_identity(identity);
        if is_loopback(url) {
            agent = agent.with_http_client(unproxied()?);
        }
        let agent = agent.with_max_response_body_size(MAX_RESPONSE).build()?;
        let canister = OverHttp::new(agent, canister);
        if self.fetch_root_key {
            refuse_mainnet(url)?;
        }
        let (url, fetch_root_key) = (url.to_string(), self.fetch_root_key || is_local);
        Ok(Client::new(Network { canister, waiter, principal, url, fetch_root_key, query, verifier: OnceLock::new() }))
    }

    /// Does the same for a command that `coppice-lab` also has.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_for(&self, command: &str) -> Result<Client<Network>> {
        if !self.is_named()? {
            let why = format!("{UNNAMED}; coppice-lab {command} runs a canister in its own process");
            return Err(Exit::error(WRONG_LINE, why));
        }
        self.connect()
    }
}

fn refuse_mainnet(url: &Url) -> Result<()> {
    let host = url.host_str().unwrap_or_default().trim_end_matches('.').to_ascii_lowercase();
    ensure!(!is_mainnet(url), "{host} is the mainnet, whose root key is built in: leave --fetch-root-key out");
    Ok(())
}

/// Returns whether a URL names this machine, which a proxy elsewhere cannot reach. Other names are not looked up, because the proxy may know
/// other addresses of them.
pub fn is_loopback(url: &Url) -> bool {
    // Systems connect to the unspecified address as to loopback.
    let is_here = |address: IpAddr| address.is_loopback() || address.is_unspecified();
    match url.host() {
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            name == "localhost" || name.ends_with(".localhost")
        }
        Some(Host::Ipv4(address)) => is_here(address.into()),
        Some(Host::Ipv6(address)) => is_here(address.to_canonical()),
        None => false,
    }
}

/// Returns the agent's own HTTP client, but without the proxy that the environment names (`HTTP_PROXY`).
fn unproxied() -> Result<reqwest::Client> {
    Ok(reqwest::Client::builder().tls_backend_rustls().timeout(CALL).no_proxy().build()?)
}

/// Warns of a private key that other users of the machine can read or change. systemd shows its credentials with rights of the group,
/// because the service's user reads them by an access list.
#[cfg(unix)]
fn warn_of_others(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
    let is_credential = credentials.is_some_and(|directory| path.starts_with(directory));
    let others = if is_credential { 0o007 } else { 0o077 };
    let mode = std::fs::metadata(path).map_or(0, |file| file.permissions().mode() & 0o777);
    if mode & others != 0 {
        let path = path.display();
        let why = format!("other users can read or change the private key {path} (mode {mode:03o}): chmod 600 {path}");
        stderr().note(Level::Warn, "identity", &why);
    }
}

fn identity(path: Option<&Path>) -> Result<Box<dyn Identity>> {
    let Some(path) = path else { return Ok(Box::new(AnonymousIdentity)) };
    let pem = std::fs::read(path).with_context(|| format!("cannot read the identity {}", path.display()))?;
    #[cfg(unix)]
    warn_of_others(path);
    // Each parser refuses the keys of the other curves.
    let identity = Secp256k1Identity::from_pem(&pem).map(|identity| Box::new(identity) as Box<dyn Identity>);
    let identity = identity.or_else(|_| Prime256v1Identity::from_pem(&pem).map(|identity| Box::new(identity) as _));
    let identity = identity.or_else(|_| BasicIdentity::from_pem(&pem).map(|identity| Box::new(identity) as _));
    let none = "holds no unencrypted private key of Ed25519, secp256k1 or prime256v1 in PEM";
    // The last parser reports only about its own curve.
    identity.map_err(|_| anyhow!("{} {none}", path.display()))
}

impl Network {
    pub fn canister(&self) -> Principal {
        self.canister.canister()
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Waits for a call until it is given up. A call that was sent may be executed nevertheless.
    fn wait<R>(&self, call: impl Future<Output = Result<R, Failure>>) -> Result<R, Failure> {
        let gives_up = GIVES_UP.with_borrow(Clone::clone);
        let call = async {
            self.trust().await?;
            call.await
        };
        let answer = self.waiter.unless(|| gives_up.as_ref().is_some_and(|gives_up| gives_up()), call);
        let late = || Failure::Lost("no answer came in the time allowed".into());
        answer.unwrap_or_else(|| Err(late())).map_err(|failure| self.named(failure))
    }

    /// Fetches the root key, if the options ask for it.
    async fn trust(&self) -> Result<(), Failure> {
        if !self.fetch_root_key {
            return Ok(());
        }
        match tokio::time::timeout(ROOT_KEY, self.canister.agent().fetch_root_key()).await {
            Ok(fetched) => Ok(fetched?),
            Err(late) => Err(Failure::Lost(late.into())),
        }
    }

    /// Adds the network's URL and possible advice to a failure.
    fn named(&self, failure: Failure) -> Failure {
        let url = &self.url;
        match failure {
            Failure::Lost(cause) => Failure::Lost(anyhow!(cause).context(format!("{url} does not answer")).into()),
            Failure::Rejected(reject) => {
                Failure::Rejected(Reject { message: format!("{} ({url})", reject.message), ..reject })
            }
            Failure::Transport(cause) => {
                let unsigned = Some(discriminant(&AgentError::CertificateVerificationFailed()));
                let is_unsigned = cause.downcast_ref().map(discriminant) == unsigned;
                let mut why = anyhow!(cause).context(url.clone());
                if is_unsigned {
                    why = why.context(match self.fetch_root_key {
                        true => "its answers are not signed with the root key that it reports",
                        false => "its answers are not signed by the mainnet; for a local network use --fetch-root-key",
                    });
                }
                Failure::Transport(why.into())
            }
            failure => failure,
        }
    }
}

/// Verifies certificates of canisters by the agent: root key, delegation and range of canisters, at any age. Reaches no network.
pub struct Verifier(Agent);

impl Verifier {
    /// Creates a verifier by a root key in DER; `None` stands for that of the mainnet.
    ///
    /// # Errors
    /// When the agent cannot be made.
    pub fn new(root_key: Option<Vec<u8>>) -> Result<Self> {
        let agent = Agent::builder().with_url("http://localhost").with_ingress_expiry(FOR_EVER).build()?;
        if let Some(root_key) = root_key {
            agent.set_root_key(root_key);
        }
        Ok(Self(agent))
    }

    /// Verifies a certificate of a canister.
    ///
    /// # Errors
    /// When the subnet of the canister has not signed it.
    pub fn vouched(&self, certificate: &[u8], canister: Principal) -> Result<Vouched> {
        certificate::vouched(certificate, canister, |certificate| Ok(self.0.verify(certificate, canister)?))
    }
}

impl Transport for Network {
    const INGRESS: bool = true;

    async fn update(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
        self.wait(self.canister.update(method, arg))
    }

    async fn query(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
        let answered = async {
            let query = tokio::time::timeout(self.query, self.canister.query(method, arg));
            query.await.unwrap_or_else(|late| Err(Failure::Lost(late.into())))
        };
        self.wait(answered)
    }
}

impl CanisterClient for Network {
    fn principal(&self, _: Role) -> Principal {
        self.principal
    }

    fn vouched(&self, certificate: &[u8]) -> Result<Vouched> {
        // The answer with the certificate came after the root key.
        let verifier = match self.verifier.get() {
            Some(verifier) => verifier,
            None => {
                let verifier = Verifier::new(Some(self.canister.agent().read_root_key()))?;
                self.verifier.get_or_init(|| verifier)
            }
        };
        verifier.vouched(certificate, self.canister())
    }

    fn limit(&self, gives_up: GivesUp) {
        GIVES_UP.set(Some(gives_up));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Wait, may_pass};
    use crate::commands::{Cli, Command};
    use clap::Parser;
    use std::fs;

    /// A test key.
    const ED25519: &str = "-----BEGIN PRIVATE KEY-----\n\
        MC4CAQAwBQYDK2VwBCIEIBERERERERERERERERERERERERERERERERERERERERER\n\
        -----END PRIVATE KEY-----\n";

    #[test]
    fn fetching_the_mainnets_root_key_is_refused() {
        for url in ["https://icp-api.io", "https://ICP-API.io./", "https://a.ic0.app/x", "https://icp0.io:443"] {
            assert!(refuse_mainnet(&url.parse().unwrap()).is_err(), "{url}");
        }
        for url in ["http://127.0.0.1:4943", "http://localhost", "https://noticp-api.io", "http://[::1]:8000"] {
            refuse_mainnet(&url.parse().unwrap()).unwrap();
        }
    }

    #[test]
    fn only_this_machine_is_reached_without_a_proxy() {
        for url in [
            "http://127.0.0.1:4943",
            "http://127.9.8.7",
            "http://LOCALHOST./",
            "http://a.localhost:8",
            "http://[::1]:8",
            "http://[::ffff:127.0.0.2]",
            "http://127.1",
            "http://0.0.0.0:8",
            "http://0",
            "http://[::]:8",
            "http://[::ffff:0.0.0.0]",
        ] {
            assert!(is_loopback(&url.parse().unwrap()), "{url}");
        }
        for url in [
            "https://icp-api.io",
            "http://notlocalhost",
            "http://localhost.io",
            "http://10.0.0.1",
            "http://[fe80::1]",
            "http://0.0.0.1",
        ] {
            assert!(!is_loopback(&url.parse().unwrap()), "{url}");
        }
    }

    #[test]
    fn keys_of_three_curves_are_read_and_other_files_are_refused_by_name() {
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
    fn unreachable_network_is_named_and_the_call_may_be_retried() {
        // A port that no server uses.
        let url = "http://127.0.0.1:1/";
        let client = args(url).connect().unwrap();
        for error in
            [client.get_head().wait().err().unwrap(), client.ack_exported(1, &[1].into()).wait().err().unwrap()]
        {
            assert!(may_pass(&error) && format!("{error:#}").contains(url), "{error:#}");
        }
        let untrusting = NetworkArgs { fetch_root_key: true, ..args(url) }.connect().unwrap();
        let error = untrusting.get_head().wait().err().unwrap();
        assert!(may_pass(&error), "{error:#}");
        assert!(args("ftp://127.0.0.1").connect().is_err());
    }

    #[test]
    fn query_that_is_never_answered_is_lost_after_its_limit() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let args = args(&format!("http://{}", listener.local_addr().unwrap()));
        let (began, client) = (std::time::Instant::now(), args.connect_within(Duration::from_millis(300)).unwrap());
        let error = client.get_head().wait().err().unwrap();
        assert!(may_pass(&error) && format!("{error:#}").contains("does not answer"), "{error:#}");
        assert!(began.elapsed() < Duration::from_secs(20), "the query must end before the agent's own time-out");
    }

    #[test]
    fn unanswered_call_that_is_given_up_is_lost() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = args(&format!("http://{}", listener.local_addr().unwrap())).connect().unwrap();
        let until = std::time::Instant::now() + Duration::from_millis(300);
        client.transport().limit(std::sync::Arc::new(move || std::time::Instant::now() >= until));
        for error in
            [client.get_head().wait().err().unwrap(), client.ack_exported(1, &[1].into()).wait().err().unwrap()]
        {
            assert!(may_pass(&error) && format!("{error:#}").contains("in the time allowed"), "{error:#}");
        }
        assert!(until.elapsed() < Duration::from_secs(20), "the call must end before the agent's own time-out");
    }

    #[test]
    fn networks_have_names() {
        let place = |text: &str| text.parse::<Place>().unwrap();
        assert_eq!((place("ic").url.as_str(), place("ic").is_local), ("https://icp-api.io/", false));
        assert_eq!((place("local").url.as_str(), place("local").is_local), ("http://127.0.0.1:8000/", true));
        assert_eq!(place("http://a:1"), Url::parse("http://a:1").unwrap().into());
        let error = "mainnet".parse::<Place>().unwrap_err();
        assert!(error.starts_with("neither ic, nor local, nor a URL"), "{error}");
    }

    #[test]
    fn network_flags_require_each_other() {
        let parse = |args: &[&str]| Cli::try_parse_from([&["coppice", "index"], args].concat());
        assert!(parse(&["--network", "http://127.0.0.1:1", "--canister", "aaaaa-aa", "--fetch-root-key"]).is_ok());
        for args in [&["--network", "http://127.0.0.1:1"][..], &["--canister", "aaaaa-aa"], &["--fetch-root-key"]] {
            let Command::Index(args) = parse(args).unwrap().command else { panic!("another command") };
            assert_eq!(Exit::code_of(&args.network.connect().err().unwrap()), WRONG_LINE);
        }
        assert!(parse(&["--network", "no url", "--canister", "aaaaa-aa"]).is_err());
        assert!(parse(&["--network", "http://a", "--canister", "aaaaa"]).is_err());
        let Command::Index(args) = parse(&[]).unwrap().command else { panic!("another command") };
        let error = args.network.connect().err().unwrap();
        assert_eq!((Exit::code_of(&error), error.to_string()), (WRONG_LINE, UNNAMED.into()));
    }
}
