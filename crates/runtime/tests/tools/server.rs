//! A server that does exactly what it is told, to the byte, and counts what reaches it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// What the server does with one connection.
#[derive(Clone)]
pub(crate) enum Act {
    /// Reads the whole request and writes these bytes.
    Reply(Vec<u8>),
    /// Reads the whole request and sends its head back as the body.
    EchoHead,
    /// Reads so many bytes of the request and closes.
    CloseAfter(usize),
    /// Reads the whole request and closes without a word.
    Close,
    /// Reads the whole request and then says nothing until the other side goes.
    Hang,
}

impl Act {
    pub(crate) fn reply(status: u16, headers: &str, body: &str) -> Self {
        let length = body.len();
        Self::Reply(
            format!("HTTP/1.1 {status} Because\r\n{headers}content-length: {length}\r\n\r\n{body}")
                .into_bytes(),
        )
    }

    pub(crate) fn echo_head() -> Self {
        Self::EchoHead
    }
}

#[derive(Default)]
struct Count {
    connections: usize,
    /// What arrived on each connection, in the order of the connections.
    heard: Vec<Vec<u8>>,
}

/// Serves one connection after the other by one act each, and by the last one from then on.
pub(crate) struct Server {
    address: SocketAddr,
    count: Arc<Mutex<Count>>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(crate) async fn start(acts: Vec<Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let count = Arc::new(Mutex::new(Count::default()));
        let counted = Arc::clone(&count);
        let task = tokio::spawn(async move {
            for number in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                let act = acts.get(number).or(acts.last()).unwrap().clone();
                {
                    let mut count = counted.lock().unwrap();
                    count.connections += 1;
                    count.heard.push(Vec::new());
                }
                let counted = Arc::clone(&counted);
                tokio::spawn(async move {
                    let hear = |bytes: &[u8]| {
                        counted.lock().unwrap().heard[number].extend_from_slice(bytes);
                    };
                    serve(stream, act, hear).await;
                });
            }
        });
        Self { address, count, task }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn connections(&self) -> usize {
        self.count.lock().unwrap().connections
    }

    /// On how many connections any byte of a request arrived.
    pub(crate) fn deliveries(&self) -> usize {
        self.count.lock().unwrap().heard.iter().filter(|heard| !heard.is_empty()).count()
    }

    /// What arrived on a connection.
    pub(crate) fn heard(&self, connection: usize) -> String {
        String::from_utf8(self.count.lock().unwrap().heard[connection].clone()).unwrap()
    }
}

/// Plays one act on one connection.
pub(crate) async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    act: Act,
    mut hear: impl FnMut(&[u8]),
) {
    let mut request = Vec::new();
    let limit = if let Act::CloseAfter(bytes) = act { bytes } else { usize::MAX };
    while request.len() < limit && !is_whole(&request) {
        let mut buffer = vec![0; 4096.min(limit - request.len())];
        let Ok(read @ 1..) = stream.read(&mut buffer).await else { return };
        hear(&buffer[..read]);
        request.extend_from_slice(&buffer[..read]);
    }
    let reply = match act {
        Act::Reply(reply) => reply,
        Act::EchoHead => {
            let head = request.split(|b| *b == 0).next().unwrap().to_vec();
            let head = head[..head_length(&head).unwrap()].to_vec();
            [
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", head.len()).into_bytes(),
                head,
            ]
            .concat()
        }
        Act::CloseAfter(_) | Act::Close => return,
        Act::Hang => {
            while let Ok(1..) = stream.read(&mut [0; 64]).await {}
            return;
        }
    };
    // The other side may have had enough.
    let _gone = stream.write_all(&reply).await;
    let _gone = stream.shutdown().await;
}

fn head_length(request: &[u8]) -> Option<usize> {
    request.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4)
}

fn is_whole(request: &[u8]) -> bool {
    let Some(head) = head_length(request) else { return false };
    let text = String::from_utf8_lossy(&request[..head]).to_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
    request.len() >= head + length.map_or(0, |length| length.trim().parse().unwrap())
}
