//! What a server offers, as it wrote it: its identity and its tools. That is what is pinned, compared
//! and hashed; what follows from it by default is read from it here.

use std::collections::BTreeMap;

use gesta_core::json::Canon;
use gesta_core::writ::Effect;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// What a server offered when it was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offer {
    /// The version of the protocol that was agreed on.
    pub protocol: String,
    /// What the server says it is: JSON, as it was received.
    pub server: String,
    /// Its tools by name: JSON, as it was received.
    pub tools: BTreeMap<String, String>,
}

impl Offer {
    /// Why this tool is not what was pinned, if it is not.
    pub(super) fn differs(&self, now: &Self, tool: &str) -> Option<&'static str> {
        if self.protocol != now.protocol {
            return Some("its server speaks another version of the protocol since it was pinned");
        }
        if self.server != now.server {
            return Some("its server is another, or of another version, since it was pinned");
        }
        match (self.tools.get(tool), now.tools.get(tool)) {
            (Some(pinned), Some(found)) if pinned == found => None,
            (_, Some(_)) => Some("its server describes it otherwise since it was pinned"),
            (_, None) => Some("its server does not offer it any more"),
        }
    }
}

/// The tools in one page of a list, by name and as they were written, and where the next page begins.
pub(super) struct Page {
    pub(super) tools: Vec<(String, String)>,
    pub(super) next: Option<String>,
}

pub(super) fn page(result: &str) -> Result<Page, String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Listed<'a> {
        #[serde(borrow)]
        tools: Vec<&'a RawValue>,
        #[serde(default)]
        next_cursor: Option<String>,
    }
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    let bad = |error: serde_json::Error| format!("its list of tools cannot be read: {error}");
    let Listed { tools, next_cursor } = serde_json::from_str(result).map_err(bad)?;
    let named = tools.into_iter().map(|raw| {
        let Named { name } = serde_json::from_str(raw.get()).map_err(bad)?;
        Ok((name, raw.get().to_owned()))
    });
    Ok(Page { tools: named.collect::<Result<_, String>>()?, next: next_cursor })
}

/// What the server says it is, from its answer to the handshake.
pub(super) fn identity(greeting: &str) -> String {
    #[derive(Deserialize)]
    struct Greeting<'a> {
        #[serde(borrow, default, rename = "serverInfo")]
        server_info: Option<&'a RawValue>,
        #[serde(borrow, default, rename = "_meta")]
        meta: Option<Meta<'a>>,
    }
    #[derive(Deserialize)]
    struct Meta<'a> {
        #[serde(borrow, default, rename = "io.modelcontextprotocol/serverInfo")]
        server_info: Option<&'a RawValue>,
    }
    let greeting: Option<Greeting<'_>> = serde_json::from_str(greeting).ok();
    let info = greeting.and_then(|Greeting { server_info, meta }| {
        server_info.or_else(|| meta.and_then(|meta| meta.server_info))
    });
    info.map_or_else(|| "null".to_owned(), |info| info.get().to_owned())
}

/// What a tool says of itself.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Offered {
    #[serde(default)]
    pub(super) description: String,
    pub(super) input_schema: Value,
    #[serde(default)]
    output_schema: Option<Value>,
    #[serde(default)]
    annotations: Annotations,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Annotations {
    read_only_hint: Option<bool>,
    destructive_hint: Option<bool>,
    open_world_hint: Option<bool>,
}

impl Offered {
    /// Reads a tool, strictly: a name that stands there twice is a mistake that must not be passed
    /// over.
    pub(super) fn read(raw: &str) -> Result<Self, String> {
        let canonical = Canon::parse(raw.as_bytes()).map_err(|error| error.to_string())?;
        serde_json::from_str(canonical.as_str()).map_err(|error| error.to_string())
    }

    /// The effect that the annotations claim. What they leave open counts as worse: only a tool that
    /// says of itself that it reads is a read, and only one that denies both destruction and an open
    /// world is a mere write.
    pub(super) fn effect(&self) -> Effect {
        let Annotations { read_only_hint, destructive_hint, open_world_hint } = self.annotations;
        match (read_only_hint, destructive_hint, open_world_hint) {
            // A tool that claims both is not believed.
            (Some(true), Some(true), _) => Effect::Irreversible,
            (Some(true), _, _) => Effect::Read,
            (_, Some(true), _) => Effect::Irreversible,
            (_, Some(false), Some(false)) => Effect::Write,
            _ => Effect::External,
        }
    }

    /// The schema of a whole result, if the tool has one for its structured content.
    pub(super) fn result_schema(&self) -> Option<Value> {
        let mut structured = self.output_schema.clone()?;
        let mut whole = Map::new();
        if let Value::Object(structured) = &mut structured {
            // References in it begin at its own root, which is not the root of the whole.
            let id = Value::from("urn:gesta:structured-content");
            structured.entry("$id").or_insert(id);
            if let Some(dialect) = structured.get("$schema") {
                whole.insert("$schema".to_owned(), dialect.clone());
            }
        }
        whole.insert("type".to_owned(), Value::from("object"));
        let properties = [("structuredContent".to_owned(), structured)].into_iter().collect();
        whole.insert("properties".to_owned(), Value::Object(properties));
        whole.insert("required".to_owned(), Value::from(vec!["structuredContent"]));
        Some(Value::Object(whole))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effect(annotations: &str) -> Effect {
        let raw = format!(r#"{{"name":"x","inputSchema":{{}},"annotations":{annotations}}}"#);
        Offered::read(&raw).unwrap().effect()
    }

    #[test]
    fn annotations_are_taken_for_no_better_than_they_say() {
        for (annotations, expected) in [
            ("{}", Effect::External),
            (r#"{"readOnlyHint":true}"#, Effect::Read),
            (r#"{"readOnlyHint":true,"destructiveHint":true}"#, Effect::Irreversible),
            (r#"{"readOnlyHint":false}"#, Effect::External),
            (r#"{"destructiveHint":true}"#, Effect::Irreversible),
            (r#"{"destructiveHint":false}"#, Effect::External),
            (r#"{"destructiveHint":false,"openWorldHint":false}"#, Effect::Write),
            (r#"{"idempotentHint":true}"#, Effect::External),
        ] {
            assert_eq!(effect(annotations), expected, "{annotations}");
        }
        let unannotated = Offered::read(r#"{"name":"x","inputSchema":{}}"#).unwrap();
        assert_eq!(unannotated.effect(), Effect::External);
    }

    #[test]
    fn structured_content_is_checked_by_its_own_schema() {
        for dialect in [
            "http://json-schema.org/draft-07/schema#",
            "https://json-schema.org/draft/2020-12/schema",
        ] {
            let raw = format!(
                r##"{{"inputSchema":{{}},"outputSchema":{{"$schema":"{dialect}","type":"object","properties":{{"n":{{"$ref":"#/$defs/n"}}}},"$defs":{{"n":{{"type":"integer"}}}}}}}}"##
            );
            let schema = Offered::read(&raw).unwrap().result_schema().unwrap();
            let schema = crate::tools::schema::Schema::of_output(&schema).unwrap();
            let fits =
                |text: &str| schema.check(&Canon::parse(text.as_bytes()).unwrap()).is_empty();
            assert!(fits(r#"{"content":[],"structuredContent":{"n":1}}"#), "{dialect}");
            assert!(!fits(r#"{"content":[],"structuredContent":{"n":"x"}}"#), "{dialect}");
            assert!(!fits(r#"{"content":[]}"#), "{dialect}");
        }
        assert!(Offered::read(r#"{"inputSchema":{}}"#).unwrap().result_schema().is_none());
    }

    #[test]
    fn a_name_that_stands_there_twice_is_refused() {
        assert!(Offered::read(r#"{"inputSchema":{},"inputSchema":{"type":"object"}}"#).is_err());
    }

    #[test]
    fn tools_keep_their_bytes() {
        let list = r#"{"tools":[{"name" : "a", "x":1e2},{"name":"b"}],"nextCursor":"c"}"#;
        let Page { tools, next } = page(list).unwrap();
        assert_eq!(tools.first().unwrap(), &("a".into(), r#"{"name" : "a", "x":1e2}"#.into()));
        assert_eq!((tools.len(), next.as_deref()), (2, Some("c")));
    }

    #[test]
    fn a_server_says_who_it_is_in_either_place() {
        assert_eq!(identity(r#"{"serverInfo":{"name":"x", "v":1}}"#), r#"{"name":"x", "v":1}"#);
        let meta = r#"{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"y"}}}"#;
        assert_eq!(identity(meta), r#"{"name":"y"}"#);
        assert_eq!(identity("{}"), "null");
    }
}
