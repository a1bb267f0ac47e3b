//! Writes the programs, a step at a time, as it goes: what comes next depends on who is blocked.

use super::counts::name_of;
use super::draw::{CLASSES, Draw, Step};
use super::pair::State;
use super::rows::{self, is_exact};
use super::scripts::{self, Reading, Script};
use super::support::reply::Reply;
use super::table::Row;
use super::words;
use std::collections::{BTreeSet, VecDeque};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// Transactions, scripts and blocked clients over all types.
    Queues,
    /// Streams with groups and blocked readers.
    Streams,
}

/// Which keys stand together.
#[derive(Clone, Copy)]
enum Places {
    /// All of them.
    Together,
    /// As their tags say: one letter for each tag that the table writes.
    Spread([u8; 2]),
}

/// A script that has been loaded.
struct Loaded {
    sha: Vec<u8>,
    script: Script,
}

pub(crate) struct Author {
    draw: Draw,
    subject: Subject,
    n_conns: usize,
    n_workers: usize,
    places: Places,
    ordinary: Vec<&'static Row>,
    /// Rows that scripts call.
    called: Vec<&'static Row>,
    /// How many commands each connection's transaction still queues.
    n_left: Vec<usize>,
    /// What has to come next.
    forced: VecDeque<Step>,
    loaded: Vec<Loaded>,
    /// Scripts that were sent as they are.
    sent: Vec<Script>,
    /// Sent by the last SCRIPT LOAD.
    loading: Option<Script>,
}

const MAX_QUEUED: usize = 6;
const MAX_CALLS: usize = 4;

impl Author {
    pub(crate) fn new(
        seed: u64,
        subject: Subject,
        (n_conns, n_workers): (usize, usize),
        known: &BTreeSet<String>,
    ) -> Author {
        let mut draw = Draw::new(seed ^ 0x6a09_e667_f3bc_c908, words::now_ms(), known);
        let places = match draw.rng.below(3) {
            0 => Places::Together,
            _ => Places::Spread([0, 1].map(|_| b'a' + draw.rng.below(26) as u8)),
        };
        let ordinary = subject.ordinary(known);
        let called: Vec<&Row> = ordinary.iter().copied().filter(|row| is_exact(row)).collect();
        let mut forced = VecDeque::new();
        if draw.rng.percent(50) {
            // So that MOVE and SWAPDB have somebody to wake.
            forced.push_back(plain(draw.rng.below(n_conns), &[b"SELECT", b"1"]));
        }
        let n_left = vec![0; n_conns + 1];
        let is_about_streams = subject == Subject::Streams;
        let mut author = Author {
            draw,
            subject,
            n_conns,
            n_workers,
            places,
            ordinary,
            called,
            n_left,
            forced,
            loaded: Vec::new(),
            sent: Vec::new(),
            loading: None,
        };
        if is_about_streams {
            author.open_streams();
        }
        author
    }

    /// Groups, and something for them to read: by themselves most commands would find neither.
    fn open_streams(&mut self) {
        for rows in [rows::STREAM_GROUPS, rows::STREAM_GROUPS, rows::STREAM_ENTRIES] {
            for _ in 0..4 {
                let step = self.row(self.n_conns, rows);
                self.forced.push_back(step);
            }
        }
    }

    /// The reply to the last step.
    pub(crate) fn note(&mut self, step: &Step, reply: &Reply) {
        if name_of(&step.argv) == "SCRIPT LOAD"
            && let (Reply::Bulk(sha), Some(script)) = (reply, self.loading.take())
        {
            self.loaded.push(Loaded { sha: sha.clone(), script });
        }
    }

    pub(crate) fn next_step(&mut self, state: &State) -> Step {
        if let Some(step) = self.forced.pop_front() {
            return step;
        }
        let blocked: Vec<usize> = state.all_blocked().collect();
        if !blocked.is_empty() && self.draw.rng.percent(2) {
            return plain(*self.draw.rng.pick(&blocked), &[b"close"]);
        }
        let free: Vec<usize> = (0..self.n_conns).filter(|conn| state.blocked[*conn].is_none()).collect();
        let conn = if free.is_empty() { self.n_conns } else { *self.draw.rng.pick(&free) };
        let hazards = Hazards::of(state);
        if state.queues[conn].is_some() {
            return self.in_transaction(conn, &state.queues[conn], &hazards);
        }
        let is_control = conn == self.n_conns;
        match self.draw.rng.below(100) {
            0..24 if !is_control => {
                let step = self.row(conn, self.subject.taking());
                if hazards.would_lose_its_place(&step.argv) { plain(conn, &[b"PING"]) } else { step }
            }
            0..48 => {
                let step = self.filling(conn, &hazards);
                self.safely(step, &hazards)
            }
            48..55 => self.row(conn, self.subject.emptying()),
            55..70 if !is_control => {
                let step = self.ordinary(conn);
                self.safely(step, &hazards)
            }
            70..72 => self.script_about(conn, &hazards),
            72..85 if !is_control => self.script(conn, &hazards),
            85..88 => self.unblock(conn),
            88..91 if !is_control => self.row(conn, rows::WATCH),
            91..97 if !is_control => {
                self.n_left[conn] = self.draw.rng.below(MAX_QUEUED);
                self.row(conn, rows::MULTI)
            }
            97 => {
                let step = self.row(conn, rows::SWAPDB);
                if hazards.forbid(&[&step.argv]) { plain(conn, &[b"PING"]) } else { step }
            }
            98 if !is_control => self.row(conn, rows::KEYLESS),
            _ => self.unblock(conn),
        }
    }

    fn in_transaction(&mut self, conn: usize, queue: &Option<Vec<Step>>, hazards: &Hazards) -> Step {
        if self.n_left[conn] == 0 {
            let queued: Vec<Vec<Vec<u8>>> = queue
                .iter()
                .flatten()
                .flat_map(|step| scripts::commands_of(&step.argv, &self.scripts()))
                .collect();
            let all: Vec<&Vec<Vec<u8>>> = queued.iter().collect();
            return self.row(conn, if hazards.forbid(&all) { rows::DISCARD } else { rows::EXEC });
        }
        self.n_left[conn] -= 1;
        match self.draw.rng.below(100) {
            0..30 => {
                let step = self.filling(conn, hazards);
                self.cleared(step)
            }
            30..42 => self.row(conn, self.subject.taking()),
            42..48 => self.row(conn, self.subject.emptying()),
            48..70 => {
                let step = self.ordinary(conn);
                self.cleared(step)
            }
            70..82 => self.script(conn, hazards),
            82..84 => self.row(conn, rows::SWAPDB),
            84..86 if self.n_workers == 1 => self.unblock(conn),
            _ => self.row(conn, rows::KEYLESS),
        }
    }

    /// All scripts, with their digests as far as they are known.
    fn scripts(&self) -> Vec<(&[u8], &Script)> {
        let loaded = self.loaded.iter().map(|loaded| (&loaded.sha[..], &loaded.script));
        loaded.chain(self.sent.iter().map(|script| (&b""[..], script))).collect()
    }

    fn row(&mut self, conn: usize, rows: &'static [Row]) -> Step {
        let step = self.draw.one_of(conn, &rows.iter().collect::<Vec<_>>());
        self.placed(step)
    }

    /// Half of what fills a key fills one that somebody waits for.
    fn filling(&mut self, conn: usize, hazards: &Hazards) -> Step {
        let mut step = self.row(conn, self.subject.filling());
        self.aim(&mut step.argv, hazards);
        step
    }

    fn aim(&mut self, argv: &mut [Vec<u8>], hazards: &Hazards) {
        let at: Vec<usize> = (1..argv.len()).filter(|at| is_placed_key(&argv[*at])).collect();
        if at.is_empty() || self.draw.rng.percent(50) {
            return;
        }
        let word = &mut argv[*self.draw.rng.pick(&at)];
        let kind = |key: &[u8]| key[key.len() - 2];
        let waited: Vec<&Vec<u8>> = hazards.waited.iter().filter(|key| kind(key) == kind(word)).collect();
        if !waited.is_empty() {
            word.clone_from(*self.draw.rng.pick(&waited));
        }
    }

    fn ordinary(&mut self, conn: usize) -> Step {
        let step = self.draw.one_of(conn, &self.ordinary);
        self.placed(step)
    }

    /// Puts the keys of a command where those of this program stand.
    fn placed(&mut self, mut step: Step) -> Step {
        for word in &mut step.argv[1..] {
            if !is_key(word) {
                continue;
            }
            let (tag, core) = match word.strip_prefix(b"{") {
                Some(rest) => (Some(rest[0]), rest[2..].to_vec()),
                None => (None, word.clone()),
            };
            // A third key of each kind.
            let core = if self.draw.rng.percent(7) { vec![core[0], b'7'] } else { core };
            let tag = match self.places {
                Places::Together => Some(b'a'),
                Places::Spread(tags) => tag.map(|tag| tags[usize::from(tag != b'a')]),
            };
            *word = tag.map_or(core.clone(), |tag| [&[b'{', tag, b'}'][..], &core].concat());
        }
        step
    }

    /// A command that stores its result where somebody waits comes behind a DEL of that key.
    fn safely(&mut self, step: Step, hazards: &Hazards) -> Step {
        if hazards.rewinds(&step.argv) {
            return plain(step.conn, &[b"PING"]);
        }
        match stored_in(&step.argv) {
            Some(key) if hazards.waited.contains(key) => {
                let del = plain(step.conn, &[b"DEL", key]);
                self.forced.push_front(step);
                del
            }
            _ => step,
        }
    }

    /// The same in a transaction, mostly.
    fn cleared(&mut self, step: Step) -> Step {
        match stored_in(&step.argv) {
            Some(key) if self.draw.rng.percent(80) => {
                let del = plain(step.conn, &[b"DEL", key]);
                self.forced.push_front(step);
                del
            }
            _ => step,
        }
    }

    fn unblock(&mut self, conn: usize) -> Step {
        let other = format!("#{}", self.draw.rng.below(self.n_conns)).into_bytes();
        let reason: &[&[u8]] = match self.draw.rng.below(4) {
            0 => &[b"ERROR"],
            1 => &[b"TIMEOUT"],
            _ => &[],
        };
        plain(conn, &[&[&b"CLIENT"[..], b"UNBLOCK", &other], reason].concat())
    }

    /// SCRIPT LOAD, EXISTS, FLUSH.
    fn script_about(&mut self, conn: usize, hazards: &Hazards) -> Step {
        match self.draw.rng.below(12) {
            0 => plain(conn, &[b"SCRIPT", b"FLUSH"]),
            1..4 => {
                let mut argv = vec![b"SCRIPT".to_vec(), b"EXISTS".to_vec()];
                for _ in 0..1 + self.draw.rng.below(3) {
                    argv.push(self.sha());
                }
                Step { conn, argv, compare: super::compare::Compare::Exact, label: None }
            }
            _ => {
                let reading = if self.draw.rng.percent(30) { Reading::Only } else { Reading::AndWriting };
                let script = self.new_script(reading, hazards);
                let step = plain(conn, &[b"SCRIPT", b"LOAD", &script.text]);
                self.loading = Some(script);
                step
            }
        }
    }

    fn sha(&mut self) -> Vec<u8> {
        match self.loaded.len() {
            n if n > 0 && self.draw.rng.percent(90) => {
                let at = self.draw.rng.below(n);
                let sha = self.loaded[at].sha.clone();
                if self.draw.rng.percent(10) { sha.to_ascii_uppercase() } else { sha }
            }
            _ => b"0123456789abcdef0123456789abcdef01234567".to_vec(),
        }
    }

    fn new_script(&mut self, reading: Reading, hazards: &Hazards) -> Script {
        let n_calls = if self.draw.rng.percent(20) { 0 } else { 1 + self.draw.rng.below(MAX_CALLS) };
        let mut commands = Vec::new();
        for _ in 0..n_calls {
            let (filling, taking, emptying) =
                (self.subject.filling(), self.subject.taking(), self.subject.emptying());
            let step = match self.draw.rng.below(10) {
                _ if reading == Reading::Only => self.draw.one_of(0, &self.called),
                0..3 => self.draw.one_of(0, &filling.iter().collect::<Vec<_>>()),
                3 => self.draw.one_of(0, &taking.iter().collect::<Vec<_>>()),
                4 => self.draw.one_of(0, &emptying.iter().collect::<Vec<_>>()),
                _ => self.draw.one_of(0, &self.called),
            };
            let mut argv = self.placed(step).argv;
            self.aim(&mut argv, hazards);
            if reading == Reading::Only && !scripts::is_read(&name_of(&argv)) && self.draw.rng.percent(90) {
                continue;
            }
            if let Some(key) = stored_in(&argv)
                && self.draw.rng.percent(80)
            {
                commands.push(vec![b"DEL".to_vec(), key.to_vec()]);
            }
            commands.push(argv);
        }
        scripts::write(&mut self.draw.rng, commands)
    }

    fn script(&mut self, conn: usize, hazards: &Hazards) -> Step {
        for _ in 0..4 {
            let is_read_only = self.draw.rng.percent(20);
            let reading = if is_read_only { Reading::Only } else { Reading::AndWriting };
            let (argv, script) = match self.loaded.is_empty() || self.draw.rng.percent(60) {
                true => {
                    let script = self.new_script(reading, hazards);
                    let name = if is_read_only { &b"EVAL_RO"[..] } else { b"EVAL" };
                    (script.call(name, &script.text), script)
                }
                false => {
                    let loaded = self.draw.rng.pick(&self.loaded);
                    let name = if is_read_only { &b"EVALSHA_RO"[..] } else { b"EVALSHA" };
                    (loaded.script.call(name, &loaded.sha), loaded.script.clone())
                }
            };
            if !hazards.forbid(&script.commands.iter().collect::<Vec<_>>()) {
                self.sent.push(script);
                return Step { conn, argv, compare: super::compare::Compare::Exact, label: None };
            }
        }
        plain(conn, &[b"EVAL", b"return {KEYS, ARGV}", b"1", b"k", b"a"])
    }
}

fn plain(conn: usize, argv: &[&[u8]]) -> Step {
    let argv = argv.iter().map(|word| word.to_vec()).collect();
    Step { conn, argv, compare: super::compare::Compare::Exact, label: None }
}

/// Whether a word is the name of a key, in any place.
pub(crate) fn is_key(word: &[u8]) -> bool {
    CLASSES.iter().flat_map(|class| class.iter()).any(|key| key.as_bytes() == word)
}

/// The same after it has been put in its place.
pub(crate) fn is_placed_key(word: &[u8]) -> bool {
    let core = match word {
        [b'{', _, b'}', core @ ..] => core,
        core => core,
    };
    let letters = CLASSES.iter().flat_map(|class| class.iter()).map(|key| key.as_bytes()[key.len() - 2]);
    matches!(core, [letter, digit] if digit.is_ascii_digit() && letters.clone().any(|l| l == *letter))
}

/// The key that a command stores its result in.
fn stored_in(argv: &[Vec<u8>]) -> Option<&[u8]> {
    match name_of(argv).as_str() {
        "ZUNIONSTORE" | "ZINTERSTORE" | "ZDIFFSTORE" | "ZRANGESTORE" | "GEOSEARCHSTORE" => {
            argv.get(1).map(Vec::as_slice)
        }
        "SORT" | "GEORADIUS" | "GEORADIUSBYMEMBER" => {
            let at = argv.iter().position(|word| word == b"STORE" || word == b"STOREDIST")?;
            argv.get(at + 1).map(Vec::as_slice)
        }
        _ => None,
    }
}

fn is_read(argv: &[Vec<u8>]) -> bool {
    matches!(name_of(argv).as_str(), "XREAD" | "XREADGROUP")
}

/// Where the servers would differ by design.
#[derive(Default)]
struct Hazards {
    /// Keys that somebody waits for, and those that such a one would fill.
    waited: BTreeSet<Vec<u8>>,
    /// Several wait, and one of them for more than one key.
    is_entangled: bool,
    /// The keys of each that waits for streams.
    readers: Vec<BTreeSet<Vec<u8>>>,
}

impl Hazards {
    fn of(state: &State) -> Hazards {
        let mut hazards = Hazards::default();
        let mut n_waiting = 0;
        let mut n_most = 0;
        for argv in state.blocked.iter().flatten() {
            let keys: BTreeSet<Vec<u8>> =
                argv[1..].iter().filter(|word| is_placed_key(word)).cloned().collect();
            n_waiting += 1;
            n_most = n_most.max(keys.len());
            if is_read(argv) {
                hazards.readers.push(keys.clone());
            }
            hazards.waited.extend(keys);
        }
        hazards.is_entangled = n_waiting > 1 && n_most > 1;
        hazards
    }

    /// Whether a reader of several streams and another one would wait for the same.
    fn would_lose_its_place(&self, argv: &[Vec<u8>]) -> bool {
        let keys: BTreeSet<Vec<u8>> = argv[1..].iter().filter(|word| is_placed_key(word)).cloned().collect();
        let collides =
            |other: &BTreeSet<Vec<u8>>| keys.len().max(other.len()) > 1 && !keys.is_disjoint(other);
        is_read(argv) && self.readers.iter().any(collides)
    }

    /// Whether it gives a group that somebody waits for its entries once more.
    fn rewinds(&self, argv: &[Vec<u8>]) -> bool {
        name_of(argv) == "XGROUP SETID" && argv.get(2).is_some_and(|key| self.waited.contains(key))
    }

    /// Whether these commands may not run as one now.
    fn forbid(&self, commands: &[&Vec<Vec<u8>>]) -> bool {
        let words = || commands.iter().flat_map(|argv| argv.iter());
        let touched: BTreeSet<&Vec<u8>> = words().filter(|word| self.waited.contains(*word)).collect();
        let swaps = commands.iter().any(|argv| name_of(argv) == "SWAPDB");
        if self.is_entangled && (touched.len() > 1 || swaps) || commands.iter().any(|argv| self.rewinds(argv))
        {
            return true;
        }
        commands.iter().enumerate().any(|(at, argv)| {
            stored_in(argv).is_some_and(|key| {
                let is_cleared = at > 0 && name_of(commands[at - 1]) == "DEL" && commands[at - 1][1] == key;
                self.waited.contains(key) && !is_cleared
            })
        })
    }
}
