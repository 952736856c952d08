//! Where in a text something is: for errors only.

use miette::Diagnostic;

use crate::document::PolicyFile;
use crate::error::Problem;

/// A place in a file, in bytes from its beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) file: &'a PolicyFile,
    pub(crate) offset: usize,
}

impl Place<'_> {
    /// Something wrong here.
    pub(crate) fn problem(self, policy: Option<&str>, message: impl Into<String>) -> Problem {
        let (line, column) = line_and_column(&self.file.text, self.offset);
        Problem {
            file: self.file.name.clone(),
            line,
            column,
            policy: policy.map(str::to_owned),
            message: message.into(),
            hint: None,
        }
    }

    /// Something wrong where Cedar points to; here if it does not point.
    pub(crate) fn diagnosed(
        self,
        policy: Option<&str>,
        message: impl Into<String>,
        diagnostic: &dyn Diagnostic,
    ) -> Problem {
        let pointed = diagnostic.labels().and_then(|mut labels| labels.next());
        let offset = pointed.map_or(self.offset, |label| label.offset());
        let problem = Self { offset, ..self }.problem(policy, message);
        Problem { hint: diagnostic.help().map(|help| help.to_string()), ..problem }
    }

    /// The place of a part of the text from here on; here if it is not found.
    pub(crate) fn of(self, part: &str) -> Self {
        let rest = self.file.text.get(self.offset..).unwrap_or_default();
        Self { offset: self.offset + rest.find(part).unwrap_or(0), ..self }
    }
}

/// Both counted from 1.
fn line_and_column(text: &str, offset: usize) -> (u32, u32) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (u32::try_from(line).unwrap_or(u32::MAX), u32::try_from(column).unwrap_or(u32::MAX))
}
