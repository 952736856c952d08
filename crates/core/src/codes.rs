//! Every code of the product, with what it means and what to do about it. Messages are for people and may
//! change; programs and policies compare codes. A test compares this list with the sources: none is used
//! that is not here, and none is here that is not used.

/// Where a code appears.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Why the Guardian refused a proposal: in `rejection` entries.
    Refusal,
    /// Why the gate turned a permitted call away: in `failure` entries.
    Gate,
    /// Why a step or a job failed, or is in doubt: in `failure`, `in_doubt` and `failed` entries.
    Failure,
    /// What went wrong between a worker and a tool.
    Tool,
    /// What a verification found.
    Finding,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 5] =
        [Self::Refusal, Self::Gate, Self::Failure, Self::Tool, Self::Finding];

    /// For people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refusal => "refused by the Guardian",
            Self::Gate => "turned away at the gate: nothing was sent",
            Self::Failure => "a step or a job",
            Self::Tool => "between a worker and a tool",
            Self::Finding => "found by a verification",
        }
    }
}

/// A code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// As programs compare it.
    pub code: &'static str,
    /// Where it appears.
    pub kind: Kind,
    /// What it means.
    pub means: &'static str,
    /// What to do about it.
    pub remedy: &'static str,
}

/// The code of this name. One that appears in several places is listed once, where it comes from first.
pub fn find(code: &str) -> Option<&'static Code> {
    ALL.iter().find(|known| known.code == code)
}

macro_rules! codes {
    ($($kind:ident { $($code:literal: $means:literal, $remedy:literal;)* })*) => {
        /// Every code, by kind.
        pub const ALL: &[Code] =
            &[$($(Code { code: $code, kind: Kind::$kind, means: $means, remedy: $remedy },)*)*];
    };
}

codes! {
    Refusal {
        "invalid_authority":
            "the writ does not allow the call: its signature, its time, its tools, its ceiling, or it was revoked",
            "`gesta show ENTRY` says which; `gesta writ inspect FILE` shows what the writ allows";
        "policy_denied":
            "a policy says no",
            "the decision names the policies; change them, or propose something else";
        "missing_requirement":
            "a policy demands something that is not committed yet",
            "let the step that commits it run first";
        "budget_exhausted":
            "the budget does not reach for the call",
            "give the job a writ with more, or let it use less";
        "precondition_failed":
            "the world is not as the tool demands",
            "the decision names the conditions and what became of each";
        "unknown_tool":
            "the worker's catalogue has no such tool, or the published one has not",
            "declare it in `gesta.toml`, or start a worker that has it; `gesta tools list` shows what is published, `gesta tools publish` publishes it";
        "tool_frozen":
            "the tool, the principal, the tenant or everything is frozen, or the tool is not what was pinned or published",
            "`gesta freeze` lists what is frozen and `gesta unfreeze` lets it go on; `gesta tools list` shows what changed, `gesta tools pin` and `gesta tools publish` accept it";
        "type_mismatch":
            "the arguments do not fit the tool's schema",
            "the decision names each place; `gesta check` finds most of them before a job runs";
        "temporal_intervention":
            "too many calls in a window, or the job, principal or tenant is in quarantine",
            "`gesta quarantine` lists and lifts; `[temporal]` in `gesta.toml` sets the windows";
        "envelope_invalid":
            "the arguments are too large, or not an object",
            "`max_args` under `[worker]` in `gesta.toml` is the limit";
        "approval_denied":
            "an approver said no",
            "that is for good: propose it in another job, if at all";
        "approval_expired":
            "nobody approved in time",
            "propose it in another job, and tell the approvers";
        "delegation_exceeds_authority":
            "a child was to be given more than its parent has",
            "narrow what is delegated";
    }
    Gate {
        "gate_signature": "the decision or the permit is not signed by this worker", "it is decided again by itself";
        "gate_verdict": "the permit does not rest on a decision that allows", "it is decided again by itself";
        "gate_too_late": "the permit had expired before the call could be sent", "it is decided again by itself";
        "gate_lease_lost": "the worker may have lost its lease", "another worker goes on";
        "gate_data_key": "a sensitive argument cannot be opened: its data key or its sealed value is not there", "put the file of data keys back; it is tried again by itself";
        "gate_limit": "the worker's share of a limit may have ended", "it is decided again by itself";
        "gate_digest": "what was about to run is not what was permitted", "report it: this should not happen";
        "gate_environment": "tools, policy or settings changed since the decision", "it is decided again by itself";
        "gate_registry": "the registry could not be read in time", "it is decided again once the store answers";
        "gate_authority": "a writ or a key that the decision rests on was revoked since, or ended", "it is decided again under what counts now; `gesta writ inspect` and `gesta keys list` show what was revoked";
        "gate_frozen": "something that the call needs was frozen since the decision", "the step waits; see `gesta freeze`";
    }
    Failure {
        "child_failed":
            "a child to which a step was delegated failed or was cancelled",
            "look at the child: `gesta tree ID`, `gesta log CHILD`";
        "input_refused":
            "what a step hands to its child does not fit the child's input",
            "correct `input` of the `delegate` step, or the child's job file";
        "handed_before":
            "what a branch left behind has handed the same task to a child, which would be done again",
            "branch after the child's result, or with `--mode live`";
        "cancelled": "the job was cancelled", "nothing: somebody asked for it";
        "failed": "a step failed", "`gesta log ID` shows which";
        "poison": "attempt after attempt left nothing behind", "look at the workers' logs, then submit the job again";
        "worker_lost": "the worker that made the call ended without a word", "recovered as the tool declares; see `gesta doubts`";
        "driver_died": "the tool's driver died in the call", "recovered as the tool declares; see `gesta doubts`";
        "stopped": "the call was abandoned because the job was cancelled", "nothing: it only reads";
        "no_data_keys": "a tool takes or returns sensitive values, and the worker has no place for data keys", "give it one";
        "sensitive_astray": "a sensitive value was to go where nothing is marked sensitive", "mark the argument with `x-gesta-sensitive`, or do not hand the value on";
        "not_dispatched": "nobody knew whether `started` was stored, so nothing was sent", "it is tried again by itself";
        "may_have_happened": "the store was restored, and the call may have been made after the backup", "`gesta doubts` shows it; `gesta resolve` says what happened; see docs/backup.md";
        "replayed": "a tool that is only on record was called", "a replay calls no tool: please report this";
        "not_sent_again": "a call of unknown outcome may not be sent again", "`gesta doubts` shows it; `gesta resolve` ends it";
        "not_admitted": "the state machine refused the call", "the message says why; report it if it should have been legal";
        "given_up": "nobody knows whether it happened, and an operator gave it up", "nothing";
        "reported": "the executor's report says so", "the message has the tool's own words";
        "connector_contract_drift": "the tool's output is not what it declares; the effect happened", "correct the tool or its `output` schema, then look at what happened";
        "delta_not_computed": "what the call changed could not be computed from its result", "correct `changes` of the tool's declaration";
        "delta_does_not_apply": "what the call changed does not fit the world", "correct `changes` of the tool's declaration, or the order of the steps";
        "confirmation_mismatch": "the world is not as an earlier attempt left it", "repair it and submit the job again; `confirm` of a job sets what follows";
        "expression_failed": "an expression of the job could not be evaluated", "correct the job file; `gesta check` finds most of them";
        "plan_unreadable": "a step of the plan cannot be read", "it was compiled by another version: use that one";
        "item_failed": "an item of a list failed", "`gesta log ID` shows which";
        "not_a_list": "a step runs over something that is not a list", "correct `each` in the job file";
        "results_too_large": "the results of a list are too large together", "let each item return less";
        "child_completed": "a child has completed what is to be undone, and nothing undoes that by itself", "undo it by hand, then `gesta resolve ID/STEP/undo --give-up`";
        "no_compensation": "nothing says how the effect is undone", "declare `compensate`, or undo it by hand";
        "signal_key": "the key of a wait is not one", "correct the `signal` of the wait";
        "wait_until": "the time of a wait is not one", "correct the `until` of the wait";
    }
    Tool {
        "secret_unavailable": "a secret of the tool is missing or unreadable; nothing was sent", "provide it where the tool declares it";
        "arguments_unsendable": "the arguments cannot be put into the form that the tool takes; nothing was sent", "correct the arguments or the tool's template";
        "tool_not_started": "the program could not be started", "check the command and its permissions";
        "tool_failed": "the tool says that it failed", "the message has its own words";
        "tool_busy": "the tool says that it cannot do this at present", "it is tried again as `retry` says";
        "tool_crashed": "the tool was ended by a signal, or a function by a panic", "recovered as the tool declares; see `gesta doubts`";
        "reply_lost": "the connection ended without telling how the call went", "recovered as the tool declares; see `gesta doubts`";
        "deadline_passed": "the tool did not answer in time", "recovered as the tool declares; raise `timeout` if it needs longer";
        "output_too_large": "the tool returned more than its declaration allows", "raise `max_output`, or let it return less";
        "not_connected": "no connection came about; nothing was sent", "check the address and the network";
        "address_refused": "the name leads to an address that tools may not reach; nothing was sent", "`allow_private` in the tool's declaration allows private ones";
        "redirect_refused": "the other side answers with another place, which is not followed", "declare the other place";
        "mcp_error": "the MCP server answers with an error, or with no result", "the message has its own words";
        "http_status": "the other side answers with a status that means failure", "the message has the status; `success` in the tool's declaration sets which are";
    }
    Finding {
        "archived":
            "a trajectory is in a bundle that is not where it was put, or is not what was archived",
            "put the file back, or verify it where it is with `gesta-verify`; `gesta verify --here` leaves archived trajectories out";
        "delivery":
            "a chain says that it gave another something that the other does not have",
            "verify both together; if the other is there, one of the two was changed";
        "other_trajectory": "an entry names another trajectory than the one it stands in", "it was moved: do not rely on it";
        "sequence": "an entry has another number than its place", "entries were cut, moved or repeated";
        "parent": "an entry does not name the one before it", "entries were cut, moved or changed";
        "illegal": "an entry may not follow what stands before it", "it was not written by a Gesta that works as it should";
        "id": "an entry's bytes do not have the id that it is kept under", "it was changed";
        "signature": "a signature is not by the key that the document names", "it was forged or changed";
        "not_canonical": "an entry is not in canonical form", "it was changed, or not written by Gesta";
        "not_an_entry": "some bytes are not an entry", "it was changed, or not written by Gesta";
        "future_version": "it was made by a newer Gesta", "use that one";
        "forgotten":
            "what a long verification had put into its temporary file could not be read again: nothing is said of the trajectory",
            "verify again, with `TMPDIR` where there is room and the disk is sound";
        "unknown_key": "a key is neither in the trust root nor in a sound registry", "check the trust root";
        "wrong_role": "a key signed what it has no role for", "do not rely on it; `gesta keys list` shows the roles";
        "wrong_tenant": "a key signed for another tenant than its own", "do not rely on it";
        "key_validity": "a key signed when it was not valid", "do not rely on it";
        "revoked_key": "a key was revoked, and nothing proves that this was signed before", "do not rely on it without other evidence";
        "revoked_writ": "a call was allowed under a writ after the writ, or one above it, was revoked", "whoever decided ignored the registry: do not rely on it";
        "registry_head": "an entry names a head of the registry that the registry does not have", "one of the two was changed";
        "truncated": "a trajectory ends before it should", "ask for the rest of it";
        "head": "a trajectory ends with another entry than it should", "one of the two was changed";
        "empty": "a trajectory has no entries", "ask for them";
        "missing_source": "the source of a branch is not here", "ask for it";
        "source": "the source of a branch is not sound as far as it is needed", "look at what was found there";
        "source_commit": "a branch begins from an entry that its source does not have", "one of the two was changed";
        "source_head": "a branch names a head that its source does not have", "one of the two was changed";
        "recorded_from": "a branch takes over a result that nothing above it has", "one of the two was changed";
        "branch_cycle": "a trajectory descends from itself", "it was forged";
        "delegation": "parent and child do not agree about a delegation", "one of the two was changed";
        "delegation_result": "a child came to something else than its parent says", "one of the two was changed";
        "missing_blob": "a blob that an entry names is not here", "ask for it";
        "blob": "a blob is not what the entry names", "it was changed";
        "stray_blob": "a bundle has a blob that no entry names", "it was added";
        "no_checkpoint": "something is demanded of the transparency log, and no checkpoint came along", "export again from a store that is sealed: `gesta seal`";
        "checkpoint": "a checkpoint or its proofs are not as they are written", "they were changed";
        "log_proof": "a proof does not hold against its checkpoint", "it was forged or changed: do not rely on it";
        "log_key": "nobody who is trusted to seal has signed the checkpoint", "check the trust root; the role is `sealer`";
        "log_origin": "the checkpoint is of another log", "ask for one of the right log";
        "stale_checkpoint": "the checkpoint is older than is demanded", "ask for a newer one; if there is none, the store may have been rolled back";
        "too_few_witnesses": "fewer trusted witnesses have cosigned the checkpoint than are demanded", "ask for a witnessed one: `gesta export --witnessed`";
        "cut_tail": "a trajectory has fewer entries than the log held of it", "its tail was cut: ask for the rest";
        "other_than_sealed": "a trajectory has another entry than the log holds", "it was rewritten: do not rely on it";
        "dropped": "the log knows a trajectory that is not here", "it was dropped: ask for it";
        "not_all": "the proofs do not say which trajectories there are in all", "ask for `gesta export --all`";
        "not_sealed": "the log holds nothing of a trajectory, or nothing shows what it holds", "`gesta seal`, and export again";
        "sealed_in_part": "a trajectory has grown since the checkpoint", "the entries after it may still be cut or rewritten: `gesta seal`, and export again";
        "consistency": "nothing shows that the log has grown from the checkpoint seen before", "`gesta proof --since SIZE` shows it, for the newest checkpoint: make it when the bundle is exported";
        "rolled_back": "the log or the store has less than it had when it was seen before", "its store was rolled back, or this is an old copy: `gesta restore --in-place` goes on with one";
        "other_store": "what is remembered of the store outside of it is another store's", "check which store this is; `gesta restore --in-place` goes on with it";
        "split_view": "the log is not the one that was seen before", "its owner shows different logs to different people: keep both checkpoints";
        "openings": "the disclosed values of a bundle are not what a writer writes", "it was changed";
        "opening": "a disclosed value is not what was committed to", "it was changed";
        "stray_opening": "a bundle discloses a value that no entry commits to", "it was added";
        "nothing": "there is nothing to verify", "check the file or the store";
        "store": "the store could not be read", "`gesta doctor` says more";
        "io": "a file could not be read", "check the file";
        "not_a_bundle": "the file is not a bundle", "check the file";
        "too_large": "the file is larger than a bundle can be", "check the file";
        "manifest": "the bundle's manifest is not what its content gives", "it was changed";
        "keys": "the bundle's keys are not those that it uses", "it was changed";
        "archive_cut": "the archive ends in the middle", "ask for the whole of it";
        "archive_end": "the archive does not end as one does", "it was changed";
        "archive_header": "a header of the archive is not as Gesta writes it", "it was changed or packed again";
        "archive_line": "a line of the archive is not as Gesta writes it", "it was changed or packed again";
        "archive_name": "a name in the archive is not as Gesta writes it", "it was changed or packed again";
        "archive_order": "the archive is not in order", "it was changed or packed again";
        "archive_padding": "the archive has bytes where there are none", "it was changed or packed again";
    }
}
