"""A witness: under whose lease completions are told, and what a promotion waits for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from broker_shim.completion import Completion
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, Queue
from sparkstore.cli.command_line import main
from sparkstore.config import StoreConfig
from sparkstore.errors import CorruptData, Fenced, Full, InvalidRequest, Locked, Unavailable
from sparkstore.replication.promote import promote
from sparkstore.storage.storage import StoredContent
from sparkstore.tables.root import Identity, is_root, open_root
from sparkstore.witness.folder import FolderPlace
from sparkstore.witness.holder import Holder, packed
from sparkstore.witness.lease import Witness
from sparkstore.witness.place import witness_at
from sparkstore.witness.turn import sight, take_over, take_place
from tests.support.objects.s3_server import DROP, S3Server, once, served
from tests.support.roots.logs import until
from tests.support.roots.replicas import replica_of, role_of
from tests.support.stores.stores import done

PRIMARY = Identity("a" * 32, replicas=["/replica"])
REPLICA = Identity("b" * 32, role="replica", primary_id=PRIMARY.root_id)
PROMOTED = Identity("b" * 32, generation=2)
LEASE_S = 10.0


class Clock:
    """Seconds that a test lets go on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with served(monkeypatch) as server:
        yield server


def primary_at(folder: Path, clock: Clock, where: str = "/primary") -> Witness:
    return Witness(FolderPlace(folder), PRIMARY, where, LEASE_S, clock, clock.wait)


def promoted_at(folder: Path, clock: Clock) -> None:
    take_over(FolderPlace(folder), REPLICA, PROMOTED, "/replica", clock.wait)


# -- the lease -------------------------------------------------------------------------------------


def test_a_lease_runs_from_before_its_request_was_sent(tmp_path: Path, clock: Clock) -> None:
    class Slow(FolderPlace):
        def replace_if_unchanged(self, content: bytes, tag: str) -> bool:
            clock.now += 4
            return super().replace_if_unchanged(content, tag)

    witness = Witness(Slow(tmp_path), PRIMARY, "/primary", LEASE_S, clock, clock.wait)
    assert witness.left_s == 0
    witness.claim(is_new=True)
    witness.renew()
    assert witness.left_s == LEASE_S - 4
    clock.now += LEASE_S - 4
    assert witness.left_s == 0
    assert not witness.wait_until_held(0)


def test_a_promotion_waits_for_the_lease_that_it_found_and_then_nobody_renews_it(
    tmp_path: Path, clock: Clock
) -> None:
    old = primary_at(tmp_path, clock)
    old.claim(is_new=True)
    promoted_at(tmp_path, clock)
    assert clock.waits == [pytest.approx(LEASE_S * 1.05)]
    assert old.left_s == 0
    with pytest.raises(Fenced, match="/replica took over, with generation 2"):
        old.renew()
    with pytest.raises(Fenced, match="took over"):
        primary_at(tmp_path, clock).claim(is_new=False)


def test_a_renewal_that_comes_second_says_who_was_faster(tmp_path: Path, clock: Clock) -> None:
    class Late(FolderPlace):
        def replace_if_unchanged(self, content: bytes, tag: str) -> bool:
            promoted_at(tmp_path, clock)
            return super().replace_if_unchanged(content, tag)

    primary_at(tmp_path, clock).claim(is_new=True)
    old = primary_at(tmp_path, clock)
    old.claim(is_new=False)
    old._place = Late(tmp_path)
    with pytest.raises(Fenced, match="took over, with generation 2"):
        old.renew()


def test_a_folder_that_is_not_mounted_for_a_while_does_not_end_a_primary(
    tmp_path: Path, clock: Clock
) -> None:
    place = tmp_path / "witness"
    place.mkdir()
    witness = primary_at(place, clock)
    witness.claim(is_new=True)
    place.rename(tmp_path / "elsewhere")
    clock.now += LEASE_S
    with pytest.raises(Unavailable, match=r"the object is gone; .* mount the folder"):
        witness.renew()
    assert witness.left_s == 0
    (tmp_path / "elsewhere").rename(place)
    witness.renew()
    assert witness.left_s == LEASE_S


def test_a_primary_that_ended_well_is_not_waited_for(tmp_path: Path, clock: Clock) -> None:
    old = primary_at(tmp_path, clock)
    old.claim(is_new=True)
    old.stop()
    promoted_at(tmp_path, clock)
    assert clock.waits == []


def test_a_lease_that_was_released_is_renewed_by_nobody_and_says_who_wanted_it(
    tmp_path: Path, clock: Clock
) -> None:
    lease = primary_at(tmp_path, clock)
    lease.claim(is_new=True)
    lease.name_in_step(REPLICA.root_id)
    lease.stop("ordered by ann")
    assert lease.left_s == 0
    with pytest.raises(Unavailable, match="the lease was released"):
        lease.name_in_step("")  # a standby comes back, and looks for its place
    seen = sight(FolderPlace(tmp_path))
    assert seen is not None
    lease.stop()  # again, as the store is closed: the object stays the one that the standby saw
    assert sight(FolderPlace(tmp_path)) == seen
    assert (seen[0].is_closed, seen[0].in_step) == (True, REPLICA.root_id)
    assert take_place(FolderPlace(tmp_path), *seen, PROMOTED, "/replica")
    now = sight(FolderPlace(tmp_path))
    assert now is not None
    assert (now[0].switched_why, now[0].closed_why) == ("ordered by ann", "")


def test_a_primary_that_dies_in_its_recovery_leaves_its_place_to_the_standby(
    tmp_path: Path, clock: Clock
) -> None:
    """Nothing is confirmed before its log is open, so the standby still has all that was."""
    died = primary_at(tmp_path, clock)
    died.claim(is_new=True)
    died.name_in_step(REPLICA.root_id)
    again = primary_at(tmp_path, clock)
    again.claim(is_new=False)
    assert _held(tmp_path).in_step == REPLICA.root_id  # it may take over, if this one dies, too
    again.serve(lambda _reason: None, lambda: 0)
    assert _held(tmp_path).in_step == ""


def test_a_recovery_outlasts_a_silence_of_its_witness_but_not_its_successor(
    tmp_path: Path,
) -> None:
    silences = list[str]()

    class Silent(FolderPlace):
        def read(self) -> StoredContent | None:
            if silences:
                raise Unavailable(silences.pop())
            return super().read()

    witness = Witness(Silent(tmp_path), PRIMARY, "/primary", 0.03)
    witness.claim(is_new=True)
    witness.name_in_step(REPLICA.root_id)
    silences += ["a mount is slow", "and again"]
    witness.serve(lambda _reason: None, lambda: 0)
    assert (silences, _held(tmp_path).in_step) == ([], "")
    witness.name_in_step(REPLICA.root_id)
    take_over(FolderPlace(tmp_path), REPLICA, PROMOTED, "/replica", lambda _seconds: None)
    silences += ["a mount is slow"]
    with pytest.raises(Fenced, match="took over, with generation 2"):
        witness.serve(lambda _reason: None, lambda: 0)


def test_a_promotion_that_was_killed_while_it_waited_waits_anew(
    tmp_path: Path, clock: Clock
) -> None:
    def killed(_seconds: float) -> None:
        raise KeyboardInterrupt

    primary_at(tmp_path, clock).claim(is_new=True)
    with pytest.raises(KeyboardInterrupt):
        take_over(FolderPlace(tmp_path), REPLICA, PROMOTED, "/replica", killed)
    promoted_at(tmp_path, clock)
    assert len(clock.waits) == 1
    promoted_at(tmp_path, clock)
    assert len(clock.waits) == 1  # it has been waited for


def test_of_two_replicas_one_is_promoted(tmp_path: Path, clock: Clock) -> None:
    primary_at(tmp_path, clock).claim(is_new=True)
    promoted_at(tmp_path, clock)
    sibling = Identity("c" * 32, role="replica", primary_id=PRIMARY.root_id)
    with pytest.raises(Fenced, match="was promoted before, to generation 2: use that"):
        take_over(FolderPlace(tmp_path), sibling, sibling, "/sibling", clock.wait)


def test_a_copy_of_the_root_on_another_machine_waits_for_the_first_and_ends_it(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = primary_at(tmp_path, clock)
    first.claim(is_new=True)
    again = primary_at(tmp_path, clock)
    again.claim(is_new=False)
    assert clock.waits == []  # one machine: the root's lock keeps two processes apart
    monkeypatch.setattr("sparkstore.witness.lease.socket.gethostname", lambda: "elsewhere")
    copy = primary_at(tmp_path, clock)
    copy.claim(is_new=False)
    assert clock.waits == [pytest.approx(LEASE_S * 1.05)]
    assert (again.left_s, copy.left_s) == (0, LEASE_S)
    with pytest.raises(Fenced, match="another store of this root serves now, on elsewhere"):
        again.renew()


def test_a_copy_of_a_root_that_is_served_is_refused_and_the_first_goes_on(
    tmp_path: Path, clock: Clock
) -> None:
    first = primary_at(tmp_path, clock)
    first.claim(is_new=True)

    def wait(seconds: float) -> None:
        clock.wait(seconds / 2)
        first.renew()
        clock.wait(seconds / 2)

    copy = Witness(FolderPlace(tmp_path), PRIMARY, "/copy", LEASE_S, clock, wait)
    with pytest.raises(Locked, match=r"is served as .*:/primary: stop that one"):
        copy.claim(is_new=False)
    assert copy.left_s == 0
    assert first.left_s > 0
    first.renew()
    first.stop()
    copy.claim(is_new=False)  # it ended, so nobody is waited for
    assert copy.left_s == LEASE_S


def test_whoever_was_fenced_does_not_close_the_lease_of_its_successor(
    tmp_path: Path, clock: Clock
) -> None:
    old = primary_at(tmp_path, clock)
    old.claim(is_new=True)
    promoted_at(tmp_path, clock)
    new = Witness(FolderPlace(tmp_path), PROMOTED, "/replica", LEASE_S, clock, clock.wait)
    new.claim(is_new=False)
    old.stop()
    new.renew()
    assert new.left_s == LEASE_S


# -- what is refused -------------------------------------------------------------------------------


def test_the_witness_of_another_root_is_refused(tmp_path: Path, clock: Clock) -> None:
    primary_at(tmp_path, clock).claim(is_new=True)
    other = Identity("d" * 32)
    witness = Witness(FolderPlace(tmp_path), other, "/other", LEASE_S, clock)
    with pytest.raises(InvalidRequest, match=r"is the witness of .*:/primary: name another prefix"):
        witness.claim(is_new=True)


def test_a_folder_that_is_not_mounted_is_not_taken_for_a_new_witness(
    tmp_path: Path, clock: Clock
) -> None:
    with pytest.raises(InvalidRequest, match='start once with witness = "none"'):
        primary_at(tmp_path, clock).claim(is_new=False)
    with pytest.raises(Unavailable, match="mount or create it"):
        witness_at(str(tmp_path / "absent"))
    with pytest.raises(InvalidRequest, match="s3://BUCKET/PREFIX"):
        witness_at("lake/witness")
    with pytest.raises(InvalidRequest, match="promote with --no-witness"):
        promoted_at(tmp_path, clock)


def test_an_object_that_cannot_be_read_is_told(tmp_path: Path, clock: Clock) -> None:
    FolderPlace(tmp_path).put_if_absent(b'{"root_id": 1, "colour": "red"}')
    with pytest.raises(CorruptData, match="the object cannot be read"):
        primary_at(tmp_path, clock).claim(is_new=True)


def test_a_lease_is_renewed_while_a_log_is_opened_and_its_loss_ends_that(tmp_path: Path) -> None:
    place = FolderPlace(tmp_path)
    witness = Witness(place, PRIMARY, "/primary", 0.3)
    witness.claim(is_new=True)
    witness.start()
    until(lambda: _held(tmp_path).renewal > 4)  # longer than a lease
    assert witness.wait_until_held(10)
    take_over(place, REPLICA, PROMOTED, "/replica", lambda _seconds: None)
    until(lambda: witness.left_s == 0)
    with pytest.raises(Fenced, match="took over, with generation 2"):
        witness.serve(lambda _reason: None, lambda: 0)
    witness.stop()


def test_of_two_machines_that_begin_with_empty_folders_one_makes_a_root(tmp_path: Path) -> None:
    """The other one is not left with a root that nobody could be a standby of."""
    witness = tmp_path / "witness"
    witness.mkdir()
    killed = Witness(FolderPlace(witness), Identity("d" * 32), str(tmp_path / "a"), 0.3)
    killed.claim(is_new=True)  # before it made the root
    config = StoreConfig(witness=str(witness), witness_lease_s=0.3, peer="tcp:b:5680")
    with closing(DeltaMessageStore(tmp_path / "a", config)):
        with pytest.raises(Fenced, match=r"is the witness of .*/a: name another"):
            DeltaMessageStore(tmp_path / "b", config)
        assert not is_root(tmp_path / "b")
        with pytest.raises(InvalidRequest, match=r"is the witness of .*/a: name another"):
            DeltaMessageStore(tmp_path / "b", replace(config, peer=""))
    assert open_root(tmp_path / "a").identity.witness == str(witness)


# -- over a bucket ---------------------------------------------------------------------------------


def test_an_answer_that_was_lost_is_read_back(bucket: S3Server, clock: Clock) -> None:
    def opened() -> Witness:
        storage = witness_at("s3://lake/witness")
        return Witness(storage, PRIMARY, "/primary", LEASE_S, clock, clock.wait)

    bucket.faults.append(once("PUT", "primary.json", DROP))
    witness = opened()
    witness.claim(is_new=True)
    bucket.faults.append(once("PUT", "primary.json", DROP))
    witness.renew()
    assert witness.left_s == LEASE_S


# -- under a store ---------------------------------------------------------------------------------


def opened(root: Path, witness: str, lease_s: float = 0.3) -> DeltaMessageStore:
    return DeltaMessageStore(root, StoreConfig(witness=witness, witness_lease_s=lease_s))


def put(store: DeltaMessageStore) -> Completion:
    completion = Completion()
    store.enqueue(store.message(MessageHeader(), b"x"), "q", completion.finish)
    return completion


def test_a_store_tells_nothing_while_the_witness_does_not_answer_and_then_goes_on(
    bucket: S3Server, tmp_path: Path
) -> None:
    """Nor which branches are in doubt: whoever serves by then may have prepared others."""
    store = opened(tmp_path / "root", "s3://lake/witness")
    done(store.create, Queue("q"))
    bucket.faults.append(lambda _request: 403)
    until(lambda: store.backlog.witness_left_s == 0)
    late = put(store)
    until(lambda: bool(store._log._stalled))
    asked = Completion()
    store.find_branches(None, lambda error, _branches: asked.finish(error))
    refused = put(store)
    assert not asked.is_complete
    assert not late.is_complete
    bucket.faults.clear()
    late.complete()
    asked.complete()
    with pytest.raises(Full, match="the witness s3://lake/witness does not answer; retry"):
        refused.complete()
    store.close()
    assert Holder(**_object(bucket)).is_closed


def test_a_store_ends_when_a_replica_takes_its_place_and_tells_what_waited_so(
    bucket: S3Server, tmp_path: Path
) -> None:
    """Both roots are cut off from each other: only the witness knows."""
    primary, replica = tmp_path / "primary", tmp_path / "replica"
    store = opened(primary, "s3://lake/witness")
    done(store.create, Queue("q"))
    store.catch_up()
    replica_of(open_root(primary), replica)
    hidden = replica.rename(tmp_path / "elsewhere")
    (hidden / "root.json").write_text(
        (hidden / "root.json").read_text().replace(str(primary), str(tmp_path / "nobody"))
    )
    done_promotion = promote(hidden)
    assert (done_promotion.witness, role_of(hidden)) == ("s3://lake/witness", ("primary", 2))
    assert role_of(primary) == ("primary", 1)
    until(lambda: store.failure is not None)
    with pytest.raises(Fenced, match="took over, with generation 2"):
        put(store).complete()
    store.close()
    with pytest.raises(Fenced, match="took over"):
        opened(primary, "")  # a root that has a witness needs no setting
    again = opened(hidden, "")
    assert again.backlog.witness_left_s is not None
    again.close()


def test_a_witness_is_taken_away_by_name_and_changed_only_so(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    opened(tmp_path / "root", str(one)).close()
    with pytest.raises(InvalidRequest, match='serve it once with witness = "none"'):
        opened(tmp_path / "root", str(two))
    opened(tmp_path / "root", "none").close()
    assert FolderPlace(one).read() is None
    assert open_root(tmp_path / "root").identity.witness == ""
    opened(tmp_path / "root", str(two)).close()
    assert open_root(tmp_path / "root").identity.witness == str(two)
    FolderPlace(two).delete()  # as of a folder that is not mounted
    with pytest.raises(InvalidRequest, match='start once with witness = "none"'):
        opened(tmp_path / "root", str(two))


def test_a_witness_that_is_gone_for_good_is_taken_away_by_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "witness").mkdir()
    opened(tmp_path / "root", str(tmp_path / "witness")).close()
    shutil.rmtree(tmp_path / "witness")
    opened(tmp_path / "root", "none").close()
    assert "let no standby of" in caplog.text
    (tmp_path / "new").mkdir()
    opened(tmp_path / "root", str(tmp_path / "new")).close()
    assert open_root(tmp_path / "root").identity.witness == str(tmp_path / "new")


def test_a_root_put_back_from_a_copy_leaves_its_place_to_the_standby(tmp_path: Path) -> None:
    witness, root, copy = tmp_path / "witness", tmp_path / "root", tmp_path / "copy"
    witness.mkdir()
    with closing(opened(root, str(witness))) as store:
        done(store.create, Queue("q"))
    shutil.copytree(root, copy)
    with closing(opened(root, "")) as store:
        put(store).complete()
        until(lambda: _held(witness).position == store.log.synced_position)
    place = FolderPlace(witness)
    holder, tag = sight(place)
    place.replace_if_unchanged(packed(replace(holder, in_step="5" * 32)), tag)
    shutil.rmtree(root)
    shutil.copytree(copy, root)
    for _ in range(2):  # asked again, it is refused again
        with pytest.raises(InvalidRequest, match=r"had confirmed \d+: it was put back from a copy"):
            opened(root, "")
        left = _held(witness)
        assert (left.in_step, left.is_closed) == ("5" * 32, True)  # it takes over at once
    config = StoreConfig(witness_lease_s=0.3)
    with closing(DeltaMessageStore(root, config, accept_loss=True)) as store:
        until(lambda: not _held(witness).in_step)
        put(store).complete()
        until(lambda: _held(witness).position == store.log.synced_position)
    opened(root, "").close()  # what is accepted is accepted


def _held(witness: Path) -> Holder:
    return sight(FolderPlace(witness))[0]


def test_a_root_in_a_bucket_is_its_own_witness(bucket: S3Server) -> None:
    config = StoreConfig(witness="s3://lake/witness")
    with pytest.raises(InvalidRequest, match="its own witness: leave witness out"):
        DeltaMessageStore("s3://lake/root", config)
    assert not bucket.objects


def test_a_lost_witness_is_left_out_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "witness"
    place.mkdir()
    store = opened(tmp_path / "primary", str(place))
    done(store.create, Queue("q"))
    store.close()
    replica = replica_of(open_root(tmp_path / "primary"), tmp_path / "replica").path
    FolderPlace(place).delete()
    assert main(["promote", str(replica)]) == 2
    assert role_of(replica) == ("replica", 1)
    assert "--no-witness" in capsys.readouterr().err
    assert main(["promote", str(replica), "--no-witness"]) == 0
    assert role_of(replica) == ("primary", 2)


def _object(bucket: S3Server) -> dict[str, object]:
    (content,) = (body for key, body in bucket.objects.items() if key.endswith("primary.json"))
    found: dict[str, object] = json.loads(content)
    return found
