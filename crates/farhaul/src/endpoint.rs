//! `farhaul endpoint`: the far end that a client starts over ssh, for the services `copy`, `read`, `names`, `diagnose` and `tunnel`.

use farhaul_connect::endpoint_stdio;
use farhaul_connect::hello::SessionOpening;
use farhaul_copy::NoCopyObserver;
use farhaul_session::{Handle, TestHooks};
use farhaul_words::ExitCode;

/// Serves the client over standard input and output until its session ends.
pub fn serve_endpoint(testing: TestHooks) -> ExitCode {
    let judge = move |opening: &SessionOpening| match &opening.service[..] {
        farhaul_read::SERVICE => farhaul_read::admit(opening),
        farhaul_names::SERVICE => farhaul_names::admit(opening),
        farhaul_diagnose::SERVICE => farhaul_diagnose::admit(opening),
        farhaul_tunnel::SERVICE => farhaul_tunnel::admit(opening),
        _ => farhaul_copy::admit(opening, 0),
    };
    let mut established = match endpoint_stdio(&judge) {
        Ok(established) => established,
        Err(error) => return error.exit_code(),
    };
    established.opening.network.testing = testing;
    // The client reports the error to the user. If this end wrote it to standard error, the user would see it
    // twice.
    let error = match &established.opening.service[..] {
        farhaul_read::SERVICE => farhaul_read::serve(established, None, &Handle::new()).error,
        farhaul_names::SERVICE => farhaul_names::serve(established, None, &(), &Handle::new()).error,
        farhaul_diagnose::SERVICE => {
            farhaul_diagnose::serve(established, None, testing, &Handle::new()).error
        }
        farhaul_tunnel::SERVICE => farhaul_tunnel::serve(established, None, &Handle::new()).error,
        _ => farhaul_copy::serve(established, None, &NoCopyObserver).error,
    };
    error.map_or(ExitCode::Ok, |error| error.exit_code())
}
