//! Appends that break off: connections that die, a server that cannot be written, a runtime that
//! is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use gesta_core::projection::Admitted;
use gesta_core::time::UnixMs;
use gesta_store::postgres::PostgresStore;
use gesta_store::{AppendError, Chain, ChainError, Store as _, StoreError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::{Place, url};
use crate::suite::{self, Job, fold};

const AT: UnixMs = UnixMs(1_000_000);

/// Connections are killed again and again while many append. What was answered is there, once, and
/// what was not answered is settled by sending it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_connections_lose_and_double_nothing() {
    const JOBS: u8 = 16;
    const UNKNOWN: usize = 60;
    let place = Place::new();
    let store = Arc::new(place.open().await);
    let unknown = Arc::new(AtomicUsize::new(0));
    let enough = Arc::new(AtomicBool::new(false));
    let appends = (1..=JOBS).map(|number| {
        let (store, unknown, enough) =
            (Arc::clone(&store), Arc::clone(&unknown), Arc::clone(&enough));
        tokio::spawn(async move {
            let mut job = Job::new(number, AT);
            settle(&store, job.begin(), &unknown).await;
            let mut count = 0;
            while !enough.load(Ordering::Relaxed) {
                count += 1;
                settle(&store, job.signal(&format!("s-{count}")), &unknown).await;
            }
            job
        })
    });
    let appends: Vec<_> = appends.collect();
    let admin = place.admin().await;
    let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE application_name = $1 AND state = 'active'";
    while unknown.load(Ordering::Relaxed) < UNKNOWN {
        admin.query(kill, &[&place.name]).await.unwrap();
        tokio::task::yield_now().await; // asking takes time
    }
    enough.store(true, Ordering::Relaxed);
    // The last of them may end a connection that is idle by now: whoever looks has others.
    let onlooker = place.open().await;
    for append in appends {
        let job = append.await.unwrap();
        assert_eq!(fold(&onlooker, job.id()).await.head(), job.state.head());
    }
}

/// Sends the same until it is known to be there. Nobody else appends here: a conflict would mean
/// that an entry is there twice, or under another id.
async fn settle(store: &PostgresStore, admitted: Admitted, unknown: &AtomicUsize) {
    loop {
        match store.append(admitted.clone()).await {
            Ok(head) => return assert_eq!(head, admitted.head()),
            Err(AppendError::Unknown(StoreError::Unreachable { .. })) => {
                unknown.fetch_add(1, Ordering::Relaxed);
            }
            Err(AppendError::Refused(StoreError::Unreachable { .. })) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

/// A connection that the server ends in the middle of a statement: nobody can tell what became of
/// it. Sending the same again appends it, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_append_is_unknown_and_settled_by_resending() {
    let place = Place::new();
    let store = Arc::new(place.open().await);
    let mut job = Job::new(1, AT);
    store.append(job.begin()).await.unwrap();
    let admin = place.admin().await;
    admin.batch_execute("BEGIN; SELECT FROM trajectories FOR UPDATE").await.unwrap();
    let next = job.signal("next");
    let append = tokio::spawn({
        let (store, next) = (Arc::clone(&store), next.clone());
        async move { store.append(next).await }
    });
    place.until_blocked(1).await;
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE application_name = $1 AND wait_event_type = 'Lock'";
    admin.query(kill, &[&place.name]).await.unwrap();
    let answer = append.await.unwrap();
    assert!(
        matches!(answer, Err(AppendError::Unknown(StoreError::Unreachable { .. }))),
        "{answer:?}"
    );
    admin.batch_execute("COMMIT").await.unwrap();
    assert_eq!(store.append(next.clone()).await, Ok(next.head()));
    assert_eq!(store.append(next.clone()).await, Ok(next.head()));
    assert_eq!(fold(&*store, job.id()).await.head(), job.state.head());
}

/// The append is committed and the answer gets lost on its way. Sending the same again tells.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_is_unknown_and_settled_by_resending() {
    let place = Place::new();
    let (silenced, url) = silenceable().await;
    let store = PostgresStore::connect(&url, &place.options()).await.unwrap();
    let mut job = Job::new(1, AT);
    store.append(job.begin()).await.unwrap();
    // The statement is prepared: what is silenced is the answer to the append.
    store.append(job.signal("first")).await.unwrap();
    silenced.store(true, Ordering::SeqCst);
    let next = job.signal("next");
    let answer = store.append(next.clone()).await;
    assert!(
        matches!(answer, Err(AppendError::Unknown(StoreError::Unreachable { .. }))),
        "{answer:?}"
    );
    silenced.store(false, Ordering::SeqCst);
    let head = store.trajectory(job.id()).await.unwrap().unwrap().head;
    assert_eq!(head, next.head(), "it was committed");
    assert_eq!(store.append(next).await, Ok(head));
    assert_eq!(fold(&store, job.id()).await.head(), Some(head));
}

/// The same, and then the server is out of reach: that nothing could be sent a second time says
/// nothing of the first. Whoever writes to the chain hears that it is unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_append_stays_unknown_while_the_server_is_out_of_reach() {
    let place = Place::new();
    let (silenced, url) = silenceable().await;
    let store = PostgresStore::connect(&url, &place.options()).await.unwrap();
    let mut job = Job::new(1, AT);
    store.append(job.begin()).await.unwrap();
    store.append(job.signal("first")).await.unwrap();
    let mut chain: Chain = Chain::load(Arc::new(store), job.id()).await.unwrap();
    silenced.store(true, Ordering::SeqCst);
    let told = chain.append(|admission| Ok(suite::push_signal(admission, AT, "next")?)).await;
    assert!(
        matches!(told, Err(ChainError::Append(AppendError::Unknown(_)))),
        "{told:?} although it is there"
    );
    assert_eq!(chain.state(), &job.state);
    silenced.store(false, Ordering::SeqCst);
    let next = job.signal("next");
    let head = chain.append(|admission| Ok(suite::push_signal(admission, AT, "next")?)).await;
    assert_eq!(head, Ok(next.head()), "the same again is how it is settled");
    assert_eq!(fold(&place.open().await, job.id()).await, job.state);
}

/// A way to the server that can be silenced, and its URL.
async fn silenceable() -> (Arc<AtomicBool>, String) {
    let silenced = Arc::new(AtomicBool::new(false));
    let port = pass_on(Arc::clone(&silenced)).await;
    let url = url();
    let (credentials, rest) = url.split_once("@127.0.0.1:").unwrap();
    let (_, database) = rest.split_once('/').unwrap();
    (silenced, format!("{credentials}@127.0.0.1:{port}/{database}?sslmode=disable"))
}

/// Passes connections on to the server. Silenced, it drops the next answer of each together with
/// the connection.
async fn pass_on(silenced: Arc<AtomicBool>) -> u16 {
    let server: u16 = url().rsplit(':').next().unwrap().split('/').next().unwrap().parse().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            let silenced = Arc::clone(&silenced);
            let asking =
                tokio::spawn(
                    async move { tokio::io::copy(&mut from_client, &mut to_server).await },
                );
            tokio::spawn(async move {
                let mut answer = [0; 4096];
                while let Ok(size @ 1..) = from_server.read(&mut answer).await {
                    if silenced.load(Ordering::SeqCst)
                        || to_client.write_all(&answer[..size]).await.is_err()
                    {
                        break;
                    }
                }
                asking.abort();
            });
        }
    });
    port
}

/// A server that takes no writes says so, and the append is certainly absent.
#[tokio::test]
async fn a_read_only_server_refuses() {
    let place = Place::new();
    let store = place.open().await;
    let mut job = Job::new(1, AT);
    store.append(job.begin()).await.unwrap();
    let url = format!("{}?options=-c%20default_transaction_read_only%3Don", url());
    let reader = PostgresStore::connect(&url, &place.options()).await.unwrap();
    let refused = reader.append(job.clone().signal("s")).await;
    assert!(
        matches!(refused, Err(AppendError::Refused(StoreError::ReadOnly { .. }))),
        "{refused:?}"
    );
    assert!(matches!(reader.put_blob(b"b").await, Err(StoreError::ReadOnly { .. })));
    assert_eq!(fold(&reader, job.id()).await.head(), job.state.head());
}

/// Nobody waits for ever for tasks that are gone with their runtime.
#[test]
fn a_store_without_its_runtime_is_closed() {
    let place = Place::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = runtime.block_on(place.open());
    drop(runtime);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let appended = runtime.block_on(store.append(Job::new(1, AT).begin()));
    assert_eq!(appended, Err(AppendError::Refused(StoreError::Closed)));
}
