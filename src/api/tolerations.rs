//! Tolerations, as Kubernetes writes them.

use super::strict::{Case, Field};
use crate::claim::{Toleration, TolerationOperator};

pub(super) fn read_tolerations(field: &Field<'_, '_>) -> Vec<Toleration> {
    let operators = [("Equal", TolerationOperator::Equal), ("Exists", TolerationOperator::Exists)];
    let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"].map(|effect| (effect, effect));
    let read = |element: Field<'_, '_>| {
        let mut object = element.object();
        let text = |field: Field<'_, '_>| field.string().filter(|text| !text.is_empty()).map(str::to_owned);
        let operator_field = object.field(&["operator"]);
        let operator = operator_field.one_of(&operators, Case::Exact).unwrap_or_default();
        let key = text(object.field(&["key"]));
        let value = text(object.field(&["value"]));
        let effect = object.field(&["effect"]);
        let effect = effect.string().filter(|text| !text.is_empty()).and_then(|_| effect.one_of(&effects, Case::Exact));
        let seconds = object.field(&["tolerationSeconds"]).integer(i64::MIN, i64::MAX);
        match operator {
            TolerationOperator::Equal if key.is_none() => operator_field.problem("must be Exists if there is no key"),
            TolerationOperator::Exists if value.is_some() => operator_field.problem("must not be Exists with a value"),
            _ => {}
        }
        object.finish();
        Toleration { key, operator, value, effect: effect.map(str::to_owned), seconds }
    };
    field.list().unwrap_or_default().into_iter().map(read).collect()
}
