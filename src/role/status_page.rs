//! Serves the status page of the controller, and nothing else: it is read, by whoever reaches it.
//!
//! Takes in requests; gives out what `operator::overview` makes of the controller's memory. No request changes anything,
//! and none waits for the API server. As the port is that of a loopback, the only ones to reach it are who may `kubectl port-forward` to
//! the pod, and its other containers. A page of somebody else in the same browser is kept out by the name that the request is for.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HOST, IF_NONE_MATCH, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use tokio_util::sync::CancellationToken;

use super::http::{HttpError, listen};
use crate::operator::overview::{ICON, PageFilter, SCRIPT, STYLE, StatusPage};

/// Nothing of another origin, nothing inline, no form to elsewhere, no frame around it.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// What each answer says. Names of claims stay in no cache.
const HEADERS: [(HeaderName, &str); 6] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    (CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

const HTML: &str = "text/html; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// Serves until `stop`.
pub async fn serve(address: SocketAddr, page: StatusPage, stop: CancellationToken) -> Result<(), HttpError> {
    let Some(listener) = listen(address, "--status-page", &stop).await? else { return Ok(()) };
    tracing::info!(%address, "serving the status page");
    axum::serve(listener, router(page)).with_graceful_shutdown(stop.cancelled_owned()).await.map_err(HttpError::Serve)
}

/// All that is served.
pub fn router(page: StatusPage) -> Router {
    // One page at a time is made, however many look: the controller has other work.
    let alone = Arc::new(Mutex::new(()));
    Router::new().fallback(move |request: Request| {
        let (page, alone) = (page.clone(), Arc::clone(&alone));
        async move {
            let (parts, _) = request.into_parts();
            let query = parts.uri.query().unwrap_or_default().to_owned();
            let path = parts.uri.path().to_owned();
            let made = tokio::task::spawn_blocking(move || {
                let make = |part: PagePart| {
                    let _alone = alone.lock().unwrap_or_else(PoisonError::into_inner);
                    let filter = PageFilter::parse(&query);
                    match part {
                        PagePart::Whole => page.page(&filter),
                        PagePart::Content => page.content(&filter),
                    }
                };
                let look = || {
                    page.pods().look();
                    page.tag()
                };
                answer(&parts.method, &path, &parts.headers, look, make)
            });
            made.await.unwrap_or_else(|error| plain(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
        }
    })
}

/// What is made of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PagePart {
    Whole,
    Content,
}

/// The answer to a request; `look` says that somebody looks, and gives out the tag of what would be made now.
fn answer(
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    look: impl FnOnce() -> String,
    make: impl FnOnce(PagePart) -> String,
) -> Response<Body> {
    if !is_for_this_machine(headers) {
        return plain(StatusCode::FORBIDDEN, "this page is only served as localhost\n");
    }
    if method != Method::GET && method != Method::HEAD {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "this page is only read\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let part = match path {
        "/" => PagePart::Whole,
        "/content" => PagePart::Content,
        "/style.css" => return response(StatusCode::OK, "text/css; charset=utf-8", STYLE),
        "/page.js" => return response(StatusCode::OK, "text/javascript; charset=utf-8", SCRIPT),
        "/icon.svg" => return response(StatusCode::OK, "image/svg+xml", ICON),
        _ => return plain(StatusCode::NOT_FOUND, "there is only /\n"),
    };
    let tag = look();
    let is_known = headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut response = match is_known {
        true => response(StatusCode::NOT_MODIFIED, HTML, Body::empty()),
        // The tag is older than what is made after it, never newer: then the next question gets it once more.
        false => response(StatusCode::OK, HTML, make(part)),
    };
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

/// A name of another site can be made to lead to a loopback: what the browser asks for then has that name.
fn is_for_this_machine(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    ["localhost", "127.0.0.1", "[::1]"].contains(&name)
}

fn plain(status: StatusCode, text: impl Into<Body>) -> Response<Body> {
    response(status, TEXT, text)
}

fn response(status: StatusCode, kind: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.extend(HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value))));
    response
}

#[cfg(test)]
mod tests {
    use axum::http::response::Parts;

    use super::*;

    const TAG: &str = "\"t.1\"";

    fn ask(method: &Method, path: &str, named: &[(HeaderName, &'static str)]) -> (StatusCode, HeaderMap, bool) {
        let (parts, is_made, _) = asked(method, path, named);
        (parts.status, parts.headers, is_made)
    }

    /// And whether a page was made, and whether it counts as a look.
    fn asked(method: &Method, path: &str, named: &[(HeaderName, &'static str)]) -> (Parts, bool, bool) {
        let headers = named.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect();
        let (mut is_made, mut is_look) = (false, false);
        let look = || {
            is_look = true;
            TAG.to_owned()
        };
        let make = |_| {
            is_made = true;
            "made".to_owned()
        };
        let (parts, _) = answer(method, path, &headers, look, make).into_parts();
        (parts, is_made, is_look)
    }

    #[test]
    fn only_reading_is_answered_and_only_for_a_name_of_this_machine() {
        let get = |host: &'static str| ask(&Method::GET, "/", &[(HOST, host)]).0;
        for host in ["localhost", "localhost:9812", "127.0.0.1:80", "[::1]:9812", "[::1]"] {
            assert_eq!(get(host), StatusCode::OK, "{host}");
        }
        for host in [
            "evil.example:9812",
            "127.0.0.1.evil.example",
            "localhost.evil",
            "10.0.0.1:9812",
            "",
            "[::1]x",
            "localhost:x",
        ] {
            assert_eq!(get(host), StatusCode::FORBIDDEN, "{host}");
        }
        assert_eq!(ask(&Method::GET, "/", &[]).0, StatusCode::FORBIDDEN);
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH, Method::OPTIONS] {
            let (status, headers, is_made) = ask(&method, "/", &[(HOST, "localhost")]);
            assert_eq!((status, is_made), (StatusCode::METHOD_NOT_ALLOWED, false));
            assert_eq!(headers[ALLOW], "GET, HEAD");
        }
        assert_eq!(ask(&Method::GET, "/metrics", &[(HOST, "localhost")]).0, StatusCode::NOT_FOUND);
    }

    #[test]
    fn what_has_not_changed_is_not_made_again() {
        let ask = |tag: &'static str| ask(&Method::GET, "/content", &[(HOST, "localhost"), (IF_NONE_MATCH, tag)]);
        let (status, headers, is_made) = ask(TAG);
        assert_eq!(
            (status, is_made, &headers[ETAG]),
            (StatusCode::NOT_MODIFIED, false, &HeaderValue::from_static(TAG))
        );
        let (status, headers, is_made) = ask("\"t.0\"");
        assert_eq!((status, is_made, &headers[ETAG]), (StatusCode::OK, true, &HeaderValue::from_static(TAG)));
    }

    #[test]
    fn whoever_gets_the_page_looks_also_if_nothing_has_changed_and_nobody_else_does() {
        let look = |method: &Method, path: &str, host: &'static str, tag: &'static str| {
            asked(method, path, &[(HOST, host), (IF_NONE_MATCH, tag)]).2
        };
        for (path, tag) in [("/", "\"t.0\""), ("/content", "\"t.0\""), ("/content", TAG)] {
            assert!(look(&Method::GET, path, "localhost", tag), "{path} {tag}");
        }
        assert!(!look(&Method::GET, "/", "evil.example", TAG) && !look(&Method::POST, "/", "localhost", TAG));
        for path in ["/style.css", "/page.js", "/icon.svg", "/nothing"] {
            assert!(!look(&Method::GET, path, "localhost", TAG), "{path}");
        }
    }

    #[test]
    fn each_answer_forbids_what_the_page_does_not_need() {
        for path in ["/", "/content", "/style.css", "/page.js", "/icon.svg", "/nothing"] {
            let (_, headers, _) = ask(&Method::GET, path, &[(HOST, "localhost")]);
            assert_eq!(headers[X_CONTENT_TYPE_OPTIONS], "nosniff", "{path}");
            assert_eq!(headers[CACHE_CONTROL], "no-store", "{path}");
            let policy = headers[CONTENT_SECURITY_POLICY].to_str().expect("text");
            assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{path}: {policy}");
        }
        let (_, headers, _) = ask(&Method::POST, "/", &[(HOST, "other")]);
        assert!(headers.contains_key(CONTENT_SECURITY_POLICY));
    }
}
