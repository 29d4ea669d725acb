//! Owns the independent check of a found order: real time and model, in one pass.
//! Never shares code with the search beyond the meaning of a single action.

use super::Operation;

/// Whether `order` (positions in `operations`) is a linearization; the reason where it is not.
pub(super) fn replay(
    initial: u32,
    operations: &[Operation],
    order: &[usize],
) -> Result<(), String> {
    let mut taken = vec![false; operations.len()];
    let mut state = initial;
    let mut latest_invocation = 0;
    for number in order {
        let operation = operations
            .get(*number)
            .ok_or_else(|| format!("operation {number} does not exist"))?;
        if std::mem::replace(&mut taken[*number], true) {
            return Err(format!("operation {number} is taken twice"));
        }
        // Everything before it in the order must have begun before it ended.
        latest_invocation = latest_invocation.max(operation.invoked);
        if operation
            .completed
            .is_some_and(|completed| completed < latest_invocation)
        {
            return Err(format!(
                "operation {number} ended before an operation began that stands before it"
            ));
        }
        state = operation
            .action
            .step(state)
            .ok_or_else(|| format!("operation {number} finds the value {state}"))?;
    }
    let missing = (0..operations.len())
        .find(|number| operations[*number].completed.is_some() && !taken[*number]);
    match missing {
        Some(number) => Err(format!("completed operation {number} is missing")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Action;
    use super::*;

    #[test]
    fn only_linearizations_pass() {
        let operation = |action, invoked, completed| Operation {
            action,
            invoked,
            completed: Some(completed),
        };
        let operations = [
            operation(Action::Write(1), 0, 1),
            operation(Action::Write(2), 2, 4),
            operation(Action::Read(1), 3, 5),
        ];
        assert_eq!(replay(0, &operations, &[0, 2, 1]), Ok(()));
        let reason = |order: &[usize]| replay(0, &operations, order).unwrap_err();
        assert!(reason(&[0, 1, 2]).contains("finds the value 2"));
        assert!(reason(&[1, 0, 2]).contains("ended before"));
        assert!(reason(&[0, 2]).contains("operation 1 is missing"));
        assert!(reason(&[0, 0]).contains("twice"));
    }
}
