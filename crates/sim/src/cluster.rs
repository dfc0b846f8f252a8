//! The virtual cluster: whose turn it is, and what it does then.
//!
//! A request's way, each arrow an event:
//!
//! ```text
//! client: an operation, cut into pieces ─▶ I/O node: scheduler ─▶ data server: scheduler ─▶ device
//! client: all pieces are back           ◀─ I/O node            ◀─ data server             ◀─┘
//! ```
//!
//! Without I/O nodes clients talk to the servers, where there are *relays* through one of them: requests pass it, answers
//! do not. *Pieces* are what clients send: never across a stripe, never larger than
//! a transmission. A *flight* is a batch that a dispatcher of an I/O node has under way, as one or more *messages* to
//! servers. A *job* is a batch that a device has. All of them are in slabs, so a run at a steady pace allocates nothing of
//! its own.

use crate::agenda::{Agenda, What};
use crate::desk::{Desk, NEVER, Taken};
use crate::intake::Gate;
use crate::layout::Layout;
use crate::network::{End, Network};
use crate::random::Random;
use crate::report::{AppReport, DeviceReport, LevelReport, Report};
use crate::scenario::{ForesightPlan, Intake, PolicyChoice, Scenario, Scheduling};
use crate::slab::Slab;
use crate::steering::{Change, Place, Seen, Steering};
use crate::workload::{Operation, Replay, Work};
use crate::{Failed, Foreseen};
use presagio_core::{
    AppId, FileId, HandleId, Histogram, Nanos, Op, QueueId, Range, Request, RequestId,
};
use presagio_device::Device;
use presagio_sched::{Batch, PolicyKind, Ticket};
use std::collections::VecDeque;

/// What happens, as numbers of events.
mod kind {
    pub const BEGIN: u32 = 0;
    pub const AT_NODE: u32 = 1;
    pub const AT_SERVER: u32 = 2;
    pub const SERVED: u32 = 3;
    pub const BACK_AT_NODE: u32 = 4;
    pub const BACK_AT_CLIENT: u32 = 5;
    pub const WAKE_NODE: u32 = 6;
    pub const WAKE_SERVER: u32 = 7;
    pub const PERIOD: u32 = 8;
    pub const CHANGE: u32 = 9;
    pub const AT_RELAY: u32 = 10;
    pub const HANDLED: u32 = 11;
    pub const DUE: u32 = 12;
}

/// No more in a list.
const END: u32 = u32::MAX;

/// A process.
#[derive(Debug)]
struct Client {
    app: u32,
    rank: u32,
    machine: u32,
    node: u32,
    issued: u64,
    total: u64,
    under_way: u32,
    /// The number of the request before which it has thought already.
    thought: u64,
}

/// An operation that a process waits for.
#[derive(Debug)]
struct Asked {
    client: u32,
    pieces: u32,
    since: u64,
}

/// What travels between a client and an I/O node, or a server.
#[derive(Debug)]
struct Piece {
    asked: u32,
    file: u32,
    offset: u64,
    len: u32,
    /// The next of its flight.
    next: u32,
    op: Op,
    ticket: Option<Ticket>,
}

/// A batch that a dispatcher waits for.
#[derive(Debug)]
struct Flight {
    node: u32,
    first: u32,
    messages: u32,
}

/// What a server is asked for.
#[derive(Debug)]
struct Message {
    server: u32,
    file: u32,
    start: u64,
    len: u32,
    /// The flight, or the piece where there are no I/O nodes.
    origin: u32,
    /// The next of its job.
    next: u32,
    app: u32,
    op: Op,
    ticket: Option<Ticket>,
}

/// A batch that a device has.
#[derive(Debug)]
struct Job {
    server: u32,
    first: u32,
}

/// Where processes run.
#[derive(Debug)]
struct Machine {
    end: End,
    /// How many more pieces it may have under way, and those that wait for one of the others to be answered.
    slots: u32,
    waiting: VecDeque<(u32, u32)>,
}

impl Machine {
    fn new(slots: u32) -> Machine {
        Machine {
            end: End::default(),
            slots: if slots == 0 { u32::MAX } else { slots },
            waiting: VecDeque::new(),
        }
    }
}

#[derive(Debug)]
struct Node {
    end: End,
    desk: Desk,
    idle: u32,
}

struct Server {
    end: End,
    /// Where it has one: what messages wait at before they come to the desk.
    gate: Option<Gate>,
    desk: Desk,
    idle: u32,
    device: Box<dyn Device>,
    crowding: u64,
    /// Until when it has something to do, and how long it had.
    busy_until: u64,
    busy: u64,
}

/// A run under way.
pub(crate) struct Cluster<'a> {
    now: u64,
    agenda: Agenda,
    works: Vec<Work>,
    clients: Vec<Client>,
    running: usize,
    machines: Vec<Machine>,
    relays: Vec<End>,
    nodes: Vec<Node>,
    servers: Vec<Server>,
    network: Network,
    layout: Layout,
    transmission: u64,
    overhead: u64,
    /// What a server's thread takes for a message.
    handling: u64,
    skew: u64,
    random: Random,
    limit: u64,
    /// Where each file begins on every device.
    bases: Vec<u64>,
    asked: Slab<Asked>,
    pieces: Slab<Piece>,
    flights: Slab<Flight>,
    messages: Slab<Message>,
    jobs: Slab<Job>,
    apps: Vec<AppReport>,
    devices: DeviceReport,
    events: u64,
    steering: Option<&'a mut dyn Steering>,
    changes: Slab<Change>,
    foresight: ForesightPlan,
}

/// Space between two files on a device, so that they do not touch.
const GAP: u64 = 1 << 20;

impl<'a> Cluster<'a> {
    /// A cluster at rest. `scenario` has been checked.
    pub(crate) fn new(
        scenario: &Scenario,
        replays: Vec<Option<Replay>>,
        devices: Option<Vec<Box<dyn Device>>>,
        steering: Option<&'a mut dyn Steering>,
    ) -> Result<Cluster<'a>, Failed> {
        let works = Work::all(scenario, replays);
        let net = &scenario.network;
        let layout = Layout {
            stripe: scenario.servers.stripe.0,
            servers: scenario.servers.count,
            spread: scenario.servers.spread,
        };
        let network = Network::new(
            net.latency.0,
            net.jitter.0,
            net.header.0,
            net.bandwidth.0,
            scenario.seed,
        );
        let mut cluster = Cluster {
            now: 0,
            agenda: Agenda::default(),
            clients: Vec::new(),
            running: 0,
            machines: Vec::new(),
            relays: vec![
                End::new(scenario.relays.handlers, scenario.relays.handling.0);
                scenario.relays.count as usize
            ],
            nodes: Vec::new(),
            servers: Vec::new(),
            network,
            layout,
            transmission: match net.transmission.0 {
                0 => u64::MAX,
                most => most,
            },
            overhead: scenario.clients.overhead.0,
            handling: scenario.servers.handling.0,
            skew: scenario.clients.skew.0,
            random: Random::new(scenario.seed, 0),
            limit: scenario.limit.0,
            bases: bases(&works, layout),
            asked: Slab::default(),
            pieces: Slab::default(),
            flights: Slab::default(),
            messages: Slab::default(),
            jobs: Slab::default(),
            apps: app_reports(scenario),
            devices: DeviceReport::default(),
            events: 0,
            steering,
            changes: Slab::default(),
            foresight: scenario.foresight.clone(),
            works,
        };
        cluster.add_clients(scenario);
        cluster.add_nodes(scenario)?;
        cluster.add_servers(scenario, devices)?;
        Ok(cluster)
    }

    fn add_clients(&mut self, scenario: &Scenario) {
        let processes: u32 = self.works.iter().map(|work| work.processes).sum();
        let machines = match scenario.clients.machines {
            0 => processes.max(1),
            some => some,
        };
        self.machines = (0..machines)
            .map(|_| Machine::new(scenario.clients.slots))
            .collect();
        let nodes = u64::from(scenario.ionodes.count);
        for (app, work) in self.works.iter().enumerate() {
            for rank in 0..work.processes {
                // Neighbours share a machine, machines share an I/O node.
                let number = self.clients.len() as u64;
                let machine = number * u64::from(machines) / u64::from(processes);
                self.clients.push(Client {
                    app: app as u32,
                    rank,
                    machine: machine as u32,
                    node: (machine * nodes / u64::from(machines)) as u32,
                    issued: 0,
                    total: work.total(rank),
                    under_way: 0,
                    thought: 0,
                });
            }
        }
        self.running = self.clients.len();
        self.begin_after(None);
    }

    /// Lets those applications begin that waited for this one, or for none.
    fn begin_after(&mut self, done: Option<usize>) {
        for (number, client) in (0..).zip(&self.clients) {
            let work = &self.works[client.app as usize];
            if work.after == done {
                let begin = self.now + work.start + self.random.below(self.skew);
                self.agenda.add(begin, What::new(kind::BEGIN, number));
            }
        }
    }

    fn add_nodes(&mut self, scenario: &Scenario) -> Result<(), Failed> {
        let settings = &scenario.ionodes;
        for number in 0..settings.count {
            let files = self.files_of_node(number);
            self.nodes.push(Node {
                end: End::new(settings.handlers, settings.handling.0),
                desk: self.desk(scenario, &settings.scheduler, number, files)?,
                idle: settings.dispatchers,
            });
        }
        Ok(())
    }

    /// How many files the clients of an I/O node use.
    fn files_of_node(&self, node: u32) -> u64 {
        let clients = self.clients.iter().filter(|client| client.node == node);
        let mut files: Vec<std::ops::Range<u32>> = clients
            .map(|client| self.works[client.app as usize].files_of(client.rank))
            .collect();
        files.sort_unstable_by_key(|range| range.start);
        files.dedup();
        files
            .iter()
            .map(|range| u64::from(range.end - range.start))
            .sum()
    }

    fn add_servers(
        &mut self,
        scenario: &Scenario,
        devices: Option<Vec<Box<dyn Device>>>,
    ) -> Result<(), Failed> {
        let settings = &scenario.servers;
        let mut given = devices.into_iter().flatten();
        for number in 0..settings.count {
            let device = match given.next() {
                Some(device) => device,
                None => settings.device.device().map_err(Failed::Device)?,
            };
            let files = self.bases.len() as u64;
            let gate = (settings.intake == Intake::Closed).then(Gate::default);
            // Who waits at a gate is handled behind it, when its turn comes.
            let handling = if gate.is_some() {
                0
            } else {
                settings.handling.0
            };
            self.servers.push(Server {
                end: End::new(settings.handlers, handling),
                gate,
                desk: self.desk(scenario, &settings.scheduler, number, files)?,
                idle: settings.workers,
                device,
                crowding: settings.crowding.0,
                busy_until: 0,
                busy: 0,
            });
        }
        Ok(())
    }

    fn desk(
        &self,
        scenario: &Scenario,
        scheduling: &Scheduling,
        number: u32,
        files: u64,
    ) -> Result<Desk, Failed> {
        // A queue for each server (TWINS) or each application (WFQ), whichever policy comes.
        let queues = scenario.servers.count.max(scenario.apps.len() as u32);
        let mut settings = scheduling.settings(queues, number);
        if let Some(settings) = &mut settings {
            scenario.foresight.hold_in(settings);
        }
        let cpu = match scheduling.policy {
            PolicyChoice::None => crate::Cpu::None,
            PolicyChoice::Policy(_) | PolicyChoice::Auto | PolicyChoice::Adaptive => scheduling.cpu,
        };
        Ok(Desk::new(settings, cpu, files)?)
    }

    /// Gives schedulers other settings, before anything has happened.
    pub(crate) fn begin_with(&mut self, changes: Vec<Change>) -> Result<(), Failed> {
        for change in changes {
            self.change_desk(change)?;
        }
        Ok(())
    }

    /// Gives a scheduler other settings; what the scenario says of foresight holds in them, too.
    fn change_desk(&mut self, change: Change) -> Result<(), Failed> {
        let mut settings = change.settings;
        if let Some(settings) = &mut settings {
            self.foresight.hold_in(settings);
        }
        let now = self.now;
        if let Some(desk) = self.desk_of(change.place) {
            desk.change(settings, now)?;
        }
        Ok(())
    }

    /// Tells a scheduler what is going to be asked.
    pub(crate) fn foresee(&mut self, foreseen: &Foreseen) {
        for (place, predicted) in &foreseen.requests {
            if let Some(scheduler) = self.desk_of(*place).and_then(Desk::scheduler) {
                scheduler.foresee(*predicted);
            }
        }
        let desks = self.nodes.iter_mut().map(|node| &mut node.desk);
        let desks = desks.chain(self.servers.iter_mut().map(|server| &mut server.desk));
        for scheduler in desks.filter_map(Desk::scheduler) {
            scheduler.set_service_time(foreseen.service_time.clone());
        }
    }

    fn desk_of(&mut self, place: Place) -> Option<&mut Desk> {
        match place {
            Place::IoNode(node) => self.nodes.get_mut(node as usize).map(|n| &mut n.desk),
            Place::Server(server) => self.servers.get_mut(server as usize).map(|s| &mut s.desk),
        }
    }

    /// Lets everything happen until every process is done.
    pub(crate) fn run(mut self) -> Result<Report, Failed> {
        if let Some(steering) = &self.steering {
            let period = steering.period().0.max(1);
            self.agenda.add(period, What::new(kind::PERIOD, 0));
        }
        while self.running > 0 {
            let Some((moment, what)) = self.agenda.next() else {
                return Err(Failed::Stuck {
                    at: Nanos(self.now),
                    waiting: self.running,
                });
            };
            if moment > self.limit {
                return Err(Failed::TooLong(Nanos(self.limit)));
            }
            self.now = moment;
            self.events += 1;
            self.happen(what)?;
        }
        Ok(self.report())
    }

    #[inline]
    fn happen(&mut self, what: What) -> Result<(), Failed> {
        let number = what.number();
        match what.kind() {
            kind::BEGIN => self.advance(number),
            kind::AT_NODE => self.at_node(number),
            kind::AT_SERVER => self.at_server(number),
            kind::SERVED => self.served(number),
            kind::BACK_AT_NODE => self.back_at_node(number),
            kind::BACK_AT_CLIENT => self.back_at_client(number),
            kind::WAKE_NODE => self.wake_node(number),
            kind::WAKE_SERVER => self.wake_server(number),
            kind::PERIOD => {
                self.decide();
                let period = self.steering.as_ref().map(|it| it.period());
                let next = self
                    .now
                    .saturating_add(period.unwrap_or(Nanos::MAX).0.max(1));
                self.agenda.add(next, What::new(kind::PERIOD, 0));
            }
            kind::DUE => self.decide(),
            kind::AT_RELAY => self.at_relay(number),
            kind::HANDLED => self.handled(number),
            kind::CHANGE => self.change(number)?,
            _ => return Err(Failed::TooMany),
        }
        Ok(())
    }

    // ── Clients ──────────────────────────────────────────────────────────────────────────────────────────────────

    /// Lets a process make the requests that it may make now.
    fn advance(&mut self, number: u32) {
        loop {
            let client = &mut self.clients[number as usize];
            let work = &self.works[client.app as usize];
            let begin = self.apps[client.app as usize].begin.0;
            let walled = work.stonewall > 0 && self.now >= begin.saturating_add(work.stonewall);
            if client.issued == client.total || walled {
                if client.under_way == 0 {
                    self.client_done(number);
                }
                return;
            }
            if client.under_way >= work.depth {
                return;
            }
            let think = work.think(client.rank, client.issued);
            if think > 0 && client.thought < client.issued + 1 {
                // It rests when all answers are there; the last of them comes back here.
                if client.under_way == 0 {
                    client.thought = client.issued + 1;
                    let rested = self.now + think;
                    self.agenda.add(rested, What::new(kind::BEGIN, number));
                }
                return;
            }
            let operation = work.operation(client.rank, client.issued);
            client.issued += 1;
            if operation.len > 0 {
                client.under_way += 1;
                self.ask(number, operation);
            }
        }
    }

    fn client_done(&mut self, number: u32) {
        self.running -= 1;
        let number = self.clients[number as usize].app as usize;
        let app = &mut self.apps[number];
        app.end = app.end.max(Nanos(self.now));
        app.first_done = app.first_done.min(Nanos(self.now));
        self.works[number].running -= 1;
        if self.works[number].running == 0 {
            self.begin_after(Some(number));
        }
    }

    /// Sends the pieces of an operation.
    fn ask(&mut self, number: u32, operation: Operation) {
        let since = self.now + self.overhead;
        let report = &mut self.apps[self.clients[number as usize].app as usize];
        report.operations += 1;
        report.bytes += operation.len;
        report.begin = report.begin.min(Nanos(self.now));
        let asked = self.asked.insert(Asked {
            client: number,
            pieces: 0,
            since,
        });
        let cut = self
            .layout
            .pieces(operation.offset, operation.len, self.transmission);
        for (offset, len) in cut {
            self.asked[asked].pieces += 1;
            let piece = self.pieces.insert(Piece {
                asked,
                file: operation.file,
                offset,
                len: len as u32,
                next: END,
                op: operation.op,
                ticket: None,
            });
            let machine = &mut self.machines[self.clients[number as usize].machine as usize];
            if machine.slots == 0 {
                machine.waiting.push_back((number, piece));
                continue;
            }
            machine.slots -= 1;
            self.send(number, piece, since);
        }
    }

    /// Sends a piece to the I/O node of its process, or to the relay of its machine, or to its server.
    fn send(&mut self, client: u32, number: u32, since: u64) {
        let client = &self.clients[client as usize];
        let piece = &self.pieces[number];
        let data = with_data(piece.op, Op::Write, piece.len);
        let from = &mut self.machines[client.machine as usize].end;
        if let Some(node) = self.nodes.get_mut(client.node as usize) {
            let arrival = self.network.send(data, from, &mut node.end, since);
            self.agenda.add(arrival, What::new(kind::AT_NODE, number));
            return;
        }
        let relay = relay_of(client.machine, self.relays.len());
        if let Some(relay) = self.relays.get_mut(relay) {
            let arrival = self.network.send(data, from, relay, since);
            self.agenda.add(arrival, What::new(kind::AT_RELAY, number));
            return;
        }
        let (server, start) = self.layout.place(piece.file, piece.offset);
        let to = &mut self.servers[server as usize].end;
        let arrival = self.network.send(data, from, to, since);
        self.expect_at_server(number, server, start, arrival);
    }

    /// A piece has been taken in by a relay, which passes it on to its server.
    fn at_relay(&mut self, number: u32) {
        let piece = &self.pieces[number];
        let machine = self.clients[self.asked[piece.asked].client as usize].machine;
        let data = with_data(piece.op, Op::Write, piece.len);
        let (server, start) = self.layout.place(piece.file, piece.offset);
        let relay = relay_of(machine, self.relays.len());
        let from = &mut self.relays[relay];
        let to = &mut self.servers[server as usize].end;
        let arrival = self.network.send(data, from, to, self.now);
        self.expect_at_server(number, server, start, arrival);
    }

    /// A piece is on its way to a server.
    fn expect_at_server(&mut self, number: u32, server: u32, start: u64, arrival: u64) {
        let piece = &self.pieces[number];
        let message = self.messages.insert(Message {
            server,
            file: piece.file,
            start,
            len: piece.len,
            origin: number,
            next: END,
            app: self.clients[self.asked[piece.asked].client as usize].app,
            op: piece.op,
            ticket: None,
        });
        self.agenda
            .add(arrival, What::new(kind::AT_SERVER, message));
    }

    /// A piece of a machine was answered: another one may go.
    fn free_slot(&mut self, machine: u32) {
        let machine = &mut self.machines[machine as usize];
        match machine.waiting.pop_front() {
            Some((client, piece)) => self.send(client, piece, self.now),
            None => machine.slots = machine.slots.saturating_add(1),
        }
    }

    fn back_at_client(&mut self, number: u32) {
        let asked = self.pieces[number].asked;
        self.pieces.free(number);
        let client = self.asked[asked].client;
        self.free_slot(self.clients[client as usize].machine);
        let operation = &mut self.asked[asked];
        operation.pieces -= 1;
        if operation.pieces > 0 {
            return;
        }
        let (client, since) = (operation.client, operation.since);
        self.asked.free(asked);
        let process = &mut self.clients[client as usize];
        process.under_way -= 1;
        let app = &mut self.apps[process.app as usize];
        app.latency.record(self.now - since);
        self.advance(client);
    }

    // ── I/O nodes ────────────────────────────────────────────────────────────────────────────────────────────────

    fn at_node(&mut self, number: u32) {
        let asked = self.pieces[number].asked;
        let node = self.clients[self.asked[asked].client as usize].node;
        let request = self.request_at_node(node, number);
        if let Some(steering) = self.steering.as_deref_mut() {
            steering.arrived(Place::IoNode(node), &request, Nanos(self.now));
            if steering.is_due() {
                self.agenda.add(self.now, What::new(kind::DUE, 0));
            }
        }
        let desk = &mut self.nodes[node as usize].desk;
        desk.arrive(&request, self.now);
        self.pump_node(node);
    }

    /// What a piece is to the scheduler of an I/O node.
    fn request_at_node(&self, node: u32, number: u32) -> Request {
        let piece = &self.pieces[number];
        let process = self.asked[piece.asked].client;
        let app = self.clients[process as usize].app;
        let queue = match self.nodes[node as usize].desk.policy() {
            Some(PolicyKind::Twins) => self.layout.place(piece.file, piece.offset).0,
            Some(PolicyKind::Wfq) => app,
            _ => 0,
        };
        Request {
            queue: QueueId(queue),
            app: AppId(app),
            handle: opened(process, piece.file),
            arrival: Nanos(self.now),
            ..Request::new(
                RequestId(u64::from(number)),
                FileId(u64::from(piece.file)),
                piece.op,
                Range::at(piece.offset, u64::from(piece.len)),
            )
        }
    }

    /// Requests that wait no longer.
    fn departed<'r>(&mut self, place: Place, requests: impl IntoIterator<Item = &'r Request>) {
        if let Some(steering) = self.steering.as_deref_mut() {
            let requests = requests.into_iter();
            requests.for_each(|request| steering.departed(place, request));
        }
    }

    /// Gives the idle dispatchers of an I/O node something to do.
    fn pump_node(&mut self, number: u32) {
        while self.nodes[number as usize].idle > 0 {
            let desk = &mut self.nodes[number as usize].desk;
            match desk.take(self.now) {
                Taken::Batch(batch, start) => {
                    let requests = batch.parts().iter().map(|part| &part.request);
                    self.departed(Place::IoNode(number), requests);
                    self.forward_batch(number, &batch, start);
                }
                Taken::Bare(piece) => {
                    if self.steering.is_some() {
                        let request = self.request_at_node(number, piece);
                        self.departed(Place::IoNode(number), [&request]);
                    }
                    let range = Range::at(self.pieces[piece].offset, self.pieces[piece].len.into());
                    self.forward(number, piece, range, self.now);
                }
                Taken::Wait(moment) => {
                    if moment < desk.wake {
                        desk.wake = moment;
                        self.agenda.add(moment, What::new(kind::WAKE_NODE, number));
                    }
                    return;
                }
                Taken::Nothing => return,
            }
        }
    }

    fn wake_node(&mut self, number: u32) {
        let desk = &mut self.nodes[number as usize].desk;
        if desk.wake == self.now {
            desk.wake = NEVER;
            self.pump_node(number);
        }
    }

    fn forward_batch(&mut self, node: u32, batch: &Batch, start: u64) {
        let mut first = END;
        for part in batch.parts().iter().rev() {
            let number = part.request.id.0 as u32;
            let piece = &mut self.pieces[number];
            piece.ticket = Some(part.ticket);
            piece.next = first;
            first = number;
        }
        self.forward(node, first, batch.range(), start);
    }

    /// Sends a batch to the servers that have its bytes.
    fn forward(&mut self, node: u32, first: u32, range: Range, start: u64) {
        self.nodes[node as usize].idle -= 1;
        let piece = &self.pieces[first];
        let (file, op) = (piece.file, piece.op);
        let app = self.clients[self.asked[piece.asked].client as usize].app;
        let flight = self.flights.insert(Flight {
            node,
            first,
            messages: 0,
        });
        for local in self.layout.locals(file, range.start(), range.len()) {
            let end = local.start + local.len;
            let mut at = local.start;
            while at < end {
                let len = (end - at).min(self.transmission);
                let message = Message {
                    server: local.server,
                    file,
                    start: at,
                    len: len as u32,
                    origin: flight,
                    next: END,
                    app,
                    op,
                    ticket: None,
                };
                self.pass_on(node, message, start);
                at += len;
            }
        }
    }

    /// Sends a message of a flight to its server.
    fn pass_on(&mut self, node: u32, message: Message, start: u64) {
        self.flights[message.origin].messages += 1;
        let data = with_data(message.op, Op::Write, message.len);
        let from = &mut self.nodes[node as usize].end;
        let to = &mut self.servers[message.server as usize].end;
        let arrival = self.network.send(data, from, to, start);
        let number = self.messages.insert(message);
        self.agenda.add(arrival, What::new(kind::AT_SERVER, number));
    }

    fn back_at_node(&mut self, number: u32) {
        let flight = self.messages[number].origin;
        self.messages.free(number);
        let under_way = &mut self.flights[flight];
        under_way.messages -= 1;
        if under_way.messages > 0 {
            return;
        }
        let (node, mut next) = (under_way.node, under_way.first);
        self.flights.free(flight);
        while next != END {
            let piece = &mut self.pieces[next];
            let (op, len) = (piece.op, u64::from(piece.len));
            let data = with_data(op, Op::Read, piece.len);
            let at = &mut self.nodes[node as usize];
            at.desk
                .finish(piece.ticket.take(), op.index(), len, self.now);
            let machine = self.clients[self.asked[piece.asked].client as usize].machine;
            let to = &mut self.machines[machine as usize].end;
            let arrival = self.network.send(data, &mut at.end, to, self.now);
            self.agenda
                .add(arrival, What::new(kind::BACK_AT_CLIENT, next));
            next = std::mem::replace(&mut piece.next, END);
        }
        self.nodes[node as usize].idle += 1;
        self.pump_node(node);
    }

    // ── Data servers ─────────────────────────────────────────────────────────────────────────────────────────────

    fn at_server(&mut self, number: u32) {
        let server = self.messages[number].server;
        match &mut self.servers[server as usize].gate {
            None => self.take_in(number),
            Some(gate) => {
                if gate.arrive(number) {
                    self.handle_next(server);
                }
            }
        }
    }

    /// The thread behind a server's gate turns to the first message there, if there is one.
    fn handle_next(&mut self, server: u32) {
        let at = &self.servers[server as usize];
        if at.gate.as_ref().and_then(Gate::first).is_some() {
            let done = self.now + self.handling;
            self.agenda.add(done, What::new(kind::HANDLED, server));
        }
    }

    /// The first message at a server's gate has been handled: it is let in, unless its file is in service.
    fn handled(&mut self, server: u32) {
        let files = &self.messages;
        let gate = self.servers[server as usize].gate.as_mut();
        if let Some(number) = gate.and_then(|gate| gate.let_in(|number| files[number].file)) {
            self.take_in(number);
            self.handle_next(server);
        }
    }

    /// A message comes to the desk of its server.
    fn take_in(&mut self, number: u32) {
        let message = &self.messages[number];
        let server = message.server;
        let request = self.request_at_server(server, number);
        let desk = &mut self.servers[server as usize].desk;
        if let Some(steering) = self.steering.as_deref_mut() {
            steering.arrived(Place::Server(server), &request, Nanos(self.now));
            if steering.is_due() {
                self.agenda.add(self.now, What::new(kind::DUE, 0));
            }
        }
        desk.arrive(&request, self.now);
        self.pump_server(server);
    }

    /// What a message is to the scheduler of a server.
    fn request_at_server(&self, server: u32, number: u32) -> Request {
        let message = &self.messages[number];
        // Behind I/O nodes a server does not know who asks.
        let handle = match self.nodes.is_empty() {
            true => {
                let process = self.asked[self.pieces[message.origin].asked].client;
                opened(process, message.file)
            }
            false => HandleId(0),
        };
        let queue = match self.servers[server as usize].desk.policy() {
            Some(PolicyKind::Wfq) => message.app,
            _ => 0,
        };
        Request {
            queue: QueueId(queue),
            app: AppId(message.app),
            handle,
            arrival: Nanos(self.now),
            ..Request::new(
                RequestId(u64::from(number)),
                FileId(u64::from(message.file)),
                message.op,
                Range::at(message.start, u64::from(message.len)),
            )
        }
    }

    /// Gives the idle workers of a server something to do.
    fn pump_server(&mut self, number: u32) {
        while self.servers[number as usize].idle > 0 {
            let desk = &mut self.servers[number as usize].desk;
            match desk.take(self.now) {
                Taken::Batch(batch, start) => {
                    let requests = batch.parts().iter().map(|part| &part.request);
                    self.departed(Place::Server(number), requests);
                    self.serve_batch(number, &batch, start);
                }
                Taken::Bare(message) => {
                    if self.steering.is_some() {
                        let request = self.request_at_server(number, message);
                        self.departed(Place::Server(number), [&request]);
                    }
                    let asked = &self.messages[message];
                    let range = Range::at(asked.start, asked.len.into());
                    self.serve(number, message, 1, range, self.now);
                }
                Taken::Wait(moment) => {
                    if moment < desk.wake {
                        desk.wake = moment;
                        self.agenda
                            .add(moment, What::new(kind::WAKE_SERVER, number));
                    }
                    return;
                }
                Taken::Nothing => return,
            }
        }
    }

    fn wake_server(&mut self, number: u32) {
        let desk = &mut self.servers[number as usize].desk;
        if desk.wake == self.now {
            desk.wake = NEVER;
            self.pump_server(number);
        }
    }

    fn serve_batch(&mut self, server: u32, batch: &Batch, start: u64) {
        let mut first = END;
        for part in batch.parts().iter().rev() {
            let number = part.request.id.0 as u32;
            let message = &mut self.messages[number];
            message.ticket = Some(part.ticket);
            message.next = first;
            first = number;
        }
        let requests = batch.parts().len() as u64;
        self.serve(server, first, requests, batch.range(), start);
    }

    /// Gives a batch to the device.
    fn serve(&mut self, number: u32, first: u32, requests: u64, range: Range, start: u64) {
        let message = &self.messages[first];
        let address = self.bases[message.file as usize] + range.start();
        let op = message.op;
        let server = &mut self.servers[number as usize];
        server.idle -= 1;
        let at = Range::at(address, range.len());
        let done = server.device.serve(op, at, Nanos(start)).0;
        let done = done + server.crowding * server.desk.present() * requests;
        server.busy += done.saturating_sub(server.busy_until.max(start));
        server.busy_until = server.busy_until.max(done);
        self.devices.operations[op.index()] += 1;
        self.devices.bytes[op.index()] += range.len();
        let file = message.file;
        let job = self.jobs.insert(Job {
            server: number,
            first,
        });
        if let Some(gate) = server.gate.as_mut().filter(|_| server.desk.is_waiting()) {
            gate.close(job, file);
        }
        self.agenda.add(done, What::new(kind::SERVED, job));
    }

    fn served(&mut self, job: u32) {
        let Job { server, mut first } = self.jobs[job];
        self.jobs.free(job);
        while first != END {
            let message = &mut self.messages[first];
            let (op, len) = (message.op, u64::from(message.len));
            let data = with_data(op, Op::Read, message.len);
            let (origin, next) = (message.origin, message.next);
            let at = &mut self.servers[server as usize];
            at.desk
                .finish(message.ticket.take(), op.index(), len, self.now);
            let (to, back) = if self.nodes.is_empty() {
                let asked = self.pieces[origin].asked;
                let machine = self.clients[self.asked[asked].client as usize].machine;
                self.messages.free(first);
                (
                    &mut self.machines[machine as usize].end,
                    What::new(kind::BACK_AT_CLIENT, origin),
                )
            } else {
                let node = self.flights[origin].node;
                (
                    &mut self.nodes[node as usize].end,
                    What::new(kind::BACK_AT_NODE, first),
                )
            };
            let arrival = self.network.send(data, &mut at.end, to, self.now);
            self.agenda.add(arrival, back);
            first = next;
        }
        let at = &mut self.servers[server as usize];
        at.idle += 1;
        let held = at.gate.as_mut().is_some_and(|gate| gate.open(job));
        self.pump_server(server);
        // Who decides goes on at once; who was held back has to wake up first.
        if held {
            self.handled(server);
        }
    }

    // ── Steering ─────────────────────────────────────────────────────────────────────────────────────────────────

    fn decide(&mut self) {
        let Some(steering) = self.steering.take() else {
            return;
        };
        let mut seen = Vec::with_capacity(self.nodes.len() + self.servers.len());
        for (number, node) in (0..).zip(&mut self.nodes) {
            seen.push(seen_at(Place::IoNode(number), &mut node.desk, self.now));
        }
        for (number, server) in (0..).zip(&mut self.servers) {
            seen.push(seen_at(Place::Server(number), &mut server.desk, self.now));
        }
        let mut changes = Vec::new();
        steering.decide(Nanos(self.now), &seen, &mut changes);
        self.steering = Some(steering);
        for change in changes {
            let at = change.at.0.max(self.now);
            let number = self.changes.insert(change);
            self.agenda.add(at, What::new(kind::CHANGE, number));
        }
    }

    fn change(&mut self, number: u32) -> Result<(), Failed> {
        let change = self.changes[number].clone();
        self.changes.free(number);
        let place = change.place;
        self.change_desk(change)?;
        match place {
            Place::IoNode(node) if self.nodes.len() > node as usize => self.pump_node(node),
            Place::Server(server) if self.servers.len() > server as usize => {
                self.pump_server(server);
            }
            _ => {}
        }
        Ok(())
    }

    // ── The end ──────────────────────────────────────────────────────────────────────────────────────────────────

    fn report(mut self) -> Report {
        debug_assert_eq!(
            self.pieces.live() + self.messages.live() + self.flights.live() + self.jobs.live(),
            0,
            "nothing is under way when every process is done"
        );
        let begin = self.apps.iter().map(|app| app.begin).min();
        let end = self.apps.iter().map(|app| app.end).max();
        let busy: u64 = self.servers.iter().map(|server| server.busy).sum();
        self.devices.busy = Nanos(busy / self.servers.len().max(1) as u64);
        let nodes = self.nodes.iter().map(|node| &node.desk);
        Report {
            makespan: end.unwrap_or_default() - begin.unwrap_or_default(),
            ionodes: (!self.nodes.is_empty()).then(|| level(nodes)),
            servers: level(self.servers.iter().map(|server| &server.desk)),
            devices: self.devices,
            decisions: Vec::new(),
            apps: self.apps,
            events: self.events,
        }
    }
}

/// What a process has a file open by: a number of its own for each file of each process, as far as there are such.
fn opened(process: u32, file: u32) -> HandleId {
    let number = process.wrapping_mul(2_654_435_769).wrapping_add(file);
    HandleId(number.wrapping_add(1).max(1))
}

/// The relay of a machine. Nonsense where there are none.
fn relay_of(machine: u32, relays: usize) -> usize {
    machine as usize % relays.max(1)
}

/// The bytes of data in a message: requests to write carry them one way, answers to reads the other.
fn with_data(op: Op, carried_by: Op, len: u32) -> u64 {
    if op == carried_by { len.into() } else { 0 }
}

/// Where each file begins on every device.
fn bases(works: &[Work], layout: Layout) -> Vec<u64> {
    let files: u32 = works.iter().map(Work::files).sum();
    let mut sizes = vec![0; files as usize];
    works.iter().for_each(|work| work.sizes(&mut sizes));
    let mut next: u64 = 0;
    let place = |size: &u64| {
        let base = next;
        next = next.saturating_add(layout.share(*size)).saturating_add(GAP);
        base
    };
    sizes.iter().map(place).collect()
}

fn app_reports(scenario: &Scenario) -> Vec<AppReport> {
    let named = |(number, name): (usize, &String)| AppReport {
        name: match name.is_empty() {
            true => format!("app {}", number + 1),
            false => name.clone(),
        },
        begin: Nanos::MAX,
        end: Nanos::ZERO,
        first_done: Nanos::MAX,
        operations: 0,
        bytes: 0,
        latency: Histogram::new(),
    };
    let names = scenario.apps.iter().map(|app| &app.name);
    names.enumerate().map(named).collect()
}

fn seen_at(place: Place, desk: &mut Desk, now: u64) -> Seen {
    let period = desk.end_period(now);
    Seen {
        place,
        settings: desk.settings(),
        arrived: period.arrived,
        served: period.served,
        busy: Nanos(period.busy),
        present: desk.present(),
    }
}

fn level<'a>(desks: impl Iterator<Item = &'a Desk>) -> LevelReport {
    desks.fold(LevelReport::default(), |sum, desk| LevelReport {
        requests: sum.requests + desk.requests,
        batches: sum.batches + desk.batches,
        cpu: sum.cpu + Nanos(desk.cpu_used),
    })
}
