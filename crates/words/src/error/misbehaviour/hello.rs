//! What is found in the hello and its reply.

/// Puts the rows of this file behind those that are there, and hands all of them on.
macro_rules! rows_of_hello {
    ([$next:ident $($later:ident)*] $($before:tt)*) => {
        $next! {
            [$($later)*] $($before)*
            FrameTooLong = 0x301, "a frame is longer than it may be";
            MalformedHello = 0x302, "the hello is malformed";
            FlowCount = 0x303, "it agreed on another number of flows";
            PortCount = 0x304, "the numbers of flows and of UDP ports do not fit together";
            NoSecretHalf = 0x305, "it sent no half of the session's secret";
            KeyChanged = 0x306, "the server changed its key meanwhile";
            UnaskedPaths = 0x307, "it named paths that it was not asked for";
            ImpossiblePaths = 0x308, "it named impossible paths";
        }
    };
}
