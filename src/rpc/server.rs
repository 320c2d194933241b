//! Sockets: bound under another name and renamed into place, 0600, and kept at the end (kubelet takes a vanished socket
//! for a vanished driver). A stop lets the calls that are under way end.

#![allow(clippy::disallowed_methods, reason = "a socket is a file: this is the one effect outside of `host`")]

use std::fs::{self, Permissions};
use std::future::Future;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::service::Routes;
use tonic::transport::Server;

/// A socket path of Linux has at most 107 bytes.
const MAX_SOCKET_PATH: usize = 107;

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("the socket path {path} {why}")]
    Path { path: PathBuf, why: String },
    #[error("could not bind the socket {path}")]
    Bind {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("could not serve gRPC")]
    Serve(#[source] tonic::transport::Error),
}

/// Binds under a dot name and renames it over whatever socket was there.
pub fn bind(path: &Path) -> Result<UnixListener, ServeError> {
    let bad = |why: String| ServeError::Path { path: path.to_owned(), why };
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(bad("is not the path of a file".to_owned()));
    };
    let aside = parent.join(format!(".{}", name.to_string_lossy()));
    if aside.as_os_str().len() > MAX_SOCKET_PATH {
        return Err(bad(format!("is too long: {MAX_SOCKET_PATH} bytes is the most, with a dot before its name")));
    }
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(bad("exists already, and is not a socket: remove it, or choose another path".to_owned()));
        }
        _ => {}
    }
    let failed = |source| ServeError::Bind { path: path.to_owned(), source };
    fs::create_dir_all(parent).map_err(failed)?;
    match fs::remove_file(&aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = UnixListener::bind(&aside).map_err(failed)?;
    fs::set_permissions(&aside, Permissions::from_mode(0o600)).map_err(failed)?;
    fs::rename(&aside, path).map_err(failed)?;
    Ok(listener)
}

/// Serves until `stop`, then lets the calls end that are under way.
pub async fn serve(
    listener: UnixListener,
    routes: Routes,
    stop: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    let incoming = UnixListenerStream::new(listener);
    let server = Server::builder().add_routes(routes).serve_with_incoming_shutdown(incoming, stop);
    server.await.map_err(ServeError::Serve)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_the_new_one_is_for_root_only() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("csi.sock");
        drop(bind(&path).expect("bound"));
        let _again = bind(&path).expect("bound over the stale one");
        let found = fs::symlink_metadata(&path).expect("it is there");
        assert!(found.file_type().is_socket());
        assert_eq!(found.permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).expect("readable").count(), 1, "no dot name is left");
    }

    #[tokio::test]
    async fn a_socket_path_that_is_a_directory_a_file_or_too_long_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("file");
        fs::write(&file, "precious").expect("written");
        for (path, message) in [
            (dir.path().to_owned(), "not a socket"),
            (file.clone(), "not a socket"),
            (dir.path().join("a".repeat(200)), "too long"),
        ] {
            let error = bind(&path).expect_err("refused");
            assert!(error.to_string().contains(message), "{error}");
        }
        assert_eq!(fs::read_to_string(&file).expect("still there"), "precious");
    }
}
