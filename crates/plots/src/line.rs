//! Line charts: miss ratio curves, latency distributions, values over time.

use std::ops::Range;
use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use crate::style::{self, Canvas, Chart, LegendKey, drawing_error};

/// Up to so many points a series carries markers; more would merge into a band.
const POINTS_WITH_MARKERS_MAX: usize = 40;

/// One line and its name in the legend.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// What the legend says.
    pub name: String,
    /// `(x, y)` in drawing order. Points that are not finite, or not above 0 on a logarithmic axis, leave a gap in
    /// the line.
    pub points: Vec<(f64, f64)>,
}

/// What is drawn of a series: the pieces between its gaps.
type Line<'a> = Vec<&'a [(f64, f64)]>;

/// A chart of lines over a common x axis. The y axis starts at 0 (or below, where values are negative).
#[derive(Clone, Debug, Default)]
pub struct LineChart {
    /// What is shown, and of which run.
    pub title: String,
    /// The x axis' quantity and unit: `cache size (MiB)`.
    pub x_label: String,
    /// The y axis' quantity and unit: `miss ratio`.
    pub y_label: String,
    /// Whether the x axis is logarithmic.
    pub x_log: bool,
    /// The lines, in the legend's order.
    pub series: Vec<Series>,
}

impl LineChart {
    /// Draws the chart into `path`, an `.svg` or `.png`; missing folders are made.
    ///
    /// # Errors
    /// Another extension, and a file that cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> anyhow::Result<()> {
        style::save(self, path.as_ref())
    }

    /// The chart as SVG, to stand in a page.
    ///
    /// # Errors
    /// When it can't be drawn.
    pub fn svg(&self) -> anyhow::Result<String> {
        style::svg(self)
    }

    /// The pieces of each line between its gaps.
    fn drawable(&self) -> Vec<Line<'_>> {
        let is_gap = |&(x, y): &(f64, f64)| !x.is_finite() || !y.is_finite() || (self.x_log && x <= 0.0);
        let lines = self.series.iter().map(|series| series.points.split(is_gap));
        lines.map(|pieces| pieces.filter(|piece| !piece.is_empty()).collect()).collect()
    }

    fn draw_lines<DB: DrawingBackend, X>(
        &self,
        canvas: &Canvas<DB>,
        area: &DrawingArea<DB, Shift>,
        x_axis: X,
        y_range: Range<f64>,
        lines: &[Line],
    ) -> anyhow::Result<()>
    where
        DB::ErrorType: 'static,
        X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(area)
            .margin(canvas.pixels(8.0))
            .margin_right(canvas.pixels(28.0))
            .x_label_area_size(canvas.pixels(52.0))
            .y_label_area_size(canvas.pixels(72.0))
            .build_cartesian_2d(x_axis, y_range)
            .map_err(drawing_error)?;
        chart
            .configure_mesh()
            .x_desc(&self.x_label)
            .y_desc(&self.y_label)
            .label_style(canvas.font())
            .axis_desc_style(canvas.font())
            .x_label_formatter(&style::axis_number)
            .y_label_formatter(&style::axis_number)
            .bold_line_style(BLACK.mix(0.15))
            .light_line_style(BLACK.mix(0.0))
            .max_light_lines(0)
            .draw()
            .map_err(drawing_error)?;
        for (index, line) in lines.iter().enumerate() {
            let stroke = style::colour(index).stroke_width(canvas.pixels(2.0) as u32);
            let (drawn, left_out) = style::dash(index);
            let (drawn, left_out) = (canvas.pixels(drawn.into()), canvas.pixels(left_out.into()));
            for piece in line {
                let points = piece.iter().copied();
                if left_out == 0 {
                    chart.draw_series(LineSeries::new(points, stroke)).map_err(drawing_error)?;
                } else {
                    let dashed = DashedLineSeries::new(points, drawn, left_out, stroke);
                    chart.draw_series(dashed).map_err(drawing_error)?;
                }
            }
            let points = line.concat();
            if points.len() <= POINTS_WITH_MARKERS_MAX {
                let (size, fill) = (canvas.pixels(4.0), style::colour(index).filled());
                let marked = points.iter().map(|&point| marker(index, point, size, fill));
                chart.draw_series(marked).map_err(drawing_error)?;
            }
        }
        Ok(())
    }
}

impl Chart for LineChart {
    fn title(&self) -> &str {
        &self.title
    }

    fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> anyhow::Result<()>
    where
        DB::ErrorType: 'static,
    {
        let names: Vec<&str> = self.series.iter().map(|series| series.name.as_str()).collect();
        let area = canvas.title_and_legend(&names, LegendKey::Line)?;
        let lines = self.drawable();
        let (mut x, y) = (bounds(&lines, |point| point.0), bounds(&lines, |point| point.1));
        let y = y.start.min(0.0)..above(y.start.min(0.0), y.end);
        if x.end <= x.start {
            x = if self.x_log { x.start / 2.0..x.start * 2.0 } else { x.start - 0.5..x.start + 0.5 };
        }
        if self.x_log {
            self.draw_lines(canvas, &area, LogAxis(x), y, &lines)
        } else {
            self.draw_lines(canvas, &area, RangedCoordf64::from(x), y, &lines)
        }
    }
}

/// A marker whose shape depends on the series, so that it can be told without colour.
fn marker<DB: DrawingBackend>(
    index: usize,
    at: (f64, f64),
    size: i32,
    fill: ShapeStyle,
) -> DynElement<'static, DB, (f64, f64)> {
    match index % 3 {
        0 => Circle::new(at, size, fill).into_dyn(),
        1 => TriangleMarker::new(at, size + size / 4, fill).into_dyn(),
        _ => Cross::new(at, size, fill.stroke_width(size as u32 / 2)).into_dyn(),
    }
}

/// The smallest and largest value that `value` finds; `1..1` for a chart without points.
fn bounds(lines: &[Line], value: impl Fn(&(f64, f64)) -> f64) -> Range<f64> {
    let values = || lines.iter().flatten().copied().flatten().map(&value);
    let lowest = values().fold(f64::INFINITY, f64::min);
    if lowest.is_finite() { lowest..values().fold(f64::NEG_INFINITY, f64::max) } else { 1.0..1.0 }
}

/// The upper end of an axis: a little air above the largest value, except for a ratio, which ends at 1.
fn above(lowest: f64, largest: f64) -> f64 {
    if largest <= 1.0 && largest > 0.95 {
        1.0
    } else if largest > lowest {
        largest + (largest - lowest) * 0.05
    } else {
        lowest + 1.0
    }
}

/// A logarithmic axis whose labels are 1, 2 and 5 times powers of ten: plotters' own shows too few on short ranges.
struct LogAxis(Range<f64>);

impl Ranged for LogAxis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let share = (value / self.0.start).ln() / (self.0.end / self.0.start).ln();
        from + (f64::from(to - from) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        let ticks = |steps: &[f64]| -> Vec<f64> {
            let decades = self.0.start.log10().floor() as i32..=self.0.end.log10().ceil() as i32;
            let all = decades.flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)));
            all.filter(|tick| (self.0.start * 0.999_999..=self.0.end * 1.000_001).contains(tick)).collect()
        };
        let fits = |ticks: &Vec<f64>| ticks.len() <= hint.max_num_points();
        let candidates = [ticks(&[1.0, 2.0, 5.0]), ticks(&[1.0, 3.0]), ticks(&[1.0])];
        candidates.into_iter().find(fits).unwrap_or_default()
    }

    fn range(&self) -> Range<f64> {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(x_log: bool) -> LineChart {
        let curve = |decay: f64| (1..=30).map(|i| (f64::from(i) * 100.0, (-f64::from(i) / decay).exp())).collect();
        let names = ["exact", "eaet, rate 0.01", "shards"];
        let series = names.iter().zip([5.0, 7.0, 12.0]);
        LineChart {
            title: "Miss ratio by cache size: a trace".into(),
            x_label: "cache size (MiB)".into(),
            y_label: "miss ratio".into(),
            x_log,
            series: series.map(|(name, decay)| Series { name: name.to_string(), points: curve(decay) }).collect(),
        }
    }

    #[test]
    fn both_formats_are_written_and_an_unknown_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let png = folder.path().join("deeper/chart.png");
        example(true).save(&png).unwrap();
        assert!(std::fs::read(&png).unwrap().starts_with(b"\x89PNG"));
        let svg = folder.path().join("chart.svg");
        example(false).save(&svg).unwrap();
        let text = std::fs::read_to_string(svg).unwrap();
        for wanted in ["cache size (MiB)", "miss ratio", "eaet, rate 0.01", "3000"] {
            assert!(text.contains(wanted), "{wanted} is missing");
        }
        assert!(format!("{:?}", example(true).save(folder.path().join("chart.gif"))).contains(".svg or .png"));
    }

    #[test]
    fn charts_without_points_or_with_odd_ones_are_drawn() {
        let folder = tempfile::tempdir().unwrap();
        for (number, points) in [vec![], vec![(0.0, 0.0)], vec![(-1.0, f64::NAN), (5.0, 5.0)]].into_iter().enumerate() {
            for x_log in [false, true] {
                let series = vec![Series { name: "odd".into(), points: points.clone() }];
                let chart = LineChart { x_log, series, ..LineChart::default() };
                chart.save(folder.path().join(format!("{number}-{x_log}.svg"))).unwrap();
            }
        }
    }

    #[test]
    fn a_line_has_a_gap_where_a_value_is_missing() {
        let points = vec![(0.0, 1.0), (1.0, 1.0), (2.0, f64::NAN), (3.0, 1.0), (4.0, 1.0), (5.0, 2.0)];
        let pieces = |x_log| {
            let series = vec![Series { name: "s".into(), points: points.clone() }];
            let chart = LineChart { x_log, series, ..LineChart::default() };
            chart.drawable()[0].iter().map(|piece| piece.len()).collect::<Vec<_>>()
        };
        assert_eq!((pieces(false), pieces(true)), (vec![2, 3], vec![1, 3]));
    }

    #[test]
    fn a_log_axis_has_labels_on_short_and_long_ranges() {
        for (range, labels) in [(1.0..9.0, vec![1.0, 2.0, 5.0]), (0.5..20.0, vec![0.5, 1.0, 2.0, 5.0, 10.0, 20.0])] {
            let found = LogAxis(range).key_points(10);
            assert_eq!(found.len(), labels.len(), "{found:?}");
            assert!(found.iter().zip(&labels).all(|(a, b)| (a / b - 1.0).abs() < 1e-9), "{found:?}");
        }
        assert!(LogAxis(1.0..1e9).key_points(10).len() == 10);
    }
}
