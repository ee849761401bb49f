"""Self-contained HTML pages with tables and SVG charts for the benchmarks."""

import html

COLOURS = {"InnoDB": "#8a8f98", "PERIGEE": "#1f6fb2", "ROCKSDB": "#d98324", "TIDESDB": "#3c9a5f"}
STYLE = """body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:72em;padding:0 1em;color:#222;background:#fff}
table{border-collapse:collapse;margin:1em 0}th,td{padding:.25em .7em;border-bottom:1px solid #ddd;text-align:right}
th:first-child,td:first-child{text-align:left}thead th{border-bottom:2px solid #888}.note{color:#666}
svg{max-width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:#444}
h2{margin-top:2em}"""


def colour(name):
    return COLOURS.get(name, "#7a4fb0")


def escape(text):
    return html.escape(str(text))


def table(header, rows):
    head = "".join("<th>%s</th>" % escape(cell) for cell in header)
    body = "".join("<tr>%s</tr>" % "".join("<td>%s</td>" % escape(cell) for cell in row) for row in rows)
    return "<table><thead><tr>%s</tr></thead><tbody>%s</tbody></table>" % (head, body)


def markdown(header, rows):
    return "\n".join(["| " + " | ".join(header) + " |", "|" + "---|" * len(header)] + ["| " + " | ".join(row) + " |" for row in rows])


def legend(names, x, y):
    parts = []
    for name in names:
        parts.append('<rect x="%d" y="%d" width="11" height="11" fill="%s"/><text x="%d" y="%d">%s</text>'
                     % (x, y - 10, colour(name), x + 16, y, escape(name)))
        x += 30 + 8 * len(name)
    return "".join(parts)


def bars(groups, names, base=None):
    """Grouped bars: `groups` is a list of (label, {name: value}); a line marks 1.0 for ratios to `base`."""
    width, height, left, top, bottom = 1000, 300, 46, 30, 40
    highest = max([value for _, values in groups for value in values.values() if value is not None] + [1.0]) * 1.08
    plot = height - top - bottom

    def y(value):
        return top + plot * (1 - value / highest)

    parts = ['<svg viewBox="0 0 %d %d" role="img">' % (width, height), legend(names, left, 16)]
    step = next(s for s in (0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 1e9) if highest / s <= 7)
    tick = 0.0
    while tick <= highest:
        parts.append('<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#e4e4e4"/><text x="%d" y="%.1f" text-anchor="end">%g</text>'
                     % (left, width, y(tick), y(tick), left - 6, y(tick) + 4, tick))
        tick += step
    group_width = (width - left) / max(1, len(groups))
    bar = min(34.0, group_width * 0.8 / max(1, len(names)))
    for index, (label, values) in enumerate(groups):
        start = left + group_width * index + (group_width - bar * len(names)) / 2
        for position, name in enumerate(names):
            value = values.get(name)
            if value is None:
                continue
            parts.append('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"><title>%s, %s: %.2f</title></rect>'
                         % (start + bar * position, y(value), bar - 2, top + plot - y(value), colour(name), escape(label), escape(name), value))
        parts.append('<text x="%.1f" y="%d" text-anchor="middle">%s</text>' % (left + group_width * (index + 0.5), height - bottom + 18, escape(label)))
    if base:
        parts.append('<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#444" stroke-dasharray="4 3"/>' % (left, width, y(1), y(1)))
    parts.append("</svg>")
    return "".join(parts)


def lines(series, unit, x_label="seconds"):
    """Lines over time: `series` is a list of (name, [(x, y)])."""
    width, height, left, top, bottom = 1000, 280, 70, 30, 40
    points = [point for _, values in series for point in values]
    if not points:
        return ""
    last = max(x for x, _ in points) or 1
    highest = max(y for _, y in points) * 1.08 or 1
    plot_width, plot = width - left - 10, height - top - bottom

    def place(x, y):
        return left + plot_width * x / last, top + plot * (1 - y / highest)

    parts = ['<svg viewBox="0 0 %d %d" role="img">' % (width, height), legend([name for name, _ in series], left, 16)]
    for fifth in range(6):
        x, y = place(last * fifth / 5, highest * fifth / 5)
        parts.append('<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#e4e4e4"/><text x="%d" y="%.1f" text-anchor="end">%.3g</text>'
                     % (left, width - 10, y, y, left - 6, y + 4, highest * fifth / 5))
        parts.append('<text x="%.1f" y="%d" text-anchor="middle">%.0f</text>' % (x, height - bottom + 18, last * fifth / 5))
    parts.append('<text x="%d" y="%d">%s</text><text x="%d" y="%d" text-anchor="end">%s</text>'
                 % (left + 420, 16, escape(unit), width - 10, height - 6, escape(x_label)))
    for name, values in series:
        path = " ".join("%s%.1f %.1f" % (("M" if index == 0 else "L",) + place(x, y)) for index, (x, y) in enumerate(values))
        parts.append('<path d="%s" fill="none" stroke="%s" stroke-width="1.6"/>' % (path, colour(name)))
    parts.append("</svg>")
    return "".join(parts)


def page(title, machine, notes, body):
    head = "MariaDB %(server)s, %(processors)d processors, %(memory_mb)d MiB, kernel %(kernel)s, %(date)s, load before the run %(load_average).2f" % machine
    return ('<!doctype html><html lang="en"><meta charset="utf-8"><title>%s</title><style>%s</style><h1>%s</h1><p class="note">%s</p>%s%s</html>\n'
            % (escape(title), STYLE, escape(title), escape(head), "".join("<p>%s</p>" % escape(note) for note in notes), "".join(body)))
