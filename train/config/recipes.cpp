#include "train/config/recipes.hpp"

#include <algorithm>
#include <array>
#include <sstream>

#include "attention/registry.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"

namespace skytape::train {
namespace {

constexpr double kMost = 1e9;  // upper end of counts that only memory or patience limits

constexpr KeyInfo kKeys[] = {
    {"batch", KeyKind::integer, 1, 65536, {}, "examples per optimiser step"},
    {"accumulate", KeyKind::integer, 1, 65536, {}, "microbatches a batch is computed in"},
    {"lr", KeyKind::real, 0, 10, {}, "highest learning rate"},
    {"warmup", KeyKind::integer, 2, kMost, {}, "steps until the highest rate"},
    {"steps", KeyKind::integer, 3, kMost, {}, "optimiser steps, and length of the schedule"},
    {"schedule", KeyKind::choice, 0, 0, "one_cycle|inverse_sqrt|cosine|linear",
     "how the rate falls after the warm-up, and how beta1 runs", "one_cycle"},
    {"beta2", KeyKind::real, 0, 0.999999, {}, "decay of squared gradients", "0.999"},
    {"adam_epsilon", KeyKind::real, 0, 1, {}, "added to the root of their average", "1e-6"},
    {"weight_decay", KeyKind::real, 0, 10, {}, "decoupled decay per unit of learning rate"},
    {"clip_value", KeyKind::real, 0, 1e30, {}, "bound of every gradient entry; 0: off"},
    {"dropout", KeyKind::real, 0, 0.99, {}, "embedding, attention output, both MLP places"},
    {"attention_dropout", KeyKind::real, 0, 0.99, {}, "share of attention weights dropped"},
    {"features", KeyKind::integer, 1, 65536, {}, "landmarks, projected length or random features"},
    {"layers", KeyKind::integer, 1, 1024, {}, "encoder layers"},
    {"width", KeyKind::integer, 1, 65536, {}, "channels of the encoder (E)"},
    {"ff_width", KeyKind::integer, 1, 65536, {}, "channels inside MLP and head (F)"},
    {"heads", KeyKind::integer, 1, 1024, {}, "attention heads (H)"},
    {"head_width", KeyKind::integer, 0, 65536, {}, "channels of a head; 0: width / heads", "0"},
    {"norm", KeyKind::choice, 0, 0, "pre|post",
     "layer norms before attention and MLP, or behind every sum as in BERT", "pre"},
    {"norm_epsilon", KeyKind::real, 1e-20, 0.1, {}, "added to variances by them", "1e-5"},
    {"pooling", KeyKind::choice, 0, 0, "nominal|mean|first|cls|max|attention|pyramid",
     "how the encodings of a sequence become one vector", "nominal"},
    {"positions", KeyKind::choice, 0, 0, "learned|sinusoidal|rotary|none",
     "how the model is told where a token stands", "learned"},
    {"rotary_base", KeyKind::real, 1, 1e9, {}, "base of the angles of rotary positions", "10000"},
    {"both_ends",
     KeyKind::flag,
     0,
     1,
     {},
     "a trained vector of the distance to the last token",
     "0"},
    {"token_types",
     KeyKind::flag,
     0,
     1,
     {},
     "pairs: a trained vector of the text a token is of",
     "0"},
    {"patch",
     KeyKind::integer,
     0,
     255,
     {},
     "pixels: side of the square whose greys each sees as numbers, odd; 0: none",
     "0"},
    {"mirror", KeyKind::flag, 0, 1, {}, "pixels: half of the training pictures are mirrored", "0"},
    {"shift", KeyKind::integer, 0, 65535, {}, "pixels that training pictures are moved by", "0"},
    {"ngrams",
     KeyKind::integer,
     0,
     16,
     {},
     "tokens of the longest n-gram with a vector; 0: none",
     "0"},
    {"ngram_rows", KeyKind::integer, 1, 1 << 24, {}, "vectors that all n-grams share", "65536"},
    {"ngram_deviation", KeyKind::real, 0, 100, {}, "deviation of their first values", "0.1"},
    {"pair_cosine",
     KeyKind::flag,
     0,
     1,
     {},
     "pairs: the head also reads the cosine of both encodings",
     "0"},
    {"residual_scale", KeyKind::real, 0, 10, {}, "of the first values of what layers add", "1"},
    {"conv_width",
     KeyKind::integer,
     0,
     65535,
     {},
     "positions mixed by a convolution beside attention, odd; 0: none",
     "0"},
    {"length_warmup", KeyKind::integer, 0, kMost, {}, "steps of growing lengths; 0: off", "0"},
    {"length_hold", KeyKind::integer, 0, kMost, {}, "the first of them, before lengths grow", "0"},
    {"length_whole",
     KeyKind::integer,
     0,
     kMost,
     {},
     "each so-many-th of them is not cut; 0: none",
     "0"},
    {"length_start", KeyKind::integer, 2, 1 << 24, {}, "tokens kept at the first of them", "64"},
    {"length_growth", KeyKind::choice, 0, 0, "linear|geometric",
     "by as much, or by as large a factor, in each of them", "linear"},
    {"length_keep", KeyKind::choice, 0, 0, "front|ends", "what is left of a sequence that is cut",
     "front"},
    {"label_smoothing", KeyKind::real, 0, 0.99, {}, "share of a label spread over all", "0"},
    {"pretrain_steps", KeyKind::integer, 0, kMost, {}, "steps of predicting hidden tokens", "0"},
    {"pretrain_lr", KeyKind::real, 0, 10, {}, "their highest learning rate", "1e-3"},
    {"pretrain_warmup", KeyKind::integer, 2, kMost, {}, "their steps until that rate", "100"},
    {"mask_rate", KeyKind::real, 0.001, 0.999, {}, "share of tokens that are hidden", "0.15"},
    {"mask_span", KeyKind::integer, 1, 65536, {}, "neighbours that are hidden together", "1"},
    {"mask_keep", KeyKind::real, 0, 1, {}, "share of the hidden that are shown as they are", "0"},
    {"mask_random", KeyKind::real, 0, 1, {}, "share that another token stands for", "0"},
    {"mask", KeyKind::choice, 0, 0, "nonzero|length", "positions that attention may read"},
    {"drop_close",
     KeyKind::flag,
     0,
     1,
     {},
     "ListOps without `]`, as the papers' pipeline reads it"},
    {"text.dev", KeyKind::choice, 0, 0, "test|heldout", "which examples Text's dev split is"},
    {"max_length", KeyKind::integer, 1, 1 << 24, {}, "tokens kept from the front"},
    {"eval_every", KeyKind::integer, 1, kMost, {}, "steps between dev evaluations"},
    {"eval_examples", KeyKind::integer, 0, kMost, {}, "dev examples per evaluation; 0: all"},
    {"patience", KeyKind::integer, 0, kMost, {}, "evaluations without progress to stop at; 0: off"},
    {"select", KeyKind::choice, 0, 0, "best_accuracy|best_loss|last", "weights that are tested"},
    {"select_after", KeyKind::real, 0, 1, {}, "share of the steps before selection starts"},
    {"group_by_length", KeyKind::flag, 0, 1, {}, "batches of similar lengths in a shuffle window"},
    {"checkpoint_every", KeyKind::integer, 1, kMost, {}, "steps between checkpoints"},
    {"precision", KeyKind::choice, 0, 0, "auto|fp32|tf32|bf16",
     "of matrix products; auto: bf16 on GPUs that have it, else fp32"},
};

/// What other programs call keys that are spelt too differently for a guess, without `_`.
struct OtherName {
  std::string_view name, key;
};
constexpr OtherName kOtherNames[] = {
    {"learningrate", "lr"},
    {"batchsize", "batch"},
    {"maxsteps", "steps"},
    {"warmupsteps", "warmup"},
    {"gradientaccumulationsteps", "accumulate"},
    {"adambeta2", "beta2"},
    {"hiddensize", "width"},
    {"intermediatesize", "ff_width"},
    {"numhiddenlayers", "layers"},
    {"numattentionheads", "heads"},
    {"layernormeps", "norm_epsilon"},
    {"mlmprobability", "mask_rate"},
    {"maxseqlength", "max_length"},
    {"savesteps", "checkpoint_every"},
    {"evalsteps", "eval_every"},
    {"lrschedulertype", "schedule"},
};

constexpr std::array<RecipeInfo, 4> kRecipes = {{
    {"skytape", "where we train better; elsewhere the Skyformer paper's, known bugs fixed"},
    {"skyformer", "the Skyformer paper's table with its official code's behaviour"},
    {"skeinformer", "the Skeinformer paper's: 256 features, large batches, early stopping"},
    {"lra", "the Long Range Arena's models and schedules, as its released configurations"},
}};

// Tables that are read by column.
// clang-format off

/// A key's value in each recipe.
struct Row {
  std::string_view key, skyformer, skeinformer, skytape, lra;
};

constexpr Row kEveryTask[] = {
    // key                skyformer        skeinformer  skytape          lra
    {"accumulate",         "1",             "1",         "1",             "1"},
    {"schedule",           "one_cycle",     "one_cycle", "one_cycle",     "inverse_sqrt"},
    {"beta2",              "0.999",         "0.999",     "0.999",         "0.98"},
    {"adam_epsilon",       "1e-6",          "1e-6",      "1e-6",          "1e-9"},
    {"weight_decay",       "0",             "0",         "0",             "0.1"},
    {"clip_value",         "1",             "0",         "1",             "0"},
    {"dropout",            "0.1",           "0.1",       "0.1",           "0.1"},
    {"attention_dropout",  "0.1",           "0.1",       "0.1",           "0.1"},
    {"features",           "128",           "256",       "128",           "128"},
    {"layers",             "2",             "2",         "2",             "2"},
    {"width",              "64",            "64",        "64",            "64"},
    {"ff_width",           "128",           "128",       "128",           "128"},
    {"heads",              "2",             "2",         "2",             "2"},
    {"head_width",         "0",             "0",         "0",             "0"},
    {"norm",               "pre",           "pre",       "pre",           "pre"},
    {"norm_epsilon",       "1e-5",          "1e-5",      "1e-5",          "1e-5"},
    {"pooling",            "nominal",       "nominal",   "nominal",       "cls"},
    {"positions",          "learned",       "learned",   "learned",       "sinusoidal"},
    {"rotary_base",        "10000",         "10000",     "10000",         "10000"},
    {"both_ends",          "0",             "0",         "0",             "0"},
    {"token_types",        "0",             "0",         "0",             "0"},
    {"patch",              "0",             "0",         "0",             "0"},
    {"mirror",             "0",             "0",         "0",             "0"},
    {"shift",              "0",             "0",         "0",             "0"},
    {"ngrams",             "0",             "0",         "0",             "0"},
    {"ngram_rows",         "65536",         "65536",     "65536",         "65536"},
    {"ngram_deviation",    "0.1",           "0.1",       "0.1",           "0.1"},
    {"pair_cosine",        "0",             "0",         "0",             "0"},
    {"residual_scale",     "1",             "1",         "1",             "1"},
    {"conv_width",         "0",             "0",         "0",             "0"},
    {"length_warmup",      "0",             "0",         "0",             "0"},
    {"length_hold",        "0",             "0",         "0",             "0"},
    {"length_whole",       "0",             "0",         "0",             "0"},
    {"length_start",       "64",            "64",        "64",            "64"},
    {"length_growth",      "linear",        "linear",    "linear",        "linear"},
    {"length_keep",        "front",         "front",     "front",         "front"},
    {"label_smoothing",    "0",             "0",         "0",             "0"},
    {"pretrain_steps",     "0",             "0",         "0",             "0"},
    {"pretrain_lr",        "1e-3",          "1e-3",      "1e-3",          "1e-3"},
    {"pretrain_warmup",    "100",           "100",       "100",           "100"},
    {"mask_rate",          "0.15",          "0.15",      "0.15",          "0.15"},
    {"mask_span",          "1",             "1",         "1",             "1"},
    {"mask_keep",          "0",             "0",         "0",             "0"},
    {"mask_random",        "0",             "0",         "0",             "0"},
    {"mask",               "nonzero",       "nonzero",   "length",        "nonzero"},
    {"drop_close",         "1",             "1",         "0",             "1"},
    {"text.dev",           "test",          "test",      "heldout",       "test"},
    {"eval_examples",      "0",             "0",         "0",             "0"},
    {"patience",           "0",             "10",        "0",             "0"},
    {"select",             "best_accuracy", "best_loss", "best_accuracy", "last"},
    {"select_after",       "0.2",           "0",         "0",             "0"},
    {"group_by_length",    "0",             "0",         "1",             "0"},
    {"checkpoint_every",   "500",           "500",       "500",           "500"},
    {"precision",          "fp32",          "fp32",      "auto",          "fp32"},
};

/// The same for one task.
struct TaskRow {
  std::string_view task, key, skyformer, skeinformer, skytape, lra;
};

// eval_examples: dev batches x batch of the papers' configurations; where they draw more than the
// split holds, the whole split. skytape evaluates whole splits, less often where they are large.
constexpr TaskRow kTasks[] = {
    // task        key                  skyformer  skeinformer  skytape      lra
    {"listops",    "batch",             "32",      "256",       "32",        "32"},
    {"listops",    "lr",                "1e-4",    "1e-4",      "1e-3",      "1.58113883e-3"},
    {"listops",    "warmup",            "1000",    "1000",      "200",       "1000"},
    {"listops",    "steps",             "50000",   "20000",     "15000",     "5000"},
    {"listops",    "features",          "128",     "256",       "32",        "128"},
    {"listops",    "dropout",           "0.1",     "0.1",       "0",         "0.1"},
    {"listops",    "attention_dropout", "0.1",     "0.1",       "0",         "0.1"},
    {"listops",    "pooling",           "nominal", "nominal",   "first",     "cls"},
    {"listops",    "positions",         "learned", "learned",   "rotary",    "sinusoidal"},
    {"listops",    "rotary_base",       "10000",   "10000",     "1000",      "10000"},
    {"listops",    "both_ends",         "0",       "0",         "1",         "0"},
    {"listops",    "conv_width",        "0",       "0",         "15",        "0"},
    {"listops",    "length_warmup",     "0",       "0",         "13500",     "0"},
    {"listops",    "length_hold",       "0",       "0",         "5000",      "0"},
    {"listops",    "length_whole",      "0",       "0",         "16",        "0"},
    {"listops",    "length_growth",     "linear",  "linear",    "geometric", "linear"},
    {"listops",    "length_keep",       "front",   "front",     "ends",      "front"},
    {"listops",    "eval_every",        "500",     "500",       "1000",      "20"},
    {"listops",    "eval_examples",     "1984",    "0",         "0",         "640"},
    {"listops",    "layers",            "2",       "2",         "2",         "6"},
    {"listops",    "width",             "64",      "64",        "64",        "512"},
    {"listops",    "ff_width",          "128",     "128",       "128",       "2048"},
    {"listops",    "heads",             "2",       "2",         "2",         "8"},

    {"text",       "batch",             "16",      "128",       "32",        "32"},
    {"text",       "lr",                "1e-4",    "1e-4",      "1e-3",      "5.59016994e-4"},
    {"text",       "warmup",            "80",      "80",        "25",        "8000"},
    {"text",       "steps",             "50000",   "50000",     "800",       "20000"},
    {"text",       "features",          "128",     "256",       "32",        "128"},
    {"text",       "dropout",           "0.1",     "0.1",       "0.2",       "0.1"},
    {"text",       "pooling",           "nominal", "nominal",   "mean",      "cls"},
    {"text",       "positions",         "learned", "learned",   "rotary",    "sinusoidal"},
    {"text",       "ngrams",            "0",       "0",         "5",         "0"},
    {"text",       "ngram_rows",        "65536",   "65536",     "16384",     "65536"},
    {"text",       "eval_every",        "500",     "500",       "100",       "100"},
    {"text",       "eval_examples",     "6400",    "0",         "0",         "0"},
    {"text",       "layers",            "2",       "2",         "2",         "4"},
    {"text",       "width",             "64",      "64",        "64",        "256"},
    {"text",       "ff_width",          "128",     "128",       "128",       "1024"},
    {"text",       "heads",             "2",       "2",         "2",         "4"},

    {"retrieval",  "batch",             "16",      "64",        "16",        "32"},
    {"retrieval",  "lr",                "2e-4",    "1e-4",      "1e-3",      "5.59016994e-4"},
    {"retrieval",  "warmup",            "800",     "800",       "25",        "8000"},
    {"retrieval",  "steps",             "50000",   "60000",     "900",       "5000"},
    {"retrieval",  "eval_every",        "1000",    "300",       "100",       "100"},
    {"retrieval",  "features",          "128",     "256",       "32",        "128"},
    {"retrieval",  "pooling",           "nominal", "nominal",   "mean",      "cls"},
    {"retrieval",  "positions",         "learned", "learned",   "none",      "sinusoidal"},
    {"retrieval",  "ngrams",            "0",       "0",         "5",         "0"},
    {"retrieval",  "ngram_rows",        "65536",   "65536",     "16384",     "65536"},
    {"retrieval",  "ngram_deviation",   "0.1",     "0.1",       "1",         "0.1"},
    {"retrieval",  "pair_cosine",       "0",       "0",         "1",         "0"},
    {"retrieval",  "eval_examples",     "4800",    "0",         "0",         "0"},
    {"retrieval",  "residual_scale",    "1",       "1",         "0.3",       "1"},
    {"retrieval",  "layers",            "2",       "2",         "1",         "4"},
    {"retrieval",  "width",             "64",      "64",        "128",       "128"},
    {"retrieval",  "ff_width",          "128",     "128",       "128",       "512"},
    {"retrieval",  "heads",             "2",       "2",         "2",         "4"},

    {"pathfinder", "batch",             "128",     "512",       "64",        "512"},
    {"pathfinder", "lr",                "2e-4",    "2e-4",      "2e-3",      "1e-3"},
    {"pathfinder", "warmup",            "312",     "312",       "100",       "312"},
    {"pathfinder", "steps",             "50000",   "31200",     "6000",      "62400"},
    {"pathfinder", "eval_every",        "500",     "312",       "1000",      "312"},
    {"pathfinder", "eval_examples",     "19968",   "0",         "2000",      "19968"},
    {"pathfinder", "schedule",          "one_cycle", "one_cycle", "one_cycle", "cosine"},
    {"pathfinder", "weight_decay",      "0",       "0",         "0",         "0"},
    {"pathfinder", "dropout",           "0.1",     "0.1",       "0",         "0.2"},
    {"pathfinder", "layers",            "2",       "2",         "1",         "1"},
    {"pathfinder", "width",             "64",      "64",        "48",        "128"},
    {"pathfinder", "ff_width",          "128",     "128",       "96",        "128"},
    {"pathfinder", "heads",             "2",       "2",         "2",         "4"},
    {"pathfinder", "head_width",        "0",       "0",         "0",         "16"},
    {"pathfinder", "pooling",           "nominal", "nominal",   "pyramid",   "mean"},
    {"pathfinder", "features",          "128",     "256",       "32",        "128"},
    {"pathfinder", "patch",             "0",       "0",         "1",         "0"},

    {"image",      "batch",             "256",     "256",       "16",        "256"},
    {"image",      "lr",                "1e-4",    "1e-4",      "2e-3",      "5e-4"},
    {"image",      "warmup",            "175",     "175",       "400",       "175"},
    {"image",      "steps",             "50000",   "50000",     "12000",     "35000"},
    {"image",      "eval_every",        "50",      "50",        "1000",      "175"},
    {"image",      "schedule",          "one_cycle", "one_cycle", "one_cycle", "cosine"},
    {"image",      "weight_decay",      "0",       "0",         "0",         "0"},
    {"image",      "dropout",           "0.1",     "0.1",       "0",         "0.3"},
    {"image",      "attention_dropout", "0.1",     "0.1",       "0.1",       "0.2"},
    {"image",      "layers",            "2",       "2",         "2",         "1"},
    {"image",      "width",             "64",      "64",        "64",        "32"},
    {"image",      "ff_width",          "128",     "128",       "128",       "64"},
    {"image",      "heads",             "2",       "2",         "2",         "1"},
    {"image",      "pooling",           "nominal", "nominal",   "mean",      "mean"},
    {"image",      "positions",         "learned", "learned",   "learned",   "learned"},
    {"image",      "features",          "128",     "256",       "32",        "128"},
    {"image",      "patch",             "0",       "0",         "5",         "0"},
    {"image",      "mirror",            "0",       "0",         "1",         "0"},
    {"image",      "conv_width",        "0",       "0",         "3",         "0"},
    {"image",      "eval_examples",     "0",       "0",         "1000",      "0"},

    // What a corpus is pre-trained by is RoBERTa's (Liu et al. 2019, table 9): the rate, its shape
    // and its warm-up's share, Adam, decay, what is hidden and how. Size, batch and length are not.
    {"corpus",     "batch",              "16",      "128",      "32",        "32"},
    {"corpus",     "lr",                 "1e-4",    "1e-4",     "6e-4",      "6e-4"},
    {"corpus",     "warmup",             "80",      "80",       "480",       "480"},
    {"corpus",     "steps",              "50000",   "50000",    "10000",     "10000"},
    {"corpus",     "schedule",           "one_cycle", "one_cycle", "linear",  "linear"},
    {"corpus",     "beta2",              "0.999",   "0.999",    "0.98",      "0.98"},
    {"corpus",     "weight_decay",       "0",       "0",        "0.01",      "0.01"},
    {"corpus",     "clip_value",         "1",       "0",        "0",         "0"},
    {"corpus",     "layers",             "2",       "2",        "4",         "4"},
    {"corpus",     "width",              "64",      "64",       "256",       "256"},
    {"corpus",     "ff_width",           "128",     "128",      "1024",      "1024"},
    {"corpus",     "heads",              "2",       "2",        "4",         "4"},
    {"corpus",     "pooling",            "nominal", "nominal",  "mean",      "mean"},
    {"corpus",     "pretrain_lr",        "1e-3",    "1e-3",     "6e-4",      "6e-4"},
    {"corpus",     "pretrain_warmup",    "100",     "100",      "480",       "480"},
    {"corpus",     "mask_keep",          "0",       "0",        "0.1",       "0.1"},
    {"corpus",     "mask_random",        "0",       "0",        "0.1",       "0.1"},
    {"corpus",     "eval_every",         "500",     "500",      "500",       "500"},
    {"corpus",     "eval_examples",      "0",       "0",        "0",         "0"},
};

/// Gradient accumulation that the papers' configurations give to single methods.
struct Accumulation {
  std::string_view recipe, task, method, microbatches;
};

constexpr Accumulation kAccumulation[] = {
    {"skyformer",   "text",       "kernelized",    "2"},
    {"skyformer",   "retrieval",  "kernelized",    "2"},
    {"skyformer",   "pathfinder", "informer",      "2"},
    {"skyformer",   "pathfinder", "informer_mask", "2"},
    {"skyformer",   "image",      "informer",      "2"},
    {"skyformer",   "image",      "informer_mask", "2"},
    {"skeinformer", "listops",    "skeinformer",   "2"},
    {"skeinformer", "listops",    "skein_nonorm",  "4"},
    {"skeinformer", "text",       "skeinformer",   "2"},
    {"skeinformer", "text",       "skein_nonorm",  "8"},
    {"skeinformer", "retrieval",  "skein_nonorm",  "16"},
    {"skeinformer", "pathfinder", "skeinformer",   "2"},
    {"skeinformer", "pathfinder", "skein_nonorm",  "2"},
    {"skeinformer", "pathfinder", "informer",      "2"},
    {"skeinformer", "pathfinder", "informer_mask", "2"},
    {"skeinformer", "image",      "skein_nonorm",  "2"},
    {"skeinformer", "image",      "informer",      "2"},
    {"skeinformer", "image",      "informer_mask", "2"},
};

constexpr Instead kInstead[] = {
    {"linformer", "positions", "rotary", "learned", "it combines keys of all positions"},
    {"linear_attention", "positions", "rotary", "learned", "its weights are no function of q.k"},
    {"cosformer", "positions", "rotary", "learned", "its weights are no function of q.k"},
    {"luna", "positions", "rotary", "learned", "its memory has no positions to compare with"},
    {"local", "pooling", "first", "attention", "its first token sees the first block alone"},
    {"local", "positions", "rotary", "learned", "what pools blocks must know where they stand"},
    {"routing", "pooling", "first", "mean", "its first token may be in no cluster"},
    {"routing", "positions", "rotary", "learned", "its centroids stand for what, not where"},
};

constexpr PaperOption kPaperOptions[] = {
    {"linformer",     "frozen",         "1"},
    {"linformer",     "init_std",       "0.02"},
    {"linformer",     "sharing",        "official"},
    {"performer",     "form",           "official"},
    {"skein*",        "pilot_gradient", "official"},
    {"skein*",        "weighted",       "0"},
    {"skein*",        "keep_pilot",     "0"},
    {"skyformer",     "scale",          "0.42044820762685725"},  // 32^-1/4
    {"skyformer",     "landmarks",      "official"},
    {"skyformer",     "inverse_start",  "official"},
    {"skyformer",     "detach_start",   "0"},
    {"skyformer",     "inverse_steps",  "6"},
    {"nystrom",       "inverse_start",  "official"},
    {"nystrom",       "detach_start",   "0"},
    {"nystrom",       "inverse_steps",  "6"},
    {"bigbird",       "random_range",   "official"},
    {"informer",      "measure",        "sampled"},
    {"informer_mask", "measure",        "sampled"},
};

/// What the Long Range Arena's code has for its methods, where it is not our default.
constexpr PaperOption kArenaOptions[] = {
    {"local",              "form",         "official"},
    {"local",              "block",        "20"},
    {"longformer",         "window",       "512"},
    {"sparse_transformer", "stride",       "50"},
    {"sparse_transformer", "summary",      "10"},
    {"sinkhorn",           "block",        "50"},
    {"sinkhorn",           "steps",        "1"},
    {"sinkhorn",           "temperature",  "1"},
    {"sinkhorn",           "gumbel",       "0"},
    {"synthesizer",        "shared",       "1"},
    {"bigbird",            "random_range", "official"},
    {"linformer",          "features",     "16"},
    {"performer",          "features",     "256"},
};

// clang-format on

/// Measured once, with models that see no order.
struct BaselineRow {
  std::string_view task;
  TrivialBaseline baseline;
};
constexpr BaselineRow kBaselines[] = {
    {"listops", {0.362, "the best label given the root operator alone"}},
    {"text", {0.662, "logistic regression on byte frequencies"}},
    {"image", {0.287, "softmax regression on the raw pixels"}},
    {"pathfinder", {0.5, "always the same answer"}},
    {"retrieval", {0.5, "always the same answer"}},
};

/// Variations of a benchmark's task (easier pictures, substitute data) belong to it.
std::string_view family(std::string_view task) {
  if (task.starts_with("pathx") || task.starts_with("pathfinder")) return "pathfinder";
  return task.starts_with("retrieval") ? "retrieval" : task;
}

/// The task whose rows a task trains by: without rows of its own (own data, a new task) it trains as
/// Text does.
std::string_view rows_for(std::string_view task) {
  const bool has_rows = std::any_of(std::begin(kTasks), std::end(kTasks),
                                    [&](const TaskRow& row) { return row.task == family(task); });
  return has_rows ? family(task) : "text";
}

template <class AnyRow> std::string_view column(const AnyRow& row, std::string_view recipe) {
  if (recipe == "skyformer") return row.skyformer;
  if (recipe == "lra") return row.lra;
  return recipe == "skeinformer" ? row.skeinformer : row.skytape;
}

void require_recipe(std::string_view recipe) {
  std::vector<std::string> names;
  for (const RecipeInfo& info : kRecipes) {
    if (info.name == recipe) return;
    names.emplace_back(info.name);
  }
  throw UsageError(unknown_name("recipe", recipe, names));
}

/// Methods that read values alone have nothing for rotary positions to turn: not by a row, so that
/// a new one needs none.
bool turns_nothing(std::string_view method) {
  const auto all = attention::registry();
  return std::any_of(all.begin(), all.end(), [&](const attention::Spec& spec) {
    return spec.name == method && spec.values_only;
  });
}

}  // namespace

std::span<const KeyInfo> recipe_keys() { return kKeys; }

const KeyInfo* find_key(std::string_view key) {
  for (const KeyInfo& info : kKeys) {
    if (info.key == key) return &info;
  }
  return nullptr;
}

std::string_view key_called(std::string_view name) {
  std::string spelt;
  for (const char letter : name) {
    if (letter != '_' && letter != '-') spelt += letter;
  }
  for (const OtherName& other : kOtherNames) {
    if (other.name == spelt) return other.key;
  }
  return {};
}

std::string range_of(const KeyInfo& key) {
  if (key.kind == KeyKind::flag) return "0|1";
  if (key.kind == KeyKind::choice) return std::string(key.choices);
  std::ostringstream text;
  text.precision(10);
  text << key.low << ".." << key.high;
  return text.str();
}

std::span<const RecipeInfo> recipes() { return kRecipes; }

std::vector<Setting> recipe_settings(std::string_view recipe, std::string_view task,
                                     std::string_view method) {
  require_recipe(recipe);
  std::vector<Setting> settings;
  const auto add = [&](std::string_view key, std::string_view value, std::string origin) {
    Setting setting{std::string(key), std::string(value), std::move(origin)};
    for (Setting& before : settings) {  // a task's row replaces that of every task
      if (before.key == key) return void(before = std::move(setting));
    }
    settings.push_back(std::move(setting));
  };
  const std::string of_recipe = "recipe " + std::string(recipe);
  for (const Row& row : kEveryTask) add(row.key, column(row, recipe), of_recipe);
  for (const TaskRow& row : kTasks) {
    if (row.task != rows_for(task)) continue;
    const std::string_view value = column(row, recipe);
    add(row.key, value, of_recipe + ", row " + std::string(row.task));
  }
  for (const Accumulation& row : kAccumulation) {
    if (row.recipe == recipe && row.task == rows_for(task) && row.method == method) {
      add("accumulate", row.microbatches, of_recipe + ", row " + std::string(method));
    }
  }
  for (Setting& setting : settings) setting = for_method(setting, method);
  if (recipe == "skytape") return settings;
  const std::span<const PaperOption> rows =
      recipe == "lra" ? std::span<const PaperOption>(kArenaOptions) : kPaperOptions;
  for (const PaperOption& row : rows) {
    if (!matches(row, method)) continue;
    const bool shared = row.option == "features";  // a recipe's key and the option of many methods
    add(shared ? "features" : join(method, ".", row.option), row.value,
        shared ? join(of_recipe, ", row ", method) : of_recipe);
  }
  return settings;
}

std::span<const Instead> instead_rows() { return kInstead; }

Setting for_method(const Setting& setting, std::string_view method) {
  if (setting.key == "positions" && setting.value == "rotary" && turns_nothing(method)) {
    return {setting.key, "learned",
            join(setting.origin, ", row ", method, ": it reads no queries and keys")};
  }
  for (const Instead& row : kInstead) {
    if (row.method != method || row.key != setting.key || row.value != setting.value) continue;
    return {setting.key, std::string(row.instead),
            join(setting.origin, ", row ", method, ": ", row.because)};
  }
  return setting;
}

std::span<const PaperOption> paper_options() { return kPaperOptions; }

bool matches(const PaperOption& row, std::string_view method) {
  if (!row.methods.ends_with('*')) return row.methods == method;
  return method.starts_with(row.methods.substr(0, row.methods.size() - 1));
}

TrivialBaseline trivial_baseline(std::string_view task) {
  for (const BaselineRow& row : kBaselines) {
    if (row.task == family(task)) return row.baseline;
  }
  return {};
}

}  // namespace skytape::train
