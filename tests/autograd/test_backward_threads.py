"""Undecorated backward passes to shared leaves, from several threads: no gradient is lost."""

from __future__ import annotations

import sys
import threading

import ridgeline as rl

THREADS, PASSES = 4, 25


def test_every_pass_is_added_to_shared_leaves() -> None:
    weight = rl.ones(3).requires_grad_()
    bias = rl.zeros(3).requires_grad_()
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(PASSES):
                # two orders of the same leaves: nobody waits for the other
                terms = (weight * number, bias) if number % 2 else (bias, weight * number)
                (terms[0] + terms[1]).sum().backward()
        except BaseException as error:
            failed.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(n,)) for n in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not failed, failed[0]
    assert weight.grad is not None and bias.grad is not None
    assert weight.grad.tolist() == [float(PASSES * sum(range(THREADS)))] * 3
    assert bias.grad.tolist() == [float(PASSES * THREADS)] * 3
