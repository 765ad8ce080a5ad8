//! `farhaul endpoint`: the far end that a client starts over ssh.

use farhaul_connect::endpoint_stdio;
use farhaul_session::error::ExitCode;
use farhaul_session::testing::Testing;

use super::request::admit;

/// Speaks with the client over standard input and output until the transfer is over.
pub fn serve_endpoint(testing: Testing) -> ExitCode {
    let mut established = match endpoint_stdio(&|opening| admit(opening, 0)) {
        Ok(established) => established,
        Err(error) => return error.exit_code(),
    };
    established.opening.network.testing = testing;
    // The client reports to the user; what this end says on standard error would come twice.
    let summary = super::serve(established, None, &super::NoWatch);
    summary.error.map_or(ExitCode::Ok, |error| error.exit_code())
}
