//! The HTTP client under S3: counts requests that fail, because the library tries them again without a word, and bounds responses.

use async_trait::async_trait;
use http_body_util::{BodyExt as _, Limited};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
    ReqwestConnector,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes of a response at most, because one that never ends would take all memory. The longest honest one names a thousand blobs that
/// could not be deleted, by keys of 1,024 bytes.
const MAX_RESPONSE: usize = 4 << 20;

tokio::task_local! {
    /// A request of this task was sent, and has no answer.
    static UNANSWERED: AtomicBool;
}

/// Does something, and says whether each request that it sent was answered: what is not may still be done later, even where another attempt
/// fails.
pub async fn answered<T>(work: impl Future<Output = T>) -> (T, bool) {
    let work = async { (work.await, !UNANSWERED.with(|unanswered| unanswered.load(Ordering::Relaxed))) };
    UNANSWERED.scope(AtomicBool::new(false), work).await
}

/// Counts those that it connects: without an answer, with one that is an error of the server (500 and more), or that says to come later (408,
/// 429).
#[derive(Debug, Default)]
pub struct Counting {
    /// So many have failed.
    pub failed: Arc<AtomicU64>,
}

impl HttpConnector for Counting {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Counted { client, failed: self.failed.clone() }))
    }
}

/// A client whose failures are counted.
#[derive(Debug)]
struct Counted {
    client: HttpClient,
    failed: Arc<AtomicU64>,
}

#[async_trait]
impl HttpService for Counted {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let mut pending = Pending { failed: &self.failed, has_failed: true };
        let answer = self.client.execute(request).await;
        let is_open = match &answer {
            // S3's own error may come after the deed, and a gateway's says nothing of what it sent on.
            Ok(answer) => [500, 502, 504].contains(&answer.status().as_u16()),
            Err(error) => error.kind() != HttpErrorKind::Connect,
        };
        if is_open {
            let _ = UNANSWERED.try_with(|unanswered| unanswered.store(true, Ordering::Relaxed));
        }
        pending.has_failed = answer.as_ref().map_or(true, |answer| {
            let status = answer.status();
            status.is_server_error() || [408, 429].contains(&status.as_u16())
        });
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

/// A request. One that is given up before its answer is there has failed, too.
struct Pending<'a> {
    failed: &'a AtomicU64,
    has_failed: bool,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if self.has_failed {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }
}
