//! Copies of a store that are older than an erasure: put back, they bring nothing back. The key is not in them, its
//! place knows that it was destroyed, and the chains say so again.

use std::path::Path;

use serde_json::{Value, json};

use crate::sensitive::{JOB, MAIL, TOOLS, data_key, holds, world};
use crate::world::{Ran, World};

/// Waits for a word between two calls.
const WAITING: &str = r#"job: waiting
input:
  mail: { type: string, sensitive: true }
steps:
  - { id: who, tool: crm.find, args: { mail: "${input.mail}" } }
  - { id: go, wait: { signal: go }, needs: [who] }
  - { id: send, tool: mail.send, args: { to: "${input.mail}", text: hello }, needs: [go] }
"#;

/// A workspace on some store, told apart by nothing but how it is called.
struct Office<'a> {
    world: &'a World,
    store: Option<String>,
}

impl Office<'_> {
    fn gesta(&self, words: &[&str]) -> Ran {
        let variables: Vec<(&str, &str)> =
            self.store.iter().map(|url| ("GESTA_STORE", url.as_str())).collect();
        self.world.gesta_with(words, &variables)
    }

    fn submit(&self, file: &str) -> String {
        let given = format!("mail={MAIL}");
        let told = self.gesta(&["submit", file, "--input", &given, "--json"]).json();
        told["trajectory"].as_str().unwrap().to_owned()
    }

    fn greeted(&self) -> String {
        let id = self.submit("job.yaml");
        self.gesta(&["resume", &id]).ok();
        id
    }

    fn kinds(&self, id: &str) -> Vec<Value> {
        let entries = self.gesta(&["log", id, "--json"]).json_lines();
        entries.into_iter().map(|entry| entry["entry"]["kind"].clone()).collect()
    }

    /// Its values are nowhere, everything else holds, and whoever asks is told.
    #[track_caller]
    fn is_erased(&self, id: &str) {
        let told = self.gesta(&["log", id, "--reveal"]).ok();
        assert!(told.contains("‹erased›") && !told.contains(MAIL), "{told}");
        let kinds = self.kinds(id);
        assert_eq!(kinds.iter().filter(|kind| **kind == "erased").count(), 1, "{kinds:?}");
        let told = self.gesta(&["verify", id]).ok();
        assert!(told.contains("mail: erased") && !told.contains("withheld"), "{told}");
        let told = self.gesta(&["replay", id]).ok();
        assert!(told.contains("complete: ") && told.contains("sensitive erased"), "{told}");
        let told = self.gesta(&["replay", id, "--json"]).json();
        assert_eq!(told["replays"][0]["erased"], true, "{told:#}");
        let told = self.gesta(&["export", id, "-o", "gone.gesta", "--disclose", "all"]).ok();
        assert!(told.contains(": 0 disclosed, 0 withheld, 2 erased"), "{told}");
        std::fs::remove_file(self.world.path("gone.gesta")).unwrap();
    }

    /// Its values are still to be had.
    #[track_caller]
    fn is_kept(&self, id: &str) {
        assert!(self.gesta(&["log", id, "--reveal"]).ok().contains(MAIL));
    }
}

/// No file of the workspace holds these bytes.
#[track_caller]
fn nowhere(directory: &Path, bytes: &[u8]) {
    for file in std::fs::read_dir(directory).unwrap() {
        let path = file.unwrap().path();
        assert!(path.is_dir() || !holds(&path, bytes), "{}", path.display());
    }
}

#[test]
fn a_backup_from_before_it_was_erased_does_not_bring_it_back() {
    let world = world();
    let office = Office { world: &world, store: None };
    let id = office.greeted();
    let key = data_key(&world);
    let other = office.greeted();
    world.gesta(&["backup", "b.db"]).ok();
    assert!(!holds(&world.path("b.db"), &key), "a backup has no data keys");
    world.gesta(&["erase", &id, "--reason", "asked for"]).ok();
    let before = office.kinds(&id).len();

    // In whatever way it is put back.
    let told = world.gesta(&["restore", "b.db", "--force", "--json"]).json();
    let entry = json!([{ "trajectory": id, "seq": before - 1 }]);
    assert_eq!((&told["erased"], &told["erased_and_open"]), (&entry, &json!([])), "{told:#}");
    office.is_erased(&id);
    office.is_kept(&other);
    nowhere(&world.path("."), &key);
    let reason = &world.bodies(&id, "erased")[0]["reason"];
    assert!(reason.as_str().unwrap().contains("restored from an older copy"), "{reason}");
    world.gesta(&["verify"]).ok();

    std::fs::copy(world.path("b.db"), world.path("gesta.db")).unwrap();
    for beside in ["gesta.db-wal", "gesta.db-shm"] {
        let _gone = std::fs::remove_file(world.path(beside));
    }
    let told = world.gesta(&["restore", "--in-place"]).ok();
    assert!(told.contains(&format!("erased: {id} says so again, at entry ")), "{told}");
    office.is_erased(&id);
    let told = world.gesta(&["restore", "--in-place", "--json"]).json();
    assert_eq!(told["erased"], json!([]), "it is said once");
    world.gesta(&["doctor"]).ok();
}

/// What was open in the copy has lost what it would go on with: it stays, and nothing is sent.
#[test]
fn what_had_not_ended_when_the_backup_was_made_does_not_go_on_without_its_values() {
    let world = world();
    world.write("waiting.yaml", WAITING);
    let office = Office { world: &world, store: None };
    let id = office.submit("waiting.yaml");
    world.gesta(&["worker", "--once"]).ok();
    world.gesta(&["backup", "b.db"]).ok();
    world.gesta(&["signal", &id, "go"]).ok();
    world.gesta(&["resume", &id]).ok();
    let key = data_key(&world);
    world.gesta(&["erase", &id, "--reason", "asked for"]).ok();
    assert_eq!(world.read("sent").lines().count(), 1);

    let told = world.gesta(&["restore", "b.db", "--force", "--json"]).json();
    assert_eq!((&told["erased"], &told["erased_and_open"]), (&json!([]), &json!([id])), "{told:#}");
    let told = world.gesta(&["log", &id, "--reveal"]).ok();
    assert!(told.contains("‹erased›") && !told.contains(MAIL), "{told}");
    world.gesta(&["release", &id, "--note", "it was asked for"]).ok();
    world.gesta(&["signal", &id, "go"]).ok();
    let told = world.gesta(&["resume", &id]).expect(1).err;
    assert!(told.contains("the sensitive values of") && told.contains("are erased"), "{told}");
    assert_eq!(world.read("sent").lines().count(), 1, "nothing was sent again");
    world.gesta(&["cancel", &id]).ok();
    world.gesta(&["resume", &id]).expect(11);
    world.gesta(&["erase", &id, "--reason", "asked for"]).ok();
    assert_eq!(office.kinds(&id).last().unwrap(), "erased");
    assert!(world.gesta(&["verify", &id]).ok().contains("mail: erased"));
    nowhere(&world.path("."), &key);
}

#[cfg(feature = "postgres")]
mod on_postgres {
    use super::*;
    use crate::postgres::Database;

    fn office<'a>(database: &Database, world: &'a World, config: &str) -> Office<'a> {
        let office = Office { world, store: Some(database.url()) };
        world.free();
        let told = office.gesta(&["init"]).expect(0).err;
        assert!(told.contains("hint: data keys") && told.contains("`data_keys`"), "{told}");
        world.write("gesta.toml", &format!("{config}{}", world.read("gesta.toml")));
        world.set_tools(TOOLS);
        world.write("job.yaml", JOB);
        office
    }

    /// The copy that `gesta backup` says how to make, word for word.
    fn dump(database: &Database, office: &Office<'_>) {
        let told = office.gesta(&["backup", "b.dump"]).expect(1).err;
        let line = told.split('`').find(|part| part.starts_with("pg_dump ")).unwrap();
        let plain = line.replace("--format=custom", "--format=plain");
        database.shell(office.world, &line.replace("--file=FILE", "--file=b.dump"));
        database.shell(office.world, &plain.replace("--file=FILE", "--file=plain.sql"));
        let listed = database.shell(office.world, "pg_restore --list b.dump");
        assert!(listed.contains("TABLE DATA public blobs"), "{listed}");
        assert!(!listed.contains("data_keys") && !listed.contains("openings"), "{listed}");
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn a_dump_from_before_it_was_erased_does_not_bring_it_back() {
        let (database, world) = (Database::new("copies"), World::new());
        let office = office(&database, &world, "data_keys = \"data-keys.db\"\n");
        let id = office.greeted();
        let key: Vec<u8> = {
            let file = rusqlite::Connection::open(world.path("data-keys.db")).unwrap();
            file.query_row("SELECT key FROM data_keys", [], |row| row.get(0)).unwrap()
        };
        let other = office.greeted();
        dump(&database, &office);
        nowhere_but(&world, &key, "data-keys.db");
        office.gesta(&["erase", &id, "--reason", "asked for"]).ok();
        database.replace(&world, "b.dump");
        let told = office.gesta(&["restore", "--in-place", "--json"]).json();
        assert_eq!(told["erased"][0]["trajectory"], json!(id), "{told:#}");
        office.is_erased(&id);
        office.is_kept(&other);
        nowhere(&world.path("."), &key);
        office.gesta(&["verify"]).ok();
    }

    fn nowhere_but(world: &World, key: &[u8], file: &str) {
        for (name, bytes) in [("b.dump", key.to_vec()), ("plain.sql", hex(key).into_bytes())] {
            assert!(!holds(&world.path(name), &bytes), "{name}");
        }
        assert!(holds(&world.path(file), key));
    }

    /// Where the database has the keys too, no dump does; the chains are put back beside what the keys know.
    #[test]
    fn keys_in_the_same_database_are_in_no_dump_either() {
        let (database, world) = (Database::new("same"), World::new());
        let office = office(&database, &world, "");
        let (id, other) = (office.greeted(), office.greeted());
        let keys = "SELECT count(*) FROM gesta_keys.data_keys WHERE key IS NOT NULL";
        assert_eq!(database.count(keys), 2);
        let key: Vec<u8> = database.one("SELECT key FROM gesta_keys.data_keys LIMIT 1");
        dump(&database, &office);
        assert!(!holds(&world.path("plain.sql"), hex(&key).as_bytes()));
        office.gesta(&["erase", &id, "--reason", "asked for"]).ok();

        // Only what the dump holds is put back: the schema of the keys stays as it is.
        database.run_in(&database.url(), "DROP SCHEMA public CASCADE");
        let url = database.url();
        let back = format!("pg_restore --exit-on-error --dbname='{url}' b.dump");
        database.run_in(&url, "CREATE SCHEMA public");
        database.shell(&world, &back);
        let told = office.gesta(&["restore", "--in-place", "--json"]).json();
        assert_eq!(told["erased"][0]["trajectory"], json!(id), "{told:#}");
        office.is_erased(&id);
        office.is_kept(&other);

        // All of the database is lost: so are its keys, and everything else is there.
        database.replace(&world, "b.dump");
        let told = office.gesta(&["restore", "--in-place", "--json"]).json();
        assert_eq!(told["erased"], json!([]), "nobody knows any more: {told:#}");
        office.gesta(&["verify"]).ok();
        for id in [&id, &other] {
            let told = office.gesta(&["log", id, "--reveal"]).expect(1).err;
            assert!(told.contains("the data key of") && !told.contains(MAIL), "{told}");
            office.gesta(&["replay", id]).ok();
        }
    }
}
