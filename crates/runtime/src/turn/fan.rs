//! Fan-outs: a step for each item of a list. First the list is fixed, as a step of its own, so that
//! whoever goes on later goes on with the same one; then each item is a call, or a child's task; then
//! the results are put together.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use gesta_core::body::{Origin, StepKind, Waiting};
use gesta_core::content::Content;
use gesta_core::entry::Body;
use gesta_core::ids::StepId;
use gesta_core::json::Canon;
use gesta_core::state::{Act, Scope as Reach, Status};
use gesta_store::Draft;
use serde_json::Value;

use super::{Made, Turn, expression};
use crate::desk::{OUTPUT_LIMITS, failing};
use crate::error::RunError;
use crate::facts::Facts;
use crate::job::{CallSpec, DelegateSpec, Expr, Template, Work};

/// The lists of fan-outs, and how far each is.
#[derive(Default)]
pub(crate) struct Lists(Mutex<BTreeMap<StepId, List>>);

/// A list, and how many of its items are done without a gap.
type List = (Arc<Vec<Value>>, u64);

impl Lists {
    /// Remembers where to look next, so that a long list is not walked again for each item. Called
    /// with what a durable append made.
    pub(crate) fn settled(&self, settled: &BTreeMap<StepId, u64>) {
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (node, count) in settled {
            if let Some((_, known)) = lists.get_mut(node) {
                *known = (*known).max(*count);
            }
        }
    }
}

/// What a fan-out does.
pub(super) struct Fan<'a> {
    over: &'a Template,
    when: Option<&'a Expr>,
    does: Does<'a>,
}

/// What it does for each item.
enum Does<'a> {
    Call(&'a CallSpec),
    Delegate(&'a DelegateSpec),
}

impl<'a> Fan<'a> {
    /// None if it is something else.
    pub(super) fn of(work: &'a Work) -> Option<Self> {
        match work {
            Work::Each { call, over, when } => {
                Some(Self { over, when: when.as_ref(), does: Does::Call(call) })
            }
            Work::Delegates { delegate, over, when } => {
                Some(Self { over, when: when.as_ref(), does: Does::Delegate(delegate) })
            }
            _ => None,
        }
    }
}

/// The step that holds a fan-out's list.
pub(super) fn items_of(node: &StepId) -> Option<StepId> {
    format!("{node}/items").parse().ok()
}

fn usize_of(index: u64) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}

impl Made {
    /// Whether nothing is under way because of it.
    pub(crate) fn is_nothing(&self) -> bool {
        let Self { prepared, inquiries, questions, wanted, to_keep, to_seal, .. } = self;
        let waits =
            self.more || self.wants_safe || self.busy || !to_seal.is_empty() || !to_keep.is_empty();
        !waits
            && prepared.is_empty()
            && inquiries.is_empty()
            && questions.is_empty()
            && wanted.is_empty()
    }
}

impl Turn<'_> {
    /// A fan-out: first its list is fixed, then each item is a call or a child of its own, then the
    /// results are put together.
    pub(super) fn each(
        &self,
        draft: &mut Draft<Facts>,
        node: &StepId,
        fan: &Fan<'_>,
        made: &mut Made,
    ) -> Result<(), RunError> {
        let Some(items) = items_of(node) else { return Ok(()) };
        let Some(list) = draft.view().result(&items).map(|recorded| recorded.content.clone())
        else {
            return match self.evaluate(draft, node, None, made, |scope| fan.over.resolve(scope)) {
                None => Ok(()),
                Some(Err(error)) => self.fail(draft, node, expression(&error)),
                Some(Ok(list)) if list.as_bytes().first() != Some(&b'[') => {
                    self.fail(draft, node, failing("not_a_list", "`each` does not yield a list"))
                }
                Some(Ok(list)) => self.computed(draft, &items, &list, made),
            };
        };
        let Some((list, settled)) = self.list(node, &list, made) else { return Ok(()) };
        #[cfg(feature = "sabotage")]
        let list = self.without_the_last(list);
        // Once an item has failed, no other begins.
        let mut broken = draft.view().broken().map(|(step, _)| step.clone());
        broken = broken.filter(|step| !step.is_node() && step.node() == *node);
        let (mut done, mut busy, mut gapless) = (settled, false, true);
        for (index, item) in (settled..).zip(list.iter().skip(usize_of(settled))) {
            let Ok(step) = format!("{node}/{index}").parse::<StepId>() else { continue };
            match draft.state().step(&step).map(|step| &step.status) {
                Some(Status::Done { .. }) => {
                    done += 1;
                    if gapless {
                        made.settled.insert(node.clone(), index + 1);
                    }
                    continue;
                }
                Some(Status::Failed { .. }) => {
                    broken.get_or_insert(step);
                }
                None | Some(Status::Idle) if broken.is_some() => {}
                None | Some(Status::Idle) if self.has_enough(draft.view(), fan, made) => break,
                None | Some(Status::Idle) => {
                    busy = true;
                    self.item(draft, &step, fan, (index, item), made)?;
                }
                Some(Status::Unknown { .. }) => {
                    busy = true;
                    self.work(draft, &step, made)?;
                }
                Some(_) => busy = true,
            }
            gapless = false;
        }
        match broken {
            Some(_) if busy => Ok(()),
            Some(step) => {
                let message = format!("item `{step}` failed");
                self.fail(draft, node, failing("item_failed", &message))
            }
            None if done == list.len() as u64 => self.gather(draft, node, done, made),
            None => Ok(()),
        }
    }

    #[cfg(feature = "sabotage")]
    fn without_the_last(&self, list: Arc<Vec<Value>>) -> Arc<Vec<Value>> {
        if self.desk.shared.options.sabotage != Some(crate::Sabotage::LeaveOutItem) {
            return list;
        }
        Arc::new(list.split_last().map(|(_, kept)| kept.to_vec()).unwrap_or_default())
    }

    fn item(
        &self,
        draft: &mut Draft<Facts>,
        step: &StepId,
        fan: &Fan<'_>,
        item: (u64, &Value),
        made: &mut Made,
    ) -> Result<(), RunError> {
        if let Some(when) = fan.when
            && draft.view().asked(step).is_none()
        {
            match self.evaluate(draft, step, Some(item), made, |scope| when.test(scope)) {
                None => return Ok(()),
                Some(Err(error)) => return self.fail(draft, step, expression(&error)),
                Some(Ok(false)) => {
                    let nothing = Content::Inline(Canon::null());
                    return self.commit(draft, step, Origin::Skipped, nothing);
                }
                Some(Ok(true)) => {}
            }
        }
        match fan.does {
            Does::Call(call) => self.call(draft, step, call, Some(item), made),
            Does::Delegate(delegate) => self.delegate(draft, step, delegate, Some(item), made),
        }
    }

    /// Whether no other item may begin while those are at work that are: as many calls or children at once
    /// as the job may have.
    fn has_enough(&self, facts: &Facts, fan: &Fan<'_>, made: &Made) -> bool {
        match fan.does {
            Does::Call(_) => self.full(facts, made),
            Does::Delegate(_) => facts.children() >= self.parallel(facts),
        }
    }

    /// Says that nothing can be done until something below a fan-out moves, if that is so: else it would
    /// look as if there were something to do.
    pub(super) fn rest(&self, draft: &mut Draft<Facts>) -> Result<(), RunError> {
        let offers = draft.state().next(self.now);
        let node = offers.into_iter().find_map(|offer| match offer.on {
            Reach::Step(step) if offer.act == Act::Wait => {
                (draft.state().kind_of(&step) == Some(StepKind::Loop)).then_some(step)
            }
            _ => None,
        });
        let Some(step) = node else { return Ok(()) };
        let body = Body::Waiting(Box::new(Waiting { key: None, step, until: None }));
        draft.push(self.now, self.desk.author(), body)?;
        Ok(())
    }

    /// One item of a fan-out whose list is fixed.
    pub(super) fn nth(
        &self,
        draft: &mut Draft<Facts>,
        step: &StepId,
        fan: &Fan<'_>,
        index: u64,
        made: &mut Made,
    ) -> Result<(), RunError> {
        let node = step.node();
        let content = items_of(&node).and_then(|items| draft.view().result(&items).cloned());
        let Some(content) = content.map(|recorded| recorded.content) else { return Ok(()) };
        let Some((list, _)) = self.list(&node, &content, made) else { return Ok(()) };
        match draft.state().step(step).map(|step| &step.status) {
            Some(Status::Unknown { .. }) => self.work(draft, step, made),
            _ => match list.get(usize_of(index)) {
                Some(item) => self.item(draft, step, fan, (index, item), made),
                None => Ok(()),
            },
        }
    }

    /// Puts the results of a fan-out together.
    fn gather(
        &self,
        draft: &mut Draft<Facts>,
        node: &StepId,
        count: u64,
        made: &mut Made,
    ) -> Result<(), RunError> {
        let mut text = String::from("[");
        for index in 0..count {
            let step = format!("{node}/{index}").parse::<StepId>();
            let recorded = step.ok().and_then(|step| draft.view().result(&step).cloned());
            let Some(value) = recorded.and_then(|recorded| self.value(&recorded.content, made))
            else {
                return Ok(());
            };
            if index > 0 {
                text.push(',');
            }
            text.push_str(value.as_str());
        }
        text.push(']');
        match Canon::parse_within(text.as_bytes(), OUTPUT_LIMITS) {
            Ok(list) => self.computed(draft, node, &list, made),
            Err(error) => {
                let error = failing("results_too_large", &error.to_string());
                self.fail(draft, node, error)
            }
        }
    }

    fn list(
        &self,
        node: &StepId,
        content: &Content,
        made: &mut Made,
    ) -> Option<(Arc<Vec<Value>>, u64)> {
        let mut lists = self.lists.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((list, settled)) = lists.get(node) {
            return Some((Arc::clone(list), *settled));
        }
        let value = self.value(content, made)?;
        let list: Arc<Vec<Value>> = Arc::new(serde_json::from_str(value.as_str()).ok()?);
        lists.insert(node.clone(), (Arc::clone(&list), 0));
        Some((list, 0))
    }
}
