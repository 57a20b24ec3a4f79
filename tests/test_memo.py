"""The memo: what a key tells apart, how many scores are kept, and the file that outlives a process."""

import multiprocessing
import sqlite3
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag_ray import memo as memo_module
from corag_ray.errors import DataError
from corag_ray.memo import KEY_BYTES, Memo, ScoreFile

TEXTS = ("tea", "iron", "tea")


def keys(query="q", texts=TEXTS, identity="model 1", ordered=True):
    return Memo({"m": identity}, 0).keys("m", query, texts, ordered)


def key(number):
    return number.to_bytes(KEY_BYTES, "big")


def scores(*numbers):
    return {key(number): number / 7 for number in numbers}


def test_a_key_changes_with_reranker_query_text_and_order():
    seen = [
        keys().of((0, 1)),
        keys().of((1, 0)),
        keys().of((0,)),
        keys().of(()),
        keys("q?").of((0, 1)),
        keys(texts=("tea", "Iron")).of((0, 1)),
        keys(identity="model 2").of((0, 1)),
        keys("1q", identity="model ").of((0, 1)),  # the same characters, cut elsewhere
        keys(texts=("te", "airon")).of((0, 1)),
        keys(texts=("teairon",)).of((0,)),
    ]
    assert len(set(seen)) == len(seen)
    assert {len(one) for one in seen} == {KEY_BYTES}


def test_equal_texts_have_one_key_whatever_their_numbers():
    assert keys().of((0, 1)) == keys().of((2, 1)) == keys(texts=("iron", "tea")).of((1, 0))


def test_permutations_have_one_key_where_order_is_not_seen_and_repetitions_their_own():
    blind = keys(texts=("a", "b", "c"), ordered=False)
    assert blind.of((2, 0, 1)) == blind.of((0, 1, 2))
    assert len({blind.of((0, 1)), blind.of((0, 2)), blind.of((0,)), blind.of((0, 0))}) == 4


def test_a_key_is_the_same_in_every_process():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_one_key) == _one_key()


def _one_key():
    return keys("¿q?", ("ü", "茶")).of((1, 0))


@given(st.text(), st.text())
def test_any_text_has_a_key_of_its_own_also_with_half_of_a_character(one, other):
    assert (keys(one).of((0,)) == keys(other).of((0,))) == (one == other)
    assert keys("\ud800").of((0,)) != keys("\ud801").of((0,)) != keys("?").of((0,))


def test_a_reranker_without_an_identity_has_no_keys():
    assert Memo({"m": "model"}, 5).keys("other", "q", TEXTS, True) is None


def test_what_was_put_is_found_and_counted():
    memo = Memo({}, 10)
    memo.put(scores(1, 2))
    assert memo.get([key(2), key(3), key(1)]) == scores(1, 2)
    assert memo.get([]) == {}
    assert (memo.lookups, memo.hits) == (3, 2)


@pytest.mark.parametrize("file", [None, "memo.sqlite"])
def test_what_is_not_finite_is_not_kept(tmp_path, file):
    memo = Memo({}, 10, file and tmp_path / file)
    memo.put({key(1): float("nan"), key(2): float("inf"), key(3): -float("inf"), key(4): -3.5})
    assert memo.get([key(n) for n in range(1, 5)]) == {key(4): -3.5}


def test_the_scores_used_last_are_kept_up_to_the_number():
    memo = Memo({}, 3)
    memo.put(scores(1, 2, 3))
    memo.get([key(1)])
    memo.put(scores(4))  # 2 was used before 3 and 1
    assert memo.get([key(n) for n in range(1, 5)]) == scores(1, 3, 4)
    memo.put(scores(1) | scores(5))  # put again, 1 is newer than 3
    memo.put(scores(6))
    assert memo.get([key(n) for n in range(1, 7)]) == scores(1, 5, 6)
    memo.put(scores(*range(10, 20)))
    assert memo.get([key(n) for n in range(20)]) == scores(17, 18, 19)


def test_a_memo_of_no_entries_keeps_nothing():
    memo = Memo({}, 0)
    memo.put(scores(1))
    assert memo.get([key(1)]) == {}


def test_threads_share_a_memo(tmp_path):
    memo = Memo({}, 40, tmp_path / "memo.sqlite")

    def work(first):
        for number in range(first, first + 50):
            memo.put(scores(number))
            assert memo.get([key(number)]) == scores(number)

    threads = [threading.Thread(target=work, args=(25 * n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert memo.lookups == memo.hits == 8 * 50  # none died on the way
    assert memo.get([key(n) for n in range(225)]) == scores(*range(225))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, unique=True))
def test_the_file_gives_back_the_very_same_numbers_to_a_later_memo(tmp_path_factory, raw):
    path = tmp_path_factory.mktemp("memo") / "new" / "memo.sqlite"
    put = {key(n): value for n, value in enumerate(raw)}
    first = Memo({}, 0, path)
    first.put(put)
    first.close()
    later = Memo({}, 0, path)
    assert later.get(list(put)) == put
    assert (later.lookups, later.hits) == (len(raw), len(raw))
    later.close()


def test_more_keys_than_one_statement_takes_are_found_in_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(memo_module, "KEYS_A_READ", 3)
    memo = Memo({}, 2, tmp_path / "memo.sqlite")
    memo.put(scores(*range(10)))
    assert memo.get([key(n) for n in range(12)]) == scores(*range(10))


def test_what_the_file_gave_is_then_in_memory(tmp_path):
    path = tmp_path / "memo.sqlite"
    Memo({}, 0, path).put(scores(1))
    memo = Memo({}, 5, path)
    memo.get([key(1)])
    memo.close()
    assert memo.get([key(1)]) == scores(1)  # a closed file would be an error


def _fill(path, first, barrier):
    """Opens the file at the same moment as the others, and adds 40 scores in batches of 4."""
    barrier.wait(60)
    memo = Memo({}, 0, path)
    for start in range(first, first + 40, 4):
        memo.put(scores(*range(start, start + 4)))
    memo.close()


def test_processes_that_open_a_new_file_at_once_all_add_to_it(tmp_path):
    context, path = multiprocessing.get_context("fork"), tmp_path / "memo.sqlite"
    barrier = context.Barrier(4)
    workers = [context.Process(target=_fill, args=(path, 30 * n, barrier)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert Memo({}, 0, path).get([key(n) for n in range(140)]) == scores(*range(130))


def test_of_two_numbers_for_one_key_the_file_keeps_the_first(tmp_path):
    one, other = (Memo({}, 0, tmp_path / "memo.sqlite") for _ in range(2))
    one.put({key(1): 0.1})
    other.put({key(1): 0.2, key(2): 0.3})
    assert one.get([key(1), key(2)]) == {key(1): 0.1, key(2): 0.3}


def refusal(path):
    with pytest.raises(DataError) as caught:
        Memo({}, 5, path)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize("content", [b"no database\n" * 200, b"SQLite format 3\0" + b"\xff" * 4000])
def test_a_damaged_file_is_one_sentence_and_stays_as_it_was(tmp_path, content):
    path = tmp_path / "memo.sqlite"
    path.write_bytes(content)
    assert refusal(path).startswith(f"memo.path: {path} cannot hold the memo of scores (")
    assert path.read_bytes() == content


def test_a_path_that_cannot_be_a_file_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("x")
    assert refusal(tmp_path) == f"memo.path: {tmp_path} is a folder: name a file in it."
    for path in (tmp_path / "file" / "memo.sqlite", tmp_path / "a\0b", tmp_path / "a\ud800b"):
        assert refusal(path).startswith(f"memo.path: {path} cannot hold the memo of scores (")


@pytest.mark.parametrize("made", ["CREATE TABLE mine (x)", "PRAGMA user_version = 99", "PRAGMA user_version = 1"])
def test_a_database_of_something_else_is_refused_and_stays_as_it_was(tmp_path, made):
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as other:
        other.execute(made)
    content = path.read_bytes()
    assert refusal(path) == f"memo.path: {path} is no memo of version 1: name another file."
    assert path.read_bytes() == content


@pytest.mark.parametrize("raw", ["text", b"blob", float("inf")])
def test_what_is_no_score_in_the_file_is_computed_anew(tmp_path, raw):
    path = tmp_path / "memo.sqlite"
    memo = Memo({}, 0, path)
    memo.put(scores(1, 2))
    with sqlite3.connect(path) as other:
        other.execute("UPDATE scores SET raw = ? WHERE key = ?", (raw, key(1)))
    assert memo.get([key(1), key(2)]) == scores(2)


def test_opening_waits_for_its_turn(tmp_path):
    path = tmp_path / "memo.sqlite"
    ScoreFile(path).close()
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("PRAGMA journal_mode = DELETE")
    other.execute("BEGIN IMMEDIATE")
    threading.Timer(0.3, lambda: other.execute("COMMIT")).start()
    ScoreFile(path).close()


@pytest.mark.parametrize("asked", ["get", "put"])
def test_a_file_that_is_damaged_later_is_told_once_and_the_memo_goes_on_in_memory(tmp_path, caplog, asked):
    path = tmp_path / "memo.sqlite"
    memo = Memo({}, 10, path)
    memo.put(scores(1))
    with sqlite3.connect(path) as other:
        other.execute("DROP TABLE scores")
    assert memo.get([key(2)]) == {} if asked == "get" else memo.put(scores(2)) is None
    memo.put(scores(3))
    assert memo.get([key(1), key(3)]) == scores(1) | scores(3)
    [warning] = caplog.messages
    assert "cannot hold the memo of scores (no such table: scores)" in warning
    assert warning.endswith("Going on with the scores in memory alone.")


def test_a_file_that_another_process_will_not_let_go_is_let_go_too(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(memo_module, "WAIT_S", 0.05)
    path = tmp_path / "memo.sqlite"
    memo = Memo({}, 10, path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    memo.put(scores(1))
    other.execute("COMMIT")
    assert "(database is locked)" in caplog.text
    assert memo.get([key(1)]) == scores(1)
