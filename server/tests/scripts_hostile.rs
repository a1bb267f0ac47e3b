//! Scripts that mean harm: each ends in an error, the server serves on. And no script puts a line of its own on the wire.

mod support;

use support::reply::Reply;
use support::server::{Kind, Server};

/// Scripts that end by themselves, in an error of which this is a part.
const ENDED: &[(&str, &str)] = &[
    ("return string.rep('x', 1e9)", "not enough memory"),
    ("local s = 'x' while true do s = s .. s end", "not enough memory"),
    ("local t = {} for i = 1, 1e9 do t[i] = i end", "not enough memory"),
    ("local function f() return 1 + f() end return f()", "stack overflow"),
    ("return {unpack({}, 1, 1e8)}", "too many results to unpack"),
    ("return cjson.decode(string.rep('[', 100000))", "too many nested"),
    ("local t = {} for i = 1, 20000 do t = {t} end return cjson.encode(t)", "excessive nesting"),
    ("return setmetatable({}, {__index = function(t, k) return t[k] end}).x", "C stack overflow"),
    ("return string.format('%99999d', 1)", "width or precision too long"),
    ("return string.find(string.rep('a', 300000), string.rep('a?', 300000))", "pattern too complex"),
    ("return cmsgpack.unpack(string.rep('\\x91', 100000))", "stack overflow"),
    ("return loadstring('\\27Lua')()", "attempt to call a nil value"),
];

/// Scripts that end only when they are killed.
const ENDLESS: &[&str] = &[
    "while true do end",
    "local function f() while true do pcall(f) end end while true do pcall(f) end",
    "return string.find(string.rep('a', 30), string.rep('a?', 30) .. 'b')",
    "local c = coroutine.wrap(function() while true do coroutine.yield() end end) while true do c() end",
    "table.insert({}, -1e9, 1)",
    "for i = 1, 1e9 do local s = string.rep('x', 1e6) end",
    "while true do pcall(coroutine.wrap(function() while true do end end)) end",
    "xpcall(function() while true do end end, function() while true do end end)",
];

#[test]
fn each_ends_in_an_error_and_the_server_serves_on() {
    for threads in [1, 2] {
        let args = ["--busy-reply-threshold", "50"].map(String::from);
        let server = Server::start(Kind::Skerry { threads }, &args);
        let mut conn = server.connect();
        for (script, part) in ENDED {
            let Reply::Error(text) = conn.call(&["EVAL", script, "0"]) else {
                panic!("no error of {script}")
            };
            let text = String::from_utf8_lossy(&text).into_owned();
            assert!(text.contains(part), "{script}: {text}");
        }
        for script in ENDLESS {
            let mut caller = server.connect();
            caller.send(&["EVAL", script, "0"]).expect("sent");
            let mut other = server.connect();
            // Told that nothing runs until the script has run too long.
            while other.call(&["SCRIPT", "KILL"]) != Reply::Simple(b"OK".to_vec()) {}
            let Ok(Reply::Error(text)) = caller.read() else { panic!("no error of {script}") };
            let text = String::from_utf8_lossy(&text).into_owned();
            assert!(text.contains("Script killed by user"), "{script}: {text}");
            assert_eq!(conn.call(&["EVAL", "return 7", "0"]), Reply::Int(7));
        }
    }
}

/// Native functions that hand on any number of values.
#[test]
fn many_results_have_their_room() {
    const FILL: &str = "local t = {} for i = 1, N do t[i] = i end ";
    const SCRIPTS: &[&str] = &[
        "return #{pcall(unpack, t)}",
        "return #{xpcall(function() return unpack(t) end, error)}",
        "return #{xpcall(error, function() return unpack(t) end)}",
        "return #{pcall(pcall, pcall, unpack, t)}",
        "return #{coroutine.resume(coroutine.create(function() return unpack(t) end))}",
        "return #{load(function() t[1] = {} return unpack(t) end)}",
        "return #{string.gsub('abc', '%w', function() return unpack(t) end)}",
        "return #{pcall(redis.call, 'PING', unpack(t))}",
        "return #{pcall(cjson.encode, unpack(t))}",
        "return #{pcall(math.max, unpack(t))}",
        "return #{pcall(redis.error_reply, unpack(t))}",
        "return #{pcall(string.format, string.rep('%d', #t), unpack(t))}",
        "return #{pcall(cmsgpack.unpack, cmsgpack.pack(unpack(t)))}",
        "return #{pcall(struct.unpack, string.rep('B', #t), string.rep('x', #t))}",
    ];
    let server = Server::start(Kind::Skerry { threads: 2 }, &[]);
    let mut conn = server.connect();
    for n in [1, 15, 16, 17, 18, 19, 20, 21, 22, 30, 100, 2000, 7900, 7970, 7990, 7999] {
        for script in SCRIPTS {
            let script = [&FILL.replace('N', &n.to_string()), *script].concat();
            match conn.call(&["EVAL", &script, "0"]) {
                Reply::Int(n) => assert!(n > 0, "{script}"),
                Reply::Error(_) => {}
                reply => panic!("{script}: {reply:?}"),
            }
        }
    }
    let nested = "local f = pcall for i = 1, 250 do local g = f f = function() return pcall(g, error) end end return tostring(f())";
    assert_eq!(conn.call(&["EVAL", nested, "0"]), Reply::Bulk(b"true".to_vec()));
}

#[test]
fn no_line_end_of_a_script_reaches_the_wire() {
    let server = Server::start(Kind::Skerry { threads: 1 }, &[]);
    let mut conn = server.connect();
    for script in [
        "error({err='X Y\\r\\n+INJECTED'})",
        "return {err='X Y\\r\\n+INJECTED'}",
        "return {ok='X\\r\\n+INJECTED'}",
        "error(redis.error_reply('X Y\\r\\n+INJECTED'))",
        "return {big_number='1\\r\\n+INJECTED'}",
        "return {double=1, map={['\\r\\n+INJECTED']='\\r\\n+INJECTED'}}",
    ] {
        let reply = conn.call(&["EVAL", script, "0"]);
        if script.starts_with("error") {
            // Where Redis's own line ends.
            assert_eq!(reply, Reply::Error(b"X Y".to_vec()), "{script}");
        }
        assert_eq!(conn.call(&["EVAL", "return 7", "0"]), Reply::Int(7), "{script}");
    }
}
