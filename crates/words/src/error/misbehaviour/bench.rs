//! What a measurement finds.

/// Puts the rows of this file behind those that are there, and hands all of them on.
macro_rules! rows_of_bench {
    ([$next:ident $($later:ident)*] $($before:tt)*) => {
        $next! {
            [$($later)*] $($before)*
            BenchAnswer = 0x601, "it answered something else than it was asked";
            BenchOrder = 0x602, "a measurement's steps come in another order";
            BenchFile = 0x603, "a file outside the folder that was made for the measurement";
        }
    };
}
