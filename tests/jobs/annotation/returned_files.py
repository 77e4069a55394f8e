"""Files as annotators really give them back, one generator for each kind of fault.

Each gives (file name, bytes, statuses of its rows in order); ids are those of `tree.colours`.
"""

import json


def _csv(lines, *, encoding="utf-8", end="\r\n"):
    return "".join(line + end for line in lines).encode(encoding)


def clean():
    return "labels.csv", _csv(["id,label", "b,blue", "c,green"]), ["ok", "ok"]


def semicolons_with_bom():
    data = _csv(["ID ; Label".replace(" ; ", ";"), "b;blue", "c;green"], encoding="utf-8-sig")
    return "labels.csv", data, ["ok", "ok"]


def cp1252():
    lines = ["id,label,annotator", "b,blue,Jos\u00e9", "c,bl\u00e4u,Jos\u00e9"]
    return "labels.csv", _csv(lines, encoding="cp1252"), ["ok", "not_in_label_set"]


def utf16():
    return "labels.txt.csv", _csv(["id\tlabel", "b\tblue"], encoding="utf-16"), ["ok"]


def spellings():
    lines = ["id,label", "b, BLUE ", "c,Crimson", "f,gr\uff45en", "h,violet"]
    return "labels.csv", _csv(lines), ["ok", "ok", "ok", "not_in_label_set"]


def spaced_ids():
    # The corpus has " g " and "b".
    return "labels.csv", _csv(["id,label", "g,red", " b ,blue"]), ["ok", "ok"]


def strange_ids():
    lines = ["id,label", "zz,red", ",blue", "  ,blue"]
    return "labels.csv", _csv(lines), ["unknown_id", "missing_id", "missing_id"]


def blanks():
    lines = ["id,label", "b,", "c,  ", "f,blue", ""]
    return "labels.csv", _csv(lines), ["missing_label", "missing_label", "ok"]


def twice_the_same():
    return "labels.csv", _csv(["id,label", "b,red", "b,crimson"]), ["ok", "double_label"]


def twice_something_else():
    lines = ["id,label", "b,red", "b,blue", "c,green"]
    return "labels.csv", _csv(lines), ["double_label", "double_label", "ok"]


def against_the_corpus():
    # a is red in the corpus, h is "round", which is no label.
    lines = ["id,label", "a,blue", "d,red", "h,green"]
    return "labels.csv", _csv(lines), ["conflict", "known", "ok"]


def damaged_lines():
    lines = ["id,label", "b,blue", "c,blue,more", 'f,"open', "h,green"]
    return "labels.csv", _csv(lines, end="\n"), ["ok", "unreadable", "unreadable", "ok"]


def damaged_jsonl():
    lines = ['{"id": "b", "label": "blue"}', '{"id": "c", "la', '{"id": "f", "label": ["red"]}']
    return "labels.jsonl", _csv(lines, end="\n"), ["ok", "unreadable", "ok"]


def changed_text():
    lines = ["id,label,checksum", "b,blue,t0123456789abcdef", "c,green,"]
    return "labels.csv", _csv(lines), ["text_changed", "ok"]


def two_labels_where_one_is_wanted():
    lines = [json.dumps({"id": "b", "label": ["red", "blue"]})]
    return "labels.jsonl", _csv(lines, end="\n"), ["not_in_label_set"]


def _choice(*labels, control="label"):
    value = {"choices": list(labels)}
    return {"from_name": control, "to_name": "text", "type": "choices", "value": value}


def _annotation(*results, **more):
    return {"id": 1, "result": list(results), "was_cancelled": False, "completed_by": 7} | more


def _task(row_id, *annotations):
    return {"id": 99, "data": {"row_id": row_id, "text": "x"}, "annotations": list(annotations)}


def _json(tasks):
    return json.dumps(tasks, indent=1).encode()


def label_studio():
    tasks = [
        _task("b", _annotation(_choice("blue"))),
        _task("c", _annotation(_choice("red"), was_cancelled=True)),
        _task("f"),
        _task("h", _annotation()),
        _task(" g ", _annotation(_choice("Crimson"), completed_by={"id": 3, "email": "a@b.c"})),
    ]
    statuses = ["ok", "cancelled", "missing_label", "missing_label", "ok"]
    return "tasks.json", _json(tasks), statuses


def several_annotators():
    tasks = [
        _task("b", _annotation(_choice("blue")), _annotation(_choice("blue"), completed_by=8)),
        _task("c", _annotation(_choice("red")), _annotation(_choice("blue"), completed_by=8)),
        _task("f", _annotation(_choice("red"), was_cancelled=True), _annotation(_choice("green"))),
    ]
    statuses = ["ok", "double_label", "double_label", "double_label", "cancelled", "ok"]
    return "tasks.json", _json(tasks), statuses


def foreign_controls():
    comment = {"from_name": "note", "type": "textarea", "value": {"text": ["hm"]}}
    tasks = [
        _task("b", _annotation(comment, _choice("blue"), _choice("sure", control="confidence"))),
        _task("c", _annotation(_choice("red", control="x"), _choice("blue", control="y"))),
        _task("f", _annotation(_choice("red", control="colour"))),
    ]
    return "tasks.json", _json(tasks), ["ok", "not_in_label_set", "ok"]


def label_studio_min():
    rows = [
        {"id": 1, "row_id": "b", "text": "x", "label": "blue", "annotator": 4},
        {"id": 2, "row_id": "c", "text": "x", "label": {"choices": ["green"]}},
        {"id": 3, "row_id": "f", "text": "x"},
    ]
    return "min.json", _json(rows), ["ok", "ok", "missing_label"]


def label_studio_csv():
    """As Label Studio writes it: its task number in `id`, several labels as JSON in a cell."""
    lines = ["row_id,text,id,label,annotator", "b,x,1,blue,4"]
    lines += ['c,x,2,"{""choices"": [""red"", ""blue""]}",4', "f,x,3,,"]
    return "export.csv", _csv(lines), ["ok", "not_in_label_set", "missing_label"]


DIRTY = {
    made.__name__: made
    for made in (
        *(clean, semicolons_with_bom, cp1252, utf16, spellings, spaced_ids, strange_ids, blanks),
        *(twice_the_same, twice_something_else, against_the_corpus, damaged_lines, damaged_jsonl),
        *(changed_text, two_labels_where_one_is_wanted, label_studio, several_annotators),
        *(foreign_controls, label_studio_min, label_studio_csv),
    )
}
UNUSABLE = {
    "empty.csv": (b"", "holds no row"),
    "header_only.csv": (b"id,label\r\n", "holds no row"),
    "blank.jsonl": (b"\n\n", "holds no row"),
    "no_tasks.json": (b"[]", "holds no row"),
    "columns.csv": (b"name,colour\r\nb,blue\r\n", "no column of ids; wanted row_id or id, found"),
    "no_label.csv": (b"id,colour\r\nb,blue\r\n", "no column of labels; wanted label or output"),
    "cut.json": (b'[{"id": "b", "label"', "truncated"),
    "book.xlsx": (b"PK\x03\x04rest", "Excel"),
}


def spans(text):
    """Regions of an annotation of one text, and the entities that each stands for."""
    start = text.index("iron")
    units = len(text[:start].encode("utf-16-le")) // 2
    region = {"text": "iron", "labels": ["METAL"]}
    there = [{"text": "iron", "type": "METAL", "start": start, "end": start + 4}]
    return {
        "characters": ([region | {"start": start, "end": start + 4}], there),
        "units": ([region | {"start": units, "end": units + 4}], there),
        "none": ([], []),
        "two_types": (
            [region | {"start": start, "end": start + 4, "labels": ["METAL", "TOOL"]}],
            [*there, there[0] | {"type": "TOOL"}],
        ),
        "elsewhere": ([region | {"start": start + 2, "end": start + 6}], "should cover 'iron'"),
        "unlabelled": ([{"start": 0, "end": 3, "text": text[:3], "labels": []}], "has no label"),
        "no_offsets": ([{"labels": ["METAL"], "text": "iron"}], "wanted two integers"),
        "no_text": ([{"start": start, "end": start + 4, "labels": ["METAL"]}], "count as two"),
        "strange_type": (
            [region | {"start": start, "end": start + 4, "labels": ["COLOUR"]}],
            "'COLOUR' is none of task",
        ),
    }
