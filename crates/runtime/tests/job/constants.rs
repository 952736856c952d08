//! Expressions that depend on nothing outside of them, and what is found out about them beforehand.

use crate::problems::{check, check_step};
use crate::setting::compiled;

/// What depends on nothing outside of it is evaluated beforehand.
#[test]
fn what_can_never_be_evaluated_is_refused() {
    check_step(
        "  - { id: a, set: { x: 1, y: \"n: ${1 / 0}\" } }",
        &["3:36: this always fails: division by zero"],
    );
    check_step(
        "  - { id: a, tool: any, each: \"${5}\" }",
        &["3:34: `each` goes through a list, not an integer"],
    );
    check_step(
        "  - { id: a, when: \"${size([1])}\", set: 1 }\n  - { id: b, wait: { until: \"${int('soon')}\" } }",
        &[
            "3:23: a condition must be true or false, not an integer",
            "4:32: this always fails: `int` cannot read this string",
        ],
    );
    check(
        "job: a\nsteps: [{ id: a, set: 1 }]\nanswer: ${[1, 2].map(x, x / 0)}",
        &["3:11: this always fails: division by zero"],
    );
}

/// Nothing is refused that may work: what depends on the run, what another part makes good, what a condition guards.
#[test]
fn what_may_be_evaluated_is_left_to_the_run() {
    let steps = [
        "{ id: a, set: \"${true || 1 / 0 > 0}\" }",
        "{ id: b, set: \"${random_int(5, 1)}\" }",
        "{ id: c, set: \"${1 / (now() - now())}\" }",
        "{ id: d, when: \"${input.n > 5}\", set: \"${1 / 0}\" }",
        "{ id: e, set: \"${input.n / 0}\" }",
        "{ id: f, set: \"${[uuid()][1]}\" }",
    ];
    let steps = steps.map(|step| format!("  - {step}\n")).concat();
    compiled(&format!("job: a\ninput: {{ n: integer }}\nsteps:\n{steps}"));
    // All of them together may take the work of one, and no more.
    let heavy = "${[1, 2, 3, 4, 5, 6, 7, 8].map(a, [1, 2, 3, 4, 5, 6, 7, 8].map(b, a * b))}";
    let many = (0..200).map(|n| format!("  - {{ id: s{n}, set: \"{heavy}\" }}\n"));
    compiled(&format!("job: a\nsteps:\n{}", many.collect::<String>()));
}
