//! A server as a worker has it: connected when it is needed, once for all calls, and compared with what
//! was pinned each time it is reached anew, when it says that its tools have changed, and now and then.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use hyper::header::HeaderName;
use rustls::ClientConfig;
use serde_json::{Map, Value};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::declaration::{BadServer, McpDeclaration, ServerName, Way};
use super::http::{self, Endpoint};
use super::offer::{Offer, Offered};
use super::session::Session;
use super::stdio;
use crate::tools::code;
use crate::tools::http::{BadHttp, Parts, Url, header_value, headers, tls_config};
use crate::tools::process::{ProcessOptions, Resident};
use crate::tools::secrets::{Mask, SecretName, SecretSource, Secrets};
use crate::tools::size::SizeBytes;

/// After this long a server is asked again what it offers, before the next call.
const ASK_AGAIN: Duration = Duration::from_secs(60);
/// Headers that the protocol sets.
const OURS: [&str; 5] =
    ["accept", "content-type", "last-event-id", "mcp-protocol-version", "mcp-session-id"];

/// See the module.
pub(in crate::tools) struct Server {
    name: ServerName,
    reach: Reach,
    /// The version to insist on: as declared, or as it was pinned.
    protocol: Option<String>,
    most: SizeBytes,
    pinned: Option<Offer>,
    frozen: BTreeMap<String, OnceLock<String>>,
    live: Mutex<Option<Live>>,
}

enum Reach {
    Program(Box<Resident>),
    Place(Box<Place>),
}

struct Place {
    url: Url,
    headers: Vec<(HeaderName, Parts)>,
    tls: Option<Arc<ClientConfig>>,
    allow_private: bool,
}

/// A conversation under way.
struct Live {
    session: Arc<Session>,
    secrets: Arc<Secrets>,
    asked: Instant,
}

/// Why there is no conversation. Nothing of a call was sent.
#[derive(Debug)]
pub(super) struct Unreached {
    pub(super) code: &'static str,
    pub(super) why: String,
}

impl Server {
    pub(in crate::tools) fn new(
        name: ServerName,
        declaration: &McpDeclaration,
        pinned: Option<Offer>,
        base_dir: &Arc<PathBuf>,
        options: Option<&ProcessOptions>,
    ) -> Result<Self, BadServer> {
        let secrets = &declaration.secrets;
        let reach = match declaration.way()? {
            Way::Stdio(program) => {
                Reach::Program(Box::new(Resident::new(program, secrets, base_dir, options)?))
            }
            Way::Http { allow_private, ca, headers, url } => {
                let place = place(&url, &headers, secrets)?;
                let ca = ca.map(|ca| base_dir.join(ca));
                let tls = place.0.https.then(|| tls_config(ca.as_deref())).transpose();
                let tls = tls.map_err(BadHttp::Authorities)?;
                let (url, headers) = place;
                Reach::Place(Box::new(Place { url, headers, tls, allow_private }))
            }
        };
        let protocol = pinned.as_ref().map(|offer| offer.protocol.clone());
        let tools = pinned.iter().flat_map(|offer| offer.tools.keys());
        Ok(Self {
            frozen: tools.map(|tool| (tool.clone(), OnceLock::new())).collect(),
            name,
            reach,
            protocol: declaration.protocol.clone().or(protocol),
            most: declaration.max_output,
            pinned,
            live: Mutex::default(),
        })
    }

    pub(super) fn name(&self) -> &ServerName {
        &self.name
    }

    /// Why a tool may not be called, if it was seen not to be what was pinned.
    pub(super) fn frozen(&self, tool: &str) -> Option<&str> {
        self.frozen.get(tool)?.get().map(String::as_str)
    }

    /// The conversation, begun now if there is none, with the server as it was pinned.
    pub(super) async fn session(
        self: &Arc<Self>,
        secrets: &Arc<Secrets>,
    ) -> Result<Arc<Session>, Unreached> {
        let mut live = self.live.lock().await;
        let usable = live.take().filter(|live| {
            live.session.ended().is_none() && live.secrets.iter().eq(secrets.iter())
        });
        let mut current = match usable {
            Some(current) => current,
            None => {
                let session = Arc::new(self.begin(secrets).await?);
                tokio::spawn(watch(Arc::downgrade(self), Arc::downgrade(&session)));
                let asked = Instant::now();
                self.compare(&session).await?;
                Live { session, secrets: Arc::clone(secrets), asked }
            }
        };
        if current.session.inbox().take_stale() || current.asked.elapsed() >= ASK_AGAIN {
            current.asked = Instant::now();
            self.compare(&current.session).await?;
        }
        let session = Arc::clone(&current.session);
        *live = Some(current);
        Ok(session)
    }

    /// Asks what the server offers and freezes what is not as it was pinned.
    async fn compare(&self, session: &Session) -> Result<(), Unreached> {
        let offer = session.offer().await.map_err(unreached)?;
        let Some(pinned) = &self.pinned else { return Ok(()) };
        for (tool, frozen) in &self.frozen {
            if let Some(why) = pinned.differs(&offer, tool) {
                let reason = format!("{why}; look at it and run `gesta tools pin`");
                if frozen.set(reason).is_ok() {
                    tracing::warn!(server = %self.name, tool, why, "a tool is frozen");
                }
            }
        }
        Ok(())
    }

    async fn begin(&self, secrets: &Secrets) -> Result<Session, Unreached> {
        let (wire, inbox) = match &self.reach {
            Reach::Program(program) => {
                let mask = Arc::new(Mask::new(secrets));
                let running = program.start(secrets, &mask).await;
                let running =
                    running.map_err(|why| Unreached { code: code::TOOL_NOT_STARTED, why })?;
                stdio::connect(running, mask, self.most)
            }
            Reach::Place(place) => http::connect(self.endpoint(place, secrets)?),
        };
        Session::begin(wire, inbox, self.protocol.as_deref()).await.map_err(unreached)
    }

    fn endpoint(&self, place: &Place, secrets: &Secrets) -> Result<Endpoint, Unreached> {
        let Place { url, headers, tls, allow_private } = place;
        let bad = |why| Unreached { code: code::SECRET_UNAVAILABLE, why };
        let headers = headers.iter().map(|(name, parts)| {
            header_value(name, parts, secrets).map(|value| (name.clone(), value))
        });
        let headers = headers.collect::<Result<_, _>>().map_err(bad)?;
        let schemas =
            self.pinned.iter().flat_map(|offer| &offer.tools).filter_map(|(name, raw)| {
                Offered::read(raw).ok().map(|tool| (name.clone(), tool.input_schema))
            });
        Ok(Endpoint {
            target: url.target(&Map::new()).map_err(bad)?.into(),
            url: url.clone(),
            headers,
            tls: tls.clone(),
            allow_private: *allow_private,
            most: self.most,
            schemas: schemas.collect::<BTreeMap<String, Value>>(),
        })
    }
}

fn unreached(why: String) -> Unreached {
    Unreached { code: code::NOT_CONNECTED, why }
}

fn place(
    url: &str,
    declared: &BTreeMap<String, String>,
    secrets: &BTreeMap<SecretName, SecretSource>,
) -> Result<(Url, Vec<(HeaderName, Parts)>), BadServer> {
    let url = Url::parse(url)?;
    if url.arguments().next().is_some() {
        return Err(BadHttp::Url("a server's URL has no placeholders".to_owned()).into());
    }
    let headers = headers(declared, secrets)?;
    let ours =
        |name: &HeaderName| OURS.contains(&name.as_str()) || name.as_str().starts_with("mcp-");
    match headers.iter().find(|(name, _)| ours(name)) {
        Some((name, _)) => Err(BadHttp::ReservedHeader(name.to_string()).into()),
        None => Ok((url, headers)),
    }
}

/// Looks at once when the server says that its tools have changed.
async fn watch(server: Weak<Server>, session: Weak<Session>) {
    loop {
        let Some(inbox) = session.upgrade().map(|session| Arc::clone(session.inbox())) else {
            return;
        };
        tokio::select! {
            () = inbox.changed() => {}
            () = inbox.wait_for_end() => return,
        }
        let (Some(server), Some(session)) = (server.upgrade(), session.upgrade()) else { return };
        // What cannot be asked now is asked before the next call.
        if !matches!(timeout(ASK_AGAIN, server.compare(&session)).await, Ok(Ok(()))) {
            session.inbox().mark_stale();
            return;
        }
    }
}

/// A declared server that can be asked what it offers.
pub struct Asking {
    pub(in crate::tools) server: Arc<Server>,
    pub(in crate::tools) declaration: McpDeclaration,
    pub(in crate::tools) base_dir: Arc<PathBuf>,
}

impl Asking {
    /// Which server.
    pub fn name(&self) -> &ServerName {
        &self.server.name
    }

    /// Starts or reaches the server and asks what it offers: the tools that the declaration takes. What
    /// is wrong is told with secrets masked.
    pub async fn offer(&self) -> Result<Offer, String> {
        let sources = self.declaration.secrets.clone();
        let base_dir = Arc::clone(&self.base_dir);
        let found = tokio::task::spawn_blocking(move || Secrets::find(&sources, &base_dir)).await;
        let secrets = match found {
            Ok(found) => found.map_err(|error| error.to_string())?,
            Err(_) => return Err("secrets are not read any more".to_owned()),
        };
        let mask = Mask::new(&secrets);
        let masked = |why: String| mask.apply_text(&why);
        let session = self.server.begin(&secrets).await;
        let session = session.map_err(|Unreached { why, .. }| masked(why))?;
        let mut offer = session.offer().await.map_err(masked)?;
        offer.tools.retain(|tool, _| self.declaration.takes(tool));
        let told = offer.tools.values().chain([&offer.server]);
        if told.into_iter().any(|raw| mask.apply(raw.as_bytes()) != raw.as_bytes()) {
            return Err(
                "what it offers holds one of its secrets, which must not be recorded".into()
            );
        }
        Ok(offer)
    }
}
