"""The table a report begins with, and what it says in words."""

from __future__ import annotations

from fedrec.report.markup import Cell, table, text
from fedrec.report.rows import Row, Section

LEAKS = '<span class="leak">leaks</span>'
NONE = "–"


def summary_table(section: Section) -> str:
    """Every row: values with their spread, what was published, and what it cost."""
    columns = section.study.columns
    published = {c for c in columns if any((v := row.value(c)) and v.published is not None for row in section.rows)}
    spread = any((v := row.value(c)) and v.spread is not None for row in section.rows for c in columns)
    private = any(row.record.privacy for row in section.rows)
    top = [Cell(""), *(Cell(c, span=1 + spread + 2 * (c in published)) for c in columns), Cell("", span=5 + private)]
    names: list[Cell] = [Cell("row", "words")]
    for column in columns:
        names += [Cell("ours" if published else column)] + [Cell("±", "spread")] * spread
        names += [Cell("published"), Cell("difference")] if column in published else []
    names += [Cell(name) for name in ("seeds", "round", "KB up", "KB down", *(["epsilon"] * private), "s/round")]
    bodies = []
    for _, rows in section.panels:
        best = {
            c: max((v.mean for r in rows if (v := r.value(c)) and v.mean is not None), default=None) for c in columns
        }
        lines = []
        for row in rows:
            cells = [Cell(row.name)]
            for column in columns:
                top_value = best[column] if "@" in column and len(rows) > 1 else None
                cells += _values(row, column, top_value, spread=spread, published=column in published)
            lines.append([*cells, *_costs(row, private=private)])
        first = rows[0].record
        bodies.append((f"{text(first.data)}, {text(first.protocol)}{LEAKS if first.leaks else ''}", lines))
    heads = [top, names] if published else [names]
    return table(_caption(section), heads, bodies)


def findings(section: Section) -> str:
    """Who is best by the first metric, and how sure that is."""
    if not section.metrics:
        return ""
    metric, said = section.metrics[0], []
    for title, rows in section.panels:
        known = [(v.mean, row) for row in rows if (v := row.value(metric)) and v.mean is not None]
        known.sort(key=lambda pair: -pair[0])
        if len(known) < 2:
            continue
        (first, winner), (second, runner) = known[:2]
        spreads = [v.spread for row in (winner, runner) if (v := row.value(metric)) and v.spread is not None]
        sure = "one seed, so the spread is unknown"
        if len(spreads) == 2:
            sure = f"{'closer' if first - second < max(spreads) else 'further apart'} than the spread over seeds"
        level = [f"<strong>{text(row.name)}</strong>" for value, row in known if f"{value:.4f}" == f"{first:.4f}"]
        if len(level) > 1:
            best = f"{', '.join(level[:-1])} and {level[-1]} are best by {text(metric)} with {first:.4f} each"
        else:
            best = (
                f"{level[0]} is best by {text(metric)} with {first:.4f}, before {text(runner.name)} with {second:.4f}"
            )
        said.append(f"<li>{text(title)}: {best} ({sure}).</li>")
    return f'<ul class="findings">{"".join(said)}</ul>' if said else ""


def _values(row: Row, column: str, best: float | None, *, spread: bool, published: bool) -> list[Cell]:
    value = row.value(column)
    mean = None if value is None else value.mean
    kind = "value first best" if mean is not None and mean == best else "value first"
    cells = [Cell(_number(mean, column), kind)]
    if spread:
        cells.append(
            Cell("" if value is None or value.spread is None else f"± {_number(value.spread, column)}", "spread")
        )
    if published:
        known = value is not None and value.published is not None
        cells.append(Cell(_number(value.published, column) if known and value else NONE, "soft"))
        difference = value.difference if value is not None else None
        cells.append(Cell(NONE if difference is None else f"{difference:+z.4f}".replace("-", "−"), "soft"))
    return cells


def _costs(row: Row, *, private: bool) -> list[Cell]:
    r = row.record
    done = sum(cell.state == "finished" for cell in r.cells)
    seeds = str(done) if done == len(r.cells) else f"{done} of {len(r.cells)}"
    chosen = "/".join(map(str, sorted(set(r.selected_rounds))))
    chosen = chosen if len(set(r.selected_rounds)) < 4 else f"{min(r.selected_rounds)} to {max(r.selected_rounds)}"
    cells = [Cell(seeds, "first"), Cell(f"{chosen or NONE} of {NONE if r.rounds is None else r.rounds}")]
    cells += [Cell(_kilo(r.bytes_up)), Cell(_kilo(r.bytes_down))]
    if private:
        cells.append(Cell(f"{r.epsilon:.4g}" if r.epsilon is not None else "no guarantee" if r.privacy else NONE))
    return [*cells, Cell(NONE if r.seconds_per_round is None else f"{r.seconds_per_round:.2f}")]


def _number(value: float | None, column: str) -> str:
    if value is None:
        return NONE
    return f"{value:.4f}" if "@" in column or abs(value) < 1 else f"{value:,.2f}"


def _kilo(value: float | None) -> str:
    return NONE if value is None else f"{value / 1e3:,.1f}"


def _caption(section: Section) -> str:
    drawn = {
        run.result.protocol_options.candidates for row in section.rows for run in row.runs if run.result.test.sampled
    }
    known = f"against {'/'.join(map(str, sorted(drawn)))} sampled items" if drawn else "against sampled items"
    parts = ["Test values at the selected round"]
    if any("@" in column and not column.startswith("full") for column in section.study.columns) and (
        drawn or not section.rows
    ):
        parts.append(known)
    if any(column.startswith("full") for column in section.study.columns):
        parts.append("full: against all items")
    return "; ".join([*parts, "KB are per client and round", "bold: best of its group"]) + "."
