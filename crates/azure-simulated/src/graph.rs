//! Resource Graph: the rows of a query, page by page.
//!
//! Owns which rows a page has, and in which order. What there was when the graph last looked is [`state`](crate::state)'s.

use jiff::Timestamp;
use serde_json::{Value, json};
use spokeshave_azure_cloud::Response;

use crate::replies::{ok, refused};
use crate::state::State;

fn id(row: &Value) -> String {
    row["id"].as_str().unwrap_or_default().to_lowercase()
}

impl State {
    /// The queries that the provider asks; any other is refused.
    pub(crate) fn query(&mut self, body: &Value, now: Timestamp) -> Response {
        let query = body["query"].as_str().unwrap_or_default();
        let quoted: Vec<&str> = query.split('\'').collect();
        let (Some(kind), Some(group), Some(tag), Some(key), Some(value)) = (
            quoted.get(1),
            quoted.get(3),
            quoted.get(5),
            quoted.get(7),
            quoted.get(9),
        ) else {
            return refused(
                400,
                "BadRequest",
                "Please provide below info when asking for support: the query is invalid.",
            );
        };
        let mut rows = self.rows(kind, now);
        rows.retain(|row| {
            id(row).contains(&format!("/resourcegroups/{group}/"))
                && row["tags"][*tag].is_string()
                && row["tags"][*key] == **value
        });
        self.put_in_order(query, &mut rows);
        let skip: usize = body["options"]["$skipToken"]
            .as_str()
            .and_then(|it| it.parse().ok())
            .unwrap_or(0);
        let size = self.options.page;
        let shown: Vec<&Value> = rows.iter().skip(skip).take(size).collect();
        let mut reply = json!({"totalRecords": rows.len(), "count": shown.len(), "resultTruncated": "false", "data": shown});
        if rows.len() > skip + size {
            reply["$skipToken"] = json!((skip + size).to_string());
        }
        ok(200, &reply)
    }

    /// Without an order that the query asks for, rows come in another one with each page.
    fn put_in_order(&mut self, query: &str, rows: &mut [Value]) {
        rows.sort_by_cached_key(id);
        if !query.contains("| order by id asc") && !rows.is_empty() {
            let length = u64::try_from(rows.len()).unwrap_or(u64::MAX);
            let by = usize::try_from(self.next_number() % length).unwrap_or(0);
            rows.rotate_left(by);
        }
    }
}
