//! `gesta receipt`: what other tools open. The envelope and the statement are read by Sigstore's types,
//! which share nothing with ours.

use gesta_core::keys::{KeyId, Signature};
use serde_json::{Value, json};
use sigstore_types::{DsseEnvelope, Statement};

use crate::branch::shop;

#[test]
fn a_receipt_is_a_statement_that_other_tools_open() {
    let (world, id) = shop();
    let log = world.gesta(&["log", &id, "--json"]).json_lines();
    let commit = &log[6];
    assert_eq!(commit["entry"]["body"]["step"], "charge");
    let place = format!("{id}:6");
    let line = world.gesta(&["receipt", &place, "--dsse"]).ok();
    assert_eq!(line.lines().count(), 1);
    let envelope: DsseEnvelope = serde_json::from_str(&line).unwrap();
    assert_eq!(envelope.payload_type, "application/vnd.in-toto+json");

    // Signed over DSSE's own encoding, by the key that signed the receipt.
    let receipt = &commit["entry"]["body"]["origin"]["effect"]["receipt"];
    let key: KeyId = serde_json::from_value(receipt["doc"]["key"].clone()).unwrap();
    let raw: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(raw["signatures"][0]["keyid"], receipt["doc"]["key"]);
    let signature = envelope.signature.sig.as_bytes().try_into().unwrap();
    let public = key.public().unwrap();
    assert!(public.verifies(&envelope.pae(), &Signature::from_bytes(signature)));
    let mut other = envelope.clone();
    other.payload_type.push('x');
    assert!(!public.verifies(&other.pae(), &Signature::from_bytes(signature)));

    let statement: Statement = serde_json::from_slice(envelope.payload.as_bytes()).unwrap();
    assert_eq!(statement.type_, "https://in-toto.io/Statement/v1");
    assert_eq!(statement.predicate_type, "urn:gesta:receipt:v1");
    assert_eq!(statement.subject.len(), 2);
    let digest = |n: usize| serde_json::to_value(&statement.subject[n].digest).unwrap();
    assert_eq!((&*statement.subject[0].name, &digest(0)["sha256"]), (&*place, &commit["id"]));
    assert_eq!(digest(1)["sha256"], receipt["doc"]["result"]["committed"]["observation"]);
    assert_eq!(statement.predicate["receipt"], *receipt);
    assert_eq!(statement.predicate["entry"]["id"], commit["id"]);
    let call = &statement.predicate["call"];
    assert_eq!((&call["step"], &call["tool"]), (&json!("charge"), &json!("act")));
    assert!(
        !envelope.payload.as_bytes().windows(5).any(|window| window == b"\"ada\""),
        "{statement:?}"
    );

    let shown = world.gesta(&["receipt", &place, "--json"]).json();
    assert_eq!(shown, statement.predicate);
    let text = world.gesta(&["receipt", &place]).ok();
    assert!(text.contains("step     charge") && text.contains("tool     act"), "{text}");
}

#[test]
fn whose_word_it_is_must_be_clear() {
    let (world, id) = shop();
    let refused = world.gesta(&["receipt", &format!("{id}:5"), "--dsse"]).expect(2);
    assert!(refused.err.contains("a `started` without a receipt"), "{}", refused.err);
    world.gesta(&["keys", "add", "auditor", "--roles", "approver"]).ok();
    let place = format!("{id}:6");
    let named = world.gesta(&["receipt", &place, "--dsse", "--as", "auditor"]).json();
    let own = world.gesta(&["receipt", &place, "--dsse"]).json();
    assert_eq!(named["payload"], own["payload"]);
    assert_ne!(named["signatures"][0]["keyid"], own["signatures"][0]["keyid"]);
    std::fs::remove_file(world.path("keys/worker.pem")).unwrap();
    let refused = world.gesta(&["receipt", &place, "--dsse"]).expect(1);
    assert!(refused.err.contains("`--as`"), "{}", refused.err);
}
