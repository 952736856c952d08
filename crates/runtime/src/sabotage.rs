//! Ways of breaking the runtime on purpose. Only tests ask for one, and only a build with the feature
//! `sabotage` has them: whatever watches over the runtime must notice each.

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// A call is dispatched before its `started` is durable.
    SkipBarrier,
    /// A worker goes on as if its lease could not end.
    IgnoreFence,
    /// An unknown outcome is taken for a failure and tried again as a new effect.
    RetryUnknown,
    /// Limits on calls under way are not asked for.
    IgnoreLimits,
    /// "It did not happen" is believed while the effect can still land.
    BelieveTooEarly,
    /// A rollback leaves out what was done last.
    ForgetUndo,
    /// Whoever has written an approval is believed.
    TrustAnyApprover,
    /// What the registry freezes goes on.
    IgnoreFreeze,
    /// What the registry has revoked goes on.
    IgnoreRevocation,
    /// Consent never runs out.
    IgnoreExpiry,
    /// What earlier attempts left outside is used without looking.
    TrustTheWorld,
    /// A child's result says that it used nothing.
    FreeChildren,
    /// A child is noted as begun that was not.
    ForgetChild,
    /// A child is noted as told to stop that was not.
    LetChildrenBe,
    /// A parent is told another answer than its child's.
    OtherAnswer,
    /// Nothing is set aside of tenants' accounts.
    IgnoreAccounts,
    /// What nobody knows the end of goes back to the tenant's account.
    RefundUnknown,
    /// A worker takes whatever has something to do, whether it has the tools or not.
    IgnoreTools,
    /// A fan-out leaves out the last item of its list.
    LeaveOutItem,
}
