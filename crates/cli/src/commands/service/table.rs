//! Tables for terminals: columns as wide as what is in them, the last one as long as it likes.

use crate::ui::printer;

/// Rows under a line of names.
pub(super) struct TextTable {
    rows: Vec<Vec<String>>,
}

impl TextTable {
    pub(super) fn new(names: &[&str]) -> TextTable {
        TextTable { rows: vec![names.iter().map(ToString::to_string).collect()] }
    }

    pub(super) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// As text, in which a terminal finds nothing to act on.
    pub(super) fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cells = |row: &Vec<String>| row.iter().map(|cell| printer::harmless(cell)).collect::<Vec<_>>();
        let rows: Vec<Vec<String>> = self.rows.iter().map(cells).collect();
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(&format!("{cell:<width$}  "));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_what_is_in_them() {
        let mut table = TextTable::new(&["ID", "NAME"]);
        table.row(vec!["12345".into(), "a\nb".into()]);
        assert_eq!(table.text(), "ID     NAME\n12345  a\\nb\n");
    }
}
