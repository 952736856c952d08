//! The vectors that are checked in are the ones that the code makes, byte for byte.

use std::fs;
use std::path::Path;

use gesta_core::entry::{Entry, Kind};
use gesta_core::keys::Sign as _;
use gesta_core::keys::{KeyId, PrivateKey};
use serde_json::Value;

use crate::golden;

const REMEDY: &str =
    "if the format is meant to change: cargo run -p gesta-verify --example vectors -- vectors";

fn place() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors")
}

#[test]
fn vectors_are_what_is_checked_in() {
    let files = golden::files();
    for (path, made) in &files {
        let stored = fs::read(place().join(path)).unwrap_or_default();
        assert!(stored == *made, "vectors/{path} differs; {REMEDY}");
    }
    for part in ["bundles", "documents", "entries", "json", "log"] {
        for stored in fs::read_dir(place().join(part)).unwrap() {
            let path = format!("{part}/{}", stored.unwrap().file_name().to_string_lossy());
            assert!(files.contains_key(&path), "nothing makes vectors/{path}; {REMEDY}");
        }
    }
}

/// Read back with as little of our own code as possible.
#[test]
fn entries_and_documents_hold_by_themselves() {
    let read = |path: String| fs::read(place().join(path)).unwrap();
    let ids: Value = serde_json::from_slice(&read("entries/ids.json".into())).unwrap();
    for kind in Kind::ALL {
        let entry = Entry::from_bytes(&read(format!("entries/{kind}.json"))).unwrap();
        assert_eq!(entry.kind(), *kind);
        assert_eq!(ids[kind.as_str()], entry.id().to_string());
    }
    let types = [
        "writ",
        "decision",
        "permit",
        "effect",
        "receipt",
        "approval",
        "resolution",
        "registration",
    ];
    for type_ in types {
        let vector: Value =
            serde_json::from_slice(&read(format!("documents/gesta.{type_}.v1.json"))).unwrap();
        let text = |field: &str| vector[field].as_str().unwrap();
        let preimage = hex::decode(text("preimage")).unwrap();
        let key =
            PrivateKey::from_seed(&hex::decode(text("key_seed")).unwrap().try_into().unwrap());
        assert_eq!(KeyId::parse(text("key")).unwrap(), key.id());
        let signature = serde_json::to_value(key.sign(&preimage)).unwrap();
        assert_eq!(signature, vector["signature"], "{type_}");
        assert_eq!(serde_json::from_slice::<Value>(&preimage).unwrap(), vector["document"]);
    }
}
