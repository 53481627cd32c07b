"""Workspaces travel as they should, and arrive."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pathspec import GitIgnoreSpec

from transload.errors import ConfigError, SpecError
from transload.specs import Workspace
from transload.workspace import (
    ALWAYS,
    copy_workspace,
    ignore_rules,
    workspace_digest,
    workspace_files,
    write_workspace_archive,
)


def _project(root: Path) -> Path:
    for name in (
        "train.py",
        "data/big.bin",
        "data/keep.txt",
        "__pycache__/x.pyc",
        ".git/HEAD",
        "pkg/mod.py",
    ):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (root / "train.py").chmod(0o755)
    (root / "link").symlink_to("train.py")
    return root


def test_a_folder_is_copied_without_what_is_ignored(tmp_path: Path) -> None:
    """Modes and links are kept, but caches, .git and what the ignore file names are not copied."""
    source = _project(tmp_path / "src")
    (source / ".transloadignore").write_text("# comment\ndata/*\n!data/keep.txt\n")
    count = copy_workspace(Workspace({str(source): ""}), str(tmp_path / "dst"))
    found = sorted(
        str(p.relative_to(tmp_path / "dst"))
        for p in (tmp_path / "dst").rglob("*")
        if not p.is_dir()
    )
    assert found == [".transloadignore", "data/keep.txt", "link", "pkg/mod.py", "train.py"]
    assert count == len(found)
    assert os.access(tmp_path / "dst" / "train.py", os.X_OK)
    assert os.readlink(tmp_path / "dst" / "link") == "train.py"


def test_projects_go_to_their_targets(tmp_path: Path) -> None:
    """Several folders and single files travel to where the mapping says."""
    one, two = _project(tmp_path / "one"), tmp_path / "two.py"
    two.write_text("x")
    files = dict.fromkeys(
        each.path for each in workspace_files(Workspace({str(one): "lib", str(two): ""}))
    )
    assert "lib/train.py" in files
    assert "two.py" in files


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    """A workspace that is not there is named."""
    with pytest.raises(SpecError, match="no such folder"):
        copy_workspace(Workspace({str(tmp_path / "nope"): ""}), str(tmp_path / "dst"))


def test_the_state_folder_stays_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state folder inside the workspace does not travel, as it holds the copies."""
    source = _project(tmp_path / "src")
    for home, kept in ((source / "state", set()), (source, {"other"})):
        monkeypatch.setenv("TRANSLOAD_HOME", str(home))
        (home / "local" / "workspaces" / "earlier").mkdir(parents=True)
        (home / "local" / "keepers.log").write_text("x")
        (home / "other").write_text("x")
        files = {each.path for each in workspace_files(Workspace({str(source): ""}))}
        copy_workspace(Workspace({str(source): ""}), str(home / "local" / "workspaces" / "new"))
        assert files == {"train.py", "data/big.bin", "data/keep.txt", "pkg/mod.py", "link", *kept}
        assert sorted(
            path.name for path in (home / "local" / "workspaces" / "new").iterdir()
        ) == sorted({name.partition("/")[0] for name in files})
        shutil.rmtree(source / "state", ignore_errors=True)


def test_a_copy_is_not_copied_into_itself(tmp_path: Path) -> None:
    """Whoever copies a workspace into a folder within it gets the rest of it, once."""
    source = _project(tmp_path / "src")
    copy_workspace(Workspace({str(source): ""}), str(source / "jobs" / "one"))
    assert not (source / "jobs" / "one" / "jobs").exists()
    assert (source / "jobs" / "one" / "train.py").exists()


def test_two_projects_may_not_bring_the_same_file(tmp_path: Path) -> None:
    """A clash names both sources, and neither silently wins."""
    one, two = _project(tmp_path / "one"), _project(tmp_path / "two")
    with pytest.raises(SpecError, match="comes from both"):
        copy_workspace(Workspace({str(one): "", str(two): ""}), str(tmp_path / "dst"))


def test_the_digest_follows_content_path_and_mode(tmp_path: Path) -> None:
    """Any change of what travels changes the digest. A change of what does not travel leaves it."""
    source = _project(tmp_path / "src")
    workspace = Workspace({str(source): ""})
    seen = {workspace_digest(workspace)}
    (source / "__pycache__" / "x.pyc").write_text("other")
    assert workspace_digest(workspace) in seen
    (source / "train.py").write_text("changed")
    seen.add(workspace_digest(workspace))
    (source / "train.py").chmod(0o644)
    seen.add(workspace_digest(workspace))
    (source / "train.py").rename(source / "train2.py")
    seen.add(workspace_digest(workspace))
    assert len(seen) == 4


@pytest.mark.parametrize(
    ("rules", "path", "is_folder", "ignored"),
    [
        (["*.log"], "a/b/x.log", False, True),
        (["/x.log"], "a/x.log", False, False),
        (["/x.log"], "x.log", False, True),
        (["build/"], "build", True, True),
        (["build/"], "build", False, False),
        (["a/**/z"], "a/b/c/z", False, True),
        (["a/**/z"], "a/z", False, True),
        (["a/**"], "a/b/c", False, True),
        (["*", "!keep"], "keep", False, False),
        (["x?.py"], "x1.py", False, True),
        (["a+b"], "a+b", False, True),
        (["[ab].txt"], "a.txt", False, True),
        (["\\#x"], "#x", False, True),
        (["a\\ "], "a ", False, True),
    ],
)
def test_ignore_patterns(
    tmp_path: Path, rules: list[str], path: str, is_folder: bool, ignored: bool
) -> None:
    """Patterns mean what they mean in a .gitignore, and the last that matches decides."""
    (tmp_path / ".transloadignore").write_text("\n".join(rules))
    assert ignore_rules(str(tmp_path))(f"{path}/" if is_folder else path) is ignored


@given(
    st.lists(
        st.sampled_from([*ALWAYS, "x.pyc", ".pyc", "x.pyc.txt", "a", ".gitignore", "VENV"]),
        min_size=1,
    ),
    st.booleans(),
)
def test_without_an_ignore_file_pathspec_is_not_needed(names: list[str], is_folder: bool) -> None:
    """What never travels is told without it, which takes its time to import, and in the same
    way.
    """
    path = "/".join(names) + "/" * is_folder
    assert ignore_rules("/nowhere")(path) is GitIgnoreSpec.from_lines(ALWAYS).match_file(path)


def test_a_pattern_that_is_none_names_the_file(tmp_path: Path) -> None:
    """A mistake in the ignore file is told with its path."""
    (tmp_path / ".transloadignore").write_text("!\n")
    with pytest.raises(ConfigError, match=r"\.transloadignore"):
        ignore_rules(str(tmp_path))


def test_an_archive_is_roots_and_readable_for_all(tmp_path: Path) -> None:
    """An archive for an image lies below one folder, owned by root and readable for all."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "run.sh").write_text("echo x\n")
    (tmp_path / "code" / "run.sh").chmod(0o700)
    data = io.BytesIO()
    write_workspace_archive(data, Workspace({str(tmp_path / "code"): "sub"}), "/srv/app")
    data.seek(0)
    with tarfile.open(fileobj=data) as tar:
        members = {member.name: member for member in tar.getmembers()}
        assert set(members) == {"srv/app", "srv/app/sub/run.sh"}
        assert {(member.uid, member.gid, member.uname) for member in members.values()} == {
            (0, 0, "")
        }
        assert members["srv/app/sub/run.sh"].mode == 0o744


def test_two_files_of_one_path_are_refused(tmp_path: Path) -> None:
    """Nobody can say which of them would win."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "same.py").write_text(name)
    both = Workspace({str(tmp_path / "a"): "", str(tmp_path / "b"): ""})
    with pytest.raises(SpecError, match=r"same\.py"):
        write_workspace_archive(io.BytesIO(), both, "/workspace")


@pytest.mark.parametrize(
    ("rules", "travels"),
    [
        ("*\n!src\n", ["src/a.py", "src/deep/b.py", "src/keep.env"]),
        ("**\n!src/*.py\n", ["src/a.py"]),
        ("*\n!src\nsrc/deep\n", ["src/a.py", "src/keep.env"]),
        ("*.env\nsrc\n", [".dockerignore", "other/c.env", "other/d.txt", "train.py"]),
        (
            "**/*.env\n!other/c.env\nsrc/d?ep\n",
            [".dockerignore", "other/c.env", "other/d.txt", "src/a.py", "train.py"],
        ),
        ("/src\n./other\n# a comment\n", [".dockerignore", "top.env", "train.py"]),
        ("*\n!*/[c-d].*\n", ["other/c.env", "other/d.txt"]),
        ("*\n!**/b.py\n", ["src/deep/b.py"]),
    ],
)
def test_dockerignore_is_read_as_docker_reads_it(
    rules: str, travels: list[str], tmp_path: Path
) -> None:
    """Patterns start at the folder, the last one that matches a path or its folder decides, ``!``
    brings back.
    """
    names = (
        "train.py",
        "top.env",
        "src/a.py",
        "src/keep.env",
        "src/deep/b.py",
        "other/c.env",
        "other/d.txt",
    )
    for name in (*names, ".git/HEAD", "src/__pycache__/x.pyc"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / ".dockerignore").write_bytes(b"\xef\xbb\xbf" + rules.replace("\n", "\r\n").encode())
    found = sorted(each.path for each in workspace_files(Workspace({str(tmp_path): ""})))
    assert found == travels


def test_a_byte_order_mark_does_not_turn_a_rule_off(tmp_path: Path) -> None:
    """What an editor puts in front of the first rule of an ignore file is not part of it."""
    (tmp_path / ".env").touch()
    (tmp_path / "train.py").touch()
    (tmp_path / ".transloadignore").write_bytes("\ufeff.env\r\n.transloadignore\r\n".encode())
    assert [each.path for each in workspace_files(Workspace({str(tmp_path): ""}))] == ["train.py"]


def test_a_workspace_of_which_nothing_travels_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An ignore file that leaves nothing over is most often a mistake."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / ".transloadignore").write_text("*\n")
    (tmp_path / "src" / "train.py").touch()
    assert copy_workspace(Workspace({str(tmp_path / "src"): ""}), str(tmp_path / "dst")) == 0
    assert f"no file of {tmp_path / 'src'} travels" in caplog.text


def test_a_workspace_may_be_a_file_url(tmp_path: Path) -> None:
    """Signs that a URL spells are those of the path."""
    folder = tmp_path / "my code"
    folder.mkdir()
    assert Workspace.from_str(folder.as_uri()).projects == {str(folder): ""}


def _tree(folder: Path) -> dict[str, str | None]:
    """Return path → text of each file, what each link leads to, and None for each empty folder."""
    found: dict[str, str | None] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        elif path.is_file():
            found[name] = path.read_text()
        elif not any(path.iterdir()):
            found[name] = None
    return found


def _unpacked(workspace: Workspace, folder: Path) -> Path:
    """Unpack the archive of a workspace."""
    packed = io.BytesIO()
    write_workspace_archive(packed, workspace, "/w")
    packed.seek(0)
    with tarfile.open(fileobj=packed) as tar:
        tar.extractall(folder, filter="fully_trusted")
    return folder / "w"


@pytest.mark.parametrize("travels", ["copy", "archive"])
def test_empty_folders_travel(tmp_path: Path, travels: str) -> None:
    """A folder for outputs is there where the job runs, unless it is left out."""
    source = tmp_path / "src"
    for name in ("outputs", "deep/er", "logs", "cache", "pkg/__pycache__"):
        (source / name).mkdir(parents=True)
    (source / "logs" / "old.log").write_text("x")
    (source / ".transloadignore").write_text("*.log\n/cache/\n")
    workspace = Workspace({str(source): ""})
    copy = tmp_path / "copy"
    if travels == "archive":
        copy = _unpacked(workspace, tmp_path)
    else:
        copy_workspace(workspace, str(copy))
    found = _tree(copy)
    del found[".transloadignore"]
    assert found == {"outputs": None, "deep/er": None, "logs": None, "pkg": None}


def test_empty_folders_count_for_the_digest(tmp_path: Path) -> None:
    """Two workspaces that differ in an empty folder, or a file of that name, are two."""
    digests = set()
    for name in ("none", "folder", "file"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text("x")
        digests.add(workspace_digest(Workspace({str(tmp_path / name): ""})))
        if name == "folder":
            (tmp_path / name / "b").mkdir()
        elif name == "file":
            (tmp_path / name / "b").touch(0o755)
            (tmp_path / name / "b").chmod(0o755)
        digests.add(workspace_digest(Workspace({str(tmp_path / name): ""})))
    assert len(digests) == 3


def test_rules_of_docker_bring_back_no_empty_folder(tmp_path: Path) -> None:
    """A folder that is left out, and of which a rule might have brought a file back, stays."""
    source = tmp_path / "src"
    for name in ("data/raw", "kept"):
        (source / name).mkdir(parents=True)
    (source / ".dockerignore").write_text("data\n!data/raw/x\n")
    copy_workspace(Workspace({str(source): ""}), str(tmp_path / "copy"))
    assert set(_tree(tmp_path / "copy")) == {".dockerignore", "kept"}


@pytest.mark.parametrize("travels", ["copy", "archive"])
def test_links_inside_stay_inside(
    tmp_path: Path, travels: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An absolute link into the folder leads to the copy, and no link of the folder is named."""
    source = tmp_path / "real" / "src"
    (source / "sub" / "deep").mkdir(parents=True)
    (source / "sub" / "conf").write_text("v1")
    (source / "abs").symlink_to(source / "sub" / "conf")
    (source / "sub" / "deep" / "up").symlink_to(source / "sub")
    (source / "rel").symlink_to("sub/conf")
    (source / "round").symlink_to("../src/sub/conf")
    (source / "nothing").symlink_to("no-such-file")
    (source / "itself").symlink_to(".")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for number, spelled in enumerate((source, tmp_path / "link" / "src")):
        copy = tmp_path / f"copy{number}"
        if travels == "archive":
            copy = _unpacked(Workspace({str(spelled): ""}), copy)
        else:
            copy_workspace(Workspace({str(spelled): ""}), str(copy))
        assert _tree(copy) == {
            "abs": "-> sub/conf",
            "itself": "-> .",
            "nothing": "-> no-such-file",
            "rel": "-> sub/conf",
            "round": "-> sub/conf",
            "sub/conf": "v1",
            "sub/deep/up": "-> ..",
        }
    assert caplog.text == ""


@pytest.mark.parametrize("travels", ["copy", "archive"])
def test_links_that_break_are_named(
    tmp_path: Path, travels: str, caplog: pytest.LogCaptureFixture
) -> None:
    """They lead out of the folder, or to what is left out of it."""
    source = tmp_path / "src"
    (source / "big").mkdir(parents=True)
    (source / "big" / "file").write_text("x")
    (tmp_path / "out").mkdir()
    (source / ".transloadignore").write_text("big\n")
    (source / "outside").symlink_to("../out")
    (source / "left").symlink_to("big/file")
    (source / "there").symlink_to(tmp_path / "out")
    (source / "was-broken").symlink_to("../no-such-folder")
    if travels == "archive":
        _unpacked(Workspace({str(source): ""}), tmp_path / "copy")
    else:
        copy_workspace(Workspace({str(source): ""}), str(tmp_path / "copy"))
    (line,) = caplog.messages
    assert "outside -> ../out" in line and "left -> big/file" in line
    assert "was-broken" not in line
    assert ("there -> " in line) is (travels == "archive")


GITS_RULES = {
    "escaped space": {"": "trail\\ \n"},
    "space": {"": "trail \nb.txt  \n"},
    "several": {"": "*.csv\n!keep.csv\n/logs/\n\\#hash\n\\!bang\nsp?ace/\nabc[1].py\n"},
    "nested": {"": "*.csv\n", "data": "!a.csv\n*.bin\n"},
    "nested, none at the top": {"data": "*.csv\n!/raw/keep.csv\n", "data/raw": "# none\n!a.csv\n"},
    "nested, anchored": {"data": "/h.bin\nraw/a.csv\n", "logs": "x.log\\ \n/data\n"},
    "nested, a folder is brought back": {"": "*.csv\n", "data": "!raw\n!raw/\n"},
    "nested, of a folder only": {"data": "raw/\n"},
    "nested, below an odd name": {"od[d] na*me": "*.txt\n!b.txt\n/only\n", "": "only\n"},
    "nested in what is left out": {"": "data\n", "data": "!raw/keep.csv\n"},
    "star": {"": "*\n!*/\n!*.py\n"},
    "slash and star": {"": "/*\n!/data\n/data/*\n!/data/raw\n"},
    "stars": {"": "**/raw/*.csv\nlogs/**\n!logs/x.log\n"},
    "ends of Windows": {"": "*.csv\r\ndata/*.bin\r\n", "logs": "*.log\r\n"},
}


@pytest.mark.parametrize("rules", GITS_RULES.values(), ids=GITS_RULES)
def test_what_travels_is_what_git_would_take(tmp_path: Path, rules: dict[str, str]) -> None:
    """The rules are read as git reads those of a .gitignore, in each folder."""
    project = tmp_path / "project"
    names = "data/raw/a.csv data/raw/keep.csv data/h.bin logs/x.log logs/data #hash !bang"
    names += " abc[1].py abc1.py top.csv b.txt"
    odd = ("sp ace/t.txt", "trail ", "trail", "od[d] na*me/b.txt", "od[d] na*me/deep/only")
    for name in (*names.split(), *odd, "od[d] na*me/only", "od[d] na*me/c.txt"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("x")
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    for folder, text in rules.items():
        for file in (".transloadignore", ".gitignore"):
            (project / folder / file).write_bytes(text.encode())

    command = ["git", "ls-files", "-z", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=project, check=True, capture_output=True, text=True)
    workspace = workspace_files(Workspace({str(project): ""}))
    travels = {each.path for each in workspace if not each.is_folder}
    assert travels == set(listed.stdout.split("\0")) - {""}


def test_a_mistake_in_a_nested_ignore_file_names_it(tmp_path: Path) -> None:
    """The file is named, not the one at the top."""
    (tmp_path / "data").mkdir()
    (tmp_path / ".transloadignore").write_text("*.csv\n")
    (tmp_path / "data" / ".transloadignore").write_text("!\n")
    with pytest.raises(ConfigError, match=r"data/\.transloadignore"):
        list(workspace_files(Workspace({str(tmp_path): ""})))
