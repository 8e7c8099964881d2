//! Names that the server draws.

use crate::client::{Client, MAPS};
use serde_json::json;

async fn drawn(client: &Client) -> String {
    let body = json!({"metadata": {"generateName": "job-"}});
    let created = client.post(MAPS, body).await.ok();
    created["metadata"]["name"].as_str().unwrap().to_owned()
}

/// One seed draws the same names whoever asks for them, so the second name of one server is known before another one draws it.
#[tokio::test]
async fn a_name_that_is_taken_is_drawn_again() {
    let client = Client::new();
    drawn(&client).await;
    let second = drawn(&client).await;
    let client = Client::new();
    client.map(&second, json!({})).await;
    let other = drawn(&client).await;
    assert_ne!(other, second);
    assert!(client.exists(&format!("{MAPS}/{other}")).await);
}
