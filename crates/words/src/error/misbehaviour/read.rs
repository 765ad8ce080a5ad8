//! What a read finds.

/// Puts the rows of this file behind those that are there, and hands all of them on.
macro_rules! rows_of_read {
    ([$next:ident $($later:ident)*] $($before:tt)*) => {
        $next! {
            [$($later)*] $($before)*
            // Found by the end that has the files of a read.
            TooMuchAsked = 0x701, "it asked for more than it may at a time";
            FileNumber = 0x702, "it used a file's number wrongly";
            ImpossibleRange = 0x703, "it asked for an impossible range";
            // Found by the end that reads.
            SenselessPieces = 0x741, "the pieces of a block make no sense";
            UnaskedAnswer = 0x742, "it sent what was not asked for";
            SenselessRecords = 0x743, "a list makes no sense";
        }
    };
}
