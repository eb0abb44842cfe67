"""Collectives: what each rank gets, what they refuse, and what is found when the ranks' calls do not go together."""

import random
from concurrent.futures import ThreadPoolExecutor

import nki
import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from nki_sim.cores import interleaved

pytestmark = pytest.mark.filterwarnings("ignore::nki_sim.NkiWarning")
ROWS, COLUMNS = 16, 24
DTYPES = {"float32": nl.float32, "bfloat16": nl.bfloat16, "int32": nl.int32, "uint8": nl.uint8}


def group(n, *lists):
    return ncc.ReplicaGroup([list(ranks) for ranks in lists] or [list(range(n))])


def inputs(n, shape=(ROWS, COLUMNS), dtype=np.float32):
    made = [np.random.default_rng(rank).integers(-40, 40, shape) for rank in range(n)]
    return [np.abs(a).astype(dtype) if dtype is np.uint8 else a.astype(dtype) for a in made]


def in_hbm(shape, dtype, name):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm, name=name)


def between(call, result_shape, on_chip=False):
    """A kernel that brings its argument to where ``call(src, dst)`` takes it, and returns what that made of it."""

    def kernel(x):
        out = in_hbm(result_shape(x.shape), x.dtype, "out")
        if on_chip:
            src, dst = nl.load(x), nl.ndarray(result_shape(x.shape), dtype=x.dtype, buffer=nl.sbuf)
        else:
            src, dst = in_hbm(x.shape, x.dtype, "src"), in_hbm(result_shape(x.shape), x.dtype, "dst")
            nisa.dma_copy(dst=src, src=x)
        call(src, dst)
        nisa.dma_copy(dst=out, src=dst)
        return out

    return nki.jit(kernel)


def same(shape):
    return tuple(shape)


def reduced(g, op=nl.add):
    return lambda src, dst: ncc.all_reduce(srcs=[src], dsts=[dst], replica_group=g, op=op)


def gathered(g, dim=0):
    return lambda src, dst: ncc.all_gather(srcs=[src], dsts=[dst], replica_group=g, collective_dim=dim)


def scattered(g, op=nl.add, dim=0):
    return lambda src, dst: ncc.reduce_scatter(srcs=[src], dsts=[dst], replica_group=g, collective_dim=dim, op=op)


def exchanged(g, dim=0):
    return lambda src, dst: ncc.all_to_all(srcs=[src], dsts=[dst], replica_group=g, collective_dim=dim)


def passed_on(g, **more):
    def call(src, dst):
        ncc.collective_permute_implicit(srcs_by_channel=[[src]], dsts_by_channel=[[dst]], replica_group=g, **more)

    return call


def run(kernel, xs, **options):
    return nki_sim.run_ranks(kernel, xs, ranks=len(xs), **options)


def refused(kernel, xs, **options):
    with pytest.raises(nki_sim.NkiError) as caught:
        run(kernel, xs, **options)
    return caught.value.diagnosis


# --- results -----------------------------------------------------------------------------------------------------------

OPS = {nl.add: np.add, nl.minimum: np.minimum, nl.maximum: np.maximum}


@pytest.mark.parametrize("n", [1, 2, 3, 8])
@pytest.mark.parametrize("on_chip", [False, True])
@pytest.mark.parametrize("op", OPS)
def test_all_reduce(n, on_chip, op):
    xs = inputs(n)
    done = run(between(reduced(group(n), op), same, on_chip), xs)
    expected = OPS[op].reduce(xs)
    assert len(done.result) == n
    for result in done.result:
        np.testing.assert_array_equal(result, expected)
    assert done.findings == []


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_whole_numbers_are_exact_and_saturate(dtype):
    xs = [np.full((4, 4), 200 if dtype == "uint8" else 2**30 + 1, dtype) for _ in range(2)]
    results = run(between(reduced(group(2)), same), xs).result
    np.testing.assert_array_equal(results[0], np.full((4, 4), 255 if dtype == "uint8" else 2**31 - 1, dtype))


@pytest.mark.parametrize(("on_chip", "dim"), [(False, 0), (True, 0), (True, 1)])
def test_all_gather(on_chip, dim):
    xs = inputs(4)
    shape = lambda s: tuple(4 * n if i == dim else n for i, n in enumerate(s))  # noqa: E731
    for result in run(between(gathered(group(4), dim), shape, on_chip), xs).result:
        np.testing.assert_array_equal(result, np.concatenate(xs, axis=dim))


@pytest.mark.parametrize("on_chip", [False, True])
def test_reduce_scatter(on_chip):
    xs = inputs(4)
    results = run(between(scattered(group(4)), lambda s: (s[0] // 4, s[1]), on_chip), xs).result
    np.testing.assert_array_equal(np.concatenate(results), np.sum(xs, axis=0))


def test_all_to_all():
    xs = inputs(4)
    results = run(between(exchanged(group(4)), same), xs).result
    for rank, result in enumerate(results):
        np.testing.assert_array_equal(result, np.concatenate([x[4 * rank : 4 * rank + 4] for x in xs]))


def test_lists_work_each_by_itself():
    xs = inputs(4)
    results = run(between(reduced(group(4, [0, 2], [1, 3])), same), xs).result
    for rank, result in enumerate(results):
        np.testing.assert_array_equal(result, xs[rank] + xs[(rank + 2) % 4])


def test_the_order_of_a_list_is_the_order_of_the_parts():
    xs = inputs(3)
    for result in run(between(gathered(group(3, [2, 0, 1])), lambda s: (3 * s[0], s[1])), xs).result:
        np.testing.assert_array_equal(result, np.concatenate([xs[2], xs[0], xs[1]]))


def test_several_tensors_in_one_call():
    xs = inputs(3)

    def kernel(x):
        n = len(xs)
        tensors = [in_hbm((ROWS, 12), x.dtype, name) for name in ("a", "b", "c", "d")]
        for i, tensor in enumerate(tensors[:2]):
            nisa.dma_copy(dst=tensor, src=x[:, 12 * i : 12 * i + 12])
        ncc.all_reduce(srcs=tensors[:2], dsts=tensors[2:], replica_group=group(n), op=nl.add)
        return tensors[2], tensors[3]

    for a, b in run(kernel, xs).result:
        np.testing.assert_array_equal(np.hstack([a, b]), np.sum(xs, axis=0))


def test_low_precision_is_rounded_once():
    xs = [nki_sim.to_dtype(np.random.default_rng(r).standard_normal((8, 8)), "bfloat16") for r in range(4)]
    result = run(between(reduced(group(4)), same), xs).result[0]
    expected = nki_sim.to_dtype(np.add.reduce([nki_sim.to_float32(x) for x in xs], dtype=np.float32), "bfloat16")
    np.testing.assert_array_equal(nki_sim.to_float32(result), nki_sim.to_float32(expected))


def test_permutes():
    xs = inputs(4)
    pairs = [(0, 2), (2, 0), (1, 3), (3, 1)]
    explicit = between(lambda src, dst: ncc.collective_permute(srcs=[src], dsts=[dst], source_target_pairs=pairs), same)
    for rank, result in enumerate(run(explicit, xs).result):
        np.testing.assert_array_equal(result, xs[(rank + 2) % 4])
    for on_chip in (False, True):
        for rank, result in enumerate(run(between(passed_on(group(4)), same, on_chip), xs).result):
            np.testing.assert_array_equal(result, xs[rank - 1])


def test_ranks_that_no_pair_names_take_no_part():
    def kernel(x):
        src, dst = in_hbm(x.shape, x.dtype, "src"), in_hbm(x.shape, x.dtype, "dst")
        nisa.dma_copy(dst=src, src=x)
        nisa.dma_copy(dst=dst, src=x)
        ncc.collective_permute(srcs=[src], dsts=[dst], source_target_pairs=[(0, 1), (1, 0)])
        return dst

    xs = inputs(3)
    for result, expected in zip(run(kernel, xs).result, (xs[1], xs[0], xs[2]), strict=True):
        np.testing.assert_array_equal(result, expected)


def test_a_ring_adds_up():
    def kernel(x):
        g, n = group(4), 4
        out = in_hbm(x.shape, x.dtype, "out")
        acc, mine, zero = nl.load(x), nl.load(x), nl.zeros(x.shape, dtype=x.dtype)
        for _ in range(n - 1):
            came = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
            ncc.collective_permute_implicit_reduce(
                srcs0_by_channel=[[mine]], srcs1_by_channel=[[zero]], dsts_by_channel=[[came]], replica_group=g, op=nl.add
            )
            nisa.tensor_tensor(dst=acc, data1=acc, data2=came, op=nl.add)
            mine = came
        nl.store(out, acc)
        return out

    xs = inputs(4)
    for result in run(kernel, xs).result:
        np.testing.assert_array_equal(result, np.sum(xs, axis=0))


def test_whose_data_it_is():
    def kernel(table):
        out = in_hbm((4, 1), table.dtype, "out")
        for i in range(4):
            whose = ncc.collective_permute_implicit_current_processing_rank_id(iteration_id=i, replica_group=group(4))
            nisa.dma_copy(dst=out[i : i + 1], src=table.ap(pattern=[[1, 1], [1, 1]], scalar_offset=whose, indirect_dim=0))
        return out

    table = np.arange(4, dtype=np.float32).reshape(4, 1)
    for rank, result in enumerate(run(kernel, [table] * 4).result):
        assert result.ravel().tolist() == [(rank - i) % 4 for i in range(4)]


def test_rank_ids():
    def kernel(table):
        out = in_hbm((1, 1), table.dtype, "out")
        nisa.dma_copy(dst=out, src=table.ap(pattern=[[1, 1], [1, 1]], scalar_offset=ncc.rank_id(), indirect_dim=0))
        return out

    table = np.arange(8, dtype=np.float32).reshape(8, 1)
    assert [int(r[0, 0]) for r in run(kernel, [table] * 8).result] == list(range(8))
    assert int(nki_sim.run(kernel, table).result[0, 0]) == 0


# --- variable lengths ------------------------------------------------------------------------------------------------------


def metadata(n, counts, displs, more=()):
    return np.array([counts, displs, [9] * n, *more], np.uint32)


def variable(call, known=False, **more):
    def kernel(x, meta):
        src, dst, m = (in_hbm(shape, dtype, name) for shape, dtype, name in (
            (x.shape, x.dtype, "src"), ((DST,), x.dtype, "dst"), (meta.shape, meta.dtype, "meta")))  # fmt: skip
        nisa.dma_copy(dst=dst, src=nl.zeros((1, DST), dtype=x.dtype))
        nisa.dma_copy(dst=src, src=x)
        nisa.dma_copy(dst=m, src=meta)
        call(srcs=[src], dsts=[dst], replica_group=GROUP, metadata_tensor=m, recv_counts_known=known, **more)
        return dst, m

    return nki.jit(kernel)


DST, GROUP = 32, None


@pytest.fixture
def four(monkeypatch):
    monkeypatch.setattr("test_collectives.GROUP", group(4))


@pytest.fixture
def two_nodes(monkeypatch):
    monkeypatch.setattr("test_collectives.GROUP", group(2))


def gather_v(**given):
    ncc.all_gather_v(**given)


def gather_v_in_two(**given):
    ncc.all_gather_v_trigger(ncc.all_gather_v_prepare(**given))


@pytest.mark.parametrize("call", [gather_v, gather_v_in_two])
@pytest.mark.parametrize("known", [False, True])
def test_all_gather_v(four, call, known):
    xs = [np.arange(10, dtype=np.float32) + 100 * r for r in range(4)]
    given = [(x, metadata(4, [r + 1] * 4, [r] * 4)) for r, x in enumerate(xs)]
    for dst, meta in run(variable(call, known)[2], given).result:
        expected = np.zeros(DST, np.float32)
        for r, x in enumerate(xs):
            expected[8 * r : 8 * r + r + 1] = x[r : 2 * r + 1]
        np.testing.assert_array_equal(dst, expected)
        assert meta[2].tolist() == ([9] * 4 if known else [1, 2, 3, 4])


def to_all_v(**given):
    ncc.all_to_all_v(**given)


def to_all_v_in_two(**given):
    ncc.all_to_all_v_trigger(ncc.all_to_all_v_prepare(**given))


@pytest.mark.parametrize("call", [to_all_v, to_all_v_in_two])
def test_all_to_all_v_between_nodes(two_nodes, call):
    xs = [np.arange(10, dtype=np.float32) + 100 * r for r in range(2)]
    counts = [[2, 3], [4, 1]]
    given = [(x, metadata(2, counts[r], [0, counts[r][0]])) for r, x in enumerate(xs)]
    results = run(variable(call)[2], given, ranks_per_node=1).result
    for rank, (dst, meta) in enumerate(results):
        expected = np.zeros(DST, np.float32)
        for r, x in enumerate(xs):
            first = 0 if rank == 0 else counts[r][0]
            expected[16 * r : 16 * r + counts[r][rank]] = x[first : first + counts[r][rank]]
        np.testing.assert_array_equal(dst, expected)
        assert meta[2].tolist() == [counts[0][rank], counts[1][rank]]


def test_all_to_all_v_through_a_switch(monkeypatch):
    monkeypatch.setattr("test_collectives.GROUP", group(8))
    xs = [np.arange(8, dtype=np.float32) + 10 * r for r in range(8)]
    given = [(x, metadata(8, [1] * 8, range(8), [[31 - r for r in range(8)]])) for x in xs]
    results = run(variable(to_all_v, has_rdispls=True)[2], given, target="trn3").result
    for rank, (dst, _) in enumerate(results):
        assert dst[24:].tolist() == [10 * r + rank for r in range(7, -1, -1)]


@pytest.mark.parametrize(("counts", "displs"), [([9, 1], [2, 0]), ([1, 1], [0, 10]), ([17, 1], [0, 0])])
def test_sizes_are_checked_when_it_runs(two_nodes, counts, displs):
    xs = [np.arange(20 if max(counts) > 10 else 10, dtype=np.float32) for _ in range(2)]
    given = [(x, metadata(2, counts, displs)) for x in xs]
    assert refused(variable(to_all_v)[2], given, ranks_per_node=1).rule.id == "coll.v_runtime_sizes"


def test_prepare_and_trigger_go_together(two_nodes):
    given = [(np.arange(10, dtype=np.float32), metadata(2, [1, 1], [0, 1])) for _ in range(2)]

    def twice(**more):
        ncc.all_to_all_v_prepare(**more)
        ncc.all_to_all_v_prepare(**more)

    def of_another(**more):
        ncc.all_gather_v_trigger(ncc.all_to_all_v_prepare(**more))

    def again(**more):
        ready = ncc.all_to_all_v_prepare(**more)
        ncc.all_to_all_v_trigger(ready)
        ncc.all_to_all_v_trigger(ready)

    for wrong in (twice, of_another, again):
        assert refused(variable(wrong)[2], given, ranks_per_node=1).rule.id == "coll.v_prepare_slot"
    never = variable(lambda **more: ncc.all_to_all_v_prepare(**more))
    assert refused(never[2], given, ranks_per_node=1).rule.id == "coll.v_prepare_done"
    assert refused(variable(to_all_v_in_two)[2], given, target="trn3").rule.id == "coll.v_prepare_switch"


# --- arguments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [[[0, 1], [1, 2]], [[0, 0]], [], [[]], 3, [0, 1], [["a"]], [[-1]]])
def test_groups(groups):
    with pytest.raises((nki_sim.NkiError, TypeError)) as caught:
        ncc.ReplicaGroup(groups)
    if isinstance(caught.value, nki_sim.NkiError):
        assert caught.value.diagnosis.rule.id == "coll.replica_disjoint"


def of(function):
    """The rule that stops a call on two ranks; the function gets the argument."""

    def rule(target="trn2", cores=1):
        def kernel(x):
            function(x)
            return x

        return refused(nki.jit(kernel)[cores] if cores > 1 else kernel, inputs(2), target=target).rule.id

    return rule


def hbm(shape=(ROWS, COLUMNS), dtype=nl.float32):
    made = nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=made, src=nl.zeros((shape[0], int(np.prod(shape[1:]))), dtype=dtype).reshape(shape))
    return made


def chip(shape=(ROWS, COLUMNS), dtype=nl.float32):
    return nl.zeros(shape, dtype=dtype)


def gen(**given):
    return {"replica_group": group(2), **given}


@pytest.mark.parametrize(("call", "rule"), [
    (lambda x: ncc.all_reduce([hbm()], [chip()], op=nl.add, **gen()), "coll.all_reduce.memory"),
    (lambda x: ncc.all_reduce([chip(), chip()], [chip(), chip()], op=nl.add, **gen()), "coll.all_reduce.coalesced"),
    (lambda x: ncc.all_reduce([hbm()], [hbm()], op=nl.multiply, **gen()), "coll.all_reduce.op"),
    (lambda x: ncc.all_reduce([hbm()], [hbm()], op="sum", **gen()), "kernel.operator"),
    (lambda x: ncc.all_reduce([hbm()], [hbm()], op=nl.add, priority=1, **gen()), "coll.priority"),
    (lambda x: ncc.all_reduce([hbm()], [hbm((8, 8))], op=nl.add, **gen()), "coll.shapes"),
    (lambda x: ncc.all_reduce([hbm()], [hbm(dtype=nl.int32)], op=nl.add, **gen()), "coll.shapes"),
    (lambda x: ncc.all_reduce([hbm()], [hbm(), hbm()], op=nl.add, **gen()), "coll.lists"),
    (lambda x: ncc.all_reduce(hbm(), [hbm()], op=nl.add, **gen()), "coll.lists"),
    (lambda x: ncc.all_reduce([3], [hbm()], op=nl.add, **gen()), "coll.lists"),
    (lambda x: ncc.all_reduce([hbm()], [nl.zeros((16, 24), dtype=nl.float32, buffer=nl.psum)], op=nl.add, **gen()),
     "coll.lists"),
    (lambda x: ncc.all_reduce([hbm()], [hbm()], op=nl.add, replica_group=[[0, 1]]), "coll.ranks"),
    (lambda x: ncc.all_reduce([hbm()], [hbm()], op=nl.add, replica_group=group(3)), "coll.ranks"),
    (lambda x: ncc.all_reduce([hbm()], [hbm()], op=nl.add, replica_group=group(1, [1])), "coll.ranks"),
    (lambda x: (lambda t: ncc.all_reduce([t], [t], op=nl.add, **gen()))(hbm()), "coll.in_place"),
    (lambda x: ncc.all_gather([hbm()], [chip((32, 24))], collective_dim=0, **gen()), "coll.all_gather.memory"),
    (lambda x: ncc.all_gather([chip()] * 2, [chip((32, 24))] * 2, collective_dim=0, **gen()), "coll.all_gather.coalesced"),
    (lambda x: ncc.all_gather([hbm()], [hbm((16, 48))], collective_dim=1, **gen()), "coll.all_gather.dim"),
    (lambda x: ncc.all_gather([chip()], [chip((16, 48))], collective_dim=2, **gen()), "coll.all_gather.dim"),
    (lambda x: ncc.all_gather([chip((16, 2, 12))], [chip((32, 2, 12))], collective_dim=0, **gen()), "coll.all_gather.dim"),
    (lambda x: ncc.reduce_scatter([chip()], [hbm((8, 24))], collective_dim=0, op=nl.add, **gen()),
     "coll.reduce_scatter.memory"),
    (lambda x: ncc.reduce_scatter([chip()] * 2, [chip((8, 24))] * 2, collective_dim=0, op=nl.add, **gen()),
     "coll.reduce_scatter.coalesced"),
    (lambda x: ncc.reduce_scatter([hbm()], [hbm((8, 24))], collective_dim=1, op=nl.add, **gen()), "coll.reduce_scatter.dim"),
    (lambda x: ncc.reduce_scatter([hbm()], [hbm((8, 24))], collective_dim=0, op=nl.subtract, **gen()),
     "coll.reduce_scatter.op"),
    (lambda x: ncc.reduce_scatter([hbm((3, 24))], [hbm((1, 24))], collective_dim=0, op=nl.add, **gen()), "coll.shapes"),
    (lambda x: ncc.all_to_all([chip()], [chip()], collective_dim=0, **gen()), "coll.all_to_all.hbm"),
    (lambda x: ncc.all_to_all([hbm()], [hbm()], collective_dim=1, **gen()), "coll.all_to_all.hbm"),
    (lambda x: ncc.collective_permute([chip()], [chip()], [(0, 1), (1, 0)]), "coll.permute.hbm_single"),
    (lambda x: ncc.collective_permute([hbm()] * 2, [hbm(), hbm()], [(0, 1), (1, 0)]), "coll.permute.hbm_single"),
    (lambda x: ncc.collective_permute([hbm()], [hbm()], [(0, 1)]), "coll.permute.ring"),
    (lambda x: ncc.collective_permute([hbm()], [hbm()], [(0, 1), (0, 1)]), "coll.permute.ring"),
    (lambda x: ncc.collective_permute([hbm()], [hbm()], [0, 1]), "coll.permute.ring"),
    (lambda x: ncc.collective_permute([hbm()], [hbm()], [(0, 2), (2, 0), (1, 1)]), "coll.ranks"),
    (lambda x: ncc.collective_permute_implicit([[hbm()]], [[hbm()]], channel_ids=[1], **gen()),
     "coll.permute_implicit.channels"),
    (lambda x: ncc.collective_permute_implicit([[hbm()]], [[hbm()]], channel_ids=[0, 1], **gen()),
     "coll.permute_implicit.channels"),
    (lambda x: ncc.collective_permute_implicit([[hbm()] * 2], [[hbm()]], **gen()), "coll.permute_implicit.channels"),
    (lambda x: ncc.collective_permute_implicit([hbm()], [hbm()], **gen()), "coll.permute_implicit.channels"),
    (lambda x: ncc.collective_permute_implicit([[hbm()]] * 5, [[hbm()] for _ in range(5)], channel_ids=range(5), **gen()),
     "coll.permute_implicit.channels"),
    (lambda x: ncc.collective_permute_implicit_reduce([[hbm()]], [[hbm()]], [[hbm()]], op=nl.multiply, **gen()),
     "coll.permute_implicit_reduce.op"),
    (lambda x: ncc.collective_permute_implicit_reduce([[hbm()]], [[hbm((8, 8))]], [[hbm()]], op=nl.add, **gen()),
     "coll.shapes"),
    (lambda x: ncc.collective_permute_implicit_current_processing_rank_id(0, channel_id=4, **gen()),
     "coll.current_rank_channel"),
    (lambda x: ncc.collective_permute_implicit_current_processing_rank_id(-1, **gen()), "coll.current_rank_channel"),
])  # fmt: skip
def test_arguments(call, rule):
    assert of(call)() == rule


def meta(rows=3, n=2, dtype=nl.uint32, on_chip=False):
    made = chip((1, rows, n), dtype) if on_chip else nl.ndarray((rows, n), dtype=dtype, buffer=nl.shared_hbm)
    if not on_chip:
        nisa.dma_copy(dst=made, src=nl.zeros((rows, n), dtype=dtype))
    return made


@pytest.mark.parametrize(("call", "rule", "target", "cores"), [
    (lambda x: ncc.all_gather_v([hbm()] * 2, [hbm()], metadata_tensor=meta(), **gen()),
     "coll.all_gather_v.one_tensor", "trn2", 2),
    (lambda x: ncc.all_gather_v([hbm()], [chip()], metadata_tensor=meta(), **gen()), "coll.all_gather_v.one_tensor", "trn2", 2),
    (lambda x: ncc.all_gather_v([hbm()], [hbm()], metadata_tensor=meta(4), **gen()), "coll.all_gather_v.metadata", "trn2", 2),
    (lambda x: ncc.all_gather_v([hbm()], [hbm()], metadata_tensor=meta(dtype=nl.int32), **gen()), "coll.all_gather_v.metadata",
     "trn2", 2),
    (lambda x: ncc.all_gather_v([hbm()], [hbm()], metadata_tensor=meta(), **gen()), "coll.all_gather_v.limits", "trn2", 2),
    (lambda x: ncc.all_gather_v([hbm()], [hbm()], metadata_tensor=meta(), **gen()), "coll.all_gather_v.limits", "trn3", 1),
    (lambda x: ncc.all_gather_v([hbm()], [hbm()], metadata_tensor=meta(4), has_rdispls=True, **gen()),
     "coll.all_gather_v.limits",
     "trn2", 2),
    (lambda x: ncc.all_to_all_v([hbm()] * 2, [hbm()], metadata_tensor=meta(), **gen()),
     "coll.all_to_all_v.one_tensor", "trn2", 2),
    (lambda x: ncc.all_to_all_v([chip()], [hbm()], metadata_tensor=meta(), **gen()), "coll.all_to_all_v.one_tensor", "trn2", 2),
    (lambda x: ncc.all_to_all_v([hbm()], [hbm()], metadata_tensor=meta(n=3), **gen()), "coll.all_to_all_v.metadata", "trn2", 2),
    (lambda x: ncc.all_to_all_v([hbm()], [hbm()], metadata_tensor=meta(4), has_rdispls=True, **gen()),
     "coll.all_to_all_v.rdispls",
     "trn2", 2),
    (lambda x: ncc.all_to_all_v([hbm()], [hbm()], metadata_tensor=meta(), **gen()), "coll.all_to_all_v.other", "trn2", 2),
    (lambda x: ncc.all_to_all_v([hbm()], [hbm()], metadata_tensor=meta(), **gen()), "coll.all_to_all_v.other", "trn1", 1),
    (lambda x: ncc.all_to_all_v([hbm()], [hbm()], metadata_tensor=meta(), **gen()), "coll.all_to_all_v.switch", "trn3", 2),
    (lambda x: ncc.all_to_all_v([hbm()], [hbm()], metadata_tensor=meta(), **gen()), "coll.all_to_all_v.switch", "trn3", 1),
])  # fmt: skip
def test_arguments_of_variable_lengths(call, rule, target, cores):
    assert of(call)(target, cores) == rule


def test_priorities_exist_on_trn3():
    run(
        between(lambda s, d: ncc.all_reduce([s], [d], op=nl.add, priority=0, replica_group=group(2)), same),
        inputs(2),
        target="trn3",
    )
    wrong = of(lambda x: ncc.all_reduce([hbm()], [hbm()], op=nl.add, priority=4, **gen()))
    assert wrong("trn3") == "coll.priority"


def test_a_plain_run_is_one_rank():
    alone = between(reduced(group(1)), same)
    np.testing.assert_array_equal(nki_sim.run(alone, inputs(1)[0]).result, inputs(1)[0])
    with pytest.raises(nki_sim.NkiError) as caught:
        nki_sim.run(between(reduced(group(2)), same), inputs(1)[0])
    assert caught.value.diagnosis.rule.id == "coll.ranks"


# --- ranks that do not agree -----------------------------------------------------------------------------------------------


def per_rank(*calls):
    """A kernel that makes another call on each rank."""

    def kernel(x, rank):
        calls[rank](x)
        return x

    return nki.jit(kernel), [(x, rank) for rank, x in enumerate(inputs(len(calls)))]


def test_a_rank_that_does_not_come():
    kernel, given = per_rank(lambda x: reduced(group(2))(hbm(), hbm()), lambda x: None)
    diagnosis = refused(kernel, given)
    assert diagnosis.rule.id == "coll.answered"
    assert "rank 0 waits" in diagnosis.headline
    assert "rank 1" in diagnosis.headline
    assert any("rank 1 ended" in note for note in diagnosis.notes)


def test_ranks_that_call_different_collectives():
    kernel, given = per_rank(
        lambda x: reduced(group(2))(hbm(), hbm()), lambda x: gathered(group(2))(hbm(), hbm((2 * ROWS, COLUMNS)))
    )
    diagnosis = refused(kernel, given)
    assert diagnosis.rule.id == "coll.answered"
    assert any("rank 1 waits at line" in note and "all_gather of ranks 0, 1" in note for note in diagnosis.notes)


@pytest.mark.parametrize("other", [
    lambda x: reduced(group(2), nl.maximum)(hbm(), hbm()),
    lambda x: reduced(group(2))(hbm((8, 8)), hbm((8, 8))),
    lambda x: reduced(group(2))(hbm(dtype=nl.int32), hbm(dtype=nl.int32)),
])  # fmt: skip
def test_ranks_whose_arguments_differ(other):
    kernel, given = per_rank(lambda x: reduced(group(2))(hbm(), hbm()), other)
    diagnosis = refused(kernel, given)
    assert diagnosis.rule.id == "coll.same_call"
    assert "rank 0" in diagnosis.headline
    assert "rank 1" in diagnosis.headline
    assert any("all_reduce of ranks 0, 1 at line" in note for note in diagnosis.notes)


# --- ranks, cores and executors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_the_same_whatever_the_order_of_the_ranks(seed):
    xs = inputs(4)
    kernel = between(reduced(group(4)), same)
    with interleaved(random.Random(seed).choice):
        done = run(kernel, xs)
    for one, other in zip(done.result, run(kernel, xs).result, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_ranks_of_two_cores(target):
    def kernel(x):
        me = nl.program_id(0)
        rows = slice(8 * me, 8 * me + 8)
        src, dst, out = (in_hbm(x.shape, x.dtype, name) for name in ("src", "dst", "out"))
        nisa.dma_copy(dst=src[rows], src=x[rows])
        ncc.all_reduce(srcs=[src], dsts=[dst], replica_group=group(4), op=nl.add)
        nisa.dma_copy(dst=out[rows], src=dst[rows])
        return out

    xs = inputs(4)
    done = run(nki.jit(kernel)[2], xs, target=target)
    for result in done.result:
        np.testing.assert_array_equal(result, np.sum(xs, axis=0))
    assert done.findings == []
    assert done.names[3] == "rank 1 core 1"


def test_the_record_runs_again():
    xs = inputs(4)
    done = run(between(scattered(group(4)), lambda s: (s[0] // 4, s[1])), xs)
    replay = done.replay()
    outs = [a for a in done.program.allocations if a.role == "output"]
    for out, expected in zip(outs, done.result, strict=True):
        np.testing.assert_array_equal(replay.values(out, len(done.program)), expected)


def test_executors():
    def kernel(x, scale):
        out = in_hbm(x.shape, x.dtype, "out")
        nl.store(out, nl.multiply(nl.load(x), scale))
        return out

    xs = inputs(3)
    with ThreadPoolExecutor(2) as pool:
        results = run(kernel, [(x, 2.0) for x in xs], executor=pool)
        for x, result in zip(xs, results, strict=True):
            np.testing.assert_array_equal(result, 2 * x)
        with pytest.raises(nki_sim.NkiError) as caught:
            run(between(reduced(group(3)), same), xs, executor=pool)
    assert caught.value.diagnosis.rule.id == "coll.executor"


@pytest.mark.parametrize(("given", "ranks"), [([1], 2), ([], 0), ([1, 2], True), ([1, 2], 1.0)])
def test_inputs_for_every_rank(given, ranks):
    with pytest.raises(nki_sim.NkiError) as caught:
        nki_sim.run_ranks(between(reduced(group(2)), same), given, ranks=ranks)
    assert caught.value.diagnosis.rule.id == "run_ranks.inputs"


def test_inputs_by_name_and_by_a_function_of_the_rank():
    xs = inputs(2)
    kernel = between(reduced(group(2)), same)
    for given in ([{"x": x} for x in xs], lambda rank: (xs[rank],)):
        np.testing.assert_array_equal(nki_sim.run_ranks(kernel, given, ranks=2).result[1], xs[0] + xs[1])


def test_time_grows_with_the_bytes_and_the_ranks():
    def total(n, columns):
        xs = [np.zeros((128, columns), np.float32)] * n
        return run(between(reduced(group(n)), same), xs).profile().total_time

    assert total(2, 512) < total(2, 65536)
    assert total(2, 512) < total(8, 512)
    done = run(between(reduced(group(2)), same), inputs(2))
    line, steps = done.timeline(), [s.index for s in done.program if s.instruction == "all_reduce"]
    before = [s.index for s in done.program if s.index < min(steps)]
    assert min(line.start[steps]) >= max(line.done[before])
    assert min(line.end[steps] - line.start[steps]) >= done.core.links.hop_ns
