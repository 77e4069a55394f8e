"""Small files as users really have them, generated, with the counts of what is wrong in each.

Every generator gives (bytes, facts); the facts have the form of the data folder's expected.json,
so that one assertion serves both.
"""

import csv
import gzip
import io
import json
from itertools import count

import pyarrow as pa
import pyarrow.parquet as pq

PLACES = ("harbour", "orchard", "library", "bakery", "station", "museum", "mill", "school")
VERBS = ("opened", "closed", "moved", "flooded", "reopened", "burned", "grew")


def sentence(number):
    """A made-up sentence; another for every number."""
    place, verb = PLACES[number % len(PLACES)], VERBS[number % len(VERBS)]
    return f"The {place} on road {number} {verb} after the storm, as the mayor had said."


def dump(record):
    return json.dumps(record, ensure_ascii=False)


def jsonl(records):
    return "".join(dump(record) + "\n" for record in records).encode()


def quoted_newlines():
    n, n_broken = 60, 12
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(["ID", "Sentence ", " Label", "Notes"])
    for i in range(n):
        text = sentence(i)
        if i < n_broken:
            text = f'{text}\r\nThen "quietly",\n\nit rained.' if i % 2 else f"{text}\nIt rained."
        writer.writerow([i, text, i % 3, "seen, twice" if i % 9 == 0 else ""])
    raw = b"\xef\xbb\xbf" + out.getvalue().encode()
    return raw, {
        "records": n,
        "physical_lines": raw.count(b"\n"),
        "with_embedded_newline": n_broken,
    }


def mixed_labels():
    numbers = count()

    def record(**fields):
        i = next(numbers)
        return {"id": f"s{i}", "text": sentence(i), "label": "yes", "meta": {"road": i}} | fields

    rows = [record() for _ in range(10)]
    rows += [record(label=value) for value in (None, None, "", "  ", 1, 0, 1.0, 2.5, True)]
    rows += [record(label=["yes", "no"]), record(label="YES "), record(label="yes"), record()]
    del rows[-1]["label"]
    rows += [record(text=None), record(text="  \t "), record()]
    del rows[-1]["text"]
    rows += [record(score=float("nan")) for _ in range(3)]
    lines = [dump(row) for row in rows]
    lines[4:4] = ["", "   "]
    lines[9:9] = ["# exported on a Monday"]
    lines[15:15] = [lines[0][:40]]
    lines.append(lines[1][:30])
    return "\n".join(lines).encode(), {
        "parseable_records": len(rows),
        "bad_lines": 3,
        "bad_line_numbers": [10, 16, len(lines)],
        "defects": {
            "label missing": 1,
            "label null": 2,
            "label empty string": 2,
            "label int": 2,
            "label float": 2,
            "label bool": 1,
            "label list": 1,
            "text missing": 1,
            "text null": 1,
            "text blank": 1,
            "NaN literal": 3,
            "blank lines": 2,
        },
    }


def duplicate_ids():
    records = [{"id": str(i), "text": sentence(i), "intent": f"i{i % 4}"} for i in range(30)]
    records += [dict(records[i]) for i in range(4)]
    records += [records[i] | {"text": sentence(100 + i)} for i in range(4, 7)]
    records += [records[i] | {"intent": "other"} for i in range(7, 9)]
    records += [records[i] | {"id": i} for i in range(9, 11)]
    records += [{"text": sentence(200 + i), "intent": "i0"} for i in range(3)]
    records += [{"id": None, "text": sentence(300 + i), "intent": "i0"} for i in range(2)]
    records += [records[i] | {"id": f" {i} ", "text": sentence(400 + i)} for i in range(11, 13)]
    return jsonl(records), {
        "records": len(records),
        "distinct_texts": len({record["text"] for record in records}),
        "defects": {
            "exact duplicate record": 4,
            "same id, other text": 3,
            "same id and text, other label": 2,
            'id 90 and "90"': 2,
            "id missing": 3,
            "id null": 2,
            "id with spaces": 2,
        },
    }


def dictionary_strings():
    n, n_null = 90, 6
    texts = pa.array([sentence(i) for i in range(n)]).dictionary_encode()
    codes = [None if i < n_null else (0, 1, 3)[i % 3] for i in range(n)]
    names = pa.array(["no", "strong", "unused label", "weak"])
    labels = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), names)
    numbers = pa.array([i % 3 for i in range(n)], pa.uint8())
    out = io.BytesIO()
    table = pa.table({"Text": texts, "LABEL": labels, "label": numbers})
    pq.write_table(table, out, compression="gzip", row_group_size=40)
    return out.getvalue(), {"records": n, "null_LABEL": n_null}


def labelled(n):
    return jsonl([{"text": sentence(i), "label": f"c{i % 5}"} for i in range(n)])


def gzipped():
    return gzip.compress(labelled(70), mtime=0), {"records": 70}


def truncated_gzip():
    raw = gzip.compress(labelled(5000), mtime=0)
    return raw[: len(raw) * 9 // 10], {"records": "fewer"}


def not_utf8():
    lines = labelled(20).split(b"\n")[:-1]
    odd = [b"\x92", b"\x96", b"\xe9", b"\xc3"]
    for i in range(0, 12, 2):
        lines[i] = lines[i].replace(b"storm", b"sto" + odd[i % 4] + b"rm")
    return b"\n".join(lines) + b"\n", {"records": 20, "lines_not_utf8": 6}


def mojibake():
    texts = [
        "a control \u0085 and \u0092 inside",
        "the cafÃ© was â€œopenâ€\u009d",
        "&lt;b&gt; &quot;tea&quot; #39;s",
        "nothing odd",
    ]
    records = [{"id": i, "text": text, "label": "x"} for i, text in enumerate(texts)]
    return jsonl(records), {"records": len(texts)}


def very_long():
    lengths = [3, 5000, 60_000, 12_000]
    texts = ["No.", *((sentence(i) * 2000)[:n] for i, n in enumerate(lengths[1:3])), "x" * 12_000]
    records = [{"id": str(i), "text": text, "label": None} for i, text in enumerate(texts)]
    return jsonl(records), {"records": len(texts), "chars": lengths}


def odd_unicode():
    plain = [sentence(i) for i in range(4)]
    kinds = [("plain", text) for text in plain]
    kinds += [("zero-width copy", text.replace(" ", "\u200b ")) for text in plain]
    kinds += [("nbsp copy", text.replace(" ", "\u00a0")) for text in plain]
    wide = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}
    kinds += [("full-width copy", text.translate(wide)) for text in plain]
    kinds += [("bidi override", f"\u202e{text}\u202c") for text in plain]
    kinds += [("clusters", "👩‍👩‍👧 🏳️‍🌈 مرحبا cafe\u0301 nul \x00 end")]
    kinds += [("breaks", "one\u2028two\u2029three\u0085four")]
    lines = [
        dump({"id": f"u{i}", "text": text, "label": "x", "kind": kind})
        for i, (kind, text) in enumerate(kinds)
    ]
    lines.append('{"id": "lone", "text": "half \\ud83d pair", "label": "x", "kind": "lone"}')
    return ("\n".join(lines) + "\n").encode(), {"records": len(lines)}


def zero_rows_parquet():
    out = io.BytesIO()
    pq.write_table(pa.table({"text": pa.array([], "string"), "label": pa.array([], "string")}), out)
    return out.getvalue(), {"records": 0}


def one_row():
    return labelled(1).rstrip(b"\n"), {"records": 1}


def all_identical():
    records = [{"id": i, "text": sentence(0), "label": "no"} for i in range(40)]
    return jsonl(records), {"records": 40, "distinct_texts": 1}


def near_identical():
    words = sentence(0).split()
    texts = [" ".join([*words[:i], f"[{words[i]}]", *words[i + 1 :]]) for i in range(len(words))]
    records = [{"id": f"p{i}", "text": text, "label": "x"} for i, text in enumerate(texts)]
    return jsonl(records), {"records": len(texts)}


def json_array():
    records = [{"text": sentence(i), "label": f"c{i % 3}"} for i in range(50)]
    return json.dumps(records, indent=1).encode(), {"records": 50}


def wrapped_array():
    records = [
        {"instruction": "Good news?", "input": sentence(i), "output": "This is no news"}
        for i in range(50)
    ]
    return json.dumps({"version": "1.0", "data": records}, indent=1).encode(), {"records": 50}


def label_variants():
    spellings = ["no news", "No News", "no_news", " no news", "NO NEWS", "none", "0", "0.0", "god"]
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["text", "label", "gold"])
    for i in range(45):
        writer.writerow([sentence(i), spellings[i % len(spellings)], "no news"])
    return out.getvalue().encode(), {"records": 45, "distinct_labels": len(spellings)}


def leak_train():
    records = [{"id": f"t{i}", "text": sentence(i), "label": "x"} for i in range(40)]
    return jsonl(records), {"records": 40}


def leak_test():
    texts = [sentence(i) for i in range(3)]
    texts += [sentence(i).upper() for i in range(3, 6)]
    texts += [sentence(i).replace(" ", "  ") + "\t" for i in range(6, 9)]
    texts += [sentence(i).rstrip(".") for i in range(9, 12)]
    texts += [sentence(i) for i in range(500, 520)]
    records = [{"id": f"q{i}", "text": text, "label": "x"} for i, text in enumerate(texts)]
    leaked = {"exact": 3, "upper_case": 3, "extra_whitespace": 3, "final_stop_removed": 3}
    return jsonl(records), {"records": len(texts), "leaked": leaked}


GENERATORS = {
    "01_bom_crlf_quoted_newlines.csv": quoted_newlines,
    "03_missing_null_int_labels.jsonl": mixed_labels,
    "04_duplicate_ids.jsonl": duplicate_ids,
    "06_dictionary_strings.parquet": dictionary_strings,
    "07_plain.jsonl.gz": gzipped,
    "07_gzip_without_gz_suffix.jsonl": gzipped,
    "07_truncated.jsonl.gz": truncated_gzip,
    "08_non_utf8_bytes.jsonl": not_utf8,
    "09_mojibake_entities.jsonl": mojibake,
    "10_very_long_documents.jsonl": very_long,
    "11_emoji_rtl_zero_width.jsonl": odd_unicode,
    "13_empty.jsonl": lambda: (b"", {"records": 0}),
    "13_header_only.csv": lambda: (b"text,label\n", {"records": 0}),
    "13_blank_lines.jsonl": lambda: (b"\n\n  \n\n", {"records": 0}),
    "13_zero_rows.parquet": zero_rows_parquet,
    "13_one_row.jsonl": one_row,
    "14_all_identical.jsonl": all_identical,
    "14_near_identical_ddi.jsonl": near_identical,
    "16_array.json": json_array,
    "16_wrapped_alpaca.json": wrapped_array,
    "17_label_variants.csv": label_variants,
    "19_leak_train.jsonl": leak_train,
    "19_leak_test.jsonl": leak_test,
}
