from sim.configs_dir import configs_dir


def test_the_folder_holds_the_models():
    assert (configs_dir() / "models" / "google--gemma-3-27b-it.json").is_file()
