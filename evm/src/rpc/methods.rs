//! The methods by their names.

use super::error::Refusal;
use super::reader::{Reader, at_position, number, receipts};
use alloy_eips::{BlockId, BlockNumberOrTag};
use alloy_primitives::{B256, U64};
use alloy_rpc_types_eth::Filter;
use anyhow::Result;
use jsonrpsee::RpcModule;
use jsonrpsee::types::{ErrorObjectOwned, Params};
use serde_json::{Value, json};
use std::sync::Arc;

/// The version that `web3_clientVersion` answers.
const VERSION: &str = concat!("coppice-evm/", env!("CARGO_PKG_VERSION"));

/// Returns the module with all methods.
///
/// # Errors
/// When two methods have one name.
pub fn methods(reader: Reader) -> Result<RpcModule<Reader>> {
    let mut module = RpcModule::new(reader);
    method(&mut module, "web3_clientVersion", |_, _| Ok(json!(VERSION)))?;
    method(&mut module, "net_version", |reader, _| Ok(json!(reader.chain_id.to_string())))?;
    method(&mut module, "eth_chainId", |reader, _| Ok(number(reader.chain_id)?))?;
    method(&mut module, "eth_blockNumber", |reader, _| Ok(number(reader.head()?)?))?;
    method(&mut module, "eth_getBlockByNumber", |reader, params| {
        let (tag, whole): (BlockNumberOrTag, bool) = one_and(params)?;
        Ok(answer(reader.at(tag)?, whole)?)
    })?;
    method(&mut module, "eth_getBlockByHash", |reader, params| {
        let (hash, whole): (B256, bool) = one_and(params)?;
        Ok(answer(reader.with_hash(&hash)?, whole)?)
    })?;
    method(&mut module, "eth_getBlockReceipts", |reader, params| {
        let id: BlockId = params.sequence().next()?;
        Ok(receipts(reader.named(id)?)?)
    })?;
    method(&mut module, "eth_getTransactionByHash", |reader, params| {
        let hash: B256 = params.sequence().next()?;
        let found = reader.transaction(&hash)?;
        let found = found.map(|(block, position)| block.transaction(position)).transpose();
        Ok(found.map_err(Refusal::from)?.unwrap_or_default())
    })?;
    method(&mut module, "eth_getTransactionReceipt", |reader, params| {
        let hash: B256 = params.sequence().next()?;
        let found = reader.transaction(&hash)?;
        let found = found.map(|(block, position)| block.receipt(position)).transpose();
        Ok(found.map_err(Refusal::from)?.unwrap_or_default())
    })?;
    method(&mut module, "eth_getTransactionByBlockNumberAndIndex", |reader, params| {
        let (tag, position): (BlockNumberOrTag, U64) = two(params)?;
        Ok(at_position(reader.at(tag)?, position.to())?)
    })?;
    method(&mut module, "eth_getTransactionByBlockHashAndIndex", |reader, params| {
        let (hash, position): (B256, U64) = two(params)?;
        Ok(at_position(reader.with_hash(&hash)?, position.to())?)
    })?;
    method(&mut module, "eth_getLogs", |reader, params| {
        let filter: Filter = params.sequence().next()?;
        Ok(reader.logs(&filter)?)
    })?;
    Ok(module)
}

/// An answer of a method. Its argument may be invalid.
type Answer = Result<Value, ErrorObjectOwned>;

/// Registers a method that may wait for a canister or a database.
fn method(
    module: &mut RpcModule<Reader>,
    name: &'static str,
    work: impl Fn(&Reader, &Params<'_>) -> Answer + Clone + Send + Sync + 'static,
) -> Result<()> {
    module.register_blocking_method(name, move |params, reader: Arc<Reader>, _| work(&reader, &params))?;
    Ok(())
}

/// Reads two arguments.
fn two<A: serde::de::DeserializeOwned, B: serde::de::DeserializeOwned>(
    params: &Params<'_>,
) -> Result<(A, B), ErrorObjectOwned> {
    let mut sequence = params.sequence();
    Ok((sequence.next()?, sequence.next()?))
}

/// Reads an argument and whether transactions are wanted whole, which may be left out.
fn one_and<A: serde::de::DeserializeOwned>(params: &Params<'_>) -> Result<(A, bool), ErrorObjectOwned> {
    let mut sequence = params.sequence();
    Ok((sequence.next()?, sequence.optional_next()?.unwrap_or(false)))
}

fn answer(block: Option<Arc<crate::Block>>, whole: bool) -> Result<Value, Refusal> {
    Ok(block.map(|block| block.answer(whole)).transpose()?.unwrap_or_default())
}
