//! What either end of a tunnel finds.

/// Puts the rows of this file behind those that are there, and hands all of them on.
macro_rules! rows_of_tunnel {
    ([$next:ident $($later:ident)*] $($before:tt)*) => {
        $next! {
            [$($later)*] $($before)*
            SenselessTunnelPieces = 0x801, "the pieces of a tunnel's block make no sense";
            UnknownChannel = 0x802, "it used a channel of a tunnel that was never opened";
            ChannelOutOfTurn = 0x803, "it opened a channel of a tunnel out of turn";
            BeyondRoom = 0x804, "it sent more on a channel of a tunnel than there was room for";
            SenselessOffset = 0x805, "bytes of a tunnel's channel overlap, or lie behind its end";
            TooManyEarlyPieces = 0x806, "too many pieces of a tunnel wait for earlier ones";
            ShrunkRoom = 0x807, "it took back room of a tunnel's channel, or gave too much";
            UnknownListener = 0x808, "a connection came for a listener of a tunnel that was not asked for";
        }
    };
}
