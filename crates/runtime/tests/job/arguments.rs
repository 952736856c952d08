//! Arguments against the schemas of tools, as far as they are known before anything runs.

use crate::setting::{compiled, refused};

fn check(args: &str, expected: &[&str]) {
    let text = format!(
        "job: a\ninput: {{ order: string, amount: integer, rate: number, note: object, any: array }}\nsteps:\n  - {{ id: s, set: 1 }}\n  - id: a\n    tool: payments.refund\n    args: {args}\n"
    );
    if expected.is_empty() {
        compiled(&text);
        return;
    }
    let expected: Vec<String> = expected
        .iter()
        .map(|line| {
            if line.starts_with("hint:") { format!("  {line}") } else { format!("job.yaml:{line}") }
        })
        .collect();
    assert_eq!(refused(&text), expected.join("\n"), "{args}");
}

#[test]
fn what_is_written_out_must_fit() {
    check(r#"{ order: o-1, cents: 5, reason: late, note: { text: x }, tags: [a] }"#, &[]);
    check(
        r#"{ order: 5, cents: "5" }"#,
        &[
            "7:20: argument `order` must be of type string; this is an integer",
            "7:30: argument `cents` must be of type integer; this is a string",
        ],
    );
    check(
        r#"{ order: o1, cents: 0, reason: lost }"#,
        &[
            "7:20: argument `order`: \"o1\" is shorter than 3 characters",
            "7:31: argument `cents`: 0 is less than the minimum of 1",
            "7:42: argument `reason`: \"lost\" is not one of \"late\" or \"broken\"",
        ],
    );
    check(
        r#"{ cents: 5, note: { txt: x, text: 5 }, tags: [a, b, 5] }"#,
        &[
            "7:11: argument `order` is missing",
            "7:31: unknown argument `note/txt`",
            "7:45: argument `note/text` must be of type string; this is an integer",
            "7:56: argument `tags`: [\"a\",\"b\",5] has more than 2 items",
            "7:63: argument `tags/2` must be of type string; this is an integer",
        ],
    );
    check(
        r#"{ order: o-1, cent: 5 }"#,
        &[
            "7:11: argument `cents` is missing",
            "7:25: unknown argument `cent`",
            "hint: did you mean `cents`?",
        ],
    );
}

#[test]
fn what_is_computed_is_only_refused_if_no_value_could_fit() {
    check(r#"{ order: "${input.order}", cents: "${input.amount}" }"#, &[]);
    check(
        r#"{ order: "${steps.s.result}", cents: "${steps.s.result.x + 1}", reason: "${input.order}", tags: "${input.any}" }"#,
        &[],
    );
    // A number may be whole.
    check(r#"{ order: "o-${input.amount}", cents: "${input.rate}" }"#, &[]);
    check(
        r#"{ order: "${input.amount}", cents: "about ${input.amount}", note: "${input.any}" }"#,
        &[
            "7:20: argument `order` must be of type string; input `amount` is of type integer",
            "7:46: argument `cents` must be of type integer; this is a string",
            "7:77: argument `note` must be of type object; input `any` is of type array",
        ],
    );
    check(
        r#"{ order: "${input.order}", tags: ["${input.order}", "${input.order}", c], note: { text: "${input.order}", more: 1 } }"#,
        &[
            "7:11: argument `cents` is missing",
            "7:44: argument `tags`: [\"\",\"\",\"c\"] has more than 2 items",
            "7:117: unknown argument `note/more`",
        ],
    );
    check(r#""${input.note}""#, &[]);
    check(
        r#""${input.order}""#,
        &["7:11: the arguments must be of type object; input `order` is of type string"],
    );
}

#[test]
fn what_depends_on_a_computed_value_is_left_to_the_call() {
    let job = |args: &str| {
        format!(
            "job: a\ninput: {{ kind: string }}\nsteps:\n  - {{ id: a, tool: price.set, args: {args} }}\n"
        )
    };
    compiled(&job("{ kind: '${input.kind}', amount: 5 }"));
    compiled(&job("{ kind: '${input.kind}' }"));
    assert_eq!(refused(&job("{ kind: fixed }")), "job.yaml:4:37: argument `amount` is missing");
    assert_eq!(
        refused(&job("{ kind: '${input.kind}', amount: x }")),
        "job.yaml:4:70: argument `amount` must be of type null or integer; this is a string"
    );
}

#[test]
fn a_sample_does_not_decide_a_condition() {
    let job = |args: &str| {
        format!(
            "job: a\ninput: {{ n: integer }}\nsteps:\n  - {{ id: a, tool: measure, args: {args} }}\n"
        )
    };
    compiled(&job("{ amount: '${input.n}' }"));
    assert_eq!(refused(&job("{ amount: 5 }")), "job.yaml:4:35: argument `unit` is missing");
}

#[test]
fn a_call_without_arguments_is_checked_too() {
    let text = "job: a\nsteps:\n  - { id: a, tool: orders.read }\n  - { id: b, tool: any }\n";
    assert_eq!(refused(text), "job.yaml:3:5: argument `id` is missing");
}
