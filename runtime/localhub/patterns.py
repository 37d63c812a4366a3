"""The part of git's pattern language that ``.gitattributes`` and ``.gitignore`` need."""

import re
from dataclasses import dataclass
from functools import lru_cache

_LFS_NAMES = (
    "*.7z *.arrow *.avro *.bin *.bz2 *.ckpt *.ftz *.gz *.h5 *.joblib *.lfs.* *.lz4 *.mds *.mlmodel *.model *.msgpack "
    "*.npy *.npz *.onnx *.ot *.parquet *.pb *.pickle *.pkl *.pt *.pth *.rar *.safetensors saved_model/**/* *.tar.* "
    "*.tar *.tflite *.tgz *.wasm *.xz *.zip *.zst *tfevents*"
)
_LFS_MEDIA = {
    "# Audio files - uncompressed": "*.pcm *.sam *.raw",
    "# Audio files - compressed": "*.aac *.flac *.mp3 *.ogg *.wav",
    "# Image files - uncompressed": "*.bmp *.gif *.png *.tiff",
    "# Image files - compressed": "*.jpg *.jpeg *.webp",
    "# Video files - compressed": "*.mp4 *.webm",
}


def default_gitattributes(repo_type: str) -> bytes:
    """The ``.gitattributes`` a repository is born with; datasets add audio, image and video names."""
    lines = [f"{name} filter=lfs diff=lfs merge=lfs -text" for name in _LFS_NAMES.split()]
    if repo_type == "dataset":
        for comment, names in _LFS_MEDIA.items():
            lines.append(comment)
            lines.extend(f"{name} filter=lfs diff=lfs merge=lfs -text" for name in names.split())
    return ("\n".join(lines) + "\n").encode()


@lru_cache(maxsize=4096)
def glob_regex(pattern: str) -> re.Pattern[str]:
    """Regular expression of one git glob: ``*`` and ``?`` stop at slashes, ``**`` does not."""
    anchored = "/" in pattern.rstrip("/")
    text = pattern.strip("/")
    out = "" if anchored else "(?:.*/)?"
    position = 0
    while position < len(text):
        char = text[position]
        if text.startswith("**/", position) and (position == 0 or text[position - 1] == "/"):
            out += "(?:.*/)?"
            position += 3
            continue
        if text[position:] == "**" and (position == 0 or text[position - 1] == "/"):
            out += ".+"
            break
        if char == "*":
            out += "[^/]*"
            while position + 1 < len(text) and text[position + 1] == "*":
                position += 1
        elif char == "?":
            out += "[^/]"
        elif char == "[" and (end := text.find("]", position + 2)) > 0:
            body = text[position + 1 : end].replace("\\", "\\\\")
            out += f"[{'^' + body[1:] if body[0] in '!^' else body}]"
            position = end
        elif char == "\\" and position + 1 < len(text):
            position += 1
            out += re.escape(text[position])
        else:
            out += re.escape(char)
        position += 1
    return re.compile(out + r"\Z", re.DOTALL)


def lfs_by_attributes(attributes: str, path: str) -> bool:
    """Whether the last matching line of a ``.gitattributes`` text sends ``path`` to LFS."""
    answer = False
    for line in attributes.splitlines():
        fields = line.split()
        if not fields or fields[0].startswith("#") or not glob_regex(fields[0]).match(path):
            continue
        for attribute in fields[1:]:
            if attribute == "filter=lfs":
                answer = True
            elif attribute in {"-filter", "!filter"} or attribute.startswith("filter="):
                answer = False
    return answer


@dataclass(frozen=True, slots=True)
class _IgnoreRule:
    regex: re.Pattern[str]
    negated: bool
    folders_only: bool


def _ignore_rules(text: str) -> list[_IgnoreRule]:
    rules = []
    for raw in text.splitlines():
        line = raw.rstrip()
        if not line or line.startswith("#"):
            continue
        negated = line.startswith("!")
        pattern = line[1:] if negated else line.removeprefix("\\")
        rules.append(_IgnoreRule(glob_regex(pattern.rstrip("/") or pattern), negated, pattern.endswith("/")))
    return rules


def ignored(gitignore: str, path: str) -> bool:
    """Whether a ``.gitignore`` text (at the root) leaves ``path``, a file, out.

    As in git, a file below an ignored folder cannot be taken back by a negated line.
    """
    rules = _ignore_rules(gitignore)
    segments = path.split("/")
    for depth in range(1, len(segments) + 1):
        part = "/".join(segments[:depth])
        is_folder = depth < len(segments)
        verdict = False
        for rule in rules:
            if (is_folder or not rule.folders_only) and rule.regex.match(part):
                verdict = not rule.negated
        if verdict:
            return True
    return False
