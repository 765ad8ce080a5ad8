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
        }
    };
}
