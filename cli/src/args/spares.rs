//! The keyword `spare` among vdevs: the following devices are spares, up to the next keyword of a vdev.

use protocol::{Failure, VdevSpec};

use crate::args::common::vdev;

const SPARE: &str = "spare";
/// Keywords that end a list of spares.
const OTHERS: &[&str] = &["mirror", "raidz", "raidz1", "raidz2", "raidz3", "draid", "log", "cache", "special", "dedup"];

/// Removes the spares from `texts`; the first result holds the remaining words, which describe vdevs.
pub fn spares(action: &str, pool: &str, texts: &[String]) -> Result<(Vec<String>, Vec<VdevSpec>), Failure> {
    let (mut rest, mut spares) = (Vec::new(), Vec::new());
    let mut texts = texts.iter().peekable();
    while let Some(text) = texts.next() {
        if text != SPARE {
            rest.push(text.clone());
            continue;
        }
        let before = spares.len();
        while let Some(device) = texts.next_if(|next| *next != SPARE && !OTHERS.contains(&next.as_str())) {
            spares.push(vdev(action, pool, device)?);
        }
        if spares.len() == before {
            let failure = Failure::cannot(action, pool, "no spare device is named");
            return Err(failure.hint("name devices after the word: spare DEVICE"));
        }
    }
    Ok((rest, spares))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<(String, Vec<String>), String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let (rest, spares) = spares("create", "tank", &words).map_err(|failure| failure.to_string())?;
        Ok((rest.join(" "), spares.iter().map(|spare| spare.path.to_text()).collect()))
    }

    #[test]
    fn spares_stand_anywhere_among_vdevs() {
        let is_read = |line: &str, rest: &str, spares: &[&str]| {
            assert_eq!(read(line).unwrap(), (rest.to_owned(), spares.iter().map(|s| (*s).to_owned()).collect()));
        };
        is_read("/a mirror /b /c", "/a mirror /b /c", &[]);
        is_read("spare /a", "", &["/a"]);
        is_read("mirror /b /c spare /d /e mirror /f /g spare /h", "mirror /b /c mirror /f /g", &["/d", "/e", "/h"]);
        for line in ["spare", "/a spare mirror /b /c", "spare spare /a"] {
            assert_eq!(read(line).unwrap_err(), "cannot create 'tank': no spare device is named");
        }
    }
}
