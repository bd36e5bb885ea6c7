"""What an exception often means in a student's file, in a sentence that says what to do."""

from __future__ import annotations

from grader.verdicts import one_line

# Parts of what an exception says (its class and its text, in lower case), and the sentence.
_ADVICE: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("dataloader", "multiprocessing", "num_workers"),
        "worker processes are not allowed here; use num_workers=0",
    ),
    (("blockingioerror", "subprocess", "fork"), "starting processes is not allowed here"),
    (
        (
            "not compiled with cuda",
            "no nvidia driver",
            "cuda error",
            "found no nvidia",
            "mps backend",
            "'mps'",
        ),
        "there is no GPU here: take the device from the input, for example torch.zeros_like(x)",
    ),
    (
        ("c:\\", "/users/", "/home/", "d:\\"),
        "that is a path of your own computer; a submission needs no files",
    ),
    (
        ("gaierror", "urlopen", "connectionerror", "socket"),
        "there is no network here: nothing can be downloaded",
    ),
    (("eoferror", "eof when reading"), "nobody is there to type: take input() out"),
    (
        ("out of memory", "can't allocate memory", "memoryerror"),
        "it needs more memory than a submission may use",
    ),
    (("recursionerror",), "a function calls itself without an end"),
)

SHARED = "only one file is graded, so put what it needs into it"
LACKS = f"which is not part of the hand-in (nor installed here): {SHARED}"
RELATIVE = f"it imports from a folder of its own: {SHARED}"
RETURN = "is a `return` missing in the exercise?"

# All that never says more than that it fits.
SENTENCES = (*(sentence for _, sentence in _ADVICE), RELATIVE, RETURN)


def advice(error: BaseException) -> list[str]:
    """The sentences that fit an exception; none if there is nothing to add."""
    said = f"{type(error).__name__}: {one_line(error, 1000)}".lower()
    if isinstance(error, PermissionError) and not error.filename:
        return ["  worker processes, other programs and the network are not allowed here (num_workers=0)"]
    if isinstance(error, PermissionError) and "own source" in said:
        return ["  what the library has finished is yours to write"]
    if isinstance(error, PermissionError):
        return ["  files outside the submission's own folder can't be opened here; it needs none"]
    if isinstance(error, ModuleNotFoundError) and error.name:
        return [f"  it imports `{one_line(error.name)}`, {LACKS}"]
    if isinstance(error, ImportError) and "relative import" in said:
        return [f"  {RELATIVE}"]
    found = [sentence for words, sentence in _ADVICE if any(word in said for word in words)]
    if isinstance(error, TypeError) and "nonetype" in said:
        found.append(RETURN)
    return [f"  {sentence}" for sentence in found[:1]]
