"""What a compiled program executes, counted from its text."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from launch import chips, cost, hlo, products, roofline

WIDTH, LAYERS, ROWS = 64, 5, 32


def compiled(function, *arguments):
    return jax.jit(function).lower(*arguments).compile()


def count(program, **options):
    return cost.works(hlo.parse(program.as_text()), **options)


def layers_as(loop, weights_LDD, x_BD):
    """A small network: product, nonlinearity and normalisation per layer, and its gradient."""

    def layer(x_BD, w_DD):
        y_BD = jnp.tanh(x_BD @ w_DD)
        return y_BD / (1 + jnp.abs(y_BD).mean(-1, keepdims=True)), None

    def loss(weights_LDD):
        return loop(layer, x_BD, weights_LDD)[0].sum()

    return jax.value_and_grad(loss)(weights_LDD)


def unrolled(layer, x, weights):
    for w in weights:
        x, _ = layer(x, w)
    return x, None


@pytest.fixture(scope="module")
def both():
    weights = jnp.ones((LAYERS, WIDTH, WIDTH)) * 0.1
    x = jnp.ones((ROWS, WIDTH))
    loops = {"scanned": jax.lax.scan, "unrolled": unrolled}
    return {
        name: compiled(functools.partial(layers_as, loop), weights, x)
        for name, loop in loops.items()
    }


def test_unrolled_network_counts_what_xla_counts(both):
    works, xla = count(both["unrolled"]), both["unrolled"].cost_analysis()
    flops = cost.total(works, "matrix_flops") + cost.total(works, "other_flops")
    assert flops == pytest.approx(xla["flops"], rel=0.01)
    assert cost.total(works, "transcendentals") == pytest.approx(xla["transcendentals"], rel=0.01)


def test_loop_counts_what_its_unrolled_form_counts(both):
    scanned, straight = count(both["scanned"]), count(both["unrolled"])
    # Forward one product, backward two, 2 per multiply-add; the first layer's input has no gradient
    # in the unrolled program, and in the loop all layers are alike.
    product = 2 * ROWS * WIDTH * WIDTH
    assert cost.total(straight, "matrix_flops") == (3 * LAYERS - 1) * product
    assert cost.total(scanned, "matrix_flops") == 3 * LAYERS * product
    once = both["scanned"].cost_analysis()["flops"]  # XLA counts the body once
    assert once < 2 * 3 * product


def test_loops_inside_loops_multiply():
    def inner(x, _):
        return jnp.sin(x @ x), None

    def outer(x, _):
        return jax.lax.scan(inner, x, None, length=3)[0], None

    program = compiled(lambda x: jax.lax.scan(outer, x, None, length=7)[0], jnp.ones((16, 16)))
    works = count(program)
    assert cost.total(works, "matrix_flops") == 21 * 2 * 16**3
    assert cost.total(works, "transcendentals") == 21 * 16**2


def test_loop_without_a_known_end_takes_the_given_count_and_says_so():
    def halve(x):
        return x @ x * 0.5

    program = compiled(
        lambda x: jax.lax.while_loop(lambda x: x[0, 0] > 1e-3, halve, x), jnp.ones((8, 8))
    )
    works = count(program, unknown_trips=10)
    assert cost.total(works, "matrix_flops") == 10 * 2 * 8**3
    assert [work.unknown for work in works if work.unknown] == ["trip count, taken as 10"]


# The TPU compiler writes no trip count: it stands in the condition, the start and the step.
TPU_LOOP = """HloModule loop, is_scheduled=true, num_partitions=4

%body (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %p = (s32[]{:T(128)}, f32[8]{0:T(256)}) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%p), index=0
  %two = s32[]{:T(128)} constant(2)
  %next = s32[]{:T(128)} add(%i, %two)
  %x = f32[8]{0:T(256)} get-tuple-element(%p), index=1
  %y = f32[8]{0:T(256)} multiply(%x, %x)
  ROOT %t = (s32[]{:T(128)}, f32[8]{0:T(256)}) tuple(%next, %y)
}

%condition (p.1: (s32[], f32[8])) -> pred[] {
  %end = s32[]{:T(128)} constant(11)
  %p.1 = (s32[]{:T(128)}, f32[8]{0:T(256)}) parameter(0)
  %i.1 = s32[]{:T(128)} get-tuple-element(%p.1), index=0
  ROOT %less = pred[]{:T(512)} compare(%i.1, %end), direction=LT
}

ENTRY %main (x.1: f32[8]) -> f32[8] {
  %x.1 = f32[8]{0:T(256)} parameter(0)
  %start = s32[]{:T(128)} constant(1)
  %init = (s32[]{:T(128)}, /*index=1*/f32[8]{0:T(256)}) tuple(%start, %x.1)
  %loop = (s32[]{:T(128)}, f32[8]{0:T(256)}) while(%init), condition=%condition, body=%body
  ROOT %out = f32[8]{0:T(256)} get-tuple-element(%loop), index=1
}
"""


def test_trip_count_is_read_from_counter_and_bound():
    works = cost.works(hlo.parse(TPU_LOOP))
    times = {work.name: work.times for work in works}
    assert times["y"] == 5  # 1, 3, 5, 7, 9


# One gather, started in a fusion, carried on in a second, ended in a third.
TPU_ASYNCHRONOUS = """HloModule gather, is_scheduled=true, num_partitions=4

%start (p: bf16[1,64]) -> (bf16[1,64], bf16[4,64], u32[]) {
  %p = bf16[1,64]{1,0} parameter(0)
  %g = bf16[4,64]{1,0} all-gather(%p), channel_id=1, replica_groups=mesh['a'=2,'b'=4] {'b'}, \
dimensions={0}, frontend_attributes={chain_id="0"}
  ROOT %c = (bf16[1,64]{1,0}, bf16[4,64]{1,0}, u32[]{:S(2)}) custom-call(%g), \
custom_call_target="AsyncCollectiveStart"
}

%end (q: bf16[1,64], r: bf16[4,64], s: u32[]) -> bf16[4,64] {
  %q = bf16[1,64]{1,0} parameter(0)
  %r = bf16[4,64]{1,0} parameter(1)
  %s = u32[]{:S(2)} parameter(2)
  %g.1 = bf16[4,64]{1,0} all-gather(%q), channel_id=1, replica_groups=mesh['a'=2,'b'=4] {'b'}, \
dimensions={0}, frontend_attributes={chain_id="0"}
  ROOT %d = bf16[4,64]{1,0} custom-call(%q, %r, %g.1, %s), custom_call_target="AsyncCollectiveDone"
}

ENTRY %main (x: bf16[1,64]) -> bf16[4,64] {
  %x = bf16[1,64]{1,0} parameter(0)
  %f = (bf16[1,64]{1,0}, bf16[4,64]{1,0}, u32[]{:S(2)}) fusion(%x), kind=kCustom, calls=%start
  %a = bf16[1,64]{1,0} get-tuple-element(%f), index=0
  %b = bf16[4,64]{1,0} get-tuple-element(%f), index=1
  %e = u32[]{:S(2)} get-tuple-element(%f), index=2
  ROOT %h = bf16[4,64]{1,0} fusion(%a, %b, %e), kind=kCustom, calls=%end
}
"""


def test_steps_of_an_asynchronous_gather_count_once():
    exchanges = [w.collective for w in cost.works(hlo.parse(TPU_ASYNCHRONOUS)) if w.collective]
    assert [(e.kind, e.bytes, e.group) for e in exchanges] == [
        ("all-gather", 4 * 64 * 2, (0, 1, 2, 3))
    ]


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ("replica_groups={{0,2},{1,3}}", (0, 2)),
        ("replica_groups=[2,2]<=[4]", (0, 1)),
        ("replica_groups=[2,2]<=[2,2]T(1,0)", (0, 2)),
        ("replica_groups={}", (0, 1, 2, 3)),
        ("replica_groups=mesh['x'=2,'y'=2] {'x'}", (0, 2)),
        ("replica_groups=mesh['x'=2,'y'=2] {'x','y'}", (0, 1, 2, 3)),
        ("replica_groups=mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0)) {'x'}", (0, 1)),
    ],
)
def test_first_group_of_every_notation(text, group):
    line = f"%r = f32[4]{{0}} all-reduce(%x), {text}, to_apply=%add"
    assert hlo.parse_instruction(line).group(devices=4) == group


def test_batched_product_as_a_dilated_convolution_counts_its_multiply_adds():
    # 8 x 4 batch axes stand in the window: [8, 4] products of [512, 128] with [128, 512].
    text = """HloModule c

ENTRY %main (a: f32[512,8,128,4], b: f32[512,8,128,4]) -> f32[8,512,512,4] {
  %a = f32[512,8,128,4]{3,2,1,0} parameter(0)
  %b = f32[512,8,128,4]{3,2,1,0} parameter(1)
  ROOT %c = f32[8,512,512,4]{3,2,1,0} convolution(%a, %b), window={size=8x4 stride=7x1 pad=0_0x3_3 \
lhs_dilate=8x1 rhs_reversal=0x1}, dim_labels=b0f1_o0i1->0bf1
}
"""
    entry = hlo.parse(text).computations["main"]
    # Each of the 8 windows meets one element of the first axis. Of the second axis, window places
    # 0..3 at outputs 0..3 with padding 3 lie inside where place + output is 3..6: 10 pairs of 16.
    assert products.convolution(entry, entry.root) == 2 * 128 * 512 * 512 * 8 * 10


def test_padded_strided_convolution_counts_what_xla_counts():
    image, kernel = jnp.ones((2, 15, 16, 4)), jnp.ones((3, 5, 4, 8))

    def convolve(image):
        return jax.lax.conv_general_dilated(
            image, kernel, (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    program = compiled(convolve, image)
    flops = cost.total(count(program), "matrix_flops")
    assert flops == pytest.approx(program.cost_analysis()["flops"], rel=0.02)


def test_slice_of_a_large_array_costs_the_slice():
    def pick(rows, index):
        return jnp.sin(jax.lax.dynamic_index_in_dim(rows, index, keepdims=False))

    program = compiled(pick, jnp.ones((1000, 256)), jnp.int32(3))
    read_and_written = 2 * 256 * 4
    assert cost.total(count(program), "memory_bytes") < 1.5 * read_and_written


def test_gather_inside_a_loop_counts_every_turn():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("x",))
    place = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "x"))
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    by_rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))

    def layer(x_BD, w_DD):
        w_DD = jax.lax.with_sharding_constraint(w_DD, whole)
        return jax.lax.with_sharding_constraint(jnp.tanh(x_BD @ w_DD), by_rows), None

    x = jax.ShapeDtypeStruct((64, 32), jnp.float32, sharding=by_rows)
    weights = jax.ShapeDtypeStruct((6, 32, 32), jnp.float32, sharding=place)
    works = count(compiled(lambda x, w: jax.lax.scan(layer, x, w)[0], x, weights))
    gathers = [work for work in works if work.collective and work.collective.kind == "all-gather"]
    assert sum(work.times * work.collective.bytes for work in gathers) == 6 * 32 * 32 * 4
    where = chips.Slice(
        chip=chips.CHIPS["v5e"], shape=(4,), coordinates=tuple((i,) for i in range(4))
    )
    # Three quarters come from elsewhere, over one direction of a line of four chips.
    seconds = roofline.measure(works, where).network_seconds
    assert seconds == pytest.approx(6 * 32 * 32 * 4 * 0.75 / 45e9)


@pytest.mark.parametrize(
    ("shape", "group", "links"),
    [
        ((16, 16), [(0, y) for y in range(16)], 2),  # a whole ring
        ((16, 16), [(x, y) for x in range(16) for y in range(16)], 4),  # rings of both axes
        ((16, 16), [(0, y) for y in range(4)], 1),  # a line
        ((16, 16), [(0, y) for y in range(0, 16, 4)], 0.5),  # a ring shared by four groups
        ((8, 8), [(0, y) for y in range(8)], 1),  # too short to close
        ((4, 4), [(0, 0)], np.inf),
    ],
)
def test_rate_of_a_group_follows_its_rings(shape, group, links):
    where = chips.Slice(chip=chips.CHIPS["v5e"], shape=shape, coordinates=tuple(group))
    assert where.ring_rate(tuple(range(len(group)))) == links * 45e9


# Prefetches as the TPU compiler writes them; S(1) is on-chip memory and costs nothing.
TPU_PREFETCH = """HloModule prefetch, is_scheduled=true, num_partitions=1

ENTRY %main (x: f32[1024], y: s8[4096]) -> f32[1024] {
  %x = f32[1024]{0:T(1024)} parameter(0)
  %y = s8[4096]{0:T(1024)} parameter(1)
  %copy-start = (f32[1024]{0:T(1024)S(1)}, f32[1024]{0:T(1024)}, u32[]{:S(2)}) copy-start(%x)
  %slice-start = ((s8[4096]{0:T(1024)}), s8[1024]{0:T(1024)S(1)}, s32[]{:S(2)}) slice-start(%y), slice={[0:1024]}
  %slice-done = s8[1024]{0:T(1024)S(1)} slice-done(%slice-start)
  ROOT %copy-done = f32[1024]{0:T(1024)S(1)} copy-done(%copy-start)
}
"""  # noqa: E501


def test_a_prefetch_reads_once_what_it_fetches():
    # 1,024 floats, and a quarter of 4,096 bytes.
    works = cost.works(hlo.parse(TPU_PREFETCH))
    assert cost.total(works, "memory_bytes") == 1024 * 4 + 1024


# As the TPU compiler writes it, shortened: 8 heads, 2,048 tokens in 4 blocks, 128 channels.
SPLASH = """HloModule s

ENTRY %main (t: s8[1,4,4], q: bf16[8,2048,128], k: bf16[2,2048,128]) -> bf16[8,2048,128] {
  %t = s8[1,4,4]{2,1,0} parameter(0)
  %q = bf16[8,2048,128]{2,1,0} parameter(1)
  %k = bf16[2,2048,128]{2,1,0} parameter(2)
  ROOT %splash_mha_NAME.1 = bf16[8,2048,128]{2,1,0} custom-call(%t, %t, %q, %k, %k), \
custom_call_target="tpu_custom_call", frontend_attributes={kernel_metadata={
"xprof_metadata":"{}"
}}, metadata={op_name="attend"}
}
"""


@pytest.mark.parametrize(("name", "products"), [("fwd_x", 2), ("dkv_x", 4), ("dq_x", 3)])
def test_splash_kernel_counts_the_blocks_on_and_below_the_diagonal(name, products):
    work = cost.works(hlo.parse(SPLASH.replace("NAME", name)))[-1]
    pairs = 10 * 512 * 512  # 4 + 3 + 2 + 1 blocks of 16
    assert work.matrix_flops == products * 2 * pairs * 128 * 8 and work.source == "attend"
    # Operands and results once: queries and result of 8 heads, keys twice of 2, tables of 16 bytes.
    # For each of 10 pairs of blocks two of 512 tokens come anew, for every head.
    head = 2048 * 128 * 2
    once = (8 + 8 + 2 + 2) * head + 2 * 16
    assert work.memory_bytes == once + 2 * 8 * 10 * 512 * 128 * 2


def test_kernel_without_estimate_or_model_is_told_and_not_guessed():
    text = SPLASH.replace("%splash_mha_NAME.1", "%other.1")
    work = cost.works(hlo.parse(text))[-1]
    assert work.matrix_flops == 0 and "other.1" in work.unknown


# As the TPU compiler writes it, shortened: a product whose input is cut from a stack of 6 within a
# fusion of its own.
NESTED = """HloModule n

%cut (s: f32[6,8,4], i: s32[]) -> f32[8,4] {
  %s = f32[6,8,4]{2,1,0} parameter(0)
  %i = s32[] parameter(1)
  %zero = s32[] constant(0)
  %row = f32[1,8,4]{2,1,0} dynamic-slice(%s, %i, %zero, %zero), dynamic_slice_sizes={1,8,4}
  ROOT %flat = f32[8,4]{1,0} bitcast(%row)
}

%outer (t: f32[6,8,4], j: s32[], w: f32[4,2]) -> f32[8,2] {
  %t = f32[6,8,4]{2,1,0} parameter(0)
  %j = s32[] parameter(1)
  %w = f32[4,2]{1,0} parameter(2)
  %left = f32[8,4]{1,0} fusion(%t, %j), kind=kLoop, calls=%cut
  ROOT %out = f32[8,2]{1,0} dot(%left, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

ENTRY %main (a: f32[6,8,4], k: s32[], v: f32[4,2]) -> f32[8,2] {
  %a = f32[6,8,4]{2,1,0} parameter(0)
  %k = s32[] parameter(1)
  %v = f32[4,2]{1,0} parameter(2)
  ROOT %f = f32[8,2]{1,0} fusion(%a, %k, %v), kind=kOutput, calls=%outer
}
"""


def test_a_slice_inside_a_fusion_of_a_fusion_costs_the_slice():
    works = cost.works(hlo.parse(NESTED))
    # 8 x 4 of the stack, the place, the weight and the result; the product itself.
    assert cost.total(works, "memory_bytes") == (32 + 1 + 8 + 16) * 4
    assert cost.total(works, "matrix_flops") == 2 * 8 * 4 * 2


# As the TPU compiler writes it, shortened: the sums of two gradients, each cut to its own part.
SCATTERED = """HloModule c, num_partitions=4

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %z = f32[] add(%x, %y)
}

%all-reduce-scatter.6 (a: f32[128,2], b: f32[8,128]) -> (f32[32,2], f32[8,32]) {
  %a = f32[128,2]{1,0:S(1)} parameter(0)
  %b = f32[8,128]{1,0:S(1)} parameter(1)
  %all-reduce.1 = (f32[128,2]{1,0}, f32[8,128]{1,0}) all-reduce(%a, %b), \
replica_groups={{0,1,2,3}}, to_apply=%add
  %one = f32[128,2]{1,0} get-tuple-element(%all-reduce.1), index=0
  %place = u32[] partition-id()
  %zero = u32[] constant(0)
  %mine = f32[32,2]{1,0:S(1)} dynamic-slice(%one, %place, %zero), dynamic_slice_sizes={32,2}
  %two = f32[8,128]{1,0} get-tuple-element(%all-reduce.1), index=1
  %own = f32[8,32]{1,0:S(1)} dynamic-slice(%two, %zero, %place), dynamic_slice_sizes={8,32}
  ROOT %t = (f32[32,2]{1,0:S(1)}, f32[8,32]{1,0:S(1)}) tuple(%mine, %own)
}

ENTRY %main (p: f32[128,2], q: f32[8,128]) -> (f32[32,2], f32[8,32]) {
  %p = f32[128,2]{1,0:S(1)} parameter(0)
  %q = f32[8,128]{1,0:S(1)} parameter(1)
  ROOT %f = (f32[32,2]{1,0:S(1)}, f32[8,32]{1,0:S(1)}) fusion(%p, %q), kind=kCustom, \
calls=%all-reduce-scatter.6
}
"""


def test_sums_of_several_arrays_that_a_fusion_cuts_at_once_are_a_reduce_scatter():
    exchanges = [work.collective for work in cost.works(hlo.parse(SCATTERED)) if work.collective]
    assert [(e.kind, e.bytes) for e in exchanges] == [("reduce-scatter", 4 * (128 * 2 + 8 * 128))]
