"""Walks through trees: every body meets exactly its parent and its children, against plain loops."""

from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdyn.recursion import Walk, branches, equal_limbs, outward

# Many small programs: what counts is the time to compile them.
quickly = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False})


def random_parents(rng, n, roots=1.0, follow=1.0):
    """Return a random forest numbered depth-first: each body hangs on the one before, or on an ancestor of it.

    `roots` and `follow` are the weights of the world and of the body before; the others have weight one.
    """
    parents = [-1]
    for body in range(1, n):
        path = [body - 1]
        while path[-1] >= 0:
            path.append(parents[path[-1]])
        weights = np.array([follow, *(1.0 for _ in path[2:]), roots])
        parents.append(int(rng.choice(path, p=weights / weights.sum())))
    return tuple(parents)


CHAIN = (-1, 0, 1, 2, 3)
QUADRUPED = (-1, 0, 1, 2, 0, 4, 5, 0, 7, 8, 0, 10, 11)
LARGE = random_parents(np.random.default_rng(1), 60, roots=0.3, follow=4.0)
# name: parents, bases
WALKS = {
    "one": ((-1,), ()),
    "one base": ((-1,), (0,)),
    "chain": (CHAIN, ()),
    "chain on a base": (CHAIN, (0,)),
    "star": ((-1, 0, 0, 0), ()),
    "star on a base": ((-1, 0, 0, 0), (0,)),
    "quadruped": (QUADRUPED, ()),
    "quadruped on a base": (QUADRUPED, (0,)),
    "equal chains": ((-1, 0, -1, 2), ()),
    "forest": ((-1, 0, -1, 2, 3, 3, -1), ()),
    "forest on two bases": ((-1, 0, -1, 2, 3, 3, -1), (0, 2)),
    "bases and chains": ((-1, 0, 1, -1, -1, 4, 5, -1), (0, 4)),
    "bare bases": ((-1, -1, -1), (0, 1, 2)),
    "two quadrupeds": (QUADRUPED + tuple(13 + p if p >= 0 else p for p in QUADRUPED), (0, 13)),
    "uneven": ((-1, 0, 1, 0, 3, 4, 4, 6, 0), ()),
    "uneven on a base": ((-1, 0, 1, 0, 3, 4, 4, 6, 0), (0,)),
    "large": (LARGE, ()),
    "large on bases": (LARGE, tuple(body for body, p in enumerate(LARGE) if p < 0)[::2]),
}


def children_of(parents):
    return {body: [child for child, p in enumerate(parents) if p == body] for body in range(-1, len(parents))}


# ---------------------------------------------------------------------- tables
def test_random_forests_are_what_they_should_be():
    assert LARGE.count(-1) > 2
    assert max(map(len, children_of(LARGE).values())) > 3
    depth = []
    for p in LARGE:
        depth.append(1 + (depth[p] if p >= 0 else 0))
    assert max(depth) > 6


@pytest.mark.parametrize(
    ("parents", "table"),
    [
        (CHAIN, [[0], [1], [2], [3], [4]]),
        ((-1, -1, -1), [[0, 1, 2]]),
        ((-1, 0, -2, 2, -1, 4), [[0, 2, 4], [1, 3, 5]]),  # roots on two starts
        (QUADRUPED, None),
        ((-1, 0, -1), None),
        ((-1, -1, 1, -1, 3), None),
        ((-1, 0, -1, 2, 3, -1), None),  # two bodies each on the average
    ],
)
def test_equal_limbs(parents, table):
    found = equal_limbs(parents)
    assert found is table if table is None else found.tolist() == table


def test_equal_limbs_are_found_if_and_only_if_all_limbs_are_chains_of_one_length():
    rng, seen = np.random.default_rng(0), set()
    for _ in range(2000):
        parents = random_parents(rng, rng.integers(1, 7), roots=2.0)
        children = children_of(parents)
        limbs = []
        for root in children[-1]:
            limb = [root]
            while len(children[limb[-1]]) == 1:
                limb += children[limb[-1]]
            limbs.append(limb if not children[limb[-1]] else None)
        equal = None not in limbs and len({len(limb) for limb in limbs}) == 1
        found = equal_limbs(parents)
        assert (found is not None) == equal
        if equal:
            assert found.T.tolist() == limbs
        seen.add((equal, len(limbs)))
    assert {(e, k) for e in (True, False) for k in (1, 2, 3)} <= seen


def cases_of_branches(count=400):
    """Random forests whose root bodies hang on random starts, as a walk with bases has them."""
    rng = np.random.default_rng(2)
    for _ in range(count):
        starts = int(rng.integers(1, 4))
        parents = random_parents(
            rng, int(rng.integers(1, 40)), roots=rng.choice([0, 0.3, 3]), follow=rng.choice([1, 4])
        )
        yield tuple(p if p >= 0 else -1 - int(rng.integers(starts)) for p in parents), starts


def test_outward_every_body_begins_with_what_its_parent_handed_on():
    """Follow the tables with the names of bodies for numbers."""
    for parents, starts in cases_of_branches():
        way = branches(parents, starts)
        slots = [-1 - start for start in range(starts)] + [None] * (way.slots - starts)
        before = -1
        for body, parent in enumerate(parents):
            assert (slots[way.begin[body]] if way.jumps[body] else before) == parent
            if way.waits[body]:
                slots[way.end[body]] = body
            before = body


def test_inward_every_body_gets_what_all_its_children_handed_on():
    """Follow the tables backwards with sets of bodies for sums; nothing is counted twice or lost."""
    for parents, starts in cases_of_branches():
        way, children = branches(parents, starts), children_of(parents)
        slots, after = [[] for _ in range(way.slots)], []
        for body in reversed(range(len(parents))):
            got = after + (slots[way.end[body]] if way.waits[body] else [])
            assert sorted(got) == children[body]
            after = [body]
            if way.jumps[body]:
                kept = [] if way.opens[body] else slots[way.begin[body]]
                after, slots[way.begin[body]] = [], [*kept, body]
        for start in range(starts):
            assert sorted(slots[start]) == [body for body, p in enumerate(parents) if p == -1 - start]


def test_there_are_as_many_slots_as_bodies_that_ever_wait_at_once():
    most = 0
    for parents, starts in cases_of_branches():
        last = {p: body for body, p in enumerate(parents) if p >= 0 and p != body - 1}
        at_once = max(sum(p <= body < last[p] for p in last) for body in range(len(parents)))
        assert branches(parents, starts).slots == starts + at_once
        most = max(most, at_once)
    assert most > 3


def test_parents_that_come_later_or_start_nowhere_are_refused():
    for parents in ((-1, 2, -1), (-1, -2)):
        with pytest.raises(ValueError, match="must be numbered depth-first; body 1"):
            branches(parents, 1)


# ---------------------------------------------------------------------- sweeps
def affine(inboard, body):
    """Hand on scale * (what came) + shift: no two bodies may be exchanged, left out or met twice."""
    (c, ones), (scale, shift, two) = inboard, body
    assert type(two) is float
    c = scale * c + shift
    return (c, ones), (c, two * c + ones)


def weighted(weights, results):
    return sum((weights[key] * x).sum() for key, x in results.items())


@lru_cache
def compiled(name):
    """Return outward and inward results of one walk, and the gradient of a number that depends on all of them."""
    parents, bases = WALKS[name]
    walk = Walk(parents, bases)

    def sweep(scale, shift, world):
        bodies = walk.take((scale, shift, 2.0))
        kept = walk.join([stage[1] for stage in bodies])
        path, twice = walk.join(walk.outward(affine, (world, 1.0), bodies))
        (total, _), stages = walk.inward(affine, (0.0, 0.0), bodies)
        subtree, doubled = walk.join(stages)
        return {"path": path, "twice": twice - 1, "subtree": subtree, "doubled": doubled, "total": total, "kept": kept}

    def number(weights, *data):
        return weighted(weights, sweep(*data))

    return quickly(sweep), quickly(jax.grad(number, argnums=(1, 2, 3)))


def by_hand(parents, scale, shift, world):
    """Do the same by two loops, in NumPy."""
    path, subtree, total = {-1: world}, list(shift), 0 * world
    for body, parent in enumerate(parents):
        path[body] = scale[body] * path[parent] + shift[body]
    arrived = [0 * world for _ in parents]
    for body, parent in reversed(list(enumerate(parents))):
        subtree[body] = scale[body] * arrived[body] + shift[body]
        if parent < 0:
            total = total + subtree[body]
        else:
            arrived[parent] = arrived[parent] + subtree[body]
    path, subtree = np.stack([path[body] for body in range(len(parents))]), np.stack(subtree)
    return {"path": path, "twice": 2 * path, "subtree": subtree, "doubled": 2 * subtree, "total": total, "kept": shift}


def data_of(parents, seed=0):
    rng = np.random.default_rng(seed)
    scale, shift = rng.uniform(0.5, 1.5, (2, len(parents), 3))
    return scale, shift, rng.normal(size=3)


walks = pytest.mark.parametrize("name", WALKS)


@walks
def test_sums_over_paths_and_subtrees(name):
    """With all scales one: outward is the sum along every path, inward the sum over every subtree."""
    parents, _ = WALKS[name]
    n = len(parents)
    above = np.eye(n, dtype=bool)
    for body, parent in enumerate(parents):
        above[body] |= above[parent] if parent >= 0 else False
    shift = np.random.default_rng(3).integers(-9, 10, (n, 3)).astype(float)
    found = compiled(name)[0](jnp.ones((n, 3)), jnp.array(shift), 100.0 * jnp.ones(3))
    np.testing.assert_array_equal(found["path"], 100 + above @ shift)
    np.testing.assert_array_equal(found["subtree"], above.T @ shift)
    np.testing.assert_array_equal(found["total"], shift.sum(0))


@walks
def test_sweeps_equal_loops(name):
    parents, _ = WALKS[name]
    data = data_of(parents)
    found, truth = compiled(name)[0](*data), by_hand(parents, *data)
    for key in truth:
        np.testing.assert_allclose(found[key], truth[key], rtol=1e-13, atol=1e-13, err_msg=key)


@pytest.mark.parametrize("name", ["chain", "quadruped on a base", "uneven on a base"])
def test_gradients_equal_those_of_loops(name):
    """With respect to both kinds of data and to what the world hands on; that of the loops is by a complex step."""
    parents, _ = WALKS[name]
    data, rng = data_of(parents), np.random.default_rng(4)
    weights = {key: rng.normal(size=x.shape) for key, x in by_hand(parents, *data).items()}
    gradient = compiled(name)[1](weights, *data)
    for _ in range(5):
        direction = [rng.normal(size=x.shape) for x in data]
        aside = by_hand(parents, *(x + 1e-100j * d for x, d in zip(data, direction, strict=True)))
        along = sum((g * d).sum() for g, d in zip(gradient, direction, strict=True))
        np.testing.assert_allclose(along, weighted(weights, aside).imag / 1e-100, rtol=1e-12)


@walks
def test_stages_hold_every_body_once(name):
    """In the shape of their tables; data comes back from them as it was (`kept`, above)."""
    parents, bases = WALKS[name]
    walk = Walk(parents, bases)
    places = [table.ravel().tolist() for table in walk.stages]
    assert sorted(np.concatenate(places).tolist()) == list(range(len(parents)))
    assert not bases or places[0] == list(bases)
    form = lambda x: walk.take({"x": x, "plain": 1.5, "one": 1})
    for stage, table in zip(form(np.zeros((len(parents), 2))), walk.stages, strict=True):
        assert stage["x"].shape == (*table.shape, 2)
        assert (stage["plain"], stage["one"]) == (1.5, 1)


@pytest.mark.parametrize("name", ["quadruped on a base", "uneven on a base"])
def test_plain_numbers_stay_plain_in_steps(name):
    """Numbers that all bodies share are known in the step, and what the world hands on is known to the bases."""
    walk, n = Walk(*WALKS[name]), len(WALKS[name][0])
    seen = []

    def step(inboard, body):
        seen.append((type(inboard), *map(type, body)))
        return inboard + body[0], body[1] * inboard

    jax.eval_shape(lambda x: walk.outward(step, 0.0, walk.take((x, 2.0, 3))), jnp.ones(n))
    assert {kinds[2:] for kinds in seen} == {(float, int)}
    assert seen[0][0] is float
    assert seen[-1][0] is not float


@pytest.mark.parametrize("name", ["chain", "quadruped on a base", "uneven on a base"])
def test_plain_numbers_stay_plain_in_results(name):
    """What a step knows of all bodies is known after the sweep; without stages it is an array like all results."""
    walk, parents = Walk(*WALKS[name]), WALKS[name][0]
    step = lambda carry, x: (carry + x, {"known": 2.5, "none": None, "x": x})
    x = jnp.arange(1.0, len(parents) + 1)
    for results in (walk.outward(step, 0.0, walk.take(x)), walk.inward(step, 0.0, walk.take(x))[1]):
        for result, table in zip(results, walk.stages, strict=True):
            assert (result["known"], result["none"]) == (2.5, None)
            np.testing.assert_array_equal(result["x"], table + 1.0)
    together = outward(parents, step, 0.0, x)
    np.testing.assert_array_equal(together["known"], np.full(len(parents), 2.5))
    np.testing.assert_array_equal(together["x"], x)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_what_is_handed_on_has_the_type_and_shape_of_the_data(dtype):
    """Also where a step hands on plain numbers, so that a scan can carry it."""
    walk = Walk((-1, 0, 0, 2, 0))
    step = lambda carry, x: ((carry[0] + x, 1.0), x)
    (total, one), _ = jax.eval_shape(lambda x: walk.inward(step, (0.0, 0.0), walk.take(x)), jnp.ones((5, 2), dtype))
    assert {(x.shape, x.dtype) for x in (total, one)} == {((2,), jnp.dtype(dtype))}


# ---------------------------------------------------------------------- without stages
def test_outward_equals_the_walk():
    parents, data = LARGE, data_of(LARGE)
    path, twice = quickly(lambda *data: outward(parents, affine, (data[2], 1.0), (*data[:2], 2.0)))(*data)
    truth = by_hand(parents, *data)
    np.testing.assert_allclose(path, truth["path"], rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(twice - 1, truth["twice"], rtol=1e-13, atol=1e-13)


def test_outward_over_nothing():
    step = lambda a, b: (a, (a + b["x"].sum(), b["x"]))
    total, x = outward((), step, 1.0, {"x": jnp.zeros((0, 3), jnp.float32)})
    assert (total.shape, x.shape) == ((0,), (0, 3))
    assert x.dtype == jnp.float32
    assert Walk(()).stages == []
