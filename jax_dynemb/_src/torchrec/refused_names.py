# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Names of TorchRec's modules without a class here that something else replaces."""

_REASONS: dict[str, tuple[str, ...]] = {
    "no wrapper shards a model: give mesh=... to the collection.": (
        "EmbeddingTower",
        "EmbeddingTowerCollection",
        "ShardingEnv",
        "ModuleSharder",
        "ShardedModule",
        "ShardedTensor",
        "sharded_model_copy",
        "get_unsharded_module_names",
        "shard",
        "shard_modules",
    ),
    "no wrapper shards a model: give mesh=... to the collection. An axis left out of "
    "axis=... replicates.": ("DMPCollection",),
    "nothing shards a module: give plan=... to the collection, which a planner or "
    "jde.Plan makes.": (
        "EmbeddingBagCollectionSharder",
        "EmbeddingCollectionSharder",
        "FusedEmbeddingBagCollectionSharder",
        "FusedEmbeddingCollectionSharder",
        "ParameterSharding",
        "ShardingPlanner",
        "construct_module_sharding_plan",
        "get_default_sharders",
        "sharder_name",
    ),
    "give exchange_dtype='bfloat16' to the collection, for rows and gradients between "
    "devices.": ("CommType", "QCommsConfig", "get_qcomm_codecs_registry"),
    "no cache and no key-value store is behind a shard: give tier=jde.tiers.host(...) "
    "to to_table.": ("CacheAlgorithm", "CacheParams", "KeyValueParams"),
    "write jde.optim.adagrad(...) and its like, or the name as a str in "
    "from_fused_params.": ("EmbOptimType", "OptimType"),
    "write tables_from_fbgemm(embedding_specs, ...), and give the tables to a "
    "collection.": (
        "SplitTableBatchedEmbeddingBagsCodegen",
        "DenseTableBatchedEmbeddingBagsCodegen",
    ),
    "write to_table(tier=jde.tiers.ssd(path)) of a config, and iterate over "
    "jde.nnx.prefetch_rows(collection, batches).": (
        "SSDTableBatchedEmbeddingBags",
        "SSDIntNBitTableBatchedEmbeddingBags",
    ),
    "write jde.export.frozen(dtype='int8') of the trained tables.": (
        "IntNBitTableBatchedEmbeddingBagsCodegen",
    ),
    "write its name as a str, such as 'managed_caching' or 'l2', in tables_from_fbgemm "
    "or from_fused_params.": (
        "BoundsCheckMode",
        "ComputeDevice",
        "EmbeddingLocation",
        "PoolingMode",
        "SparseType",
        "WeightDecayMode",
    ),
    "write to_table(...) of the config; DataType and PoolingType are enums of str.": (
        "BaseEmbeddingConfig",
        "pooling_type_to_str",
    ),
    "EmbeddingShardingPlanner searches and estimates by itself; plan.choices, "
    "plan.devices and print(plan) show what it found.": (
        "EmbeddingEnumerator",
        "EmbeddingOffloadStats",
        "EmbeddingPerfEstimator",
        "EmbeddingStats",
        "EmbeddingStorageEstimator",
        "DynamicProgrammingProposer",
        "GreedyPerfPartitioner",
        "GreedyProposer",
        "GridSearchProposer",
        "MemoryBalancedPartitioner",
        "NoopStats",
        "Perf",
        "Shard",
        "ShardingOption",
        "Storage",
        "UniformProposer",
    ),
    "write StorageReservation(percentage, dense), or its for_model.": (
        "FixedPercentageStorageReservation",
        "HeuristicalStorageReservation",
    ),
    "write jax.process_index() and jax.local_device_count().": (
        "get_local_rank",
        "get_local_size",
    ),
    "write tables = with_optimizer(tables, {'*': jde.optim.adagrad(0.1)}) before the "
    "collection is made.": (
        "apply_optimizer_in_backward",
        "apply_overlapped_optimizer",
        "FusedOptimizer",
        "FusedOptimizerModule",
        "fuse_embedding_optimizer",
    ),
    "write jde.nnx.Optimizer(model, optax.adagrad(0.1)): it updates the parameters by "
    "optax, and rows by the optimizer of their table. Clipping is "
    "jde.nnx.clip_by_global_norm.": (
        "KeyedOptimizer",
        "CombinedOptimizer",
        "KeyedOptimizerWrapper",
        "OptimizerWrapper",
        "GradientClipping",
        "GradientClippingOptimizer",
        "in_backward_optimizer_filter",
    ),
    "write jde.optim.sgd, adagrad, adam, lamb, lars_sgd, rowwise_adagrad, "
    "partial_rowwise_adam or partial_rowwise_lamb; optax has those of dense "
    "parameters.": (
        "SGD",
        "Adagrad",
        "Adam",
        "LAMB",
        "LarsSGD",
        "PartialRowWiseAdam",
        "PartialRowWiseLAMB",
        "RowWiseAdagrad",
    ),
    "write warmup_schedule(stages, learning_rate) instead.": ("WarmupOptimizer",),
    "EmbeddingBagCollection is fused always.": ("FusedEmbeddingBagCollection",),
    "EmbeddingCollection is fused always.": ("FusedEmbeddingCollection",),
    "write EmbeddingBagCollection or EmbeddingCollection; there is one of each.": (
        "EmbeddingBagCollectionInterface",
        "EmbeddingCollectionInterface",
    ),
    "write PositionWeightedModuleCollection, or any callable from KeyedJaggedTensor to "
    "one with weights.": (
        "FeatureProcessorsCollection",
        "PositionWeightedProcessor",
        "PositionWeightsAttacher",
        "BaseFeatureProcessor",
    ),
    "jde.export.frozen(dtype=...) quantises a table and serves it.": (
        "QuantEmbeddingBagCollection",
        "QuantEmbeddingCollection",
        "quantize_inference_model",
        "shard_quant_model",
    ),
    "jde.export.program writes what serves a model in one file.": (
        "PredictFactory",
        "PredictModule",
    ),
    "load_torch_state_dict(module, state_dict) fills the tables, whatever their "
    "mesh.": ("state_dict_gather", "state_dict_to_device"),
    "a dynamic table remaps nothing, and its capacity takes the place of zch_size: "
    "from_managed_collision(params) gives the fields of the table.": (
        "ManagedCollisionModule",
        "ManagedCollisionCollection",
        "ManagedCollisionEmbeddingCollection",
        "ManagedCollisionEmbeddingBagCollection",
        "MCHManagedCollisionModule",
        "HashZchManagedCollisionModule",
        "HashZchEvictionConfig",
        "HashZchEvictionPolicyName",
    ),
    "a table evicts by its score_strategy, which from_managed_collision sets from the "
    "name of the policy.": (
        "MCHEvictionPolicy",
        "LFU_EvictionPolicy",
        "LRU_EvictionPolicy",
        "DistanceLFU_EvictionPolicy",
    ),
    "an admission rule decides which ids get a row: to_table(admission="
    "jde.admission.Frequency(...)) or Probability.": (
        "average_threshold_filter",
        "dynamic_threshold_filter",
        "probabilistic_threshold_filter",
    ),
    "write virtual_table_eviction_policy={...} with its fields, a dict.": (
        "VirtualTableEvictionPolicy",
        "CountBasedEvictionPolicy",
        "TimestampBasedEvictionPolicy",
        "CountTimestampMixedEvictionPolicy",
        "FeatureL2NormBasedEvictionPolicy",
        "FeatureScoreBasedEvictionPolicy",
    ),
    "write to_table(score_strategy='no_eviction').": ("NoEvictionPolicy",),
    "a for loop over prefetched batches is the pipeline: jde.pipeline.prefetch.": (
        "TrainPipeline",
        "TrainPipelineBase",
        "TrainPipelineContext",
        "DataLoadingThread",
    ),
    "it fills a cache ahead: jde.Tables.prefetch does, for tables with a tier.": (
        "PrefetchTrainPipelineSparseDist",
    ),
    "jde.Tables.export(since=...) streams what changed.": ("ModelDeltaTracker",),
    "jde.metrics has NE, Calibration, CTR, LogLoss and AUC; google-metrax has the "
    "others.": (
        "RecMetric",
        "RecMetricModule",
        "NEMetric",
        "CalibrationMetric",
        "CTRMetric",
        "AUCMetric",
        "AUPRCMetric",
        "MSEMetric",
        "MAEMetric",
        "NDCGMetric",
        "MetricsConfig",
        "RecTaskInfo",
        "ThroughputMetric",
        "generate_metric_module",
    ),
}

NAMES = {name: reason for reason, names in _REASONS.items() for name in names}
