//! One HTML page with text, tables and charts in it: a file that can be sent to somebody, and opens without anything
//! else.

use std::path::Path;

use anyhow::Context;

/// The page's look; wide tables scroll by themselves.
const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;\
color:#16191d;background:#fff}h1{font-size:1.4rem}\
pre{overflow-x:auto;background:#f6f7f9;border:1px solid #d9dde3;border-radius:6px;padding:.75rem;font-size:.85rem}\
figure{margin:1.5rem 0}svg{display:block;width:100%;height:auto}footer{color:#5b636e;font-size:.85rem}";

/// A page that is being put together.
pub struct Page {
    title: String,
    body: String,
}

impl Page {
    /// Begins with its title.
    pub fn new(title: &str) -> Page {
        Page { title: title.to_owned(), body: format!("<h1>{}</h1>\n", escaped(title)) }
    }

    /// Adds text that stands as it is printed, such as a table in columns.
    pub fn text(mut self, text: &str) -> Page {
        self.body += &format!("<pre>{}</pre>\n", escaped(text.trim_end()));
        self
    }

    /// Adds a chart, as the SVG that a chart gives or a file has.
    pub fn svg(mut self, svg: &str) -> Page {
        // What stands before the element is for files of their own.
        let element = svg.find("<svg").map_or("", |at| &svg[at..]);
        self.body += &format!("<figure>{element}</figure>\n");
        self
    }

    /// Adds all SVG files of a folder, in the order of their names.
    ///
    /// # Errors
    /// When one can't be read.
    pub fn svgs_in(mut self, folder: &Path) -> anyhow::Result<Page> {
        let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
        let mut files: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.retain(|file| file.extension().is_some_and(|extension| extension == "svg"));
        files.sort();
        for file in files {
            let svg = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            self = self.svg(&svg);
        }
        Ok(self)
    }

    /// The whole page.
    pub fn html(&self) -> String {
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n\
             <style>{STYLE}</style>\n\
             </head>\n<body>\n{}<footer>Made by tenure {}.</footer>\n</body>\n</html>\n",
            escaped(&self.title),
            self.body,
            env!("CARGO_PKG_VERSION")
        )
    }

    /// Writes it.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn save(&self, file: &Path) -> anyhow::Result<()> {
        std::fs::write(file, self.html()).with_context(|| format!("{}: cannot be written", file.display()))
    }
}

/// Text in which nothing is taken for markup.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LineChart, Series};

    #[test]
    fn a_page_stands_by_itself() {
        let chart = LineChart {
            title: "a < b".to_owned(),
            series: vec![Series { name: "x".to_owned(), points: vec![(0.0, 1.0), (1.0, 2.0)] }],
            ..LineChart::default()
        };
        let folder = tempfile::tempdir().unwrap();
        chart.save(folder.path().join("chart.svg")).unwrap();
        let page = Page::new("\"mine\" & yours").text("1 < 2\n").svg(&chart.svg().unwrap());
        let html = page.svgs_in(folder.path()).unwrap().html();
        assert_eq!((html.matches("<svg").count(), html.matches("<?xml").count()), (2, 0), "{html}");
        assert!(
            html.contains("<title>&quot;mine&quot; &amp; yours</title>") && html.contains("1 &lt; 2</pre>"),
            "{html}"
        );
        let elsewhere = html.replace("http://www.w3.org/2000/svg", "");
        assert!(!elsewhere.contains("http") && !elsewhere.contains("src="), "nothing is loaded: {html}");
    }
}
