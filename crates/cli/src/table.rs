//! Columns that line up, without lines around them. Cells are plain text without anything unseen.

/// A table as lines, the header first.
pub(crate) fn lines<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> Vec<String> {
    let mut widths = header.map(|cell| cell.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &[String; N]| {
        let mut line = String::new();
        for (cell, width) in cells.iter().zip(widths) {
            let padding = width.saturating_sub(cell.chars().count()) + 2;
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', padding));
        }
        line.trim_end().to_owned()
    };
    std::iter::once(line(&header.map(str::to_uppercase))).chain(rows.iter().map(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [["é".to_owned(), "1".to_owned()], ["longer".to_owned(), String::new()]];
        assert_eq!(lines(["a", "b"], &rows), ["A       B", "é       1", "longer"]);
    }
}
