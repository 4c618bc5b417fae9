"""Which family's rule reads which architecture; one line per class name of a config.json."""

from __future__ import annotations

from sim.models.families.bailing import bailing_linear_v2, bailing_v2_5
from sim.models.families.bamba import bamba, granite_hybrid
from sim.models.families.cohere import cohere2
from sim.models.families.deepseek import deepseek, deepseek_sparse, glm_sparse
from sim.models.families.deepseek_v4 import deepseek_v4
from sim.models.families.falcon_h1 import falcon_h1
from sim.models.families.gated_delta import qwen3_5, qwen3_5_moe, qwen3_next
from sim.models.families.gemma import gemma2, gemma3, gemma3_text
from sim.models.families.gemma3n import gemma3n
from sim.models.families.gemma4 import gemma4
from sim.models.families.gpt_oss import gpt_oss
from sim.models.families.jamba import jamba
from sim.models.families.kimi_linear import kimi_linear
from sim.models.families.lfm2 import lfm2, lfm2_moe
from sim.models.families.lightning import minimax_text_01
from sim.models.families.listed import exaone4, ministral, olmo3
from sim.models.families.llama4 import llama4
from sim.models.families.mimo import mimo_v2
from sim.models.families.mixture import glm4_moe, hunyuan_moe, minimax_m2, qwen_moe
from sim.models.families.nemotron_h import nemotron_h
from sim.models.families.phi4_flash import phi4_flash
from sim.models.families.plamo2 import plamo2
from sim.models.families.recurrent_gemma import recurrent_gemma
from sim.models.families.state_space import falcon_mamba, mamba, mamba2
from sim.models.families.step import step3p5
from sim.models.families.uniform import hunyuan, llama, one_window, qwen
from sim.models.families.whisper import whisper
from sim.models.families.zamba2 import zamba2
from sim.models.parts import Rule
from sim.registry import Registry

ARCHITECTURES: Registry[Rule] = Registry(
    "architectures",
    {
        "LlamaForCausalLM": llama,
        "MistralForCausalLM": one_window,
        "Phi3ForCausalLM": one_window,
        "Qwen2ForCausalLM": qwen,
        "Qwen3ForCausalLM": qwen,
        "Qwen3MoeForCausalLM": qwen_moe,
        "HunYuanDenseV1ForCausalLM": hunyuan,
        "HunYuanMoEV1ForCausalLM": hunyuan_moe,
        "Glm4MoeForCausalLM": glm4_moe,
        "MiniMaxM2ForCausalLM": minimax_m2,
        "Gemma2ForCausalLM": gemma2,
        "Gemma3ForCausalLM": gemma3_text,
        "Gemma3ForConditionalGeneration": gemma3,
        "Gemma3nForCausalLM": gemma3n,
        "Gemma3nForConditionalGeneration": gemma3n,
        "Gemma4ForCausalLM": gemma4,
        "Gemma4ForConditionalGeneration": gemma4,
        "GptOssForCausalLM": gpt_oss,
        "MinistralForCausalLM": ministral,
        "Cohere2ForCausalLM": cohere2,
        "Olmo3ForCausalLM": olmo3,
        "Exaone4ForCausalLM": exaone4,
        "Llama4ForCausalLM": llama4,
        "Llama4ForConditionalGeneration": llama4,
        "MiMoV2FlashForCausalLM": mimo_v2,
        "Step3p5ForCausalLM": step3p5,
        "JambaForCausalLM": jamba,
        "BambaForCausalLM": bamba,
        "GraniteMoeHybridForCausalLM": granite_hybrid,
        "Zamba2ForCausalLM": zamba2,
        "NemotronHForCausalLM": nemotron_h,
        "FalconH1ForCausalLM": falcon_h1,
        "Plamo2ForCausalLM": plamo2,
        "Phi4FlashForCausalLM": phi4_flash,
        "RecurrentGemmaForCausalLM": recurrent_gemma,
        "Lfm2ForCausalLM": lfm2,
        "Lfm2MoeForCausalLM": lfm2_moe,
        "Qwen3NextForCausalLM": qwen3_next,
        "Qwen3_5ForCausalLM": qwen3_5,
        "Qwen3_5ForConditionalGeneration": qwen3_5,
        "Qwen3_5MoeForCausalLM": qwen3_5_moe,
        "Qwen3_5MoeForConditionalGeneration": qwen3_5_moe,
        "KimiLinearForCausalLM": kimi_linear,
        "MiniMaxText01ForCausalLM": minimax_text_01,
        "MiniMaxM1ForCausalLM": minimax_text_01,
        "BailingMoeLinearV2ForCausalLM": bailing_linear_v2,
        "BailingMoeV2_5ForCausalLM": bailing_v2_5,
        "MambaForCausalLM": mamba,
        "Mamba2ForCausalLM": mamba2,
        "FalconMambaForCausalLM": falcon_mamba,
        "DeepseekV2ForCausalLM": deepseek,
        "DeepseekV3ForCausalLM": deepseek,
        "DeepseekV32ForCausalLM": deepseek_sparse,
        "GlmMoeDsaForCausalLM": glm_sparse,
        "DeepseekV4ForCausalLM": deepseek_v4,
        "WhisperForConditionalGeneration": whisper,
    },
)
