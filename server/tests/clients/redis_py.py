"""redis-py against the server on a port: RESP2 and RESP3, pipelines, transactions, a connection pool, threads."""

import sys
import threading

import redis


def check(protocol, port):
    client = redis.Redis(port=port, protocol=protocol, decode_responses=True, client_name="smoke")
    client.flushall()
    assert client.ping() is True
    assert client.client_getname() == "smoke"
    assert client.info("server")["redis_version"] == "8.2.3"
    strings(client)
    collections(client)
    pipelines(client)
    transactions(client)
    vectors(client)
    pubsub(client)


def pubsub(client):
    listener = client.pubsub()
    listener.subscribe("news")
    listener.psubscribe("n*")
    confirmed = [listener.get_message(timeout=5) for _ in range(2)]
    assert [message["type"] for message in confirmed] == ["subscribe", "psubscribe"], confirmed
    assert client.publish("news", "hello") == 2
    got = [listener.get_message(timeout=5) for _ in range(2)]
    assert sorted(message["type"] for message in got) == ["message", "pmessage"], got
    assert all(message["data"] == "hello" for message in got), got
    assert client.pubsub_numsub("news") == [("news", 1)]
    client.config_set("notify-keyspace-events", "KEA")
    listener.psubscribe("__keyevent@0__:*")
    assert listener.get_message(timeout=5)["type"] == "psubscribe"
    client.set("told", "x")
    assert listener.get_message(timeout=5)["data"] == "told"
    client.config_set("notify-keyspace-events", "")
    listener.unsubscribe()
    listener.punsubscribe()
    listener.close()


def strings(client):
    assert client.set("s", "v", ex=100, nx=True) is True
    assert client.set("s", "w", nx=True) is None
    assert client.set("s", "w", get=True) == "v"
    assert client.getex("s", ex=50) == "w"
    assert client.ttl("s") == 50
    assert client.incrby("n", 5) == 5
    assert client.incrbyfloat("f", 1.5) == 1.5
    assert client.mset({"a": 1, "b": 2}) is True
    assert client.mget("a", "missing", "b") == ["1", None, "2"]
    assert client.msetnx({"a": 9, "z": 9}) is False
    assert client.getrange("s", 0, -1) == "w"
    assert client.expire("a", 100, nx=True) is True
    assert client.object("encoding", "a") == "int"
    assert sorted(client.scan_iter(match="?", count=2)) == ["a", "b", "f", "n", "s"]
    assert client.get("missing") is None
    big = "x" * 1_000_000
    assert client.set("big", big) is True and client.get("big") == big
    try:
        client.lpush("s", "x")
        raise AssertionError("WRONGTYPE expected")
    except redis.ResponseError as error:
        assert str(error).startswith("WRONGTYPE"), error


def collections(client):
    assert client.rpush("l", "a", "b", "c") == 3
    assert client.lrange("l", 0, -1) == ["a", "b", "c"]
    assert client.lpop("l", 2) == ["a", "b"]
    assert client.lpop("missing") is None
    assert client.sadd("t", "x", "y") == 2
    assert client.smembers("t") == {"x", "y"}
    assert client.sinter("t", "missing") == set()
    assert client.hset("h", mapping={"f": "1", "g": "2"}) == 2
    assert client.hgetall("h") == {"f": "1", "g": "2"}
    assert client.hgetall("missing") == {}
    assert client.hincrby("h", "f", 4) == 5
    assert client.config_get("maxmemory") == {"maxmemory": "0"}
    assert len(client.time()) == 2
    assert client.dbsize() > 0
    assert client.client_info()["name"] == "smoke"


def pipelines(client):
    pipe = client.pipeline(transaction=False)
    for i in range(10_000):
        pipe.set(f"p:{i}", i)
        pipe.get(f"p:{i}")
    replies = pipe.execute()
    assert replies[1::2] == [str(i) for i in range(10_000)]
    pipe = client.pipeline(transaction=False)
    pipe.set("k", "v").lpush("k", 1).get("k")
    replies = pipe.execute(raise_on_error=False)
    assert replies[0] is True and isinstance(replies[1], redis.ResponseError) and replies[2] == "v"


def transactions(client):
    pipe = client.pipeline()
    pipe.multi()
    pipe.set("{t}a", 1).incr("{t}a").hset("h2", "f", "v").hgetall("h2").smembers("nothing")
    assert pipe.execute() == [True, 2, 1, {"f": "v"}, set()]
    with client.pipeline() as pipe:
        pipe.watch("{t}a")
        client.set("{t}a", "changed")
        pipe.multi()
        pipe.get("{t}a")
        try:
            pipe.execute()
            raise AssertionError("WatchError expected")
        except redis.WatchError:
            pass

    def double(pipe):
        value = int(pipe.get("counter") or 1)
        pipe.multi()
        pipe.set("counter", value * 2)

    assert client.transaction(double, "counter") == [True]
    assert client.get("counter") == "2"


def vectors(client):
    assert client.execute_command("VADD", "v", "VALUES", 2, 1, 0, "e", "NOQUANT") in (1, True)
    assert client.execute_command("VADD", "v", "VALUES", 2, 0, 1, "n", "NOQUANT") in (1, True)
    assert client.execute_command("VSIM", "v", "VALUES", 2, 1, 0.1)[0] == "e"
    assert client.execute_command("VCARD", "v") == 2


def pool(port):
    """Eight threads share a pool of four connections; every increment arrives."""
    connections = redis.BlockingConnectionPool(port=port, max_connections=4, timeout=20)
    failures = []

    def work():
        try:
            client = redis.Redis(connection_pool=connections)
            for _ in range(500):
                client.incr("pooled")
        except Exception as error:  # shown by the main thread
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert redis.Redis(connection_pool=connections).get("pooled") == b"4000"


if __name__ == "__main__":
    port = int(sys.argv[1])
    for protocol in (2, 3):
        check(protocol, port)
    pool(port)
    print(f"redis-py {redis.__version__}: ok")
