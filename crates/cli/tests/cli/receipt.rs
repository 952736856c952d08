//! `gesta receipt`: what other tools open. The envelope and the statement are read by Sigstore's types,
//! which share nothing with ours.

use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gesta_core::keys::{KeyId, Signature};
use serde_json::{Value, json};
use sigstore_types::{DsseEnvelope, Statement};

use crate::branch::shop;
use crate::world::World;

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

/// DSSE's pre-authentication encoding, by its description: how long each part is comes before it.
fn pae(envelope: &Value) -> Vec<u8> {
    let type_ = envelope["payloadType"].as_str().unwrap();
    let payload = STANDARD.decode(envelope["payload"].as_str().unwrap()).unwrap();
    let head = format!("DSSEv1 {} {type_} {} ", type_.len(), payload.len());
    [head.into_bytes(), payload].concat()
}

/// Whether OpenSSL finds that an envelope was signed by the key in a file.
fn openssl_verifies(world: &World, key: &str, envelope: &Value, signed: &[u8]) -> bool {
    let signature = STANDARD.decode(envelope["signatures"][0]["sig"].as_str().unwrap()).unwrap();
    std::fs::write(world.path("signed"), signed).unwrap();
    std::fs::write(world.path("signature"), signature).unwrap();
    let told = Command::new("openssl")
        .args(["pkeyutl", "-verify", "-pubin", "-rawin", "-inkey", key])
        .args(["-in", "signed", "-sigfile", "signature"])
        .current_dir(world.path("."))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&told.stdout);
    assert_eq!(told.status.success(), said.contains("Signature Verified Successfully"), "{told:?}");
    told.status.success()
}

#[test]
fn openssl_checks_every_receipt_of_a_trajectory() {
    let (world, id) = shop();
    let envelopes = world.gesta(&["receipt", &id, "--dsse"]).json_lines();
    let log = world.gesta(&["log", &id, "--json"]).json_lines();
    let body = |entry: &Value| entry["entry"]["body"].clone();
    let receipts = log.iter().map(body).filter(|body| {
        body["receipt"].is_object() || body.pointer("/origin/effect/receipt").is_some()
    });
    assert!(envelopes.len() > 1 && envelopes.len() == receipts.count());
    let pem = world.gesta(&["keys", "export", "worker", "--pem"]).ok();
    world.write("worker.pub", &pem);
    world.write("owner.pub", &world.gesta(&["keys", "export", "owner", "--pem"]).ok());
    let keyid = envelopes[0]["signatures"][0]["keyid"].as_str().unwrap();
    assert_eq!(world.gesta(&["keys", "export", keyid, "--pem"]).ok(), pem, "by its id");
    for envelope in &envelopes {
        let signed = pae(envelope);
        assert!(openssl_verifies(&world, "worker.pub", envelope, &signed));
        assert!(!openssl_verifies(&world, "owner.pub", envelope, &signed), "another key");
    }
    let signed = String::from_utf8(pae(&envelopes[0])).unwrap();
    let other = signed.replace("\"sha256\":\"", "\"sha256\":\"0");
    assert_ne!(other, signed);
    assert!(!openssl_verifies(&world, "worker.pub", &envelopes[0], other.as_bytes()));

    // Each is what it is by itself, and people see them all.
    let statement: Value = serde_json::from_slice(
        &STANDARD.decode(envelopes[0]["payload"].as_str().unwrap()).unwrap(),
    )
    .unwrap();
    let place = statement["subject"][0]["name"].as_str().unwrap();
    assert_eq!(world.gesta(&["receipt", place, "--dsse"]).json(), envelopes[0]);
    let bound = world.gesta(&["receipt", &id, "--json"]).json_lines();
    assert_eq!((bound.len(), &bound[0]), (envelopes.len(), &statement["predicate"]));
    let text = world.gesta(&["receipt", &id]).ok();
    assert_eq!(text.matches("signed   by ").count(), envelopes.len(), "{text}");
}

#[test]
fn a_key_that_was_rotated_is_exported_with_those_before_it() {
    let (world, _) = shop();
    let old = world.gesta(&["keys", "export", "worker", "--pem"]).ok();
    world.gesta(&["keys", "rotate", "worker"]).ok();
    let both = world.gesta(&["keys", "export", "worker", "--pem"]).ok();
    assert!(both.ends_with(&old) && both.matches("BEGIN PUBLIC KEY").count() == 2, "{both}");
    world.gesta(&["keys", "export", "nobody", "--pem"]).expect(1);
}
