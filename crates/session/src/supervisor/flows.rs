//! Opens a flow of a session: gives it its place and its thread.

use std::sync::atomic::Ordering;

use farhaul_handover::Held as _;
use farhaul_proto::Flow;
use farhaul_words::{Error, Misbehaviour};

use super::super::budget::Resource;
use super::super::setup::{FlowLink, FlowSetup};
use super::super::supervisor::Supervisor;
use super::flow_factory::{FlowParts, FlowPurpose, FlowWindow};
use crate::flows::flow_shared::{FlowPlace, FlowShared, FlowState};
use crate::flows::flow_thread;
use crate::flows::flow_thread::FlowThread;

impl Supervisor {
    pub(super) fn open_flow(&mut self, setup: FlowSetup, part: FlowPurpose) -> Result<(), Error> {
        let flows = self.shared.flow_list();
        let (index, is_stream) = (setup.index, matches!(setup.link, FlowLink::Stream(_)));
        // The list also has flows that have ended.
        if flows.iter().any(|flow| flow.index == index) {
            return Err(Error::misbehaved(
                Misbehaviour::FlowIndexTwice,
                format!("it used the flow index {index} twice"),
            ));
        }
        let FlowWindow { here, beside } =
            self.factory.window_of(is_stream, part, flows.iter().any(|flow| flow.is_stream));
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(Error::no_random_numbers)?;
        let config = self.factory.config(is_stream, &self.options, seed);
        let FlowParts { packets, link, peer, congestion } = self.factory.make(setup, &self.options)?;
        let path = if is_stream { 0 } else { self.paths.further.path_of(index) };
        let place = FlowPlace {
            index,
            path,
            is_stream,
            is_spare: part == FlowPurpose::Spare,
            active: match part {
                FlowPurpose::StandBy => self.streams.is_said_to_be_used(index),
                FlowPurpose::First | FlowPurpose::Spare => is_stream || self.is_carrying(path),
            },
            congestion,
            begun_ms: self.shared.elapsed().as_millis() as u64,
        };
        let own = FlowShared::new(place).map_err(Error::io("cannot make a waker"))?;
        if is_stream {
            own.ceiling_ppm.store(self.first_share(part), Ordering::Relaxed);
        }
        let shared = self.shared.clone();
        let thread = FlowThread {
            link,
            flow: Flow::new(config, shared.now()),
            packets,
            peer,
            shared: shared.clone(),
            own: own.clone(),
            window_max: here,
            beside_max: beside,
        };
        shared.flows.lock().in_any_case().push(own.clone());
        let is_sender = self.is_sender;
        let charge = shared.budget.charge_of(Resource::Threads, 1)?;
        let thread = std::thread::Builder::new()
            .name(format!("flow-{index}"))
            .spawn(move || {
                let _charge = charge;
                shared.work(|| flow_thread::run(thread, is_sender));
                // Also after a panic, in which the flow could not say so itself.
                own.set_state(FlowState::Down);
                shared.control.notify();
            })
            .map_err(Error::no_thread)?;
        self.threads.push(thread);
        Ok(())
    }
}
