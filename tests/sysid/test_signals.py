"""Signals: exact on what they are exact for, no phase shift, files by the names of columns, errors that name the place."""

import numpy as np
import pytest

import jaxdyn
from jaxdyn.sysid import differentiate, lowpass, prepare, read_recording, resample

RATE = 500.0
T = np.arange(0, 6, 1 / RATE)


def test_resampling_undoes_jitter_and_repetition():
    rng = np.random.default_rng(0)
    t = np.sort(np.concatenate([T + 2e-4 * rng.uniform(size=len(T)), T[::20]]))
    t[50] = t[49]
    times, x = resample(t, np.stack([3 * t, np.sin(t)], axis=1), rate=RATE)
    assert np.allclose(np.diff(times), 1 / RATE)
    assert np.abs(x[:, 0] - 3 * times).max() < 1e-12
    assert np.abs(x[:, 1] - np.sin(times)).max() < 1e-5


def test_stale_rows_are_dropped():
    t = np.arange(6.0)
    assert resample(t, [0.0, 1.0, 1.0, 3.0, 4.0, 5.0], rate=1)[1].tolist() == [0, 1, 2, 3, 4, 5]


def test_the_filter_keeps_slow_signals_in_phase_and_removes_fast_ones():
    slow, fast = np.sin(2 * np.pi * 0.5 * T), np.sin(2 * np.pi * 60 * T)
    middle = slice(500, -500)
    out = lowpass(slow + fast, rate=RATE, cutoff=8)
    assert np.abs(out - slow)[middle].max() < 1e-4
    at_cutoff = lowpass(np.sin(2 * np.pi * 8 * T), rate=RATE, cutoff=8)[middle]
    assert abs(np.abs(at_cutoff).max() - 0.5) < 1e-2


def test_differences_are_exact_for_polynomials():
    t = T[:40]
    assert np.abs(differentiate(t**4, rate=RATE) - 4 * t**3)[2:-2].max() < 1e-11
    assert np.abs(differentiate(t**2, rate=RATE) - 2 * t).max() < 1e-11


def test_prepared_samples_are_those_of_the_motion():
    model = jaxdyn.load("double_pendulum")
    q = np.stack([np.sin(2 * T), np.cos(1.5 * T)], axis=1)
    wanted = np.stack([-4 * np.sin(2 * T), -2.25 * np.cos(1.5 * T)], axis=1)
    for qd in (None, np.stack([2 * np.cos(2 * T), -1.5 * np.sin(1.5 * T)], axis=1)):
        samples = prepare(model, T, q, qd, 2 * q, rate=RATE, cutoff=8, every=5)
        k = np.searchsorted(T, samples.t - 1e-9)
        assert np.abs(samples.qdd - wanted[k]).max() < 1e-2
        assert np.abs(samples.tau - 2 * q[k]).max() < 1e-3
    train, test = samples.split(0.75)
    assert len(train.t) + len(test.t) == len(samples.t)
    assert train.t[-1] < test.t[0]


@pytest.mark.parametrize("names", ["t,q1,q2,qd1,qd2,tau1,tau2", "time;q_joint1;q_joint2;dq[0];dq[1];effort.0;effort.1"])
def test_csv_by_column_names(tmp_path, names):
    model, mark = jaxdyn.load("double_pendulum"), ";" if ";" in names else ","
    rows = np.arange(21.0).reshape(3, 7)
    path = tmp_path / "run.csv"
    path.write_text(names + "\n" + "\n".join(mark.join(map(str, row)) for row in rows) + "\n")
    found = read_recording(path, model)
    assert np.array_equal(np.column_stack(found), rows)


def test_npz_and_other_names(tmp_path):
    model, x = jaxdyn.load("double_pendulum"), np.arange(6.0).reshape(3, 2)
    np.savez(tmp_path / "a.npz", t=np.arange(3), q=x, tau=x)
    found = read_recording(tmp_path / "a.npz", model)
    assert found.qd is None
    assert np.array_equal(found.q, x)
    np.savez(tmp_path / "b.npz", stamp=np.arange(3), q=x, m1=x[:, 0], m2=x[:, 1])
    found = read_recording(tmp_path / "b.npz", model, columns={"t": "stamp", "tau": ["m1", "m2"]})
    assert np.array_equal(found.tau, x)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("t,q1,q2\n0,1,2\n", r"no columns for tau, such as tau_joint1.*there are t, q1, q2"),
        ("t,q1,tau1,tau2\n0,1,2,3\n", "no columns for q"),
        ("t,q1,q2,tau1,tau2\n0,1,2,3\n", r"run.csv:2: wanted 5 cells"),
        ("t,q1,q2,tau1,tau2\n0,1,2,3,x\n", r"run.csv:2: 'tau2' must be a number; got 'x'"),
        ("t,q1,q1,tau1,tau2\n0,1,2,3,4\n", "the column 'q1' is there twice"),
        ("", "a line of names"),
    ],
)
def test_bad_files_name_the_place(tmp_path, text, message):
    path = tmp_path / "run.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_recording(path, jaxdyn.load("double_pendulum"))


def test_bad_arguments(tmp_path):
    model = jaxdyn.load("double_pendulum")
    q = np.zeros((len(T), 2))
    with pytest.raises(ValueError, match="no such file"):
        read_recording(tmp_path / "none.csv", model)
    with pytest.raises(ValueError, match="below half the rate"):
        lowpass(T, rate=10, cutoff=5)
    with pytest.raises(ValueError, match="at least 19 samples|at least 16 samples"):
        lowpass(T[:5], rate=RATE, cutoff=5)
    with pytest.raises(ValueError, match="qd must be finite; 1 of"):
        prepare(model, T, q, np.where(np.arange(len(T))[:, None] == 3, np.nan, q), q)
    with pytest.raises(ValueError, match=r"tau must have shape \(3000, 2\)"):
        prepare(model, T, q, q, q[:, :1])
    with pytest.raises(ValueError, match="trim leaves nothing"):
        prepare(model, T, np.random.default_rng(0).normal(size=q.shape), None, q, trim=10)
    with pytest.raises(ValueError, match="plain numbers"):
        prepare(jaxdyn.load("quadruped", floating_base=False), T, q, None, q)
