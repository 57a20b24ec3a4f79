"""The manifest: what a run was made with, and every session that worked on it."""

import json
import subprocess
from pathlib import Path

import pytest
import ray

import corag_ray.evaluation.manifest as manifest_module
from corag_ray.evaluation.manifest import MANIFEST, begin_session, end_session, make_manifest


def manifest(fingerprint="ab"):
    return make_manifest("n", fingerprint, {"seed": 3}, missing_evidence=2)


def on_disk(folder):
    return json.loads((folder / MANIFEST).read_text("utf-8"))


def test_a_manifest_says_with_what_a_run_was_made_and_takes_further_facts(tmp_path):
    made = manifest()
    assert made["sessions"] == []
    begin_session(tmp_path, made)
    written = on_disk(tmp_path)
    assert written == made
    told = [written[key] for key in ("name", "fingerprint", "config", "missing_evidence")]
    assert told == ["n", "ab", {"seed": 3}, 2]


def test_a_session_says_where_by_what_and_when(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/somewhere/bin/corag", "bench", "--limit", "3"])
    made = manifest()
    begin_session(tmp_path, made)
    [session] = on_disk(tmp_path)["sessions"]
    assert session["command"] == "corag bench --limit 3"
    assert session["versions"]["ray"] == ray.__version__
    assert session["machine"]["cpus"] >= 1
    assert session["started"].endswith("+00:00")
    assert "commit" in session
    assert "finished" not in session  # as a kill would leave it
    end_session(tmp_path, made)
    [session] = on_disk(tmp_path)["sessions"]
    assert session["finished"] >= session["started"]


def test_a_run_that_was_killed_and_started_again_lists_both_sessions(tmp_path):
    begin_session(tmp_path, manifest())
    again = manifest()
    begin_session(tmp_path, again)
    end_session(tmp_path, again)
    assert ["finished" in session for session in on_disk(tmp_path)["sessions"]] == [False, True]


@pytest.mark.parametrize("fingerprint", ["ab", "cd"])
def test_sessions_of_another_configuration_are_not_taken_over(tmp_path, fingerprint):
    begin_session(tmp_path, manifest())
    begin_session(tmp_path, manifest(fingerprint))
    assert len(on_disk(tmp_path)["sessions"]) == (2 if fingerprint == "ab" else 1)


def test_a_session_names_the_commit_of_the_checkout_that_holds_the_package_and_of_no_other(tmp_path, monkeypatch):
    module = Path("corag_ray/evaluation/manifest.py")
    installed = Path(".venv") / module
    for place in (module, installed):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_text("")
    (tmp_path / ".gitignore").write_text(".venv\n")

    def git(*arguments):
        author = ["-c", "user.name=n", "-c", "user.email=e@x", "-c", "commit.gpgsign=false"]
        return subprocess.run(["git", *author, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)

    git("init")
    git("add", "--all")
    git("commit", "--message", "m")
    commit = git("rev-parse", "--short=12", "HEAD").stdout.strip()

    def named(file):
        monkeypatch.setattr(manifest_module, "__file__", str(tmp_path / file))
        begin_session(tmp_path, made := manifest())
        return made["sessions"][-1]["commit"]

    assert named(module) == commit
    assert named(installed) is None  # an environment within another project's checkout
    (tmp_path / module).write_text("changed")
    assert named(module) == f"{commit}+changes"
