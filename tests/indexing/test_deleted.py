"""Deletion by id: all or none, remembered, and taken back."""

import pytest

from corag_ray.errors import DataError
from corag_ray.indexing.deleted import DELETED, change_deleted, deleted_documents

KNOWN = ["a", "b", "c"]


def test_deletions_add_up_and_are_taken_back_by_id(tmp_path):
    assert deleted_documents({"": tmp_path}) == set()
    change_deleted({"": tmp_path}, KNOWN, ["a"], [])
    change_deleted({"": tmp_path}, KNOWN, ["b", "a"], [])
    assert deleted_documents({"": tmp_path}) == {"a", "b"}
    change_deleted({"": tmp_path}, KNOWN, ["c"], ["a"])
    assert deleted_documents({"": tmp_path}) == {"b", "c"}


@pytest.mark.parametrize(
    ("delete", "restore", "message"),
    [
        (["b", "x"], [], "the corpus holds no document 'x': nothing was deleted"),
        ([""], [], "the corpus holds no document ''"),
        ([], ["b"], "the document 'b' was not deleted: nothing was restored"),
        (["a"], ["a"], "the document 'a' cannot be deleted and restored at once"),
    ],
)
def test_a_wrong_id_changes_nothing(tmp_path, delete, restore, message):
    change_deleted({"": tmp_path}, KNOWN, ["a"], [])
    with pytest.raises(DataError, match=message):
        change_deleted({"": tmp_path}, KNOWN, delete, restore)
    assert deleted_documents({"": tmp_path}) == {"a"}


def test_a_deleted_document_that_the_corpus_lost_meanwhile_can_be_deleted_again_and_restored(tmp_path):
    change_deleted({"": tmp_path}, KNOWN, ["a"], [])
    change_deleted({"": tmp_path}, ["b"], ["a"], [])
    change_deleted({"": tmp_path}, ["b"], [], ["a"])
    assert deleted_documents({"": tmp_path}) == set()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"doc_ids": "a"}', '{"doc_ids": [1]}'])
def test_a_damaged_list_is_refused_in_one_sentence(tmp_path, content):
    (tmp_path / DELETED).write_text(content)
    with pytest.raises(DataError, match=r"deleted\.json is damaged: delete") as error:
        deleted_documents({"": tmp_path})
    assert "\n" not in str(error.value)


def test_ids_of_several_sets_go_to_the_list_of_their_own_set_without_its_name(tmp_path):
    lists = {"a/": tmp_path / "a", "a/b/": tmp_path / "b", "c/": tmp_path / "c"}
    for folder in lists.values():
        folder.mkdir()
    change_deleted({"": tmp_path / "a"}, ["x"], ["x"], [])
    assert deleted_documents(lists) == {"a/x"}
    change_deleted(lists, ["a/x", "a/y", "a/b/x"], ["a/y", "a/b/x"], ["a/x"])
    assert [deleted_documents({"": folder}) for folder in lists.values()] == [{"y"}, {"x"}, set()]
    assert not (tmp_path / "c" / DELETED).exists()


def test_a_wrong_id_of_one_set_changes_no_list_of_another(tmp_path):
    lists = {"a/": tmp_path / "a", "b/": tmp_path / "b"}
    with pytest.raises(DataError, match=r"no document 'x' \(did you mean 'a/x'\?\): nothing was deleted"):
        change_deleted(lists, ["a/x", "b/x"], ["a/x", "x"], [])
    assert deleted_documents(lists) == set()


@pytest.mark.parametrize(("typed", "meant"), [("ferry.txt", "sub/ferry.txt"), ("tae.md", "tea.md"), ("tea", "tea.md")])
def test_an_id_that_is_wrong_is_answered_with_the_nearest(tmp_path, typed, meant):
    with pytest.raises(DataError, match=rf"no document '{typed}' \(did you mean '{meant}'\?\)"):
        change_deleted({"": tmp_path}, ["sub/ferry.txt", "tea.md"], [typed], [])
