//! Every store against the one suite, and against what is peculiar to it.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[cfg(feature = "postgres")]
mod place;
mod suite;

/// Runs the whole suite on the store that `$open` makes, one test each.
macro_rules! conformance {
    ($open:path: $($test:ident,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                crate::suite::$test($open().await).await;
            }
        )*
    };
    ($open:path) => {
        conformance! {
            $open:
            entries_come_back_as_they_were,
            a_stale_append_conflicts,
            an_append_to_nothing_conflicts,
            an_older_attempt_loses_its_fence,
            what_was_decided_under_another_registry_is_outdated,
            nobody_answers_a_doubt_over_an_unread_report,
            a_resent_append_counts_once,
            an_append_is_whole_or_absent,
            one_racer_wins_each_place,
            many_trajectories_grow_side_by_side,
            rows_follow_the_chain,
            trajectories_are_listed_in_pages,
            parked_steps_are_listed_in_pages,
            projections_are_rebuilt,
            every_trajectory_leaves_a_trace,
            a_row_is_put_where_the_entries_end,
            claims_go_to_one_worker,
            only_work_is_claimed,
            one_is_claimed_by_name,
            what_was_claimed_unknowingly_is_given_back,
            an_ended_lease_frees_its_claims,
            a_late_heartbeat_begins_a_new_lease,
            claims_are_given_back,
            claims_and_appends_are_apart,
            racing_claims_are_disjoint,
            a_worker_claims_what_it_can_run,
            nothing_stands_in_the_way,
            priorities_come_before_tenants,
            tenants_take_turns_at_one_slot,
            workers_are_listed,
            limits_hold_across_workers,
            the_smallest_limit_that_is_declared_binds_all,
            accounts_are_drawn_in_slices,
            a_draw_counts_once,
            racing_draws_never_exceed,
            a_writs_account_is_apart,
            notices_wait_in_the_outbox,
            news_are_heard,
            effects_wait_in_the_inbox,
            unread_reports_are_found,
            blobs_are_found_by_their_content,
            what_is_not_sealed_is_found,
            a_log_is_never_forked,
            checkpoints_are_cosigned,
            a_seal_of_another_epoch_is_not_taken,
            nodes_of_the_map_are_forgotten_in_time,
            what_was_open_is_held_in_a_new_epoch,
            what_is_held_takes_nothing_from_an_attempt,
            a_release_is_said_once,
            an_epoch_ends_every_lease,
            what_is_archived_leaves_its_row,
            only_what_stands_still_is_archived,
            nothing_is_appended_to_what_is_archived,
            blobs_that_somebody_may_name_stay,
            archiving_and_appending_never_both_win,
            agrees_with_memory,
        }
    };
}

/// Runs what is about clocks on the pair of stores that `$open` makes.
macro_rules! clocks {
    ($open:path) => {
        conformance! {
            $open:
            a_lease_is_judged_by_the_stores_clock,
            a_sleep_ends_by_the_stores_clock,
            recorded_time_never_runs_back,
            a_clock_that_jumps_back_ends_no_lease,
            a_clock_that_jumps_ahead_costs_a_lease_and_nothing_else,
        }
    };
}

mod memory {
    use std::sync::Arc;

    use gesta_store::memory::MemoryStore;

    use crate::suite::{Pair, StoreClock, Subject, Time};

    async fn open() -> Subject {
        let (time, clock) = Time::manual();
        Subject { store: Arc::new(MemoryStore::new(clock)), time, _home: None }
    }

    conformance!(open);

    async fn pair() -> Pair {
        let (clock, reading) = StoreClock::machine();
        let store = Arc::new(MemoryStore::new(reading));
        let stores = [Arc::clone(&store) as _, store as _];
        Pair { stores, clock, _home: None }
    }

    clocks!(pair);
}

#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg(feature = "postgres")]
mod postgres;
