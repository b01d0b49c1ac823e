//! The look that all charts share: canvas, fonts, palette, number labels, title and legend.

use std::path::Path;

use anyhow::{Context, bail};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontStyle, register_font};

/// Size of an SVG, in pixels; a PNG has [`PNG_SCALE`] times as many each way.
const CANVAS: (u32, u32) = (960, 600);

/// A PNG is drawn at twice the size, so that it stays sharp in print and on dense screens.
const PNG_SCALE: f64 = 2.0;

/// Okabe and Ito's colours, ordered so that neighbours differ in lightness as well as in hue.
const PALETTE: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(86, 180, 233),
    RGBColor(204, 121, 167),
    RGBColor(130, 130, 130),
];

/// Dash patterns `(drawn, left out)` in pixels; the first is solid.
const DASHES: [(i32, i32); 4] = [(1, 0), (9, 4), (3, 3), (14, 7)];

/// The colour of the series at `index`; from the ninth on they repeat (with another dash).
pub(crate) fn colour(index: usize) -> RGBColor {
    PALETTE[index % PALETTE.len()]
}

/// The dash of the series at `index`, in pixels at scale 1. Repeats every four, so no colour meets one dash twice
/// before the 33rd series.
pub(crate) fn dash(index: usize) -> (i32, i32) {
    DASHES[(index + index / PALETTE.len()) % DASHES.len()]
}

/// What a chart draws itself on: an area and the factor by which every length is enlarged.
pub(crate) struct Canvas<'a, DB: DrawingBackend> {
    pub(crate) area: DrawingArea<DB, Shift>,
    pub(crate) scale: f64,
    pub(crate) title: &'a str,
}

impl<DB: DrawingBackend> Canvas<'_, DB> {
    /// A length given at scale 1, in this canvas's pixels.
    pub(crate) fn pixels(&self, length: f64) -> i32 {
        (length * self.scale).round() as i32
    }

    /// The font of axis labels and the legend.
    pub(crate) fn font(&self) -> FontDesc<'static> {
        ("sans-serif", 15.0 * self.scale).into_font()
    }

    /// Draws the title and the legend and returns what is left below them.
    pub(crate) fn title_and_legend(&self, names: &[&str], key: LegendKey) -> anyhow::Result<DrawingArea<DB, Shift>>
    where
        DB::ErrorType: 'static,
    {
        self.area.fill(&WHITE).map_err(drawing_error)?;
        let (width, _) = self.area.dim_in_pixel();
        let anchor = Pos::new(HPos::Center, VPos::Top);
        let title_style = ("sans-serif", 20.0 * self.scale).into_font().color(&BLACK).pos(anchor);
        let title_at = (width as i32 / 2, self.pixels(12.0));
        self.area.draw_text(self.title, &title_style, title_at).map_err(drawing_error)?;
        let below = self.legend(names, key, self.pixels(44.0))?;
        Ok(self.area.split_vertically(below).1)
    }

    /// Draws one entry per series from `top` on, in as many rows as it takes, and returns where the last row ends.
    fn legend(&self, names: &[&str], key: LegendKey, top: i32) -> anyhow::Result<i32>
    where
        DB::ErrorType: 'static,
    {
        let text = self.font().color(&BLACK).pos(Pos::new(HPos::Left, VPos::Center));
        let (key_width, gap, margin, row_height) =
            (self.pixels(34.0), self.pixels(8.0), self.pixels(80.0), self.pixels(24.0));
        let (canvas_width, _) = self.area.dim_in_pixel();
        let (mut x, mut y) = (margin, top + row_height / 2);
        for (index, name) in names.iter().enumerate() {
            let (text_width, _) = self.area.estimate_text_size(name, &text).map_err(drawing_error)?;
            let entry_width = key_width + gap + text_width as i32 + 3 * gap;
            if x > margin && x + entry_width > canvas_width as i32 {
                (x, y) = (margin, y + row_height);
            }
            self.legend_key(index, key, (x, y), key_width)?;
            self.area.draw_text(name, &text, (x + key_width + gap, y)).map_err(drawing_error)?;
            x += entry_width;
        }
        Ok(y + row_height / 2 + gap)
    }

    fn legend_key(&self, index: usize, key: LegendKey, (x, y): (i32, i32), width: i32) -> anyhow::Result<()>
    where
        DB::ErrorType: 'static,
    {
        match key {
            LegendKey::Line => {
                let style = colour(index).stroke_width(self.pixels(2.5) as u32);
                let (drawn, left_out) = dash(index);
                let (drawn, left_out) = (drawn * self.scale as i32, left_out * self.scale as i32);
                let mut from = x;
                while from < x + width {
                    let to = if left_out == 0 { x + width } else { (from + drawn).min(x + width) };
                    self.area.draw(&PathElement::new(vec![(from, y), (to, y)], style)).map_err(drawing_error)?;
                    from = to + left_out;
                }
            }
            LegendKey::Block => {
                let half = self.pixels(7.0);
                let block = Rectangle::new([(x, y - half), (x + width, y + half)], colour(index).filled());
                self.area.draw(&block).map_err(drawing_error)?;
            }
        }
        Ok(())
    }
}

/// How the legend shows a series.
#[derive(Clone, Copy)]
pub(crate) enum LegendKey {
    Line,
    Block,
}

/// A chart that draws itself on any backend; [`save`] picks the backend.
pub(crate) trait Chart {
    fn title(&self) -> &str;
    fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> anyhow::Result<()>
    where
        DB::ErrorType: 'static;
}

/// Writes `chart` to `path`, whose extension (`svg` or `png`) says how; missing folders are made.
pub(crate) fn save(chart: &impl Chart, path: &Path) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("{}: cannot make this folder", folder.display()))?;
    }
    use_own_font()?;
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("svg") => draw_on(SVGBackend::new(path, CANVAS), 1.0, chart),
        Some("png") => {
            let size = ((CANVAS.0 as f64 * PNG_SCALE) as u32, (CANVAS.1 as f64 * PNG_SCALE) as u32);
            draw_on(BitMapBackend::new(path, size), PNG_SCALE, chart)
        }
        _ => bail!("a plot's name must end in .svg or .png"),
    }
    .with_context(|| format!("{}: cannot draw the plot", path.display()))
}

/// `chart` as SVG.
pub(crate) fn svg(chart: &impl Chart) -> anyhow::Result<String> {
    use_own_font()?;
    let mut text = String::new();
    draw_on(SVGBackend::with_string(&mut text, CANVAS), 1.0, chart)?;
    Ok(text)
}

fn use_own_font() -> anyhow::Result<()> {
    if register_font("sans-serif", FontStyle::Normal, dejavu::sans::regular()).is_err() {
        bail!("the built-in font cannot be read");
    }
    Ok(())
}

fn draw_on<DB: DrawingBackend>(backend: DB, scale: f64, chart: &impl Chart) -> anyhow::Result<()>
where
    DB::ErrorType: 'static,
{
    let canvas = Canvas { area: backend.into_drawing_area(), scale, title: chart.title() };
    chart.draw(&canvas)?;
    canvas.area.present().map_err(drawing_error)
}

/// Plotters' errors carry the backend's, which need not be `Send`; their text is what a person needs.
pub(crate) fn drawing_error<E: std::error::Error + Send + Sync>(error: DrawingAreaErrorKind<E>) -> anyhow::Error {
    anyhow::anyhow!("{error}")
}

/// A number for an axis: `0`, `0.25`, `350`, `12k`, `1.5M`.
pub(crate) fn axis_number(value: &f64) -> String {
    let magnitude = value.abs();
    let (scaled, unit) = match magnitude {
        m if m >= 1e12 => (value / 1e12, "T"),
        m if m >= 1e9 => (value / 1e9, "G"),
        m if m >= 1e6 => (value / 1e6, "M"),
        m if m >= 1e4 => (value / 1e3, "k"),
        _ => (*value, ""),
    };
    let decimals = if scaled.abs() >= 100.0 || scaled == 0.0 { 0 } else { 3 };
    let text = format!("{scaled:.decimals$}");
    let short = if decimals > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if scaled != 0.0 && short.trim_start_matches('-') == "0" {
        format!("{value:.0e}")
    } else {
        format!("{short}{unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (1.0, "1"),
            (350.0, "350"),
            (1500.0, "1500"),
            (12_000.0, "12k"),
            (1_500_000.0, "1.5M"),
            (2e9, "2G"),
            (0.00001, "1e-5"),
        ] {
            assert_eq!(axis_number(&value), text);
        }
    }

    #[test]
    fn neighbouring_series_differ_in_colour_and_dash() {
        for index in 0..16 {
            assert_ne!(colour(index), colour(index + 1));
            assert_ne!(dash(index), dash(index + 1));
        }
        assert_ne!(dash(0), dash(8), "a repeated colour has another dash");
    }
}
