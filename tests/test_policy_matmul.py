"""Products are multiplied in their own dtype and summed in float32, those of gradients too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spade_jax.policy import matmul, platforms


def test_sums_are_float32_and_the_result_is_rounded_once():
    # 256 + 1 is no bfloat16; a sum in bfloat16 would stay at 256 and then give 0.
    left = jnp.asarray([[256.0, 1.0, -256.0]], jnp.bfloat16)
    ones = jnp.ones((3, 1), jnp.float32)
    product = matmul.einsum("BD,DF->BF", left, ones)
    assert product.dtype == jnp.bfloat16 and float(product[0, 0]) == 1.0
    exact = matmul.einsum("BD,DF->BF", left[:, :2], ones[:2], out="float32")
    assert exact.dtype == jnp.float32 and float(exact[0, 0]) == 257.0


@pytest.mark.parametrize(
    "axes, shapes",
    [
        ("BTD,DHC->BTHC", ((2, 3, 4), (4, 2, 5))),
        ("BTHC,HCD->BTD", ((2, 3, 2, 5), (2, 5, 4))),
        ("...D,VD->...V", ((2, 3, 4), (6, 4))),
        ("...AR,ARV->...V", ((3, 2, 4), (2, 4, 6))),
        ("BTKGC,BSKC->BKGTS", ((2, 3, 2, 2, 4), (2, 5, 2, 4))),
    ],
)
def test_results_and_gradients_are_those_of_the_plain_product(axes, shapes):
    left, right = (jax.random.normal(jax.random.key(i), s) for i, s in enumerate(shapes))
    weights = jax.random.normal(jax.random.key(9), jnp.einsum(axes, left, right).shape)

    def value(product):
        return lambda *operands: jnp.sum(product(axes, *operands) * weights)

    ours = jax.value_and_grad(value(matmul.einsum), (0, 1))(left, right)
    plain = jax.value_and_grad(value(jnp.einsum), (0, 1))(left, right)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), ours, plain)


def products(jaxpr):
    for step in jaxpr.eqns:
        if step.primitive.name == "dot_general":
            yield step
        for inner in step.params.values():
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                yield from products(inner)


def test_no_product_of_the_gradient_mixes_dtypes():
    left, right = jnp.ones((2, 3), jnp.bfloat16), jnp.ones((3, 4))

    def loss(left, right):
        return jnp.sum(matmul.einsum("BD,DF->BF", left, right, out="float32") ** 2)

    found = list(products(jax.make_jaxpr(jax.grad(loss, (0, 1)))(left, right).jaxpr))
    assert len(found) == 3  # forward, and one for each operand
    for product in found:
        assert {operand.aval.dtype.name for operand in product.invars} == {"bfloat16"}
        assert product.params["preferred_element_type"] == jnp.float32
    gradients = jax.grad(loss, (0, 1))(left, right)
    assert gradients[0].dtype == jnp.bfloat16 and gradients[1].dtype == jnp.float32


def test_float64_stays_float64():
    with jax.enable_x64(True):
        left = jnp.asarray([[1.0, 1e-12]], jnp.float64)
        product = matmul.einsum("BD,DF->BF", left, jnp.ones((2, 1), jnp.float64))
        assert float(product[0, 0]) == 1.0 + 1e-12


def test_a_letter_in_one_place_only_is_refused():
    with pytest.raises(ValueError, match="F stands in one place only"):
        matmul.einsum("BDF,DV->BV", jnp.ones((1, 2, 3)), jnp.ones((2, 4)))


def test_a_trace_for_another_platform_asks_for_no_wider_sums_and_is_not_used_for_this_one():
    left, right = jnp.ones((2, 3), jnp.bfloat16), jnp.ones((3, 4), jnp.bfloat16)
    program = jax.jit(lambda x, y: matmul.einsum("BD,DF->BF", x, y))

    def kept():
        made = program.trace(left, right).jaxpr
        return [step.params["preferred_element_type"] for step in products(made.jaxpr)]

    with platforms.compiled_for("tpu"):
        assert kept() == [jnp.bfloat16]
        program.lower(left, right)
    assert kept() == [jnp.float32]
    with platforms.compiled_for("tpu"):
        assert kept() == [jnp.bfloat16]


def test_a_program_that_ran_is_traced_again_for_another_platform():
    traces = []

    @jax.jit
    def program(x):
        traces.append(platforms.current())
        return x + 1

    one = jnp.ones(())
    for _ in range(2):
        program(one)
        with platforms.compiled_for("tpu"):
            program.lower(one)
    program(one)
    assert traces == ["cpu", "tpu"]
