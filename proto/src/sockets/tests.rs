use std::time::Duration;

use futures::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// Both kinds, each with a folder to use.
fn both() -> [(Sockets, PathBuf, Option<tempfile::TempDir>); 2] {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    [(Sockets::memory(), PathBuf::from("/plugins"), None), (Sockets::Unix, path, Some(folder))]
}

#[tokio::test]
async fn bytes_go_both_ways() {
    for (sockets, folder, _keep) in both() {
        let path = folder.join("a.sock");
        let mut listener = sockets.listen(&path).unwrap();
        let mut ours = sockets.dial(&path).await.unwrap();
        let mut theirs = listener.next().await.unwrap().unwrap();
        ours.write_all(b"ping").await.unwrap();
        let mut buffer = [0; 4];
        theirs.read_exact(&mut buffer).await.unwrap();
        theirs.write_all(b"pong").await.unwrap();
        ours.read_exact(&mut buffer).await.unwrap();
        assert_eq!(&buffer, b"pong", "{sockets}");
        drop(theirs);
        assert_eq!(ours.read(&mut buffer).await.unwrap(), 0, "{sockets}: the other end was closed");
    }
}

#[tokio::test]
async fn a_path_is_taken_until_it_is_removed() {
    for (sockets, folder, _keep) in both() {
        let path = folder.join("a.sock");
        assert_eq!(sockets.identity(&path), None);
        assert_eq!(sockets.dial(&path).await.unwrap_err().kind(), io::ErrorKind::NotFound, "{sockets}");
        assert_eq!(sockets.remove(&path).unwrap_err().kind(), io::ErrorKind::NotFound, "{sockets}");

        let listener = sockets.listen(&path).unwrap();
        let first = sockets.identity(&path).unwrap();
        assert_eq!(sockets.listen(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse, "{sockets}");
        drop(listener);
        assert!(sockets.exists(&path), "{sockets}: closing a listener leaves the name");
        assert_eq!(
            sockets.dial(&path).await.unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused,
            "{sockets}"
        );
        assert_eq!(sockets.listen(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse, "{sockets}");

        sockets.remove(&path).unwrap();
        assert!(!sockets.exists(&path));
        // Time stamps of files are as coarse as the kernel's tick.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let _listener = sockets.listen(&path).unwrap();
        assert_ne!(sockets.identity(&path).unwrap(), first, "{sockets}: made anew");
    }
}

#[tokio::test]
async fn a_removed_socket_keeps_what_it_accepted_and_gets_nothing_new() {
    for (sockets, folder, _keep) in both() {
        let path = folder.join("a.sock");
        let mut old = sockets.listen(&path).unwrap();
        let mut ours = sockets.dial(&path).await.unwrap();
        let mut theirs = old.next().await.unwrap().unwrap();
        sockets.remove(&path).unwrap();
        ours.write_all(b"x").await.unwrap();
        assert_eq!(theirs.read_u8().await.unwrap(), b'x', "{sockets}");

        let mut new = sockets.listen(&path).unwrap();
        let _other = sockets.dial(&path).await.unwrap();
        new.next().await.unwrap().unwrap();
        let waited = tokio::time::timeout(Duration::from_millis(10), old.next()).await;
        assert!(waited.is_err(), "{sockets}: the old listener is not told and gets nothing");
    }
}

#[tokio::test]
async fn a_folder_lists_what_lies_directly_in_it() {
    for (sockets, folder, _keep) in both() {
        assert_eq!(sockets.list(&folder.join("none")).unwrap(), Vec::<PathBuf>::new());
        let _b = sockets.listen(&folder.join("b.sock")).unwrap();
        let _a = sockets.listen(&folder.join("a.sock")).unwrap();
        assert_eq!(
            sockets.list(&folder).unwrap(),
            [folder.join("a.sock"), folder.join("b.sock")],
            "{sockets}"
        );
    }
}

#[tokio::test]
async fn an_error_names_the_socket_and_the_innermost_cause() {
    for (sockets, folder, _keep) in both() {
        let path = folder.join("none.sock");
        let said = sockets.connect(&path).await.unwrap_err().to_string();
        assert!(said.contains("none.sock") && said.to_lowercase().contains("no such"), "{sockets}: {said}");
    }
}

#[tokio::test]
async fn a_dropped_listener_breaks_what_it_accepted() {
    for (sockets, folder, _keep) in both() {
        let path = folder.join("a.sock");
        let mut listener = sockets.listen(&path).unwrap();
        let _ours = sockets.dial(&path).await.unwrap();
        let mut theirs = listener.next().await.unwrap().unwrap();
        let mut buffer = [0; 1];
        {
            let mut reading = std::pin::pin!(theirs.read(&mut buffer));
            assert!(futures::poll!(&mut reading).is_pending(), "{sockets}");
            drop(listener);
            assert_eq!(reading.await.unwrap(), 0, "{sockets}: a waiting reader is woken");
        }
        assert_eq!(theirs.read(&mut buffer).await.unwrap(), 0, "{sockets}: and stays at the end");
        assert_eq!(theirs.write(b"x").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe, "{sockets}");
    }
}
