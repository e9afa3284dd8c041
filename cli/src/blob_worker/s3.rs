//! S3 stores, through an HTTP client that bounds responses and counts failed requests, because the library retries these silently.

use super::store::{FAILED_REQUESTS, Store, UNANSWERED};
use super::times::ATTEMPT;
use crate::network::is_loopback;
use anyhow::{Context as _, Result};
use async_trait::async_trait;
use http_body_util::{BodyExt as _, Limited};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
    ReqwestConnector,
};
use object_store::path::Path;
use object_store::{ClientConfigKey, ClientOptions, RetryConfig};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use url::Url;

/// Blobs per request, if the store deletes many at once.
pub const BULK: usize = 1_000;

/// Every host, in the form of `NO_PROXY`: all names and all addresses.
const EVERY_HOST: &str = "*,0.0.0.0/0,::/0";

/// Longest response, in bytes, because an endless one would take all memory. The longest honest response names 1,000 blobs that could not
/// be deleted, by keys of 1,024 bytes.
const MAX_RESPONSE: usize = 4 << 20;

/// Opens a bucket (an `s3:` URL) or else a directory. A request to a bucket takes at most `most`, retries included.
///
/// # Errors
/// When the environment lacks a setting of the bucket; as [`Store::directory`].
pub fn bucket_or_directory(url: Url, most: Duration) -> Result<Store> {
    if url.scheme() == "s3" { open(AmazonS3Builder::from_env(), url, most) } else { Store::directory(url) }
}

/// Opens a bucket, with all other settings from the environment.
///
/// # Errors
/// When the environment lacks a setting.
pub fn open(environment: AmazonS3Builder, url: Url, most: Duration) -> Result<Store> {
    // No attempt starts after half of the time, and an attempt takes at most the other half.
    let half = ATTEMPT.of(most);
    let text = |time: Duration| format!("{}ms", time.as_millis().max(1));
    let builder = environment
        .with_bucket_name(url.host_str().unwrap_or_default())
        .with_retry(RetryConfig { retry_timeout: half, ..RetryConfig::default() })
        .with_config(AmazonS3ConfigKey::Client(ClientConfigKey::Timeout), text(half))
        .with_config(
            AmazonS3ConfigKey::Client(ClientConfigKey::ConnectTimeout),
            text(half.min(Duration::from_secs(5))),
        );
    // Parses the option as the library does, which does not return the parsed value.
    let is_true = |value: String| ["1", "true", "on", "yes", "y"].contains(&value.to_ascii_lowercase().as_str());
    let is_single = builder.get_config_value(&AmazonS3ConfigKey::DisableBulkDelete).is_some_and(is_true);
    // The library's order: the endpoint of the service first.
    let keys = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint];
    let endpoint = keys.iter().find_map(|key| builder.get_config_value(key));
    let endpoint = endpoint.map(|endpoint| endpoint.trim_end_matches('/').to_string());
    // A proxy that the environment names cannot reach this machine. The library can only replace that proxy, by one that no host uses.
    let is_near = endpoint.as_ref().and_then(|endpoint| endpoint.parse().ok()).is_some_and(|url| is_loopback(&url));
    let [proxy, excludes] = [ClientConfigKey::ProxyUrl, ClientConfigKey::ProxyExcludes].map(AmazonS3ConfigKey::Client);
    let builder = match endpoint.as_ref().filter(|_| is_near && builder.get_config_value(&proxy).is_none()) {
        Some(endpoint) => builder.with_config(proxy, endpoint).with_config(excludes, EVERY_HOST),
        None => builder,
    };
    let store = builder.with_http_connector(Counting).build();
    let store =
        store.with_context(|| format!("{url}: S3 cannot be set up from the environment; check the variables AWS_…"))?;
    let root = Path::from_url_path(url.path())?;
    let chunk = if is_single { 1 } else { BULK };
    let mut opened = Store::new(url, root, Arc::new(store));
    (opened.chunk, opened.endpoint) = (chunk, endpoint);
    Ok(opened)
}

/// Counts requests without an answer, with a server error (500 and above), or with a request to come later (408, 429).
#[derive(Debug)]
struct Counting;

impl HttpConnector for Counting {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Counted(client)))
    }
}

/// A client whose failures are counted.
#[derive(Debug)]
struct Counted(HttpClient);

#[async_trait]
impl HttpService for Counted {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let answer = self.0.execute(request).await;
        let (has_failed, is_open) = match &answer {
            Ok(answer) => {
                let status = answer.status();
                let is_late = [408, 429].contains(&status.as_u16());
                // S3 may have deleted the blob before its own error, and a gateway's error does not tell whether the request reached S3.
                (status.is_server_error() || is_late, [500, 502, 504].contains(&status.as_u16()))
            }
            Err(error) => (true, error.kind() != HttpErrorKind::Connect),
        };
        FAILED_REQUESTS.fetch_add(has_failed.into(), Ordering::Relaxed);
        if is_open {
            let _ = UNANSWERED.try_with(|unanswered| unanswered.store(true, Ordering::Relaxed));
        }
        answer.map(|answer| answer.map(bounded))
    }
}

/// Returns the body of a response that ends with an error after [`MAX_RESPONSE`] bytes.
fn bounded(body: HttpResponseBody) -> HttpResponseBody {
    HttpResponseBody::new(Limited::new(body, MAX_RESPONSE).map_err(|error| match error.downcast::<HttpError>() {
        Ok(error) => *error,
        Err(too_long) => HttpError::new_boxed(HttpErrorKind::Decode, too_long),
    }))
}
