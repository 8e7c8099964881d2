//! Instance profiles (A2.3).

use roxmltree::Document;
use spokeshave_provider_aws::replies::{Profile, Tags};

use crate::endpoints::Service;
use crate::error::CallError;
use crate::query::Query;
use crate::session::{Request, Session};
use crate::xml::{self, Element};

const VERSION: &str = "2010-05-08";

fn call(action: &str, profile: &str) -> Query {
    let mut query = Query::new(action, VERSION);
    query.set("InstanceProfileName", profile);
    query
}

fn set_tags(query: &mut Query, tags: &Tags) {
    for (index, (key, value)) in tags.iter().enumerate() {
        query.set(&format!("Tags.member.{}.Key", index + 1), key);
        query.set(&format!("Tags.member.{}.Value", index + 1), value);
    }
}

fn profile(element: Element<'_, '_>) -> Profile {
    Profile {
        name: element.text("InstanceProfileName"),
        path: element.text("Path"),
        roles: element.items("Roles").map(|role| role.text("RoleName")).collect(),
        tags: element
            .items("Tags")
            .map(|tag| (tag.text("Key"), tag.text("Value")))
            .collect(),
    }
}

async fn send(session: &Session, query: &Query) -> Result<(), CallError> {
    session.call(&Request::query(Service::Iam, query)).await.map(drop)
}

/// `GetInstanceProfile`.
///
/// # Errors
///
/// `NoSuchEntity`, denied calls, or no answer.
pub async fn get_profile(session: &Session, name: &str) -> Result<Profile, CallError> {
    let request = Request::query(Service::Iam, &call("GetInstanceProfile", name));
    let body = session.call(&request).await?;
    let document = Document::parse(&body).map_err(|error| session.unreadable(&request, &error))?;
    let found = xml::root(&document).descendant("InstanceProfile");
    found
        .map(profile)
        .ok_or_else(|| session.unreadable(&request, &"no InstanceProfile in the reply"))
}

/// `CreateInstanceProfile`. With tags it needs the right to tag as well.
///
/// # Errors
///
/// `EntityAlreadyExists`, denied calls, or no answer.
pub async fn create_profile(session: &Session, name: &str, path: &str, tags: &Tags) -> Result<(), CallError> {
    let mut query = call("CreateInstanceProfile", name);
    query.set("Path", path);
    set_tags(&mut query, tags);
    send(session, &query).await
}

/// `AddRoleToInstanceProfile`.
///
/// # Errors
///
/// `NoSuchEntity` for an unknown role, `LimitExceeded` for a second one, denied calls, or no answer.
pub async fn add_role(session: &Session, name: &str, role: &str) -> Result<(), CallError> {
    send(
        session,
        call("AddRoleToInstanceProfile", name).set("RoleName", role),
    )
    .await
}

/// `RemoveRoleFromInstanceProfile`.
///
/// # Errors
///
/// `NoSuchEntity`, denied calls, or no answer.
pub async fn remove_role(session: &Session, name: &str, role: &str) -> Result<(), CallError> {
    send(
        session,
        call("RemoveRoleFromInstanceProfile", name).set("RoleName", role),
    )
    .await
}

/// `DeleteInstanceProfile`.
///
/// # Errors
///
/// `NoSuchEntity`, `DeleteConflict` while it has a role, denied calls, or no answer.
pub async fn delete_profile(session: &Session, name: &str) -> Result<(), CallError> {
    send(session, &call("DeleteInstanceProfile", name)).await
}

/// `ListInstanceProfiles` below a path, all pages. What is below another path is left out, whatever the service says: what comes out of here is deleted.
///
/// # Errors
///
/// Denied calls, or no answer.
pub async fn list_profiles(session: &Session, path_prefix: &str) -> Result<Vec<Profile>, CallError> {
    let mut profiles = Vec::new();
    let mut marker = None;
    loop {
        let mut query = Query::new("ListInstanceProfiles", VERSION);
        query
            .set("PathPrefix", path_prefix)
            .set_some("Marker", marker.take());
        let request = Request::query(Service::Iam, &query);
        let body = session.call(&request).await?;
        let document = Document::parse(&body).map_err(|error| session.unreadable(&request, &error))?;
        let Some(result) = xml::root(&document).child("ListInstanceProfilesResult") else {
            return Err(session.unreadable(&request, &"no ListInstanceProfilesResult in the reply"));
        };
        profiles.extend(result.items("InstanceProfiles").map(profile));
        marker = result
            .some_text("Marker")
            .filter(|_| result.is_true("IsTruncated"));
        if marker.is_none() {
            break;
        }
    }
    profiles.retain(|profile| profile.path.starts_with(path_prefix));
    Ok(profiles)
}
