//! One file for each verb. A verb takes its arguments and returns an exit code. Only these files call the
//! crate `farhaul`, the service, bench or wanem.

mod audit;
mod bench;
mod cache;
mod cat;
mod clean;
mod completions;
mod config;
mod cp;
mod doctor;
mod doctor_peer;
mod du;
mod endpoint;
mod gateway;
mod going_on;
mod kept_names;
mod keygen;
mod lab;
mod ls;
mod man;
mod mount;
mod names_verbs;
mod read_verbs;
mod receipt;
mod serve;
mod service;
mod stat;
mod stream;
mod sum;
mod sync;
mod tunnel;
mod verify;

use std::process;

use clap::Parser as _;
use farhaul::Error;
use farhaul::errors::{Code, ExitCode};
use farhaul::options::CpuList;
use farhaul::sisters::contained;

use crate::args::bench::BenchVerb;
use crate::args::lab::LabVerb;
use crate::args::receipt::ReceiptVerb;
use crate::args::service::StoreVerb;
use crate::args::stream::StreamVerb;
use crate::args::{Cli, Verb};
use crate::descriptors;
use crate::exit::process_code;
use crate::ui::printer;

/// Runs one verb. Reports the errors that the verb has not reported itself, and panics.
pub fn run(verb: Verb) -> process::ExitCode {
    contained(|| run_verb(verb)).unwrap_or_else(|error| report(&error))
}

/// Reports an error, and returns the exit code for it.
fn report(error: &Error) -> process::ExitCode {
    printer::error(error, None);
    process_code(error.exit_code())
}

fn run_verb(verb: Verb) -> process::ExitCode {
    // This comes before any thread is started: a thread keeps the cores that it was started with.
    if let Some(Err(error)) = verb.cpus().map(CpuList::apply) {
        return report(&error);
    }
    // A verb whose outcome could not be printed does not begin.
    if reports_to_stdout(&verb)
        && let Err(error) = descriptors::output()
    {
        return report(&error);
    }
    let outcome = match verb {
        Verb::Cp(args) => return process_code(cp::run(&args)),
        Verb::Sync(args) => return process_code(sync::run(&args)),
        Verb::Clean(args) => return process_code(clean::run(&args)),
        Verb::Receipt(args) => return process_code(receipt::run(&args)),
        Verb::Verify(args) => return process_code(verify::run(&args)),
        Verb::Ls(args) => return process_code(ls::run(&args)),
        Verb::Stat(args) => return process_code(stat::run(&args)),
        Verb::Cat(args) => return process_code(cat::run(&args)),
        Verb::Du(args) => return process_code(du::run(&args)),
        Verb::Sum(args) => return process_code(sum::run(&args)),
        Verb::Mkdir(args) => return process_code(names_verbs::mkdir(&args)),
        Verb::Mv(args) => return process_code(names_verbs::mv(&args)),
        Verb::Rm(args) => return process_code(names_verbs::rm(&args)),
        Verb::Mount(args) => return coded(mount::mount(&args)),
        Verb::Umount(args) => return coded(mount::umount(&args)),
        Verb::Tunnel(args) => return coded(tunnel::run(&args)),
        Verb::Serve(args) => return process_code(serve::run(&args)),
        Verb::Gateway(args) => return coded(gateway::run(&args)),
        Verb::Cache(args) => return coded(cache::run(&args.verb)),
        Verb::Stream(args) => return coded(stream::run(&args)),
        Verb::Top(args) => return coded(service::top(&args)),
        Verb::Submit(args) => return coded(service::submit(&args)),
        Verb::Wait(args) => return coded(service::wait(&args)),
        Verb::Pause(args) => return coded(service::act(&args, "pause")),
        Verb::Resume(args) => return coded(service::act(&args, "resume")),
        Verb::Cancel(args) => return coded(service::act(&args, "cancel")),
        Verb::Retry(args) => {
            return coded(service::act(
                &args.jobs,
                if args.delete_anyway { "retry?delete_anyway=true" } else { "retry" },
            ));
        }
        Verb::Take(args) => return coded(service::act(&args, "take")),
        Verb::Jobs(args) => service::jobs(&args),
        Verb::Job(args) => service::job(&args),
        Verb::Open(args) => service::open(&args),
        Verb::Set(args) => service::set(&args),
        Verb::Logs(args) => service::logs(&args),
        Verb::History(args) => service::history(&args),
        Verb::Usage(args) => service::usage(&args),
        Verb::Peers(args) => service::peers(&args),
        Verb::Cap(args) => service::cap(&args),
        Verb::Token(args) => service::token(&args),
        Verb::Watch(args) => service::watch(&args),
        Verb::Store(args) => service::store(&args),
        Verb::Endpoint => return process_code(endpoint::run()),
        Verb::Brought { digest, words } => return brought(&digest, &words),
        Verb::Bench(args) => return process_code(bench::run(&args)),
        Verb::Doctor(args) => return coded(doctor::run(&args)),
        Verb::Config(args) => return process_code(config::run(&args.verb)),
        Verb::Audit(args) => return coded(audit::run(&args.verb)),
        Verb::Lab(args) => return lab::run(*args),
        Verb::Keygen(args) => keygen::run(&args),
        Verb::Completions { shell } => completions::run(shell),
        Verb::Man { verb } => man::run(&verb),
    };
    match outcome {
        Ok(()) => process_code(ExitCode::Ok),
        Err(error) => report(&error),
    }
}

/// Goes on as the command line says once this program, which was brought here, is what its sender has sent.
fn brought(digest: &str, words: &[String]) -> process::ExitCode {
    // The sender hears the error, and shows it.
    if let Err(error) = farhaul::sisters::kept::settle(digest) {
        return process_code(error.exit_code());
    }
    match Cli::try_parse_from(std::iter::once("farhaul").chain(words.iter().map(String::as_str))) {
        Ok(args) => run_verb(args.verb),
        Err(error) => report(&Error::new(Code::BadOption, error.to_string())),
    }
}

fn coded(outcome: Result<ExitCode, Error>) -> process::ExitCode {
    outcome.map_or_else(|error| report(&error), process_code)
}

/// Returns whether the verb always prints to stdout, so that it cannot work without it.
fn reports_to_stdout(verb: &Verb) -> bool {
    match verb {
        Verb::Cp(args) => args.output.json,
        Verb::Sync(args) => args.output.json,
        Verb::Verify(args) => args.json,
        Verb::Serve(args) => args.json,
        Verb::Keygen(args) => args.json,
        Verb::Clean(args) => args.json || !args.quiet,
        Verb::Receipt(args) => match &args.verb {
            Some(ReceiptVerb::Verify(args)) => args.json,
            None => true,
        },
        Verb::Lab(args) => match &args.verb {
            LabVerb::Up(up) => up.json,
            LabVerb::Set(set) => set.json,
            LabVerb::Stats(_) => true,
            LabVerb::Run(_) | LabVerb::Exec(_) | LabVerb::World(_) => false,
        },
        Verb::Bench(args) => output_of(&args.part).is_some_and(|(json, quiet)| json || !quiet),
        Verb::Doctor(args) => args.record.is_none(),
        Verb::Stream(args) => match &args.verb {
            StreamVerb::Send(args) => args.output.json,
            StreamVerb::Recv(args) => args.output.json,
            StreamVerb::Stats(_) => true,
        },
        Verb::Completions { .. } | Verb::Man { .. } | Verb::Config(_) | Verb::Audit(_) => true,
        Verb::Ls(_) | Verb::Stat(_) | Verb::Cat(_) | Verb::Du(_) | Verb::Sum(_) => true,
        Verb::Submit(_)
        | Verb::Jobs(_)
        | Verb::Job(_)
        | Verb::Logs(_)
        | Verb::History(_)
        | Verb::Usage(_) => true,
        Verb::Open(_) | Verb::Peers(_) | Verb::Token(_) | Verb::Cap(_) | Verb::Watch(_) => true,
        Verb::Wait(args) | Verb::Pause(args) | Verb::Resume(args) | Verb::Cancel(args) | Verb::Take(args) => {
            args.answer.json
        }
        Verb::Retry(args) => args.jobs.answer.json,
        Verb::Set(args) => args.answer.json,
        Verb::Store(args) => match &args.verb {
            StoreVerb::Backup { .. } => false,
            StoreVerb::Check { answer } => answer.json || !answer.quiet,
        },
        Verb::Top(args) => args.once,
        Verb::Mkdir(_) | Verb::Mv(_) | Verb::Rm(_) | Verb::Mount(_) | Verb::Umount(_) => false,
        Verb::Gateway(_) => false,
        Verb::Tunnel(args) => args.json,
        Verb::Cache(_) => true,
        // Its stdout is the channel to the client.
        Verb::Endpoint | Verb::Brought { .. } => false,
    }
}

/// Returns whether the measurement prints JSON, and whether it is quiet; `None` for the far end of one.
fn output_of(part: &BenchVerb) -> Option<(bool, bool)> {
    let output = match part {
        BenchVerb::Cpu(args) => &args.output,
        BenchVerb::Disk(args) => &args.output,
        BenchVerb::Link(args) => &args.output,
        BenchVerb::Transfer(args) => &args.output,
        BenchVerb::Read(args) => return Some((args.read.json, args.read.quiet)),
        BenchVerb::Endpoint => return None,
    };
    Some((output.json, output.quiet))
}
