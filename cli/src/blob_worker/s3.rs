//! S3, by an HTTP client that counts requests that fail, because the library tries them again without a word, and bounds responses.

use super::store::{FAILED_REQUESTS, Store, UNANSWERED};
use super::times::ATTEMPT;
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

/// Blobs of a request where a store takes many.
pub const BULK: usize = 1_000;

/// Bytes of a response at most, because one that never ends would take all memory. The longest honest one names a thousand blobs that
/// could not be deleted, by keys of 1,024 bytes.
const MAX_RESPONSE: usize = 4 << 20;

/// Opens a bucket, named by an `s3:` URL, or else a directory. A request to a bucket, retries and all, takes no longer than `most`.
///
/// # Errors
/// When the environment does not say the rest of the bucket; as [`Store::directory`].
pub fn bucket_or_directory(url: Url, most: Duration) -> Result<Store> {
    if url.scheme() == "s3" { open(AmazonS3Builder::from_env(), url, most) } else { Store::directory(url) }
}

/// Opens a bucket, of which the environment says the rest.
///
/// # Errors
/// When it does not.
pub fn open(environment: AmazonS3Builder, url: Url, most: Duration) -> Result<Store> {
    // A request is not begun anew after half of the time, and takes the other half at most.
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
    // As the library reads an option, and does not say.
    let is_true = |value: String| ["1", "true", "on", "yes", "y"].contains(&value.to_ascii_lowercase().as_str());
    let is_single = builder.get_config_value(&AmazonS3ConfigKey::DisableBulkDelete).is_some_and(is_true);
    // As the library takes them: the service's own first.
    let said = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint];
    let endpoint = said.iter().find_map(|key| builder.get_config_value(key));
    let endpoint = endpoint.map(|endpoint| endpoint.trim_end_matches('/').to_string());
    let store = builder.with_http_connector(Counting).build();
    let store = store.with_context(|| format!("{url}: the environment says no S3"))?;
    let root = Path::from_url_path(url.path())?;
    let chunk = if is_single { 1 } else { BULK };
    let mut opened = Store::new(url, root, Arc::new(store));
    (opened.chunk, opened.endpoint) = (chunk, endpoint);
    Ok(opened)
}

/// Counts requests: without an answer, with one that is an error of the server (500 and more), or that says to come later (408, 429).
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
                // S3's own error may come after the deed, and a gateway's says nothing of what it sent on.
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

/// A response's body that ends with an error after [`MAX_RESPONSE`] bytes.
fn bounded(body: HttpResponseBody) -> HttpResponseBody {
    HttpResponseBody::new(Limited::new(body, MAX_RESPONSE).map_err(|error| match error.downcast::<HttpError>() {
        Ok(error) => *error,
        Err(too_long) => HttpError::new_boxed(HttpErrorKind::Decode, too_long),
    }))
}
