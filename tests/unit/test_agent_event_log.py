"""Events before they are written: one for each thing that happens, however often it does."""

from flock.agent.event_log import BURST, LIMIT, REPEAT_GAP, EventLog, Subject

WALL = 1_800_000_000.0


def subject(name: str = "web-0") -> Subject:
    return Subject(api_version="v1", kind="Pod", namespace="shop", name=name, uid=f"uid of {name}")


def test_a_refusal_that_comes_again_is_one_event_with_a_count() -> None:
    log = EventLog("n1", "salt")
    assert log.note(subject(), "NoFreeAddress", "no free address", WALL)
    (told,) = log.due(0.0)
    log.wrote(told, told.count, 0.0)
    assert not log.note(subject(), "NoFreeAddress", "no free address", WALL + 1)
    assert not log.note(subject(), "NoFreeAddress", "no free address", WALL + 2)
    assert list(log.due(REPEAT_GAP - 0.1)) == [], "not again so soon"
    assert list(log.due(REPEAT_GAP)) == [told]
    assert log.changes(told) == {"count": 3, "lastTimestamp": "2027-01-15T08:00:02Z"}


def test_what_was_written_and_came_again_meanwhile_is_written_again() -> None:
    log = EventLog("n1", "salt")
    log.note(subject(), "R", "m", WALL)
    (told,) = log.due(0.0)
    count = told.count
    log.note(subject(), "R", "m", WALL)
    log.wrote(told, count, 0.0)
    assert list(log.due(REPEAT_GAP)) == [told]


def test_an_event_names_its_object_and_lives_beside_it() -> None:
    log = EventLog("n1", "salt")
    log.note(subject(), "AddressRefused", "10.0.0.9 is in use", WALL)
    (told,) = log.due(0.0)
    document = log.document(told)
    assert document["involvedObject"] == {"apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "web-0",
                                          "uid": "uid of web-0"}
    assert document["metadata"] == {"name": log.name(told), "namespace": "shop"}
    assert (document["type"], document["reason"], document["message"], document["count"]) == (
        "Warning", "AddressRefused", "10.0.0.9 is in use", 1)


def test_an_object_without_namespace_has_its_events_in_default() -> None:
    log = EventLog("n1", "salt")
    log.note(Subject(api_version="flock.fritzlab.net/v1alpha1", kind="NodeConfig", name="n1", uid="u"), "R", "m", WALL)
    (told,) = log.due(0.0)
    document = log.document(told)
    assert told.namespace == "default"
    assert "namespace" not in dict(document["involvedObject"])  # type: ignore[call-overload]


def test_another_agents_life_has_other_names() -> None:
    names = set()
    for salt in ("one", "two"):
        log = EventLog("n1", salt)
        log.note(subject(), "R", "m", WALL)
        names |= {log.name(told) for told in log.due(0.0)}
    assert len(names) == 2


def test_a_node_full_of_wrong_pods_writes_no_more_than_its_share() -> None:
    log = EventLog("n1", "salt")
    for number in range(LIMIT + 50):
        log.note(subject(f"pod-{number}"), "R", "m", WALL)
    assert log.dropped == 50
    assert len(list(log.due(0.0))) == BURST
    assert len(list(log.due(3.0))) == 3, "one each second from then on"


def test_a_written_event_makes_room_for_a_new_one() -> None:
    log = EventLog("n1", "salt")
    for number in range(LIMIT):
        log.note(subject(f"pod-{number}"), "R", "m", WALL + number)
    for told in log.due(0.0):
        log.wrote(told, told.count, 0.0)
    assert log.note(subject("new"), "R", "m", WALL)
    assert log.dropped == 0


def test_a_message_is_no_longer_than_an_api_server_takes() -> None:
    log = EventLog("n1", "salt")
    log.note(subject(), "R", "x" * 5000, WALL)
    (told,) = log.due(0.0)
    assert len(told.message) == 1024
