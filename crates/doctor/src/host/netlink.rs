//! Questions to the kernel by netlink, whose answers are lists.

use std::io;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::net::{recv, sendto, socket_with};

use super::wire::u32_at;

const NLM_F_REQUEST_DUMP: u16 = 0x301;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// The length of a message's header.
pub(super) const HEADER: usize = 16;
/// No list that is asked for here is this long; a kernel that changes it all the while must not fill the memory.
const ALL_MAX: usize = 16 << 20;

/// Asks for everything of a kind; `body` is what follows the header. Returns the messages as they came.
pub(super) fn dump(protocol: Option<Protocol>, kind: u16, body: &[u8]) -> io::Result<Vec<u8>> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
    let mut request = Vec::with_capacity(HEADER + body.len());
    request.extend(((HEADER + body.len()) as u32).to_ne_bytes());
    request.extend(kind.to_ne_bytes());
    request.extend(NLM_F_REQUEST_DUMP.to_ne_bytes());
    request.extend([0; 8]);
    request.extend(body);
    sendto(&socket, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut all = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    while all.len() < ALL_MAX {
        let (length, _) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        let mut bytes = &buffer[..length];
        while let Some((kind, body)) = message(&mut bytes) {
            match (kind, body.get(..4).and_then(|code| u32_at(code, 0))) {
                (NLMSG_DONE, _) => return Ok(all),
                (NLMSG_ERROR, Some(code)) => {
                    return Err(io::Error::from_raw_os_error((code as i32).saturating_neg()));
                }
                _ => {}
            }
        }
        if length == 0 {
            break;
        }
        all.extend_from_slice(&buffer[..length]);
    }
    Ok(all)
}

/// Cuts off the first message: its kind, and what it says.
pub(super) fn message<'a>(bytes: &mut &'a [u8]) -> Option<(u16, &'a [u8])> {
    let whole = *bytes;
    let length = usize::try_from(u32_at(whole, 0)?).ok().filter(|&length| length >= HEADER)?;
    let kind = u16::from_ne_bytes(whole.get(4..6)?.try_into().ok()?);
    let body = whole.get(HEADER..length)?;
    *bytes = whole.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, body))
}
