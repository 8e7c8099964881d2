//! On-demand prices as the pricing service lists them (A4.2).

use serde::Deserialize;
use serde_json::{Value, json};

use crate::endpoints::Service;
use crate::error::CallError;
use crate::session::{Request, Session};

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Reply {
    price_list: Vec<String>,
    next_token: Option<String>,
}

/// `GetProducts` of EC2, all pages: one text of JSON a product, which [`parse_product`](spokeshave_provider_aws::prices::parse_product) reads.
///
/// # Errors
///
/// Denied calls, or no answer.
pub async fn products(session: &Session, filters: &[(String, String)]) -> Result<Vec<String>, CallError> {
    let filters: Vec<Value> = filters
        .iter()
        .map(|(field, value)| json!({ "Type": "TERM_MATCH", "Field": field, "Value": value }))
        .collect();
    let mut products = Vec::new();
    let mut token = None;
    loop {
        let mut body = json!({ "ServiceCode": "AmazonEC2", "MaxResults": 100, "Filters": filters });
        if let Some(token) = token.take() {
            body["NextToken"] = Value::String(token);
        }
        let request = Request::json(
            Service::Pricing,
            "1.1",
            "AWSPriceListService",
            "GetProducts",
            &body,
        );
        let reply: Reply = session.json(&request).await?;
        products.extend(reply.price_list);
        token = reply.next_token.filter(|token| !token.is_empty());
        if token.is_none() {
            return Ok(products);
        }
    }
}
