//! Records in the format of PyTorch's flight recorder, for its analyser (`torchfrtrace DIR --prefix
//! nccl_trace_rank_`): one pickle per rank.
//!
//! Only collectives are written: the analyser matches sends and receives by groups, which NCCL's calls do not
//! show.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write as _,
    path::Path,
};

use anyhow::Context as _;
use xpu_client::new_file;
use xpu_model::job::Job;
use xpu_wire::{
    collective::Operation,
    datatype::DataType,
    frame::{CallState, RankRecord, RecordedCall, StackFrame},
    id::{CommunicatorId, Rank},
};

use super::pickle::Value;
use crate::args::UsageError;

/// The version of the format.
const VERSION: &str = "2.9";

const PREFIX: &str = "nccl_trace_rank_";

/// Refuses a folder that is not empty, because the analyser would read files of another job as ranks of this
/// one.
pub(super) fn check(folder: &Path) -> Result<(), UsageError> {
    let Ok(mut entries) = fs::read_dir(folder) else { return Ok(()) };
    if entries.next().is_none() {
        return Ok(());
    }
    Err(UsageError::Value(format!(
        "{} is not empty: name a folder that does not exist yet",
        folder.display()
    )))
}

pub(super) fn write(folder: &Path, job: &Job, records: &[&RankRecord]) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let groups = groups(job);
    let done = done(job);
    for record in records {
        let path = folder.join(format!("{PREFIX}{}", record.rank));
        let bytes = dump(record, &groups, &done).to_bytes();
        new_file::write(&path, |out| Ok(out.write_all(&bytes)?))?;
    }
    eprintln!(
        "xpu-top: {} ranks written; read them with: torchfrtrace {} --prefix {PREFIX}",
        records.len(),
        folder.display()
    );
    Ok(())
}

/// The ranks of the job in each communicator, in the communicator's order.
fn groups(job: &Job) -> BTreeMap<CommunicatorId, Vec<Rank>> {
    let mut members: BTreeMap<CommunicatorId, BTreeSet<(u32, Rank)>> = BTreeMap::new();
    for record in job.records() {
        for one in &record.communicators {
            members.entry(one.id).or_default().insert((one.member, record.rank));
        }
    }
    members.into_iter().map(|(id, of)| (id, of.into_iter().map(|(_, rank)| rank).collect())).collect()
}

/// For each communicator, the number of the last collective known to have ended on any rank. Other ranks may
/// report its end a little later.
fn done(job: &Job) -> BTreeMap<CommunicatorId, u64> {
    let mut done = BTreeMap::new();
    for record in job.records() {
        for call in record.calls.iter().filter(|call| call.state == CallState::Done) {
            let (Some(one), Some(number)) = (record.communicator(call), call.number) else { continue };
            let last: &mut u64 = done.entry(one.id).or_default();
            *last = number.max(*last);
        }
    }
    done
}

fn dump(
    record: &RankRecord,
    groups: &BTreeMap<CommunicatorId, Vec<Rank>>,
    done: &BTreeMap<CommunicatorId, u64>,
) -> Value {
    let config = record.communicators.iter().map(|one| {
        let ranks: Vec<_> = groups.get(&one.id).into_iter().flatten().map(Rank::to_string).collect();
        let group = Value::Map(vec![
            ("name", Value::text(one.id.to_string())),
            ("desc", Value::text(description(&one.name))),
            ("ranks", Value::text(format!("[{}]", ranks.join(", ")))),
        ]);
        (one.id.to_string(), group)
    });
    let entries = record.calls.iter().filter_map(|call| entry(record, call, done));
    Value::Map(vec![
        ("version", Value::text(VERSION)),
        ("entries", Value::List(entries.collect())),
        ("pg_config", Value::Table(config.collect())),
        ("pg_status", Value::Table(Vec::new())),
        ("nccl_comm_state", Value::Table(Vec::new())),
    ])
}

fn description(name: &str) -> &str {
    if name.is_empty() { "undefined" } else { name }
}

/// PyTorch's name of the operation.
fn name(operation: Operation) -> Option<&'static str> {
    Some(match operation {
        Operation::AllReduce => "nccl:all_reduce",
        Operation::AllGather => "nccl:_all_gather_base",
        Operation::ReduceScatter => "nccl:_reduce_scatter_base",
        Operation::Broadcast => "nccl:broadcast",
        Operation::Reduce => "nccl:reduce",
        Operation::AlltoAll => "nccl:all_to_all_single",
        Operation::Gather => "nccl:gather",
        Operation::Scatter => "nccl:scatter",
        _ => return None,
    })
}

fn datatype(of: DataType) -> &'static str {
    match of {
        DataType::Float64 => "Double",
        DataType::Float32 | DataType::Tf32 => "Float",
        DataType::Float16 => "Half",
        DataType::Bfloat16 => "BFloat16",
        DataType::Float8E4m3 => "Float8_e4m3fn",
        DataType::Float8E5m2 => "Float8_e5m2",
        DataType::Int64 => "Long",
        DataType::Uint64 => "UInt64",
        DataType::Int32 => "Int",
        DataType::Uint32 => "UInt32",
        DataType::Int8 => "Char",
        _ => "Byte",
    }
}

/// Elements of input and output.
fn elements(call: &RecordedCall, size: u64) -> (u64, u64) {
    let all = call.bytes / call.datatype.bytes().max(1);
    let part = all / size.max(1);
    match call.operation {
        Operation::AllGather | Operation::Gather => (part, all),
        Operation::ReduceScatter | Operation::Scatter => (all, part),
        _ => (all, all),
    }
}

fn entry(record: &RankRecord, call: &RecordedCall, done: &BTreeMap<CommunicatorId, u64>) -> Option<Value> {
    if matches!(call.state, CallState::Refused | CallState::Captured) || call.replays > 0 {
        return None;
    }
    let (one, number, name) = (record.communicator(call)?, call.number?, name(call.operation)?);
    let (input, output) = elements(call, one.size.into());
    let sizes = |count: u64| Value::List(vec![Value::List(vec![Value::number(count)])]);
    let types = || Value::List(vec![Value::text(datatype(call.datatype))]);
    let ended = call.state == CallState::Done || done.get(&one.id).is_some_and(|&last| number <= last);
    let state = match call.state {
        _ if ended => "completed",
        CallState::Begun => "started",
        _ => "scheduled",
    };
    let frames = record.site(call).map_or(&[][..], |site| &site.frames);
    let frame = |frame: &StackFrame| {
        Value::Map(vec![
            ("name", Value::text(&frame.function)),
            ("filename", Value::text(&frame.file)),
            ("line", Value::number(frame.line.into())),
        ])
    };
    let place = record.communicators.iter().position(|other| other.id == one.id).unwrap_or(0);
    Some(Value::Map(vec![
        ("record_id", Value::number(call.order)),
        ("pg_id", Value::number(place as u64)),
        (
            "process_group",
            Value::Pair(Box::new([Value::text(one.id.to_string()), Value::text(description(&one.name))])),
        ),
        ("collective_seq_id", Value::number(number + 1)),
        ("p2p_seq_id", Value::number(0)),
        ("op_id", Value::number(call.order)),
        ("profiling_name", Value::text(name)),
        ("time_created_ns", Value::number(call.entered.0)),
        ("input_sizes", sizes(input)),
        ("input_dtypes", types()),
        ("output_sizes", sizes(output)),
        ("output_dtypes", types()),
        ("state", Value::text(state)),
        ("time_discovered_started_ns", Value::None),
        ("time_discovered_completed_ns", Value::None),
        ("retired", Value::Bool(ended)),
        ("timeout_ms", Value::number(0)),
        ("is_p2p", Value::Bool(false)),
        ("frames", Value::List(frames.iter().map(frame).collect())),
    ]))
}
