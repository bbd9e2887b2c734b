//! The scopes in which keys have their meanings.

/// A scope in which a key has its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Anywhere,
    /// In every view that lists something.
    List,
    /// Where a replay's time can be moved: everywhere except on pages that need these keys.
    Time,
    /// While a line is being typed: a filter, a command, a time.
    Prompt,
    /// In a list to choose from.
    Picker,
    Overview,
    /// One rank alone.
    Rank,
    Gemms,
    Collectives,
    Steps,
    Stacks,
    Findings,
    Captures,
    Hosts,
    Help,
}

impl Scope {
    pub const ALL: [Self; 15] = [
        Self::Anywhere,
        Self::List,
        Self::Time,
        Self::Overview,
        Self::Rank,
        Self::Gemms,
        Self::Collectives,
        Self::Steps,
        Self::Stacks,
        Self::Findings,
        Self::Captures,
        Self::Hosts,
        Self::Help,
        Self::Picker,
        Self::Prompt,
    ];

    /// The name in the settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Anywhere => "anywhere",
            Self::List => "lists",
            Self::Time => "time",
            Self::Prompt => "line",
            Self::Picker => "picker",
            Self::Overview => "overview",
            Self::Rank => "rank",
            Self::Gemms => "gemm",
            Self::Collectives => "collectives",
            Self::Steps => "steps",
            Self::Stacks => "stacks",
            Self::Findings => "findings",
            Self::Captures => "captures",
            Self::Hosts => "hosts",
            Self::Help => "help",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::Anywhere => "Anywhere",
            Self::List => "Lists",
            Self::Time => "Time",
            Self::Prompt => "A line being typed",
            Self::Picker => "A list to choose from",
            Self::Overview => "Overview",
            Self::Rank => "Rank",
            Self::Gemms => "GEMM",
            Self::Collectives => "Collectives",
            Self::Steps => "Steps",
            Self::Stacks => "Stacks",
            Self::Findings => "Findings",
            Self::Captures => "Captures",
            Self::Hosts => "Hosts",
            Self::Help => "This page",
        }
    }

    pub(super) fn is_list(self) -> bool {
        !matches!(self, Self::Anywhere | Self::List | Self::Time | Self::Prompt | Self::Rank)
    }

    pub(super) fn has_time(self) -> bool {
        self == Self::Rank || (self.is_list() && !matches!(self, Self::Stacks | Self::Help | Self::Picker))
    }
}
