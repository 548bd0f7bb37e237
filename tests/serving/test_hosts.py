"""Ranks on several hosts. A host beside this one is a network namespace, where the system lets us make one; else it is
another process of this machine, and what needs a link that can be cut is skipped."""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest
from sluice_server import TINY, Server, binary, free_port, sluice
from test_disconnects import long_body, start_stream
from test_eplb import MOVES, figure
from test_ranks import is_running

FLAGS = ("--dtype", "float32", "--max-total-tokens", "32768", "--device", "cpu", "--threads", "2")
NAMESPACE, OUTER, INNER = f"sluice{os.getpid()}", f"slo{os.getpid()}", f"sli{os.getpid()}"


class OneMachine:
    """Both hosts are this one."""
    address, inside = "127.0.0.1", ()
    can_cut = False


class TwoNamespaces:
    """This host, and one behind a link of its own."""
    address, inside = "10.213.71.1", ("ip", "netns", "exec", NAMESPACE)
    can_cut = True

    def __init__(self):
        for command in (f"netns add {NAMESPACE}", f"link add {OUTER} type veth peer name {INNER} netns {NAMESPACE}",
                        f"addr add 10.213.71.1/24 dev {OUTER}", f"-n {NAMESPACE} addr add 10.213.71.2/24 dev {INNER}",
                        f"link set {OUTER} up", f"-n {NAMESPACE} link set {INNER} up", f"-n {NAMESPACE} link set lo up"):
            subprocess.run(["ip", *command.split()], check=True, capture_output=True)

    def cut(self, is_cut=True):
        """Nothing goes through any more, and nobody is told."""
        subprocess.run(["ip", "-n", NAMESPACE, "link", "set", INNER, "down" if is_cut else "up"], check=True)

    def close(self):
        subprocess.run(["ip", "netns", "del", NAMESPACE], check=False)


@pytest.fixture(scope="module")
def place():
    try:
        hosts = TwoNamespaces()
    except (OSError, subprocess.CalledProcessError):
        subprocess.run(["ip", "netns", "del", NAMESPACE], check=False, capture_output=True) if shutil.which("ip") else None
        yield OneMachine()
        return
    yield hosts
    hosts.close()


def write_key(path, text="0123456789abcdef" * 4):
    path.write_text(text + "\n")
    path.chmod(0o600)
    return path


def children_of(pid):
    out = []
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            stat = (entry / "stat").read_text().rsplit(") ", 1)[1].split()
            if int(stat[1]) == pid and stat[0] != "Z":
                out.append(int(entry.name))
    return out


class Cluster:
    """A server on node 0, and the other nodes."""

    def __init__(self, place, tmp_path, *flags, nodes=2, exit_status=0, starts=True):
        self.place, self.tmp_path = place, tmp_path
        self.key = write_key(tmp_path / "key")
        self.meeting = ("--dist-init-addr", f"{place.address}:{free_port()}", "--dist-key-file", str(self.key))
        self.flags = (*FLAGS, *flags, "--nnodes", str(nodes), *self.meeting)
        self.others = {rank: self.start_node(rank) for rank in range(1, nodes)} if starts else {}
        self.server = None
        if starts:
            self.server = Server(TINY, *self.flags, "--node-rank", "0", log=tmp_path / "node0.log", exit_status=exit_status)

    def start_node(self, rank, *more, name=None):
        log = self.tmp_path / f"{name or f'node{rank}'}.log"
        inside = self.place.inside if rank > 0 else ()
        with open(log, "wb") as out:
            process = subprocess.Popen([*inside, binary(), "serve", "--model", str(TINY), *self.flags, "--node-rank", str(rank),
                                        "--port", "0", *more], stdout=out, stderr=subprocess.STDOUT)
        process.log = log
        return process

    def log(self, rank):
        return (self.tmp_path / f"node{rank}.log").read_text(errors="replace")

    def ranks(self):
        return [pid for node in (self.server.process, *self.others.values()) for pid in children_of(node.pid)]

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.server:
            code = self.server.stop()
        for node in self.others.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                node.wait(10)
            if node.poll() is None:
                node.kill()
                node.wait()
        if exc[0] is None and self.server:
            assert code == self.server.exit_status, self.log(0)[-2000:]


SHAPES = [
    (("--tp-size", "2"), 2),
    (("--tp-size", "4"), 2),
    (("--tp-size", "4"), 4),
    (("--pp-size", "3"), 3),
    (("--tp-size", "2", "--pp-size", "2"), 2),
    (("--tp-size", "2", "--pp-size", "2"), 4),
    (("--tp-size", "4", "--dp-size", "2", "--enable-dp-attention"), 2),
    (("--tp-size", "2", "--ep-size", "2"), 2),
    (("--tp-size", "2", "--ep-size", "2", *MOVES), 2),
    (("--tp-size", "4", "--ep-size", "2", "--dp-size", "2", "--enable-dp-attention", *MOVES), 2),
]


@pytest.mark.parametrize("flags, nodes", SHAPES, ids=lambda value: "".join(value) if isinstance(value, tuple) else str(value))
def test_bits_are_those_of_the_same_ranks_on_one_host(place, tmp_path, flags, nodes):
    bodies = [{"input_ids": [40 + (7 * i + j) % 90 for j in range(length)], "return_logprob": True,
               "sampling_params": {"max_new_tokens": 24, "temperature": 0.9 if i % 2 else 0, "sampling_seed": i}}
              for i, length in enumerate((300, 3, 70, 16, 33, 1))]

    def answers(server):
        replies = [None] * len(bodies)

        def one(i):
            replies[i] = server.post("/generate", bodies[i])

        threads = [threading.Thread(target=one, args=(i,)) for i in range(len(bodies))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(reply.status == 200 for reply in replies), [reply.body for reply in replies]
        return [(reply.json()["output_ids"], reply.json()["meta_info"]["output_token_logprobs"]) for reply in replies]

    with Server(TINY, *FLAGS, *flags, log=tmp_path / "one.log") as server:
        expected = answers(server)
    with Cluster(place, tmp_path, *flags, nodes=nodes) as cluster:
        assert answers(cluster.server) == expected
        assert answers(cluster.server) == expected
        if "--enable-eplb" in flags:
            assert figure(cluster.server, "sluice:expert_moves_total") > 0
        left = cluster.ranks()
        num_ranks = int(flags[1]) * (int(flags[3]) if flags[2:3] == ("--pp-size",) else 1)
        assert len(left) == num_ranks - 1
    for node in cluster.others.values():
        assert node.returncode == 0, node.log.read_text()
    assert not any(map(is_running, left)), "a rank is left"
    assert f"on {nodes} nodes" in cluster.log(0)
    assert "node 0 has ended" in cluster.log(1)


def test_streams_with_disconnects_over_two_hosts(place, tmp_path, tiny):
    with Cluster(place, tmp_path, "--tp-size", "2") as cluster:
        results = [None] * 12

        def one(i):
            connection = start_stream(cluster.server, long_body(i, 24, True))
            with contextlib.closing(connection):
                for count, line in enumerate(connection.getresponse()):
                    if i % 3 == 0 and count > 4:
                        return
                    if line.startswith(b"data: {"):
                        results[i] = line

        threads = [threading.Thread(target=one, args=(i,)) for i in range(len(results))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        cluster.server.wait_until_idle()
        for i in (1, 2, 4, 5):
            alone = tiny.post("/generate", long_body(i, 24, False), timeout=600).json()
            assert str(alone["output_ids"]).replace(" ", "") in results[i].decode().replace(" ", ""), i


def end_in_the_middle(place, tmp_path, what, flags=("--tp-size", "2")):
    """Streams run over two nodes; `what(cluster)` happens. What clients see and when, and the statuses of the nodes."""
    cluster = Cluster(place, tmp_path, *flags, exit_status=4)
    ranks, ends = cluster.ranks(), []

    def one(i):
        connection = start_stream(cluster.server, long_body(i, 4000, True))
        with contextlib.closing(connection):
            text = b""
            with contextlib.suppress(OSError):
                for line in connection.getresponse():
                    text = line if line.strip() else text
            ends.append((time.monotonic(), text))

    threads = [threading.Thread(target=one, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    while cluster.server.state()["num_running_reqs"] < 3:
        time.sleep(0.02)
    begin = time.monotonic()
    what(cluster)
    status = cluster.server.process.wait(timeout=40)
    seconds = time.monotonic() - begin
    for thread in threads:
        thread.join()
    node = cluster.others[1]
    for pid in (node.pid, *ranks):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGCONT)
    node_status = node.wait(timeout=40)
    cluster.server.stop()
    assert status == 4, cluster.log(0)
    deadline = time.monotonic() + 5
    while any(map(is_running, ranks)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_running, ranks)), "a rank is left"
    return cluster, [(when - begin, text) for when, text in ends], seconds, node_status


def test_a_killed_node_ends_streams_with_an_error_and_the_server(place, tmp_path):
    cluster, ends, seconds, _ = end_in_the_middle(place, tmp_path, lambda c: c.others[1].kill())
    assert seconds < 10
    for when, text in ends:
        assert when < 3 and b"error" in text, (when, text)
    assert "node 1 (" in cluster.log(0) and "closed the connection" in cluster.log(0)


def test_a_killed_rank_of_another_node_is_named(place, tmp_path):
    cluster, ends, seconds, node_status = end_in_the_middle(
        place, tmp_path, lambda c: os.kill(children_of(c.others[1].pid)[0], signal.SIGKILL), ("--pp-size", "2"))
    assert seconds < 10 and node_status == 4
    for when, text in ends:
        assert when < 3 and b"error" in text, (when, text)
    assert "node 1: rank 1 (process " in cluster.log(0) and "killed by signal 9" in cluster.log(0)
    assert "killed by signal 9" in cluster.log(1)


def test_a_stopped_node_counts_as_hung(place, tmp_path):
    def stop(cluster):
        for pid in (cluster.others[1].pid, *children_of(cluster.others[1].pid)):
            os.kill(pid, signal.SIGSTOP)

    cluster, ends, seconds, node_status = end_in_the_middle(place, tmp_path, stop)
    assert seconds < 20 and node_status == 4
    for when, text in ends:
        assert when < 12 and b"error" in text, (when, text)
    assert "node 1 (" in cluster.log(0) and "no sign of life" in cluster.log(0)


def test_a_cut_link_is_noticed_on_both_sides(place, tmp_path):
    if not place.can_cut:
        pytest.skip("no network namespaces here")
    try:
        cluster, ends, seconds, node_status = end_in_the_middle(place, tmp_path, lambda c: place.cut())
    finally:
        place.cut(False)
    assert seconds < 20 and node_status == 4
    for when, text in ends:
        assert when < 12 and b"error" in text, (when, text)
    for log in (cluster.log(0), cluster.log(1)):
        assert "no sign of life" in log or "closed the connection" in log, log


def test_a_killed_node_0_ends_the_others(place, tmp_path):
    cluster = Cluster(place, tmp_path, "--tp-size", "4", exit_status=-9)
    ranks = cluster.ranks()
    cluster.server.process.kill()
    assert cluster.others[1].wait(timeout=10) == 4
    assert "error: node 0 (" in cluster.log(1) and "closed the connection" in cluster.log(1)
    cluster.server.stop()
    deadline = time.monotonic() + 5
    while any(map(is_running, ranks)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_running, ranks))


def test_signals_of_a_terminal_drain_all_nodes(place, tmp_path):
    cluster = Cluster(place, tmp_path, "--tp-size", "2")
    replies = []
    thread = threading.Thread(target=lambda: replies.append(cluster.server.post("/generate", long_body(1, 200, False))))
    thread.start()
    while cluster.server.state()["num_running_reqs"] < 1:
        time.sleep(0.01)
    for pid in (*cluster.ranks(), cluster.others[1].pid, cluster.server.process.pid):
        os.kill(pid, signal.SIGINT)
    assert cluster.server.process.wait(timeout=60) == 0
    assert cluster.others[1].wait(timeout=10) == 0
    thread.join()
    assert replies[0].status == 200 and len(replies[0].json()["output_ids"]) == 200
    cluster.server.stop()


def wait_for(text, path, timeout=30):
    end = time.monotonic() + timeout
    while text not in path.read_text(errors="replace"):
        assert time.monotonic() < end, path.read_text(errors="replace")
        time.sleep(0.05)


def test_strangers_and_another_key_disturb_no_launch(place, tmp_path):
    """Three nodes; beside them come a node with another key, a browser, and one that says nothing."""
    cluster = Cluster(place, tmp_path, "--pp-size", "3", nodes=3, starts=False)
    node0 = cluster.others[0] = cluster.start_node(0)
    wait_for("waiting at", node0.log)
    other_key = write_key(tmp_path / "other", "fedcba9876543210" * 4)
    begin = time.monotonic()
    thief = cluster.start_node(1, "--dist-key-file", str(other_key), name="thief")
    assert thief.wait(timeout=20) == 2
    assert time.monotonic() - begin < 10
    assert "it does not have the same key" in thief.log.read_text()
    host, port = cluster.meeting[1].rsplit(":", 1)
    with socket.create_connection((host, int(port))) as browser, socket.create_connection((host, int(port))):
        browser.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        wait_for("is refused", node0.log)
        cluster.others[1] = cluster.start_node(1)
        wait_for("joined node 0", cluster.others[1].log)
        double = cluster.start_node(1, name="double")
        assert double.wait(timeout=20) == 2
        assert "--node-rank 1 is taken by" in double.log.read_text()
        cluster.others[2] = cluster.start_node(2)
        wait_for("fired up", node0.log, 60)
    assert node0.log.read_text().count("is refused") >= 3
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=2):
        raise AssertionError("the port is still open")
    node0.send_signal(signal.SIGTERM)
    assert [node.wait(timeout=30) for node in cluster.others.values()] == [0, 0, 0]


def run_both(place, tmp_path, *flags, other=(), other_model=TINY, timeout=60):
    """`generate` on node 0 with these flags, and node 1 with others; what each of them said, and its status."""
    flags = Cluster(place, tmp_path, *flags, starts=False).flags
    node1 = subprocess.Popen([*place.inside, binary(), "generate", str(other_model), *flags, "--node-rank", "1", *other],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        node0 = sluice("generate", TINY, "--input-ids", "50,51,52,53", "--max-new-tokens", "16", "--temperature", "0", *flags,
                       "--node-rank", "0", timeout=timeout)
        out, err = node1.communicate(timeout=timeout)
    finally:
        node1.kill()
    return node0, subprocess.CompletedProcess(node1.args, node1.returncode, out, err)


def test_generate_runs_on_two_hosts(place, tmp_path):
    node0, node1 = run_both(place, tmp_path, "--tp-size", "2")
    assert node0.returncode == 0, node0.stderr
    assert node1.returncode == 0 and node1.stdout == "", node1.stderr
    alone = sluice("generate", TINY, "--input-ids", "50,51,52,53", "--max-new-tokens", "16", "--temperature", "0", *FLAGS,
                   "--tp-size", "2")
    assert node0.stdout == alone.stdout


def test_what_differs_is_named_on_both_hosts(place, tmp_path):
    begin = time.monotonic()
    for other in (("--dtype", "bfloat16"), ("--context-length", "128")):
        node0, node1 = run_both(place, tmp_path, "--tp-size", "2", other=other)
        for node in (node0, node1):
            assert node.returncode == 2, node.stderr
            assert f"{other[0]}: " in node.stderr and f"{other[1]} on node 1" in node.stderr, node.stderr
    node0, node1 = run_both(place, tmp_path, "--tp-size", "2", "--dist-timeout", "3", other=("--nnodes", "1"))
    assert node0.returncode == 4 and "node 1 of 2 did not come to" in node0.stderr, node0.stderr
    assert node1.returncode == 2 and "nodes are counted from 0" in node1.stderr, node1.stderr
    assert time.monotonic() - begin < 240


def test_other_weights_are_named_on_both_hosts(place, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(TINY, copy)
    weights = next(copy.glob("*.safetensors"))
    with open(weights, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    for node in run_both(place, tmp_path, "--tp-size", "2", other_model=copy):
        assert node.returncode == 2, node.stderr
        assert "rank 1 (node 1) does not have the model files of rank 0" in node.stderr, node.stderr


def test_a_node_that_cannot_find_the_model_tells_all(place, tmp_path):
    for node in run_both(place, tmp_path, "--tp-size", "2", other_model=tmp_path / "nowhere"):
        assert node.returncode == 2, node.stderr
        assert "nowhere" in node.stderr, node.stderr


def test_a_node_alone_ends_in_time(place, tmp_path):
    key = write_key(tmp_path / "key")
    for node in (0, 1):
        begin = time.monotonic()
        done = sluice("generate", TINY, "--input-ids", "1", *FLAGS, "--tp-size", "2", "--nnodes", "2", "--node-rank", node,
                      "--dist-init-addr", f"127.0.0.1:{free_port()}", "--dist-key-file", key, "--dist-timeout", "1")
        assert done.returncode == 4
        assert time.monotonic() - begin < 20
        assert ("node 1 of 2 did not come to" if node == 0 else "node 0 was not reached at") in done.stderr, done.stderr


@pytest.mark.parametrize("flags, said", [
    (("--nnodes", "2"), "give --dist-init-addr HOST:PORT"),
    (("--nnodes", "2", "--dist-init-addr", "127.0.0.1:2000"), "give all of them the same --dist-key-file"),
    (("--nnodes", "2", "--node-rank", "2"), "there is no node 2"),
    (("--nnodes", "3"), "--tp-size 3 or --pp-size 3 would do"),
    (("--nnodes", "2", "--dist-init-addr", "here", "--dist-key-file", "KEY"), "is no HOST:PORT"),
    (("--nnodes", "2", "--dist-init-addr", "192.0.2.1:2000", "--dist-key-file", "KEY"), "this host has no such address"),
    (("--nnodes", "2", "--dist-init-addr", "127.0.0.1:2000", "--dist-key-file", "SHORT"), "at least 32 are a key"),
    (("--nnodes", "2", "--dist-init-addr", "127.0.0.1:2000", "--dist-key-file", "/nowhere"), "--dist-key-file: cannot open /nowhere"),
    (("--nnodes", "65"), "--nnodes"),
    (("--master-addr", "10.0.0.1"), "give --dist-init-addr HOST:PORT instead"),
])
def test_what_nodes_need_is_said(tmp_path, flags, said):
    names = {"KEY": write_key(tmp_path / "key"), "SHORT": write_key(tmp_path / "short", "short")}
    done = sluice("generate", TINY, "--input-ids", "1", "--device", "cpu", "--tp-size", "2", *(names.get(f, f) for f in flags))
    assert done.returncode == 2
    assert said in done.stderr, done.stderr


def test_other_verbs_run_on_one_host(tmp_path):
    done = sluice("bench", "latency", TINY, "--nnodes", "2", "--tp-size", "2")
    assert done.returncode == 2 and "serve and generate run on several" in done.stderr


LAUNCHERS = {
    "mpirun": {"OMPI_COMM_WORLD_RANK": "NODE", "OMPI_COMM_WORLD_SIZE": "2"},
    "srun": {"SLURM_PROCID": "NODE", "SLURM_NTASKS": "2", "SLURM_NNODES": "2", "SLURM_JOB_NODELIST": "nowhere[1-2]"},
    "LeaderWorkerSet": {"LWS_WORKER_INDEX": "NODE", "LWS_GROUP_SIZE": "2", "LWS_LEADER_ADDRESS": "nowhere"},
}
GENERATE = ("generate", TINY, "--input-ids", "50,51,52,53", "--max-new-tokens", "16", "--temperature", "0", *FLAGS, "--tp-size", "2")


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_launchers_environment_says_which_node_it_is(tmp_path, launcher):
    """The variables alone, as launchers set them."""
    variables = LAUNCHERS[launcher]
    command = (*GENERATE, "--dist-key-file", write_key(tmp_path / "key"), "--dist-init-addr", f"127.0.0.1:{free_port()}")
    results = {}

    def start(node):
        results[node] = sluice(*command, env={name: value.replace("NODE", node) for name, value in variables.items()})

    threads = [threading.Thread(target=start, args=(node,)) for node in "01"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for node in "01":
        assert results[node].returncode == 0, results[node].stderr
    assert results["1"].stdout == ""
    rank, count = list(variables)[:2]
    assert f"{launcher} says: --nnodes 2 ({count}), --node-rank 1 ({rank})\n" in results["1"].stderr, results["1"].stderr
    assert results["0"].stdout == sluice(*GENERATE).stdout
    # Without the key file the environment means nothing.
    assert sluice(*GENERATE, env={name: value.replace("NODE", "1") for name, value in variables.items()}).returncode == 0


def test_a_launcher_says_where_node_0_is(tmp_path):
    flags = ("--dist-key-file", write_key(tmp_path / "key"), "--dist-timeout", "1")
    hosts = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_JOB_NODELIST": "localhost,b[1-9]"}
    node = sluice(*GENERATE, *flags, env=hosts)
    assert node.returncode == 4, node.stderr
    assert "--dist-init-addr localhost:20000 (SLURM_JOB_NODELIST)" in node.stderr
    assert "node 0 was not reached at localhost:20000" in node.stderr


def test_half_of_a_launchers_variables_are_refused(tmp_path):
    flags = ("--dist-key-file", write_key(tmp_path / "key"), "--dist-init-addr", "127.0.0.1:2000")
    for name, missing in (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("LWS_LEADER_ADDRESS", "LWS_WORKER_INDEX"),
                          ("SLURM_PROCID", "SLURM_NTASKS")):
        done = sluice(*GENERATE, *flags, env={name: "0"})
        assert done.returncode == 2, done.stderr
        assert f"and not {missing}; give --nnodes and --node-rank" in done.stderr


def test_mpirun_starts_the_nodes(tmp_path):
    if not shutil.which("mpirun"):
        pytest.skip("no mpirun here")
    flags = ("--dist-key-file", write_key(tmp_path / "key"), "--dist-init-addr", f"127.0.0.1:{free_port()}")
    done = subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", binary(), *map(str, (*GENERATE, *flags))],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == sluice(*GENERATE).stdout
    for node in (0, 1):
        assert f"mpirun says: --nnodes 2 (OMPI_COMM_WORLD_SIZE), --node-rank {node} (OMPI_COMM_WORLD_RANK)" in done.stderr
    assert "mpirun started 2 nodes on this host" in done.stderr
