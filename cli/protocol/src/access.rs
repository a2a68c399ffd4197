//! The part of a response that only the owner of a pool may see.

use super::{PoolStatus, Response};

impl Response {
    /// The response for other users: without file names.
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

/// A damaged file, reduced to its dataset or snapshot for other users.
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
