//! The owners of jobs and watches: whether an owner's token is still valid, what becomes of its jobs and watches
//! if not, and how they are taken over.
//!
//! Always true: nothing begins for an owner whose token is not valid; what somebody else makes go on is judged
//! by who acts and by whose it is, and runs within what both reach.

use super::view::view_of_active;
use crate::access::ReachRules as _;
use crate::job::JobSteps as _;
use std::collections::{BTreeMap, BTreeSet};

use farhaul::copy::{LocationSpec, Report};
use farhaul_words::{Code, Error};

use super::logins::fault_of;
use super::moments::NodeMoment;
use super::requests::{begin_run, not_now};
use super::transfer::{StopReason, TransferEnd};
use super::{Active, Node, places};
use crate::access::{Caller, CallerDeed};
use crate::job::{JobSpec, JobStep};
use crate::store::jobs::{self, JobDocument, JobRow};
use crate::store::log;
use crate::store::tokens::{self, TokenRow};
use farhaul_api::JobView;
use farhaul_api::{CallerReach, Scope};
use farhaul_api::{JobId, JobState};

/// The tokens of the owners of all jobs, as the store has them.
#[derive(Debug, Default)]
pub(super) struct OwnerTokens {
    /// How often tokens had been withdrawn when the table was filled.
    withdrawals: u64,
    tokens: BTreeMap<String, Option<TokenRow>>,
    /// The owners whose token has expired by a clock that may be wrong.
    held: BTreeSet<String>,
}

impl OwnerTokens {
    /// The owners whose token is not valid any more, each with why. While the clock is in doubt, an owner whose
    /// token has expired by that clock alone is held instead.
    pub(super) fn over<'a>(
        &mut self,
        node: &Node,
        owners: impl Iterator<Item = &'a str>,
    ) -> Result<BTreeMap<String, Error>, Error> {
        let withdrawals = *node.withdrawn().borrow();
        if withdrawals != self.withdrawals {
            self.tokens.clear();
            self.withdrawals = withdrawals;
        }
        for owner in owners {
            if token_of(owner).is_some() && !self.tokens.contains_key(owner) {
                self.tokens.insert(owner.to_string(), node.token_of_owner(owner)?);
            }
        }
        let (now, is_doubtful) = (node.moment(), node.is_clock_doubtful());
        let (mut over, mut held) = (BTreeMap::new(), BTreeSet::new());
        for (owner, token) in &self.tokens {
            let Some(error) = owner_error(owner, token.as_ref(), now) else { continue };
            // The clock that says so may be wrong. A token that was revoked, or has lasted its time, is over.
            let by_node = token
                .as_ref()
                .is_none_or(|token| token.revoked_ms.is_some() || now.is_over(None, token.expires_node_ms));
            match is_doubtful && !by_node {
                true => drop(held.insert(owner.clone())),
                false => drop(over.insert(owner.clone(), error)),
            }
        }
        self.held = held;
        Ok(over)
    }

    /// True if nothing may begin for this owner now: its token has expired by a clock that may be wrong.
    pub(super) fn is_held(&self, owner: &str) -> bool {
        self.held.contains(owner)
    }

    /// When the next of these tokens expires.
    pub(super) fn next_ms(&self, now_ms: i64) -> Option<i64> {
        let ends = self.tokens.values().flatten().filter_map(|token| token.expires_ms);
        ends.filter(|end_ms| *end_ms > now_ms).min()
    }
}

/// The id of the token that an owner is known by; `None` for the service's own user and its configuration.
fn token_of(owner: &str) -> Option<&str> {
    owner.strip_prefix("token:")
}

fn owner_error(owner: &str, token: Option<&TokenRow>, now: NodeMoment) -> Option<Error> {
    let why = match token {
        Some(token) => fault_of(token, now)?,
        None => format!("the token {} is not known", token_of(owner)?),
    };
    let what = format!("it was stopped, as {why}, which owns it");
    Some(Error::new(Code::NoToken, what).with_hint("an admin can take it over: farhaul take ID"))
}

impl Node {
    fn token_of_owner(&self, owner: &str) -> Result<Option<TokenRow>, Error> {
        match token_of(owner) {
            Some(id) => self.store.read(|connection| tokens::get(connection, id)),
            None => Ok(None),
        }
    }

    /// An error if nothing may be done any more for this owner, as its token is not valid.
    pub(super) fn judge_owner(&self, owner: &str) -> Result<(), Error> {
        if token_of(owner).is_none() {
            return Ok(());
        }
        owner_error(owner, self.token_of_owner(owner)?.as_ref(), self.moment()).map_or(Ok(()), Err)
    }

    /// An error if a job names an identity that who has this reach may not use. The identity that the configuration
    /// gives to the peer anyway may be named.
    pub(super) fn judge_identity(
        &self,
        reach: &CallerReach,
        spec: &JobSpec,
        places: &[LocationSpec],
    ) -> Result<(), Error> {
        let Some(name) = &spec.identity else { return Ok(()) };
        let settings = self.settings();
        let is_given = |place: &LocationSpec| {
            let Some((host, port)) = super::places::host_of(place) else { return true };
            settings.peer(host, port).is_some_and(|peer| peer.identity.as_ref() == Some(name))
        };
        if reach.may_be(name) || places.iter().all(is_given) {
            return Ok(());
        }
        let name = farhaul_text::printable(name.as_bytes(), 60);
        let what = format!("identity: the token may not use the identity '{name}'");
        let hint = "leave it out, so that the peer's own identity is used, or use a token with `identity`";
        Err(Error::new(Code::OutOfScope, what).with_hint(hint))
    }

    /// Judges whether this caller may make a job go on, and keeps the present run within what the owner and
    /// the caller reach.
    pub(super) fn act_on(&self, caller: &Caller, row: &mut JobRow) -> Result<(), Error> {
        self.judge_owner(&row.owner)?;
        if caller.subject == row.owner {
            return Ok(());
        }
        let JobDocument { spec, .. } = self.stored_document(row.id)?;
        let places = places::of_spec(&spec)?;
        caller.may(CallerDeed::With(Scope::Control, &places, &spec.used()?))?;
        self.judge_identity(&caller.reach, &spec, &places.0)?;
        self.judge_reach(&caller.reach)?;
        let within = match &row.steering.within {
            Some(within) => within.and(&caller.reach),
            None => caller.reach.clone(),
        };
        row.steering.within = (!within.everything).then_some(within);
        Ok(())
    }

    /// Stops a job whose owner's token is not valid any more. What has arrived stays.
    pub(super) fn stop_for_owner(&self, active: &mut Active, error: &Error) {
        if active.row.state.is_final() {
            return;
        }
        if let Some(transfer) = &mut active.transfer {
            if !transfer.is_stopping() {
                transfer.stop(StopReason::OwnerOver);
                transfer.handle.resume();
                self.show(active);
            }
            return;
        }
        let now_ms = self.clock.now_ms();
        self.say(active, "warning", &error.to_string());
        active.row.error = Some(error.into());
        active.row.due_ms = None;
        let report = Report::default().ended_by(Some(error));
        let end = TransferEnd { job: active.row.id, serial: 0, report, error: Some(error.clone()) };
        let over = self.over(active, JobState::Stopped, &end, None, now_ms);
        self.finish(active, JobStep::Stop, Some(over), now_ms);
    }

    /// Takes over a job that was stopped because its owner's token is not valid any more. From now on it is
    /// the caller's.
    pub(crate) fn take(&self, caller: &Caller, id: JobId) -> Result<JobView, Error> {
        self.may_at(caller, Scope::Admin, id)?;
        let (row, facts) = (self.stored(id)?, self.stored_facts(id)?);
        let document = self.stored_document(id)?;
        let now_ms = self.clock.now_ms();
        let due_ms = Node::first_due(&document.spec, now_ms)?;
        let log_seq = self.store.read(|connection| log::last(connection, id))?;
        let kept = self.accounts.keep(&caller.subject, row.kept_bytes, self.settings().queue)?;
        let view = {
            let mut all = self.jobs();
            // A job that was just stopped is still in memory, and newer there than in the store.
            let mut row = all.get(&id).map_or(row, |active| active.row.clone());
            row.state = row.state.after(JobStep::TakeOver { is_due: due_ms.is_none() }).map_err(not_now)?;
            let text = format!("{} has taken it over from {}", caller.subject, row.owner);
            (row.owner, row.due_ms) = (caller.subject.clone(), due_ms);
            begin_run(&mut row);
            // What the job keeps counts for its new owner.
            all.remove(&id);
            let mut active = Active::new(row, log_seq, kept);
            self.say(&mut active, "info", &text);
            let (owner, reach) = (caller.subject.clone(), caller.reach.clone());
            self.changed_and(&mut active, move |transaction| {
                jobs::set_owner(transaction, id, &owner, &reach)
            });
            let view = view_of_active(&active, &facts, caller);
            all.insert(id, active);
            view
        };
        self.look();
        self.confirm(id)?;
        Ok(view)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use farhaul_words::Code;

    use super::super::tests::{Fixture, copy, endless};
    use super::super::{NodeIdentity, NodeSettings, PeerSettings, Submission};
    use super::*;
    use crate::config::values::HostPattern;
    use farhaul_api::TokenWish;
    use farhaul_api::{JobSpan, RepeatRule};

    fn token(fixture: &Fixture, scopes: &[Scope], reach: CallerReach, expires_in: Option<u64>) -> Caller {
        let wish = TokenWish {
            name: String::new(),
            scopes: scopes.to_vec(),
            reach,
            expires_in: expires_in.map(JobSpan),
        };
        let (row, _) = fixture.node().make_token(&Caller::local(), wish).unwrap();
        Caller { subject: format!("token:{}", row.id), scopes: row.scopes, reach: row.reach, address: None }
    }

    fn whole(fixture: &Fixture, scopes: &[Scope]) -> Caller {
        token(fixture, scopes, CallerReach::everything(), None)
    }

    fn within(fixture: &Fixture, name: &str) -> CallerReach {
        CallerReach { local: vec![fixture.path(name).into()], ..CallerReach::default() }
    }

    fn submit(fixture: &Fixture, caller: &Caller, spec: JobSpec) -> JobId {
        fixture.node().submit(caller, Submission { spec, idempotency: None }).unwrap().id
    }

    fn id_of(caller: &Caller) -> &str {
        token_of(&caller.subject).unwrap()
    }

    /// A directory `mine` that the token reaches, with a job of the service's own user in it that is done. Then
    /// `mine/in` becomes a link that leads out.
    fn job_with_a_planted_link(fixture: &Fixture) -> JobId {
        for name in ["mine/in", "secret"] {
            std::fs::create_dir_all(fixture.path(name)).unwrap();
        }
        fixture.file("mine/in/a", 3);
        fixture.file("secret/a", 2000);
        let id = fixture.submit(copy(fixture.path("mine/in/a"), fixture.path("mine/b")));
        fixture.wait_for(id, JobState::Done);
        std::fs::remove_dir_all(fixture.path("mine/in")).unwrap();
        symlink(fixture.path("secret"), fixture.path("mine/in")).unwrap();
        id
    }

    #[test]
    fn a_run_that_somebody_else_asked_for_stays_within_what_both_reach() {
        let fixture = Fixture::new();
        let id = job_with_a_planted_link(&fixture);
        let caller = token(&fixture, &[Scope::Control], within(&fixture, "mine"), None);
        fixture.node().retry(&caller, id, Default::default()).unwrap();
        let view = fixture.wait(id, |view| view.is_over);
        assert_eq!(view.state, JobState::Failed, "{view:?}");
        assert_eq!(std::fs::read(fixture.path("mine/b")).unwrap().len(), 3);
        let asked = format!("run 2 was requested by {}", caller.subject);
        assert!(fixture.lines(id).contains(&asked), "{:?}", fixture.lines(id));
        // The owner's own next run is as free as the first one.
        fixture.node().retry(&Caller::local(), id, Default::default()).unwrap();
        fixture.wait_for(id, JobState::Done);
        assert_eq!(std::fs::read(fixture.path("mine/b")).unwrap().len(), 2000);
    }

    #[test]
    fn a_job_that_somebody_else_resumes_or_makes_due_stays_within_what_both_reach() {
        for is_resumed in [true, false] {
            let fixture = Fixture::new();
            job_with_a_planted_link(&fixture);
            let mut spec = copy(fixture.path("mine/in/a"), fixture.path("mine/b"));
            let far = "2200-01-01T00:00:00Z".parse().unwrap();
            let soon = crate::clock::timestamp(fixture.node().clock.now_ms() + 2000);
            spec.not_before = Some(if is_resumed { soon } else { far });
            let id = fixture.submit(spec);
            let caller = token(&fixture, &[Scope::Control], within(&fixture, "mine"), None);
            if is_resumed {
                // Its time comes while it is paused.
                fixture.node().pause(&Caller::local(), id).unwrap();
                while crate::clock::timestamp(fixture.node().clock.now_ms()) < soon {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
                fixture.node().resume(&caller, id).unwrap();
            } else {
                fixture.node().retry(&caller, id, Default::default()).unwrap();
            }
            let view = fixture.wait(id, |view| view.is_over);
            assert_eq!(view.state, JobState::Failed, "{is_resumed} {view:?}");
            assert_eq!(std::fs::read(fixture.path("mine/b")).unwrap().len(), 3);
        }
    }

    #[test]
    fn who_may_not_use_an_option_may_not_make_a_job_go_on_that_has_it() {
        let fixture = Fixture::new();
        let mut spec = copy(fixture.file("a", 3), fixture.path("b"));
        spec.options.files.keep_setuid = true;
        let id = fixture.submit(spec);
        fixture.wait_for(id, JobState::Done);
        let node = fixture.node();
        let control = whole(&fixture, &[Scope::Control]);
        assert_eq!(node.retry(&control, id, Default::default()).unwrap_err().code(), Code::OutOfScope);
        assert!(node.retry(&whole(&fixture, &[Scope::Admin]), id, Default::default()).is_ok());
    }

    #[test]
    fn a_token_uses_only_the_identities_that_it_names_and_those_of_the_peers() {
        let fixture = Fixture::new();
        let identity =
            |_: &str| NodeIdentity { key_file: Some("/nowhere".into()), ..NodeIdentity::default() };
        let peer = PeerSettings {
            name: "hpc".into(),
            host: HostPattern::of("hpc").unwrap(),
            identity: Some("of-peer".into()),
            fingerprint: None,
            running_max: None,
        };
        let names = ["of-peer", "named", "other"];
        fixture.node().set_settings(NodeSettings {
            identities: names.into_iter().map(|name| (name.to_string(), identity(name))).collect(),
            peers: vec![peer],
            ..NodeSettings::default()
        });
        let peers = ["hpc", "second"].map(|name| (name.to_string(), vec!["/".to_string()]));
        let reach =
            CallerReach { peers: peers.into(), identities: vec!["named".into()], ..CallerReach::default() };
        let narrow = token(&fixture, &[Scope::Submit], reach, None);
        let all = whole(&fixture, &[Scope::Submit]);
        for (caller, host, name, is_allowed) in [
            (&narrow, "hpc", None, true),
            (&narrow, "hpc", Some("of-peer"), true),
            (&narrow, "hpc", Some("named"), true),
            (&narrow, "hpc", Some("other"), false),
            (&narrow, "second", Some("of-peer"), false),
            (&narrow, "second", Some("named"), true),
            (&all, "second", Some("other"), true),
        ] {
            let mut spec = copy("zero:5".into(), format!("fh://{host}/x"));
            spec.identity = name.map(Into::into);
            spec.not_before = Some("2200-01-01T00:00:00Z".parse().unwrap());
            let answer = fixture.node().submit(caller, Submission { spec, idempotency: None });
            match answer {
                Ok(_) => assert!(is_allowed, "{host} {name:?}"),
                Err(error) => {
                    assert!(!is_allowed && error.code() == Code::OutOfScope, "{host} {name:?} {error}")
                }
            }
        }
    }

    #[test]
    fn jobs_of_a_revoked_token_stop_in_words_and_an_admin_takes_them_over() {
        let mut fixture = Fixture::new();
        let owner = whole(&fixture, &[Scope::Submit, Scope::Control]);
        let mut repeating = copy("zero:5".into(), "null:".into());
        repeating.repeat = Some(RepeatRule { cron: Some("0 3 * * *".into()), ..RepeatRule::default() });
        let waiting = submit(&fixture, &owner, repeating);
        let running = submit(&fixture, &owner, endless());
        let paused = submit(&fixture, &owner, endless());
        let done = submit(&fixture, &owner, copy("zero:5".into(), "null:".into()));
        let other = fixture.submit(endless());
        fixture.wait_for(done, JobState::Done);
        for id in [running, paused, other] {
            fixture.wait_for(id, JobState::Running);
        }
        fixture.node().pause(&owner, paused).unwrap();
        fixture.node().revoke_token(id_of(&owner)).unwrap();
        for id in [waiting, running, paused] {
            let view = fixture.wait_for(id, JobState::Stopped);
            let error = view.error.unwrap();
            assert!(error.text.contains(&format!("the token {} was revoked", id_of(&owner))), "{error:?}");
            assert!(error.code == "FH-NO-TOKEN" && error.hint.unwrap().contains("farhaul take"));
            assert!(fixture.lines(id).iter().any(|line| line.contains("was revoked")));
            assert_eq!(
                fixture.node().retry(&Caller::local(), id, Default::default()).unwrap_err().code(),
                Code::NotNow
            );
        }
        let stopped = fixture.records().into_iter().filter(|record| record.state == "stopped");
        assert_eq!(stopped.filter(|record| record.error_code.as_deref() == Some("FH-NO-TOKEN")).count(), 3);
        assert_eq!(fixture.view(other).state, JobState::Running);
        // What it left behind does not go on by somebody else either.
        assert_eq!(
            fixture.node().retry(&Caller::local(), done, Default::default()).unwrap_err().code(),
            Code::NoToken
        );
        fixture.stop();
        fixture.start();
        assert_eq!(fixture.view(waiting).state, JobState::Stopped);
        let control = whole(&fixture, &[Scope::Control]);
        assert_eq!(fixture.node().take(&control, waiting).unwrap_err().code(), Code::OutOfScope);
        assert_eq!(fixture.node().take(&Caller::local(), done).unwrap_err().code(), Code::NotNow);
        let view = fixture.node().take(&Caller::local(), waiting).unwrap();
        assert_eq!((view.state, &view.owner[..], view.error), (JobState::Waiting.into(), "local", None));
        assert!(view.due.is_some());
        fixture.node().take(&Caller::local(), running).unwrap();
        fixture.wait_for(running, JobState::Running);
        fixture.stop();
        fixture.start();
        assert_eq!(fixture.view(waiting).owner, "local");
    }

    #[test]
    fn jobs_of_a_token_stop_when_it_expires() {
        let fixture = Fixture::new();
        let owner = token(&fixture, &[Scope::Submit], CallerReach::everything(), Some(1800));
        let running = submit(&fixture, &owner, endless());
        fixture.wait_for(running, JobState::Running);
        fixture.set_clock(1900);
        let view = fixture.wait_for(running, JobState::Stopped);
        assert!(view.error.unwrap().text.contains("has expired"));
    }
}
