//! `coppice-evm rpc`: the JSON-RPC of a chain that a canister or a database keeps.
//!
//! ```text
//! wallet, explorer ── HTTP ──▶ server ──▶ methods ──▶ reader, logs ──▶ source ──▶ canister, by queries that are proved
//!                                                                           └──▶ database of coppice index
//! ```

mod error;
mod logs;
mod methods;
mod reader;

use crate::source::Source;
use crate::source::canister::Canister;
use crate::source::database::Database;
use anyhow::{Context as _, Result};
use ic_coppice_cli::exit::{Exit, WRONG_LINE};
use ic_coppice_cli::index::secure;
use ic_coppice_cli::network::NetworkArgs;
use ic_coppice_cli::stop::Stop;
use ic_coppice_cli::terminal::{self, Level, stderr};
use jsonrpsee::server::{BatchRequestConfig, Server, ServerConfig};
use reader::Reader;
use std::net::SocketAddr;
use std::time::Duration;
use tower_http::cors::{Any, CorsLayer};

/// Calls of a batch.
const BATCH: u32 = 20;
/// Bytes of a request.
const MAX_REQUEST: u32 = 1 << 20;
/// Bytes of an answer.
const MAX_ANSWER: u32 = 128 << 20;
/// Interval of the checks for a signal.
const LOOK: Duration = Duration::from_millis(100);

/// Options of `coppice-evm rpc`.
#[derive(Clone, Debug, clap::Args)]
pub struct RpcArgs {
    /// Address to listen on; port 0 picks a free port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8545")]
    pub listen: SocketAddr,
    /// The chain's id, which no block holds
    #[arg(long, value_name = "N")]
    pub chain_id: u64,
    /// Answer from this database of coppice index, which has pruned blocks, too
    #[arg(long, value_name = "URL", conflicts_with = "network")]
    pub database: Option<String>,
    /// Allow PostgreSQL on another machine without sslmode=verify-full; machines in between can then read and change all data
    #[arg(long)]
    pub insecure_database: bool,
    /// The canister.
    #[command(flatten)]
    pub network: NetworkArgs,
    /// Ask the subnet whether a block has a hash or a key, because no certificate proves that none has it; the identity needs a role, and each
    /// question is an update call
    #[arg(long, requires = "network")]
    pub ask_subnet: bool,
}

impl RpcArgs {
    fn source(&self) -> Result<Box<dyn Source>> {
        if let Some(url) = &self.database {
            secure::ensure_allowed(url, self.insecure_database)?;
            return Ok(Box::new(Database::open(url)?));
        }
        if self.network.network.is_none() {
            let why = "name the chain: --database URL, or --network URL and --canister ID";
            return Err(Exit::error(WRONG_LINE, why));
        }
        Ok(Box::new(Canister::new(self.network.connect()?, self.ask_subnet)))
    }
}

/// Answers until a signal.
///
/// # Errors
/// When the address is in use, or the database cannot be read.
pub fn command(args: &RpcArgs) -> Result<()> {
    let stop = Stop::on_signals()?;
    let reader = Reader { source: args.source()?, chain_id: args.chain_id };
    let methods = methods::methods(reader)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served: Result<()> = runtime.block_on(async {
        let config = ServerConfig::builder()
            .http_only()
            .max_request_body_size(MAX_REQUEST)
            .max_response_body_size(MAX_ANSWER)
            .set_batch_request_config(BatchRequestConfig::Limit(BATCH))
            .build();
        // Pages of any origin may read, as from public nodes: nothing here is secret, and nothing can be changed.
        let cors = CorsLayer::new().allow_origin(Any).allow_methods(Any).allow_headers(Any);
        let server = Server::builder().set_config(config).set_http_middleware(tower::ServiceBuilder::new().layer(cors));
        let context = || format!("cannot listen on {} (--listen)", args.listen);
        let server = server.build(args.listen).await.with_context(context)?;
        terminal::print(&format!("http://{}", server.local_addr()?))?;
        stderr().note(Level::Info, "listening", "Ctrl-C ends it");
        let handle = server.start(methods);
        while !stop.is_set() {
            tokio::time::sleep(LOOK).await;
        }
        handle.stop()?;
        Ok(())
    });
    // A call of the canister that is not answered is not waited for.
    runtime.shutdown_background();
    served
}
