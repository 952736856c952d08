//! The tools that a worker has: declared in files or given by a program, checked together, and
//! identified by one digest.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gesta_core::digest::Digest;
use gesta_core::document::Recovery;
use gesta_core::ids::ToolName;
use gesta_core::json::{self, Canon, JsonError, Limits};
use gesta_core::writ::Effect;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use toml::Spanned;

use super::declaration::{Declaration, DriverDeclaration, LargerFile, SchemaSource, ToolFile};
use super::definitions::Definitions;
use super::driver::Driver;
use super::error::{CatalogueError, Place, Problem};
use super::function::{Function, FunctionCall, FunctionError, Returned};
use super::http::Http;
use super::manifest::{COMPENSATE_NAMES, Change, Compensate, Manifest};
use super::mcp::{
    self, Asking, BadServer, ErrorRules, McpDeclaration, McpTool, Offer, Server, ServerName, Way,
};
use super::process::{Process, ProcessOptions};
use super::secrets::{Guarded, Transport};
use super::tool::Tool;
use super::verifier::{self, Verifier, VerifierDeclaration};
use crate::job::Template;
use crate::rules::Rules;

const MAX_ATTEMPTS: u32 = 100;
const MAX_RISK: u8 = 100;
/// A catalogue of a few thousand tools. Deeper than a document of the chain, because each schema
/// may be that deep already.
pub(super) const LIMITS: Limits =
    Limits { max_bytes: 64 << 20, max_depth: Limits::DEFAULT.max_depth + 8 };

/// The type of the document.
pub(super) const TYPE: &str = "gesta.catalogue.v1";

/// The tools that a worker has.
#[derive(Debug)]
pub struct Catalogue {
    pub(super) tools: BTreeMap<ToolName, Tool>,
    verifiers: BTreeMap<ToolName, Verifier>,
    canonical: Canon,
    digest: Digest,
    definitions: Definitions,
    unpinned: Vec<ServerName>,
}

impl Catalogue {
    /// An empty catalogue, to be filled.
    pub fn builder() -> CatalogueBuilder {
        CatalogueBuilder::default()
    }

    /// Tools that are only on record.
    pub(super) fn unreachable(
        tools: BTreeMap<ToolName, Tool>,
        canonical: Canon,
    ) -> Result<Self, String> {
        let digest = Digest::of(canonical.as_bytes());
        let definitions = Definitions::of_document(&canonical)?;
        let (verifiers, unpinned) = (BTreeMap::new(), Vec::new());
        Ok(Self { tools, verifiers, canonical, digest, definitions, unpinned })
    }

    /// A tool by its name.
    pub fn get(&self, name: &ToolName) -> Option<&Tool> {
        self.tools.get(name)
    }

    /// All tools, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Tool> {
        self.tools.values()
    }

    /// A verifier by its name.
    pub fn verifier(&self, name: &ToolName) -> Option<&Verifier> {
        self.verifiers.get(name)
    }

    /// The MCP servers that are declared and were never pinned: what they offer is not known here.
    pub fn unpinned_servers(&self) -> &[ServerName] {
        &self.unpinned
    }

    /// Everything that is declared, as canonical JSON. Holds no secret.
    pub fn canonical(&self) -> &Canon {
        &self.canonical
    }

    /// The digest of [`Catalogue::canonical`].
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// What each of its tools and verifiers is.
    pub(crate) fn definitions(&self) -> &Definitions {
        &self.definitions
    }
}

/// Collects tools. Nothing is checked across tools before [`CatalogueBuilder::build`].
#[derive(Default)]
pub struct CatalogueBuilder {
    process: Option<ProcessOptions>,
    pending: Vec<Pending>,
    verifiers: Vec<PendingVerifier>,
    servers: Vec<PendingServer>,
    offers: BTreeMap<ServerName, Offer>,
}

struct PendingVerifier {
    place: Option<Place>,
    name: ToolName,
    declaration: VerifierDeclaration,
    base_dir: Arc<PathBuf>,
}

struct PendingServer {
    place: Place,
    name: ServerName,
    declaration: McpDeclaration,
    base_dir: Arc<PathBuf>,
}

struct Pending {
    place: Option<Place>,
    manifest: Manifest,
    reached: Reached,
}

enum Reached {
    Declared { driver: DriverDeclaration, base_dir: Arc<PathBuf> },
    Given { declaration: Canon, driver: Arc<dyn Driver> },
}

impl CatalogueBuilder {
    /// How processes are run. Without it, a tool that is a process is refused.
    #[must_use]
    pub fn process(mut self, options: ProcessOptions) -> Self {
        self.process = Some(options);
        self
    }

    /// What MCP servers offered when they were pinned. A server without an offer has no tools: nothing
    /// that it says of itself has been accepted.
    #[must_use]
    pub fn offers(mut self, offers: BTreeMap<ServerName, Offer>) -> Self {
        self.offers = offers;
        self
    }

    /// The declared MCP servers, to be asked what they offer.
    pub fn asking(&self) -> Result<Vec<Asking>, CatalogueError> {
        let asking = self.servers.iter().map(|pending| {
            let server = Arc::new(pending.server(None, self.process.as_ref())?);
            let PendingServer { declaration, base_dir, .. } = pending;
            let (declaration, base_dir) = (declaration.clone(), Arc::clone(base_dir));
            Ok(Asking { server, declaration, base_dir })
        });
        asking.collect()
    }

    /// Adds the tools of a file that holds nothing else. `label` is how errors call the file;
    /// relative paths in it begin at `base_dir`.
    pub fn file(self, label: &str, text: &str, base_dir: &Path) -> Result<Self, CatalogueError> {
        let file: ToolFile = read_toml(label, text)?;
        self.mounted(label, text, base_dir, file.verifiers)
            .declared(label, text, base_dir, file.tools, file.mcp)
    }

    /// Adds the tools under `[tools]`, and the servers under `[mcp]`, of a file that holds other settings too.
    pub fn section(self, label: &str, text: &str, base_dir: &Path) -> Result<Self, CatalogueError> {
        let file: LargerFile = read_toml(label, text)?;
        self.mounted(label, text, base_dir, file.verifiers)
            .declared(label, text, base_dir, file.tools, file.mcp)
    }

    /// Adds a function of this program as a tool. A panic, or a deadline that passes while it runs,
    /// leaves its effect unknown.
    #[must_use]
    pub fn function<F, R, T>(self, manifest: Manifest, function: F) -> Self
    where
        F: Fn(FunctionCall) -> R + Send + Sync + 'static,
        R: Future<Output = Result<T, FunctionError>> + Send + 'static,
        T: Into<Returned>,
    {
        let base_dir = Arc::new(PathBuf::new());
        let driver = guarded(&manifest, &base_dir, Function::new(function));
        let declaration = Canon::of(&serde_json::json!({ "function": {} }));
        // An object of one name is always canonical.
        self.driver(manifest, declaration.unwrap_or_else(|_| Canon::null()), driver)
    }

    /// Adds a tool that is reached by a driver of the caller's. `declaration` stands for how it is
    /// reached in the tool's digest; a driver masks its own secrets.
    #[must_use]
    pub fn driver(
        mut self,
        manifest: Manifest,
        declaration: Canon,
        driver: Arc<dyn Driver>,
    ) -> Self {
        let reached = Reached::Given { declaration, driver };
        self.pending.push(Pending { place: None, manifest, reached });
        self
    }

    /// Adds a verifier.
    #[must_use]
    pub fn verifier(
        mut self,
        name: ToolName,
        declaration: VerifierDeclaration,
        base_dir: &Path,
    ) -> Self {
        let base_dir = Arc::new(base_dir.to_owned());
        self.verifiers.push(PendingVerifier { place: None, name, declaration, base_dir });
        self
    }

    /// Checks every tool and makes the catalogue.
    pub fn build(self) -> Result<Catalogue, CatalogueError> {
        let Self { process, mut pending, verifiers, servers, mut offers } = self;
        let mut unpinned = Vec::new();
        let mut seen = BTreeSet::new();
        for server in servers {
            if !seen.insert(server.name.clone()) {
                return Err(server.problem(BadServer::Twice));
            }
            match offers.remove(&server.name) {
                Some(offer) => pending.extend(server.tools(&offer, process.as_ref())?),
                None => {
                    server.server(None, process.as_ref())?;
                    unpinned.push(server.name);
                }
            }
        }
        let effects: BTreeMap<ToolName, Effect> =
            pending.iter().map(|p| (p.manifest.name.clone(), p.manifest.effect)).collect();
        let verifiers = mount(verifiers, &effects, process.as_ref())?;
        let mut tools = BTreeMap::new();
        for Pending { place, manifest, reached } in pending {
            let name = manifest.name.clone();
            let problem = |problem| CatalogueError {
                place: place.clone(),
                tool: Some(name.clone()),
                problem: Box::new(problem),
            };
            if name.delegates().is_some() {
                return Err(problem(Problem::Reserved));
            }
            check(&manifest, &effects).map_err(problem)?;
            verifier::check(&manifest, &verifiers).map_err(problem)?;
            Rules::of(&manifest).map_err(|why| problem(Problem::Rule(why.to_string())))?;
            let (declaration, driver) = match reached {
                Reached::Given { declaration, driver } => (declaration, driver),
                Reached::Declared { driver, base_dir } => {
                    reach(&manifest, &driver, &base_dir, process.as_ref()).map_err(problem)?
                }
            };
            let tool = Tool::new(manifest, &declaration, driver).map_err(problem)?;
            if tools.insert(name.clone(), tool).is_some() {
                return Err(problem(Problem::Twice));
            }
        }
        let canonical = canonical(&tools, &verifiers).map_err(|error| CatalogueError {
            place: None,
            tool: None,
            problem: Box::new(error.into()),
        })?;
        let digest = Digest::of(canonical.as_bytes());
        let definitions = Definitions::of(&tools, &verifiers);
        Ok(Catalogue { digest, definitions, canonical, tools, verifiers, unpinned })
    }

    fn mounted(
        mut self,
        label: &str,
        text: &str,
        base_dir: &Path,
        verifiers: BTreeMap<Spanned<ToolName>, VerifierDeclaration>,
    ) -> Self {
        let base_dir = Arc::new(base_dir.to_owned());
        for (name, declaration) in verifiers {
            let place = Some(Place::new(label, text, name.span().start));
            let (name, base_dir) = (name.into_inner(), Arc::clone(&base_dir));
            self.verifiers.push(PendingVerifier { place, name, declaration, base_dir });
        }
        self
    }

    fn declared(
        mut self,
        label: &str,
        text: &str,
        base_dir: &Path,
        tools: BTreeMap<Spanned<ToolName>, Declaration>,
        mcp: BTreeMap<Spanned<ServerName>, McpDeclaration>,
    ) -> Result<Self, CatalogueError> {
        let base_dir = Arc::new(base_dir.to_owned());
        self.servers.extend(mcp.into_iter().map(|(name, declaration)| PendingServer {
            place: Place::new(label, text, name.span().start),
            name: name.into_inner(),
            declaration,
            base_dir: Arc::clone(&base_dir),
        }));
        for (name, declaration) in tools {
            let place = Place::new(label, text, name.span().start);
            let name = name.into_inner();
            let mut manifest = declaration.manifest(name.clone());
            let Declaration { input, output, driver, .. } = declaration;
            let read = |schema: Option<SchemaSource>| {
                schema.map(|schema| read_schema(schema, &base_dir)).transpose().map_err(|problem| {
                    let (place, tool) = (Some(place.clone()), Some(name.clone()));
                    CatalogueError { place, tool, problem: Box::new(problem) }
                })
            };
            manifest.input = read(input)?;
            manifest.output = read(output)?;
            let reached = Reached::Declared { driver, base_dir: Arc::clone(&base_dir) };
            self.pending.push(Pending { place: Some(place), manifest, reached });
        }
        Ok(self)
    }
}

fn mount(
    pending: Vec<PendingVerifier>,
    effects: &BTreeMap<ToolName, Effect>,
    process: Option<&ProcessOptions>,
) -> Result<BTreeMap<ToolName, Verifier>, CatalogueError> {
    let mut verifiers = BTreeMap::new();
    for PendingVerifier { place, name, declaration, base_dir } in pending {
        let problem = |problem| CatalogueError {
            place: place.clone(),
            tool: Some(name.clone()),
            problem: Box::new(problem),
        };
        let verifier = Verifier::new(&name, &declaration, effects, &base_dir, process);
        if verifiers.insert(name.clone(), verifier.map_err(problem)?).is_some() {
            return Err(problem(Problem::Twice));
        }
    }
    Ok(verifiers)
}

impl PendingServer {
    fn problem(&self, why: BadServer) -> CatalogueError {
        let server = self.name.clone();
        let problem = Box::new(Problem::Server { server, why });
        CatalogueError { place: Some(self.place.clone()), tool: None, problem }
    }

    fn server(
        &self,
        offer: Option<Offer>,
        process: Option<&ProcessOptions>,
    ) -> Result<Server, CatalogueError> {
        let Self { name, declaration, base_dir, .. } = self;
        Server::new(name.clone(), declaration, offer, base_dir, process)
            .map_err(|why| self.problem(why))
    }

    /// The tools of a server as they were pinned.
    fn tools(
        &self,
        offer: &Offer,
        process: Option<&ProcessOptions>,
    ) -> Result<Vec<Pending>, CatalogueError> {
        let Self { place, name, declaration, base_dir } = self;
        let offered = |tool: &&String| offer.tools.contains_key(*tool);
        if let Some(odd) = declaration.named().find(|tool| !offered(tool)) {
            return Err(self.problem(BadServer::NotOffered(odd.clone())));
        }
        let way = declaration.way().map_err(|why| self.problem(why))?;
        let server = Arc::new(self.server(Some(offer.clone()), process)?);
        let mut tools = Vec::new();
        for (tool, raw) in offer.tools.iter().filter(|(tool, _)| declaration.takes(tool)) {
            let called = name.tool(tool);
            let called = called.ok_or_else(|| self.problem(BadServer::Name(tool.clone())))?;
            let here = |problem| {
                let (place, tool) = (Some(place.clone()), Some(called.clone()));
                CatalogueError { place, tool, problem: Box::new(problem) }
            };
            let declared = declaration.tools.get(tool);
            let bad = |why| self.problem(BadServer::Tool { tool: tool.clone(), why });
            let mut manifest =
                mcp::manifest(called.clone(), raw, declared, &declaration.secrets).map_err(bad)?;
            let read = |schema: &SchemaSource| read_schema(schema.clone(), base_dir).map_err(here);
            if let Some(schema) = declared.and_then(|declared| declared.input.as_ref()) {
                manifest.input = Some(read(schema)?);
            }
            if let Some(schema) = declared.and_then(|declared| declared.output.as_ref()) {
                manifest.output = Some(read(schema)?);
            }
            let rules = ErrorRules::of(declared);
            let document = McpDocument { offer, raw, rules: &rules, server: name, way: &way };
            let declaration = document.canonical().map_err(|error| here(error.into()))?;
            let (server, tool) = (Arc::clone(&server), tool.clone());
            let transport = McpTool { server, tool, effect: manifest.effect, rules };
            let driver = guarded(&manifest, base_dir, transport);
            let reached = Reached::Given { declaration, driver };
            tools.push(Pending { place: Some(place.clone()), manifest, reached });
        }
        Ok(tools)
    }
}

/// How a tool of an MCP server is reached: what its digest covers beside its manifest.
struct McpDocument<'a> {
    offer: &'a Offer,
    raw: &'a str,
    rules: &'a ErrorRules,
    server: &'a ServerName,
    way: &'a Way,
}

impl McpDocument<'_> {
    fn canonical(&self) -> Result<Canon, JsonError> {
        let Self { offer: Offer { protocol, server: identity, tools: _ }, .. } = self;
        Canon::of(&serde_json::json!({ "mcp": {
            "identity": identity,
            "protocol": protocol,
            "rules": self.rules,
            "server": self.server,
            "tool": self.raw,
            "way": self.way,
        }}))
    }
}

fn read_toml<T: DeserializeOwned>(label: &str, text: &str) -> Result<T, CatalogueError> {
    toml::from_str(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        CatalogueError {
            place: Some(Place::new(label, text, offset)),
            tool: None,
            problem: Box::new(Problem::Toml(error.message().to_owned())),
        }
    })
}

fn read_schema(schema: SchemaSource, base_dir: &Path) -> Result<Value, Problem> {
    let path = match schema {
        SchemaSource::Inline(table) => return Ok(Value::Object(table)),
        SchemaSource::File(path) => base_dir.join(path),
    };
    let bad = |why: String| Problem::SchemaFile { path: path.display().to_string(), why };
    let bytes = std::fs::read(&path).map_err(|error| bad(error.to_string()))?;
    // Strictly first: a duplicate key in a schema is a mistake that must not be passed over.
    let schema = Canon::parse(&bytes).map_err(|error| bad(error.to_string()))?;
    serde_json::from_str(schema.as_str()).map_err(|error| bad(error.to_string()))
}

fn check(manifest: &Manifest, effects: &BTreeMap<ToolName, Effect>) -> Result<(), Problem> {
    match (&manifest.probe, manifest.recovery) {
        (None, Recovery::Probe) => return Err(Problem::ProbeMissing),
        (Some(probe), Recovery::Probe) => match effects.get(probe) {
            None => return Err(Problem::ProbeUnknown(probe.clone())),
            Some(Effect::Read) => {}
            Some(_) => return Err(Problem::ProbeWrites(probe.clone())),
        },
        (Some(_), _) => return Err(Problem::ProbeUnused),
        (None, _) => {}
    }
    if let Some(compensate) = &manifest.compensate {
        check_compensation(manifest.effect, compensate, effects)?;
    }
    if manifest.cost.calls == 0 {
        return Err(Problem::NoCalls);
    }
    if manifest.timeout.ms() == 0 {
        return Err(Problem::NoTimeout);
    }
    let keyed = matches!(manifest.recovery, Recovery::Keyed | Recovery::KeyedConcurrent);
    if keyed && manifest.key_ttl.ms() < manifest.timeout.ms() {
        return Err(Problem::KeyTooShort);
    }
    if manifest.risk.is_some_and(|risk| risk > MAX_RISK) {
        return Err(Problem::RiskTooGreat);
    }
    if manifest.retry.attempts.get() > MAX_ATTEMPTS {
        return Err(Problem::TooManyAttempts);
    }
    let unclear = |change: &&Change| change.value.is_some() && change.retract;
    match manifest.changes.iter().find(unclear) {
        Some(change) => Err(Problem::ValueOrRetract(change.type_.to_string())),
        None => Ok(()),
    }
}

fn check_compensation(
    effect: Effect,
    compensate: &Compensate,
    effects: &BTreeMap<ToolName, Effect>,
) -> Result<(), Problem> {
    if effect == Effect::Read {
        return Err(Problem::NothingToCompensate);
    }
    match effects.get(&compensate.tool) {
        None => return Err(Problem::CompensationUnknown(compensate.tool.clone())),
        Some(Effect::Read) => return Err(Problem::CompensationReads(compensate.tool.clone())),
        Some(_) => {}
    }
    Template::of(&compensate.args)
        .and_then(|template| template.check(&COMPENSATE_NAMES))
        .map_err(|error| Problem::CompensationArgs(error.to_string()))
}

/// The way to a declared tool, and its declaration for the digest.
fn reach(
    manifest: &Manifest,
    declared: &DriverDeclaration,
    base_dir: &Arc<PathBuf>,
    process: Option<&ProcessOptions>,
) -> Result<(Canon, Arc<dyn Driver>), Problem> {
    let declaration = Canon::of(declared)?;
    let driver = match declared {
        DriverDeclaration::Process(declared) => {
            guarded(manifest, base_dir, Process::new(declared, manifest, base_dir, process)?)
        }
        DriverDeclaration::Http(declared) => {
            guarded(manifest, base_dir, Http::new(declared, manifest, base_dir)?)
        }
    };
    Ok((declaration, driver))
}

fn guarded(
    manifest: &Manifest,
    base_dir: &Arc<PathBuf>,
    transport: impl Transport + 'static,
) -> Arc<dyn Driver> {
    let sources = Arc::new(manifest.secrets.clone());
    Arc::new(Guarded { sources, base_dir: Arc::clone(base_dir), transport })
}

fn canonical(
    tools: &BTreeMap<ToolName, Tool>,
    verifiers: &BTreeMap<ToolName, Verifier>,
) -> Result<Canon, JsonError> {
    #[derive(Serialize)]
    struct Document<'a> {
        tools: BTreeMap<&'a ToolName, &'a Canon>,
        #[serde(rename = "type")]
        type_: &'static str,
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        verifiers: BTreeMap<&'a ToolName, &'a Canon>,
    }
    let document = Document {
        tools: tools.iter().map(|(name, tool)| (name, tool.canonical())).collect(),
        type_: TYPE,
        verifiers: verifiers.iter().map(|(name, verifier)| (name, verifier.canonical())).collect(),
    };
    let bytes = json::to_canonical_within(&document, LIMITS)?;
    Canon::parse_within(&bytes, LIMITS)
}
