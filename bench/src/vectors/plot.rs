//! The recall/speed plot as SVG: recall to the right, queries per second upwards, a line per server, EF beside its point.
//! Up and to the right is better.
//!
//! Both axes are logarithmic: speed as it is, recall by what is missing to 1, for there the lines part. What misses less
//! than `LEAST_MISSED` is drawn there, under the label 1.

use super::report::Table;
use std::fmt::Write;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 520.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 70.0;
const BOTTOM: f64 = 60.0;
/// Told apart also by people who do not see red from green (Okabe and Ito).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

/// One point of a line.
struct Point {
    label: String,
    recall: f64,
    queries_per_s: f64,
}

/// Recall and speed of every row of `search`, whose first label names the line and whose second the point.
pub(super) fn svg(title: &str, caption: &str, search: &Table) -> String {
    let lines: Vec<(String, Vec<Point>)> = search
        .series()
        .into_iter()
        .map(|(name, rows)| {
            let point = |(label, figures): &(String, super::figures::Figures)| {
                let queries_per_s = figures.get("queries_per_s").filter(|q| *q > 0.0)?;
                Some(Point { label: label.clone(), recall: figures.get("recall")?, queries_per_s })
            };
            (name, rows.iter().filter_map(point).collect())
        })
        .collect();
    let axes = Axes::around(lines.iter().flat_map(|(_, points)| points));
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text(&mut out, LEFT, 24.0, "start\" font-size=\"15", title);
    text(&mut out, LEFT, 44.0, "start\" fill=\"#555555", caption);
    axes.draw(&mut out);
    for (index, (name, points)) in lines.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        draw_line(&mut out, &axes, colour, points);
        let y = HEIGHT - BOTTOM - 14.0 - 18.0 * (lines.len() - 1 - index) as f64;
        let _ = writeln!(
            out,
            "<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>",
            LEFT + 12.0,
            y - 10.0
        );
        text(&mut out, LEFT + 30.0, y, "start", name);
    }
    if !lines.is_empty() {
        let y = HEIGHT - BOTTOM - 14.0 - 18.0 * lines.len() as f64;
        text(&mut out, LEFT + 12.0, y, "start\" fill=\"#555555", "EF beside each point");
    }
    out + "</svg>\n"
}

fn draw_line(out: &mut String, axes: &Axes, colour: &str, points: &[Point]) {
    let places: Vec<String> =
        points.iter().map(|p| format!("{:.1},{:.1}", axes.x(p.recall), axes.y(p.queries_per_s))).collect();
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>",
        places.join(" ")
    );
    for point in points {
        let (x, y) = (axes.x(point.recall), axes.y(point.queries_per_s));
        let _ = writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>");
        text(out, x, y - 8.0, "middle\" font-size=\"10", &point.label);
    }
}

/// `anchor` may carry further attributes after its closing quote.
fn text(out: &mut String, x: f64, y: f64, anchor: &str, content: &str) {
    let _ =
        writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>", escape(content));
}

fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            // XML 1.0 has no way to write control characters.
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

struct Axes {
    /// The largest share missed, at the left end.
    most_missed: f64,
    /// Powers of ten.
    decades: (i32, i32),
}

/// Drawn as a recall of 1: one in 10,000 queries' hits is beyond what a thousand queries can tell.
const LEAST_MISSED: f64 = 2e-4;
/// Recalls that have a label, as far as they are in the picture.
const RECALLS: [f64; 12] = [0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 1.0];

fn missed(recall: f64) -> f64 {
    (1.0 - recall).clamp(LEAST_MISSED, 1.0)
}

impl Axes {
    fn around<'a>(points: impl Iterator<Item = &'a Point>) -> Self {
        let (mut least, mut low, mut high) = (0.98f64, f64::INFINITY, 0.0f64);
        for point in points {
            least = least.min(point.recall);
            low = low.min(point.queries_per_s);
            high = high.max(point.queries_per_s);
        }
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        // A little room at the left.
        let most_missed = (missed(least) * 1.2).min(1.0);
        let decades = (low.log10().floor() as i32, high.log10().ceil() as i32);
        Self { most_missed, decades: (decades.0, decades.1.max(decades.0 + 1)) }
    }

    fn x(&self, recall: f64) -> f64 {
        let (low, high) = (self.most_missed.log10(), LEAST_MISSED.log10());
        let room = WIDTH - LEFT - RIGHT - 16.0;
        LEFT + (missed(recall).log10() - low) / (high - low) * room
    }

    fn y(&self, queries_per_s: f64) -> f64 {
        let (low, high) = (f64::from(self.decades.0), f64::from(self.decades.1));
        HEIGHT - BOTTOM - (queries_per_s.log10() - low) / (high - low) * (HEIGHT - TOP - BOTTOM)
    }

    fn draw(&self, out: &mut String) {
        for recall in RECALLS.into_iter().filter(|recall| missed(*recall) <= self.most_missed) {
            let x = self.x(recall);
            rule(out, x, TOP, x, HEIGHT - BOTTOM);
            text(out, x, HEIGHT - BOTTOM + 18.0, "middle", &format!("{recall}"));
        }
        for decade in self.decades.0..=self.decades.1 {
            for factor in [1.0, 2.0, 5.0] {
                let value = factor * 10f64.powi(decade);
                let y = self.y(value);
                if y >= TOP - 0.5 {
                    rule(out, LEFT, y, WIDTH - RIGHT, y);
                    text(out, LEFT - 8.0, y + 4.0, "end", &format!("{value}"));
                }
            }
        }
        text(
            out,
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - 16.0,
            "middle",
            "recall (logarithmic in what is missed)",
        );
        text(out, LEFT - 8.0, TOP - 10.0, "end", "queries/s");
    }
}

fn rule(out: &mut String, x1: f64, y1: f64, x2: f64, y2: f64) {
    let _ = writeln!(
        out,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"#dddddd\"/>"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vectors::figures::Figures;

    fn table(points: &[(&str, &str, f64, f64)]) -> Table {
        let mut table = Table::new("search", &["server", "ef"]);
        for (server, ef, recall, queries_per_s) in points {
            let mut figures = Figures::default();
            figures.push("recall", *recall);
            figures.push("queries_per_s", *queries_per_s);
            table.push(&[server, ef], figures);
        }
        table
    }

    /// Reads elements as XML 1.0 has them; returns how often each name opened. Fails on what is not well-formed.
    fn elements(mut xml: &str) -> std::collections::BTreeMap<String, usize> {
        let mut open = Vec::new();
        let mut counts = std::collections::BTreeMap::new();
        while let Some((text, rest)) = xml.split_once('<') {
            for reference in text.split('&').skip(1) {
                let (name, _) = reference.split_once(';').expect("a reference ends");
                assert!(["amp", "lt", "gt", "quot"].contains(&name), "&{name};");
            }
            let (tag, rest) = rest.split_once('>').expect("a tag ends");
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop().as_deref(), Some(name));
            } else {
                let is_empty = tag.ends_with('/');
                let (name, attributes) = tag.trim_end_matches('/').split_once(' ').expect("attributes");
                assert!(
                    attributes.matches('"').count().is_multiple_of(2) && !attributes.contains('&'),
                    "{tag}"
                );
                for attribute in attributes.split("\" ") {
                    let (key, value) = attribute.split_once("=\"").expect("a quoted value");
                    assert!(key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{tag}");
                    assert!(!value.contains("NaN") && !value.contains("inf"), "{tag}");
                }
                *counts.entry(name.to_owned()).or_insert(0) += 1;
                if !is_empty {
                    open.push(name.to_owned());
                }
            }
            xml = rest;
        }
        assert!(open.is_empty() && xml.trim().is_empty(), "{open:?} {xml}");
        counts
    }

    #[test]
    fn every_point_is_drawn_and_the_text_is_xml() {
        let points = [
            ("a <b> & \"c\"", "40", 0.91, 5000.0),
            ("a <b> & \"c\"", "80", 1.0, 300.0),
            ("other\u{7}", "40", 0.5, 1.0),
        ];
        let svg = svg("t & t", "<caption>", &table(&points));
        let counts = elements(&svg);
        assert_eq!((counts["circle"], counts["polyline"]), (3, 2));
        assert!(svg.contains("a &lt;b&gt; &amp; &quot;c&quot;"), "{svg}");
    }

    #[test]
    fn nothing_and_one_point_are_plots_too() {
        assert_eq!(elements(&svg("", "", &table(&[]))).get("circle"), None);
        assert_eq!(elements(&svg("", "", &table(&[("x", "1", 1.0, 1000.0)])))["circle"], 1);
    }

    #[test]
    fn better_is_up_and_to_the_right_and_within() {
        let low = Point { label: String::new(), recall: 0.8, queries_per_s: 10.0 };
        let high = Point { label: String::new(), recall: 1.0, queries_per_s: 4000.0 };
        let axes = Axes::around([&low, &high].into_iter());
        assert!(
            axes.x(low.recall) < axes.x(high.recall)
                && axes.y(low.queries_per_s) > axes.y(high.queries_per_s)
        );
        assert!(axes.x(low.recall) >= LEFT && axes.x(high.recall) <= WIDTH - RIGHT);
        assert!(axes.y(high.queries_per_s) >= TOP && axes.y(low.queries_per_s) <= HEIGHT - BOTTOM);
    }
}
