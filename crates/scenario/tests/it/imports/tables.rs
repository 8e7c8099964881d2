//! Tables of pods and requests.

use spokeshave_scenario::{Change, Facts};

use super::{HOUR_MS, facts, read};

pub(super) const DLRM: &str = "\
instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,gpu_limit,rdma_request,rdma_limit,memory_request,memory_limit,disk_request,disk_limit,max_instance_per_node,creation_time,scheduled_time,deletion_time
i0,HN,app_0,12,12,1,1,25,25,120.0,120.0,1,1,8,,,
i1,HN,app_0,12,12,1,1,25,25,120.0,120.0,1,1,8,,,50.0
i2,CN,app_1,64,64,0,0,1,1,320.0,320.0,1,1,1,100.0,110.0,200.0
i3,CN,app_1,64,64,0,0,1,1,320.0,320.0,1,1,1,150.0,160.0,
i4,CN,app_0,8,8,0,0,1,1,32.0,32.0,1,1,-1,120.0,130.0,NaN
";

#[test]
fn dlrm_rows_without_a_time_are_there_from_the_start_or_to_the_end() {
    let (found, notes) = read("format: dlrm, file: x", DLRM.as_bytes()).expect("readable");
    assert_eq!(notes, [] as [String; 0]);
    // At 150 s there are i0, i2, i3 and i4: 12 + 64 + 64 + 8 cores.
    assert_eq!(facts(&found), (2, 3, 4, 148_000, 200_000));
    assert_eq!(Facts::of(&found).peak_gpus, 2);
    // Two sizes of app_0 are two owners, because an owner has one template.
    let mut names: Vec<&str> = found.owners.iter().map(|owner| owner.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["app-0", "app-0-2", "app-1"]);
    let apart = |name: &str| {
        let owner = found
            .owners
            .iter()
            .find(|owner| owner.name == name)
            .expect("an owner");
        owner
            .template
            .spec
            .as_ref()
            .is_some_and(|spec| spec.affinity.is_some())
    };
    assert!(
        apart("app-1") && !apart("app-0"),
        "at most one of app_1 on a node"
    );
}

#[test]
fn rows_may_be_in_any_order() {
    let (head, rows) = DLRM.split_once('\n').expect("a head");
    let mut shuffled: Vec<&str> = rows.lines().collect();
    shuffled.reverse();
    let text = format!("{head}\n{}\n", shuffled.join("\n"));
    let (one, _) = read("format: dlrm, file: x", DLRM.as_bytes()).expect("readable");
    let (other, _) = read("format: dlrm, file: x", text.as_bytes()).expect("readable");
    assert_eq!(facts(&one), facts(&other));
}

pub(super) const OPENB: &str = "\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p0,12000,16384,1,1000,,LS,Running,0,100,0
p1,6000,12288,1,460,,LS,Running,50,200,50
";

#[test]
fn openb_counts_thousandths_of_a_core_and_mebibytes() {
    let (found, _) = read("format: openb, file: x", OPENB.as_bytes()).expect("readable");
    assert_eq!(facts(&found), (1, 1, 2, 18_000, 200_000));
    assert_eq!(Facts::of(&found).peak_memory_bytes, (16_384 + 12_288) << 20);
}

pub(super) const CSV: &str = "format: csv, file: x, columns: {start: begin, end: finish, cpu: cores, memory: mem, memoryUnit: GiB, group: team}";

#[test]
fn a_csv_has_the_meaning_of_its_mapping() {
    let text = "team,begin,finish,cores,mem,other\n\
                \"a, b\",2026-03-02T00:00:10Z,2026-03-02T01:00:00Z,0.5,2,x\n\
                c,2026-03-02T00:00:00Z,,1,4,y\n";
    let (found, _) = read(CSV, text.as_bytes()).expect("readable");
    assert_eq!(facts(&found), (1, 1, 2, 1_500, HOUR_MS));
    assert_eq!(Facts::of(&found).peak_memory_bytes, 6 << 30);
    assert_eq!(found.owners[0].name, "a--b");
}

/// A pod that requests nothing is taken by any node: where a table has gaps, what comes out is too cheap.
#[test]
fn rows_that_do_not_say_what_they_request_are_counted() {
    let text = "team,begin,finish,cores,mem\na,0,100,1,2\nb,0,100,,\nc,0,100, ,2\nd,0,100,0,0\n";
    let (found, notes) = read(CSV, text.as_bytes()).expect("readable");
    assert_eq!(facts(&found).3, 1_000);
    let note =
        "2 of 4 rows have an empty cores or mem, the first of them in line 3: nothing is requested there";
    assert_eq!(notes, [note]);
    let import = "format: csv, file: x, columns: {start: begin, cpu: cores}";
    let (_, notes) = read(import, text.as_bytes()).expect("readable");
    assert_eq!(
        notes,
        [note.replace(" or mem", "")],
        "nobody asked for the memory"
    );
    let (_, notes) = read(CSV, "team,begin,finish,cores,mem\na,0,100,1,2\n".as_bytes()).expect("readable");
    assert_eq!(notes, [] as [String; 0]);
}

#[test]
fn memory_in_bytes_may_be_as_much_as_in_gibibytes() {
    let bytes = CSV.replace("GiB", "B");
    let text = |memory: &str| format!("team,begin,finish,cores,mem\na,,,1,{memory}\n");
    let (one, _) = read(CSV, text("1000000000").as_bytes()).expect("readable");
    let (same, _) = read(&bytes, text("1073741824000000000").as_bytes()).expect("readable");
    assert_eq!(facts(&one), facts(&same));
    let error = read(&bytes, text("1e19").as_bytes()).expect_err("too much");
    let expected = "line 2: mem \"1e19\" is not a number from 0 to 1073741824000000000";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn tables_name_the_line_that_is_wrong() {
    let cut = &DLRM[..DLRM.len() - 30];
    for (import, text, expected) in [
        (
            "format: dlrm, file: x",
            cut.to_owned(),
            "line 6: has 10 columns, and the head has 17",
        ),
        (
            "format: dlrm, file: x",
            "a,b\n1,2\n".to_owned(),
            "line 1: has no column \"creation_time\"; its columns are a, b",
        ),
        (
            "format: dlrm, file: x",
            DLRM.replace(",100.0,110.0", ",ten,110.0"),
            "line 4: creation_time \"ten\" is neither a number of seconds nor an instant",
        ),
        (
            "format: dlrm, file: x",
            DLRM.replace(",200.0\n", ",20.0\n"),
            "line 4: deletion_time 20.0 is before creation_time 100.0",
        ),
        (
            "format: dlrm, file: x",
            DLRM.replace("i3,CN,app_1,64", "i3,CN,app_1,-64"),
            "line 5: cpu_request \"-64\" is not a number from 0 to 1000000000",
        ),
        (
            "format: dlrm, file: x",
            format!("{}\n1,2\n", "a".repeat(100_000)),
            "line 1: has no column \"creation_time\"; its columns are aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…",
        ),
        (
            "format: dlrm, file: x",
            DLRM.replace("150.0", "1e300"),
            "line 5: creation_time \"1e300\" is not a time of ten years at most",
        ),
        (
            CSV,
            "team,begin,finish,cores,mem\na,2026-03-02T00:00:00Z,,1,2\nb,600,,1,2\n".to_owned(),
            "line 3: begin \"600\" is a number of seconds; expected an instant, as in line 2",
        ),
        (
            CSV,
            "team,begin,finish,cores,mem\na,,100,1,2\nb,2026-03-02T00:00:00Z,,1,2\n".to_owned(),
            "line 3: begin \"2026-03-02T00:00:00Z\" is an instant; expected a number of seconds, as in line 2",
        ),
        (
            "format: dlrm, file: x",
            DLRM.replace(",100.0,110.0", ",2026-03-02T00:00:00Z,110.0"),
            "line 4: creation_time \"2026-03-02T00:00:00Z\" is an instant; expected a number of seconds, as this format has them",
        ),
        (
            "format: dlrm, file: x",
            DLRM.lines().next().expect("a head").to_owned(),
            "holds a head and no rows",
        ),
        (
            CSV,
            format!("team,begin,finish,cores,mem\n{}", "x".repeat(2 << 20)),
            "line 2: is longer than 1 MiB",
        ),
        (
            CSV,
            // A quotation mark that nothing ends makes one row of all lines that follow.
            format!(
                "team,begin,finish,cores,mem\na,0,100,1,2\n\"b,{}",
                "0,100,1,2\n".repeat(200_000)
            ),
            "line 3: is longer than 1 MiB",
        ),
        (
            "format: azure-llm, file: x",
            "TIMESTAMP,ContextTokens\nyesterday,1\n".to_owned(),
            "line 2: TIMESTAMP \"yesterday\"",
        ),
    ] {
        let error = read(import, text.as_bytes()).expect_err(expected);
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}

#[test]
fn requests_become_replicas_of_the_rate_of_each_minute() {
    let mut text = "TIMESTAMP,ContextTokens,GeneratedTokens\n".to_owned();
    // 120 requests in the first minute, none in the second, 30 in the third.
    for (minute, count) in [(15, 120), (17, 30)] {
        for request in 0..count {
            text.push_str(&format!(
                "2023-11-16 18:{minute}:{:02}.{:07},10,20\n",
                request % 60,
                request
            ));
        }
    }
    let (found, _) = read(
        "format: azure-llm, file: x, requestsPerReplica: 0.5",
        text.as_bytes(),
    )
    .expect("readable");
    let counts: Vec<(u64, Change)> = found
        .events
        .iter()
        .map(|event| (event.at_ms, event.change.clone()))
        .collect();
    assert_eq!(
        counts,
        [
            (0, Change::Replicas(4)),
            (60_000, Change::Replicas(0)),
            (120_000, Change::Replicas(1)),
        ]
    );
}

/// The name that tells two sizes of one group apart may be that of another group.
#[test]
fn groups_of_a_table_are_kept_apart_by_their_names() {
    let columns = "columns: {start: begin, cpu: cores, group: team}";
    let table = "begin,cores,team\n0,1,web\n0,1,web-2\n0,4,web\n0,4,web\n0,4,web\n";
    let (found, _) = read(&format!("format: csv, file: x, {columns}"), table.as_bytes()).expect("readable");
    assert_eq!(facts(&found), (5, 0, 5, 14_000, 0));
    let names: Vec<&str> = found.owners.iter().map(|owner| owner.name.as_str()).collect();
    assert_eq!(names, ["web", "web-2", "web-3"]);
}
