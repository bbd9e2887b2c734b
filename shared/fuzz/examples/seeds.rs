//! Writes seed inputs for the fuzzers. corpus/decode gets the frames of a simulated job, and of the
//! recordings or captures named on the command line. corpus/receive gets bytes that ZMTP peers send.

use std::{env, error::Error, fs, path::Path};

use xpu_simulation::Simulation;
use xpu_wire::{codec, collective::Operation, datatype::DataType, frame::{Body, CollectiveTotals, Frame, GemmTotals, RankDetail, Summary}, gemm::{ComputeType, GemmShape, Routine}, histogram::Histogram, id::CommunicatorId, unit::Nanoseconds, zmtp};
use xpu_recording::Recording;

fn main() -> Result<(), Box<dyn Error>> {
    peers()?;
    let simulation = Simulation::new(7, 1, 2);
    let folder = "corpus/decode";
    fs::create_dir_all(folder)?;
    for second in 0..8 {
        let mut frames = [simulation.snapshots(second), simulation.digests(second)].concat();
        frames.extend(detail(&frames[0]));
        let row: Vec<u8> = frames.iter().flat_map(|frame| seed(&codec::encode(frame))).collect();
        fs::write(format!("{folder}/second-{second}"), row)?;
    }
    for (number, path) in env::args_os().skip(1).enumerate() {
        let mut recording = Recording::open_file(Path::new(&path))?;
        for (place, entry) in recording.entries().to_vec().iter().enumerate() {
            let Some(block) = recording.block(entry)? else { continue };
            let row: Vec<u8> = block.records().flat_map(|record| seed(record.frame)).collect();
            fs::write(format!("{folder}/recording-{number}-{place}"), row)?;
        }
    }
    Ok(())
}

/// Writes seeds in the target's input format: whether the handshake is over, then the incoming bytes.
fn peers() -> Result<(), Box<dyn Error>> {
    let folder = "corpus/receive";
    fs::create_dir_all(folder)?;
    let greeting = zmtp::Dealer::new(0).unsent().to_vec();
    let ready = b"\x04\x26\x05READY\x0bSocket-Type\0\0\0\x06ROUTER\x08Identity\0\0\0\0";
    let traffic = b"\0\x05short\x04\x0a\x04PING\0\x14abc\x02\0\0\0\0\0\0\0\x04long\x01\x04part\0\x04last\x04\x05\x04PONG";
    let refusal = b"\x04\x0a\x05ERROR\x03400";
    fs::write(format!("{folder}/from-the-start"), [b"\0", &greeting[..], ready, traffic].concat())?;
    fs::write(format!("{folder}/traffic"), [b"\x01", &traffic[..]].concat())?;
    fs::write(format!("{folder}/refusal"), [b"\0", &greeting[..], refusal].concat())?;
    Ok(())
}

/// The detail frame that a viewer of the first rank receives.
fn detail(snapshot: &Frame) -> Option<Frame> {
    let Body::Snapshot(host) = &snapshot.body else { return None };
    let job = host.jobs.first()?;
    let rank = job.ranks.first()?;
    let mut durations = Histogram::new();
    (1..50).for_each(|n| durations.record(Nanoseconds(n * 20_000)));
    let shape = GemmShape {
        m: 4096,
        n: 4096,
        k: 4096,
        batch: 1,
        datatype: DataType::Bfloat16,
        compute: ComputeType::Float32,
        transposed: (false, true),
        routine: Routine::Gemm,
    };
    let (count, timed, timed_for) = (800, 49, Nanoseconds(24_500_000));
    let summary = Summary {
        gemms: vec![GemmTotals { shape, count, timed, timed_for, durations: durations.clone() }],
        collectives: vec![CollectiveTotals {
            communicator: CommunicatorId(7),
            operation: Operation::AllReduce,
            datatype: DataType::Bfloat16,
            bytes: 1 << 26,
            count,
            timed,
            timed_for,
            durations,
        }],
        communicators: rank.digest.communicators.clone(),
        samples: rank.digest.samples.clone(),
        ..Summary::default()
    };
    let body = Body::Detail(RankDetail { job: job.job.clone(), rank: rank.info.rank, summary });
    Some(Frame { body, ..snapshot.clone() })
}

/// Writes seeds in the target's input format: kind, length of the payload, payload.
fn seed(bytes: &[u8]) -> Vec<u8> {
    let payload = &bytes[codec::HEADER..];
    let length = u16::try_from(payload.len()).unwrap_or(u16::MAX).to_le_bytes();
    [&bytes[6..7], &length, payload].concat()
}
