//! Hung jobs of four ranks, with counts that agree between RAS and xpu-top, or do not.

use xpu_simulation::Simulation;
use xpu_wire::{
    collective::Operation::{self, AllGather, AllReduce},
    datatype::DataType,
    frame::{
        Body, CallState, CommunicatorState, Life, RankRecord, RasMissing, RecordedCall, RecordedCommunicator,
        example,
    },
    id::Pid,
    unit::{Moment, Nanoseconds},
};

use super::*;
use crate::job::{Jobs, RankView};

const ID: CommunicatorId = CommunicatorId(0x9ca7_92c9_0000_0001);

/// A communicator that xpu-top has not seen.
const UNWATCHED: CommunicatorId = CommunicatorId(0x1111_1111_0000_0000);

const RANKS: u32 = 4;

/// The last calls of one rank.
type Calls = Vec<(Operation, CallState)>;

struct Scene {
    report: RasReport,
    /// Calls before the recorded ones.
    before: u64,
    calls: Vec<Option<Calls>>,
    seconds: u64,
    dead: Option<u32>,
    speaks_of: Processes,
}

/// The processes that RAS names.
enum Processes {
    Ranks,
    Others,
    Unknown,
}

impl Scene {
    /// All ranks have launched 1,042 collectives; the last ten are recorded.
    fn new() -> Self {
        let all: Vec<_> = (0..RANKS).map(|rank| (rank, 1042)).collect();
        Self {
            report: example::ras(&all),
            before: 1032,
            calls: (0..RANKS).map(|_| Some(vec![(AllReduce, CallState::Enqueued); 10])).collect(),
            seconds: 8,
            dead: None,
            speaks_of: Processes::Ranks,
        }
    }

    fn launched(mut self, rank: usize, all_reduce: u64) -> Self {
        self.report.communicators[0].ranks[rank].launched.all_reduce = all_reduce;
        self
    }

    fn called(mut self, rank: usize, calls: Option<usize>) -> Self {
        self.calls[rank] = calls.map(|calls| vec![(AllReduce, CallState::Enqueued); calls]);
        self
    }

    fn witness(self) -> Witness {
        self.found().expect("an answer")
    }

    fn found(self) -> Option<Witness> {
        let simulation = Simulation::new(1, 1, RANKS);
        let mut jobs = Jobs::default();
        let name = simulation.job.clone();
        for second in 1..=self.seconds {
            for mut frame in simulation.digests(1) {
                frame.now = Moment(second * 1_000_000_000);
                let Body::Digest(host) = &mut frame.body else { unreachable!() };
                for digest in &mut host.ranks {
                    let recorded = self.calls[digest.rank.0 as usize].as_ref().map_or(10, Vec::len) as u64;
                    digest.heard = frame.now;
                    digest.life = if self.dead == Some(digest.rank.0) { Life::Died } else { Life::Alive };
                    digest.communicators = vec![state(digest.rank.0, self.before + recorded)];
                    digest.samples.clear();
                }
                jobs.fold(&frame);
            }
        }
        let (host, now) = (simulation.host(0), Moment(self.seconds * 1_000_000_000));
        let pid = |rank: u32| jobs.get(&name).and_then(|job| job.rank(Rank(rank))).map(RankView::pid);
        let records: Vec<_> = (0..RANKS)
            .filter_map(|rank| {
                let calls = self.calls[rank as usize].as_ref()?;
                let made = self.before + calls.len() as u64;
                let calls = (self.before..).zip(calls).map(|(number, &(of, state))| call(number, of, state));
                let unread = RankRecord::unread(name.clone(), Rank(rank), pid(rank)?, String::new());
                let communicators = vec![recorded(rank)];
                Some(RankRecord { read_at: now, made, communicators, calls: calls.collect(), ..unread })
            })
            .collect();
        let mut report = RasReport { job: name.clone(), ..self.report };
        for one in report.communicators.iter_mut().flat_map(|one| &mut one.ranks) {
            one.pid = match self.speaks_of {
                Processes::Ranks => pid(one.member),
                Processes::Others => Some(Pid(1)),
                Processes::Unknown => None,
            };
        }
        for body in records.into_iter().map(Body::Record).chain([Body::Ras(report)]) {
            jobs.fold(&xpu_wire::frame::Frame { host: host.clone(), number: 0, now, lost: 0, body });
        }
        Witness::of(jobs.get(&name).unwrap())
    }

    fn reported(self) -> (Verdict, Vec<String>) {
        let witness = self.witness();
        (witness.verdict, witness.statements.iter().map(Statement::sentence).collect())
    }
}

fn state(rank: u32, enqueued: u64) -> CommunicatorState {
    CommunicatorState {
        id: ID,
        parent: None,
        name: "tp".to_owned(),
        rank,
        size: RANKS,
        entered: enqueued,
        enqueued,
        completed: 1030,
        last_operation: Some(AllReduce),
        last_bytes: 4,
    }
}

fn recorded(member: u32) -> RecordedCommunicator {
    RecordedCommunicator { id: ID, name: "tp".to_owned(), member, size: RANKS, closed: false }
}

fn call(number: u64, operation: Operation, state: CallState) -> RecordedCall {
    RecordedCall {
        order: number,
        communicator: 0,
        number: Some(number),
        operation,
        datatype: DataType::Float32,
        reduction: Some(0),
        peer: None,
        bytes: 4,
        replays: 0,
        group: None,
        stream: 1,
        entered: Moment(1),
        state,
        site: None,
    }
}

#[test]
fn ras_and_xpu_top_agree_on_the_rank_that_launched_less() {
    assert_eq!(
        Scene::new().launched(3, 1041).called(3, Some(9)).reported(),
        (Verdict::Agrees, vec![
            "RAS: rank 3 has launched 1,041 AllReduces on communicator 9ca792c9 (tp), the others 1,042; xpu-top: the same"
                .to_owned()
        ])
    );
    let named = Scene::new().launched(3, 1041).called(3, Some(9)).witness().statements.remove(0);
    assert_eq!((named.ranks, named.communicator.as_str()), (vec![Rank(3)], "9ca792c9"));
    let all_alike = Scene::new().reported();
    let same = "RAS: all ranks have launched the same collectives; xpu-top: the same";
    assert_eq!(all_alike, (Verdict::Agrees, vec![same.to_owned()]));
}

#[test]
fn differing_counts_are_both_shown() {
    // RAS's snapshot is not atomic, and its counts may be wrong, as may those of xpu-top.
    let (verdict, shown) = Scene::new().launched(3, 1041).called(1, Some(9)).reported();
    assert_eq!(verdict, Verdict::Differs);
    assert_eq!(
        shown[0],
        "RAS: rank 3 has launched 1,041 AllReduces on communicator 9ca792c9 (tp), the others 1,042; xpu-top: rank 1 is 1 behind"
    );
    let (verdict, shown) = Scene::new().called(1, Some(9)).reported();
    assert_eq!((verdict, shown.len()), (Verdict::Differs, 1), "{shown:?}");
    assert_eq!(
        shown[0],
        "RAS: all ranks have launched 1,042 AllReduces on communicator 9ca792c9 (tp); xpu-top: rank 1 is 1 behind"
    );
    let (verdict, shown) = Scene::new().launched(3, 1041).reported();
    assert!(verdict == Verdict::Differs && shown[0].ends_with("all ranks have the same number"), "{shown:?}");
}

#[test]
fn collectives_are_compared_by_operation() {
    let mut scene = Scene::new().launched(3, 1041);
    scene.report.communicators[0].ranks[3].launched.all_gather = 1;
    scene.calls[3].as_mut().unwrap()[9].0 = AllGather;
    let (verdict, shown) = scene.reported();
    assert_eq!(verdict, Verdict::Agrees, "{shown:?}");
    assert_eq!(
        shown[1],
        "RAS: rank 3 has launched 1 AllGather on communicator 9ca792c9 (tp), the others 0; xpu-top: the same"
    );
}

#[test]
fn calls_that_nccl_has_not_launched_count_for_neither() {
    let mut scene = Scene::new().launched(3, 1041);
    scene.calls[3].as_mut().unwrap()[9].1 = CallState::Entered;
    assert_eq!(scene.witness().verdict, Verdict::Agrees);
}

#[test]
fn without_a_record_the_ledgers_decide() {
    let lacks = |scene: Scene| scene.called(0, None);
    let (verdict, shown) = lacks(Scene::new().launched(3, 1041).called(3, Some(9))).reported();
    assert_eq!(verdict, Verdict::Agrees, "{shown:?}");
    let (verdict, shown) = lacks(Scene::new().called(3, Some(9))).reported();
    assert_eq!(verdict, Verdict::Differs);
    assert_eq!(
        shown[0],
        "RAS: all ranks have launched the same on communicator 9ca792c9 (tp); xpu-top: rank 3 is 1 behind"
    );
}

#[test]
fn ledgers_that_count_more_on_some_ranks_do_not_contradict_ras() {
    // Rank 3 has not entered an AlltoAll, which RAS leaves out; the record of rank 0 is missing.
    let of = |count: u64| {
        let scene = (0..4).fold(Scene::new(), |scene, rank| scene.launched(rank, count));
        scene.called(0, None).called(3, Some(9)).reported()
    };
    let behind = "RAS: all ranks have launched the same on communicator 9ca792c9 (tp); xpu-top: rank 3 is 1 behind, counting all kinds of collectives";
    assert_eq!(of(1041), (Verdict::NotComparable, vec![behind.to_owned()]));
    let (verdict, shown) = of(1000);
    assert_eq!((verdict, shown[0].as_str()), (Verdict::NotComparable, behind));
    assert!(shown[1].starts_with("RAS: 41 to 42 collectives fewer"), "{shown:?}");
    // The ledger of rank 3 lacks one that RAS has counted.
    assert_eq!(of(1042).0, Verdict::Differs);
}

#[test]
fn without_own_counts_ras_is_not_judged() {
    let alike = "RAS: all ranks have launched the same collectives";
    let mut scene = Scene::new();
    // Member 4 is on a host that is not watched.
    scene.report = example::ras(&(0..5).map(|rank| (rank, 1042)).collect::<Vec<_>>());
    assert_eq!(scene.reported(), (Verdict::NotComparable, vec![alike.to_owned()]));
    let with = |change: fn(&mut RasCommunicator)| {
        let mut scene = Scene::new();
        let mut second = scene.report.communicators[0].clone();
        change(&mut second);
        scene.report.communicators.push(second);
        scene.reported()
    };
    let each = "RAS: all ranks of each of 2 communicators have launched the same collectives";
    let not_compared = (Verdict::NotComparable, vec![each.to_owned()]);
    assert_eq!(with(|_| {}), not_compared, "of two with one hash it is not known which is which");
    assert_eq!(with(|one| one.id = UNWATCHED), not_compared);
    let of_one_rank = with(|one| {
        one.id = UNWATCHED;
        one.ranks.truncate(1);
    });
    assert_eq!(of_one_rank, (Verdict::Agrees, vec![format!("{alike}; xpu-top: the same")]));
}

#[test]
fn counts_that_ras_leaves_out_on_all_ranks_are_no_contradiction() {
    let scene = (0..4).fold(Scene::new(), |scene, rank| scene.launched(rank, 1000));
    let (verdict, shown) = scene.reported();
    assert_eq!(verdict, Verdict::Agrees, "{shown:?}");
    assert!(shown[1].starts_with("RAS: 42 collectives fewer than xpu-top counts on"), "{shown:?}");
}

#[test]
fn a_job_that_makes_progress_is_not_judged() {
    let mut scene = Scene::new().launched(3, 1041);
    scene.seconds = 2;
    let (verdict, shown) = scene.reported();
    assert_eq!(verdict, Verdict::NotComparable);
    assert!(!shown[0].contains("xpu-top:") && shown[1].contains("the job makes progress"), "{shown:?}");
}

#[test]
fn missing_ranks_errors_and_aborts_are_reported() {
    let mut scene = Scene::new();
    let one = &mut scene.report.communicators[0];
    one.ranks.truncate(3);
    one.ranks[1].async_error = 6;
    one.ranks[2].aborted = true;
    one.missing = vec![RasMissing { member: 3, pid: None, unresponsive: true, considered_dead: true }];
    let (verdict, shown) = scene.reported();
    assert_eq!(verdict, Verdict::Differs);
    for said in [
        "RAS: no data of rank 3 on communicator 9ca792c9 (tp): considered dead; xpu-top: its process lives",
        "RAS: rank 1 reported ncclRemoteError on communicator 9ca792c9 (tp)",
        "RAS: rank 2 aborted communicator 9ca792c9 (tp)",
    ] {
        assert!(shown.iter().any(|one| one == said), "{said}: {shown:#?}");
    }
    assert!(shown[0].contains("considered dead"), "a difference comes first");
    let mut scene = Scene::new();
    let one = &mut scene.report.communicators[0];
    one.ranks.truncate(3);
    one.missing = vec![RasMissing { member: 3, pid: None, unresponsive: true, considered_dead: false }];
    scene.dead = Some(3);
    let (verdict, shown) = scene.reported();
    assert_eq!(verdict, Verdict::Agrees);
    assert!(shown.iter().any(|one| one.ends_with("xpu-top: it has ended")), "{shown:#?}");
}

#[test]
fn a_communicator_that_only_one_side_knows_is_named() {
    let mut scene = Scene::new();
    scene.report.communicators[0].id = UNWATCHED;
    scene.report.communicators[0].ranks[0].launched.all_reduce = 7;
    let (verdict, shown) = scene.reported();
    assert_eq!(verdict, Verdict::Differs);
    assert_eq!(shown[0], "RAS: it does not name communicator 9ca792c9 (tp); xpu-top: ranks 0-3 use it");
    assert_eq!(
        shown[1],
        "RAS: member 0 has launched 7 AllReduces on communicator 11111111, the others 1,042"
    );
}

#[test]
fn a_missing_answer_has_its_reason() {
    let mut scene = Scene::new();
    scene.report = RasReport::unanswered("j".into(), "RAS is off".to_owned());
    assert_eq!(scene.reported(), (Verdict::NoAnswer, vec!["RAS: no answer: RAS is off".to_owned()]));
    let mut scene = Scene::new();
    (scene.report.timeouts, scene.report.took) = (2, Nanoseconds(5));
    assert!(scene.reported().1.iter().any(|one| one == "RAS: it timed out 2 times waiting for data"));
}

#[test]
fn an_answer_about_another_run_is_ignored() {
    let mut scene = Scene::new();
    scene.speaks_of = Processes::Others;
    assert_eq!(scene.found(), None);
    let mut scene = Scene::new();
    scene.speaks_of = Processes::Unknown;
    assert!(scene.found().is_some(), "without process numbers it is not known to be another");
}
