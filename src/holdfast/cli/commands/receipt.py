"""`holdfast receipt`"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.cli.failure import OK
from holdfast.cli.setup import Setup, command
from holdfast.cli.stores import run_argument, with_store
from holdfast.cli.text import clean, to_json
from holdfast.history.doubts import ruling_text
from holdfast.history.lookup import find
from holdfast.history.pages import receipts_of_run
from holdfast.history.receipts import Receipt, gap_texts, saved_text, unrecorded_text
from holdfast.history.words import count, duration
from holdfast.store.contract import Store


@command("receipt")
@run_argument()
def receipt_command(setup: Setup, run: str) -> int:
    """Show what each resume saved, and what had changed meanwhile.

    What came from the journal, what was executed, and how what was in doubt was settled. How long nobody worked at the
    run is counted from when its worker was last heard of. What guards found is listed with what it was and what it is.
    Piped, lines of: number, time, what, text.

    \b
    holdfast receipt issue-7
    """

    async def read(store: Store) -> tuple[str, list[Receipt]]:
        run_id = (await find(store, run)).id
        return run_id, await receipts_of_run(store, run_id)

    run_id, receipts = with_store(setup, read)
    if setup.is_json:
        print(to_json({"run": run_id, "items": [receipt.as_dict() for receipt in receipts]}))
        return OK
    if not receipts and setup.is_table:
        print(clean(f"Run {run_id} was never taken up again: there is nothing to tell.", one_line=True))
    for number, receipt in enumerate(receipts, start=1):
        if setup.is_table:
            print(clean(_title(number, receipt), one_line=True))
            for what, text in _lines(receipt):
                print(f"  {what:<10} {clean(text, one_line=True)}")
        else:
            at = receipt.at.isoformat(timespec="milliseconds")
            for what, text in _lines(receipt):
                print("\t".join((str(number), at, what, clean(text, one_line=True))))
    return OK


def _title(number: int, receipt: Receipt) -> str:
    how = "woke up" if receipt.woken else "was taken up again"
    return f"{number}. {receipt.at.astimezone():%Y-%m-%d %H:%M:%S}: it {how} by {receipt.worker}"


def _lines(receipt: Receipt) -> Iterator[tuple[str, str]]:
    lost = f"{receipt.lost} was lost ({receipt.proof})" if receipt.lost else "it had been given back"
    silent = unrecorded_text(receipt.unrecorded)
    yield "down", ", ".join(part for part in (duration(receipt.down_s), lost, silent) if part)
    yield "calls", f"{count(receipt.replayed, 'call')} from the journal, {receipt.executed} executed"
    for doubt in receipt.in_doubt:
        yield "in doubt", f"{doubt['key']}: {ruling_text(doubt)}"
    if saved := saved_text(receipt):
        yield "saved", saved
    for each in receipt.versions:
        yield "version", f"{each['what']}: {each['was']} → {each['now']}"
    for text in gap_texts(receipt):
        yield "changed", text
