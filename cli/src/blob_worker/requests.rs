//! Counts the requests to an S3 that fail. The library tries them again by itself, and says so to nobody.

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
        pending.has_failed = answer.as_ref().map_or(true, |answer| {
            let status = answer.status();
            status.is_server_error() || [408, 429].contains(&status.as_u16())
        });
        answer
    }
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
