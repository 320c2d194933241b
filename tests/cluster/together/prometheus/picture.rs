//! Draws what the panels show, where they are in the dashboard, as SVG. It takes in the panels with
//! the answers to them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::panel::{Panel, Series, Window};

/// The width of a column and the height of a row of the dashboard.
const COLUMN: f64 = 50.0;
const ROW: f64 = 26.0;
const GAP: f64 = 4.0;
/// The width of a letter in a legend, more or less.
const LETTER: f64 = 5.6;
const COLORS: [&str; 8] = ["#3274d9", "#e0752d", "#299c46", "#c4162a", "#8f3bb8", "#b8860b", "#0a9396", "#705da0"];

/// A panel, and what each of its targets found.
pub type Answered = (Panel, Vec<Vec<Series>>);

#[derive(Clone, Copy)]
struct Area {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

pub fn draw(panels: &[Answered], window: Window) -> String {
    let rows = panels.iter().map(|(panel, _)| panel.place[1] + panel.place[3]).fold(0.0, f64::max);
    let mut canvas = Canvas { svg: String::new() };
    for (panel, found) in panels {
        canvas.panel(panel, found, window);
    }
    let (width, height) = (24.0 * COLUMN + GAP, rows * ROW + GAP);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#f4f5f5\"/>\n{}</svg>\n",
        canvas.svg
    )
}

struct Canvas {
    svg: String,
}

impl Canvas {
    fn panel(&mut self, panel: &Panel, found: &[Vec<Series>], window: Window) {
        let [x, y, width, height] = panel.place;
        let area =
            Area { x: x * COLUMN + GAP, y: y * ROW + GAP, width: width * COLUMN - GAP, height: height * ROW - GAP };
        if panel.kind == "row" {
            return self.text((area.x, area.y + 16.0), "start", 14.0, "#222", &panel.title);
        }
        self.rectangle(area, "#fff");
        let size = if panel.kind == "stat" { 8.5 } else { 11.0 };
        self.text((area.x + 6.0, area.y + 15.0), "start", size, "#222", &panel.title);
        let inside = Area { x: area.x + 6.0, y: area.y + 22.0, width: area.width - 12.0, height: area.height - 26.0 };
        match panel.kind.as_str() {
            _ if found.iter().all(Vec::is_empty) => self.middle(inside, 13.0, "#999", "No data"),
            "stat" => self.stat(inside, panel, &found[0]),
            "table" => self.table(inside, panel, found),
            _ => self.graph(inside, panel, &flat(found), window),
        }
    }

    fn rectangle(&mut self, at: Area, color: &str) {
        let Area { x, y, width, height } = at;
        let _ =
            writeln!(self.svg, "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{color}\"/>");
    }

    fn text(&mut self, (x, y): (f64, f64), anchor: &str, size: f64, color: &str, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        let _ = writeln!(
            self.svg,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\" fill=\"{color}\">{text}</text>"
        );
    }

    fn middle(&mut self, at: Area, size: f64, color: &str, text: &str) {
        self.text((at.x + at.width / 2.0, at.y + at.height / 2.0 + size / 3.0), "middle", size, color, text);
    }

    fn line(&mut self, points: &[(f64, f64)], color: &str, width: f64) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            self.svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"{width}\"/>",
            points.join(" ")
        );
    }

    /// Numbers; a series with a name has it below its number.
    fn stat(&mut self, at: Area, panel: &Panel, found: &[Series]) {
        #[expect(clippy::cast_precision_loss, reason = "a few series")]
        let width = at.width / found.len() as f64;
        for (series, index) in found.iter().zip(0_u16..) {
            let here = Area { x: at.x + f64::from(index) * width, width, ..at };
            let last = series.points.last().map_or(f64::NAN, |(_, value)| *value);
            self.middle(Area { height: at.height - 12.0, ..here }, 26.0, "#299c46", &number(last, &panel.unit));
            self.middle(Area { y: at.y + at.height - 14.0, height: 10.0, ..here }, 10.0, "#555", &series.name);
        }
    }

    /// A line for each combination of labels, a column for each label and each target.
    fn table(&mut self, at: Area, panel: &Panel, found: &[Vec<Series>]) {
        let mut lines: BTreeMap<Vec<&str>, Vec<String>> = BTreeMap::new();
        for (target, series) in found.iter().enumerate() {
            for series in series {
                let labels = series.labels.values().map(String::as_str).collect();
                let numbers = lines.entry(labels).or_insert_with(|| vec![String::new(); found.len()]);
                numbers[target] =
                    series.points.last().map(|(_, value)| number(*value, &panel.unit)).unwrap_or_default();
            }
        }
        let labels = flat(found)[0].labels.keys().map(String::as_str);
        let head: Vec<&str> = labels.chain(panel.targets.iter().map(|target| target.column.as_str())).collect();
        let body = lines.iter().map(|(labels, numbers)| {
            labels.iter().copied().chain(numbers.iter().map(String::as_str)).collect::<Vec<&str>>()
        });
        let rows: Vec<Vec<&str>> = std::iter::once(head).chain(body).collect();
        let left = edges(&rows, at);
        for (line, row) in rows.iter().zip(0_u16..) {
            let y = at.y + 12.0 + 15.0 * f64::from(row);
            if y + 12.0 > at.y + at.height {
                return self.text((at.x, y), "start", 10.0, "#777", "…");
            }
            for (word, x) in line.iter().zip(&left) {
                let color = if row == 0 { "#3274d9" } else { "#222" };
                self.text((*x, y), "start", 10.0, color, word);
            }
        }
    }

    fn graph(&mut self, at: Area, panel: &Panel, found: &[&Series], window: Window) {
        let values = found.iter().flat_map(|series| &series.points).map(|(_, value)| *value);
        let top = top(values.filter(|value| value.is_finite()).fold(0.0, f64::max), &panel.unit);
        let plot = Area { x: at.x + 50.0, y: at.y + 8.0, width: at.width - 54.0, height: at.height - 62.0 };
        let x = |time: f64| plot.x + (time - window.from) / (window.to - window.from) * plot.width;
        let y = |value: f64| plot.y + (1.0 - value / top) * plot.height;
        for part in [0.0, 0.5, 1.0] {
            let (value, time) = (top * part, window.from + (window.to - window.from) * part);
            self.line(&[(plot.x, y(value)), (plot.x + plot.width, y(value))], "#ddd", 1.0);
            self.text((plot.x - 4.0, y(value) + 3.0), "end", 9.0, "#777", &number(value, &panel.unit));
            let anchor = if part == 0.0 {
                "start"
            } else if part < 1.0 {
                "middle"
            } else {
                "end"
            };
            self.text((x(time), plot.y + plot.height + 13.0), anchor, 9.0, "#777", &clock(time));
        }
        let mut legend = (at.x, at.y + at.height - 26.0);
        for (series, color) in found.iter().zip(COLORS.iter().cycle()) {
            let finite: Vec<(f64, f64)> =
                series.points.iter().copied().filter(|(_, value)| value.is_finite()).collect();
            for piece in finite.chunk_by(|a, b| b.0 - a.0 < 2.0 * window.step()) {
                let line: Vec<(f64, f64)> = piece.iter().map(|(time, value)| (x(*time), y(*value))).collect();
                self.line(&without_straight(&line), color, 1.5);
            }
            legend = self.legend(at, legend, &series.name, color);
        }
    }

    /// One name at this place, or at the begin of the next line. Returns the place of the next one.
    fn legend(&mut self, at: Area, (mut x, mut y): (f64, f64), name: &str, color: &str) -> (f64, f64) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive number")]
        let fits = ((at.width - 18.0) / LETTER) as usize;
        let mut name = name.to_owned();
        if name.chars().count() > fits {
            name = name.chars().take(fits - 1).chain(['…']).collect();
        }
        #[expect(clippy::cast_precision_loss, reason = "a short name")]
        let width = name.chars().count() as f64 * LETTER + 18.0;
        if x > at.x && x + width > at.x + at.width {
            (x, y) = (at.x, y + 12.0);
        }
        if y < at.y + at.height {
            self.rectangle(Area { x, y: y - 3.0, width: 10.0, height: 2.0 }, color);
            self.text((x + 13.0, y), "start", 9.0, "#444", &name);
        }
        (x + width, y)
    }
}

fn flat(found: &[Vec<Series>]) -> Vec<&Series> {
    found.iter().flatten().collect()
}

/// Leaves out each point between two others of the same height.
fn without_straight(line: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let is_bend = |at: &usize| {
        let Some([before, here, after]) = line.get(at.wrapping_sub(1)..at + 2) else { return true };
        (before.1 - here.1).abs() > 0.05 || (here.1 - after.1).abs() > 0.05
    };
    (0..line.len()).filter(is_bend).map(|at| line[at]).collect()
}

fn clock(time: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "whole seconds")]
    let time = jiff::Timestamp::from_second(time as i64).unwrap();
    time.strftime("%H:%M:%S").to_string()
}

/// The upper end of an axis: a round number that is not below the largest value.
fn top(largest: f64, unit: &str) -> f64 {
    let base: f64 = if unit == "bytes" { 1024.0 } else { 1000.0 };
    if largest <= 0.0 {
        return 1.0;
    }
    let scale = base.powf(largest.log(base).floor());
    let round = [1.0, 2.0, 4.0, 5.0, 10.0, 20.0, 40.0, 50.0, 100.0, 200.0, 400.0, 500.0];
    scale * round.into_iter().find(|round| scale * round >= largest).unwrap_or(base)
}

/// The largest unit that is not above the value, and how much it is.
fn unit_of(value: f64, base: f64, units: [&'static str; 5]) -> (f64, &'static str) {
    let scales = units.into_iter().zip(0..).map(|(unit, power)| (base.powi(power), unit));
    scales.take_while(|(scale, _)| *scale <= value).last().unwrap_or((1.0, units[0]))
}

fn number(value: f64, unit: &str) -> String {
    let (scale, suffix) = match unit {
        "bytes" => unit_of(value, 1024.0, [" B", " KiB", " MiB", " GiB", " TiB"]),
        "Bps" => unit_of(value, 1000.0, [" B/s", " kB/s", " MB/s", " GB/s", " TB/s"]),
        "percentunit" => (0.01, " %"),
        "s" if value < 1.0 => (0.001, " ms"),
        "s" => (1.0, " s"),
        "ops" | "reqps" => (1.0, "/s"),
        _ => (1.0, ""),
    };
    let shown = format!("{:.2}", value / scale);
    format!("{}{suffix}", shown.trim_end_matches('0').trim_end_matches('.'))
}

/// Where the columns of a table begin, each as wide as its longest text needs.
fn edges(rows: &[Vec<&str>], at: Area) -> Vec<f64> {
    let longest = |column: usize| rows.iter().map(|row| row[column].chars().count() + 2).max().unwrap_or_default();
    #[expect(clippy::cast_precision_loss, reason = "a few texts")]
    let widths: Vec<f64> = (0..rows[0].len()).map(|column| longest(column) as f64).collect();
    let scale = at.width / widths.iter().sum::<f64>();
    let mut x = at.x;
    let begins = widths.iter().map(|width| {
        x += width * scale;
        x - width * scale
    });
    begins.collect()
}
