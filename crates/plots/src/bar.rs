//! Bar charts: one group per setting, one bar per system, with the spread of the repetitions.

use std::path::Path;

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::style::{self, Canvas, Chart, LegendKey, drawing_error};

/// The share of a group's width that stays free between groups.
const GAP: f64 = 0.25;

/// The bars of one system, one per group.
#[derive(Clone, Debug, Default)]
pub struct BarSeries {
    /// What the legend says.
    pub name: String,
    /// One height per group, in the groups' order; not finite = no bar.
    pub values: Vec<f64>,
    /// `(lowest, highest)` per group, drawn as a whisker; empty = no whiskers.
    pub spread: Vec<(f64, f64)>,
}

/// A chart of grouped bars from 0 up, each labelled with its value.
#[derive(Clone, Debug, Default)]
pub struct BarChart {
    /// What is shown, and of which run.
    pub title: String,
    /// The quantity and its unit: `mean latency (µs)`.
    pub y_label: String,
    /// The names of the groups, left to right.
    pub groups: Vec<String>,
    /// The systems, in the legend's order.
    pub series: Vec<BarSeries>,
}

impl BarChart {
    /// Draws the chart into `path`, an `.svg` or `.png`; missing folders are made.
    ///
    /// # Errors
    /// Another extension, and a file that cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> anyhow::Result<()> {
        style::save(self, path.as_ref())
    }

    /// The top of the y axis: the highest bar or whisker and room for its label.
    fn top(&self) -> f64 {
        let heights = self
            .series
            .iter()
            .flat_map(|series| series.values.iter().copied().chain(series.spread.iter().map(|&(_, highest)| highest)));
        let highest = heights.filter(|height| height.is_finite()).fold(0.0, f64::max);
        if highest > 0.0 { highest * 1.12 } else { 1.0 }
    }

    fn draw_bar<DB: DrawingBackend>(
        &self,
        canvas: &Canvas<DB>,
        plot: &DrawingArea<DB, Cartesian2d<RangedCoordf64, RangedCoordf64>>,
        group: usize,
        index: usize,
    ) -> anyhow::Result<()>
    where
        DB::ErrorType: 'static,
    {
        let series = &self.series[index];
        let Some(&height) = series.values.get(group).filter(|height| height.is_finite()) else { return Ok(()) };
        let width = (1.0 - GAP) / self.series.len() as f64;
        let left = group as f64 + GAP / 2.0 + index as f64 * width;
        let (right, middle) = (left + width * 0.92, left + width * 0.46);
        plot.draw(&Rectangle::new([(left, 0.0), (right, height)], style::colour(index).filled()))
            .map_err(drawing_error)?;
        let mut label_at = height;
        if let Some(&(lowest, highest)) = series.spread.get(group) {
            let (line, cap) = (RGBColor(60, 60, 60).stroke_width(canvas.pixels(1.5) as u32), width * 0.12);
            let strokes = [
                vec![(middle, lowest), (middle, highest)],
                vec![(middle - cap, lowest), (middle + cap, lowest)],
                vec![(middle - cap, highest), (middle + cap, highest)],
            ];
            for stroke in strokes {
                plot.draw(&PathElement::new(stroke, line)).map_err(drawing_error)?;
            }
            label_at = label_at.max(highest);
        }
        let text = canvas.font().color(&BLACK).pos(Pos::new(HPos::Center, VPos::Bottom));
        let label =
            EmptyElement::at((middle, label_at)) + Text::new(bar_number(height), (0, -canvas.pixels(4.0)), text);
        plot.draw(&label).map_err(drawing_error)
    }
}

impl Chart for BarChart {
    fn title(&self) -> &str {
        &self.title
    }

    fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> anyhow::Result<()>
    where
        DB::ErrorType: 'static,
    {
        let names: Vec<&str> = self.series.iter().map(|series| series.name.as_str()).collect();
        let area = canvas.title_and_legend(&names, LegendKey::Block)?;
        let n_groups = self.groups.len().max(1);
        let mut chart = ChartBuilder::on(&area)
            .margin(canvas.pixels(8.0))
            .margin_right(canvas.pixels(28.0))
            .x_label_area_size(canvas.pixels(36.0))
            .y_label_area_size(canvas.pixels(72.0))
            .build_cartesian_2d(0.0..n_groups as f64, 0.0..self.top())
            .map_err(drawing_error)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(0)
            .y_desc(&self.y_label)
            .label_style(canvas.font())
            .axis_desc_style(canvas.font())
            .y_label_formatter(&style::axis_number)
            .bold_line_style(BLACK.mix(0.15))
            .max_light_lines(0)
            .draw()
            .map_err(drawing_error)?;
        let below = canvas.font().color(&BLACK).pos(Pos::new(HPos::Center, VPos::Top));
        for (group, name) in self.groups.iter().enumerate() {
            let at = (group as f64 + 0.5, 0.0);
            let label = EmptyElement::at(at) + Text::new(name.clone(), (0, canvas.pixels(10.0)), below.clone());
            chart.plotting_area().draw(&label).map_err(drawing_error)?;
            for index in 0..self.series.len() {
                self.draw_bar(canvas, chart.plotting_area(), group, index)?;
            }
        }
        Ok(())
    }
}

/// A bar's label: three significant digits, thousands in full.
fn bar_number(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 100.0 || v == 0.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_bars_and_values_are_drawn() {
        let folder = tempfile::tempdir().unwrap();
        let chart = BarChart {
            title: "Mean latency".into(),
            y_label: "mean latency (µs)".into(),
            groups: vec!["memory 10%".into(), "memory 50%".into()],
            series: vec![
                BarSeries {
                    name: "stock".into(),
                    values: vec![512.0, 220.5],
                    spread: vec![(500.0, 530.0), (210.0, 230.0)],
                },
                BarSeries { name: "tenure".into(), values: vec![402.0, f64::NAN], spread: vec![] },
            ],
        };
        chart.save(folder.path().join("bars.png")).unwrap();
        let svg = folder.path().join("bars.svg");
        chart.save(&svg).unwrap();
        let text = std::fs::read_to_string(svg).unwrap();
        for wanted in ["memory 10%", "memory 50%", "stock", "tenure", "512", "402", "mean latency (µs)"] {
            assert!(text.contains(wanted), "{wanted} is missing");
        }
        BarChart::default().save(folder.path().join("empty.svg")).unwrap();
    }
}
