//! A NodeClaim that was deleted and made again under its name, by hand or from a file, is another than the one that a command was decided for.

use crate::support::{World, on_demand_pool, pair};
use spokeshave_plan::disrupt::{Method, Rejection, validate};

#[test]
fn d_087_d_092_a_namesake_is_no_node_of_the_command_at_its_second_look() {
    let empty = World::new(on_demand_pool("default")).node("a", "small");
    for (world, method) in [
        (empty, Method::Emptiness),
        (pair().drifted("a", 0), Method::Drift),
        (pair(), Method::SingleNodeConsolidation),
    ] {
        let name = method.as_str();
        let command = world.command();
        assert_eq!(command.method, method);
        let look = |world: &World| validate(&command, &world.snapshot(), &world.policy, world.now);
        assert_eq!(look(&world).command.as_ref(), Some(&command), "{name}");
        let namesake = world.clone().edit_claim("a", |claim| {
            claim.metadata.uid = Some("uid-other".to_owned());
        });
        let second = look(&namesake);
        assert_eq!(second.command, None, "{name}");
        assert_eq!(second.rejection, Some(Rejection::Churn), "{name}");
    }
}
