//! The plots beside the figures of the benchmarks, drawn of the pages that `make bench` writes: a plot says what its page
//! says. With `UPDATE_DOCS=1` they are written, else they have to be what would be written.

use std::fmt::Write as _;

use crate::{read, root};

/// A plot of some rows of a page.
struct Plot {
    page: &'static str,
    file: &'static str,
    title: &'static str,
    rows: &'static [Row],
}

/// What the page calls it and what stands beside it, and a line for who reads the plot alone.
struct Row {
    what: &'static str,
    beside: &'static str,
    note: &'static str,
}

const SLEEPS: &str = "sgdisk sleeps for a second; the next row has what the bytes cost";
const BY_HAND: &str = "a `local` PersistentVolume, prepared by hand";

const PLOTS: [Plot; 2] = [
    Plot {
        page: "docs/benchmarks.md",
        file: "docs/images/benchmarks.svg",
        title: "Volumes on the disks of a node, and what stands beside them",
        rows: &[
            Row { what: "CreateVolume, 1 caller, mount, p50", beside: "sgdisk -n + partx", note: SLEEPS },
            Row { what: "CreateVolume, 1 caller, mount, p50", beside: "the same bytes written and synced", note: "" },
            Row {
                what: "Discovery of 256 NVMe disks: scan of sysfs",
                beside: "lsblk -J -O --sysroot",
                note: "a process beside a call in the agent",
            },
            Row {
                what: "fio random read, 4 KiB, depth 16",
                beside: "the same range of the loop device",
                note: "a volume costs its I/O nothing",
            },
            Row { what: "fio random write, 4 KiB, depth 16", beside: "the same range of the loop device", note: "" },
        ],
    },
    Plot {
        page: "docs/benchmarks-kubernetes.md",
        file: "docs/images/benchmarks-kubernetes.svg",
        title: "From a claim to a running pod, beside a volume that somebody prepared before",
        rows: &[
            Row {
                what: "Claim and pod created, one at a time: until the claim is Bound, p50",
                beside: BY_HAND,
                note: "a partition is made meanwhile",
            },
            Row {
                what: "Claim and pod created, one at a time: until the pod is Ready, p50",
                beside: BY_HAND,
                note: "",
            },
            Row {
                what: "Claim and pod created, 100 at once: until the claim is Bound, p50",
                beside: BY_HAND,
                note: "a hundred partitions are made meanwhile",
            },
            Row { what: "Claim and pod created, 100 at once: until the pod is Ready, p50", beside: BY_HAND, note: "" },
        ],
    },
];

/// A value as the page has it: a number and its unit.
struct Figure {
    text: String,
    number: f64,
}

impl Figure {
    fn of(cell: &str) -> Self {
        let number = cell.split(' ').next().and_then(|number| number.parse().ok());
        Self { text: cell.to_owned(), number: number.unwrap_or_else(|| panic!("{cell} is no figure")) }
    }

    fn is_better_small(&self) -> bool {
        !["IOPS", "MiB/s", "1/s"].iter().any(|unit| self.text.ends_with(unit))
    }
}

/// Ours, and that of what stands beside it.
fn figures(page: &str, text: &str, Row { what, beside, .. }: &Row) -> [Figure; 2] {
    let cells = |line: &str| -> Vec<String> { line.split('|').map(|cell| cell.trim().to_owned()).collect() };
    let row = text.lines().map(cells).find(|cells| cells.len() > 5 && cells[1] == *what && cells[3] == *beside);
    let row = row.unwrap_or_else(|| panic!("{page} has no row {what} beside {beside}, which a plot shows"));
    [Figure::of(&row[2]), Figure::of(&row[4])]
}

/// When and on what its page was measured.
fn machine(text: &str) -> String {
    let value = |name: &str| {
        let row = text.lines().find_map(|line| line.strip_prefix(&format!("| {name} | ")));
        row.unwrap_or_else(|| panic!("the page does not say its {name}")).trim_end_matches(" |")
    };
    format!(
        "{}: {}, {} cores, Linux {}",
        value("Date"),
        value("Processor"),
        value("Cores"),
        value("Kernel").trim_start_matches("Linux ")
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Widths and heights, in units of the view box. Bars stand right of their names.
const WIDTH: f64 = 820.0;
const LEFT: f64 = 24.0;
const BARS: f64 = 318.0;
const LONGEST: f64 = 380.0;
const HEAD: f64 = 66.0;
const GROUP: f64 = 92.0;

const STYLE: &str = r##"  <style>
    .page { fill: #ffffff; stroke: #d0d7de }
    .ours { fill: #0969da }
    .beside { fill: #8c959f }
    text { font-family: system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
    .title { font-size: 17px; font-weight: 600 }
    .what { font-size: 13.5px; font-weight: 600 }
    .word { font-size: 12.5px }
    .note { font-size: 12px; fill: #57606a }
    @media (prefers-color-scheme: dark) {
      .page { fill: #0d1117; stroke: #30363d }
      .ours { fill: #58a6ff }
      .beside { fill: #6e7681 }
      text { fill: #e6edf3 }
      .note { fill: #9198a1 }
    }
  </style>
"##;

/// Each pair of bars has a scale of its own, from nothing to the longer one.
fn drawn(plot: &Plot, text: &str) -> String {
    let height = HEAD + GROUP * plot.rows.len() as f64 + 14.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-labelledby=\"title desc\">\n  \
         <title id=\"title\">{}</title>\n  <desc id=\"desc\">",
        escaped(plot.title)
    );
    let rows = plot.rows.iter().map(|row| (row, figures(plot.page, text, row)));
    let rows: Vec<(&Row, [Figure; 2])> = rows.collect();
    for (row, [ours, beside]) in &rows {
        write!(svg, "{}: {}; {}: {}. ", escaped(row.what), ours.text, escaped(row.beside), beside.text).unwrap();
    }
    write!(svg, "</desc>\n{STYLE}").unwrap();
    writeln!(
        svg,
        "  <rect class=\"page\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"6\"/>",
        WIDTH - 1.0,
        height - 1.0
    )
    .unwrap();
    writeln!(svg, "  <text class=\"title\" x=\"{LEFT}\" y=\"34\">{}</text>", escaped(plot.title)).unwrap();
    rows.iter().enumerate().for_each(|(at, (row, pair))| svg += &group(HEAD + GROUP * at as f64, row, pair));
    let below = height - 16.0;
    writeln!(svg, "  <text class=\"note\" x=\"{LEFT}\" y=\"{below}\">{}</text>", escaped(&machine(text))).unwrap();
    svg + "</svg>\n"
}

/// One row: what it is, and a bar for each figure.
fn group(top: f64, row: &Row, [ours, beside]: &[Figure; 2]) -> String {
    let longest = ours.number.max(beside.number);
    let better = if ours.is_better_small() { "less is better" } else { "more is better" };
    let note = if row.note.is_empty() { better.to_owned() } else { format!("{better}; {}", row.note) };
    let text = |class: &str, x: f64, y: f64, text: &str| {
        format!("  <text class=\"{class}\" x=\"{x:.1}\" y=\"{y}\">{}</text>\n", escaped(text))
    };
    let mut svg = text("what", LEFT, top, row.what) + &text("note", LEFT, top + 17.0, &note);
    for (line, (class, name, figure)) in
        [("ours", "localpool", ours), ("beside", row.beside, beside)].iter().enumerate()
    {
        let y = top + 36.0 + 20.0 * line as f64;
        let width = (figure.number / longest * LONGEST).max(2.0);
        svg += &text("word", LEFT, y, &name.replace('`', ""));
        writeln!(svg, "  <rect class=\"{class}\" x=\"{BARS}\" y=\"{}\" width=\"{width:.1}\" height=\"11\"/>", y - 10.0)
            .unwrap();
        svg += &text("word", BARS + width + 8.0, y, &figure.text);
    }
    svg
}

#[test]
fn plots_are_drawn_of_the_figures_of_their_pages() {
    for plot in &PLOTS {
        let page = read(plot.page);
        let image = plot.file.strip_prefix("docs/").unwrap();
        assert!(page.contains(&format!("({image})")), "{} shows {image}", plot.page);
        let wanted = drawn(plot, &page);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(root().join(plot.file), &wanted).unwrap();
        } else {
            let is_fresh = std::fs::read_to_string(root().join(plot.file)).is_ok_and(|drawn| drawn == wanted);
            assert!(is_fresh, "{} is not fresh: UPDATE_DOCS=1 cargo test -F testing --test documents", plot.file);
        }
    }
}
