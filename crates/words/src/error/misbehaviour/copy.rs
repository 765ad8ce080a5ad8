//! What a copy finds.

/// Puts the rows of this file behind those that are there, and hands all of them on.
macro_rules! rows_of_copy {
    ([$next:ident $($later:ident)*] $($before:tt)*) => {
        $next! {
            [$($later)*] $($before)*
            // Found by the receiver of a copy.
            EntryOutOfOrder = 0x402, "an entry came out of order";
            EntryOutsideListing = 0x403, "an entry is not in the directory that is being listed";
            PathNotPlain = 0x404, "a path is not a plain one below the destination";
            PathUnasked = 0x405, "a path was not asked for";
            ContentUnasked = 0x406, "it sent a directory's content, which was not asked for";
            NameTwice = 0x407, "it sent two things of one name";
            TooManyEntries = 0x408, "it announced more entries than may be outstanding";
            NamesTooLong = 0x40a, "the names that it announced take more room than they may";
            NestedTooDeep = 0x40b, "its directories are nested too deep";
            DirectoryEndOutOfOrder = 0x40c, "a directory ended out of order";
            TooManyLinks = 0x40d, "it announced more files with several links than it may";
            LinkToNothing = 0x40e, "an entry is a link to something that is no linked file";
            AnnouncedAsOther = 0x40f, "a file was announced again as something else";
            OutputTwice = 0x410, "it wants to send bytes again that have already left standard output";
            NotCompared = 0x411, "it compared a file that was not to be compared";
            SameAsNothing = 0x412, "a chunk is said to be unchanged, but no old one was offered";
            SenselessTrailer = 0x413, "a block's trailer makes no sense";
            PieceBeyondFile = 0x414, "a piece lies beyond its file";
            SenselessPatch = 0x415, "a patch makes no sense";
            ImpossibleEnd = 0x416, "a file ends where it cannot";
            ListedElsewhere = 0x417, "it listed something outside the directory that it was listing";
            ListedOutOfOrder = 0x418, "it listed a directory twice or out of order";
            NeverBegun = 0x419, "a directory ended that had not begun";
            // Found by the sender of a copy.
            UnaskedDeletion = 0x441, "it deletes without being asked to";
            UnaskedRenaming = 0x442, "it renames without being asked to";
            UnaskedListing = 0x443, "it lists files although this is no dry run";
            ChunksNotThere = 0x444, "it says that it has chunks which the file does not have";
            ToldUnfitting = 0x445, "it sent something that does not fit a chunk";
            MarksEndedTwice = 0x446, "the marks of a file ended twice";
            AgainUnasked = 0x447, "it wants an entry again that it has not asked for before";
            ChunkBeyondFile = 0x448, "it wants a chunk beyond its file";
            EntryNotOutstanding = 0x449, "it speaks of an entry that is not outstanding";
            BadName = 0x44a, "it asked for an impossible name";
            NamesOutOfOrder = 0x44b, "it asked for names out of order";
            TooManyNames = 0x44c, "it asked for more names than are allowed";
            FinishedTooEarly = 0x44d, "it says that it has finished, but it has not";
            UnaskedBackup = 0x44e, "it keeps old files without being asked to";
            // Found by either end of a copy.
            ReceiptUnfit = 0x461, "its receipt does not fit the copy";
            RootDiffers = 0x462, "it signs for other contents than have been copied";
        }
    };
}
