//! Tools behind HTTP. One fresh connection a call: no pool, no redirect, no proxy, no cookie, no
//! second try, no decompression. Whether anything was sent decides what is known when it fails.

mod address;
mod connect;
mod declaration;
mod exchange;
mod request;
mod template;
mod tls;

pub(super) use connect::{NotConnected, Stream, connect};
pub use declaration::{BadHttp, Body, HttpDeclaration};
pub(super) use exchange::{Http, chain, post, refusal, retry_after_ms};
pub(super) use request::{Parts, header_value, headers};
pub(super) use template::Url;
pub(super) use tls::config as tls_config;
