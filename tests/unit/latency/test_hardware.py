import pytest

from sim.errors import ConfigError
from sim.hardware import known_hardware, load_hardware

MINIMAL = """\
name: toy
description: a toy
flops_per_s: {bf16: 1e12}
bytes_per_s: 1e11
memory_bytes: 8GiB
compute_efficiency: 0.5
memory_efficiency: 1
sources: [a data sheet]
assumptions: [half of the peak]
"""


def test_known_hardware_lists_the_files():
    expected = ["a100-80gb", "b200-180gb", "h100-80gb", "h200-141gb", "l40s-48gb"]
    assert known_hardware() == expected


@pytest.mark.parametrize(
    ("name", "bf16_tflops", "gbytes_per_s", "gib"),
    [  # NVIDIA data sheets, dense; memory as nvidia-smi reports
        ("a100-80gb", 312, 2039, 80.0),
        ("h100-80gb", 989.4, 3350, 79.65),
        ("h200-141gb", 989.4, 4800, 140.40),
        ("b200-180gb", 2250, 7672, 179.06),
        ("l40s-48gb", 362.05, 864, 44.99),
    ],
)
def test_peaks_are_those_of_the_data_sheets(name, bf16_tflops, gbytes_per_s, gib):
    hardware = load_hardware(name)
    assert hardware.name == name
    assert hardware.flops_per_s["bf16"] == pytest.approx(bf16_tflops * 1e12)
    assert hardware.bytes_per_s == pytest.approx(gbytes_per_s * 1e9)
    assert hardware.memory_bytes / 2**30 == pytest.approx(gib, abs=0.005)


def test_a_path_is_read(tmp_path):
    path = tmp_path / "toy.yaml"
    path.write_text(MINIMAL)
    hardware = load_hardware(str(path))
    assert (hardware.name, hardware.memory_bytes, hardware.flops_per_s) == (
        "toy",
        8 * 2**30,
        {"bf16": 1e12},
    )


def test_an_unknown_name_lists_the_nearest_first():
    with pytest.raises(ConfigError) as caught:
        load_hardware("h100")
    assert caught.value.lines()[0].startswith("hardware: h100: known: h100-80gb, a100-80gb")
    assert caught.value.lines()[0].endswith("did you mean h100-80gb?")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (("bytes_per_s: 1e11", "bytes_per_sec: 1e11"), "did you mean bytes_per_s?"),
        (("compute_efficiency: 0.5", "compute_efficiency: 1.5"), "less than or equal to 1"),
        (("{bf16: 1e12}", "{bf16: -1}"), "flops_per_s.bf16: -1: greater than 0"),
        (("{bf16: 1e12}", "{}"), "flops_per_s"),
        (("name: toy", "name: !!python/object:os.system x"), "a tag is not allowed here"),
        (("name: toy", "name: [toy"), "toy.yaml:"),
        (("sources: [a data sheet]", "sources: []"), "sources"),
    ],
)
def test_a_wrong_file_is_an_error_that_names_the_key(tmp_path, change, text):
    path = tmp_path / "toy.yaml"
    path.write_text(MINIMAL.replace(*change))
    with pytest.raises(ConfigError) as caught:
        load_hardware(str(path))
    assert text in str(caught.value)


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="a file that can be read"):
        load_hardware(str(tmp_path / "none.yaml"))
