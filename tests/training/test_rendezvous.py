"""A restarted rank meets the living, not the dead that torchrun's store still names."""

import socket
import threading

import pytest
from torch.distributed import TCPStore

from stepnet.training import processes


@pytest.fixture
def agent(monkeypatch):
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(store.port))
    processes.use_fresh_store.cache_clear()
    yield store
    processes.use_fresh_store.cache_clear()


def dead_port():
    with socket.socket() as gone:
        gone.bind(("127.0.0.1", 0))
        return gone.getsockname()[1]


def test_rank_0_opens_a_store_and_publishes_it(agent, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    store = processes.use_fresh_store()
    assert store.port != agent.port
    assert int(agent.get(processes.PORT_KEY)) == store.port
    assert processes.os.environ["MASTER_PORT"] == str(store.port)
    assert processes.use_fresh_store() is store


def test_a_rank_waits_past_the_port_of_a_dead_attempt(agent, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    agent.set(processes.PORT_KEY, str(dead_port()))
    living = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    later = threading.Timer(0.5, agent.set, (processes.PORT_KEY, str(living.port)))
    later.start()
    store = processes.use_fresh_store()
    later.join()
    assert store.port == living.port


def test_a_rank_does_not_wait_for_ever(agent, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    agent.set(processes.PORT_KEY, str(dead_port()))
    with pytest.raises(ConnectionRefusedError):
        processes.use_fresh_store(patience=0.3)


def test_without_an_agent_nothing_changes(monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    processes.use_fresh_store.cache_clear()
    assert processes.use_fresh_store() is None
