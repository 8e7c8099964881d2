//! Who we are to AWS.

use roxmltree::Document;

use crate::endpoints::Service;
use crate::error::CallError;
use crate::query::Query;
use crate::session::{Request, Session};
use crate::xml;

/// Whose credentials requests are signed with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallerIdentity {
    /// The account.
    pub account: String,
    /// The user, or the role with its session.
    pub arn: String,
}

/// `GetCallerIdentity`: a call that every identity may make.
///
/// # Errors
///
/// Without credentials, or when STS gives no answer.
pub async fn caller_identity(session: &Session) -> Result<CallerIdentity, CallError> {
    let request = Request::query(Service::Sts, &Query::new("GetCallerIdentity", "2011-06-15"));
    let body = session.call(&request).await?;
    let document = Document::parse(&body).map_err(|error| session.unreadable(&request, &error))?;
    let result = xml::root(&document).child("GetCallerIdentityResult");
    Ok(
        result.map_or_else(CallerIdentity::default, |result| CallerIdentity {
            account: result.text("Account"),
            arn: result.text("Arn"),
        }),
    )
}
