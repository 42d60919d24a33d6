"""Objects that a forked child resets."""

from __future__ import annotations

import gc
import os

import pytest

from specclient.providers.bedrock.signing import AWSAuthorizer
from specclient.runtime import forks

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_child_resets_each_of_equal_objects() -> None:
    signers = [AWSAuthorizer("us-east-1"), AWSAuthorizer("us-east-1")]
    assert signers[0] == signers[1]
    for signer in signers:
        signer._lock.acquire()  # as a thread of the parent may hold it
    pid = os.fork()
    if pid == 0:
        os._exit(sum(not signer._lock.acquire(blocking=False) for signer in signers))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_an_object_is_registered_as_long_as_it_lives() -> None:
    signer = AWSAuthorizer("us-east-1")
    number = id(signer)
    assert forks._live[number] is signer
    del signer
    gc.collect()
    assert number not in forks._live
