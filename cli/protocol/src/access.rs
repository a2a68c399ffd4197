//! What of an answer only the owner of a pool is to see.

use super::{PoolStatus, Response};

impl Response {
    /// The answer as other users get it: without the names of files.
    pub fn for_all(self) -> Response {
        match self {
            Response::Status(status) => {
                let damaged = status.damaged.map(|names| names.iter().map(|name| without_path(name)).collect());
                Response::Status(Box::new(PoolStatus { damaged, ..*status }))
            }
            other => other,
        }
    }
}

/// A damaged file as other users see it: the dataset or snapshot it is in.
fn without_path(name: &str) -> String {
    name.split_once(':').map_or_else(|| name.to_owned(), |(dataset, _)| format!("{dataset}:<hidden>"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_users_learn_where_damage_is_and_no_names() {
        assert_eq!(without_path("tank/home@a:/secret: plan"), "tank/home@a:<hidden>");
        assert_eq!(without_path("the catalogue"), "the catalogue");
    }
}
