//! `farhaul endpoint`: the far end that a client starts over ssh, whichever service it wants.

use farhaul_connect::endpoint_stdio;
use farhaul_connect::hello::SessionOpening;
use farhaul_copy::NoCopyObserver;
use farhaul_session::{ExitCode, Handle, TestHooks};

/// Speaks with the client over standard input and output until it has no more.
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
    // The client reports to the user; what this end says on standard error would come twice.
    let error = match is_read(&established.opening) {
        true => farhaul_read::serve(established, None, &Handle::new()).error,
        false => farhaul_copy::serve(established, None, &NoCopyObserver).error,
    };
    error.map_or(ExitCode::Ok, |error| error.exit_code())
}
