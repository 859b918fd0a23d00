"""Every format is read from what stands in the file, and what is wrong with a row is said with its line."""

import gzip
import json
from pathlib import Path

import pytest

from webhook.errors import WrongInput
from webhook.laboratory.replay.job_log import CPU, GPU, Job, JobLog
from webhook.laboratory.replay.reading import read

SWF = """; Version: 2.2
; UnixStartTime: 1000
; MaxProcs: 240
;
 1  8 30 60 4 60 -1 -1 100 -1 1 7 1 -1 2 1 -1 -1
 2  3 30 60 4 60 -1  8  -1 -1 1 9 1 -1 2 1 -1 -1
 3  9  0 -1 4 60 -1  8  50 -1 1 9 1 -1 2 1 -1 -1
"""
PHILLY = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 00:00:10,66.0,2,132.0,11cb48
2017-10-09 00:00:00,2951.0,1,2951.0,6214e9

"""
PHILLY_JSON = [
    {
        "status": "Pass",
        "vc": "ee9e8c",
        "jobid": "application_1",
        "attempts": [
            {
                "start_time": "2017-10-09 00:01:00",
                "end_time": "2017-10-09 00:02:00",
                "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0"]}],
            },
            {"start_time": "2017-10-09 00:03:00 PDT", "end_time": "2017-10-09 00:03:30 PDT", "detail": []},
        ],
        "submitted_time": "2017-10-09 00:00:00",
        "user": "ce2f04",
    },
    {"vc": "ee9e8c", "attempts": [], "submitted_time": "2017-10-09 00:00:00", "user": "ce2f04"},
    {"vc": "ee9e8c"},
]
HELIOS = """job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1,uX,vcJ,4,16,1,FAILED,1970-01-01 00:01:00,1970-01-01 00:02:00,1970-01-01 00:03:00,60,60
2,uX,vcJ,0,16,1,COMPLETED,1970-01-01 00:01:00,1970-01-01 00:02:00,1970-01-01 00:03:00,60,60
"""
SLICE = """# a slice
job_id,user,tenant,class,submit_time,num_chips,chip_type,num_nodes,duration_s,walltime_limit_s,final_status
1,uX,vcJ,finetune,5000000,128,,16,24.0,30.5,CANCELED
"""
MIDNIGHT = 1507507200.0


def log_of(tmp_path: Path, text: str) -> JobLog:
    file = tmp_path / "jobs.log"
    file.write_text(text)
    return read(file)


def test_swf(tmp_path: Path) -> None:
    log = log_of(tmp_path, SWF)
    # In order of submission; requested processors before allocated ones; -1 is unknown.
    assert log.jobs == [Job(6, "2", "9", 1003, 60, 8, None), Job(5, "2", "7", 1008, 60, 4, 100)]
    assert (log.resource, log.capacity) == (CPU, 240)
    warning = log.all_problems()[0]
    assert (warning.path, warning.value, warning.warning) == ("jobs.log:7", "1 job", True)
    assert warning.why == "left out: run time (field 4) unknown"


def test_philly_csv(tmp_path: Path) -> None:
    log = log_of(tmp_path, PHILLY)
    assert log.jobs == [
        Job(3, "6214e9", None, MIDNIGHT, 2951, 1),
        Job(2, "11cb48", None, MIDNIGHT + 10, 66, 2),
    ]
    assert (log.resource, log.all_problems()) == (GPU, ())


def test_philly_as_released(tmp_path: Path) -> None:
    log = log_of(tmp_path, json.dumps(PHILLY_JSON))
    assert log.jobs == [Job(1, "ee9e8c", "ce2f04", MIDNIGHT, 60 + 30, 3)]
    wrong, left_out = log.all_problems()
    assert (wrong.path, wrong.warning) == ("jobs.log:entry 3", False)
    assert (left_out.path, left_out.warning) == ("jobs.log:2", True)


def test_helios_as_released(tmp_path: Path) -> None:
    log = log_of(tmp_path, HELIOS)
    assert log.jobs == [Job(2, "vcJ", "uX", 60, 60, 4)]
    assert [problem.why for problem in log.all_problems()] == ["left out: asks no GPU"]


def test_a_helios_slice(tmp_path: Path) -> None:
    assert log_of(tmp_path, SLICE).jobs == [Job(3, "vcJ", "uX", 5, 24, 128, 31)]


def test_a_gzipped_log_is_read_whatever_its_name(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(gzip.compress(PHILLY.encode()))
    assert len(read(file).jobs) == 2


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        (PHILLY + "2017-10-09 00:00:10,long,2,132.0,11cb48\n", "jobs.log:5#duration", "long"),
        (PHILLY + "2017-10-09 00:00:10,-1,2,132.0,11cb48\n", "jobs.log:5#duration", "-1"),
        (PHILLY + "2017-10-09 00:00:10,nan,2,132.0,11cb48\n", "jobs.log:5#duration", "nan"),
        (PHILLY + "2017-10-09 00:00:10,1,2.5,132.0,11cb48\n", "jobs.log:5#num_gpus", "2.5"),
        (PHILLY + "yesterday,1,2,132.0,11cb48\n", "jobs.log:5#timestamp", "yesterday"),
        (PHILLY + "2017-10-09 00:00:10,1\n", "jobs.log:5", "2017-10-09 00:00:10,1"),
        (SWF + "4 9 0 x 4 60 -1 8 50 -1 1 9 1 -1 2 1 -1 -1\n", "jobs.log:8#field 4", "x"),
        (SWF + "4 -1 0 9 4 60 -1 8 50 -1 1 9 1 -1 2 1 -1 -1\n", "jobs.log:8#field 2", "-1"),
        (SWF + "4 9 0\n", "jobs.log:8", "4 9 0"),
    ],
)
def test_a_bad_row_is_told_with_line_value_and_fix_and_the_others_count(
    tmp_path: Path, text: str, path: str, value: str
) -> None:
    log = log_of(tmp_path, text)
    assert len(log.jobs) == 2
    assert [(problem.path, problem.value) for problem in log.problems] == [(path, value)]
    assert log.problems[0].fix.startswith("give") or log.problems[0].fix.startswith("write")


@pytest.mark.parametrize("text", ["", "name,age\nx,3\n", "hello\n", '{"jobs": []}'])
def test_another_format_is_refused_with_those_that_there_are(tmp_path: Path, text: str) -> None:
    with pytest.raises(WrongInput) as caught:
        log_of(tmp_path, text)
    for known in ("SWF", "Philly JSON", "Philly CSV", "Helios cluster_log.csv", "timestamp, duration"):
        assert known in str(caught.value)


@pytest.mark.parametrize("data", [b"\x1f\x8bbroken", b"\xff\xfe\x00"])
def test_a_file_that_is_no_text_is_refused(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "log"
    file.write_bytes(data)
    with pytest.raises(WrongInput, match="readable text file"):
        read(file)


def test_a_log_without_jobs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match="nothing to replay"):
        log_of(tmp_path, PHILLY.splitlines()[0])
    with pytest.raises(WrongInput, match="no readable JSON"):
        log_of(tmp_path, "[{")
