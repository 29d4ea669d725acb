//! Owns tests of reading and judging histories from elsewhere.
//! Never needs a file: histories are written here.

use std::io::Write as _;
use std::time::{Duration, Instant};

use checkers::histories::{
    Argument, Format, History, Model, Options, Report, Value, judge, read, unpack,
};
use results::history::OperationType;
use results::verdict::Validity;

use crate::models::edn;

pub(crate) fn parsed(text: &str, is_keyed: bool) -> History {
    read(text.as_bytes(), None, is_keyed).unwrap_or_else(|error| panic!("{error}: {text}"))
}

pub(crate) fn judged(text: &str, options: Options) -> Report {
    let report = judge(parsed(text, false), &options);
    report.unwrap_or_else(|damage| panic!("{damage}"))
}

fn refused(text: &str, is_keyed: bool) -> String {
    match read(text.as_bytes(), None, is_keyed) {
        Err(error) => error.to_string(),
        Ok(history) => judge(history, &Options::new(Model::CasRegister))
            .expect_err("it is damaged")
            .to_string(),
    }
}

/// Process, type, function, argument for people.
fn shown(history: &History) -> Vec<String> {
    let show = |record: &checkers::histories::Record| {
        format!(
            "{} {:?} {} {} {}",
            record.process,
            record.operation_type,
            history.functions[usize::from(record.function)],
            history.values.show(record.key),
            record.argument.show(&history.values)
        )
    };
    history.records.iter().map(show).collect()
}

const EXPECTED: [&str; 4] = [
    "3 Invoke cas nil [1 2]",
    "0 Invoke read nil nil",
    "0 Ok read nil 4",
    "3 Info cas nil [1 2]",
];

#[test]
fn every_format_says_the_same() {
    let json = r#"
{"index":0,"time":5,"process":3,"type":"invoke","f":"cas","value":[1,2]}
{"process":"nemesis","type":"info","f":"start-kill","value":{"a":[1,{"b":"}"}]}}
{"index":1,"time":6,"process":0,"type":"invoke","f":"read","value":null,"later":{"x":[]}}
{ "type" : "ok" , "process" : 0 , "f" : "read", "value" : 4 }
{"process":3,"type":"info","f":"cas","value":[1,2],"error":{"kind":"t","message":"a \" b"}}
"#;
    let stream = r#"; a comment
{:process 3, :type :invoke, :f :cas, :value [1 2]}
#jepsen.history.Op{:index 7, :time 6, :process :nemesis, :type :info, :f :kill, :value {"n1" :ok}}
#jepsen.history.Op{:index 8, :time 6, :process 0, :type :invoke, :f :read, :value nil}
{:type :ok :process 0 :value 4 :f :read #_ignored #_{:not [this]}}
{:process 3, :type :info, :f :cas, :value [1 2], :error [:timeout #inst "2026-01-01" \a #{1 2}]}
"#;
    let vector = format!("[{}]", &stream[stream.find('{').unwrap()..]);
    let list = format!("({})", &stream[stream.find('{').unwrap()..]);
    let log = "INFO  jepsen.core - hello\n\
        INFO  jepsen.util - 3\t:invoke\t:cas\t[1 2]\n\
        INFO  jepsen.util - 0\t:invoke\t:read\tnil\n\
        INFO  jepsen.util - :nemesis\t:info\t:start\tnil\n\
        INFO  jepsen.util - 0\t:ok\t:read\t4\n\
        INFO  jepsen.util - 3   :info  :cas  [1, 2]\r\n";
    for text in [json, stream, &vector, &list, log] {
        let history = parsed(text, false);
        assert_eq!(shown(&history), EXPECTED, "{text}");
    }
    assert_eq!(parsed(stream, false).records[2].line, 5);
    assert_eq!(parsed(log, false).records[0].line, 2);
}

#[test]
fn pairs_that_look_like_keys_and_values_are_told_of() {
    let pairs = r#"
{"process":0,"type":"invoke","f":"write","value":["a",1]}
{"process":0,"type":"ok","f":"write","value":["a",1]}
{"process":1,"type":"invoke","f":"read","value":["b",null]}
{"process":1,"type":"ok","f":"read","value":["b",null]}
"#;
    let hints = |history: &History| {
        let notes = history.notes.iter();
        notes.filter(|note| note.contains("--keyed")).count()
    };
    assert_eq!(hints(&parsed(pairs, false)), 1);
    let keyed = parsed(pairs, true);
    assert_eq!(hints(&keyed), 0);
    let expected = [
        "0 Invoke write \"a\" 1",
        "0 Ok write \"a\" 1",
        "1 Invoke read \"b\" nil",
        "1 Ok read \"b\" nil",
    ];
    assert_eq!(shown(&keyed), expected);
    let report = judge(keyed, &Options::new(Model::Register)).unwrap();
    assert_eq!(report.valid, Validity::Valid, "{report:?}");
    // A compare-and-set alone has pairs, too.
    let cas = "{:process 0, :type :invoke, :f :cas, :value [1 2]}";
    assert_eq!(hints(&parsed(cas, false)), 0);
    let odd = "{:process 0, :type :invoke, :f :add, :value [1 nil]}";
    assert!(
        refused(odd, false).contains("--keyed"),
        "{}",
        refused(odd, false)
    );
}

#[test]
fn keyed_values_are_taken_apart_only_when_told() {
    let edn = "{:process 1, :type :invoke, :f :cas, :value [5 [1 2]]}\
        {:process 1, :type :ok, :f :cas, :value [5 [1 2]]}\
        {:process 1, :type :invoke, :f :read, :value [:x nil]}\
        {:process 1, :type :info, :f :read, :value nil}";
    assert_eq!(
        shown(&parsed(edn, true)),
        [
            "1 Invoke cas 5 [1 2]",
            "1 Ok cas 5 [1 2]",
            "1 Invoke read :x nil",
            "1 Info read nil nil"
        ]
    );
    assert_eq!(shown(&parsed(edn, false))[0], "1 Invoke cas nil [5 [1 2]]");
    let log = "INFO  jepsen.util - 1 :invoke :cas [5 [1 2]]\n";
    assert_eq!(shown(&parsed(log, true)), ["1 Invoke cas 5 [1 2]"]);
}

/// Else a read of 1 after a write of 2 would be no read of anything.
#[test]
fn a_keyed_history_has_pairs_and_nothing_else() {
    let no_pair = "not a pair of a key and a value, as --keyed says";
    let lines = [
        r#"{"process":0,"type":"invoke","f":"write","value":[1,1]}"#,
        r#"{"process":0,"type":"ok","f":"write","value":1}"#,
    ];
    assert!(refused(&(lines.join("\n") + "\n"), true).contains(no_pair));
    let edn =
        "{:process 0 :type :invoke :f :read :value nil}\n{:process 0 :type :ok :f :read :value 7}";
    assert!(refused(edn, true).contains(no_pair));
    let log = "INFO  jepsen.util - 0\t:invoke\t:write\t1";
    assert!(refused(log, true).contains(no_pair));
    // What failed may tell a reason instead.
    let lines = [
        lines[0],
        r#"{"process":0,"type":"info","f":"write","value":"timed out"}"#,
    ];
    assert_eq!(parsed(&lines.join("\n"), true).records.len(), 2);
}

#[test]
fn only_the_nemesis_has_a_name_instead_of_a_number() {
    let unknown = "process that is not a whole number";
    for text in [
        "{\"process\":\"c1\",\"type\":\"invoke\",\"f\":\"read\",\"value\":null}\n",
        "{:process \"c1\" :type :ok :f :read :value 2}",
        "{:process :client-1 :type :invoke :f :read :value nil}",
        "{:process 1.5 :type :invoke :f :read :value nil}",
        "INFO  jepsen.util - c0\t:invoke\t:write\t1",
    ] {
        assert!(refused(text, false).contains(unknown), "{text}");
    }
}

#[test]
fn values_of_every_kind_survive() {
    let edn = r#"{:process 1, :type :invoke, :f :write, :value ["a\n\u00e9\"" 1.5 -7 \a :k/w {:a 1} #{3} () true 99999999999999999999N]}"#;
    assert_eq!(
        shown(&parsed(edn, false)),
        [
            "1 Invoke write nil [\"a\\né\\\"\" 1.5 -7 \\a :k/w {:a 1} [3] [] true 99999999999999999999N]"
        ]
    );
    let json = r#"{"process":1,"type":"invoke","f":"write","key":"k\u00e9","value":["a\nb",1.5e3,-7,[],true,{"a":1}]}"#;
    assert_eq!(
        shown(&parsed(json, false)),
        ["1 Invoke write \"ké\" [\"a\\nb\" 1.5e3 -7 [] true {\"a\":1}]"]
    );
    let record = parsed(
        r#"{"process":0,"type":"ok","f":"r","value":9223372036854775807}"#,
        false,
    )
    .records[0];
    assert_eq!(record.argument, Argument::One(Value::Integer(i64::MAX)));
    assert_eq!(record.operation_type, OperationType::Ok);
}

#[test]
fn packed_files_are_unpacked() {
    let text = "{:process 1, :type :invoke, :f :read, :value nil}\n".repeat(3);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    let packed = encoder.finish().unwrap();
    assert_eq!(unpack(packed.clone(), u64::MAX).unwrap(), text.as_bytes());
    assert_eq!(
        unpack(text.clone().into_bytes(), u64::MAX).unwrap(),
        text.as_bytes()
    );
    for whole in [packed.clone(), text.clone().into_bytes()] {
        let small = unpack(whole, text.len() as u64 - 1).unwrap_err();
        let limit = format!("more than {} bytes", text.len() - 1);
        assert!(small.to_string().contains(&limit), "{small}");
    }
    let torn = unpack(packed[..packed.len() - 9].to_vec(), u64::MAX).unwrap_err();
    assert!(torn.to_string().contains("cannot be unpacked"), "{torn}");
    let length = packed.len() - 9;
    let place = format!("at byte {length} of {length}");
    assert!(torn.to_string().ends_with(&place), "{torn}");
}

#[test]
fn damage_is_named_with_line_and_column() {
    let good = r#"{"process":0,"type":"invoke","f":"read"}"#;
    let mut wrong = Vec::new();
    for (text, expected) in [
        (
            format!("{good}\n{{\"process\":0,\"type\":\"ok\",\"f\" \"read\"}}\n"),
            "line 2 column 30: expected ':', found '\"'",
        ),
        (
            format!("{good}\n{{\"process\":0,\"type\":\"okay\",\"f\":\"read\"}}\n"),
            "line 2 column 27: a type must be",
        ),
        (
            "{\"process\":0,\"type\":\"ok\"}\n".to_owned(),
            "the field \"f\" is missing",
        ),
        (
            format!("{good} x\n"),
            "line 1 column 42: expected the end of the line, found 'x'",
        ),
        (
            "{:process 0, :type :invoke, :f :read, :value [1 2}".to_owned(),
            "line 1 column 50: expected a value, found '}'",
        ),
        (
            "[{:process 0, :type :invoke,\n :f :read".to_owned(),
            "line 2 column 10: expected the end of an operation, but the file ends here",
        ),
        (
            "{:process 0, :type :done, :f :read}".to_owned(),
            "column 25: a type must be",
        ),
        (
            format!("{{:process 0 :value {}", "[".repeat(10_000)),
            "nested too deeply",
        ),
        (
            format!("{{\"process\":0,\"value\":{}\n\n", "[".repeat(10_000)),
            "nested too deeply",
        ),
        (
            "INFO jepsen.util - 0 :invoke :read nil\nINFO jepsen.util - 0 :oki :read nil\n"
                .to_owned(),
            "line 2 column 26: the type that ends here",
        ),
        (
            "INFO jepsen.util - 0 :invoke :cas [1 2\n".to_owned(),
            "line 1 column 39: expected the end of a list",
        ),
        ("hello\n".to_owned(), "cannot tell the format"),
        (
            "{:process 0, :type :ok, :f :read, :value 1}".to_owned(),
            "line 1 column 1: process 0 completes a read that it did not invoke",
        ),
        (
            format!("{good}\n{good}\n"),
            "line 2 column 1: process 0 invokes a read while its read of line 1",
        ),
        (
            format!(
                "{good}\n{}\n",
                good.replace("invoke", "ok").replace("read", "write")
            ),
            "completes a write, but invoked a read on line 1",
        ),
        (
            good.replace("read", "jump") + "\n",
            "has no function \"jump\"",
        ),
        (
            good.replace("read", "cas") + "\n",
            "the value of a cas must be [expected new], not nil",
        ),
    ] {
        let message = refused(&text, false);
        if !message.contains(expected) {
            wrong.push(format!("{message}, not {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let torn = parsed(&format!("{good}\n{}", &good[..20]), false);
    assert_eq!(torn.records.len(), 1);
    assert!(torn.notes[0].contains("the last line is incomplete"));
}

#[test]
fn a_completion_under_another_key_or_before_its_invocation_is_damage() {
    let keyed = |function: &str, invoked: &str, kind: &str, completed: &str| {
        format!(
            "{{:process 0, :type :invoke, :f :{function}, :value {invoked}}}\n\
             {{:process 0, :type :{kind}, :f :{function}, :value {completed}}}\n"
        )
    };
    for (text, expected) in [
        (
            keyed("write", "[1 2]", "ok", "[2 2]"),
            "line 2 column 1: process 0 completes a write of key 2, but invoked it on key 1 on line 1",
        ),
        (
            keyed("read", "[1 nil]", "ok", "[2 2]"),
            "line 2 column 1: process 0 completes a read of key 2, but",
        ),
        (
            keyed("write", "[1 2]", "fail", "[2 2]"),
            "completes a write of key 2",
        ),
        (
            "{\"process\":0,\"type\":\"invoke\",\"f\":\"write\",\"key\":\"1\",\"value\":2}\n\
             {\"process\":0,\"type\":\"ok\",\"f\":\"write\",\"key\":\"2\",\"value\":2}\n"
                .to_owned(),
            "line 2 column 1: process 0 completes a write of key \"2\", but invoked it on key \"1\"",
        ),
        (
            "{:process 0, :type :invoke, :f :read, :value [1 nil], :time 20}\n\
             {:process 0, :type :ok, :f :read, :value [1 nil], :time 19}\n"
                .to_owned(),
            "line 2 column 1: process 0 completes a read at time 19, before it invoked it at time 20 on line 1",
        ),
    ] {
        let is_keyed = !text.contains("\"key\"");
        let message = refused(&text, is_keyed);
        assert!(message.contains(expected), "{message}, not {expected}");
    }
    for (kind, value) in [
        ("ok", "[1 2]"),
        ("info", "[:timeout 2]"),
        ("info", "nil"),
        ("ok", "nil"),
    ] {
        let text = keyed("write", "[1 2]", kind, value);
        let history = parsed(&text, true);
        let read = judge(history, &Options::new(Model::Register));
        assert!(read.is_ok(), "{kind} {value}: {read:?}");
    }
}

#[test]
fn a_set_that_has_an_element_twice_is_a_violation_that_names_it() {
    for lines in [
        &["0 add 7", "0!", "0 add 8", "0!", "1 read", "1! [7 8 7]"][..],
        &["0 add 7", "0!", "1 read", "1! [7 7]", "1 read", "1! [7]"],
        &["0 add 7", "0!", "0 add 7", "0!", "1 read", "1! [7 7]"],
        &[
            "0 add 7",
            "0!",
            "0 contains 7",
            "0! true",
            "1 read",
            "1! [7 7]",
        ],
    ] {
        let report = judged(&edn(lines), Options::new(Model::Set));
        assert_eq!(report.valid, Validity::Invalid, "{}", report.summary);
        assert!(
            report.summary.contains("(with 7 twice)"),
            "{}",
            report.summary
        );
    }
}

#[test]
fn a_model_is_called_what_it_was_asked_for_as() {
    let text = "{:process 0, :type :invoke, :f :txn, :value [[:r 1 nil]]}\n";
    for (model, expected) in [
        (
            Model::Register,
            "the model register has no function \"txn\"; it has read and write",
        ),
        (
            Model::CasRegister,
            "the model cas-register has no function \"txn\"; it has read, write and cas",
        ),
    ] {
        let said = judge(parsed(text, false), &Options::new(model)).unwrap_err();
        assert!(said.to_string().ends_with(expected), "{said}");
    }
}

/// A small deterministic generator (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}

fn fuzz_factor() -> u64 {
    let factor = std::env::var("KRAFT_HARNESS_FUZZ_FACTOR").ok();
    factor.and_then(|text| text.parse().ok()).unwrap_or(1)
}

#[test]
fn no_bytes_whatever_crash_or_hang_a_reader() {
    let seeds: [&[u8]; 4] = [
        br#"{"index":1,"time":6,"process":0,"type":"invoke","f":"read","key":"a\"b","value":[null,{"x":[1.5]}]}
{"index":2,"time":7,"process":0,"type":"ok","f":"read","key":"a\"b","value":[4,true]}
"#,
        br#"[{:process 3, :type :invoke, :f :cas, :value [:k [1 2]]} ; note
#jepsen.history.Op{:process 3, :type :ok, :f :cas, :value [:k [1 2]], :e #inst "x" #_ {:a \a}}]"#,
        b"INFO  jepsen.util - 3\t:invoke\t:cas\t[1 2]\nINFO  jepsen.util - 3\t:fail\t:cas\t[1 2]\n",
        b"{:process 9, :type :invoke, :f :append, :key \"0\", :value \"x 9 0 y\"}\n{:process 9, :type :ok, :f :append, :key \"0\", :value \"x 9 0 y\"}",
    ];
    let parts: [&[u8]; 12] = [
        b"{",
        b"}",
        b"[",
        b"]",
        b"\"",
        b"\\",
        b"#",
        b"#_",
        b":",
        b"\n",
        b"\xff",
        b" - 1 :ok ",
    ];
    let started = Instant::now();
    for number in 0..4000 * fuzz_factor() {
        let mut random = Random(number);
        let mut bytes = seeds[random.below(seeds.len())].to_vec();
        for _ in 0..=random.below(6) {
            let place = random.below(bytes.len() + 1);
            match random.below(5) {
                0 if place < bytes.len() => bytes[place] = random.below(256) as u8,
                1 => bytes.truncate(place),
                2 => {
                    let part = parts[random.below(parts.len())];
                    bytes.splice(place..place, part.iter().copied());
                }
                3 => {
                    let end = place + random.below(bytes.len() - place + 1);
                    bytes.drain(place..end);
                }
                _ => {
                    let end = place + random.below(bytes.len() - place + 1);
                    let again = bytes[place..end].to_vec();
                    bytes.splice(place..place, again);
                }
            }
        }
        for format in [
            None,
            Some(Format::JsonLines),
            Some(Format::Edn),
            Some(Format::TextLog),
        ] {
            for model in Model::ALL {
                if let Ok(history) = read(&bytes, format, number % 2 == 0) {
                    let mut options = Options::new(model);
                    options.time_limit = Duration::from_secs(1);
                    let _ = judge(history, &options);
                }
            }
        }
        let _ = unpack([&[0x1f, 0x8b][..], &bytes].concat(), 1 << 20);
    }
    let elapsed = started.elapsed();
    assert!(
        elapsed < Duration::from_secs(60) * fuzz_factor() as u32,
        "{elapsed:?}"
    );
}
