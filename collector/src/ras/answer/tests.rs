use super::*;

/// One communicator of three ranks as NCCL 2.28.9 writes it. The last rank is missing, and there is no comma
/// before its status.
pub(crate) const OF_2_28: &str = r#"{
  "nccl_version": "2.28.9+cuda13.0",
  "cuda_runtime_version": 13000,
  "cuda_driver_version": 13000,
  "timestamp": "2027-01-15 08:00:00",
  "communicators_count": 1,
  "communicators": [
    {
      "hash": "0x9ca792c900000001",
      "secondary_hash": "0x1:0x2",
      "size": 3,
      "ranks_count": 2,
      "missing_ranks_count": 1,
      "ranks": [
        {
          "rank": 0,
          "host": "10.0.0.1",
          "pid": 4000,
          "cuda_dev": 0,
          "nvml_dev": 0,
          "status": {
            "init_state": 0,
            "async_error": 0,
            "finalize_called": false,
            "destroy_flag": false,
            "abort_flag": false
          },
          "collective_counts": {
            "Broadcast": 1,
            "Reduce": 2,
            "AllGather": 3,
            "ReduceScatter": 4,
            "AllReduce": 1042
          }
        },
        {
          "rank": 1,
          "host": "10.0.0.1",
          "pid": 4001,
          "cuda_dev": 1,
          "nvml_dev": 1,
          "status": {
            "init_state": 0,
            "async_error": 6,
            "finalize_called": true,
            "destroy_flag": true,
            "abort_flag": true
          },
          "collective_counts": {
            "Broadcast": 1,
            "Reduce": 2,
            "AllGather": 3,
            "ReduceScatter": 4,
            "AllReduce": 1041
          }
        }
      ],
      "missing_ranks": [
        {
          "rank": 2,
          "host": "unknown",
          "pid": -1,
          "cuda_dev": 2,
          "nvml_dev": 2
          "status": {
            "unresponsive": true,
            "considered_dead": false
          }
        }
      ]
    }
  ],
  "ras": {
    "collection_time_sec": 5.002,
    "timeouts_count": 1
  }
}
"#;

fn report(text: &str) -> RasReport {
    let (answer, _) = Answer::parse(text.as_bytes().to_vec()).unwrap();
    answer.into_report(RasReport::default())
}

#[test]
fn an_answer_of_nccl_is_read_with_and_without_its_missing_comma() {
    let read = report(OF_2_28);
    assert_eq!(
        (read.nccl.as_str(), read.took, read.timeouts),
        ("2.28.9+cuda13.0", Nanoseconds(5_002_000_000), 1)
    );
    let [one] = &read.communicators[..] else { panic!("{read:?}") };
    assert_eq!((one.id, one.size, one.ranks.len()), (CommunicatorId(0x9ca7_92c9_0000_0001), 3, 2));
    let launched = RasCounts { broadcast: 1, reduce: 2, all_gather: 3, reduce_scatter: 4, all_reduce: 1042 };
    assert_eq!((one.ranks[0].pid, one.ranks[0].launched), (Some(Pid(4000)), launched));
    let RasRank { init_state, async_error, finalized, destroyed, aborted, .. } = one.ranks[1];
    assert_eq!((init_state, async_error, finalized, destroyed, aborted), (0, 6, true, true, true));
    let missing = RasMissing { member: 2, pid: None, unresponsive: true, considered_dead: false };
    assert_eq!(one.missing, [missing]);
    let with_comma = OF_2_28.replace("\"nvml_dev\": 2\n", "\"nvml_dev\": 2,\n");
    assert_eq!(report(&with_comma), read);
    // The bytes that are kept are valid JSON for any program.
    let (_, raw) = Answer::parse(OF_2_28.as_bytes().to_vec()).unwrap();
    assert!(serde_json::from_slice::<serde_json::Value>(&raw).is_ok());
    assert_eq!(raw.len(), OF_2_28.len() + 1);
}

#[test]
fn an_answer_belongs_to_the_job_with_its_processes() {
    let (answer, _) = Answer::parse(OF_2_28.as_bytes().to_vec()).unwrap();
    assert!(answer.is_of(&[Pid(1), Pid(4001)]));
    assert!(!answer.is_of(&[Pid(1), Pid(2)]));
    let (none, _) = Answer::parse(br#"{"communicators": []}"#.to_vec()).unwrap();
    assert!(none.is_of(&[Pid(1)]));
    let unknown = OF_2_28.replace("400", "-400");
    let (unknown, _) = Answer::parse(unknown.into_bytes()).unwrap();
    assert!(!unknown.is_of(&[Pid(4001)]), "ranks without process numbers may be of any job");
}

#[test]
fn hostile_documents_are_refused_or_cleaned() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let many = format!(
        r#"{{"communicators": [{{"hash": "0x1", "size": 1, "ranks": [{}]}}]}}"#,
        vec![r#"{"rank": 0, "pid": 1}"#; RasReport::RANKS + 1].join(",")
    );
    for wrong in [
        "",
        "null",
        "{",
        "[]",
        r#"{"communicators": 7}"#,
        r#"{"communicators": [{"hash": "0xzz", "size": 1, "ranks": []}]}"#,
        r#"{"communicators": [{"hash": "0x11111111111111111", "size": 1, "ranks": []}]}"#,
        r#"{"communicators": [{"hash": "0x1", "size": -1, "ranks": []}]}"#,
        "No communicator data collected!\n",
        &deep,
        &many,
    ] {
        let read = Answer::parse(wrong.as_bytes().to_vec());
        assert!(read.is_err(), "{}", &wrong[..wrong.len().min(80)]);
    }
    let steering = report(
        r#"{"nccl_version": "2.\u001b[2J\n", "communicators": [], "ras": {"collection_time_sec": 1e300}}"#,
    );
    assert_eq!((steering.nccl.as_str(), steering.took.0), ("2. [2J ", 1_000_000_000_000_000));
}
