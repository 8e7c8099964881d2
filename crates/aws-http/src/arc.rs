//! Zonal shifts, as Application Recovery Controller knows them.

use jiff::Timestamp;
use serde::Deserialize;
use spokeshave_aws_cloud::ports::Shifts;

use crate::eks::escaped;
use crate::endpoints::Service;
use crate::error::CallError;
use crate::session::{Request, Session};

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Reply {
    zonal_shifts: Vec<Shift>,
    autoshifts: Vec<Shift>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Shift {
    /// `APPLIED` or `NOT_APPLIED`: of several shifts of a resource one is applied at a time.
    applied_status: String,
    away_from: String,
    /// Seconds since 1970; shifts that AWS began have no end.
    expiry_time: Option<f64>,
}

impl Reply {
    fn shifted(self) -> Shifts {
        let shifts = self.zonal_shifts.into_iter().chain(self.autoshifts);
        let applied = shifts.filter(|shift| shift.applied_status == "APPLIED" && !shift.away_from.is_empty());
        applied
            .map(|shift| {
                let end = shift.expiry_time.map(|seconds| {
                    let nanoseconds = jiff::SignedDuration::try_from_secs_f64(seconds);
                    nanoseconds
                        .ok()
                        .and_then(|since| Timestamp::UNIX_EPOCH.checked_add(since).ok())
                        .unwrap_or(Timestamp::MAX)
                });
                (shift.away_from, end)
            })
            .collect()
    }
}

/// `GetManagedResource`: IDs of the zones from which traffic of a resource is shifted away, and until when.
///
/// # Errors
///
/// `ResourceNotFoundException`, denied calls, or no answer.
pub async fn shifted(session: &Session, arn: &str) -> Result<Shifts, CallError> {
    let path = format!("/managedresources/{}", escaped(arn));
    let request = Request::get(Service::ArcZonalShift, "GetManagedResource", path);
    let reply: Reply = session.json(&request).await?;
    Ok(reply.shifted())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d_295_shifts_that_are_applied_count_whether_a_user_or_aws_began_them() {
        let text = r#"{
            "appliedWeights": {"use1-az1": 0.0, "use1-az2": 1.0, "use1-az3": 0.0},
            "arn": "arn:aws:eks:us-east-1:123456789012:cluster/blue",
            "autoshifts": [{"appliedStatus": "APPLIED", "awayFrom": "use1-az3", "startTime": 1732400000}],
            "zonalAutoshiftStatus": "ENABLED",
            "zonalShifts": [
                {"appliedStatus": "APPLIED", "awayFrom": "use1-az1", "comment": "", "expiryTime": 1732500000.5,
                 "resourceIdentifier": "arn", "startTime": 1732400000.0, "zonalShiftId": "1"},
                {"appliedStatus": "NOT_APPLIED", "awayFrom": "use1-az2", "zonalShiftId": "2"}
            ]
        }"#;
        let reply: Reply = serde_json::from_str(text).unwrap();
        let end = Timestamp::from_millisecond(1_732_500_000_500).unwrap();
        let expected = [("use1-az1", Some(end)), ("use1-az3", None)];
        let shifted = reply.shifted();
        let shifted: Vec<_> = shifted.iter().map(|(zone, end)| (zone.as_str(), *end)).collect();
        assert_eq!(shifted, expected);
        let empty: Reply = serde_json::from_str("{}").unwrap();
        assert!(empty.shifted().is_empty());
    }
}
