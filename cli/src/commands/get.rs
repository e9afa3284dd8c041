//! `coppice get`.

use crate::client::{Client, Transport};
use crate::exit::{Exit, WRONG_LINE};
use crate::get::canister::Canister;
use crate::get::chain::Page;
use crate::get::query::{Kind, Order, Wanted};
use crate::get::result::Found;
use crate::get::{archive, get, print};
use crate::index::secure;
use crate::network::NetworkArgs;
use anyhow::Result;

/// Help text after the options.
const HELP: &str = "\
64 hexadecimal digits are a transaction id, and decimal digits a block number. Everything else is a key: a text, or 0x and the \
hexadecimal digits of its bytes. --as names another kind.
Ids and hashes are read and printed in display order, the last byte first, as Bitcoin writes them; --order internal is the order in \
which canister and database have them.
A database finds all blocks with a transaction, the newest first. A canister finds the newest one, and only kept blocks; each of its \
answers comes from one replica.";

/// Options of `coppice get`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct GetArgs {
    /// Block number, transaction id or key
    #[arg(value_name = "NUMBER|TXID|KEY")]
    pub what: String,
    /// Read the argument as this kind
    #[arg(long = "as", value_name = "KIND", value_enum)]
    pub kind: Option<Kind>,
    /// Order of the bytes of ids and hashes
    #[arg(long, value_enum, value_name = "ORDER", default_value_t)]
    pub order: Order,
    /// Most transactions to print
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub limit: u32,
    /// Continue a list at the cursor that it ended with
    #[arg(long, value_name = "CURSOR")]
    pub cursor: Option<String>,
    /// Database of coppice index to read [default: COPPICE_DATABASE, without --network]
    #[arg(long, value_name = "URL", conflicts_with = "network")]
    pub database: Option<String>,
    /// Allow PostgreSQL on another machine without sslmode=verify-full; machines in between can then read and change all data
    #[arg(long)]
    pub insecure_database: bool,
    /// The canister.
    #[command(flatten)]
    pub network: NetworkArgs,
    /// Print only one line of JSON on stdout
    #[arg(long)]
    pub json: bool,
}

impl GetArgs {
    fn page(&self) -> Page {
        Page { cursor: self.cursor.clone(), limit: self.limit }
    }

    /// Returns the thing to look up.
    ///
    /// # Errors
    /// [`Exit`] with [`WRONG_LINE`] if the argument is not of its kind.
    pub fn wanted(&self) -> Result<Wanted> {
        Wanted::parse(&self.what, self.kind, self.order).map_err(|why| Exit::error(WRONG_LINE, why.to_string()))
    }
}

/// Looks the thing up and prints it.
///
/// # Errors
/// [`Exit`] with [`WRONG_LINE`] for a wrong command line; as [`get`].
pub fn command(args: &GetArgs) -> Result<()> {
    let wanted = args.wanted()?;
    // The option that is named decides; without one a database of the environment comes first.
    let database = args.database.clone().or_else(|| std::env::var("COPPICE_DATABASE").ok());
    if args.network.network.is_some() || database.is_none() && args.network.is_named()? {
        let client = args.network.connect()?;
        let name = client.transport().canister().to_string();
        return print::print(&from_canister(args, &client, name)?, args.json);
    }
    let Some(url) = database else {
        let why = "name the chain: --database URL, or --network NETWORK and --canister ID";
        return Err(Exit::error(WRONG_LINE, why));
    };
    secure::ensure_allowed(&url, args.insecure_database)?;
    let found = archive::read(&url, |archive| get(archive, &wanted, args.order, &args.page()))?;
    print::print(&found, args.json)
}

/// Looks the thing up in a canister with this name.
///
/// # Errors
/// As [`get`].
pub fn from_canister(args: &GetArgs, client: &Client<impl Transport>, name: String) -> Result<Found> {
    get(&mut Canister::new(client, format!("canister {name}")), &args.wanted()?, args.order, &args.page())
}
