//! What a stream finds.

/// Puts the rows of this file behind those that are there, and hands all of them on.
macro_rules! rows_of_stream {
    ([$next:ident $($later:ident)*] $($before:tt)*) => {
        $next! {
            [$($later)*] $($before)*
            SenselessLabel = 0x502, "the end of a block makes no sense";
            ImpossibleNumber = 0x503, "a block has a number that it cannot have";
            ConfirmedUnput = 0x504, "it confirms blocks that were not sent";
            MoreThanPut = 0x505, "it sent more blocks than it announced";
            SenselessPiece = 0x506, "the label of a piece of a frame makes no sense";
            WrongFrameSize = 0x507, "a frame has another size than it or its stream has said";
            ImpossibleFrame = 0x508, "a piece belongs to a frame that cannot come now";
            PieceTwice = 0x509, "a piece of a frame came twice";
            SenselessShowWord = 0x50a, "a word about frames makes no sense there";
            BadFrameName = 0x50b, "a frame has a name that no file can have";
        }
    };
}
