//! What a transport finds. The numbers are its own.

/// Puts the rows of this file behind those that are there, and hands all of them on.
macro_rules! rows_of_transport {
    ([$next:ident $($later:ident)*] $($before:tt)*) => {
        $next! {
            [$($later)*] $($before)*
            MalformedFrame = 0x101, "malformed frame";
            UnknownFrame = 0x102, "unknown mandatory frame";
            AckOfUnsent = 0x103, "acknowledged a packet that was never sent";
            BlockLength = 0x104, "impossible block length";
            Fragmented = 0x105, "block cut into too many pieces";
            ControlWindow = 0x106, "control stream window exceeded";
            Credit = 0x107, "impossible credit";
            GivenUp = 0x108, "impossible blocks given up";
        }
    };
}
