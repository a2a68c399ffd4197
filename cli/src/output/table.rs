//! Tables in the layout of `zfs list`: two spaces between columns, words aligned left, numbers right, and no line cut
//! or wrapped. With `-H` there is no header, and a single tab separates values.

use dataset::property::Align;

/// Header and alignment of a column.
#[derive(Clone, Debug)]
pub struct Column {
    title: String,
    align: Align,
}

impl Column {
    /// A column of words, aligned left.
    pub fn left(title: impl Into<String>) -> Column {
        Column { title: title.into(), align: Align::Left }
    }

    /// A column of numbers, aligned right.
    pub fn right(title: impl Into<String>) -> Column {
        Column { title: title.into(), align: Align::Right }
    }

    /// A column with the given alignment.
    pub fn new(title: impl Into<String>, align: Align) -> Column {
        Column { title: title.into(), align }
    }
}

/// A table under construction.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
    /// Widths of the columns in rows already taken; empty before the first [`Table::take`].
    taken: Vec<usize>,
}

impl Table {
    /// A table with columns and without rows.
    pub fn new(columns: Vec<Column>) -> Table {
        Table { columns, rows: Vec::new(), taken: Vec::new() }
    }

    /// Adds a row, with a cell per column.
    pub fn push(&mut self, row: Vec<String>) {
        assert_eq!(row.len(), self.columns.len(), "a row has a cell for each column");
        self.rows.push(row);
    }

    /// The whole text; empty without rows.
    pub fn render(&self, scripted: bool) -> String {
        match (self.rows.is_empty(), scripted) {
            (true, _) => String::new(),
            (_, true) => self.rows.iter().map(|row| row.join("\t") + "\n").collect(),
            (_, false) => self.aligned(),
        }
    }

    /// Number of rows not yet taken.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Removes the rows and returns their text, for a table larger than memory. The first text begins with the header,
    /// and columns never become narrower.
    pub fn take(&mut self, scripted: bool) -> String {
        let is_first = self.taken.is_empty();
        let text = self.render(scripted);
        if !self.rows.is_empty() {
            self.taken = self.widths();
            self.rows.clear();
        }
        match is_first || scripted {
            true => text,
            false => text.split_once('\n').map(|(_, rows)| rows.to_owned()).unwrap_or_default(),
        }
    }

    fn aligned(&self) -> String {
        let widths = self.widths();
        let head: Vec<&str> = self.columns.iter().map(|column| column.title.as_str()).collect();
        let rows = self.rows.iter().map(|row| row.iter().map(String::as_str).collect::<Vec<_>>());
        std::iter::once(head).chain(rows).map(|cells| self.line(&cells, &widths)).collect()
    }

    fn widths(&self) -> Vec<usize> {
        let width = |text: &String| text.chars().count();
        let of_column = |index: usize, column: &Column| {
            let cells = self.rows.iter().map(|row| width(&row[index]));
            cells
                .chain([width(&column.title), self.taken.get(index).copied().unwrap_or(0)])
                .max()
                .expect("the title is there")
        };
        self.columns.iter().enumerate().map(|(index, column)| of_column(index, column)).collect()
    }

    fn line(&self, cells: &[&str], widths: &[usize]) -> String {
        let padded = cells.iter().zip(widths).zip(&self.columns).map(|((cell, width), column)| match column.align {
            Align::Left => format!("{cell:<width$}"),
            Align::Right => format!("{cell:>width$}"),
        });
        let line = padded.collect::<Vec<_>>().join("  ");
        line.trim_end().to_owned() + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(vec![Column::left("NAME"), Column::right("USED"), Column::left("MOUNTPOINT")]);
        table.push(vec!["tank".into(), "1.50G".into(), "/tank".into()]);
        table.push(vec!["tank/home/\u{e9}mile".into(), "0B".into(), "-".into()]);
        table
    }

    #[test]
    fn words_stand_left_and_numbers_right() {
        insta::assert_snapshot!(table().render(false), @r"
        NAME              USED  MOUNTPOINT
        tank             1.50G  /tank
        tank/home/émile     0B  -
        ");
    }

    #[test]
    fn a_table_taken_in_parts_stays_as_wide_as_it_was() {
        let mut table = table();
        assert_eq!(table.take(false), self::table().render(false));
        assert_eq!(table.take(false), "");
        table.push(vec!["t".into(), "1B".into(), "-".into()]);
        insta::assert_snapshot!(table.take(false), @"t                   1B  -");
        table.push(vec!["t".into(), "1B".into(), "-".into()]);
        assert_eq!(table.take(true), "t\t1B\t-\n");
    }

    #[test]
    fn scripts_get_tabs_and_no_head() {
        assert_eq!(table().render(true), "tank\t1.50G\t/tank\ntank/home/\u{e9}mile\t0B\t-\n");
        assert_eq!(Table::new(vec![Column::left("NAME")]).render(false), "");
    }
}
