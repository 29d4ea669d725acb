//! Owns a text of a page that leads to what it tells of: operations, a stretch of time, faults, a file.
//! Never decides what is evidence of what: whoever makes one says it.

use askama::Template;

/// A text, mostly a number, with the place of the page or the file that it comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Template)]
#[template(
    ext = "html",
    source = "{% if href.is_empty() && title.is_empty() %}{{ text }}\
{% else if href.is_empty() %}<span title=\"{{ title }}\">{{ text }}</span>{% else %}<a href=\"{{ href }}\"\
{% if let Some(search) = search.as_ref() %} data-search=\"{{ search }}\" data-outcome=\"{{ outcome }}\"{% endif %}\
{% if let Some((from, to)) = window_ms %} data-from=\"{{ from }}\" data-to=\"{{ to }}\"{% endif %}\
{% if !faults.is_empty() %} data-faults=\"{{ faults }}\"{% endif %}\
{% if !title.is_empty() %} title=\"{{ title }}\"{% endif %}>{{ text }}</a>{% endif %}"
)]
pub(crate) struct Linked {
    /// What is read.
    pub(crate) text: String,
    /// Where it leads; nowhere if empty. It leads there without any script, too.
    href: String,
    /// What finds the operations in the timeline.
    search: Option<String>,
    /// Only those with this outcome; all of them if empty.
    outcome: &'static str,
    /// The stretch of the timeline, in milliseconds since the start.
    window_ms: Option<(u64, u64)>,
    /// Numbers of the faults.
    faults: String,
    /// What is told of it while a pointer is over it.
    title: String,
}

// Its template has escaped what it holds.
impl askama::filters::HtmlSafe for Linked {}

impl Linked {
    /// A text that leads nowhere.
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }

    /// Leads to a part of the page or a file of the run.
    pub(crate) fn to(text: impl Into<String>, href: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            href: href.into(),
            ..Self::default()
        }
    }

    /// Leads to the operations that `search` finds in the timeline, of one outcome or, if it is empty, of any.
    pub(crate) fn operations(
        text: impl Into<String>,
        search: impl Into<String>,
        outcome: &'static str,
    ) -> Self {
        Self {
            search: Some(search.into()),
            outcome,
            ..Self::to(text, "#timeline")
        }
    }

    /// Leads to the one operation whose invocation is at this place of the history.
    pub(crate) fn operation(text: impl Into<String>, index: u64) -> Self {
        Self::operations(text, format!("index:{index}"), "")
    }

    /// Leads to a stretch of the timeline, in milliseconds since the start.
    pub(crate) fn stretch(text: impl Into<String>, from_ms: u64, to_ms: u64) -> Self {
        Self {
            window_ms: Some((from_ms, to_ms)),
            ..Self::to(text, "#timeline")
        }
    }

    /// Leads to a moment of the timeline, in nanoseconds since the start.
    pub(crate) fn moment(text: impl Into<String>, at_ns: u64) -> Self {
        Self::stretch(text, at_ns / 1_000_000, at_ns / 1_000_000)
    }

    /// Leads to these faults among all faults; nowhere if there is none.
    pub(crate) fn faults(text: impl Into<String>, ids: &[u64]) -> Self {
        let Some(first) = ids.first() else {
            return Self::plain(text);
        };
        let numbers: Vec<String> = ids.iter().map(u64::to_string).collect();
        Self {
            faults: numbers.join(" "),
            ..Self::to(text, format!("#fault-{first}"))
        }
    }

    /// With a word for those who point at it.
    pub(crate) fn titled(mut self, title: impl Into<String>) -> Self {
        self.title = title.into();
        self
    }
}

impl From<&str> for Linked {
    fn from(text: &str) -> Self {
        Self::plain(text)
    }
}

impl From<String> for Linked {
    fn from(text: String) -> Self {
        Self::plain(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_says_where_it_leads_and_nothing_in_it_is_markup() {
        let shown = |linked: Linked| linked.render().unwrap();
        assert_eq!(shown("<b>".into()), "&#60;b&#62;");
        assert_eq!(
            shown(Linked::operations("3", "f:\"x\"", "ok")),
            "<a href=\"#timeline\" data-search=\"f:&#34;x&#34;\" data-outcome=\"ok\">3</a>"
        );
        assert_eq!(
            shown(Linked::moment("1.5 s", 1_500_000_000).titled("then")),
            "<a href=\"#timeline\" data-from=\"1500\" data-to=\"1500\" title=\"then\">1.5 s</a>"
        );
        assert_eq!(
            shown(Linked::faults("2", &[4, 9])),
            "<a href=\"#fault-4\" data-faults=\"4 9\">2</a>"
        );
        assert_eq!(shown(Linked::faults("0", &[])), "0");
        let told = Linked::plain("0").titled("never");
        assert_eq!(shown(told), "<span title=\"never\">0</span>");
    }
}
