//! Charts for every subcommand that draws one: lines and bars, saved as SVG or PNG by the file's extension; pages
//! that hold them.
//!
//! Owns the look (palette, fonts, axes, legend), so that all plots of Tenure read alike; leaves what is drawn to its
//! callers. Colours are those of Okabe and Ito, distinguishable with every common colour blindness; lines differ by
//! dash and marker too, and bars by lightness, so that a grey print stays readable. The legend stands above the plot,
//! never on the data. The font (DejaVu Sans) is compiled in: no system font is needed, neither to build nor to draw.
#![forbid(unsafe_code)]

mod bar;
mod line;
mod page;
mod style;

pub use bar::{BarChart, BarSeries};
pub use line::{LineChart, Series};
pub use page::Page;
