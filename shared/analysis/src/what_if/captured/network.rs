//! The operations of all stages and their dependencies, and their durations.
//!
//! Before each launch of a stage there is its compute: one operation, or a forward and a backward. A
//! collective is one operation. A group of sends and receives is one operation for each, which begin together,
//! and one that waits for all of them and takes no time: what waits for the group waits for that one, because
//! groups may be large.

use super::{
    Durations, Graph, Group, Kind, Meets, Operation, Refusal, Shape,
    cut::Cut,
    launches::{Hop, LaunchIndex},
    link::{Ends, Link},
    phase::{Phase, Phases, phases},
    track::Tracks,
    wait::{Waits, waits},
};

/// A message may have been sent before its receive began, into a buffer, if in some step its send ended more
/// than this many seconds earlier. Aligned clocks differ by less.
const BUFFERED: f64 = 1e-3;

/// The operations of a launch, and of the compute before it.
#[derive(Clone, Debug, Default)]
struct Place {
    compute: Vec<usize>,
    launch: Vec<usize>,
    /// The end of all operations of the launch.
    done: usize,
}

pub(super) struct Network {
    operations: Vec<Operation>,
    after: Vec<Vec<usize>>,
    groups: Vec<Group>,
    /// For each stage and launch.
    places: Vec<Vec<Place>>,
    phases: Phases,
    met: Vec<Met>,
    /// For each operation of a launch, with which others it ends.
    of_launch: Vec<Option<Member>>,
}

/// One of the launches that end together.
#[derive(Clone, Copy, Debug)]
struct Member {
    /// Index in [`Network::met`].
    met: usize,
    /// Its number among them: for a message, 0 is the send and 1 the receive.
    number: usize,
}

/// Launches that end together, or the send and the receive of a buffered message.
#[derive(Clone, Debug)]
struct Met {
    meets: Meets,
    /// When the last of them began, in each place.
    last_begin: Vec<f64>,
    /// When the first of them ended, in each place.
    first_end: Vec<f64>,
    /// When a message was sent, in each place.
    sent: Vec<f64>,
    /// Whether it is one of several messages of a launch on one of the ranks: then the end of the launch may be
    /// that of another message.
    is_of_several: bool,
    /// Whether the message is buffered: then only the receive waits for the send.
    is_buffered: bool,
}

impl Network {
    pub(super) fn of(tracks: &Tracks) -> Result<Self, Refusal> {
        let phases: Phases = if tracks.stages.is_pipeline() {
            phases(&tracks.names, &tracks.cuts)?
        } else {
            vec![vec![vec![Phase::OTHER]; tracks.names[0].len()]]
        };
        let mut new = Self {
            operations: Vec::new(),
            after: Vec::new(),
            groups: Vec::new(),
            places: Vec::new(),
            phases,
            met: Vec::new(),
            of_launch: Vec::new(),
        };
        for (stage, names) in tracks.names.iter().enumerate() {
            let mut places = Vec::with_capacity(names.len());
            for (k, name) in names.iter().enumerate() {
                let mut place = Place::default();
                for part in 0..new.phases[stage][k].len() {
                    let Phase { kind, number, share, .. } = new.phases[stage][k][part];
                    place.compute.push(new.add(stage, kind, number, share));
                }
                let hops = name.messages();
                if hops.is_empty() {
                    place.launch.push(new.add(stage, Kind::Communication, 0, 1.0));
                }
                place.launch.extend(hops.iter().map(|hop| new.add(stage, kind(*hop), 0, 1.0)));
                place.done = place.launch[0];
                if hops.len() > 1 {
                    place.done = new.add(stage, Kind::Compute, 0, 1.0);
                    new.after[place.done].clone_from(&place.launch);
                }
                places.push(place);
            }
            new.places.push(places);
            new.connect(stage, &waits(names, &tracks.cuts[stage]));
        }
        new.of_launch.resize(new.operations.len(), None);
        for link in &tracks.links {
            new.link(link, &tracks.cuts, tracks.stages.replicas());
        }
        Ok(new)
    }

    fn add(&mut self, stage: usize, kind: Kind, number: usize, share: f64) -> usize {
        let index = self.operations.len();
        // The compute and the messages of all stages do the same work; other operations only that of their
        // place in the step.
        let of_pipelines = Kind::OF_TRACES.iter().position(|known| *known == kind);
        let class = of_pipelines.unwrap_or(Kind::OF_TRACES.len() + index);
        self.operations.push(Operation { kind, stage, class, number, share });
        self.after.push(Vec::new());
        index
    }

    fn connect(&mut self, stage: usize, waits: &[Waits]) {
        let places = &self.places[stage];
        for (k, (place, waits)) in places.iter().zip(waits).enumerate() {
            let launches = |all: &[usize]| all.iter().map(|j| places[*j].done).collect::<Vec<_>>();
            let mut before = k.checked_sub(1).and_then(|before| places[before].compute.last()).copied();
            for (part, index) in place.compute.iter().enumerate() {
                self.after[*index].extend(before);
                if part == 0 {
                    self.after[*index].extend(launches(&waits.compute));
                }
                before = Some(*index);
            }
            let compute = waits.launch_for_compute.and_then(|i| places[i].compute.last());
            for index in &place.launch {
                self.after[*index].extend(compute);
                self.after[*index].extend(launches(&waits.launch));
            }
        }
    }

    fn place(&self, launch: LaunchIndex) -> &Place {
        &self.places[launch.stage][launch.at]
    }

    fn link(&mut self, link: &Link, cuts: &[Vec<Cut>], replicas: usize) {
        let launches = |at: usize| {
            let LaunchIndex { stage, at } = link.members[at];
            cuts[stage].iter().map(move |cut| cut.launches[at])
        };
        let (indices, meets): (Vec<usize>, _) = match &link.ends {
            Ends::Collective(meets) => {
                let of = |member: &LaunchIndex| self.place(*member).launch[0];
                (link.members.iter().map(of).collect(), meets.clone())
            }
            Ends::Message { of_send, of_receive } => {
                let places = link.members.iter().zip([*of_send, *of_receive]);
                let of = |(member, place): (&LaunchIndex, usize)| self.place(*member).launch[place];
                (places.map(of).collect(), Meets::Itself)
            }
        };
        let is_message = matches!(link.ends, Ends::Message { .. });
        let is_buffered =
            is_message && launches(0).zip(launches(1)).any(|(send, receive)| send.1 + BUFFERED < receive.0);
        let is_of_several =
            is_message && link.members.iter().any(|member| self.place(*member).launch.len() > 1);
        let mut last_begin: Vec<f64> = launches(0).map(|(begin, _)| begin).collect();
        let mut first_end: Vec<f64> = launches(0).map(|(_, end)| end).collect();
        for member in 1..link.members.len() {
            let known = last_begin.iter_mut().zip(&mut first_end);
            for ((last_begin, first_end), (begin, end)) in known.zip(launches(member)) {
                (*last_begin, *first_end) = (last_begin.max(begin), first_end.min(end));
            }
        }
        last_begin.chunks_mut(replicas).for_each(|step| meets.wait_for_the_last(step));
        for (number, index) in indices.iter().enumerate() {
            self.of_launch[*index] = Some(Member { met: self.met.len(), number });
        }
        let sent = if is_buffered { launches(0).map(|(_, end)| end).collect() } else { Vec::new() };
        self.met.push(Met { meets: meets.clone(), last_begin, first_end, sent, is_of_several, is_buffered });
        if is_buffered {
            self.after[indices[1]].push(indices[0]);
        } else {
            self.groups.push(Group { members: indices, meets });
        }
    }

    /// Of each launch, the ranks that it makes wait for each other, if there is one stage.
    pub(super) fn meets(&self) -> Vec<Meets> {
        let of =
            |place: &Place| self.of_launch[place.launch[0]].map(|member| self.met[member.met].meets.clone());
        self.places[0].iter().map(|place| of(place).unwrap_or(Meets::Itself)).collect()
    }

    pub(super) fn durations(&self, tracks: &Tracks, shape: Shape) -> Durations {
        let mut measured = Measured {
            network: self,
            tracks,
            shape,
            durations: Durations::zero(self.operations.len(), shape),
            ends: vec![0.0; self.operations.len() * shape.row()],
        };
        for (stage, places) in self.places.iter().enumerate() {
            for (at, place) in places.iter().enumerate() {
                let launch = LaunchIndex { stage, at };
                measured.compute(launch, place);
                for index in &place.launch {
                    measured.launch(launch, *index);
                }
                if place.launch.len() > 1 {
                    measured.done(place.done);
                }
            }
        }
        measured.durations
    }

    pub(super) fn graph(self) -> Result<Graph, Refusal> {
        Graph::new(self.operations, self.after, self.groups)
    }
}

/// The durations, as far as they are known.
struct Measured<'a> {
    network: &'a Network,
    tracks: &'a Tracks,
    shape: Shape,
    durations: Durations,
    /// End times of the operations handled so far.
    ends: Vec<f64>,
}

impl Measured<'_> {
    /// When the operations of the same rank for which this one waits have ended.
    fn ready(&self, index: usize, place: usize) -> f64 {
        let Network { operations, after, .. } = self.network;
        let own = after[index].iter().filter(|before| operations[**before].stage == operations[index].stage);
        own.map(|before| self.ends[before * self.shape.row() + place]).fold(0.0, f64::max)
    }

    /// The end of all operations of a launch.
    fn done(&mut self, index: usize) {
        for place in 0..self.shape.row() {
            self.ends[index * self.shape.row() + place] = self.ready(index, place);
        }
    }

    /// The compute before a launch.
    fn compute(&mut self, LaunchIndex { stage, at }: LaunchIndex, operations: &Place) {
        let phases = &self.network.phases[stage][at];
        let counted = phases.last().map_or(0, |last| last.until);
        for (place, cut) in self.tracks.cuts[stage].iter().enumerate() {
            for (part, (index, phase)) in operations.compute.iter().zip(phases).enumerate() {
                let ready = self.ready(*index, place);
                let end = if part + 1 == phases.len() {
                    cut.compute[at].map(|(_, end)| end)
                } else {
                    // Some of the operations may be untimed here.
                    let count = cut.parts[at].len() * phase.until / counted.max(1);
                    cut.parts[at][..count].iter().copied().reduce(f64::max)
                };
                let end = end.map_or(ready, |end| end.max(ready));
                let cell = index * self.shape.row() + place;
                self.durations.own[cell] = end - ready;
                self.ends[cell] = end;
            }
        }
    }

    /// One of the operations of a launch.
    fn launch(&mut self, LaunchIndex { stage, at }: LaunchIndex, index: usize) {
        let Some(Member { met, number }) = self.network.of_launch[index] else { return };
        let met = &self.network.met[met];
        for (place, cut) in self.tracks.cuts[stage].iter().enumerate() {
            let (begin, end) = cut.launches[at];
            let mut ready = self.ready(index, place);
            let transfer = match (met.is_buffered, number) {
                (false, _) if met.is_of_several => met.first_end[place] - met.last_begin[place],
                (false, _) => end - met.last_begin[place],
                (true, 0) => end - begin,
                (true, _) => {
                    ready = ready.max(met.sent[place]);
                    end - begin.max(met.sent[place])
                }
            };
            let cell = index * self.shape.row() + place;
            self.durations.own[cell] = (begin - ready).max(0.0);
            self.durations.transfer[cell] = transfer.max(0.0);
            self.ends[cell] = end;
        }
    }
}

/// The kind of a message.
fn kind(hop: Hop) -> Kind {
    match (hop.is_forward(), hop.is_send) {
        (true, true) => Kind::ForwardSend,
        (true, false) => Kind::ForwardRecv,
        (false, true) => Kind::BackwardSend,
        (false, false) => Kind::BackwardRecv,
    }
}
