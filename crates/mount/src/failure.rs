//! Errors of the far end as the numbers that the kernel knows.

use farhaul::Error;
use farhaul::errors::Code;
use rustix::io::Errno;

pub(crate) fn errno_of(error: &Error) -> Errno {
    match error.code() {
        Code::NotFound | Code::SourceVanished => Errno::NOENT,
        Code::Forbidden | Code::PermissionDenied => Errno::ACCESS,
        Code::NotADirectory => Errno::NOTDIR,
        Code::SourceChanged => Errno::STALE,
        Code::BadPath => Errno::NAMETOOLONG,
        _ => Errno::IO,
    }
}
