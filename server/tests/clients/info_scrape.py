"""What monitoring does: the redis-exporter package's collector and redis-py's parser read all of INFO, by section and while other clients
work, and what they tell is what happened."""

import sys
import threading
from importlib.metadata import version

import redis
from exporter.config import Options
from exporter.exporter import RedisCollector
from exporter.info import extract_info_metrics
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

N_CALLS = 500
N_SCRAPES = 20
SECTIONS = "server clients memory persistence stats replication cpu modules errorstats cluster keyspace".split()
SECTIONS += ["commandstats", "latencystats", "keysizes"]


def samples(collector):
    registry = CollectorRegistry()
    registry.register(collector)
    found = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


def scraped(port, client):
    options = Options(redis_addr=f"redis://127.0.0.1:{port}", check_keys="db0=key:*", check_single_keys="db0=list")
    collector = RedisCollector(options.redis_addr, options)
    first = samples(collector)
    assert first["redis_up", ()] == 1, first
    errors = {name: value for name, value in first.items() if name[0].startswith("redis_exporter_last_scrape_error")}
    assert list(errors.values()) == [0], errors
    for name in ("connected_clients", "memory_used_bytes", "memory_used_rss_bytes", "memory_max_bytes", "uptime_in_seconds",
                 "connections_received_total", "commands_processed_total", "keyspace_hits_total", "connected_slaves",
                 "pubsub_channels", "blocked_clients", "expired_keys_total", "evicted_keys_total", "rejected_connections_total"):
        assert (f"redis_{name}", ()) in first, f"{name} is missing"
    for n in range(N_CALLS):
        client.get(f"key:{n % 20}")
    second = samples(collector)
    grown = {name: value - first.get(name, 0) for name, value in second.items() if name[0].endswith("_total")}
    assert all(value >= 0 for value in grown.values()), "a counter went down"
    assert grown["redis_keyspace_hits_total", ()] >= N_CALLS, grown
    assert grown["redis_commands_processed_total", ()] >= N_CALLS, grown
    assert second["redis_db_keys", (("db", "db0"),)] == client.dbsize()
    return len(second)


class Metrics:
    """What the package's own parser hands on."""

    def __init__(self):
        self.found = {}

    def _create_metric_descr(self, *_, **__):
        pass

    def _register_metric(self, name, value, is_counter=False, labels=None):
        self.found[name, tuple((labels or {}).values())] = value


def parsed(port, client):
    """The raw text of INFO everything, with the statistics of commands and errors."""
    client.config_resetstat()
    for _ in range(N_CALLS):
        client.incrby("counter")
    for _ in range(7):
        try:
            client.lpush("counter", "x")
            raise AssertionError("WRONGTYPE expected")
        except redis.ResponseError:
            pass
    raw = redis.Redis(port=port)
    raw.set_response_callback("INFO", lambda text, **_: text)
    text = raw.info("everything").decode()
    metrics = Metrics()
    assert extract_info_metrics(text, {"used_memory": "used_memory"}, {}, metrics) == "master"
    found = metrics.found
    assert found["commands_total", ("incrby",)] == N_CALLS, found
    assert found["commands_failed_calls_total", ("lpush",)] == 7
    assert found["errors_total", ("WRONGTYPE",)] == 7
    assert found["used_memory", ()] > 0
    for line in text.split("\r\n"):
        assert line == "" or line.startswith("# ") or ":" in line, f"not a line of INFO: {line!r}"
    assert text.endswith("\r\n")


def by_section(client):
    names = set()
    for section in SECTIONS:
        fields = client.info(section)
        assert isinstance(fields, dict), section
        names |= fields.keys()
    merged = client.info("all")
    missing = {name for name in names if name not in merged and not name.startswith(("cmdstat_", "latency_percentiles_", "errorstat_"))}
    assert not missing, f"in their sections but not in INFO all: {missing}"
    assert client.info("nothing") == {}
    two = client.info("server", "clients")
    assert "redis_version" in two and "connected_clients" in two and "used_memory" not in two
    assert int(client.info("clients")["connected_clients"]) >= 1
    memory = client.info("memory")
    assert memory["used_memory"] > 0 and memory["used_memory_human"].endswith(("B", "K", "M", "G"))
    latencies = client.info("latencystats")
    assert set(latencies["latency_percentiles_usec_incrby"]) == {"p50", "p99", "p99.9"}, latencies
    assert client.memory_stats()["keys.count"] == client.dbsize()
    assert isinstance(client.slowlog_get(), list) and client.slowlog_len() >= 0
    assert all("addr" in entry for entry in client.client_list())
    assert client.config_get("*")["maxmemory"] == "0"


def beside_load(port):
    """Scrapes while others read and write see no broken text and no counter that goes down."""
    over = threading.Event()
    failures = []

    def load(at):
        client = redis.Redis(port=port)
        try:
            while not over.is_set():
                pipe = client.pipeline(transaction=at % 2 == 0)
                for n in range(50):
                    pipe.set(f"load:{at}:{n}", n, ex=100).get(f"load:{at}:{n}").lpush(f"l:{at}", n)
                pipe.ltrim(f"l:{at}", 0, 10)
                pipe.execute()
        except Exception as error:  # shown by the main thread
            failures.append(error)

    threads = [threading.Thread(target=load, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    options = Options(redis_addr=f"redis://127.0.0.1:{port}")
    collector, before = RedisCollector(options.redis_addr, options), {}
    for _ in range(N_SCRAPES):
        now = samples(collector)
        assert now["redis_up", ()] == 1
        for name, value in now.items():
            assert not name[0].endswith("_total") or value >= before.get(name, 0), f"{name} went down"
        before = now
    over.set()
    for thread in threads:
        thread.join()
    assert not failures, failures


def main():
    port = int(sys.argv[1])
    client = redis.Redis(port=port, decode_responses=True)
    client.flushall()
    client.mset({f"key:{n}": n for n in range(20)})
    client.rpush("list", *range(10))
    n_samples = scraped(port, client)
    parsed(port, client)
    by_section(client)
    beside_load(port)
    print(f"exporter {version('redis-exporter')}: ok, {n_samples} samples a scrape, {N_SCRAPES} scrapes beside load")


if __name__ == "__main__":
    main()
