//! Statements about receipts in a form that other tools open: an in-toto statement, version 1, in a DSSE
//! envelope. The envelope's signature is over the statement as it stands in it, by a key of ours.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gesta_core::body::Started;
use gesta_core::content::Content;
use gesta_core::digest::{Digest, EntryId, IdempotencyKey, PermitId};
use gesta_core::document::Receipt;
use gesta_core::entry::Kind;
use gesta_core::ids::{StepId, ToolName, TrajectoryId};
use gesta_core::json::{Canon, JsonError};
use gesta_core::keys::{KeyId, PrivateKey, Sign as _};
use gesta_core::signed::Signed;
use gesta_core::time::UnixMs;
use serde::Serialize;

/// What the payload of the envelope is.
pub(crate) const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";
/// What the statement is.
const STATEMENT: &str = "https://in-toto.io/Statement/v1";
/// What its predicate is.
const PREDICATE: &str = "urn:gesta:receipt:v1";

/// A DSSE envelope.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Envelope {
    payload_type: &'static str,
    payload: String,
    signatures: [EnvelopeSignature; 1],
}

#[derive(Serialize)]
struct EnvelopeSignature {
    keyid: KeyId,
    sig: String,
}

/// An in-toto statement about a receipt.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Statement<'a> {
    #[serde(rename = "_type")]
    type_: &'static str,
    predicate: &'a Bound<'a>,
    predicate_type: &'static str,
    subject: Vec<Subject>,
}

/// Something by its digest.
#[derive(Serialize)]
struct Subject {
    digest: Sha256,
    name: String,
}

#[derive(Serialize)]
struct Sha256 {
    sha256: Digest,
}

/// A receipt and what it binds.
#[derive(Serialize)]
pub(crate) struct Bound<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) call: Option<Call<'a>>,
    pub(crate) entry: Place,
    pub(crate) receipt: &'a Signed<Receipt>,
}

/// The entry that holds the receipt.
#[derive(Serialize)]
pub(crate) struct Place {
    pub(crate) at: UnixMs,
    pub(crate) id: EntryId,
    pub(crate) kind: Kind,
    pub(crate) seq: u64,
    pub(crate) trajectory: TrajectoryId,
}

/// The call whose permit ended. Its arguments stand as their digest: a statement travels further than
/// they may.
#[derive(Serialize)]
pub(crate) struct Call<'a> {
    args_sha256: Digest,
    generation: u64,
    idempotency_key: IdempotencyKey,
    permit: PermitId,
    step: &'a StepId,
    tool: &'a ToolName,
}

impl<'a> Call<'a> {
    pub(crate) fn of(started: &'a Started) -> Self {
        let permit = started.permit.doc();
        Self {
            args_sha256: Digest::of(started.proposal.args.as_bytes()),
            generation: permit.generation,
            idempotency_key: permit.idempotency_key,
            permit: started.permit.id(),
            step: &started.proposal.step,
            tool: &started.proposal.tool,
        }
    }
}

/// Signs a statement about a receipt: that the entry is what it is, and what it returned.
pub(crate) fn sign(
    bound: &Bound<'_>,
    observation: Option<&Content>,
    key: &PrivateKey,
) -> Result<Envelope, JsonError> {
    let Place { id, seq, trajectory, .. } = &bound.entry;
    let subject = |name: String, sha256| Subject { digest: Sha256 { sha256 }, name };
    let entry = subject(format!("{trajectory}:{seq}"), Digest::from_bytes(*id.as_bytes()));
    let observed = observation
        .map(|content| subject(format!("{trajectory}:{seq}/observation"), content.digest()));
    let statement = Statement {
        type_: STATEMENT,
        predicate: bound,
        predicate_type: PREDICATE,
        subject: std::iter::once(entry).chain(observed).collect(),
    };
    let payload = Canon::of(&statement)?;
    let signature = key.sign(&encoded(PAYLOAD_TYPE, payload.as_bytes()));
    let sig = STANDARD.encode(signature.as_bytes());
    Ok(Envelope {
        payload_type: PAYLOAD_TYPE,
        payload: STANDARD.encode(payload.as_bytes()),
        signatures: [EnvelopeSignature { keyid: key.id(), sig }],
    })
}

/// What is signed: DSSE's pre-authentication encoding. Nothing else that our keys sign begins so.
fn encoded(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len());
    [head.as_bytes(), payload].concat()
}
