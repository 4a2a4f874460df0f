"""Every check has its section on the page that findings lead to, an experiment, and its limits in the table."""

import re

from tests.support import ROOT, script
from torchcaps.lab.diagnosis import CHECKS

PAGE = (ROOT / "docs" / "doctor.md").read_text()
measured = script("scripts/measure_doctor")


def test_every_check_has_a_section_with_symptom_cause_remedy_and_experiment():
    sections = dict(re.findall(r"^### (\S+)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
    assert set(sections) == {check.name for check in CHECKS} == set(measured.FAULTS)
    for check in CHECKS:
        for part in ("Symptom", "Cause", "Remedy", "Experiment"):
            assert f"**{part}.**" in sections[check.name], f"{check.name} lacks {part}"


def test_the_table_has_the_limits_of_the_code():
    table = PAGE.partition(measured.BEGIN)[2].partition(measured.END)[0].splitlines()[2:]
    written = {row.split("|")[1].split("]")[0].strip(" ["): row.split("|")[3].strip() for row in table}
    wanted = [line.split("|") for line in measured.write_rows([(check, [], None) for check in CHECKS])[2:]]
    assert written == {row[1].split("]")[0].strip(" ["): row[3].strip() for row in wanted}
