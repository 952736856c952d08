//! Seeded simulation: whole histories in virtual time, with everything going wrong, judged by an
//! auditor that knows what really happened.
//!
//! `GESTA_SIM_SEED=n` runs one seed; `GESTA_SIM_SEEDS=n` runs that many.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod asked;
mod auditor;
mod authority;
mod confirmation;
mod delegations;
mod family;
mod hostile;
mod outside;
#[path = "../scene/mod.rs"]
mod scene;
mod sim;

use sim::{Broken, Left, Wrong, simulate};

/// How many seeds a plain run of the tests takes.
const SEEDS: u64 = 1_000;

fn run(seed: u64, broken: Broken) -> Result<(), Wrong> {
    history(seed, broken).1
}

fn history(seed: u64, broken: Broken) -> (Left, Result<(), Wrong>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(simulate(seed, broken))
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

#[test]
fn no_history_does_anything_twice_or_loses_anything() {
    let seeds = match number("GESTA_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("GESTA_SIM_SEEDS").unwrap_or(SEEDS),
    };
    let cores = std::thread::available_parallelism().unwrap().get() as u64;
    let wrong: Vec<(u64, Vec<String>)> = std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..cores)
            .map(|lane| {
                let seeds = seeds.clone();
                scope.spawn(move || {
                    let mine = seeds.filter(|seed| seed % cores == lane);
                    mine.filter_map(|seed| {
                        run(seed, Broken::Nothing).err().map(|Wrong(wrong)| (seed, wrong))
                    })
                    .take(1)
                    .collect::<Vec<_>>()
                })
            })
            .collect();
        lanes.into_iter().flat_map(|lane| lane.join().unwrap()).collect()
    });
    for (seed, wrong) in &wrong {
        eprintln!("seed {seed} (GESTA_SIM_SEED={seed} runs it again):\n{}", wrong.join("\n"));
    }
    assert!(wrong.is_empty(), "{} seeds went wrong", wrong.len());
}

/// Else a seed that is told would show nothing.
#[test]
fn the_same_seed_is_the_same_history() {
    for seed in [3, 4] {
        let ((chains, log), _) = history(seed, Broken::Nothing);
        let ((again, log_again), _) = history(seed, Broken::Nothing);
        assert!(chains.len() > 20, "{}", chains.len());
        assert_eq!(log, log_again, "seed {seed}");
        assert!(chains == again, "seed {seed} wrote other bytes");
    }
    assert_ne!(history(3, Broken::Nothing).0, history(4, Broken::Nothing).0);
}

/// The simulation is worth something only if it finds what is broken on purpose.
fn must_be_found(broken: Broken) {
    must_be_told(broken, "");
}

/// And says this of it.
fn must_be_told(broken: Broken, what: &str) {
    let found = (0..1_000).find_map(|seed| {
        let Wrong(why) = run(seed, broken).err()?;
        why.iter().any(|why| why.contains(what)).then_some((seed, why))
    });
    let (seed, why) = found.unwrap_or_else(|| panic!("{broken:?} was not found in 1,000 seeds"));
    let why: Vec<&str> = why.iter().filter_map(|why| why.lines().next()).collect();
    eprintln!("{broken:?} is found by seed {seed}: {why:?}");
}

#[test]
fn a_dropped_compare_and_swap_is_found() {
    must_be_found(Broken::LostCas);
}

#[cfg(feature = "sabotage")]
mod sabotaged {
    use gesta_runtime::Sabotage;

    use super::{Broken, must_be_found, must_be_told};

    #[test]
    fn an_item_that_is_left_out_is_found() {
        must_be_told(Broken::Runtime(Sabotage::LeaveOutItem), "was asked for and has no result");
    }

    #[test]
    fn a_skipped_barrier_is_found() {
        must_be_found(Broken::Runtime(Sabotage::SkipBarrier));
    }

    #[test]
    fn an_ignored_fence_is_found() {
        must_be_found(Broken::Runtime(Sabotage::IgnoreFence));
    }

    #[test]
    fn a_retried_unknown_is_found() {
        must_be_found(Broken::Runtime(Sabotage::RetryUnknown));
    }

    #[test]
    fn a_job_taken_without_its_tools_is_found() {
        must_be_found(Broken::Runtime(Sabotage::IgnoreTools));
    }

    #[test]
    fn an_ignored_limit_is_found() {
        must_be_found(Broken::Runtime(Sabotage::IgnoreLimits));
    }

    #[test]
    fn a_forgotten_undo_is_found() {
        must_be_found(Broken::Runtime(Sabotage::ForgetUndo));
    }

    #[test]
    fn a_world_that_is_trusted_unseen_is_found() {
        must_be_found(Broken::Runtime(Sabotage::TrustTheWorld));
    }

    #[test]
    fn an_approval_by_nobody_is_found() {
        must_be_found(Broken::Runtime(Sabotage::TrustAnyApprover));
    }

    #[test]
    fn an_ignored_freeze_is_found() {
        must_be_found(Broken::Runtime(Sabotage::IgnoreFreeze));
    }

    #[test]
    fn an_ignored_revocation_is_found() {
        must_be_found(Broken::Runtime(Sabotage::IgnoreRevocation));
    }

    #[test]
    fn consent_that_never_runs_out_is_found() {
        must_be_found(Broken::Runtime(Sabotage::IgnoreExpiry));
    }

    #[test]
    fn what_a_child_used_and_its_parent_uses_again_is_found() {
        must_be_found(Broken::Runtime(Sabotage::FreeChildren));
    }

    #[test]
    fn a_child_that_is_never_begun_is_found() {
        must_be_found(Broken::Runtime(Sabotage::ForgetChild));
    }

    #[test]
    fn a_child_that_is_not_told_to_stop_is_found() {
        must_be_found(Broken::Runtime(Sabotage::LetChildrenBe));
    }

    #[test]
    fn another_answer_than_the_childs_is_found() {
        must_be_found(Broken::Runtime(Sabotage::OtherAnswer));
    }

    #[test]
    fn a_budget_that_is_not_set_aside_is_found() {
        must_be_found(Broken::Runtime(Sabotage::IgnoreAccounts));
    }

    #[test]
    fn a_budget_that_unknown_outcomes_are_refunded_to_is_found() {
        must_be_found(Broken::Runtime(Sabotage::RefundUnknown));
    }

    #[test]
    fn a_denial_that_is_believed_too_early_is_found() {
        must_be_found(Broken::Runtime(Sabotage::BelieveTooEarly));
    }
}
