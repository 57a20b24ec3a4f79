"""Names, variants, and what a row depends on."""

import pytest

from corag_ray.config import Config
from corag_ray.errors import ConfigError
from jobs.search import contestants
from jobs.search.contestants import STRATEGIES, fingerprint_of, methods_of


def params(method):
    return method.strategy.params


def test_ours_may_have_as_many_pairs_as_the_last_limit_and_variants_change_it_further():
    made = methods_of(["corag", "greedy"], "combination", 590, ["exploration=0.5, swaps=0", "pairs=60"])
    assert list(made) == ["corag", "greedy", "corag exploration=0.5, swaps=0", "corag pairs=60"]
    assert [params(m).pairs for m in made.values() if m.strategy.kind == "corag"] == [590, 590, 60]
    assert (params(made["corag exploration=0.5, swaps=0"]).exploration, params(made["corag"]).exploration) == (0.5, 0.0)
    assert params(made["corag exploration=0.5, swaps=0"]).swaps == 0
    assert {method.reranker for method in made.values()} == {"combination"}


def test_every_strategy_has_a_name():
    made = methods_of(list(STRATEGIES), "late_interaction", 60)
    assert list(made) == ["naive", "greedy", "beam", "mmr", "seed", "report", "carrot", "corag"]


@pytest.mark.parametrize(
    ("names", "variants", "message"),
    [
        (["gredy"], [], "unknown strategy 'gredy'; did you mean 'greedy'"),
        ([], ["swaps"], "a variant is written as PARAMETER=VALUE"),
        ([], ["swap=1"], "unknown search parameter 'swap'"),
        ([], ["swaps=many"], "swaps"),
    ],
)
def test_what_is_unknown_is_refused(names, variants, message):
    with pytest.raises((ConfigError, ValueError), match=message):
        methods_of(names, "late_interaction", 60, variants)


def test_a_row_depends_on_method_budget_and_limits(monkeypatch):
    monkeypatch.setattr(
        contestants, "run_fingerprint", lambda config, dataset: f"{config.budget_tokens} {config.methods}"
    )
    made = methods_of(["corag", "greedy"], "late_interaction", 590, ["swaps=0"])
    prints = [fingerprint_of(Config(), None, method, 512, [60, 590]) for method in made.values()]
    prints.append(fingerprint_of(Config(), None, made["corag"], 256, [60, 590]))
    prints.append(fingerprint_of(Config(), None, made["corag"], 512, [60, 210, 590]))
    assert len(set(prints)) == len(prints)
    assert fingerprint_of(Config(), None, made["corag"], 512, [60, 590]) == prints[0]
