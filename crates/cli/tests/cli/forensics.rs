//! `examples/forensics`, command by command, as its README tells.

use gesta_verify::engine::Demand;
use gesta_verify::report::Verdict;
use serde_json::Value;

use crate::world::World;

fn tuesday() -> (World, Vec<String>) {
    let world = World::with_example("forensics");
    world.gesta(&["init"]).ok();
    world.gesta(&["keys", "add", "alice", "--roles", "approver"]).ok();
    let run = |claim: &str| {
        let told = world.gesta(&["run", "claim.yaml", "--input", claim, "--json"]).ok();
        let at = told.find("t_").unwrap();
        told[at..at + 34].to_owned()
    };
    let jobs = ["claim=5", "claim=6", "claim=7"].map(run).to_vec();
    (world, jobs)
}

/// The number of the entry that began the payment.
fn paid(world: &World, job: &str) -> u64 {
    let entries = world.gesta(&["log", job, "--json"]).json_lines();
    let started = |entry: &&Value| {
        entry["entry"]["kind"] == "started" && entry.to_string().contains("payments.pay")
    };
    entries.iter().find(started).unwrap()["seq"].as_u64().unwrap()
}

#[test]
fn the_call_is_found_explained_proved_and_replayed() {
    let (world, jobs) = tuesday();
    let bad = &jobs[2];
    let asked = ["calls", "--tool", "payments.pay", "--since", "7d", "--where", "cents=420000"];
    let found = world.gesta(&asked).ok();
    let seq = paid(&world, bad);
    let entry = format!("{bad}:{seq}");
    let (short, found) = (&bad[..10], found.trim_end());
    assert!(found.lines().count() == 1 && found.contains(&format!("  {short}:{seq} ")), "{found}");
    assert!(found.contains("pay           payments.pay      allowed  done"), "{found}");
    assert!(found.ends_with(r#"{"cents":420000,"to":"ada"}"#), "{found}");
    world.gesta(&["log", bad]).ok();
    assert!(world.gesta(&["show", &entry]).ok().contains("420000"));
    let receipt = world.gesta(&["receipt", &format!("{bad}:{}", seq + 1)]).ok();
    assert!(receipt.contains("payments.pay"), "{receipt}");
    assert!(world.gesta(&["policy", "explain", &entry]).ok().contains("pay-claims"));
    world.gesta(&["seal"]).ok();
    world.gesta(&["verify", "--sealed"]).ok();
    let replayed = world.gesta(&["replay", bad]).ok();
    assert!(replayed.starts_with(&format!("{bad}  complete: ")), "{replayed}");
    let otherwise =
        world.gesta(&["replay", "--all", "--since", "7d", "--policy", "fixed.cedar"]).ok();
    assert!(otherwise.contains("2 of 9 decisions would have come out otherwise"), "{otherwise}");
    assert!(otherwise.contains("2  allowed -> asked"), "{otherwise}");
}

#[test]
fn calls_are_found_by_what_they_were_and_became() {
    let (world, jobs) = tuesday();
    let found =
        |asked: &[&str]| world.gesta(&[&["calls", "--json"][..], asked].concat()).json_lines();
    assert_eq!(found(&[]).len(), 9);
    let paid = found(&["--tool", "payments.pay"]);
    assert_eq!(paid.len(), 3);
    assert!(paid.iter().all(|call| call["verdict"] == "allow" && call["outcome"] == "done"));
    let ada = found(&["--where", "to=ada"]);
    let tools: Vec<_> = ada.iter().map(|call| call["tool"].as_str().unwrap()).collect();
    assert_eq!(tools, ["payments.pay", "mail.send"]);
    assert!(ada.iter().all(|call| call["trajectory"] == jobs[2].as_str()));
    assert_eq!(found(&["--where", "/to=ada", "--where", "cents=420000"]).len(), 1);
    assert_eq!(found(&["--where", "cents=420001"]).len(), 0);
    assert_eq!(found(&["--since", "1d"]).len(), 9);
    assert_eq!(found(&["--before", "1d"]).len(), 0);
    world.gesta(&["calls", "--where", "cents"]).expect(2);

    // What was refused is listed with what is known of it.
    world.write("policy.cedar", "@id(\"none\") forbid (principal, action, resource);\n");
    world.gesta(&["policy", "publish"]).ok();
    world.gesta(&["run", "claim.yaml", "--input", "claim=5"]).expect(10);
    let refused = found(&["--since", "1d"]);
    let refused: Vec<_> = refused.iter().filter(|call| call["verdict"] == "deny").collect();
    assert_eq!((refused.len(), &refused[0]["outcome"]), (1, &"not_made".into()), "{refused:?}");
    assert_eq!(refused[0]["reason"], "policy_denied");
}

#[test]
fn the_corrected_plan_runs_on_from_the_moment_before() {
    let (world, jobs) = tuesday();
    let bad = &jobs[2];
    world.write("policy.cedar", &world.read("fixed.cedar"));
    world.gesta(&["policy", "publish"]).ok();
    assert_eq!((world.files("outside/payments"), world.files("outside/mails")), (3, 3));
    let mut branching = world.start(&["branch", bad, "--at", "claim", "--plan", "corrected.yaml"]);
    branching.says("Ctrl-C leaves it waiting");
    branching.signal(rustix::process::Signal::INT);
    branching.ends();
    let waiting = world.gesta(&["approvals", "--json"]).json_lines();
    let branch = waiting[0]["trajectory"].as_str().unwrap().to_owned();
    assert!(waiting[0].to_string().contains("has sent it before"), "{}", waiting[0]);
    assert_eq!(world.files("outside/payments"), 3);

    world.gesta(&["approve", &branch, "--as", "alice"]).ok();
    let mut resumed = world.start(&["resume", &branch]);
    resumed.says("Ctrl-C leaves it waiting");
    assert_eq!((world.files("outside/payments"), world.files("outside/mails")), (4, 3));
    world.gesta(&["approve", &branch, "--as", "alice"]).ok();
    assert!(resumed.ends().0.success());
    assert_eq!((world.files("outside/payments"), world.files("outside/mails")), (4, 4));

    world.gesta(&["diff", bad, &branch]).expect(1);
    assert!(world.gesta(&["tree", bad]).ok().contains(&branch[..10]));
    world.gesta(&["replay", "--all"]).ok();
    // Whoever goes on with a job leaves it sealed, as whoever runs one does.
    world.gesta(&["verify", "--sealed"]).ok();
    let repeated = ["branch", &branch, "--at", "cents", "--mode", "recorded"];
    world.gesta(&repeated).ok();
    world.gesta(&["verify", "--sealed"]).ok();
    world.gesta(&["seal"]).ok();
    world.gesta(&["export", bad, &branch, "-o", "case.gesta"]).ok();
    // Another machine, with the bundle and the trust root that was handed over before.
    let elsewhere = World::new();
    elsewhere.write("trust.json", &world.read("trust.json"));
    std::fs::copy(world.path("case.gesta"), elsewhere.path("case.gesta")).unwrap();
    let sealed = Demand { sealed: true, ..Demand::default() };
    let report = crate::transparency::audit(&elsewhere, "case.gesta", &sealed);
    assert_eq!(report.verdict, Verdict::Sound, "{report}");
    let case = world.path("case.gesta").display().to_string();
    elsewhere.gesta(&["replay", "--all", "--bundle", &case]).ok();
}
