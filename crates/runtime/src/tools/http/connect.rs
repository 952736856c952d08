//! From a host to a connection: every address that the name leads to is checked, and the connection
//! goes to one of exactly these. Nothing of the request is sent here.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

use super::address;
use super::template::Url;

/// A connection, encrypted or not.
pub(in crate::tools) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(in crate::tools) enum NotConnected {
    #[error(
        "`{host}` leads to {address}, which is {kind}; `allow_private = true` lets this tool reach it"
    )]
    Refused { host: String, address: IpAddr, kind: &'static str },
    #[error("the address of `{host}` cannot be found: {why}")]
    NoAddress { host: String, why: String },
    #[error("cannot connect to `{authority}`: {why}")]
    NoConnection { authority: String, why: io::Error },
    #[error("no encrypted connection to `{authority}`: {why}")]
    NotEncrypted { authority: String, why: String },
    /// The other side is not who it should be.
    #[error("`{authority}` is not who it should be: {why}")]
    NotTrusted { authority: String, why: rustls::Error },
    #[error("the deadline passed before there was a connection to `{authority}`")]
    Late { authority: String },
}

impl NotConnected {
    /// Whether it may be otherwise later.
    pub(in crate::tools) fn may_pass(&self) -> bool {
        !matches!(self, Self::Refused { .. } | Self::NotTrusted { .. })
    }
}

/// Connects before the deadline, or not at all.
pub(in crate::tools) async fn connect(
    url: &Url,
    allow_private: bool,
    tls: Option<&Arc<ClientConfig>>,
    deadline: Instant,
) -> Result<Box<dyn Stream>, NotConnected> {
    let connecting = async {
        let addresses = addresses(url, allow_private).await?;
        let tcp = connect_to_any(url, &addresses, deadline).await?;
        match tls {
            Some(config) => encrypt(url, tcp, config).await,
            None => Ok(Box::new(tcp) as Box<dyn Stream>),
        }
    };
    let late = || NotConnected::Late { authority: url.authority.clone() };
    match timeout_at(deadline, connecting).await {
        // Whoever sends now can hear no reply in time.
        Ok(Ok(_)) if Instant::now() >= deadline => Err(late()),
        Ok(connected) => connected,
        Err(_) => Err(late()),
    }
}

/// All of them, or none if one is not public: a name that leads to both kinds is playing tricks.
async fn addresses(url: &Url, allow_private: bool) -> Result<Vec<SocketAddr>, NotConnected> {
    let host = || url.host.clone();
    let found = lookup_host((url.host.as_str(), url.port)).await;
    let found: Vec<SocketAddr> = match found {
        Ok(found) => found.collect(),
        Err(error) => {
            return Err(NotConnected::NoAddress { host: host(), why: error.to_string() });
        }
    };
    if found.is_empty() {
        return Err(NotConnected::NoAddress { host: host(), why: "there is none".to_owned() });
    }
    let refused = found.iter().find_map(|found| {
        let kind = address::not_public(found.ip())?;
        Some(NotConnected::Refused { host: host(), address: found.ip(), kind })
    });
    match refused.filter(|_| !allow_private) {
        Some(refused) => Err(refused),
        None => Ok(found),
    }
}

/// One after the other. Nothing has been sent, so another address is no second delivery.
async fn connect_to_any(
    url: &Url,
    addresses: &[SocketAddr],
    deadline: Instant,
) -> Result<TcpStream, NotConnected> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for (tried, address) in (0..).zip(addresses) {
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
        match timeout_at(Instant::now() + share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Requests are small and sent whole.
                let _slower = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(NotConnected::NoConnection { authority: url.authority.clone(), why: last })
}

async fn encrypt(
    url: &Url,
    tcp: TcpStream,
    config: &Arc<ClientConfig>,
) -> Result<Box<dyn Stream>, NotConnected> {
    let authority = || url.authority.clone();
    let broken = |why: String| NotConnected::NotEncrypted { authority: authority(), why };
    let name = ServerName::try_from(url.host.clone()).map_err(|error| broken(error.to_string()))?;
    match TlsConnector::from(Arc::clone(config)).connect(name, tcp).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>())
        {
            Some(why @ rustls::Error::InvalidCertificate(_)) => {
                Err(NotConnected::NotTrusted { authority: authority(), why: why.clone() })
            }
            _ => Err(broken(error.to_string())),
        },
    }
}
