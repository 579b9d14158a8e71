"""The study of estimators states what it should: little pay for noise, most of it for signal."""

from experiments import estimator_study


def test_noise_is_hardly_paid_and_a_clear_regret_is():
    rows = {row.name: row for row in estimator_study.rows()}
    (none,) = estimator_study.study(rows["no regret"], pools=200)
    (some,) = estimator_study.study(rows["regret 0.3"], pools=200)
    # 24 environments in 200 pools: standard errors of at most 0.01 (pools share a prior)
    assert none.shrunk <= 0.12 and 0.33 < none.raw < 0.39
    assert some.shrunk >= 0.8 * some.raw
