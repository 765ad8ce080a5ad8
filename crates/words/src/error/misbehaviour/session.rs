//! What a session finds.

/// Puts the rows of this file behind those that are there, and hands all of them on.
macro_rules! rows_of_session {
    ([$next:ident $($later:ident)*] $($before:tt)*) => {
        $next! {
            [$($later)*] $($before)*
            SenselessMessage = 0x201, "a control message makes no sense";
            UnexpectedMessage = 0x202, "a message at the wrong time";
            DamagedCarrier = 0x203, "a stream carries bytes that are no packet";
            SegmentBeyondBlock = 0x204, "a segment lies beyond its block";
            BlockTwice = 0x205, "a block was completed twice";
            TooManyBlocks = 0x206, "more blocks than were granted";
            NobodysBlock = 0x207, "a block that belongs to no request";
            FlowIndexTwice = 0x208, "it used a flow index twice";
            NoPathUsed = 0x209, "it wants all paths to stay unused";
            PathNotAgreed = 0x20a, "it added a path that was not agreed on";
            PathNotAsked = 0x20b, "it opened a path that was not asked for";
            TooFewPorts = 0x20c, "it opened a path with too few ports";
            SecondRequest = 0x20d, "it opens a request in a session that is for one";
            RequestOutOfTurn = 0x20e, "it opens a request out of turn";
            TooManyRequests = 0x20f, "it has too many requests open";
            UnknownRequest = 0x210, "it named a request that nobody has opened";
        }
    };
}
