//! what answers of dry runs mean.

use spokeshave_provider_aws::errors::ApiError;
use spokeshave_provider_aws::rehearsal::{Question, Verdict, judge};

#[test]
fn a_035_verdicts_of_dry_runs() {
    let error = |code: &str| ApiError::new(code, "text");
    let asked = |question, code| judge(question, Some(&error(code)));
    assert_eq!(asked(Question::CreateFleet, "DryRunOperation"), Verdict::Allowed);
    assert_eq!(judge(Question::RunInstances, None), Verdict::Allowed);
    for (question, reason) in [
        (
            Question::CreateLaunchTemplate,
            "CreateLaunchTemplateAuthCheckFailed",
        ),
        (Question::CreateFleet, "CreateFleetAuthCheckFailed"),
        (Question::RunInstances, "RunInstancesAuthCheckFailed"),
    ] {
        let Verdict::Refused {
            reason: actual,
            message,
        } = asked(question, "UnauthorizedOperation")
        else {
            panic!("{question:?}");
        };
        assert_eq!(actual, reason);
        let call = reason.trim_end_matches("AuthCheckFailed");
        assert!(
            message.starts_with(&format!("Controller isn't authorized to call ec2:{call}: ")),
            "{message}"
        );
        assert_eq!(asked(question, "RequestLimitExceeded"), Verdict::AskAgain);
        assert_eq!(
            asked(question, "InvalidParameter"),
            Verdict::Unexpected(error("InvalidParameter"))
        );
    }
    let mut fault = error("InternalError");
    fault.server_fault = true;
    assert_eq!(judge(Question::CreateFleet, Some(&fault)), Verdict::AskAgain);
}
