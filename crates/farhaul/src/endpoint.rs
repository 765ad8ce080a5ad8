//! `farhaul endpoint`: the far end that a client starts over ssh, for the services `copy` and `read`.

use farhaul_connect::endpoint_stdio;
use farhaul_connect::hello::SessionOpening;
use farhaul_copy::NoCopyObserver;
use farhaul_session::{ExitCode, Handle, TestHooks};

/// Serves the client over standard input and output until its session ends.
pub fn serve_endpoint(testing: TestHooks) -> ExitCode {
    let is_read: fn(&SessionOpening) -> bool = |opening| opening.service == farhaul_read::SERVICE;
    let judge = move |opening: &SessionOpening| match is_read(opening) {
        true => farhaul_read::admit(opening),
        false => farhaul_copy::admit(opening, 0),
    };
    let mut established = match endpoint_stdio(&judge) {
        Ok(established) => established,
        Err(error) => return error.exit_code(),
    };
    established.opening.network.testing = testing;
    // The client reports the error to the user. If this end wrote it to standard error, the user would see it
    // twice.
    let error = match is_read(&established.opening) {
        true => farhaul_read::serve(established, None, &Handle::new()).error,
        false => farhaul_copy::serve(established, None, &NoCopyObserver).error,
    };
    error.map_or(ExitCode::Ok, |error| error.exit_code())
}
