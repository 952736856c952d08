//! Every rule of job files, with the place and the words in which it is refused.

use gesta_runtime::job::parse;

use crate::setting::{compiled, refused};

/// Compares what is wrong with a file with what should be, line by line.
pub(crate) fn check(text: &str, expected: &[&str]) {
    let expected: Vec<String> = expected
        .iter()
        .map(|line| {
            if line.starts_with("hint:") { format!("  {line}") } else { format!("job.yaml:{line}") }
        })
        .collect();
    assert_eq!(refused(text), expected.join("\n"), "\n{text}");
}

/// The same for one step, whose text begins in line 3.
pub(crate) fn check_step(step: &str, expected: &[&str]) {
    check(&format!("job: a\nsteps:\n{step}"), expected);
}

#[test]
fn the_file_is_one_object_of_known_keys() {
    check("", &["1:1: the file is empty"]);
    check("# nothing\n", &["1:1: the file is empty"]);
    check("- a", &["1:1: expected a job, found a list"]);
    check("job: a\nsteps: []\n---\njob: b", &["3:1: a file holds one document"]);
    check(
        "job: a\nstep: []",
        &[
            "1:1: a job has `steps`",
            "2:1: unknown key `step` in a job",
            "hint: did you mean `steps`?",
        ],
    );
    check(
        "steps: []",
        &[
            "1:1: this job has no name",
            "hint: begin the file with `job: NAME`",
            "1:8: a job has at least one step",
        ],
    );
    check(
        "job: A b\nsteps: 5",
        &[
            "1:6: `A b` is not the name of a job",
            "hint: use at most 64 of `a-z`, `0-9`, `_` and `-`",
            "2:8: expected a list of steps, found an integer",
        ],
    );
    check(
        "job: a\ndescription: 5\nparallel: 0\nbudget: { calls: -1, mony: 1 }\nsteps: [{ id: a, set: 1 }]",
        &[
            "2:14: expected a description, found an integer",
            "3:11: `parallel` must be between 1 and 1000",
            "4:18: `calls` must be between 0 and 9007199254740991",
            "4:22: unknown key `mony` in `budget`",
        ],
    );
}

#[test]
fn yaml_is_read_in_one_meaning_only() {
    check(
        "job: a\nsteps:\n  - id: a\n   set: 1",
        &["4:4: while parsing a block collection, did not find expected '-' indicator"],
    );
    check(
        "job: a\njob: b\nsteps: [{ id: a, set: { x: 1, x: 2 } }]",
        &[
            "2:1: the key `job` stands here twice",
            "hint: the first is in line 1",
            "3:31: the key `x` stands here twice",
            "hint: the first is in line 3",
        ],
    );
    check_step(
        "  - &x { id: a, set: *x }",
        &[
            "3:8: anchors and aliases are not part of job files",
            "hint: write the value out",
            "3:22: anchors and aliases are not part of job files",
            "hint: write the value out",
        ],
    );
    check_step(
        "  - { id: a, set: !!str 5 }",
        &["3:19: tags are not part of job files", "hint: leave the `!…` out"],
    );
    check_step("  - { id: a, set: { ? [1] : 2 } }", &["3:23: a key is a string"]);
    check_step(
        "  - { id: a, set: [9007199254740992, 1e999, .inf, 0755, -9007199254740991] }",
        &[
            "3:20: `9007199254740992` is beyond ±9007199254740991",
            "hint: write it as a string, in quotes",
            "3:38: `1e999` is not a finite number",
            "hint: write it as a string, in quotes",
            "3:45: `.inf` is not a finite number",
            "hint: write it as a string, in quotes",
            "3:51: `0755` is a decimal number to some readers and an octal one to others",
            "hint: write it as a string, in quotes",
        ],
    );
    check_step(
        "  - { id: a, set: ${input.x} }",
        &[
            "3:20: while parsing a flow mapping, did not find expected ',' or '}'",
            "hint: put strings that contain `${…}` in quotes",
        ],
    );
    check("%YAML 1.1\n---\njob: a", &["1:1: YAML directives are disallowed"]);
    check(
        &format!("job: a\nsteps: {}{}", "[".repeat(70), "]".repeat(70)),
        &["2:72: recursion limit exceeded"],
    );
    let large = format!("job: a # {}", "x".repeat(1 << 20));
    check(&large, &["1:1: the file is larger than 1048576 bytes"]);
}

#[test]
fn scalars_are_those_of_yaml_1_2_and_json() {
    let job = compiled(
        r#"{ "job": "a", "steps": [ { "id": "s", "set": { "a": [yes, no, on, 1.0, 1e3, .5, 0x1F, 0o17, +7, ~, null, True, 1:30, 2026-11-16, "5", '5', -0] } } ] }"#,
    );
    assert_eq!(
        job.plan.steps[0].spec.as_str(),
        r#"{"work":{"set":{"value":{"a":["yes","no","on",1,1000,0.5,31,15,7,null,null,true,"1:30","2026-11-16","5","5",0]}}}}"#
    );
    let json = "{\n\t\"job\": \"a\",\n\t\"steps\": [\n\t\t{ \"id\": \"s\", \"set\": \"\\ud83d\\ude00 \\/ \\u00e9\" }\n\t]\n}\n";
    assert_eq!(
        compiled(json).plan.steps[0].spec.as_str(),
        r#"{"work":{"set":{"value":"😀 / é"}}}"#
    );
}

#[test]
fn a_step_has_an_id_and_does_one_thing() {
    check_step(
        "  - set: 1\n  - 5",
        &["3:5: this step has no `id`", "4:5: expected a step, found an integer"],
    );
    check_step(
        "  - { id: A, set: 1 }\n  - { id: a/b, set: 1 }\n  - { id: 5, set: 1 }\n  - { id: answer, set: 1 }",
        &[
            "3:11: `A` is not the id of a step",
            "hint: use at most 100 of `a-z`, `0-9`, `_` and `-`",
            "4:11: `a/b` is not the id of a step",
            "hint: use at most 100 of `a-z`, `0-9`, `_` and `-`",
            "5:11: expected the id of a step, found an integer",
            "6:11: the id `answer` is reserved",
            "hint: say what the job answers under the key `answer` of the job",
        ],
    );
    check_step(
        "  - { id: a, set: 1 }\n  - { id: a, set: 2 }",
        &["4:11: there are two steps `a`", "hint: the first is in line 3"],
    );
    check_step(
        "  - id: a\n  - { id: b, set: 1, tool: any }\n  - { id: c, set: 1, wait: { for: 1s }, tool: any }",
        &[
            "3:5: this step does nothing",
            "hint: give it one of `tool`, `set`, `wait` and `delegate`",
            "4:14: a step has one of `tool`, `set`, `wait` and `delegate`; this one has `set` too",
            "hint: make it two steps",
            "5:14: a step has one of `tool`, `set`, `wait` and `delegate`; this one has `set` too",
            "hint: make it two steps",
        ],
    );
    check_step(
        "  - { id: a, set: 1, timeout: 5s, retries: 3, each: [1] }",
        &[
            "3:22: `timeout` belongs to a call, and this step has `set`",
            "3:35: unknown key `retries` in a step",
            "3:47: `each` belongs to a call, and this step has `set`",
        ],
    );
}

#[test]
fn a_call_is_declared_in_full() {
    check_step(
        "  - { id: a, tool: orders.raed, args: { id: x } }\n  - { id: b, tool: 'no such' }\n  - { id: c, tool: 5 }",
        &[
            "3:20: unknown tool `orders.raed`",
            "hint: did you mean `orders.read`?",
            "4:20: `no such` is not a tool name (letters, digits, `_ . : / -`, at most 128 characters)",
            "5:20: expected the name of a tool, found an integer",
        ],
    );
    check_step(
        "  - { id: a, tool: any, retry: { attempts: 0, backoff: fast, factor: 1.5, jitter: 1 }, timeout: 0s, on_cancel: halt }",
        &[
            "3:44: `attempts` must be between 1 and 100",
            "3:56: `fast` is not a length of time; write a whole number and a unit, as in `500ms`, `30s`, `5m`, `24h` or `7d`",
            "3:70: expected `factor`, found a number",
            "3:75: unknown key `jitter` in `retry`",
            "3:97: this must be longer than no time at all",
            "3:112: unknown `on_cancel` `halt`",
            "hint: it is `finish` or `stop`",
        ],
    );
    check_step(
        "  - { id: a, tool: any, retry: { attempts: 101 } }\n  - { id: b, tool: any, retry: { backoff: 10s, max_backoff: 5s } }\n  - { id: c, tool: any, timeout: 10 }",
        &[
            "3:44: `attempts` must be between 1 and 100",
            "4:61: `max_backoff` is shorter than `backoff`",
            "5:34: expected a length of time such as `10s`, found an integer",
        ],
    );
    check_step(
        "  - { id: a, tool: any, args: [1] }\n  - { id: b, tool: any, args: 'x ${input}' }\n  - { id: c, tool: any, each: 5 }\n  - { id: d, tool: any, each: 'a ${1}' }",
        &[
            "3:31: expected arguments: an object, or one `${…}` that yields one, found a list",
            "4:31: expected arguments: an object, or one `${…}` that yields one, found a string",
            "5:31: expected what to go through: a list, or one `${…}` that yields one, found an integer",
            "6:31: expected what to go through: a list, or one `${…}` that yields one, found a string",
        ],
    );
    check_step(
        "  - { id: a, tool: any, on_cancel: stop }\n  - { id: b, tool: mail.send, args: { to: x }, on_cancel: stop }",
        &[
            "4:59: a call of `mail.send` cannot be stopped: whether it happened would be unknown",
            "hint: leave `on_cancel: finish`; only tools whose recovery is `safe` can be stopped",
        ],
    );
}

#[test]
fn a_wait_has_one_end() {
    check_step(
        "  - { id: a, wait: {} }\n  - { id: b, wait: { timeout: 5s } }\n  - { id: c, wait: { signal: x, for: 5s } }\n  - { id: d, wait: { until: 5, for: 5s } }\n  - { id: e, wait: 5s }\n  - { id: f, wait: { until: soon } }\n  - { id: g, wait: { signal: 5, timout: 1s } }",
        &[
            "3:20: this waits for nothing",
            "hint: give it `signal`, `for` or `until`",
            "4:22: `timeout` without `signal`",
            "hint: to wait for a time, write `for`",
            "5:33: `for` beside `signal`",
            "hint: to limit the wait for a signal, write `timeout`",
            "6:32: `wait` ends once, so not by `for` too",
            "7:20: expected `wait`, found a string",
            "8:29: expected a time: milliseconds since 1970, or one `${…}` that yields them, found a string",
            "9:30: expected the key of a signal, found an integer",
            "9:33: unknown key `timout` in `wait`",
            "hint: did you mean `timeout`?",
        ],
    );
}

#[test]
fn problems_inside_expressions_are_shown_at_their_character() {
    let text = r#"job: a
input: { order: string, kind: string }
steps:
  - id: a
    set:
      plain: ${1 +}
      quoted: "first ${input.order} then ${input.ordr}"
      single: 'it''s ${input.odrer}'
      escaped: "say \"${input.\u006frdre}\""
      block: |
        line one $${x} ${input.order}
        line two ${steps.b.result}
      folded: >-
        one two
        ${size()}
      wide: "é $${x} ${inptu.order}"
    when: "steps.c.result =="
  - id: b
    set: [ "${
        input.kind
        * }" ]
    when: ${1 == nothing}
  - id: c
    set: 1
    when: [1]
"#;
    check(
        text,
        &[
            "6:19: expected a value, found the end",
            "7:44: unknown input `ordr`",
            "hint: did you mean `order`?",
            "8:24: unknown input `odrer`",
            "hint: did you mean `order`?",
            "9:25: unknown input `ordre`",
            "hint: did you mean `order`?",
            "15:11: `size` takes 1 argument, not 0",
            "16:24: unknown name `inptu`",
            "hint: did you mean `input`?",
            "17:29: expected a value, found the end",
            "19:15: expected a value, found the end",
            "22:18: unknown name `nothing`",
            "hint: an expression may use `input`, `steps`, `world`",
            "25:11: expected a condition, found a list",
        ],
    );
}

#[test]
fn a_step_that_is_mentioned_must_be_there() {
    let text = r#"job: a
steps:
  - { id: one, set: 1 }
  - { id: two-b, set: "${steps.on.result + steps.one.value}" }
  - { id: three, set: "${steps.two-b.result}" }
  - { id: four, set: "${steps.four.result}", needs: [four, fiver, one] }
  - { id: five, set: "${steps}", when: "size(steps) > 0" }
  - { id: six, set: "${[1].map(x, steps[x].result)}" }
  - { id: seven, set: "${steps.one}" }
  - { id: eight, set: "${steps.answer.result}" }
  - { id: nine, set: "${has(steps.one.result)}${steps['one']['result']}${steps['two-b'].skipped}" }
answer: { a: "${steps.tenn.result}" }
"#;
    check(
        text,
        &[
            "4:26: unknown step `on`",
            "hint: did you mean `one`?",
            "4:44: step `one` has no `value`",
            "hint: write `steps.one.result` or `steps.one.skipped`",
            "5:26: unknown step `two`",
            "hint: write `steps[\"two-b\"]` for the step `two-b`",
            "5:36: unknown name `b`",
            "hint: an expression may use `input`, `steps`, `world`",
            "6:25: step `four` needs itself",
            "6:54: step `four` needs itself",
            "6:60: unknown step `fiver`",
            "hint: did you mean `five`?",
            "7:25: `steps` is not a value",
            "hint: name a step, as in `steps.order.result` or `steps[\"my-order\"].result`",
            "7:46: `steps` is not a value",
            "hint: name a step, as in `steps.order.result` or `steps[\"my-order\"].result`",
            "8:35: `steps` is not a value",
            "hint: name a step, as in `steps.order.result` or `steps[\"my-order\"].result`",
            "9:26: step `one` is not a value",
            "hint: write `steps.one.result` or `steps.one.skipped`",
            "10:26: unknown step `answer`",
            "hint: the answer is computed last, so no step can use it",
            "12:17: unknown step `tenn`",
        ],
    );
}

#[test]
fn a_name_that_is_used_must_mean_something_there() {
    let text = r#"job: a
input: { order: string }
steps:
  - { id: one, set: "${input.oder} ${input.order} ${has(input.order)} ${input}" }
  - { id: two, set: "${world}", when: "world['a']['b'] == 1 && world[input.order].x" }
  - { id: three, set: "${item}", when: "index > 0" }
  - { id: four, tool: any, each: "${item}", args: { a: "${item} ${itme}" }, when: "item != index" }
  - { id: five, set: "${stesp.one.result}" }
  - { id: six, wait: { signal: "ok-${input.x}", until: "${nothing}" } }
answer: "${index}"
"#;
    check(
        text,
        &[
            "4:24: unknown input `oder`",
            "hint: did you mean `order`?",
            "5:24: `world` is not a value",
            "hint: name a resource, as in `world[\"type\"][\"id\"]`",
            "6:26: `item` has no meaning here",
            "hint: only the arguments or input and the condition of a step with `each` have it",
            "6:41: `index` has no meaning here",
            "hint: only the arguments or input and the condition of a step with `each` have it",
            "7:37: `item` has no meaning here",
            "hint: only the arguments or input and the condition of a step with `each` have it",
            "7:67: unknown name `itme`",
            "hint: did you mean `item`?",
            "8:25: unknown name `stesp`",
            "hint: did you mean `steps`?",
            "9:38: unknown input `x`",
            "hint: declare it under `input`",
            "9:59: unknown name `nothing`",
            "hint: an expression may use `input`, `steps`, `world`",
            "10:12: `index` has no meaning here",
            "hint: only the arguments or input and the condition of a step with `each` have it",
        ],
    );
}

#[test]
fn keys_are_not_computed() {
    check_step(
        "  - { id: a, set: { 'x-${input.q}': 1, '$${y}': 2 } }",
        &["3:21: the keys of an object are not computed", "hint: write the object as one `${{…}}`"],
    );
}

#[test]
fn problems_are_counted_up_to_a_hundred() {
    let steps: String =
        (0..500).map(|i| format!("  - {{ id: s{i}, tool: nosuch{i}, nope: 1 }}\n")).collect();
    let shown = refused(&format!("job: a\nsteps:\n{steps}"));
    assert_eq!(shown.matches("unknown key `nope`").count(), 100);
    let steps: String =
        (0..500).map(|i| format!("  - {{ id: s{i}, tool: nosuch{i} }}\n")).collect();
    let shown = refused(&format!("job: a\nsteps:\n{steps}"));
    assert_eq!(shown.matches("unknown tool").count(), 100);
    let pairs: String = (0..500)
        .map(|i| format!("  - {{ id: a{i}, set: 1, needs: [b{i}] }}\n  - {{ id: b{i}, set: 1, needs: [a{i}] }}\n"))
        .collect();
    let shown = refused(&format!("job: a\nsteps:\n{pairs}"));
    assert_eq!(shown.matches("wait for each other").count(), 8);
}

#[test]
fn a_cycle_is_named() {
    check_step(
        "  - { id: d, set: 1, needs: [c] }
  - { id: a, set: '${steps.c.result}' }
  - { id: b, set: 1, needs: [a] }
  - { id: c, set: '${steps.b.result}' }
  - { id: e, set: 1, needs: [f] }
  - { id: f, set: 1, when: steps.e.skipped }",
        &[
            "4:11: these steps wait for each other: `a` needs `c` needs `b` needs `a`",
            "7:11: these steps wait for each other: `e` needs `f` needs `e`",
        ],
    );
}

#[test]
fn inputs_are_declared_by_type() {
    check(
        "job: a\ninput:\n  a-b: string\n  b: strng\n  c: { default: 1 }\n  d: { type: integer, default: x, defualt: 1 }\n  e: { type: string, enum: [a, 5], default: b }\n  f: 5\n  g: { type: array, default: null }\n  in: string\n  h: { type: string, enum: [] }\nsteps: [{ id: s, set: '${input.b}${input.c}' }]",
        &[
            "3:3: `a-b` is not a name for an input",
            "hint: use letters, digits and `_`, so that `input.name` can be written",
            "4:6: unknown type `strng`",
            "hint: did you mean `string`?",
            "5:6: input `c` has no `type`",
            "6:32: input `d` is of type integer, not a string",
            "6:35: unknown key `defualt` in an input",
            "hint: did you mean `default`?",
            "7:32: input `e` is of type string, not an integer",
            "7:45: input `e` must be one of `\"a\"`",
            "8:6: expected an input, found an integer",
            "10:3: `in` is not a name for an input",
            "hint: use letters, digits and `_`, so that `input.name` can be written",
            "11:28: an input with no values cannot be given",
        ],
    );
    check(
        "job: a\ninput: [a]\nsteps: [{ id: s, set: 1 }]",
        &["2:8: expected inputs: an object of names and types, found a list"],
    );
}

#[test]
fn a_job_is_bounded() {
    let steps: String = (0..10_001).map(|i| format!("  - {{ id: s{i}, set: 1 }}\n")).collect();
    check(
        &format!("job: a\nsteps:\n{steps}"),
        &[
            "3:3: a job has at most 10000 steps, this one has 10001",
            "hint: use `each`, or `delegate`",
        ],
    );
    let steps: String = (0..9_000)
        .map(|i| format!("- {{ id: s{i}, tool: any, args: {{ a: '{}' }} }}\n", "x".repeat(50)))
        .collect();
    check(
        &format!("job: a\nsteps:\n{steps}"),
        &[
            "1:1: the plan of this job is too large: larger than 1048576 bytes",
            "hint: split the job",
        ],
    );
}

#[test]
fn structure_and_meaning_are_reported_together_where_both_can_be_read() {
    let text = "job: a\nsteps:\n  - { id: a, tool: nosuch, when: '1 +' }\n  - { id: b, set: '${steps.a.result}${steps.c.result}' }\n";
    check(
        text,
        &[
            "3:20: unknown tool `nosuch`",
            "3:38: expected a value, found the end",
            "4:39: unknown step `c`",
        ],
    );
    let parsed = parse("other.json", text).unwrap_err();
    assert_eq!(parsed.to_string(), "other.json:3:38: expected a value, found the end");
}

#[test]
fn what_undoes_a_call_must_be_there_and_fit() {
    check_step(
        "  - { id: a, tool: price.set, args: { kind: x }, compensate: nothing }",
        &[
            "3:62: expected `none`, or the `tool` that undoes the call and its `args`, found a string",
        ],
    );
    check_step(
        "  - { id: a, tool: price.set, args: { kind: x }, compensate: { args: {}, when: x } }",
        &[
            "3:62: `compensate` has no `tool`",
            "hint: name the tool that undoes this call, or write `none`",
            "3:74: unknown key `when` in `compensate`",
        ],
    );
    check_step(
        "  - { id: a, tool: price.set, args: { kind: x }, compensate: { tool: price.sett } }",
        &["3:70: unknown tool `price.sett`", "hint: did you mean `price.set`?"],
    );
    check_step(
        "  - { id: a, tool: price.set, args: { kind: x }, compensate: { tool: any } }\n  - { id: b, tool: any, compensate: { tool: mail.send, args: { to: x } } }",
        &[
            "3:70: `any` is read-only, and undoing changes something",
            "4:45: `any` is read-only: step `b` leaves nothing to undo",
            "hint: remove `compensate`",
        ],
    );
    check_step(
        "  - { id: a, tool: price.set, args: { kind: x }, compensate: { tool: mail.send, args: { body: 5, too: '${input.x}' } } }",
        &[
            "3:87: argument `to` is missing",
            "3:95: argument `body` must be of type string; this is an integer",
            "3:98: unknown argument `too`",
            "hint: did you mean `to`?",
            "3:106: unknown name `input`",
            "hint: the arguments of `compensate` may use `args`, `result` and `key` of the call that is undone",
        ],
    );
    check(
        "job: a\non_failure: undo\nsteps:\n  - { id: a, set: 1 }",
        &["2:13: unknown `on_failure` `undo`", "hint: it is `keep` or `compensate`"],
    );
}

#[test]
fn what_a_tool_is_undone_by_must_fit_too() {
    let undone = |args: serde_json::Value| {
        let mut seat = gesta_runtime::tools::Manifest::new(
            "seat".parse().unwrap(),
            gesta_core::writ::Effect::Write,
        );
        let mut free = seat.clone();
        free.name = "free".parse().unwrap();
        free.input = Some(serde_json::json!({
            "type": "object", "required": ["seat"], "properties": { "seat": { "type": "integer" } },
        }));
        seat.compensate =
            Some(gesta_runtime::tools::Compensate { args, tool: "free".parse().unwrap() });
        let tools = [seat, free].into_iter().fold(
            gesta_runtime::tools::Catalogue::builder(),
            |builder, manifest| {
                builder.function(manifest, |_: gesta_runtime::tools::FunctionCall| async {
                    Ok::<_, gesta_runtime::tools::FunctionError>(serde_json::Value::Null)
                })
            },
        );
        let job = "job: a\nsteps:\n  - { id: a, tool: seat }\n";
        gesta_runtime::job::load("job.yaml", job, &tools.build().unwrap())
            .map(|compiled| compiled.tools.len())
            .map_err(|problems| problems.to_string())
    };
    assert_eq!(undone(serde_json::json!({ "seat": "${args.seat}" })), Ok(2), "both are needed");
    assert_eq!(
        undone(serde_json::json!({ "seats": 5 })),
        Err("job.yaml:3:20: the undo of `seat` by `free`: argument `seat` is missing\njob.yaml:3:20: the undo of `seat` by `free`: unknown argument `seats`\n  hint: did you mean `seat`?".to_owned())
    );
}
