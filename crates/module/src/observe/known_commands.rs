//! The server's commands as Tenure knows them, and those that it doesn't: their table, and when it has to be read anew.

use super::command_table::CommandTable;

/// The table, and what was met that isn't in it.
pub struct KnownCommands {
    table: CommandTable,
    /// Set where a command was met that the table doesn't know: a module was loaded since.
    pub is_stale: bool,
    /// Commands that were not in the table as it was then.
    pub unknown: u64,
    panic_please: bool,
}

impl KnownCommands {
    /// The commands of the server's table.
    pub fn new(table: CommandTable) -> Self {
        KnownCommands { table, is_stale: false, unknown: 0, panic_please: false }
    }

    /// Takes the server's command table as it is now.
    pub fn renew(&mut self, table: CommandTable) {
        self.table = table;
        self.is_stale = false;
    }

    /// The table.
    #[inline]
    pub fn table(&self) -> &CommandTable {
        &self.table
    }

    /// The table for a while in which there is none, until [`KnownCommands::take_back`].
    pub fn lend(&mut self) -> CommandTable {
        std::mem::take(&mut self.table)
    }

    /// The table that was lent.
    pub fn take_back(&mut self, table: CommandTable) {
        self.table = table;
    }

    /// A command runs that isn't in the table.
    #[cold]
    pub fn meet_unknown(&mut self) {
        assert!(!self.panic_please, "asked to by TENURE.DEBUG");
        self.unknown += 1;
        self.is_stale = true;
    }

    /// For tests: the next command panics. The way there is by a table that knows none, so that it costs nothing else.
    pub fn panic_at_next(&mut self) {
        self.table = CommandTable::empty();
        self.panic_please = true;
    }
}
