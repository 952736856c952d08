//! How an HTTP request is declared.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::tools::size::SizeBytes;
use crate::tools::verdict::Verdict;

/// A tool that is an HTTP request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpDeclaration {
    /// Whether addresses that are not public may be reached: loopback, private networks, link-local.
    #[serde(default)]
    pub allow_private: bool,
    /// Where the arguments go that the URL does not take. By default the query for `GET`, `HEAD` and
    /// `DELETE`, and a JSON body for the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Body>,
    /// A PEM file with certificate authorities that are believed beside those of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Headers with their values. `{secret:NAME}` stands for a secret of the tool.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The header that carries the key; empty for none. `GET` and `HEAD` carry none.
    #[serde(default = "idempotency_key")]
    pub key_header: String,
    /// How large a reply may be.
    #[serde(default = "mib")]
    pub max_output: SizeBytes,
    /// The method.
    pub method: String,
    /// What a status (`409`) or a class of them (`5xx`) means for the effect, where that differs from
    /// the rule.
    #[serde(default)]
    pub status: BTreeMap<String, Verdict>,
    /// The URL. `{name}` in its path or query stands for an argument; nothing before the path can be
    /// given by one.
    pub url: String,
}

fn idempotency_key() -> String {
    "Idempotency-Key".to_owned()
}

fn mib() -> SizeBytes {
    SizeBytes::MIB
}

/// Where the arguments go that the URL does not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// Into the body, as a JSON object.
    Json,
    /// Into the query.
    Query,
}

/// What is wrong with the declaration of an HTTP request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHttp {
    /// Not a method that a tool can have.
    #[error("`method` is `{0}`; use GET, HEAD, POST, PUT, PATCH or DELETE")]
    Method(String),
    /// `GET` and `HEAD` have no body.
    #[error("a {0} request has no body; leave out `body`")]
    NoBody(String),
    /// Not a URL of ours.
    #[error("`url` is not an http:// or https:// URL of host, path and query: {0}")]
    Url(String),
    /// The place where a call goes is not for arguments to say.
    #[error(
        "`url` has a placeholder or user information before its path; scheme, host and port are written out"
    )]
    TemplatedHost,
    /// A placeholder that is not one.
    #[error(
        "`url` has the placeholder `{0}`; write `{{name}}`, with letters, digits, `_`, `-` and `.`"
    )]
    Placeholder(String),
    /// The schema does not know the argument.
    #[error("`url` takes the argument `{0}`, which the input schema does not have")]
    UnknownArgument(String),
    /// Not a header.
    #[error("`{0}` is not a header with a value that can be sent")]
    Header(String),
    /// A header that frames or routes the request.
    #[error("the header `{0}` is set by the connection; leave it out")]
    ReservedHeader(String),
    /// A header with a placeholder that no secret of the tool fills.
    #[error(
        "the header `{header}` has `{placeholder}`; only {{secret:NAME}} with a secret of the tool may stand there"
    )]
    HeaderPlaceholder {
        /// Which header.
        header: String,
        /// What stands there.
        placeholder: String,
    },
    /// Not a status.
    #[error("`status` has `{0}`; write a status such as 409 or a class such as 5xx")]
    Status(String),
    /// No certificate authority can be had.
    #[error("{0}")]
    Authorities(String),
}
