//! A moment of a run, as a share of its measured requests: when a backend slows down, when the server restarts.

use std::fmt;
use std::str::FromStr;

use anyhow::bail;

use crate::workload::Stream;

/// When such a share of the measured requests has been sent: at least 0, below 1; 0.4 is written 40%.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment(f64);

impl Moment {
    /// The first request of `stream` from then on.
    pub fn first_request(self, stream: &Stream) -> usize {
        stream.n_warmup + (stream.n_measured() as f64 * self.0) as usize
    }
}

impl FromStr for Moment {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match text.strip_suffix('%').and_then(|share| share.trim().parse::<f64>().ok()) {
            Some(share) if (0.0..100.0).contains(&share) => Ok(Moment(share / 100.0)),
            _ => bail!("'{text}' is no share of the measured requests: 0% and more, below 100%"),
        }
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", (self.0 * 10_000.0).round() / 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::WorkloadOptions;

    #[test]
    fn a_moment_is_counted_from_the_end_of_the_warm_up() {
        let options = WorkloadOptions::new("ycsb-c".parse().unwrap(), 1);
        let stream = WorkloadOptions { n_warmup: Some(100), n_requests: Some(1000), ..options }.generate().unwrap();
        for (text, first) in [("0%", 100), ("40%", 500), ("99.9%", 1099)] {
            let moment: Moment = text.parse().unwrap();
            assert_eq!((moment.first_request(&stream), moment.to_string()), (first, text.to_string()));
        }
        for text in ["100%", "-1%", "0.4", "nan%", "%", ""] {
            assert!(text.parse::<Moment>().unwrap_err().to_string().contains("below 100%"), "{text}");
        }
    }
}
