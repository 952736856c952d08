//! Columns that line up, without lines around them. Cells are plain text without anything unseen.

/// A table as lines, the header first.
pub(crate) fn lines(
    header: impl AsRef<[&'static str]>,
    rows: &[impl AsRef<[String]>],
) -> Vec<String> {
    let header: Vec<String> = header.as_ref().iter().map(|cell| cell.to_uppercase()).collect();
    let mut widths: Vec<usize> = header.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row.as_ref()) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &[String]| {
        let mut line = String::new();
        for (cell, width) in cells.iter().zip(&widths) {
            let padding = width.saturating_sub(cell.chars().count()) + 2;
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', padding));
        }
        line.trim_end().to_owned()
    };
    std::iter::once(line(&header)).chain(rows.iter().map(|row| line(row.as_ref()))).collect()
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
